"""Tells the story, draws it into a file, and prints its figures."""

import os
import sys
from pathlib import Path

import django


def main() -> None:
    """Takes the file to write."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()  # the catalog's types come from a package with Django's models in it
    from tests.simulation.picture import draw
    from tests.simulation.story import figures, tell

    story = tell()
    Path(sys.argv[1]).write_text(draw(story))
    print(figures(story))


if __name__ == "__main__":
    main()
