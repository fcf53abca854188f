"""`manage.py reconcile`: a provider's bill beside the books."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.by import add_by
from accounts.exact import plain
from billing.bills.files import MOST_BYTES, BadBill, Form
from billing.bills.reconciling import reconcile
from routing.bills.credentials import billed_as
from routing.console.reconciliations import as_csv
from routing.models import Provider


class Command(BaseCommand):
    help = (
        "Compares a provider's bill with the books by day, model and credential, writes down what comes of it, and "
        "prints the gap as missing calls, token drift and price drift. A file that is not as it must be is refused "
        "with its line, and nothing is kept. docs/reconciliation.md says what the forms are."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The files of a bill, whose it is, and in which form."""
        parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
        parser.add_argument("--provider", required=True, metavar="SLUG")
        parser.add_argument("--form", choices=[str(form) for form in Form], default=str(Form.METERLINE))
        parser.add_argument("--csv", type=Path, metavar="FILE", help="write all lines here")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Compares and prints. Raises CommandError for an unknown provider and for a file that is not read."""
        provider = options["provider"]
        if not Provider.objects.filter(slug=provider).exists():
            raise CommandError(f"There is no provider {provider}.")
        try:
            files = [(file.name, _content(file)) for file in options["files"]]
            made = reconcile(provider, Form(options["form"]), files, billed_as(provider), options["by"])
        except (BadBill, OSError) as error:
            raise CommandError(str(error)) from None
        if options["csv"]:
            options["csv"].write_text(as_csv(made), newline="")
        gap = made.billed - made.booked
        self.stdout.write(
            f"{made}: billed ${plain(made.billed)}, in the books ${plain(made.booked)}, gap ${plain(gap)}:"
        )
        for name, amount in (
            ("missing calls", made.missing),
            ("token drift", made.tokens),
            ("price drift", made.price),
        ):
            self.stdout.write(f"  {name}: ${plain(amount)}")


def _content(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(MOST_BYTES + 1)
