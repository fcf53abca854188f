"""A provider's bill compared with the books, and what came of it written down.

A call of ours is one that was dialled and that somebody counted (`Basis`): what the provider did for one that nobody
counted is in no price of ours, so the bill's has no counterpart and shows as a missing call. Its day is that of its
usage row (UTC), its credential the one of its last attempt at the provider.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection, transaction
from django.utils.translation import gettext as _

from billing.bills.files import BadBill, Bill, Form, model_name, read
from billing.bills.gaps import Cell, Line, Side, compare
from billing.bills.reconciliations import Reconciliation, ReconciliationLine
from billing.ids import CLOCKS_APART, first_id
from billing.pricing import Line as Priced
from billing.pricing import Rate
from billing.retention import KeptTable, is_kept

MOST_CALLS = 1_000_000  # of ours that are compared one by one
ATTEMPTED = timedelta(hours=2)  # no attempt is made later after its call began
FROM = """
  from billing_usage u
  left join lateral (
      select a.upstream_model, a.credential from billing_attempt a
       where a.generation = u.id and a.provider = %(provider)s
         and a.id >= %(from_id)s and a.id < %(attempts_to)s
       order by a.number desc limit 1
  ) a on true
"""
WHERE = """
 where u.id >= %(from_id)s and u.id < %(to_id)s and u.created_at >= %(start)s and u.created_at < %(end)s
   and u.basis not in ('nothing', 'unknown')
"""
PLACE = """
(u.created_at at time zone 'UTC')::date, coalesce(a.upstream_model, u.upstream_model), a.credential,
case when %(calls)s then u.upstream_id else '' end
"""
# Of a stream that two providers answered each line names its own; else all are of the row's.
MINE = "coalesce(l->>'provider', u.provider) = %(provider)s"
CALLS = f"""
select {PLACE}, count(*) {FROM} {WHERE}
   and (u.provider = %(provider)s and not coalesce(u.arithmetic->0 ? 'provider', false)
        or exists (select from jsonb_array_elements(u.arithmetic) l where l->>'provider' = %(provider)s))
 group by 1, 2, 3, 4 limit {MOST_CALLS + 1}
"""  # noqa: S608 - constants of this module
LINES = f"""
select {PLACE}, l->>'item', l->>'cost', sum((l->>'quantity')::bigint)
  {FROM} cross join lateral jsonb_array_elements(u.arithmetic) l {WHERE} and {MINE}
   and (u.provider_cost is not null or l ? 'provider')
 group by 1, 2, 3, 4, 5, 6
"""
UNPRICED = f"""
select {PLACE}, l->>'item', sum((l->>'quantity')::bigint)
  {FROM} cross join lateral jsonb_array_elements(u.arithmetic) l {WHERE} and {MINE}
   and u.provider_cost is null and not l ? 'provider'
 group by 1, 2, 3, 4, 5
"""


def booked(
    provider: str, first: date, last: date, *, bill: Bill, form: Form, credentials: Mapping[UUID, str]
) -> dict[Cell, Side]:
    """What the books have of a provider for some days, both inclusive, cut into cells as the bill is.

    `credentials`: what each is called. Raises BadBill for more calls than are compared one by one.
    """
    start, end = datetime.combine(first, time(), UTC), datetime.combine(last + timedelta(days=1), time(), UTC)
    bounds: dict[str, Any] = {
        "provider": provider,
        "calls": bill.named_calls,
        "start": start,
        "end": end,
        "from_id": first_id(start - CLOCKS_APART),
        "to_id": first_id(end + CLOCKS_APART),
        "attempts_to": first_id(end + CLOCKS_APART + ATTEMPTED),
    }

    def cell(day: date, model: str, credential: UUID | None, call: str) -> Cell:
        called = model_name(form, model)
        if not bill.named_credentials or credential is None or (day, called) in bill.unnamed:
            return Cell(day, called, "", call)
        return Cell(day, called, credentials.get(credential, str(credential)), call)

    calls: dict[Cell, int] = {}
    counts: dict[Cell, dict[str, int]] = {}
    amounts: dict[Cell, dict[str, Decimal]] = {}
    with connection.cursor() as cursor:
        cursor.execute(CALLS, bounds)
        rows = cursor.fetchall()
        if len(rows) > MOST_CALLS:
            raise BadBill(
                _("There are more than %(most_calls)s calls of these days: compare fewer days at once.")
                % {"most_calls": f"{MOST_CALLS:,}"}
            )
        for *place, number in rows:
            calls[cell(*place)] = calls.get(cell(*place), 0) + number
        cursor.execute(LINES, bounds)
        for *place, item, rate, quantity in cursor.fetchall():
            at = counts.setdefault(cell(*place), {})
            at[item] = at.get(item, 0) + int(quantity)
            price = None if rate is None else Decimal(rate)
            amount = Priced(item, int(quantity), Rate(price, None)).amount(price) or Decimal(0)
            of = amounts.setdefault(cell(*place), {})
            of[item] = of.get(item, Decimal(0)) + amount
        cursor.execute(UNPRICED, bounds)
        for *place, item, quantity in cursor.fetchall():
            at = counts.setdefault(cell(*place), {})
            at[item] = at.get(item, 0) + int(quantity)
    found = {}
    for place, number in calls.items():
        of = amounts.get(place, {})
        found[place] = Side(number, counts.get(place, {}), sum(of.values(), Decimal(0)), of)
    return found


class Compared(NamedTuple):
    """What comes of a comparison, not written down yet."""

    made: Reconciliation
    lines: list[Line]


def compared(
    provider: str,
    form: Form,
    files: Sequence[tuple[str, bytes]],
    credentials: Mapping[UUID, str],
    by: str,
    days: tuple[date, date] | None = None,
) -> Compared:
    """Compares the bill in `files` with the books. Raises BadBill. Long, so in no transaction of the caller's.

    `credentials`: what the provider's are called, as its bill calls them. `days`: what was asked for, both inclusive;
    else from the first one to the last that the bill has.
    """
    bill = read(form, files)
    first, last = days or bill.days
    if days and not first <= bill.days[0] <= bill.days[1] <= last:
        raise BadBill(
            _("It has days beside those that were asked for: from %(first)s to %(last)s.")
            % {"first": bill.days[0], "last": bill.days[1]}
        )
    if not (is_kept(first) and is_kept(first, KeptTable.ATTEMPT)):
        raise BadBill(_("Not all usage and attempts of these days are kept any more."))
    books = booked(provider, first, last, bill=bill, form=form, credentials=credentials)
    lines = compare(bill.cells, books, bill.told)
    told = [f"{name[:200]} {hashlib.sha256(data).hexdigest()}" for name, data in files]
    made = Reconciliation(
        provider=provider,
        form=form.value,
        files="\n".join(told),
        first=first,
        last=last,
        made_by=by,
        billed=sum((line.billed.cost for line in lines), Decimal(0)),
        booked=sum((line.booked.cost for line in lines), Decimal(0)),
        missing=sum((line.gap.missing for line in lines), Decimal(0)),
        tokens=sum((line.gap.tokens for line in lines), Decimal(0)),
        price=sum((line.gap.price for line in lines), Decimal(0)),
    )
    return Compared(made, lines)


def keep(found: Compared) -> Reconciliation:
    """Writes it down, with its lines, all or nothing."""
    with transaction.atomic():
        found.made.save(force_insert=True)
        ReconciliationLine.objects.bulk_create([_row(found.made, line) for line in found.lines], batch_size=1000)
    return found.made


def reconcile(
    provider: str, form: Form, files: Sequence[tuple[str, bytes]], credentials: Mapping[UUID, str], by: str
) -> Reconciliation:
    """Compares an uploaded bill, and writes down what comes of it. Raises BadBill, with nothing kept."""
    return keep(compared(provider, form, files, credentials, by))


def _row(made: Reconciliation, line: Line) -> ReconciliationLine:
    return ReconciliationLine(
        reconciliation=made,
        day=line.cell.day,
        model=line.cell.model,
        credential=line.cell.credential,
        billed_calls=line.billed.calls,
        booked_calls=line.booked.calls or 0,
        billed_tokens=line.billed.tokens,
        booked_tokens=line.booked.tokens,
        billed=line.billed.cost,
        booked=line.booked.cost,
        missing=line.gap.missing,
        tokens=line.gap.tokens,
        price=line.gap.price,
    )
