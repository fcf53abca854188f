"""`manage.py reseal`: seals every credential under the first of SEALING_KEYS, so that the others can go."""

import sys
import uuid
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.db.models import QuerySet

from accounts.sealing import CannotOpen, is_current, seal
from routing.models import Credential, credential_place
from routing.starter.progress import Progress

BATCH = 200
NAMED = 20


class Command(BaseCommand):
    help = (
        "Seals provider credentials under the first sealing key. May be stopped and run again at any time: "
        "what is sealed already is passed over."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Goes through all credentials. Raises CommandError when some stay under another key."""
        sealed = Credential.objects.exclude(sealed="")
        moved, lost = reseal(sealed, Progress("Resealing", sealed.count(), sys.stderr).step)
        self.stdout.write(f"{moved} resealed.")
        if lost:
            raise CommandError(
                f"{len(lost)} cannot be opened with any of SEALING_KEYS and stay as they are; "
                f"give the key back, or type the secret again: {', '.join(lost[:NAMED])}"
                f"{' and others' if len(lost) > NAMED else ''}"
            )


def reseal(credentials: QuerySet[Credential], step: Callable[[int], None]) -> tuple[int, list[str]]:
    """Reseals `credentials` in batches, telling `step` the size of each that is done.

    Gives how many were resealed, and the names of those that no key opens.
    """
    moved = 0
    lost: list[str] = []
    last = uuid.UUID(int=0)
    while batch := list(credentials.filter(id__gt=last).order_by("id").values_list("id", flat=True)[:BATCH]):
        moved += _reseal_batch(batch, lost)
        step(len(batch))
        last = batch[-1]
    return moved, lost


def _reseal_batch(ids: list[uuid.UUID], lost: list[str]) -> int:
    """One transaction: killed at any moment, each row is sealed whole under one key or the other.

    The rows are locked before they are read. A changed address empties them, a typed secret replaces them;
    what was read before must undo neither.
    """
    moved = 0
    with transaction.atomic():
        rows = Credential.objects.filter(id__in=ids).exclude(sealed="").order_by("id")
        for row in rows.select_for_update(of=("self",)).select_related("provider"):
            if is_current(row.sealed):
                continue
            try:
                secret = row.secret()
            except CannotOpen:
                lost.append(str(row))
                continue
            row.sealed = seal(secret, credential_place(row.id, row.provider.base_url))
            row.save(update_fields=["sealed"])
            moved += 1
    return moved
