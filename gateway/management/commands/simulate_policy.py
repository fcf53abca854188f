"""`manage.py simulate_policy`: recorded traffic against a changed configuration, before it is applied."""

import os
import re
import signal
import sys
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from accounts.models import Organization, Project
from gateway.configuration import apply
from gateway.configuration.file import ConfigurationError
from routing.replay.comparison import Comparison
from routing.replay.foresight import foresee
from routing.replay.replay import Routes, Traffic, replayed, routes
from routing.starter.progress import Progress
from routing.statistics.rollups import roll_up

AGO = re.compile(r"([1-9][0-9]{0,4})([mhd])")
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


def moment(text: str) -> datetime:
    """A moment with its zone, or so long ago (`90m`, `24h`, `7d`). Raises ArgumentTypeError."""
    if ago := AGO.fullmatch(text):
        return timezone.now() - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ArgumentTypeError(f"{text!r} is neither like 24h or 7d nor like 2026-01-31T00:00:00Z")
    return found.astimezone(UTC)


class Command(BaseCommand):
    help = "Replays recorded traffic against the policies (or prices, or offers) of a configuration file, and compares."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which file, which traffic."""
        parser.add_argument("file", type=Path, help="A configuration file. Nothing of it is kept.")
        parser.add_argument("--from", dest="start", type=moment, default="24h", metavar="WHEN", help="24h by default.")
        parser.add_argument("--to", dest="end", type=moment, default=None, metavar="WHEN", help="Now by default.")
        parser.add_argument("--organization", metavar="SLUG", default="")
        parser.add_argument("--project", metavar="ORGANIZATION/SLUG", default="")
        parser.add_argument("--model", metavar="SLUG", default="", help="The one that was asked for.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Replays and prints the comparison. Ctrl-C ends it with what it has. Raises CommandError."""
        traffic = _traffic(options)
        changed = self._changed(options["file"])
        roll_up()
        progress = Progress("Replaying", traffic.rows().count(), sys.stderr)
        comparison = Comparison()
        with _interrupts() as interrupted:
            for comparison in replayed(traffic, changed, foresee(traffic.start, traffic.end, timezone.now())):
                progress.step(comparison.looked_at - progress.done)
                if interrupted:
                    break
        if interrupted:
            self.stdout.write(f"\nStopped after {comparison.looked_at:,} of {progress.total:,} generations.")
        for line in text(comparison):
            self.stdout.write(line)
        if interrupted:
            sys.exit(130)

    def _changed(self, file: Path) -> Routes:
        """Where traffic could go were the file applied. It is applied, read, and taken back."""
        try:
            with transaction.atomic():
                difference = apply(file, os.environ)
                found = routes()
                transaction.set_rollback(True)
        except ConfigurationError as error:
            raise CommandError(str(error)) from None
        for line in difference.lines or ["No difference to what is configured."]:
            self.stdout.write(line)
        return found


def text(comparison: Comparison) -> Iterator[str]:
    """The comparison as lines of a table."""
    rows = [("", "recorded", "predicted", "difference"), *comparison.lines()]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    yield ""
    for name, *cells in rows:
        yield "  ".join(
            [f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))]
        )
    yield ""
    yield from comparison.remarks()


def _traffic(options: dict[str, Any]) -> Traffic:
    start, end = options["start"], options["end"] or timezone.now()
    if start >= end:
        raise CommandError("--from is not before --to.")
    slug, _, inner = options["project"].partition("/")
    name = options["organization"] or slug
    organization = Organization.objects.filter(slug=name).first() if name else None
    if name and organization is None:
        raise CommandError(f"There is no organization {name!r}.")
    project = Project.objects.filter(organization__slug=slug, slug=inner).first() if options["project"] else None
    if options["project"] and project is None:
        raise CommandError(f"There is no project {options['project']!r}: give it as ORGANIZATION/SLUG.")
    return Traffic(
        start, end, organization.pk if organization else None, project.pk if project else None, options["model"]
    )


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collects Ctrl-C instead of stopping at once; a second one stops at once."""
    caught: list[int] = []

    def note(number: int, frame: Any) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, before)
