"""`manage.py retention`: which months of usage and attempts would be dropped, and with --drop drops them."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.template.defaultfilters import filesizeformat

from billing.dropping import drop_old, months
from billing.models import Retention


class Command(BaseCommand):
    help = (
        "Shows the months of usage and attempts, about how large each is, and which would be dropped by what the "
        "console says of their retention; the others with the reason why they stay. Nothing is dropped without --drop; "
        "the worker drops once a day by itself."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--drop", action="store_true", help="drop them now")

    def handle(self, *args: Any, **options: Any) -> None:
        """Shows, or drops."""
        for kept in Retention.objects.order_by("table"):
            told = "all months" if kept.months is None else f"{kept.months} months and the running one"
            self.stdout.write(f"{kept}: {told} are kept.")
        for month in months():
            about = f"{month.table} of {month.first:%Y-%m}: about {month.rows:,} rows, {filesizeformat(month.bytes)}"
            self.stdout.write(f"{about}: {f'stays, {month.objection}' if month.objection else 'would go'}")
        if options["drop"]:
            for month, rows in drop_old():
                self.stdout.write(f"{month.table} of {month.first:%Y-%m}: {rows:,} rows dropped")
