"""`manage.py export_usage`: the generations of a span of UTC days as a CSV file, with a manifest beside it."""

import csv
import fcntl
import hashlib
import json
import os
import re
import sys
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Organization
from billing.console.filters import Range
from billing.exports import generations_csv
from billing.models import Usage
from routing.starter.progress import Progress

SUMS = ("charge", "provider_cost", "overrun", "prompt_tokens", "completion_tokens")
# Where a row begins. In a cell there is no such place: quotes are doubled there.
ROW = re.compile(rb'\r\n"([0-9a-f]{32})","')
TAIL = 1 << 24  # bytes: more than two rows


class Command(BaseCommand):
    help = (
        "Writes the generations of a span of UTC days to FILE, oldest first, and to FILE.json how many they are, their "
        "sums, and the SHA-256 of FILE. Until it is whole its name ends with .part; stopped, it goes on there when the "
        "same is asked for again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--from", dest="first", required=True, type=date.fromisoformat, help="the first day")
        parser.add_argument("--to", dest="last", required=True, type=date.fromisoformat, help="the last day, inclusive")
        parser.add_argument("--organization", metavar="SLUG", help="of this one alone")

    def handle(self, *args: Any, **options: Any) -> None:
        """Writes both. Raises CommandError for a span that is none, or not over, for an unknown organization, and while
        another one writes them.
        """
        file, first, last, slug = (options[name] for name in ("file", "first", "last", "organization"))
        begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
        if first > last:
            raise CommandError("--from is after --to.")
        if end > datetime.now(UTC):
            raise CommandError("--to is not over yet: what is still to come would be missing.")
        if file.exists():
            raise CommandError(f"{file} is there already.")
        found = Range(begin, end).narrow(Usage.objects.all())
        if slug:
            organization = Organization.objects.filter(slug=slug).first()
            if organization is None:
                raise CommandError(f"There is no organization {slug}.")
            found = found.filter(organization=organization.pk)
        whose = f".{slug}" if slug else ""  # no word for everyone: an organization may be called so
        part = file.with_name(f"{file.name}.{first}.{last}{whose}.part")  # never goes on with another's rows
        with open(part, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
            try:
                fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CommandError(f"Another export writes {part}.") from None
            after = resumed(part)
            if after is not None:
                self.stderr.write(f"Going on in {part}.")
            progress = Progress("Exporting", found.filter(**{"id__gt": after} if after else {}).count(), sys.stderr)
            for chunk in generations_csv(found, after=after):
                output.write(chunk)
                progress.step(len(ROW.findall(b"\r\n" + chunk)))
            output.flush()
            os.fsync(output.fileno())
            told = manifest(part) | {"from": str(first), "to": str(last), "organization": slug}
            file.with_name(f"{file.name}.json").write_text(json.dumps(told, indent=2) + "\n")
            part.rename(file)
        self.stdout.write(f"{told['rows']:,} generations, ${told['charge']} charged, in {file}")


def resumed(part: Path) -> UUID | None:
    """Cuts a file that broke off back to its whole rows. Gives the last one's id, after which it goes on, or None for
    the beginning.
    """
    with part.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL)
        file.seek(start)
        rows = list(ROW.finditer(file.read()))
        if len(rows) < 2:
            file.truncate(0)
            return None
        file.truncate(start + rows[-1].start() + 2)  # the last one may not be whole
        return UUID(hex=rows[-2][1].decode())


def manifest(file: Path) -> dict[str, Any]:
    """What a whole file holds, read from itself: rows, exact sums of what is known, and how many are not priced."""
    rows, unpriced = 0, 0
    sums = dict.fromkeys(SUMS, Decimal(0))
    with file.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines, strict=True):
            rows += 1
            unpriced += not row["charge"]
            for name in SUMS:
                sums[name] += Decimal(row[name] or 0)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    return {"rows": rows, "unpriced": unpriced, **{name: f"{one:f}" for name, one in sums.items()}, "sha256": digest}
