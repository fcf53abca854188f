"""`manage.py migrate` while gateways serve: no lock is waited for long, since every request would wait behind us, and
no function is replaced before what it needs is there.

What does not get its lock in time is taken back as a whole, and tried again a moment later.
"""

import re
import time
from typing import Any

import psycopg
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.migrations import Migration, RunSQL
from django.db.models.signals import pre_migrate

LOCK_TIMEOUT = "100ms"
PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 600.0
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
FUNCTION = re.compile(r"^create or replace function (\w+)", re.MULTILINE)


class Command(migrate.Command):
    """Django's own, patient with whoever works on the tables."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrates. Raises OperationalError when a table has been busy all the time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        pre_migrate.connect(_replace_functions_once, dispatch_uid="replace functions once")
        while True:
            try:
                with connections[options["database"]].cursor() as cursor:
                    cursor.execute("set lock_timeout = %s", [LOCK_TIMEOUT])
                super().handle(*args, **options)
                return
            except OperationalError as error:
                if not isinstance(error.__cause__, BUSY) or time.monotonic() > deadline:
                    raise
                self.stdout.write(f"busy, trying again: {error}")
                time.sleep(PAUSE_SECONDS)


def _replace_functions_once(*, plan: list[tuple[Migration, bool]], using: str, **_: Any) -> None:
    """Leaves a file of functions to the last of a plan's migrations that loads it, when its functions stand already.

    A file is loaded as it is today, so by an earlier one it may need what only a later one makes. Until then whoever
    serves would find a function that fails; the one that stands goes on working.
    """
    last: dict[str, Migration] = {}
    for migration, backwards in plan:
        if not backwards:
            last.update((text, migration) for text in _functions(migration))
    with connections[using].cursor() as cursor:
        cursor.execute("select proname from pg_proc where pronamespace = current_schema()::regnamespace")
        there = {name for (name,) in cursor.fetchall()}
    stand = {text for text in last if there.issuperset(FUNCTION.findall(text))}
    for migration, _backwards in plan:
        later = {text for text in stand if last[text] is not migration}
        kept = [one for one in migration.operations if not (isinstance(one, RunSQL) and one.sql in later)]
        migration.operations = kept  # type: ignore[misc]  # an instance has a list of its own


def _functions(migration: Migration) -> list[str]:
    """The files of functions that it loads, as they read."""
    return [
        operation.sql
        for operation in migration.operations
        if isinstance(operation, RunSQL) and isinstance(operation.sql, str) and FUNCTION.search(operation.sql)
    ]
