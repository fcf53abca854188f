"""One at a time: commands that change configuration wait for each other."""

from django.db import connection

LOCK = 0x6D65_7465_726C  # any number that nothing else locks


def take_turn() -> None:
    """Waits until no other such command is at work, and keeps it so until this transaction ends.

    What a command reads to find the difference is then still true when it writes. The console does not wait,
    but meets the same unique constraints.
    """
    with connection.cursor() as cursor:
        cursor.execute("select pg_advisory_xact_lock(%s)", [LOCK])
