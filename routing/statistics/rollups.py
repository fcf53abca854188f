"""Attempts rolled up by minute and hour, and the windows that gateways and pages read made of them.

Every statement makes a window anew, deleting and inserting it in one transaction, so making one twice changes nothing
and a late settlement is found by making the last minutes again. Two workers do not meet: who finds the mark locked
leaves the work to the other. A stopped worker goes on from its mark, an hour a step.
"""

from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper

from billing.ids import EPOCH, first_id
from billing.rollups import set_mark, take_mark
from routing.health.faults import Blame, Fault, blame
from routing.health.latency import SHAPE, SIZES
from routing.models.statistics import ALL_SIZES, Window

MINUTES_KEPT, HOURS_KEPT = timedelta(days=2), timedelta(days=35)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
STEP = HOUR
# A run makes the last minutes again, since attempts end after they began, and every fifth minute as many as the
# longest of them take (a provider's usual total timeout is a quarter of an hour).
AGAIN, LONG_AGAIN = timedelta(minutes=2), timedelta(minutes=20)
EVERY = timedelta(minutes=5)
# A generation's usage row bears an older id than its attempts.
OLDEST_GENERATION = HOUR
# How often a window is published: a long one changes slowly, and is made of many rows.
PUBLISHED_EVERY = {
    Window.MINUTES: timedelta(0),
    Window.HOUR: timedelta(0),
    Window.DAY: timedelta(minutes=1),
    Window.MONTH: timedelta(minutes=10),
}
LONG = {Window.MINUTES: EVERY, Window.HOUR: HOUR, Window.DAY: timedelta(days=1), Window.MONTH: timedelta(days=30)}

SUMMED = ("attempts", "completed", "cancelled", "offer_faults", "client_faults")
MERGED = ("faults", "failing", "ttft", "token_time")
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "output_tokens", "output_ms")
COUNTED = ", ".join((*SUMMED, *MERGED, *TOKENS))
ADDED = ", ".join(
    (
        *(f"sum({name})" for name in SUMMED),
        *(f"routing_merge(jsonb_agg({name}))" for name in MERGED),
        *(f"sum({name})" for name in TOKENS),
    )
)
OFFER = "model, provider, upstream_model, size_class"

CLEAR = "delete from routing_offerrollup where span = %(span)s and starts_at >= %(start)s and starts_at < %(end)s"

MAKE_MINUTES = f"""
insert into routing_offerrollup (span, starts_at, {OFFER}, {COUNTED})
select 'minute', date_trunc('minute', billing_moment(a.id), 'UTC'), a.model, a.provider, a.upstream_model,
       width_bucket(coalesce(a.prompt_tokens, 0), %(sizes)s::integer[]),
       count(*), count(*) filter (where a.status = 'completed'), count(*) filter (where a.status = 'cancelled'),
       count(*) filter (where a.status = 'failed' and j.blame = 'offer'),
       count(*) filter (where a.status = 'failed' and j.blame = 'client'),
       routing_tally(array_agg(a.fault) filter (where a.status = 'failed')),
       routing_tally(array_agg(u.organization) filter (
           where a.status = 'failed' and j.blame = 'offer' and u.organization is not null)),
       routing_tally(array_agg(routing_bucket(t.ttft)) filter (where t.ttft is not null)),
       routing_tally(array_agg(routing_bucket(1000 * t.rest / t.tokens)) filter (where t.tokens > 0)),
       coalesce(sum(a.prompt_tokens), 0), coalesce(sum(a.completion_tokens), 0), 
       coalesce(sum(u.cached_tokens) filter (where a.status = 'completed'), 0),
       coalesce(sum(t.tokens) filter (where t.tokens > 0), 0),
       coalesce(sum(round(t.rest)) filter (where t.tokens > 0), 0)
  from billing_attempt a
  left join billing_usage u
    on u.id = a.generation and u.id >= %(oldest_id)s and u.id < %(to_id)s
 cross join lateral (
     -- A stream's first token, and what came after it; a whole answer is split in the usual shape.
     select not coalesce(u.stream, true) as whole,
            a.duration_ms / (%(first)s + %(token)s * a.completion_tokens) as ratio
 ) w
 cross join lateral (
     -- The first bytes of a whole answer are no first token.
     select case when not w.whole then a.ttft_ms when a.status = 'completed' then %(first)s * w.ratio end as ttft,
            case when w.whole then %(token)s * w.ratio * a.completion_tokens else a.duration_ms - a.ttft_ms end as rest,
            case when a.status <> 'completed' then 0 when w.whole then a.completion_tokens
                 when a.ttft_ms is not null then a.completion_tokens - 1 end as tokens
 ) t
 cross join lateral (
     select case when a.fault = any(%(clients)s) then 'client'
                 when a.fault = any(%(others)s) then 'nobody' else 'offer' end as blame
 ) j
 where a.id >= %(from_id)s and a.id < %(to_id)s and a.status in ('completed', 'failed', 'cancelled')
 group by 2, 3, 4, 5, 6
"""  # noqa: S608 - names of columns, all of them above

MAKE_HOURS = f"""
insert into routing_offerrollup (span, starts_at, {OFFER}, {COUNTED})
select 'hour', date_trunc('hour', starts_at, 'UTC'), {OFFER}, {ADDED}
  from routing_offerrollup
 where span = 'minute' and starts_at >= %(start)s and starts_at < %(end)s
 group by 2, {OFFER}
"""  # noqa: S608 - names of columns, all of them above

PUBLISH = f"""
insert into routing_offerstatistics ("window", published_at, {OFFER}, {COUNTED}, ttft_p50, token_p50)
select %(window)s, %(now)s, q.*, routing_quantile(q.ttft, 0.5), routing_quantile(q.token_time, 0.5)
  from (
      select model, provider, upstream_model,
             case when grouping(size_class) = 1 then %(all)s else size_class end as size_class,
             {", ".join(f"sum({name}) as {name}" for name in SUMMED)},
             {", ".join(f"routing_merge(jsonb_agg({name})) as {name}" for name in MERGED)},
             {", ".join(f"sum({name}) as {name}" for name in TOKENS)}
        from routing_offerrollup
       where span = %(span)s and starts_at >= %(start)s and starts_at <= %(now)s
       group by grouping sets ((model, provider, upstream_model, size_class), (model, provider, upstream_model))
  ) q
"""  # noqa: S608 - names of columns, all of them above

# The request's own faults, and those of a credential or a moment: neither speaks against the offer.
CLIENTS = [fault.value for fault in Fault if blame(fault) is Blame.NOBODY]
OTHERS = [fault.value for fault in Fault if blame(fault) in (Blame.CREDENTIAL, Blame.COOL)]


def roll_up(most_steps: int = 24 * 40) -> bool:
    """Brings rollups and published windows up to the present, at most `most_steps` hours at once.

    Whether that was all there is to do; another worker that is at it does the rest.
    """
    if not any(_step() for _ in range(most_steps)):
        return False
    for window in PUBLISHED_EVERY:
        publish(window)
    return True


def _step() -> bool:
    """One transaction: an hour, or the last minutes. Whether that was all there is to do."""
    with transaction.atomic(), connection.cursor() as cursor:
        found = take_mark(cursor, "offers")
        if found is None:
            return True
        until, now = found
        until = _begin(cursor, min(max(until, now - HOURS_KEPT), now), now)  # ahead if the clock was set back
        again = AGAIN if (now - EPOCH) // EVERY == (until - EPOCH) // EVERY else LONG_AGAIN
        start = _floor(until - again, MINUTE)
        end = min(_floor(until, STEP) + STEP, _floor(now, MINUTE) + MINUTE)
        make(cursor, start, end)
        set_mark(cursor, "offers", min(end, now), now)
        return end > now


def _begin(cursor: CursorWrapper, until: datetime, now: datetime) -> datetime:
    """`until`, or when the next attempt after it began, if nothing happened in between."""
    cursor.execute(
        "select billing_moment(id) from billing_attempt where id >= %s order by id limit 1",
        [first_id(until - LONG_AGAIN)],
    )
    first = cursor.fetchone()
    return max(until, min(first[0], now)) if first else now


def make(cursor: CursorWrapper, start: datetime, end: datetime) -> None:
    """Makes the minutes of a time, and the hours that they are in, from the attempts. Both ends are full minutes."""
    window = {"start": start, "end": end}
    cursor.execute(CLEAR, {"span": "minute", **window})
    cursor.execute(
        MAKE_MINUTES,
        {
            "sizes": list(SIZES),
            "clients": CLIENTS,
            "others": OTHERS,
            "first": 1000 * SHAPE[0],
            "token": 1000 * SHAPE[1],
            "from_id": first_id(start),
            "to_id": first_id(end),
            "oldest_id": first_id(start - OLDEST_GENERATION),
        },
    )
    hours = {"start": _floor(start, HOUR), "end": _floor(end + HOUR - MINUTE, HOUR)}
    cursor.execute(CLEAR, {"span": "hour", **hours})
    cursor.execute(MAKE_HOURS, hours)


def publish(window: Window) -> None:
    """Publishes a window if that is due, in a transaction of its own: a short one does not wait for a long one."""
    with transaction.atomic(), connection.cursor() as cursor:
        name = f"offers:{window}"
        found = take_mark(cursor, name)
        # One that is ahead was published before the clock was set back.
        if found is None or found[0] <= found[1] < found[0] + PUBLISHED_EVERY[window]:
            return
        now = found[1]
        # A window begins with a full minute or hour, and the running one comes on top.
        minutes = LONG[window] <= HOUR
        start = _floor(now - LONG[window], MINUTE if minutes else HOUR)
        cursor.execute('delete from routing_offerstatistics where "window" = %s', [window])
        cursor.execute(
            PUBLISH,
            {"window": window, "span": "minute" if minutes else "hour", "start": start, "now": now, "all": ALL_SIZES},
        )
        set_mark(cursor, name, now, now)


def prune() -> None:
    """Forgets minutes after two days and hours after 35, but none of an hour that may still be made again; and what
    rested as long ago, also when it was never tried again.
    """
    with connection.cursor() as cursor:
        cursor.execute("select now(), coalesce(until, now()) from (select) n left join billing_mark on name = 'offers'")
        now, until = cursor.fetchone()
        for span, kept in (("minute", MINUTES_KEPT), ("hour", HOURS_KEPT)):
            oldest = _floor(min(now - kept, until - LONG_AGAIN), HOUR)
            cursor.execute("delete from routing_offerrollup where span = %s and starts_at < %s", [span, oldest])
        cursor.execute("delete from routing_ejection where coalesce(closed_at, until) < %s", [now - HOURS_KEPT])


def published_at() -> dict[str, datetime]:
    """When each window was last published; a window that never was is left out."""
    with connection.cursor() as cursor:
        cursor.execute("select substr(name, 8), until from billing_mark where name like 'offers:%%'", [])
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return dict(found)


def _floor(moment: datetime, step: timedelta) -> datetime:
    """The start of the UTC minute or hour that holds `moment`."""
    return EPOCH + (moment - EPOCH) // step * step
