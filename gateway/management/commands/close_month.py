"""`manage.py close_month`: nothing is posted to a month any more."""

from datetime import date
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.by import add_by
from billing.models import ClosedMonth


class Command(BaseCommand):
    help = (
        "Closes a month, and all before it, for good. What is settled later of its generations is posted to the first "
        "open month, with a note. The worker keeps its sums within some minutes."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Which month, and who closes it."""
        parser.add_argument("month", metavar="YYYY-MM")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Closes it. Raises CommandError when it is no month, not over yet, or closed already."""
        try:
            month = ClosedMonth(month=date.fromisoformat(f"{options['month']}-01"), closed_by=options["by"])
            month.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        except ValueError:
            raise CommandError(f"{options['month']!r} is no month. Write it as 2026-10.") from None
        month.save(force_insert=True)
        self.stdout.write(f"{month} is closed.")
