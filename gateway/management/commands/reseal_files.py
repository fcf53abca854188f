"""`manage.py reseal_files`: seals every uploaded file under the first of SEALING_KEYS, so that the others can go."""

import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError
from django.db import connection, transaction

from accounts.sealing import HEAD_BYTES, CannotOpen, current_head, open_bytes, seal_bytes
from gateway.files.store import file_id, place
from gateway.models import StoredFile
from routing.starter.progress import Progress

NAMED = 20


class Command(BaseCommand):
    help = (
        "Seals uploaded files under the first sealing key. May be stopped and run again at any time: "
        "what is sealed already is passed over."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        """Goes through all files. Raises CommandError when some stay under another key."""
        ids = under_other_keys()
        moved, lost = reseal_files(ids, Progress("Resealing", len(ids), sys.stderr).step)
        self.stdout.write(f"{moved} resealed.")
        if lost:
            raise CommandError(
                f"{len(lost)} cannot be opened with any of SEALING_KEYS and stay as they are; "
                f"give the key back, or delete them: {', '.join(map(file_id, lost[:NAMED]))}"
                f"{' and others' if len(lost) > NAMED else ''}"
            )


def under_other_keys() -> list[UUID]:
    """The ids of the files that are not sealed with the first key. Reads no more of each than its head."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select id from gateway_storedfile where substring(content from 1 for %s) <> %s order by id",
            [HEAD_BYTES, current_head()],
        )
        return [id for (id,) in cursor.fetchall()]


def reseal_files(ids: list[UUID], step: Callable[[], None]) -> tuple[int, list[UUID]]:
    """Reseals the files of `ids` one by one, calling `step` after each; one deleted meanwhile is passed over.

    Gives how many were resealed, and the ids of those that no key opens. Killed at any moment, each file is sealed
    whole under one key or the other.
    """
    moved = 0
    lost = []
    for id in ids:
        with transaction.atomic():
            row = StoredFile.objects.select_for_update().only("project_id", "content").filter(pk=id).first()
            if row is not None:
                where = place(row.id, row.project_id)
                try:
                    row.content = seal_bytes(open_bytes(bytes(row.content), where), where)
                    row.save(update_fields=["content"])
                    moved += 1
                except CannotOpen:
                    lost.append(id)
        step()
    return moved, lost
