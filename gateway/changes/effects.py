"""What a change would have made of the last seven days: keys that it hits, money, refusals, other routes.

Each looks at so many generations at most, the newest, and says of how many it speaks. Nothing is written.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from accounts.models import ApiKey
from billing.ids import first_id
from billing.models import EACH, Budget, Limit, Measure, Period, Repricing, Span, SpendRollup, TariffVersion, Usage
from billing.pricing import Prices
from billing.repricing import READ, Look, rows_of
from routing.models import Level, Policy
from routing.replay.comparison import Comparison
from routing.replay.foresight import foresee
from routing.replay.replay import CHUNK, Traffic, replayed, routes

DAYS = timedelta(days=7)
MOST_PRICED = 5_000  # generations: pricing anew takes some 0.1 ms each
MOST_COUNTED = 20_000
MOST_REPLAYED = 1_000
ZERO = Decimal(0)


def of_price(version: TariffVersion, prices: Prices) -> dict[str, Any]:
    """What the tariff's usage was charged and cost, and would have been by `prices`, terms of organizations included.

    `version`: unsaved, of its tariff. Amounts are dollars.
    """
    now = timezone.now()
    run = Repricing(version=version, first=(now - DAYS).date(), until=(now + timedelta(days=1)).date())
    rows = list(rows_of(run).order_by("-id").only(*READ, "key")[:MOST_PRICED])
    look = Look(run, "", prices)
    look.at(rows)
    sums = look.sums.values()
    return {
        "keys": len({row.key for row in rows}),
        "generations": len(rows),
        "all": len(rows) < MOST_PRICED,
        "left": sum(one.left for one in sums),
        "charge": (sum((one.charge_before for one in sums), ZERO), sum((one.charge_after for one in sums), ZERO)),
        "cost": (sum((one.cost_before for one in sums), ZERO), sum((one.cost_after for one in sums), ZERO)),
    }


def of_limit(limit: Limit) -> dict[str, Any]:
    """How many of the subject's requests the limit alone would have refused, window by window, in their order."""
    rows = _rows(_of_subject(limit))
    return {**_counted(limit, rows), "refused": sum(_over_limit(limit, rows))}


def of_budget(budget: Budget) -> dict[str, Any]:
    """How many of the subject's requests found nothing left of the budget: what each came to, not what it held.

    Of a window that had begun before, what was spent is the days' sums; of an end user's it is not known, and nothing.
    """
    usage = _of_subject(budget)
    if budget.model:
        usage = usage.filter(model=budget.model)
    if budget.end_user not in ("", EACH):
        usage = usage.filter(end_user=budget.end_user)
    rows = _rows(usage)
    return {**_counted(budget, rows), "refused": sum(_over_budget(budget, rows)), "hard": budget.hard}


def of_policy(policy: Policy) -> dict[str, Any]:
    """How many requests would have gone elsewhere, and what that comes to: a replay of the first ones of those days."""
    now = timezone.now()
    project = policy.project or (policy.key.project if policy.key else None)
    model = policy.model.slug if policy.model else ""
    traffic = Traffic(now - DAYS, now, project=project.pk if project else None, model=model)
    steps = replayed(traffic, routes(policy.row()), foresee(now - DAYS, now, now))
    comparison = [Comparison(), *islice(steps, MOST_REPLAYED // CHUNK)][-1]
    keys = _alive()
    if policy.key:
        keys = keys.filter(pk=policy.key.pk)
    elif policy.project:
        keys = keys.filter(project=policy.project_id)
    return {
        "keys": keys.count(),
        "generations": comparison.looked_at,
        "all": comparison.looked_at < MOST_REPLAYED,
        "moved": comparison.moved,
        "failed": comparison.predicted.failed,
        "charge": (comparison.recorded.charge, comparison.predicted.charge),
        "cost": (comparison.recorded.cost, comparison.predicted.cost),
        "model": policy.level == Level.MODEL,
    }


Row = tuple[datetime, datetime, int, Decimal, str]  # begun, settled, tokens, charge, end user


def _of_subject(subject: Limit | Budget) -> QuerySet[Usage]:
    whose = {"organization": subject.organization_id}
    if subject.key_id:
        whose = {"key": subject.key_id}
    elif subject.project_id:
        whose["project"] = subject.project_id
    return Usage.objects.filter(pk__gte=first_id(timezone.now() - DAYS), **whose)


def _rows(usage: QuerySet[Usage]) -> list[Row]:
    """The newest, oldest first."""
    columns = ("created_at", "settled_at", "prompt_tokens", "completion_tokens", "charge", "end_user")
    newest = usage.order_by("-pk").values_list(*columns)[:MOST_COUNTED]
    return [(at, end, read + wrote, charge or ZERO, user) for at, end, read, wrote, charge, user in reversed(newest)]


def _counted(subject: Limit | Budget, rows: list[Row]) -> dict[str, Any]:
    keys = _alive()
    if subject.key_id:
        keys = keys.filter(pk=subject.key_id)
    elif subject.project_id:
        keys = keys.filter(project=subject.project_id)
    else:
        keys = keys.filter(project__organization=subject.organization_id)
    return {"keys": keys.count(), "generations": len(rows), "all": len(rows) < MOST_COUNTED}


def _alive() -> QuerySet[ApiKey]:
    lives = Q(expires_at=None) | Q(expires_at__gt=Now())
    return ApiKey.objects.filter(lives, revoked_at=None, project__active=True, project__organization__active=True)


def _over_limit(limit: Limit, rows: list[Row]) -> Iterator[bool]:
    if limit.measure == Measure.OPEN:
        ends: list[datetime] = []
        for at, end, *_rest in rows:
            while ends and ends[0] <= at:
                heapq.heappop(ends)
            over = len(ends) >= limit.value
            if not over:
                heapq.heappush(ends, end)
            yield over
        return
    used: defaultdict[datetime, int] = defaultdict(int)
    for at, _end, tokens, *_rest in rows:
        minute = at.replace(second=0, microsecond=0)
        more = tokens if limit.measure == Measure.TOKENS else 1
        over = used[minute] + more > limit.value
        if not over:
            used[minute] += more
        yield over


def _over_budget(budget: Budget, rows: list[Row]) -> Iterator[bool]:
    zone = ZoneInfo(budget.organization.time_zone)
    window = _WINDOWS[Period(budget.period)]
    spent: dict[tuple[Hashable, str], Decimal] = {}
    for at, _end, _tokens, charge, user in rows:
        began = window(at.astimezone(zone))
        place = (began, user if budget.end_user == EACH else "")
        if place not in spent:
            spent[place] = ZERO if budget.end_user else _spent_before(budget, began, rows[0][0])
        over = spent[place] >= budget.amount
        if not over:
            spent[place] += charge
        yield over


def _spent_before(budget: Budget, began: datetime | None, first: datetime) -> Decimal:
    """By the sums of days, from the window's first to the day before that of the first row."""
    found = SpendRollup.objects.filter(
        span=Span.DAY,
        organization=budget.organization_id,
        starts_at__lt=first.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0),
    )
    if began is not None:
        found = found.filter(starts_at__gte=began)
    if budget.key_id:
        found = found.filter(key=budget.key_id)
    elif budget.project_id:
        found = found.filter(project=budget.project_id)
    if budget.model:
        found = found.filter(model=budget.model)
    return found.aggregate(sum=Sum("charge"))["sum"] or ZERO


def _day(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


_WINDOWS: dict[Period, Callable[[datetime], datetime | None]] = {
    Period.DAY: _day,
    Period.WEEK: lambda at: _day(at) - timedelta(days=at.weekday()),
    Period.MONTH: lambda at: _day(at).replace(day=1),
    Period.TOTAL: lambda at: None,
}


def words(found: dict[str, Any]) -> Iterator[str]:
    """A change's effect in plain words, a sentence each, but for money."""
    if found["all"]:
        yield _("Of all %(generations)d generations of the last 7 days:") % found
    else:
        yield _("Of %(generations)d generations of the last 7 days, which is as many as are looked at:") % found
    yield ngettext("%(keys)d key is hit.", "%(keys)d keys are hit.", found["keys"]) % found
    if "refused" in found:
        if found.get("hard") is False:
            yield _("%(refused)d came after it was spent; it is soft, and refuses none.") % found
        else:
            yield _("%(refused)d would have been refused by this alone.") % found
    if "moved" in found:
        yield _("%(moved)d would have gone elsewhere, and %(failed)d would have failed.") % found
    if found.get("left"):
        yield _("%(left)d stay as they were charged.") % found


def moves(found: dict[str, Any]) -> list[tuple[str, Decimal, Decimal, Decimal]]:
    """The money in an effect: what, as it was, as it would be, the difference; in dollars."""
    labels = (("charge", _("Charged")), ("cost", _("Providers' cost")))
    return [(label, *found[name], found[name][1] - found[name][0]) for name, label in labels if name in found]
