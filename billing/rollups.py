"""Usage by hour and day, made of the usage rows: what reports and statistics read instead of millions of them.

A window made again is the same: its rows are deleted and inserted in one transaction. Days whose rows were dropped are
made of what was kept of them (`KEEP_DAYS`), and of what comes after all. Two workers do not meet: who
finds the work's mark locked leaves it to the other. A stopped worker goes on from its mark, a day a step. The first run
with rollups by key, or by tag, begins with the oldest usage that is there.
"""

from datetime import datetime, timedelta

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.ids import EPOCH, first_id

HOURS_KEPT = timedelta(days=35)
SPENT_HOURS_KEPT = timedelta(days=2)  # of finished days nothing but the day is read
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
# An id's clock is the process's, `created_at` is the database's.
CLOCKS_APART = HOUR
# What settles within half an hour of its beginning is found by making the last hours again; later ones leave a note
# (`billing/sql/settlement.sql`).
MADE_AGAIN = HOUR

# What a usage row counts.
COUNTS = (
    *("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens"),
    *("audio_input_tokens", "image_input_tokens", "reasoning_tokens", "audio_output_tokens", "web_searches"),
    *("video_input_tokens", "image_output_tokens", "images", "seconds"),
)
COUNTED = (
    *("requests", "completed", *COUNTS),
    *("charge", "unpriced", "ttft_count", "ttft_ms", "output_tokens", "output_ms"),
)
COLUMNS = ", ".join(COUNTED)

# The same of each key, with what the provider takes: what the Spend page reads.
SPENT = ("requests", *COUNTS, "charge", "provider_cost", "unpriced", "uncosted")
SPENT_COLUMNS = ", ".join(SPENT)

_COUNTS = ", ".join(f"sum(u.{name}) as {name}" for name in COUNTS)
_UNPRICED = """count(*) filter (where u.charge is null or u.arithmetic @> '[{{"charge": null}}]')"""
_SPENT = f"""
       count(*) as requests, {_COUNTS}, coalesce(sum(u.charge), 0) as charge,
       coalesce(sum(u.provider_cost), 0) as provider_cost, {_UNPRICED} as unpriced,
       count(*) filter (where u.provider_cost is null) as uncosted
"""
_ADDED = ", ".join(f"sum({name}) as {name}" for name in SPENT)

# Of the rows between two ids, at most: `within` narrows them further.
SPENT_ROWS = f"""
insert into billing_spendrollup (span, starts_at, organization, project, key, model, provider, {SPENT_COLUMNS})
select '{{span}}', date_trunc('{{unit}}', u.created_at, 'UTC'), u.organization, u.project, u.key, u.model, u.provider,
       {_SPENT}
  from billing_usage u
 where u.id >= %(from_id)s and u.id < %(to_id)s{{within}}
 group by 2, 3, 4, 5, 6, 7
"""  # noqa: S608 - names of columns, all of them above

MAKE_SPENT_DAYS = f"""
insert into billing_spendrollup (span, starts_at, organization, project, key, model, provider, {SPENT_COLUMNS})
select 'day', date_trunc('day', starts_at, 'UTC'), organization, project, key, model, provider, {_ADDED}
  from billing_spendrollup
 where span in ('hour', 'kept') and starts_at >= %(start)s and starts_at < %(end)s
 group by 2, 3, 4, 5, 6, 7
"""  # noqa: S608 - names of columns, all of them above

# The same by end user (of the tag without a name) and by each tag of metadata that its organization reports by. Of an
# organization, a tag and a time the dearest values are told apart, as long as they have no more rows together than
# MOST_TOLD; the others are one value, NULL. So nobody makes rows by naming ever more of them.
MOST_TOLD = 2_000
_TOLD_KEYS = "starts_at, organization, project, key, model, provider, tag"
# By windows, not joins: of what has just been made the planner knows no numbers.
_TOLD = f"""
, ranked as (
    select *, sum(charge) over same as all_charge, sum(requests) over same as all_requests
      from used window same as (partition by starts_at, organization, tag, value)
), told as (
    select {_TOLD_KEYS}, {SPENT_COLUMNS},
           case when count(*) over (partition by starts_at, organization, tag
                                    order by value is null, all_charge desc, all_requests desc, value) <= %(most)s
                then value end as value
      from ranked
)
"""  # noqa: S608 - names of columns, all of them above
TOLD_ROWS = f"""
with used as materialized (
    select date_trunc('{{unit}}', u.created_at, 'UTC') as starts_at, u.organization, u.project, u.key, u.model,
           u.provider, t.tag, t.value, {_SPENT}
      from billing_usage u
      left join billing_reporttags r on r.organization_id = u.organization
     cross join lateral (
           select '' as tag, u.end_user as value where u.end_user <> ''
            union all
           select distinct n, u.metadata->>n from unnest(r.names) n where u.metadata->>n <> '') t
     where u.id >= %(from_id)s and u.id < %(to_id)s{{within}}
     group by 1, 2, 3, 4, 5, 6, 7, 8
){_TOLD}
insert into billing_tagrollup (span, {_TOLD_KEYS}, value, {SPENT_COLUMNS})
select '{{span}}', {_TOLD_KEYS}, value, {_ADDED} from told group by {_TOLD_KEYS}, value
"""  # noqa: S608 - names of columns, all of them above

# A day's have the rest of what its keys spent as the value '', so that they come to the same.
MAKE_TOLD_DAYS = f"""
with used as materialized (
    select date_trunc('day', starts_at, 'UTC') as starts_at, organization, project, key, model, provider, tag, value,
           {_ADDED}
      from billing_tagrollup
     where span in ('hour', 'kept') and starts_at >= %(start)s and starts_at < %(end)s
     group by 1, 2, 3, 4, 5, 6, 7, 8
){_TOLD}, whole as (
    select s.starts_at, s.organization, s.project, s.key, s.model, s.provider, t.tag,
           {", ".join(f"s.{name}" for name in SPENT)}
      from billing_spendrollup s
      join (select distinct starts_at, organization, tag from used) t using (starts_at, organization)
     where s.span = 'day' and s.starts_at >= %(start)s and s.starts_at < %(end)s
    union all
    select {_TOLD_KEYS}, {", ".join(f"-{name}" for name in SPENT)} from used
), rest as (
    select {_TOLD_KEYS}, {_ADDED}, '' as value from whole group by {_TOLD_KEYS} having sum(requests) > 0
)
insert into billing_tagrollup (span, {_TOLD_KEYS}, value, {SPENT_COLUMNS})
select 'day', {_TOLD_KEYS}, value, {_ADDED} from (select * from told union all select * from rest) made
 group by {_TOLD_KEYS}, value
"""  # noqa: S608 - names of columns, all of them above

USED_ROWS = f"""
insert into billing_usagerollup (span, starts_at, organization, model, provider, {COLUMNS})
select '{{span}}', date_trunc('{{unit}}', u.created_at, 'UTC'), u.organization, u.model, u.provider,
       count(*), count(*) filter (where u.status = 'completed'), {_COUNTS}, coalesce(sum(u.charge), 0), {_UNPRICED},
       count(u.ttft_ms) filter (where u.stream), coalesce(sum(u.ttft_ms) filter (where u.stream), 0),
       coalesce(sum(u.completion_tokens) filter (where t.counts), 0), coalesce(sum(t.ms) filter (where t.counts), 0)
  from billing_usage u
 cross join lateral (
     select u.status = 'completed' and u.completion_tokens > 0 and u.duration_ms is not null as counts,
            greatest(u.duration_ms - case when u.stream then coalesce(u.ttft_ms, 0) else 0 end, 1) as ms
 ) t
 where u.id >= %(from_id)s and u.id < %(to_id)s{{within}}
 group by 2, 3, 4, 5
"""  # noqa: S608 - names of columns, all of them above

MAKE_DAYS = f"""
insert into billing_usagerollup (span, starts_at, organization, model, provider, {COLUMNS})
select 'day', date_trunc('day', starts_at, 'UTC'), organization, model, provider,
       {", ".join(f"sum({name})" for name in COUNTED)}
  from billing_usagerollup
 where span in ('hour', 'kept') and starts_at >= %(start)s and starts_at < %(end)s
 group by 2, 3, 4, 5
"""  # noqa: S608 - names of columns, all of them above

CLEAR = "delete from {table} where span = %(span)s and starts_at >= %(start)s and starts_at < %(end)s"

# An hour of the window, by when the database's clock says that they began.
_HOURS = {"span": "hour", "unit": "hour", "within": " and u.created_at >= %(start)s and u.created_at < %(end)s"}
MADE = tuple(
    (table, rows.format(**_HOURS), days)
    for table, rows, days in (
        ("billing_usagerollup", USED_ROWS, MAKE_DAYS),
        ("billing_spendrollup", SPENT_ROWS, MAKE_SPENT_DAYS),
        ("billing_tagrollup", TOLD_ROWS, MAKE_TOLD_DAYS),  # after those of keys, which it must come to
    )
)


def _added(table: str, keys: str, columns: tuple[str, ...]) -> str:
    more = ", ".join(f"{name} = {table}.{name} + excluded.{name}" for name in columns)
    return f"on conflict (span, starts_at, organization, {keys}) do update set {more}"


# What stands for rows that are dropped: of the days that they began on, of which a neighbouring month may have had some
# too, since ids are of their makers' clocks.
_KEPT = {"span": "kept", "unit": "day", "within": ""}
KEEP_DAYS = USED_ROWS.format(**_KEPT) + _added("billing_usagerollup", "model, provider", COUNTED)
KEEP_SPENT_DAYS = SPENT_ROWS.format(**_KEPT) + _added("billing_spendrollup", "project, key, model, provider", SPENT)
KEEP_TOLD_DAYS = TOLD_ROWS.format(**_KEPT)

FIRST_ID = "select billing_moment(id) from billing_usage where id >= %s order by id limit 1"
TAKE_NOTES = """
delete from billing_latehour where id in (select id from billing_latehour order by id limit 1000)
returning date_trunc('day', hour, 'UTC')
"""

# Tags by which an organization reports since its last words on it: told apart since the month before.
TAKE_TAGS = "update billing_reporttags set rolled_up = true where not rolled_up"


def take_mark(cursor: CursorWrapper, name: str) -> tuple[datetime, datetime] | None:
    """Locks the mark `name` until the transaction ends: until when its work is done, and the database's time.

    None when another has it. Work that has never run is done until 1970.
    """
    cursor.execute(
        "insert into billing_mark (name, until, ran_at) values (%s, %s, %s) on conflict do nothing",
        [name, EPOCH, EPOCH],
    )
    cursor.execute(
        "select until, clock_timestamp() from billing_mark where name = %s for update skip locked",
        [name],
    )
    found: tuple[datetime, datetime] | None = cursor.fetchone()
    return found


def set_mark(cursor: CursorWrapper, name: str, until: datetime, ran_at: datetime) -> None:
    """Moves a mark that is taken."""
    cursor.execute("update billing_mark set until = %s, ran_at = %s where name = %s", [until, ran_at, name])


def roll_up_usage(most_days: int = 400) -> bool:
    """Brings the rollups up to the present, at most `most_days` days at once; whether that was all there is to do."""
    return any(_step() for _ in range(most_days))


def _step() -> bool:
    """One transaction: a day, or the last hours; and the days that late settlements have changed."""
    with transaction.atomic(), connection.cursor() as cursor:
        found = take_mark(cursor, "usage")
        if found is None:
            return True
        until, now = found
        # Days from before there were rollups of keys, or of tags, are made again, once, all others with them.
        others = [(name, take_mark(cursor, name)) for name in ("spend", "tags")]
        marks = {"usage": until} | {name: taken[0] for name, taken in others if taken}
        cursor.execute(TAKE_TAGS)
        if cursor.rowcount:
            marks["tags"] = min(marks["tags"], _month_before(now))
        until = min(marks.values())
        cursor.execute(FIRST_ID, [first_id(max(EPOCH, until - MADE_AGAIN - CLOCKS_APART))])
        first = cursor.fetchone()
        # Nothing was used in between.
        until = min(max(until, first[0] - CLOCKS_APART), now) if first else now
        start = _floor(until - MADE_AGAIN, HOUR)
        if now - until > DAY:
            start = _floor(start, DAY)  # whole, since its hours may soon be forgotten
        end = min(_floor(until, DAY) + DAY, _floor(now, HOUR) + HOUR)
        make(cursor, start, end)
        # Taken before the next statement looks: whatever a note was written with is to be seen by then.
        cursor.execute(TAKE_NOTES)
        for day in sorted({day for (day,) in cursor.fetchall()}):
            make(cursor, day, day + DAY)
        for name, held in marks.items():
            set_mark(cursor, name, max(min(held, now), min(end, now)), now)
        return end > now


def make(cursor: CursorWrapper, start: datetime, end: datetime) -> None:
    """Makes the hours of a time, and the days that they are in, from the usage rows. Both ends are full hours, UTC.

    The other hours of those days must be there, so days whose hours are forgotten are made whole.
    """
    window = {"start": start, "end": end}
    ids = {
        "from_id": first_id(max(EPOCH, start - CLOCKS_APART)),
        "to_id": first_id(end + CLOCKS_APART),
    }
    days = {"start": _floor(start, DAY), "end": _floor(end + DAY - timedelta(microseconds=1), DAY)}
    for table, make_hours, make_days in MADE:
        cursor.execute(CLEAR.format(table=table), {"span": "hour", **window})
        cursor.execute(make_hours, {**window, **ids, "most": MOST_TOLD})
        cursor.execute(CLEAR.format(table=table), {"span": "day", **days})
        cursor.execute(make_days, {**days, "most": MOST_TOLD})


def prune_usage() -> None:
    """Forgets hours after 35 days, those of keys and tags after two; their days stay."""
    with connection.cursor() as cursor:
        cursor.execute("select date_trunc('day', now(), 'UTC')")
        (today,) = cursor.fetchone()
        cursor.execute("delete from billing_usagerollup where span = 'hour' and starts_at < %s", [today - HOURS_KEPT])
        for table in ("billing_spendrollup", "billing_tagrollup"):
            cursor.execute(
                f"delete from {table} where span = 'hour' and starts_at < %s",  # noqa: S608 - names of ours
                [today - SPENT_HOURS_KEPT],
            )


def _floor(moment: datetime, step: timedelta) -> datetime:
    """The start of the UTC hour or day that holds `moment`."""
    return EPOCH + (moment - EPOCH) // step * step


def _month_before(now: datetime) -> datetime:
    """The start of the UTC month before."""
    return ((now.replace(day=1) - DAY).replace(day=1) - EPOCH) // DAY * DAY + EPOCH
