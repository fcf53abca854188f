"""`manage.py import_catalog`: well-known vendors, models and prices from the installed price list or a newer one."""

import sys
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, transaction
from genai_prices import types as listed
from genai_prices.data import providers

from accounts.by import add_by
from routing.outside import outside
from routing.starter.fetching import get, note_of
from routing.starter.price_list import Skipped
from routing.starter.progress import Progress
from routing.starter.published import BadList, read
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
        parser.add_argument(
            "--fetch",
            nargs="?",
            const=settings.PRICES_URL,
            metavar="URL",
            help="From the list that is at PRICES_URL, or here, in place of the installed one.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Show the difference and change nothing.")
        add_by(parser)
        parser.add_argument("--yes", action="store_true", help="Do not ask.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Plans, shows, asks, writes. Raises CommandError."""
        price_list: list[listed.Provider] = providers
        note = NOTE
        try:
            vendors = vendors_named(options["provider"])
            if options["fetch"]:
                data = get(outside(), options["fetch"])
                price_list, note = read(data), note_of(data, _now())
            starter = plan(vendors, price_list, _now(), options["by"], note)
        except UnknownVendor as error:
            raise CommandError(str(error)) from None
        except BadList as error:
            raise CommandError(f"No price list: {error}. Nothing was changed.") from None
        for line in starter.lines:
            self.stdout.write(line)
        self._say_skipped(starter.skipped, everything=options["verbosity"] > 1)
        if not starter.lines:
            self.stdout.write(f"No difference to {note}.")
            return
        self.stdout.write(f"{len(starter.lines)} differences to {note}; prices are dollars per million tokens.")
        if options["dry_run"]:
            return
        if not options["yes"] and not self._agreed():
            self.stdout.write("Nothing was changed.")
            return
        with transaction.atomic():
            take_turn()
            again = plan(vendors, price_list, _now(), options["by"], note)
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
