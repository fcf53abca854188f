"""Celery tasks: each is one statement or call, safe to run twice and in any order, and money does not wait for it."""

import os
import socket

from celery import shared_task
from django.db import connection

from billing.backbone.leases import HOUSEKEEPER, RESOLVED_AT_ONCE
from billing.rollups import prune_usage, roll_up_usage

MONTHS_AHEAD = 3
# It says that it lives when it resolves, every 30 s, so it notices an outage only by its length, and waits for longer.
HOUSEKEEPER_GAP = "45 seconds"
HOUSEKEEPER_DEAD_AFTER = "60 seconds"


@shared_task(name="billing.make_partitions")
def make_partitions() -> None:
    """Makes this month's partitions and those of the months ahead, where they are missing."""
    with connection.cursor() as cursor:
        cursor.execute("select billing_make_partitions(%s)", [MONTHS_AHEAD])


@shared_task(name="billing.resolve_dead_holds")
def resolve_dead_holds() -> None:
    """Ends holds of dead processes; the gateways do so themselves, this helps when none is left."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select billing_heartbeat(%s, %s, %s, %s)",
            [HOUSEKEEPER, socket.gethostname(), os.getpid(), HOUSEKEEPER_GAP],
        )
        cursor.execute("select billing_resolve(%s, %s, %s)", [HOUSEKEEPER, HOUSEKEEPER_DEAD_AFTER, RESOLVED_AT_ONCE])


@shared_task(name="billing.prune")
def prune() -> None:
    """Deletes what nobody reads any more: notes of changes and windows of limits after an hour, leases of long dead
    processes without holds, hours of usage whose days are kept.
    """
    prune_usage()
    with connection.cursor() as cursor:
        cursor.execute("delete from accounts_change where at < now() - interval '1 hour'")
        cursor.execute(
            "delete from billing_counter"
            " where period = 'minute' and period_start < now() - interval '1 hour' and held = 0"
        )
        cursor.execute(
            "delete from billing_lease l where l.heartbeat_at < now() - interval '1 day'"
            " and not exists (select 1 from billing_hold h where h.lease = l.id)"
        )


@shared_task(name="billing.roll_up_usage")
def roll_up_usage_rows() -> None:
    """Brings the usage by hour and day up to the present."""
    roll_up_usage()
