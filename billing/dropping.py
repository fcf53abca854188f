"""Drops the months of usage and attempts that are not kept any more, the oldest first; rollups and the ledger stay.

What `billing/sql/retention.sql` lets go is dropped: months beyond what the console's rows say, closed, and rolled up.
Of usage the rollups by day stand for the rows from then on, as rows of their own (the span `kept`), made of the very
rows that go, in the transaction in which they go: so a day that is made again is what was kept of it and what has come
since, and never nothing. Days whose rollups are not what their rows come to stay, with their rows. So does what an
active schedule has not stored yet.

To look through a month takes as long as to read it; meanwhile nobody writes to that month, and nobody else waits.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from psycopg.errors import LockNotAvailable

from billing.closings import month_after
from billing.exports.periods import next_start
from billing.ids import CLOCKS_APART, first_id
from billing.models import ExportSchedule, KeptTable
from billing.rollups import KEEP_DAYS, KEEP_SPENT_DAYS, KEEP_TOLD_DAYS, MOST_TOLD, take_mark

DAY = timedelta(days=1)
BUSY = gettext_noop("it is in use")
DIFFERS = gettext_noop("its rollups are not what its rows come to")
OF_THE_DATABASE = (  # what its function says, for who reads it in another language
    gettext_noop("there is no such month"),
    gettext_noop("it is to be kept"),
    gettext_noop("an older one is there"),
    gettext_noop("it is not closed, or its sums are not kept yet"),
    gettext_noop("it is not rolled up yet"),
)

# The months that there are, the oldest first, and about how many rows and bytes each has.
MONTHS = """
select to_date(right(c.relname, 7), 'YYYY_MM'), greatest(c.reltuples, 0)::bigint, pg_total_relation_size(c.oid)
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
 where i.inhparent = format('billing_%%s', %s::text)::regclass and c.relname !~ '_default$' order by c.relname
"""
# Days whose rollups are not what was kept of them and the rows that stay.
_DIFFERS = """
with made as (
    select starts_at, {keys}, {sums} from {table}
     where span = 'kept' and starts_at >= %(start)s and starts_at < %(end)s
    union all
    select date_trunc('day', created_at, 'UTC'), {keys}, {rows} from billing_usage
     where id >= %(wide_from)s and id < %(wide_to)s and not (id >= %(from_id)s and id < %(to_id)s)
       and created_at >= %(start)s and created_at < %(end)s
), expected as (
    select starts_at, {keys}, {added} from made group by starts_at, {keys}
), found as (
    select starts_at, {keys}, {sums} from {table} where span = 'day' and starts_at >= %(start)s and starts_at < %(end)s
)
select exists (
    select from expected e full join found f using (starts_at, {keys})
     where ({of_e}) is distinct from ({of_f}))
"""


def _differs(table: str, keys: str, sums: dict[str, str]) -> str:
    return _DIFFERS.format(
        table=table,
        keys=keys,
        sums=", ".join(sums),
        rows=", ".join(sums.values()),
        added=", ".join(f"sum({name}) as {name}" for name in sums),
        of_e=", ".join(f"e.{name}" for name in sums),
        of_f=", ".join(f"f.{name}" for name in sums),
    )


_TOKENS = {name: f"{name}::bigint" for name in ("prompt_tokens", "completion_tokens")}
_USED = {"requests": "1::bigint", "charge": "coalesce(charge, 0)", **_TOKENS}
DIFFERS_BY_MODEL = _differs("billing_usagerollup", "organization, model, provider", _USED)
DIFFERS_BY_KEY = _differs(
    "billing_spendrollup",
    "organization, project, key, model, provider",
    {**_USED, "provider_cost": "coalesce(provider_cost, 0)"},
)

logger = logging.getLogger(__name__)


class Stays(Exception):
    """A month is not dropped. The message says why."""


@dataclass(frozen=True, slots=True)
class Month:
    """A month of a table, about how many rows and bytes it has, and why it stays; "": it may go."""

    table: str
    first: date
    rows: int
    bytes: int
    objection: str


def months() -> Iterator[Month]:
    """All that there are, the oldest of each table first. One that only waits for an older one may go."""
    for table in KeptTable.values:
        with connection.cursor() as cursor:
            cursor.execute(MONTHS, [table])
            found = cursor.fetchall()
        waits = True  # all before it may go
        for first, rows, size in found:
            why = objection(table, first)
            if why == "an older one is there" and waits:
                why = ""
            waits = waits and not why
            yield Month(table, first, rows, size, why)


def objection(table: str, first: date) -> str:
    """Why a month stays; "": it may go."""
    with connection.cursor() as cursor:
        cursor.execute("select billing_objection(%s, %s)", [table, first])
        (why,) = cursor.fetchone()
    if not why and table == KeptTable.USAGE:
        for schedule in ExportSchedule.objects.filter(active=True, first__lt=month_after(first)).order_by("name"):
            if next_start(schedule) < month_after(first):
                return _("the schedule %(name)s has not stored it") % {"name": schedule.name}
    return str(why or "")


def drop_old() -> list[tuple[Month, int]]:
    """Drops what may go, a month a transaction; which those were, and how many rows each had.

    One that stays is logged, and those after it stay too.
    """
    dropped = []
    for table in KeptTable.values:
        for month in [one for one in months() if one.table == table]:
            if month.objection:
                break
            try:
                dropped.append((month, drop(month.table, month.first)))
            except Stays as error:
                logger.warning("%s of %s stays: %s", month.table, f"{month.first:%Y-%m}", error)
                break
            logger.info("%s of %s was dropped", month.table, f"{month.first:%Y-%m}")
    return dropped


def drop(table: str, first: date) -> int:
    """Drops a month; how many rows it had. Raises `Stays`, and then nothing has happened."""
    if why := objection(table, first):
        raise Stays(why)
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if table == KeptTable.USAGE and take_mark(cursor, "usage") is None:
                raise Stays(BUSY)
            cursor.execute("select billing_lock_month(%s, %s)", [table, first])
            if table == KeptTable.USAGE:
                _keep_rollups(cursor, first)
            cursor.execute("select billing_drop_month(%s, %s)", [table, first])
            (rows,) = cursor.fetchone()
            return int(rows)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise Stays(BUSY) from None
        raise


def _keep_rollups(cursor: CursorWrapper, first: date) -> None:
    """Makes what stands for the month's rows. Raises `Stays` where that would be another sum than there was."""
    begin, end = (datetime.combine(day, time(), UTC) for day in (first, month_after(first)))
    ids = {"from_id": first_id(begin), "to_id": first_id(end)}
    cursor.execute(KEEP_DAYS, ids)
    cursor.execute(KEEP_SPENT_DAYS, ids)
    cursor.execute(KEEP_TOLD_DAYS, {**ids, "most": MOST_TOLD})
    window = {"start": begin - DAY, "end": end + DAY}  # ids are of their makers' clocks
    wide = {"wide_from": first_id(begin - DAY - CLOCKS_APART), "wide_to": first_id(end + DAY + CLOCKS_APART)}
    for differs in (DIFFERS_BY_MODEL, DIFFERS_BY_KEY):
        cursor.execute(differs, {**ids, **window, **wide})
        if cursor.fetchone() == (True,):
            raise Stays(DIFFERS)
