"""`manage.py import_catalog`: well-known vendors, models and prices from the installed price list."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from genai_prices.data import providers

from accounts.by import add_by
from routing.starter.price_list import Skipped
from routing.starter.progress import Progress
from routing.starter.starter import NOTE, UnknownVendor, plan, vendors_named
from routing.starter.turn import take_turn

NAMES_SHOWN = 8


class Command(BaseCommand):
    help = "Imports well-known vendors, models and prices. Shows the difference, and asks before it changes it."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which vendors, and whether to ask."""
        parser.add_argument(
            "--provider",
            action="append",
            default=[],
            metavar="SLUG",
            help="Only this vendor; may be repeated.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Show the difference and change nothing.")
        add_by(parser)
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Plans, shows, asks, writes. Raises CommandError."""
        try:
            vendors = vendors_named(options["provider"])
            starter = plan(vendors, providers, _now(), options["by"])
        except UnknownVendor as error:
            raise CommandError(str(error)) from None
        for line in starter.lines:
            self.stdout.write(line)
        self._say_skipped(starter.skipped, everything=options["verbosity"] > 1)
        if not starter.lines:
            self.stdout.write(f"No difference to {NOTE}.")
            return
        self.stdout.write(f"{len(starter.lines)} differences to {NOTE}; prices are dollars per million tokens.")
        if options["dry_run"]:
            return
        if not options["yes"] and not self._agreed():
            self.stdout.write("Nothing was changed.")
            return
        with transaction.atomic():
            take_turn()
            again = plan(vendors, providers, _now(), options["by"])
            if again.lines != starter.lines:
                raise CommandError("The catalog changed meanwhile. Nothing was imported; run it again.")
            again.write(Progress("Importing", again.size(), sys.stderr))
        if again.proposals:
            self.stdout.write(
                f"{len(again.proposals)} prices are hard to believe and were not changed: "
                "somebody has to approve them in the console, under Money, Price proposals."
            )
        self.stdout.write("Imported. The providers have no credentials yet: add them in the console or by a file.")

    def _agreed(self) -> bool:
        if not sys.stdin.isatty():
            raise CommandError("Nobody to ask: run it on a terminal, or with --yes.")
        try:
            return input("Import this? [y/N] ").strip().lower() in ("y", "yes")
        except EOFError:
            return False

    def _say_skipped(self, skipped: Iterable[Skipped], *, everything: bool) -> None:
        reasons: dict[str, list[str]] = defaultdict(list)
        for item in skipped:
            reasons[item.reason].append(item.name)
        for reason, names in sorted(reasons.items()):
            shown = names if everything else names[:NAMES_SHOWN]
            more = f" and {len(names) - len(shown)} more (--verbosity 2 names them)" if len(names) > len(shown) else ""
            self.stdout.write(f"skipped, {reason}: {', '.join(shown)}{more}")


def _now() -> datetime:
    """The database's clock, in UTC: tariffs are read by it."""
    with connection.cursor() as cursor:
        cursor.execute("select clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment.astimezone(UTC)
