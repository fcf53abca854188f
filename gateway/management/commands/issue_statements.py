"""`manage.py issue_statements`: a numbered statement for each organization of a closed month."""

from argparse import ArgumentTypeError
from datetime import date
from pathlib import Path
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.by import add_by
from billing.documents import pdf
from billing.issuing import issue, statement, waiting


def month(text: str) -> date:
    """The first day of a month like 2026-10."""
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no month. Write it as 2026-10.") from None


class Command(BaseCommand):
    help = (
        "Issues the statements of a closed month: one for each organization that something was posted for and that has "
        "none, numbered, and for good. Stopped, it goes on with the rest."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("month", type=month, metavar="YYYY-MM")
        parser.add_argument("--organization", metavar="SLUG", help="Of this one alone.")
        parser.add_argument("--pdf", type=Path, metavar="FOLDER", help="Where to write each as PDF.")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Issues them. Raises CommandError for who or what cannot have one, with those before issued."""
        slug, folder = options["organization"], options["pdf"]
        whom = [one for one in waiting(options["month"]) if slug in (None, one.slug)]
        if not whom:
            raise CommandError(
                "No organization waits for a statement of this month. Is it closed, and are its sums kept?"
            )
        for organization in whom:
            try:
                document = issue(statement(options["month"], organization, options["by"]))
            except ValidationError as error:
                raise CommandError(f"{organization.slug}: {' '.join(error.messages)}") from None
            if folder is not None:
                (folder / f"{document}.pdf").write_bytes(pdf(document))
            self.stdout.write(f"{document} {organization.slug}: {document.total:f} {document.currency}")
