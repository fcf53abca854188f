"""`manage.py export_usage`: the generations of a span of UTC days as a file, with a manifest beside it."""

import fcntl
import json
import os
import sys
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Organization
from billing.console.filters import Range
from billing.exports.manifest import manifest, resumed
from billing.exports.pages import FORMATS, LAYOUTS, layout_of, pages, tails
from billing.models import Usage
from billing.retention import is_kept
from routing.starter.progress import Progress


class Command(BaseCommand):
    help = (
        "Writes the generations of a span of UTC days to FILE, oldest first, and to FILE.json how many they are, their "
        "sums, and the SHA-256 of FILE. Until it is whole its name ends with .part; stopped, a CSV file goes on there "
        "when the same is asked for again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--from", dest="first", required=True, type=date.fromisoformat, help="the first day")
        parser.add_argument("--to", dest="last", required=True, type=date.fromisoformat, help="the last day, inclusive")
        parser.add_argument("--organization", metavar="SLUG", help="of this one alone")
        parser.add_argument(
            "--layout", choices=LAYOUTS, default=LAYOUTS[0], help="its columns; FOCUS has a row an item"
        )
        parser.add_argument("--format", choices=tuple(FORMATS), default="csv")

    def handle(self, *args: Any, **options: Any) -> None:
        """Writes both. Raises CommandError for a span that is none, or not over, for an unknown organization, and while
        another one writes them.
        """
        file, first, last, slug = (options[name] for name in ("file", "first", "last", "organization"))
        layout, format = layout_of(options["layout"]), FORMATS[options["format"]]
        begin, end = (datetime.combine(day, time(), UTC) for day in (first, last + timedelta(days=1)))
        if first > last:
            raise CommandError("--from is after --to.")
        if end > datetime.now(UTC):
            raise CommandError("--to is not over yet: what is still to come would be missing.")
        if not is_kept(first):
            raise CommandError("Not all usage of these days is kept any more.")
        if file.exists():
            raise CommandError(f"{file} is there already.")
        found = Range(begin, end).narrow(Usage.objects.all())
        organization: Organization | None = None
        if slug:
            organization = Organization.objects.filter(slug=slug).first()
            if organization is None:
                raise CommandError(f"There is no organization {slug}.")
            found = found.filter(organization=organization.pk)
        whose = f".{slug}" if slug else ""  # no word for everyone: an organization may be called so
        what = "" if layout.name == LAYOUTS[0] else f".{layout.name}"
        part = file.with_name(f"{file.name}.{first}.{last}{whose}{what}.part")  # never goes on with another's rows
        with open(part, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as output:
            try:
                fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CommandError(f"Another export writes {part}.") from None
            writer = format(layout)
            after = resumed(part, layout) if format.is_text else None
            if after is not None:
                self.stderr.write(f"Going on in {part}.")
            else:
                output.truncate(0)
                output.write(writer.begin())
            progress = Progress("Exporting", found.filter(**{"id__gt": after} if after else {}).count(), sys.stderr)
            for page in pages(found, layout.text(format.line(layout)), after=after):
                output.write(writer.page(page.text))
                progress.step(page.generations)
            for text in tails(layout, writer, begin, end, organization.pk if organization else None):
                output.write(writer.page(text))
            output.write(writer.end())
            output.flush()
            os.fsync(output.fileno())
            told = manifest(part, layout, format.name)
            told |= {"from": str(first), "to": str(last), "organization": slug}
            file.with_name(f"{file.name}.json").write_text(json.dumps(told, indent=2) + "\n")
            part.rename(file)
        self.stdout.write(f"{told['rows']:,} rows, ${told[layout.sums[0]]} charged, in {file}")
