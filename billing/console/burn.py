"""How fast budgets are used up: what of each is spent in its running window, and what it will come to at that pace."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import NamedTuple

from django.db import connection
from django.db.models import QuerySet
from django.urls import reverse

from billing.alerts import NEAR
from billing.models import Budget, Period

MOST_BUDGETS = 2_000  # that are looked at, the highest first
# Of a window less has passed: what it will come to nobody can tell.
LEAST_SHARE = Decimal("0.05")

# Of each end user's budget the counter of whoever has spent most. The counters have one index for each of the two ways.
USED = """
select b.id, b.amount, b.hard, w.start, w.until, now(), coalesce(n.used, 0), coalesce(n.held, 0)
  from billing_budget b
 cross join lateral (
       select s.start, case when b.period <> 'total' then
              ((s.start at time zone b.time_zone) + ('1 ' || b.period)::interval) at time zone b.time_zone end as until
         from (select billing_window(b.period, now(), b.time_zone) as start) s) w
  left join lateral (
       (select c.used, c.held from billing_counter c
         where b.end_user <> '*' and c.subject = billing_scope(b.subject, b.model, nullif(b.end_user, ''))
           and c.measure = 'money' and c.period = b.period and c.period_start = w.start
         order by c.version desc limit 1)
       union all
       (select c.used, c.held from billing_counter c
         where b.end_user = '*' and c.owner = b.subject and c.period = b.period and c.period_start = w.start
           and c.end_user is not null and c.model = b.model
         order by c.used desc limit 1)) n on true
 where b.id = any(%s)
"""


@dataclass(frozen=True, slots=True)
class Burn:
    """A budget in its running window, from `start` (inclusive) until `until` (exclusive; None: for ever). Dollars.

    - `used` is settled, `held` kept for what is open
    - `comes_to`: at the pace so far, by the end; None: nobody can tell yet, or there is no end
    - `reached_at`: when all of it is spent, at that pace, if that is before the end
    """

    budget: Budget
    used: Decimal
    held: Decimal
    start: datetime
    until: datetime | None
    comes_to: Decimal | None
    reached_at: datetime | None

    @property
    def percent(self) -> Decimal:
        """How much of the amount is spent."""
        return share_of(self.used, self.budget.amount)

    @property
    def level(self) -> str:
        """over, near or far."""
        return "over" if self.percent >= 100 else "near" if self.percent >= NEAR else "far"

    @property
    def link(self) -> str:
        """Its page."""
        return reverse("admin:billing_budget_change", args=[self.budget.pk])

    @property
    def name(self) -> str:
        """Whose it is, of which calls, and how often it begins anew."""
        of = f"{self.budget.subject_name()}{self.budget.part()}"
        return f"{of}, {Period(self.budget.period).label.lower()}"


def forecast(
    used: Decimal, amount: Decimal, start: datetime, until: datetime | None, now: datetime
) -> tuple[Decimal | None, datetime | None]:
    """What a window will come to if it goes on as it began, and when it reaches `amount`, if before its end."""
    if until is None or not used:
        return None, None
    gone, whole = now - start, until - start
    share = Decimal(gone / whole)
    if share < LEAST_SHARE:
        return None, None
    comes_to = used / share
    if comes_to <= amount:
        return comes_to, None  # at its pace it is reached after the end, be it in a time that has no date
    reached = start + timedelta(seconds=float(Decimal(gone.total_seconds()) * amount / used))
    return comes_to, reached if now < reached < until else None


class Burning(NamedTuple):
    """Budgets, the most used up first; and how many there are of which `NEAR` percent are spent, and all, of hard and
    of soft ones.
    """

    shown: list[Burn]
    near: int = 0
    hard: int = 0
    soft: int = 0


def burning(budgets: QuerySet[Budget], most: int) -> Burning:
    """The `most` of `budgets` that are the most used up; of more than `MOST_BUDGETS` the highest are looked at."""
    looked_at = list(budgets.order_by("-amount", "pk").values_list("pk", flat=True)[:MOST_BUDGETS])
    if not looked_at:
        return Burning([])
    with connection.cursor() as cursor:
        cursor.execute(USED, [looked_at])
        rows = sorted(cursor.fetchall(), key=lambda row: (-share_of(row[6], row[1]), row[0]))
    percents = [(share_of(used, amount), hard) for _id, amount, hard, *_times, used, _held in rows]
    related = ("organization", "project__organization", "key__project__organization")
    found = Budget.objects.select_related(*related).in_bulk([row[0] for row in rows[:most]])
    burns = [
        Burn(found[id], used, held, start, until, *forecast(used, amount, start, until, now))
        for id, amount, _hard, start, until, now, used, held in rows[:most]
        if id in found  # not deleted meanwhile
    ]
    over = [hard for percent, hard in percents if percent >= 100]
    return Burning(burns, sum(NEAR <= percent < 100 for percent, _hard in percents), sum(over), len(over) - sum(over))


def share_of(used: Decimal, amount: Decimal) -> Decimal:
    """How many percent of a budget's amount are spent; of nothing, all."""
    return 100 * used / amount if amount else Decimal(100 if used else 0)
