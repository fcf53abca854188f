"""Celery tasks of the gateway: each is safe to run twice and in any order, and no request waits for it."""

from datetime import UTC, datetime, timedelta

from celery import shared_task
from django.conf import settings
from django.db import connection

from billing.crossings import note_crossings
from billing.ids import first_id
from gateway.alerts.delivering import deliver
from gateway.storage.storing import store_due
from routing.outside import outside

PURGED_AT_ONCE = 1_000
REFUSED_KEPT = 1_000  # of an organization, and of those without a key
REFUSED_DAYS = timedelta(days=7)
REFUSED_MINUTES = timedelta(days=30)
LATELY = timedelta(minutes=10)  # who had one refused in this time may have too many; a run that was late is no matter

# By the index for each organization that was refused something lately: a run over all would read what all have.
OLD_REFUSED = """
with lately as (select distinct organization from gateway_refused where id >= %s and organization is not null),
     newest as (select l.organization, o.id
                  from lately l
                  cross join lateral (select r.id from gateway_refused r where r.organization = l.organization
                                       order by r.id desc offset %s limit 1) o)
delete from gateway_refused r using newest n where r.organization = n.organization and r.id <= n.id
"""
OLD_OF_NOBODY = """
delete from gateway_refused
 where organization is null and id <= (select id from gateway_refused where organization is null
                                        order by id desc offset %s limit 1)
"""


@shared_task(name="gateway.prune_files")  # type: ignore[untyped-decorator]  # Celery ships no types
def prune_files() -> None:
    """Deletes the files that have expired; for clients they were gone at that moment."""
    with connection.cursor() as cursor:
        cursor.execute("delete from gateway_storedfile where expires_at <= now()")


@shared_task(name="gateway.prune_refused")  # type: ignore[untyped-decorator]
def prune_refused() -> None:
    """Forgets refused requests but for each organization's last ones, and the counts of old minutes."""
    with connection.cursor() as cursor:
        now = datetime.now(UTC)
        cursor.execute(OLD_REFUSED, [first_id(now - LATELY), REFUSED_KEPT])
        cursor.execute(OLD_OF_NOBODY, [REFUSED_KEPT])
        cursor.execute("delete from gateway_refused where id < %s", [first_id(now - REFUSED_DAYS)])
        cursor.execute("delete from gateway_refusedcount where minute < %s", [now - REFUSED_MINUTES])


@shared_task(name="gateway.purge_payloads")  # type: ignore[untyped-decorator]
def purge_payloads() -> None:
    """Deletes the payloads that are kept no longer, some at a time so that nothing is locked for long."""
    gone = PURGED_AT_ONCE
    while gone == PURGED_AT_ONCE:
        with connection.cursor() as cursor:
            cursor.execute("select gateway_purge_payloads(%s, %s)", [settings.PAYLOAD_DAYS_MOST, PURGED_AT_ONCE])
            ((gone,),) = cursor.fetchall()


@shared_task(name="gateway.alert")  # type: ignore[untyped-decorator]
def alert() -> None:
    """Notes which budgets have reached a percent of theirs that is to be told, and tells it."""
    note_crossings()
    deliver(outside())


@shared_task(name="gateway.store_exports")  # type: ignore[untyped-decorator]
def store_exports() -> None:
    """Stores the exports on a schedule that are due."""
    store_due(outside())
