"""`manage.py reprice`: what usage would have come to by another version of its tariff; posted only when told to."""

import sys
from collections import defaultdict
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from accounts.by import add_by
from accounts.exact import plain
from accounts.models import Organization
from billing.models import Repricing, TariffVersion
from billing.repricing import Outcome, apply, count
from routing.starter.progress import Progress


class Command(BaseCommand):
    help = (
        "Counts what usage of a span of UTC days that any version of a tariff priced would have come to by another "
        "one, and prints the difference for each organization. Posts nothing: give the number that it prints, with "
        "--apply. May be stopped, and says how to go on."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """What is re-priced, or which run that is written down already."""
        parser.add_argument("tariff", nargs="?", metavar="TARIFF", help="its slug")
        parser.add_argument("--version-from", metavar="MOMENT", help="the version that began then; default: in force")
        parser.add_argument("--from", dest="first", type=date.fromisoformat, metavar="DAY", help="the first day")
        parser.add_argument("--until", type=date.fromisoformat, metavar="DAY", help="the first day after it")
        parser.add_argument("--run", type=int, metavar="NUMBER", help="go on with this run, or show it")
        parser.add_argument("--apply", action="store_true", help="post what this run comes to")
        add_by(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Counts and prints, or applies. Raises CommandError for what is none, and when a run had changed."""
        run = self._run(options)
        progress = Progress("Counting", run.total, sys.stderr)
        progress.done = run.done
        try:
            while count(run.pk):
                run.refresh_from_db()
                progress.total, progress.visible = run.total, sys.stderr.isatty()
                progress.step(run.done - progress.done)
        except KeyboardInterrupt:
            raise CommandError(f"Stopped. Go on with --run {run.pk}.") from None
        run.refresh_from_db()
        if run.state == Repricing.State.COUNTING:
            raise CommandError(f"Another counts run {run.pk}, or it was told to stop.")
        outcome = apply(run.pk, options["by"]) if options["apply"] else None
        run.refresh_from_db()
        self._print(run)
        match outcome:
            case Outcome.CHANGED:
                raise CommandError("Its rows were not what was counted: nothing is posted. Above is what they are now.")
            case Outcome.BUSY:
                raise CommandError("Another one is being applied at this moment. Nothing is posted: try again.")
            case Outcome.BEFORE:
                raise CommandError("It was applied before.")
            case Outcome.APPLIED:
                self.stdout.write("Posted.")
        if outcome is None and run.state == Repricing.State.COUNTED:
            self.stdout.write(f"Nothing is posted. Do that with --run {run.pk} --apply.")

    def _run(self, options: dict[str, Any]) -> Repricing:
        if options["run"]:
            found = Repricing.objects.filter(pk=options["run"]).first()
            if found is None:
                raise CommandError(f"There is no run {options['run']}.")
            Repricing.objects.filter(pk=found.pk, stop=True).update(stop=False)
            return found
        if options["apply"]:
            raise CommandError("--apply is for a run that was counted and looked at: give its number with --run.")
        if not (options["tariff"] and options["first"] and options["until"]):
            raise CommandError("Give a tariff, --from and --until, or --run.")
        versions = TariffVersion.objects.filter(tariff__slug=options["tariff"], effective_from__lte=timezone.now())
        if options["version_from"]:
            versions = versions.filter(effective_from=options["version_from"])
        version = versions.order_by("-effective_from").first()
        if version is None:
            raise CommandError(f"There is no such version of a tariff {options['tariff']} in force.")
        run = Repricing(version=version, first=options["first"], until=options["until"], asked_by=options["by"])
        try:
            run.full_clean()
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from None
        run.save(force_insert=True)
        return run

    def _print(self, run: Repricing) -> None:
        totals: dict[UUID, list[Decimal]] = defaultdict(lambda: [Decimal(0), Decimal(0)])
        rows = left = 0
        for one in run.sums.all():
            totals[one.organization][0] += one.charge_change
            totals[one.organization][1] += one.cost_change
            rows, left = rows + one.rows, left + one.left
        self.stdout.write(f"Run {run.pk}: {run}. {rows:,} generations, {left:,} of them left as they are.")
        slugs = dict(Organization.objects.filter(pk__in=totals).values_list("pk", "slug"))
        for organization, (charge, cost) in sorted(totals.items(), key=lambda one: str(slugs.get(one[0], one[0]))):
            self.stdout.write(
                f"{slugs.get(organization, organization)}: charge {_signed(charge)}, cost {_signed(cost)}"
            )


def _signed(amount: Decimal) -> str:
    return f"{'-' if amount < 0 else '+'}${plain(abs(amount))}"
