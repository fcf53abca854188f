"""`manage.py makemessages`: brings the catalogues of the console's words up to date. gettext's tools must be there."""

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.commands import compilemessages, makemessages

from gateway.console.words import names

LANGUAGE = "zh_Hans"
ELSEWHERE = [".*", "tests", "bench", "deploy", "docs", "migrations", "locale"]


class Command(makemessages.Command):
    """Django's, with the names that Django makes itself, without line numbers, dates, guesses and what is not said any
    more.
    """

    msgmerge_options = [*makemessages.Command.msgmerge_options, "--no-fuzzy-matching"]

    def handle(self, *args: Any, **options: Any) -> None:
        """Writes the .po, keeping what is translated, and the .mo."""
        said = Path(settings.BASE_DIR) / "gateway" / "names_of_fields.py"
        said.write_text("".join(f"gettext({name!r})\n" for name in sorted(names()) if name))
        try:
            told = {"locale": [LANGUAGE], "ignore_patterns": ELSEWHERE, "no_wrap": True, "no_location": True}
            super().handle(*args, **{**options, **told, "no_obsolete": True})
        finally:
            said.unlink()
        for place in settings.LOCALE_PATHS:
            catalogue = Path(place) / LANGUAGE / "LC_MESSAGES" / "django.po"
            lines = catalogue.read_text().splitlines(keepends=True)
            catalogue.write_text("".join(line for line in lines if not line.startswith('"POT-Creation-Date')))
        compilemessages.Command().handle(
            locale=[LANGUAGE], exclude=[], fuzzy=False, ignore_patterns=ELSEWHERE, verbosity=0
        )
