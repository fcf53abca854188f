"""What the file of a schedule's period holds: each generation is in one of them, however late it was settled.

A period is written two hours after its end, once the ledger is sealed beyond that. Its file has the generations that
began in it, and those of the periods before, from the schedule's first day on, that were settled or corrected since the
file before was made: with the days that they began on, and counted as `late`. What decides is the place in the ledger
of a generation's posting, since no clock says when a settlement that waited in a spool was committed.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import BinaryIO
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.exports.columns import Layout
from billing.exports.generations import OPERATORS
from billing.exports.pages import FORMATS, PAGE, layout_of, pages, tails
from billing.ids import CLOCKS_APART, first_id
from billing.models import ExportSchedule, StoredExport, Usage

GRACE = timedelta(hours=2)  # nearly all that began has ended
NOTHING = -(2**63)  # below every entry of the ledger

SEALED = "select coalesce(max(last_id), %s) from billing_ledgerblock"
SEALED_AT = "select ran_at from billing_mark where name = 'sealing'"
# What was posted between two places of the ledger, of generations that began before a moment or a little later.
POSTED = """
select distinct generation from billing_ledgerentry
 where id > %s and id <= %s and generation >= %s and generation < %s order by 1
"""
LAST = 2**63 - 1


def next_start(schedule: ExportSchedule) -> date:
    """With which day the period begins that is to be stored next."""
    stored = schedule.periods.filter(state=StoredExport.State.STORED).order_by("-start").first()
    return schedule.after(stored.start) if stored else schedule.first


def is_due(schedule: ExportSchedule, start: date, now: datetime) -> bool:
    """Whether the period that begins with `start` can be written, by the clock."""
    return now >= _moment(schedule.after(start)) + GRACE


def sealed_beyond(schedule: ExportSchedule, start: date) -> int | None:
    """Up to which entry the ledger is sealed; None as long as something of the period may not be."""
    with connection.cursor() as cursor:
        cursor.execute(SEALED_AT)
        at = cursor.fetchone()
        if at is None or at[0] < _moment(schedule.after(start)) + GRACE:
            return None
        cursor.execute(SEALED, [NOTHING])
        (last,) = cursor.fetchone()
        return int(last)


def layout(schedule: ExportSchedule) -> Layout:
    """The columns of its files: an organization's have nothing that is the operator's alone."""
    whole = layout_of(schedule.layout)
    return whole.without(OPERATORS) if schedule.organization_id else whole


def file_name(schedule: ExportSchedule, start: date) -> str:
    """What a period's file is called, with its folders: plain letters, digits and marks."""
    period = f"{start:%Y-%m}" if schedule.every == "month" else f"{start}"
    name = f"{schedule.layout}-{period}.{FORMATS[schedule.format].suffix}"
    return "/".join(filter(None, (schedule.prefix, schedule.name, name)))


def write(output: BinaryIO, schedule: ExportSchedule, start: date, ledger: int) -> int:
    """Writes the period's file, up to the entry `ledger`; how many generations of earlier periods are in it."""
    writer = FORMATS[schedule.format](layout(schedule))
    line = layout(schedule).text(writer.line(layout(schedule)))
    late = 0
    output.write(writer.begin())
    for before, generations in _contents(schedule, start, ledger):
        for page in pages(generations, line):
            output.write(writer.page(page.text))
            late += page.generations if before else 0
    begin, end = _moment(start), _moment(schedule.after(start))
    for text in tails(layout(schedule), writer, begin, end, schedule.organization_id):
        output.write(writer.page(text))
    output.write(writer.end())
    return late


def _contents(schedule: ExportSchedule, start: date, ledger: int) -> Iterator[tuple[bool, QuerySet[Usage]]]:
    """What is in it, oldest first, and whether that is of earlier periods."""
    everything = Usage.objects.all()
    if schedule.organization_id:
        everything = everything.filter(organization=schedule.organization_id)
    first, begin, end = (_moment(day) for day in (schedule.first, start, schedule.after(start)))
    before = schedule.periods.filter(state=StoredExport.State.STORED, start__lt=start).order_by("-start").first()
    if before is not None and before.ledger is not None:
        ids = _posted(before.ledger, ledger, first - CLOCKS_APART, begin + CLOCKS_APART)
        for place in range(0, len(ids), PAGE):
            some = everything.filter(id__in=ids[place : place + PAGE])
            yield True, some.filter(created_at__gte=first, created_at__lt=begin)
    low, high = begin - CLOCKS_APART, end + CLOCKS_APART
    own = everything.filter(id__gte=first_id(low), id__lt=first_id(high), created_at__gte=begin, created_at__lt=end)
    yield False, own.exclude(id__in=_posted(ledger, LAST, low, high))


def _posted(after: int, last: int, low: datetime, high: datetime) -> list[UUID]:
    with connection.cursor() as cursor:
        cursor.execute(POSTED, [after, last, first_id(low), first_id(high)])
        return [id for (id,) in cursor.fetchall()]


def _moment(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
