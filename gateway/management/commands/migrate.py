"""`manage.py migrate` while gateways serve: no lock is waited for long, since every request would wait behind us.

What does not get its lock in time is taken back as a whole, and tried again a moment later.
"""

import time
from typing import Any

import psycopg
from django.core.management.commands import migrate
from django.db import OperationalError, connections

LOCK_TIMEOUT = "100ms"
PAUSE_SECONDS = 0.5
PATIENCE_SECONDS = 600.0
BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)


class Command(migrate.Command):
    """Django's own, patient with whoever works on the tables."""

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrates. Raises OperationalError when a table has been busy all the time."""
        deadline = time.monotonic() + PATIENCE_SECONDS
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
