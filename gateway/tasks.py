"""Celery tasks of the gateway: each is safe to run twice and in any order, and no request waits for it."""

from celery import shared_task
from django.db import connection

from billing.crossings import note_crossings
from gateway.alerts.delivering import deliver
from gateway.storage.storing import store_due
from routing.outside import outside


@shared_task(name="gateway.prune_files")  # type: ignore[untyped-decorator]  # Celery ships no types
def prune_files() -> None:
    """Deletes the files that have expired; for clients they were gone at that moment."""
    with connection.cursor() as cursor:
        cursor.execute("delete from gateway_storedfile where expires_at <= now()")


@shared_task(name="gateway.alert")  # type: ignore[untyped-decorator]
def alert() -> None:
    """Notes which budgets have reached a percent of theirs that is to be told, and tells it."""
    note_crossings()
    deliver(outside())


@shared_task(name="gateway.store_exports")  # type: ignore[untyped-decorator]
def store_exports() -> None:
    """Stores the exports on a schedule that are due."""
    store_due(outside())
