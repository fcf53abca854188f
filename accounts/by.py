"""Who runs a `manage.py` command, for the books."""

import getpass
import os

from django.core.management.base import CommandParser


def add_by(parser: CommandParser) -> None:
    """Adds `--by NAME`: by default the user of the system, whom a container may know by number alone."""
    try:
        default = getpass.getuser()
    except (KeyError, OSError):  # no entry in the password file; OSError since Python 3.13
        default = f"uid {os.getuid()}"
    parser.add_argument(
        "--by", default=default, metavar="NAME", help="Who does it, by their name in the console; by default you."
    )
