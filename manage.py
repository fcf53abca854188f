#!/usr/bin/env python
"""Django's command line. Commands here run as the database's owner unless DATABASE_ROLE says otherwise."""

import os
import sys


def adopt_what_runs() -> None:
    """Takes the engines and secrets of what `make run` started here, unless the environment names a database."""
    if os.environ.get("DATABASE_URL"):
        return
    try:
        from deploy.state import Memory, state_folder
    except ModuleNotFoundError:  # in the image, which is told everything
        return
    running = state_folder() / "product.env"
    if os.access(running, os.R_OK):
        for name, value in Memory(running).all().items():
            os.environ.setdefault(name, value)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    os.environ.setdefault("DATABASE_ROLE", "owner")
    adopt_what_runs()
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)
