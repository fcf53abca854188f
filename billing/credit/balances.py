"""Whether prepaid balances agree with their credits, the ledger and what was charged; for the auditor.

- What was granted is the sum of its credits, what is posted is each of them by kind, and the lots are what is left.
- What each credit has left is told once more from the movements alone (`billing/credit/lots.py`): of organizations with
  new ones, and of the others in turn.
- Of a balance that has ended all that was granted is used, and no credit has anything left.
- A counter's use is what was taken and expired, and what was charged since the organization is prepaid. How far the
  ledger's charges are ahead (of the time before) is remembered; where that moves, usage rows are added up.
"""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db.backends.utils import CursorWrapper

from accounts.exact import plain
from billing.credit.lots import Impossible, Move, remaining
from billing.ids import first_id

MOST_FOUND = 20
IN_TURN = 100  # organizations a run
# What begins as its organization becomes prepaid may or may not be of the balance: a request looks once, and a while
# before it is admitted.
BEGINNING = timedelta(seconds=3)

POSTED = """
with head as (select coalesce(max(last_id), -9223372036854775808) as id from billing_ledgerblock),
expected as (
    select k.organization_id as organization, s.account, sum(s.amount) as amount
      from billing_credit k
     cross join lateral (values ('prepaid-' || k.kind, k.amount), ('prepaid:' || k.organization_id, -k.amount))
           s(account, amount)
     group by 1, 2
), entries as (
    select organization, account, debit - credit as amount from billing_accountday where account like 'prepaid%%'
    union all
    select l.organization, s.account, s.amount
      from head, billing_ledgerentry l
     cross join lateral (values (l.debit, l.amount), (l.credit, -l.amount)) s(account, amount)
     where l.id > head.id and s.account like 'prepaid%%'
), posted as (
    select organization, account, sum(amount) as amount from entries group by 1, 2
)
select organization, account, coalesce(e.amount, 0), coalesce(p.amount, 0)
  from expected e full join posted p using (organization, account)
 where coalesce(e.amount, 0) <> coalesce(p.amount, 0)
 order by 1, 2 limit %(most)s
"""
# By organization: granted, as kept and as its credits say; when it became prepaid; the counter, and as it was when the
# lots were brought up; the lots; what was taken and expired; what the ledger has charged, ever.
KEPT = """
with head as (select coalesce(max(last_id), -9223372036854775808) as id from billing_ledgerblock),
moved as (
    select organization_id as organization, max(id) as last,
           coalesce(sum(amount) filter (where amount > 0 and kind <> 'expired'), 0) as granted,
           -coalesce(sum(amount) filter (where amount < 0 or kind = 'expired'), 0) as taken,
           -coalesce(sum(amount) filter (where kind = 'expired'), 0) as expired
      from billing_credit group by 1
), lots as (
    select organization, sum(remaining) as amount from billing_lot group by 1
), charged as (
    select d.organization, sum(d.debit - d.credit) as amount
      from billing_accountday d join billing_prepaid p on p.organization_id = d.organization
     where d.account = 'tenant:' || d.organization group by 1
), unsealed as (
    select l.organization, sum(case when l.debit = 'tenant:' || l.organization then l.amount
                                    when l.credit = 'tenant:' || l.organization then -l.amount end) as amount
      from head, billing_ledgerentry l where l.id > head.id group by 1
)
select coalesce(p.organization_id, m.organization), p.granted, coalesce(m.granted, 0), p.since, c.used, p.used,
       coalesce(t.amount, 0), coalesce(m.taken, 0), coalesce(m.expired, 0),
       coalesce(h.amount, 0) + coalesce(u.amount, 0), coalesce(m.last, 0), coalesce(p.carried, 0)
  from billing_prepaid p
  full join moved m on m.organization = p.organization_id
  left join lateral (
       select c.used from billing_counter c
        where c.subject = coalesce(p.organization_id, m.organization) and c.measure = 'money' and c.period = 'balance'
          and c.period_start = billing_window('balance', now())
        order by c.version desc limit 1) c on true
  left join lots t on t.organization = coalesce(p.organization_id, m.organization)
  left join charged h on h.organization = p.organization_id
  left join unsealed u on u.organization = p.organization_id
 order by 1
"""
# Of a month that is not kept the days' sums are, so of the day on which it became prepaid all or nothing.
CHARGED = """
select u.least + k.least, u.most + k.most
  from (select coalesce(sum(charge) filter (where created_at >= %(after)s), 0) as least,
               coalesce(sum(charge) filter (where created_at >= %(before)s), 0) as most
          from billing_usage where organization = %(organization)s and id >= %(first)s) u
 cross join (
       select coalesce(sum(charge) filter (where starts_at > %(after)s), 0) as least,
              coalesce(sum(charge) filter (where starts_at >= date_trunc('day', %(before)s, 'UTC')), 0) as most
         from billing_spendrollup where span = 'kept' and organization = %(organization)s) k
"""
MOVES = """
select id, kind not in ('top_up', 'adjustment'), amount, expires_at, of_id, used_before
  from billing_credit where organization_id = %s order by id
"""


class Wrong(NamedTuple):
    """One thing that does not agree."""

    place: str
    expected: str
    found: str


class _Account(NamedTuple):
    organization: UUID
    granted: Decimal | None
    given: Decimal
    since: Any
    used: Decimal | None
    kept: Decimal | None
    lots: Decimal
    taken: Decimal
    expired: Decimal
    charged: Decimal
    last: int
    carried: Decimal


def wrong_balances(cursor: CursorWrapper, state: dict[str, Any], known: Iterable[str]) -> Iterator[Wrong]:
    """What does not agree, in the caller's snapshot. `state` is remembered between runs, which each change it; `known`
    are the places of what did not agree before.
    """
    cursor.execute(POSTED, {"most": MOST_FOUND})
    for organization, account, expected, found in cursor.fetchall():
        yield Wrong(f"account {account} of {organization}", _plain(expected), _plain(found))
    cursor.execute(KEPT)
    accounts = [_Account(*row) for row in cursor.fetchall()]
    apart = state.setdefault("apart", {})
    for account in accounts:
        yield from _kept(account)
        if account.granted is not None and account.used is not None:
            yield from _charged(cursor, account, apart)
    turn = state.get("turn", "")
    again = {place.rpartition(" ")[2] for place in known}
    late = [account for account in accounts if str(account.organization) > turn][:IN_TURN]
    for account in accounts:
        if account in late or account.last > state.get("last", 0) or str(account.organization) in again:
            yield from _told_again(cursor, account)
    state["turn"] = str(late[-1].organization) if len(late) == IN_TURN else ""
    state["last"] = max((account.last for account in accounts), default=0)


def _kept(account: _Account) -> Iterator[Wrong]:
    place = f"balance of {account.organization}"
    if account.granted is None:  # it has ended, which it does when nothing is left
        if account.used is None or account.used < account.given or account.lots:
            yield Wrong(place, f"granted {_plain(account.given)}", "granted nothing")
        return
    if account.granted != account.given:
        yield Wrong(place, f"granted {_plain(account.given)}", f"granted {_plain(account.granted)}")
        return
    assert account.kept is not None  # of the same row
    if account.used is None or account.used < account.kept:
        yield Wrong(f"use of the {place}", f"{_plain(account.kept)} or more", _plain(account.used))
        return
    left = max(account.granted - account.kept, Decimal(0))
    if account.lots != left:
        yield Wrong(f"credits of the {place}", f"{_plain(left)} left", f"{_plain(account.lots)} left")
    # What was held before a credit expired may be spent a moment later.
    if account.used > account.granted + account.expired:
        yield Wrong(f"end of the {place}", f"at most {_plain(account.granted)} used", _plain(account.used))


def _charged(cursor: CursorWrapper, account: _Account, apart: dict[str, str]) -> Iterator[Wrong]:
    organization = str(account.organization)
    assert account.used is not None
    spent = account.used - account.taken - account.carried
    ahead = _plain(account.charged - spent)
    if apart.get(organization) == ahead:
        return
    cursor.execute(
        CHARGED,
        {
            "organization": account.organization,
            "before": account.since - BEGINNING,
            "after": account.since + BEGINNING,
            "first": first_id(account.since - timedelta(hours=1)),
        },
    )
    least, most = cursor.fetchone()
    if least <= spent <= most:
        apart[organization] = ahead
        return
    yield Wrong(f"use of the balance of {organization}", f"{_plain(most)} charged", f"{_plain(spent)} spent")


def _told_again(cursor: CursorWrapper, account: _Account) -> Iterator[Wrong]:
    cursor.execute(MOVES, [account.organization])
    moves = [Move(*row) for row in cursor.fetchall()]
    cursor.execute(
        "select credit_id, remaining from billing_lot where organization = %s and remaining > 0 order by 1",
        [account.organization],
    )
    found = _list(cursor.fetchall())
    try:
        used = account.used if account.kept is None else account.kept
        expected = _list(sorted(remaining(moves, used or Decimal(0)).items()))
    except Impossible as error:
        expected = f"nothing: {error}"
    if expected != found:
        yield Wrong(f"each credit of the balance of {account.organization}", expected, found)


def _list(lots: Iterable[tuple[int, Decimal]]) -> str:
    return ", ".join(f"credit {id}: {_plain(left)}" for id, left in lots) or "nothing left"


def _plain(value: Decimal | None) -> str:
    return "nothing" if value is None else plain(value)
