"""Celery tasks: each is one statement or call, safe to run twice and in any order, and money does not wait for it."""

import logging
import os
import socket
import time

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, connection

from billing.auditing import audit
from billing.backbone.leases import BURY, DEAD_AFTER, HOUSEKEEPER, LONGEST_GAP, RESOLVED_AT_ONCE
from billing.backbone.spool import batches, orphans
from billing.credit.prepaid import expire
from billing.crossings import prune_crossings
from billing.dropping import drop_old
from billing.repricing import Outcome, apply, count
from billing.rollups import prune_usage, roll_up_usage
from billing.sealing import seal, sum_closed

MONTHS_AHEAD = 3
TURN_SECONDS = 5.0  # that counting a re-pricing keeps a worker from what else is due
PRUNED_AT_ONCE = 10_000
GAP, DEAD = (f"{span.total_seconds()} seconds" for span in (LONGEST_GAP, DEAD_AFTER))

logger = logging.getLogger(__name__)


@shared_task(name="billing.make_partitions")
def make_partitions() -> None:
    """Makes this month's partitions and those of the months ahead, where they are missing."""
    with connection.cursor() as cursor:
        cursor.execute("select billing_make_partitions(%s)", [MONTHS_AHEAD])


@shared_task(name="billing.drop_old_months")
def drop_old_months() -> None:
    """Drops the months of usage and attempts that are not to be kept any more."""
    drop_old()


@shared_task(name="billing.resolve_dead_holds")
def resolve_dead_holds() -> None:
    """Settles what dead processes have left in the spool, and ends their holds. The gateways do so themselves, this
    helps when none is left.
    """
    with connection.cursor() as cursor:
        try:
            for lease, lines in orphans(settings.SPOOL_DIR):
                for batch in batches(lines):
                    cursor.execute("select billing_settle(%s::jsonb)", [f"[{b','.join(batch).decode()}]"])
                cursor.execute(BURY, [lease])
        except (DatabaseError, OSError):  # what the tables do not take a gateway puts aside
            logger.exception("a spool was not drained")
        cursor.execute(
            "select billing_heartbeat(%s, %s, %s, %s)",
            [HOUSEKEEPER, socket.gethostname(), os.getpid(), GAP],
        )
        cursor.execute("select billing_resolve(%s, %s, %s)", [HOUSEKEEPER, DEAD, RESOLVED_AT_ONCE])


@shared_task(name="billing.prune")
def prune() -> None:
    """Deletes what nobody reads any more: notes of changes and windows of limits after an hour, windows of end users'
    budgets a day after their end, leases of long dead processes without holds, hours of usage whose days are kept,
    answers kept for idempotency keys after 24 hours, alerts after 90 days.
    """
    prune_usage()
    prune_crossings()
    with connection.cursor() as cursor:
        pruned = PRUNED_AT_ONCE
        while pruned == PRUNED_AT_ONCE:
            cursor.execute("select billing_prune_answers(%s)", [PRUNED_AT_ONCE])
            (pruned,) = cursor.fetchone()
        cursor.execute("delete from accounts_change where at < now() - interval '1 hour'")
        cursor.execute(
            "delete from billing_counter"
            " where period = 'minute' and period_start < now() - interval '1 hour' and held = 0"
        )
        cursor.execute(
            "delete from billing_counter where (end_user is not null or measure = 'users') and held = 0"
            " and period_start < now() - interval '1 day'"
            " - case period when 'day' then interval '26 hours' when 'week' then interval '170 hours'"
            " when 'month' then interval '32 days' end"
        )
        cursor.execute(
            "delete from billing_lease l where l.heartbeat_at < now() - interval '1 day'"
            " and not exists (select 1 from billing_hold h where h.lease = l.id)"
        )


@shared_task(name="billing.roll_up_usage")
def roll_up_usage_rows() -> None:
    """Brings the usage by hour and day up to the present."""
    roll_up_usage()


@shared_task(name="billing.seal")
def seal_ledger() -> None:
    """Seals the ledger's new entries, and keeps the sums of months that were closed."""
    seal()
    sum_closed()


@shared_task(name="billing.expire_credit")
def expire_credit() -> None:
    """Takes what is left of credits whose time is over."""
    expire()


@shared_task(name="billing.audit")
def audit_books() -> None:
    """Looks whether usage, ledger, blocks, balances and rollups agree, and writes down what does not."""
    audit()


@shared_task(name="billing.count_repricing")
def count_repricing(run: int) -> None:
    """Counts a re-pricing from where it is, until it is counted or told to stop; in turns, so that a worker which does
    one thing at a time audits and ends dead holds in between.
    """
    until = time.monotonic() + TURN_SECONDS
    while count(run):
        if time.monotonic() >= until:
            count_repricing.delay(run)
            return


@shared_task(name="billing.apply_repricing")
def apply_repricing(run: int, by: str) -> None:
    """Applies a counted re-pricing, as somebody asked in the console."""
    outcome = apply(run, by)
    if outcome is not Outcome.APPLIED:
        logger.warning("re-pricing %s was not applied: %s", run, outcome)
