"""What is done for somebody before they are let in, when the database shows nobody anything.

Where rows are held apart by whom the connection has entered as (`meterline.sees`), whoever comes from their provider or
with an invitation has entered as nobody yet. What is theirs is then found, and given, by code that asks for it by name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from accounts.models import User

ACTS = "select set_config('meterline.actor', %s, true)"
SEES = "select set_config('meterline.sees', %s, true)"


@contextmanager
def seeing_all() -> Iterator[None]:
    """Within, in a transaction, this connection sees the rows of all organizations; after it what it saw before."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("select coalesce(current_setting('meterline.sees', true), '')")
        (before,) = cursor.fetchone()
        cursor.execute(SEES, ["all"])
        yield
        # Where that fails instead, the transaction, or the part of it that this is, is taken back, and this with it.
        cursor.execute(SEES, [before])


def acting_as(user: User) -> None:
    """To the end of this transaction the audit log names `user`, whose ways in or roles are about to change."""
    with connection.cursor() as cursor:
        cursor.execute(ACTS, [f"{user.pk} {user.get_username()}"])
