"""`manage.py reseal`: seals every secret that is kept under the first of SEALING_KEYS, so that the others can go."""

import sys
import uuid
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import Model, QuerySet

from accounts.models import Totp
from accounts.sealing import CannotOpen, is_current, seal
from billing.models import BillSource, ExportSchedule, Recipient
from routing.models import Credential
from routing.starter.progress import Progress

BATCH = 200
NAMED = 20
# What holds sealed text, and what else is read to know where that lies.
TABLES: dict[type[Model], tuple[str, ...]] = {
    Credential: ("provider",),
    Recipient: ("organization",),
    ExportSchedule: ("organization",),
    BillSource: (),
    Totp: ("user",),
}


class Command(BaseCommand):
    help = (
        "Seals provider credentials, the secrets of webhooks and bills, the keys of buckets and the seeds of "
        "authenticator apps under the first sealing key. May be stopped and run again at any time: what is sealed "
        "already is passed over."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Goes through all of them. Raises CommandError when some stay under another key."""
        moved, lost = 0, list[str]()
        for table in TABLES:
            sealed = table._default_manager.exclude(sealed="")
            some, of_them = reseal(sealed, Progress("Resealing", sealed.count(), sys.stderr).step)
            moved, lost = moved + some, lost + of_them
        self.stdout.write(f"{moved} resealed.")
        if lost:
            raise CommandError(
                f"{len(lost)} cannot be opened with any of SEALING_KEYS and stay as they are; "
                f"give the key back, or type the secret again: {', '.join(lost[:NAMED])}"
                f"{' and others' if len(lost) > NAMED else ''}"
            )


def reseal(rows: QuerySet[Any], step: Callable[[int], None]) -> tuple[int, list[str]]:
    """Reseals rows of one of `TABLES` in batches, telling `step` the size of each that is done.

    Gives how many were resealed, and the names of those that no key opens.
    """
    moved = 0
    lost: list[str] = []
    last = uuid.UUID(int=0)
    while batch := list(rows.filter(id__gt=last).order_by("id").values_list("id", flat=True)[:BATCH]):
        moved += _reseal_batch(rows.model, batch, lost)
        step(len(batch))
        last = batch[-1]
    return moved, lost


def _reseal_batch(table: type[Model], ids: list[uuid.UUID], lost: list[str]) -> int:
    """One transaction: killed at any moment, each row is sealed whole under one key or the other.

    The rows are locked before they are read. A changed address empties them, a typed secret replaces them;
    what was read before must undo neither.
    """
    moved = 0
    with transaction.atomic():
        rows: QuerySet[Any] = table._default_manager.filter(pk__in=ids).exclude(sealed="").order_by("pk")
        for row in rows.select_for_update(of=("self",)).select_related(*TABLES[table]):
            if is_current(row.sealed):
                continue
            try:
                secret = row.secret()
            except CannotOpen:
                lost.append(str(row))
                continue
            row.sealed = seal(secret, row.place())
            row.save(update_fields=["sealed"])
            moved += 1
    return moved
