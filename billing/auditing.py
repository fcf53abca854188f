"""The auditor: whether usage, ledger, blocks, balances and rollups agree to the smallest unit. Runs every minute.

All of a run is read in one snapshot, so what settles meanwhile is no error. A run does not read everything:

- **New and recent rows**, each generation beside its postings: those that began in the last ten minutes, those that
  new entries name, however old they are, and those with an open finding.
- **Changed rows**: PostgreSQL counts for each table how many rows were ever updated or deleted. Those of the ledger
  and its blocks never are, so a count that grows is an alarm by itself, and all is compared. Usage rows are, by
  settlements that come late or take more than was held; when a month's count moves, that month is compared whole, and
  so is an older month in which rows appear. When a table has got another file (emptied, rewritten) or the counts were
  reset (a crash of the server, too), all is compared.
- **All balances, closed months, re-pricings, credits, rollups** each time: each is a sum of others, and they are few. A
  closed month is what it was when it was closed, what re-pricing posted is what its runs came to, and prepaid balances
  are their credits, less what was charged (`billing/credit/balances.py`). A day's rollups are
  what the ledger says of it, with what was posted late to a later month, and its hours together what the day says; an
  hour is compared with its usage rows once, when it no longer changes. Days by end user and tag are dozens of times
  as many rows: of the last 34 days one a run, in turn, comes to what that day by key does.
- **Of months that were dropped** no generation is compared any more, but their rollups with the ledger as all others,
  and what is kept of them with what their rows came to.
- **The audit log** (`accounts/log.py`) is sealed in blocks as the ledger is: those that are new, and two a run.
- **The rest in turn**, 20,000 generations and two blocks a run, for what no count tells (a superuser may turn it off).

Of a million generations with two million entries, in one month, a run takes 0.3 to 0.5 s, one in which the month's
count has moved 7 s, and one that compares everything, the chain too, 37 s, on a 2-core machine that others used as
well. So a month of ten million in which rows are corrected every minute keeps a core busy, and an alarm takes longer.
"""

import logging
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.db import OperationalError, connection, transaction
from django.db.backends.utils import CursorWrapper
from psycopg.errors import LockNotAvailable

from accounts.exact import plain
from accounts.log import wrong_blocks as wrong_log_blocks
from billing.credit.balances import wrong_balances
from billing.ids import EPOCH, first_id
from billing.models import AuditFinding, AuditState, FindingKind
from billing.retention import kept_since
from billing.sealing import VERIFIED_AT_ONCE, wrong_blocks

logger = logging.getLogger(__name__)

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
RECENT = timedelta(minutes=10)
IN_TURN = 20_000  # generations a run
BLOCKS_IN_TURN = 2
MOST_FOUND = 20  # of a comparison; one error in the code is in every row
MOST_OPEN = 1000
LOG = "audit log, block"
KEPT = timedelta(days=400)  # what is gone
UNSEALED = timedelta(minutes=15)
SETTLED_BY = 2 * HOUR  # after its end no rollup of an hour changes, unless a note says so
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)

COUNTS = """
select c.relname, s.n_tup_ins, s.n_tup_upd + s.n_tup_del, pg_relation_filenode(c.oid),
       concat((select stats_reset from pg_stat_database where datname = current_database()),
              (select stats_reset from pg_stat_bgwriter))
  from pg_class c join pg_stat_all_tables s on s.relid = c.oid
 where c.oid in (select inhrelid from pg_inherits where inhparent = 'billing_usage'::regclass)
    or c.oid = any(%s::regclass[])
"""
GROWING = ("billing_ledgerentry", "billing_ledgerblock", "billing_credit", "accounts_auditevent", "accounts_auditblock")
# A generation's usage row beside what its postings come to. `where` bounds both by their ids. Of months that were
# dropped the postings alone are left, and nothing is to be said of them.
COMPARE = """
with used as (
    select u.id, u.organization, coalesce(u.charge, 0) as charge, coalesce(u.provider_cost, 0) as cost, u.overrun
      from billing_usage u where u.id {where}
), posted as (
    select l.generation as id, min(l.organization::text)::uuid as organization,
           coalesce(sum(case when l.debit = 'tenant:' || l.organization then l.amount
                             when l.credit = 'tenant:' || l.organization then -l.amount end), 0) as charge,
           coalesce(sum(case 'cost' when l.debit then l.amount when l.credit then -l.amount end), 0) as cost,
           coalesce(sum(case 'overrun' when l.debit then l.amount when l.credit then -l.amount end), 0) as overrun,
           coalesce(sum(case 'revenue' when l.credit then l.amount when l.debit then -l.amount end), 0) as revenue,
           coalesce(sum(case when l.credit like 'provider:%%' then l.amount
                             when l.debit like 'provider:%%' then -l.amount end), 0) as providers,
           count(*) filter (where l.debit like 'tenant:%%') - count(*) filter (where l.credit like 'tenant:%%')
               as closings
      from billing_ledgerentry l where l.generation {where}
     group by l.generation
)
select id, coalesce(u.organization, l.organization), u.charge, u.cost, u.overrun, u.charge + u.overrun, u.cost,
       case when u.organization is null then 0 else 1 end,
       l.charge, l.cost, l.overrun, l.revenue, l.providers, coalesce(l.closings, 0)
  from used u full join posted l using (id)
 where (u.organization is distinct from l.organization
    or u.charge <> l.charge or u.cost <> l.cost or u.overrun <> l.overrun or u.charge + u.overrun <> l.revenue
    or u.cost <> l.providers or l.closings <> 1)
   and (u.organization is not null or id >= %(kept)s)
 order by id limit %(most)s
"""
BETWEEN, AMONG = ">= %(start)s and {0} < %(end)s", "= any(%(ids)s)"
AMOUNTS = ("charge", "cost", "overrun", "revenue", "providers", "closings")

# Generations of months that were dropped, settled after that.
AFTER_ALL = "select id from billing_usage where id < %s order by id limit 20000"
# What stands for dropped rows, beside what they came to.
DROPPED = """
select d.rows, d.charge, d.cost, u.rows, u.charge, s.rows, s.charge, s.cost
  from (select coalesce(sum(rows), 0) as rows, coalesce(sum(charge), 0) as charge,
               coalesce(sum(provider_cost), 0) as cost from billing_droppedmonth where "table" = 'usage') d,
       (select coalesce(sum(requests), 0) as rows, coalesce(sum(charge), 0) as charge
          from billing_usagerollup where span = 'kept') u,
       (select coalesce(sum(requests), 0) as rows, coalesce(sum(charge), 0) as charge,
               coalesce(sum(provider_cost), 0) as cost from billing_spendrollup where span = 'kept') s
"""

OLD_NAMED = """
select distinct generation from billing_ledgerentry where id > %s and generation < %s order by generation limit 20000
"""
ENDS = """
select (select billing_moment(id) from billing_usage order by id limit 1),
       (select billing_moment(id) from billing_usage order by id desc limit 1)
"""
TOTALS = """
select b.amount, b.entries, d.debit, d.credit, d.debits, d.credits
  from (select coalesce(sum(amount), 0) as amount, coalesce(sum(entries), 0) as entries from billing_ledgerblock) b,
       (select coalesce(sum(debit), 0) as debit, coalesce(sum(credit), 0) as credit,
               coalesce(sum(debits), 0) as debits, coalesce(sum(credits), 0) as credits from billing_accountday) d
"""
# Days whose rollups no longer change, beside the ledger's, which must have them sealed.
DAYS = """
with head as (select coalesce(max(last_id), -9223372036854775808) as id from billing_ledgerblock),
unsealed as (
    select distinct coalesce(l.late_of, (l.created_at at time zone 'UTC')::date) as day
      from billing_ledgerentry l, head where l.id > head.id
), rolled as (
    select (starts_at at time zone 'UTC')::date as day, organization, sum(charge) as charge, sum(requests) as requests
      from billing_usagerollup where span = 'day' and starts_at < %(until)s group by 1, 2
), posted as (
    select of_day as day, organization, sum(debit - credit) as charge, sum(debits - credits) as requests
      from billing_accountday
     where account = 'tenant:' || organization and of_day < (%(until)s at time zone 'UTC')::date group by 1, 2
)
select day, organization, coalesce(p.charge, 0), coalesce(p.requests, 0), coalesce(r.charge, 0), coalesce(r.requests, 0)
  from rolled r full join posted p using (day, organization)
 where (r.charge is distinct from p.charge or r.requests is distinct from p.requests)
   and day not in (select day from unsealed)
   and day not in (select (hour at time zone 'UTC')::date from billing_latehour)
 order by 1, 2 limit %(most)s
"""
CLOSED = """
with kept as (
    select s.month, s.organization, s.account, s.debit, s.credit, s.debits, s.credits from billing_closedsum s
), posted as (
    select c.month, d.organization, d.account, sum(d.debit) as debit, sum(d.credit) as credit,
           sum(d.debits) as debits, sum(d.credits) as credits
      from billing_closedmonth c
      join billing_accountday d on d.day >= c.month and d.day < c.month + interval '1 month'
     where c.summed_at is not null group by 1, 2, 3
)
select month, organization, account, k.debit, k.credit, k.debits, k.credits, p.debit, p.credit, p.debits, p.credits
  from kept k full join posted p using (month, organization, account)
 where (k.debit, k.credit, k.debits, k.credits) is distinct from (p.debit, p.credit, p.debits, p.credits)
 order by 1, 2, 3 limit %(most)s
"""
# What applied re-pricings come to, by organization and month of usage, beside what is posted on accounts of their own:
# sealed entries from the balances, which the blocks hold to them, and the few that are not sealed yet.
REPRICED = """
with head as (select coalesce(max(last_id), -9223372036854775808) as id from billing_ledgerblock),
expected as (
    select s.organization, date_trunc('month', s.day)::date as month,
           sum(s.charge_after - s.charge_before - s.charge_prior) as charge,
           sum(s.cost_after - s.cost_before - s.cost_prior) as cost
      from billing_repricingsum s join billing_repricing r on r.id = s.run_id
     where r.state = 'applied' group by 1, 2
), entries as (
    select organization, of_day, account, debit - credit as amount
      from billing_accountday where account like 'repriced%%'
    union all
    select l.organization, coalesce(l.late_of, (l.created_at at time zone 'UTC')::date), s.account, s.amount
      from head, billing_ledgerentry l
     cross join lateral (values (l.debit, l.amount), (l.credit, -l.amount)) s(account, amount)
     where l.id > head.id and s.account like 'repriced%%'
), posted as (
    select organization, date_trunc('month', of_day)::date as month,
           sum(case account when 'repriced:' || organization then amount else 0 end) as charge,
           sum(case account when 'repriced-revenue' then -amount else 0 end) as revenue,
           sum(case account when 'repriced-cost' then amount else 0 end) as cost,
           sum(case account when 'repriced-provider' then -amount else 0 end) as providers,
           sum(case when account in ('repriced:' || organization, 'repriced-revenue', 'repriced-cost',
                                     'repriced-provider') then 0 else abs(amount) end) as elsewhere
      from entries group by 1, 2
)
select month, organization, coalesce(e.charge, 0), coalesce(e.cost, 0),
       coalesce(p.charge, 0), coalesce(p.cost, 0), coalesce(p.revenue, 0), coalesce(p.providers, 0)
  from expected e full join posted p using (organization, month)
 where (coalesce(e.charge, 0), coalesce(e.charge, 0), coalesce(e.cost, 0), coalesce(e.cost, 0), 0)
       is distinct from (coalesce(p.charge, 0), coalesce(p.revenue, 0), coalesce(p.cost, 0), coalesce(p.providers, 0),
                         coalesce(p.elsewhere, 0))
 order by 1, 2 limit %(most)s
"""
HOURS = """
with days as (
    select starts_at as day, organization, model, provider, charge, requests, prompt_tokens, completion_tokens
      from billing_usagerollup where span = 'day' and starts_at >= %(since)s
), hours as (
    select date_trunc('day', starts_at, 'UTC') as day, organization, model, provider, sum(charge) as charge,
           sum(requests) as requests, sum(prompt_tokens) as prompt_tokens, sum(completion_tokens) as completion_tokens
      from billing_usagerollup where span = 'hour' and starts_at >= %(since)s group by 1, 2, 3, 4
)
select (day at time zone 'UTC')::date, organization, coalesce(h.charge, 0), coalesce(h.requests, 0),
       coalesce(d.charge, 0), coalesce(d.requests, 0), model, provider
  from days d full join hours h using (day, organization, model, provider)
 where (d.charge, d.requests, d.prompt_tokens, d.completion_tokens)
       is distinct from (h.charge, h.requests, h.prompt_tokens, h.completion_tokens)
 order by 1, 2, model, provider limit %(most)s
"""
# Days by key beside days: both are made of the same rows, in one transaction.
SPENT = """
with days as (
    select starts_at as day, organization, model, provider, charge, requests from billing_usagerollup
     where span = 'day' and starts_at >= %(since)s and starts_at < %(until)s
), keys as (
    select starts_at as day, organization, model, provider, sum(charge) as charge, sum(requests) as requests
      from billing_spendrollup
     where span = 'day' and starts_at >= %(since)s and starts_at < %(until)s group by 1, 2, 3, 4
)
select (day at time zone 'UTC')::date, organization, coalesce(d.charge, 0), coalesce(d.requests, 0),
       coalesce(k.charge, 0), coalesce(k.requests, 0), model, provider
  from days d full join keys k using (day, organization, model, provider)
 where (d.charge, d.requests) is distinct from (k.charge, k.requests)
 order by 1, 2, model, provider limit %(most)s
"""
HOUR_OF_USAGE = """
with rolled as (
    select organization, model, provider, charge, requests from billing_usagerollup
     where span = 'hour' and starts_at = %(start)s
), used as (
    select organization, model, provider, coalesce(sum(charge), 0) as charge, count(*) as requests
      from billing_usage
     where id >= %(from_id)s and id < %(to_id)s and created_at >= %(start)s and created_at < %(end)s group by 1, 2, 3
)
select organization, coalesce(u.charge, 0), coalesce(u.requests, 0), coalesce(r.charge, 0), coalesce(r.requests, 0),
       model, provider
  from rolled r full join used u using (organization, model, provider)
 where (r.charge, r.requests) is distinct from (u.charge, u.requests)
   and not exists (select from billing_latehour where hour = %(start)s)
 order by 1, model, provider limit %(most)s
"""
# The same by end user (the tag without a name) and by each tag that is told apart, of whatever value.
HOUR_OF_TAGS = """
with rolled as (
    select organization, tag, model, provider, sum(charge) as charge, sum(requests) as requests
      from billing_tagrollup t
     where span = 'hour' and starts_at = %(start)s
       and (tag = '' or exists (select from billing_reporttags r
                                 where r.organization_id = t.organization and r.rolled_up and t.tag = any(r.names)))
     group by 1, 2, 3, 4
), used as (
    select u.organization, t.tag, u.model, u.provider, coalesce(sum(u.charge), 0) as charge, count(*) as requests
      from billing_usage u
      left join billing_reporttags r on r.organization_id = u.organization and r.rolled_up
     cross join lateral (select '' as tag where u.end_user <> ''
                          union all
                         select distinct n from unnest(r.names) n where u.metadata->>n <> '') t
     where u.id >= %(from_id)s and u.id < %(to_id)s and u.created_at >= %(start)s and u.created_at < %(end)s
     group by 1, 2, 3, 4
)
select organization, coalesce(u.charge, 0), coalesce(u.requests, 0), coalesce(r.charge, 0), coalesce(r.requests, 0),
       tag, model, provider
  from rolled r full join used u using (organization, tag, model, provider)
 where (r.charge, r.requests) is distinct from (u.charge, u.requests)
   and not exists (select from billing_latehour where hour = %(start)s)
 order by 1, tag, model, provider limit %(most)s
"""
# Days by tag beside days by key: of a day, an organization and a tag that are there at all.
TAGGED = """
with told as (
    select starts_at as day, organization, tag, project, key, model, provider, sum(charge) as charge,
           sum(requests) as requests
      from billing_tagrollup where span = 'day' and starts_at = any(%(days)s) group by 1, 2, 3, 4, 5, 6, 7
), keys as (
    select t.day, s.organization, t.tag, s.project, s.key, s.model, s.provider, s.charge, s.requests
      from billing_spendrollup s
      join (select distinct day, organization, tag from told) t
        on t.day = s.starts_at and t.organization = s.organization
     where s.span = 'day' and s.starts_at = any(%(days)s)
)
select (day at time zone 'UTC')::date, organization, coalesce(k.charge, 0), coalesce(k.requests, 0),
       coalesce(t.charge, 0), coalesce(t.requests, 0), tag, key, model, provider
  from told t full join keys k using (day, organization, tag, project, key, model, provider)
 where (t.charge, t.requests) is distinct from (k.charge, k.requests)
 order by 1, 2, tag, key, model, provider limit %(most)s
"""
TAGGED_IN_TURN, TAGGED_DAYS = 1, 34  # days a run, of the last


class Found(NamedTuple):
    """One thing that does not agree."""

    kind: FindingKind
    place: str
    expected: str
    found: str


class Run(NamedTuple):
    """One audit, `now` by the database's clock.

    - `state`: what is remembered from one run to the next; a run changes it
    - `before`, `seen`: what `_counts` told the last time, and tells now
    - `open_ones`: what is known not to agree
    - `kept`: the first id whose month was not dropped
    """

    cursor: CursorWrapper
    now: datetime
    state: dict[str, Any]
    before: dict[str, list[Any]]
    seen: dict[str, list[Any]]
    open_ones: list[AuditFinding]
    kept: UUID


def audit() -> int | None:
    """Audits, and writes down what it finds; how many findings are open. None while another audits.

    A finding that agrees again is marked as gone. New ones are logged as critical, and counted in the metrics of every
    gateway (`meterline_audit_findings`).
    """
    seen = _counts()  # before the snapshot: what is changed after it is counted next time
    try:
        with transaction.atomic(durable=True), connection.cursor() as cursor:
            cursor.execute("set transaction isolation level repeatable read")
            cursor.execute("set local lock_timeout = '5s'")
            # Before the snapshot, so that it shows what an audit that ran until now has written.
            cursor.execute("lock table billing_auditfinding in share row exclusive mode")
            return _run(cursor, seen)
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            return None
        raise


def _counts() -> dict[str, list[Any]]:
    """By table: rows inserted, rows changed, its file, and when the counts were reset."""
    with connection.cursor() as cursor:
        cursor.execute(COUNTS, [list(GROWING)])
        return {name: counts for name, *counts in cursor.fetchall()}


def _run(cursor: CursorWrapper, seen: dict[str, list[Any]]) -> int:
    cursor.execute("select clock_timestamp()")
    (now,) = cursor.fetchone()
    row = AuditState.objects.filter(pk=1).first()
    state: dict[str, Any] = row.state if row else {}
    open_ones = list(AuditFinding.objects.filter(gone_at=None))
    since = kept_since()
    run = Run(cursor, now, state, state.get("seen", {}), seen, open_ones, first_id(since) if since else FIRST)
    found = [
        *_touched(run),
        *_generations(run),
        *_chain(run),
        *_log(run),
        *_totals(cursor),
        *_closed(cursor),
        *_repriced(cursor),
        *_prepaid(run),
        *_rollups(run),
        *_dropped(cursor),
    ]
    count = _write_down(found, open_ones, now)
    state["seen"] = seen
    AuditState.objects.update_or_create(pk=1, defaults={"ended_at": now, "state": state})
    return count


def _write_down(found: Iterable[Found], open_ones: list[AuditFinding], now: datetime) -> int:
    there = {(row.kind, row.place): row for row in open_ones}
    held = set()
    for kind, place, expected, what in dict.fromkeys(found):
        if (kind, place) in held:
            continue
        held.add((kind, place))
        row = there.get((kind, place))
        if row is None:
            if len(held) > MOST_OPEN:
                continue
            row = AuditFinding(kind=kind, place=place, first_seen=now)
            logger.critical("the books do not agree: %s: %s instead of %s", place, what, expected)
        row.expected, row.found = expected, what
        row.save()
    for key, row in there.items():
        if key not in held:
            row.gone_at = now
            row.save()
            logger.warning("the books agree again: %s", row.place)
    AuditFinding.objects.filter(gone_at__lt=now - KEPT).delete()
    return AuditFinding.objects.filter(gone_at=None).count()


# --- what has changed ------------------------------------------------------------------------------------------------


def _moved(run: Run, table: str) -> bool:
    """Whether rows of `table` were changed since the last run, or may have been."""
    return table not in run.before or run.before[table][1:] != run.seen[table][1:]


def _touched(run: Run) -> Iterator[Found]:
    """The ledger, its blocks, credits and the audit log are only ever added to."""
    for table in GROWING:
        old, new = run.before.get(table), run.seen[table]
        if old and old[2:] == new[2:] and old[1] != new[1]:
            yield Found(
                FindingKind.TOUCHED,
                table,
                f"{old[1]:,} rows changed, ever",
                f"{new[1]:,}, since the last audit",
            )
        elif old and old[2] != new[2]:
            yield Found(FindingKind.TOUCHED, table, "the same file", "another one: emptied or rewritten")


# --- usage and ledger ------------------------------------------------------------------------------------------------


def _generations(run: Run) -> Iterator[Found]:
    cursor, state = run.cursor, run.state
    recent = first_id(run.now - RECENT)
    ids = [UUID(row.place.split()[1]) for row in run.open_ones if row.kind == FindingKind.GENERATION]
    # Those that were not sealed yet last time: what was still being written then is among them.
    cursor.execute(OLD_NAMED, [state.get("sealed", 0), recent])
    ids += [id for (id,) in cursor.fetchall()]
    cursor.execute("select coalesce(max(last_id), 0) from billing_ledgerblock")
    (state["sealed"],) = cursor.fetchone()
    cursor.execute(AFTER_ALL, [run.kept])
    ids += [id for (id,) in cursor.fetchall()]
    yield from _compare(run, AMONG, ids=ids)
    # Whose clock is ahead has made ids of a time to come.
    yield from _compare(run, BETWEEN, start=recent, end=LAST)
    for start, end in _changed_ranges(run):
        yield from _compare(run, BETWEEN, start=start, end=end)
    start = max(UUID(state.get("turn", str(FIRST))), run.kept)
    cursor.execute("select id from billing_usage where id > %s order by id offset %s limit 1", [start, IN_TURN])
    row = cursor.fetchone()
    yield from _compare(run, BETWEEN, start=start, end=row[0] if row else LAST)
    state["turn"] = str(row[0] if row else FIRST)


def _changed_ranges(run: Run) -> Iterator[tuple[UUID, UUID]]:
    """The ids of the months in which rows were changed, a day at a time; of all of them, when nobody knows which."""
    cursor, before, seen = run.cursor, run.before, run.seen
    running = {f"billing_usage_{moment:%Y_%m}" for moment in (run.now - DAY, run.now + DAY)}
    usage = [table for table in seen if table.startswith("billing_usage")]
    changed = {
        table
        for table in usage
        if _moved(run, table)
        or (table not in running | {"billing_usage_default"} and before[table][0] != seen[table][0])
    }
    cursor.execute(ENDS)
    oldest, newest = cursor.fetchone()
    if oldest is None:
        return
    oldest = max(oldest, kept_since() or oldest)
    if _moved(run, "billing_ledgerentry"):
        changed.add("billing_usage_default")
    for table in sorted(changed):
        if table == "billing_usage_default":
            yield run.kept, first_id(_day(oldest))
            yield from _days(_day(oldest), _day(newest) + DAY)
            return
    for table in sorted(changed):
        start = datetime.strptime(table.removeprefix("billing_usage_"), "%Y_%m").replace(tzinfo=UTC)
        yield from _days(max(start, _day(oldest)), min((start + 32 * DAY).replace(day=1), _day(newest) + DAY))


def _day(moment: datetime) -> datetime:
    return EPOCH + (moment - EPOCH) // DAY * DAY


def _days(start: datetime, end: datetime) -> Iterator[tuple[UUID, UUID]]:
    while start < end:
        yield first_id(start), first_id(start + DAY)
        start += DAY


def _compare(run: Run, where: str, **bounds: Any) -> Iterator[Found]:
    statement = COMPARE
    for column in ("u.id", "l.generation"):
        statement = statement.replace("{where}", where.format(column), 1)
    run.cursor.execute(statement, {**bounds, "kept": run.kept, "most": MOST_FOUND})
    for id, organization, *amounts in run.cursor.fetchall():
        yield Found(
            FindingKind.GENERATION,
            f"generation {id.hex} of {organization}",
            _amounts(amounts[:6]),
            _amounts(amounts[6:]),
        )


def _amounts(values: list[Any]) -> str:
    """What a usage row, or its postings, come to."""
    if values[0] is None:
        return "nothing"
    return ", ".join(f"{name} {plain(value)}" for name, value in zip(AMOUNTS, values, strict=True))


# --- blocks and balances ---------------------------------------------------------------------------------------------


def _chain(run: Run) -> Iterator[Found]:
    cursor, state = run.cursor, run.state
    cursor.execute("select number, digest, last_id from billing_ledgerblock order by number desc limit 1")
    number, digest, last_id = cursor.fetchone() or (0, "", None)
    known, known_digest = state.get("head", [0, ""])
    cursor.execute("select digest from billing_ledgerblock where number = %s", [known])
    if known and cursor.fetchone() != (known_digest,):
        yield Found(FindingKind.BLOCK, f"block {known}", known_digest, "another digest, or no block")
    else:
        state["head"] = [number, digest]

    turn = state.get("block", 0)
    blocks = {int(row.place.split()[1]) for row in run.open_ones if row.kind == FindingKind.BLOCK}
    if any(_moved(run, table) for table in ("billing_ledgerentry", "billing_ledgerblock")):
        blocks.update(range(1, number + 1))
    else:
        blocks.update(range(known + 1, number + 1))
        blocks.update(range(turn + 1, turn + BLOCKS_IN_TURN + 1))
    state["block"] = turn + BLOCKS_IN_TURN if turn + BLOCKS_IN_TURN < number else 0
    wrong: list[int] = []
    for first, last in _runs(sorted(blocks)):
        wrong += wrong_blocks(first, last)
    for bad in wrong[:MOST_FOUND]:
        yield Found(FindingKind.BLOCK, f"block {bad}", "what was sealed", "something else")

    cursor.execute("select ran_at from billing_mark where name = 'sealing'")
    sealed_at = (cursor.fetchone() or (EPOCH,))[0]
    cursor.execute(
        "select exists (select from billing_ledgerentry where id > coalesce(%s, -9223372036854775808))", [last_id]
    )
    if sealed_at < run.now - UNSEALED and cursor.fetchone() == (True,):
        yield Found(
            FindingKind.SEALING, "the ledger", "sealed every minute", f"not since {sealed_at:%Y-%m-%d %H:%M:%S} UTC"
        )


def _log(run: Run) -> Iterator[Found]:
    """The audit log's chain: a few blocks in turn, those that are new, and those that do not hold."""
    cursor, state = run.cursor, run.state
    cursor.execute("select number, digest from accounts_auditblock order by number desc limit 1")
    number, digest = cursor.fetchone() or (0, "")
    known, known_digest = state.get("log_head", [0, ""])
    cursor.execute("select digest from accounts_auditblock where number = %s", [known])
    if known and cursor.fetchone() != (known_digest,):
        yield Found(FindingKind.TOUCHED, f"{LOG} {known}", known_digest, "another digest, or no block")
    else:
        state["log_head"] = [number, digest]
    turn = state.get("log_block", 0)
    blocks = {int(row.place.removeprefix(LOG)) for row in run.open_ones if row.place.startswith(LOG)}
    blocks.update(range(known + 1, number + 1), range(turn + 1, turn + BLOCKS_IN_TURN + 1))
    state["log_block"] = turn + BLOCKS_IN_TURN if turn + BLOCKS_IN_TURN < number else 0
    for first, last in _runs(sorted(blocks)):
        for bad in wrong_log_blocks(first, last):
            yield Found(FindingKind.TOUCHED, f"{LOG} {bad}", "what was sealed", "something else")


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Neighbours together, a few at a time."""
    start = 0
    for place, number in enumerate(numbers):
        last = place + 1 == len(numbers)
        if last or numbers[place + 1] != number + 1 or place + 1 - start == VERIFIED_AT_ONCE:
            yield numbers[start], number
            start = place + 1


def _totals(cursor: CursorWrapper) -> Iterator[Found]:
    cursor.execute(TOTALS)
    amount, entries, debit, credit, debits, credits = cursor.fetchone()
    if (amount, amount, entries, entries) != (debit, credit, debits, credits):
        yield Found(
            FindingKind.BALANCES,
            "all balances",
            f"{plain(amount)} in {entries} entries",
            f"debit {plain(debit)} in {debits}, credit {plain(credit)} in {credits}",
        )


def _closed(cursor: CursorWrapper) -> Iterator[Found]:
    """Nothing is posted to a closed month."""
    cursor.execute(CLOSED, {"most": MOST_FOUND})
    for month, organization, account, *sums in cursor.fetchall():
        kept, posted = (
            "nothing" if of[0] is None else f"debit {plain(of[0])} in {of[2]}, credit {plain(of[1])} in {of[3]}"
            for of in (sums[:4], sums[4:])
        )
        yield Found(FindingKind.CLOSED, f"{month:%Y-%m} of {organization}, {account}", kept, posted)


def _repriced(cursor: CursorWrapper) -> Iterator[Found]:
    """What re-pricing has posted is what its runs come to: usage + adjustments = ledger."""
    cursor.execute(REPRICED, {"most": MOST_FOUND})
    for month, organization, charge, cost, *posted in cursor.fetchall():
        yield Found(
            FindingKind.REPRICING,
            f"re-pricing in {month:%Y-%m} of {organization}",
            f"charge {plain(charge)}, cost {plain(cost)}",
            "charge {}, cost {}, revenue {}, providers {}".format(*map(plain, posted)),
        )


def _prepaid(run: Run) -> Iterator[Found]:
    """Balances are what their credits, the ledger and the charges come to."""
    known = [row.place for row in run.open_ones if row.kind == FindingKind.PREPAID]
    for wrong in wrong_balances(run.cursor, run.state.setdefault("prepaid", {}), known):
        yield Found(FindingKind.PREPAID, *wrong)


# --- rollups ---------------------------------------------------------------------------------------------------------


def _rollups(run: Run) -> Iterator[Found]:
    cursor, state = run.cursor, run.state
    cursor.execute("select until from billing_mark where name = 'usage'")
    until = (cursor.fetchone() or (EPOCH,))[0] - SETTLED_BY
    cursor.execute(DAYS, {"until": _day(until), "most": MOST_FOUND})
    for day, organization, *amounts in cursor.fetchall():
        yield _rollup(f"the ledger and {day} of {organization}", amounts)
    cursor.execute(HOURS, {"since": _day(run.now) - 34 * DAY, "most": MOST_FOUND})
    for day, organization, *amounts, model, provider in cursor.fetchall():
        yield _rollup(f"hours and {day} of {organization}, {model} at {provider}", amounts)

    cursor.execute("select until from billing_mark where name = 'spend'")
    spent = (cursor.fetchone() or (EPOCH,))[0]
    cursor.execute(SPENT, {"since": _day(run.now) - 34 * DAY, "until": _day(spent), "most": MOST_FOUND})
    for day, organization, *amounts, model, provider in cursor.fetchall():
        yield _rollup(f"keys and {day} of {organization}, {model} at {provider}", amounts)

    cursor.execute("select until from billing_mark where name = 'tags'")
    tagged = (cursor.fetchone() or (EPOCH,))[0]
    hours = {row.place.split()[1] for row in run.open_ones if row.place.startswith("hour ")}
    final = EPOCH + (until - EPOCH) // HOUR * HOUR - HOUR  # began so long ago that it no longer changes
    if final.isoformat() != state.get("hour") and final > EPOCH:
        state["hour"] = final.isoformat()
        hours.add(state["hour"])
    for hour in sorted(hours):
        start = datetime.fromisoformat(hour)
        ids = {"from_id": first_id(start - HOUR), "to_id": first_id(start + 2 * HOUR)}
        cursor.execute(HOUR_OF_USAGE, {"start": start, "end": start + HOUR, **ids, "most": MOST_FOUND})
        for organization, *amounts, model, provider in cursor.fetchall():
            yield _rollup(f"hour {hour} of {organization}, {model} at {provider}", amounts)
        if start + HOUR > tagged:
            continue
        cursor.execute(HOUR_OF_TAGS, {"start": start, "end": start + HOUR, **ids, "most": MOST_FOUND})
        for organization, *amounts, tag, model, provider in cursor.fetchall():
            yield _rollup(f"hour {hour} of {organization}, {model} at {provider}, {_by(tag)}", amounts)

    wrong = {row.place.split()[1] for row in run.open_ones if row.place.startswith("tags ")}
    days = {datetime.fromisoformat(day).replace(tzinfo=UTC) for day in wrong}
    turn = state.get("tagged", 0)
    state["tagged"] = turn + TAGGED_IN_TURN
    days |= {_day(spent) - (1 + (turn + more) % TAGGED_DAYS) * DAY for more in range(TAGGED_IN_TURN)}
    cursor.execute(TAGGED, {"days": sorted(days), "most": MOST_FOUND})
    for day, organization, *amounts, tag, key, model, provider in cursor.fetchall():
        yield _rollup(f"tags {day} of {organization}, {key}: {model} at {provider}, {_by(tag)}", amounts)


def _by(tag: str) -> str:
    return f"by tag {tag}" if tag else "by end user"


def _dropped(cursor: CursorWrapper) -> Iterator[Found]:
    """What is kept of dropped months is what their rows came to."""
    cursor.execute(DROPPED)
    rows, charge, cost, *kept = cursor.fetchone()
    if kept != [rows, charge, rows, charge, cost]:
        of = f"{plain(kept[1])} of {kept[0]} requests; by key {plain(kept[3])} and {plain(kept[4])} of {kept[2]}"
        yield Found(
            FindingKind.ROLLUP, "what is kept of dropped months", f"{plain(charge)} and {plain(cost)} of {rows}", of
        )


def _rollup(place: str, amounts: list[Any]) -> Found:
    expected, requests, found, counted = amounts
    return Found(FindingKind.ROLLUP, place, f"{plain(expected)} of {requests} requests", f"{plain(found)} of {counted}")
