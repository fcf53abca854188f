"""`manage.py config apply FILE` and `manage.py config export`: configuration as a file."""

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from accounts.models import Organization
from gateway.configuration import apply
from gateway.configuration.export import export
from gateway.configuration.file import ConfigurationError
from gateway.configuration.rows import Difference


class Command(BaseCommand):
    help = "Configuration as a file: apply one, or export what is configured."

    def add_arguments(self, parser: CommandParser) -> None:
        """The two subcommands."""
        actions = parser.add_subparsers(dest="action", required=True)
        applying = actions.add_parser("apply", help="Bring the database to what a file says, all or nothing.")
        applying.add_argument("file", type=Path)
        applying.add_argument("--dry-run", action="store_true", help="Show the difference and change nothing.")
        exporting = actions.add_parser("export", help="Print the configuration, without secrets.")
        exporting.add_argument("--organization", metavar="SLUG", help="Only this organization, without the catalog.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Runs one of them. Raises CommandError."""
        if options["action"] == "export":
            self._export(options["organization"])
        else:
            self._apply(options["file"], dry_run=options["dry_run"])

    def _export(self, organization: str | None) -> None:
        try:
            self.stdout.write(export(organization), ending="")
        except Organization.DoesNotExist:
            raise CommandError(f"There is no organization {organization!r}.") from None

    def _apply(self, path: Path, *, dry_run: bool) -> None:
        try:
            difference = apply(path, os.environ, dry_run=dry_run)
        except ConfigurationError as error:
            raise CommandError(str(error)) from None
        for line in difference.lines:
            self.stdout.write(line)
        for note in difference.notes:
            self.stderr.write(f"note: {note}")
        self.stdout.write(self._summary(difference, dry_run=dry_run))
        if not dry_run:
            for label, secret in difference.secrets:
                self.stdout.write(f"{label}: {secret} (shown this once)")

    def _summary(self, difference: Difference, *, dry_run: bool) -> str:
        if not difference.lines:
            return "No difference."
        counts = ", ".join(
            f"{sum(line.startswith(sign) for line in difference.lines)} {word}"
            for sign, word in (("+", "added"), ("~", "changed"), ("-", "removed"))
        )
        return f"{'Would be' if dry_run else 'Applied'}: {counts}."
