"""The statistics of the caller's own organization: what it used over time, by model and author, and how fast it was.

Read from the usage by day (`billing/rollups.py`), which is a few minutes old; the running day counts so far. A free
variant of a model, `…-free`, counts as the model itself. Tokens are prompt and completion together, cost is dollars.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec
from django.http import HttpRequest

from accounts.models import Scope
from gateway.door.answers import Answer, json_answer
from gateway.door.view import ApiView
from gateway.endpoints.periods import DAY, Buckets, Days, buckets, choice, day, limit, past_days, span, today
from gateway.endpoints.read_limit import read
from gateway.process import process
from gateway.request.naming import reachable
from gateway.wire.errors import InvalidRequest
from gateway.wire.strict_json import number

FREE = "-free"
OTHERS, OTHERS_LABEL = "__others__", "Others"
USUAL_LIMIT, MOST_LIMIT = 10, 50
MOST_BUCKETS = 60
USUAL_BUCKETS = {"1d": 30, "1w": 12}
MOST_DAYS = 30
WIDTHS = ("1d", "1w")
USAGE_METRICS = {"tokens": "prompt_tokens + completion_tokens", "cost": "charge"}

# Growth is smoothed by so much use, so that ten tokens after none are no trend.
SMOOTHING = {"tokens": 1000.0, "cost": 0.01}

# {metric} is one of the expressions above.
BY_MODEL = r"""
select (date_trunc(%s, starts_at, 'UTC') at time zone 'UTC')::date, regexp_replace(model, '-free$', ''), sum({metric})
  from billing_usagerollup
 where organization = %s and span = 'day' and starts_at >= %s and starts_at < %s
 group by 1, 2
"""
FIRST_DAY = (
    "select (min(starts_at) at time zone 'UTC')::date from billing_usagerollup where organization = %s and span = 'day'"
)

Value = int | Decimal
Values = Mapping[str, Value]
Name = Callable[[str], str]


class StatisticsView(ApiView):
    """What the views share: whose, and what models are called."""

    scope = Scope.MANAGEMENT
    endpoint = "management"

    async def by_model(self, metric: str, days: Days, unit: str = "day") -> dict[date, dict[str, Value]]:
        """The metric by model, for each UTC day or week (its Monday) that has any."""
        found: dict[date, dict[str, Value]] = defaultdict(dict)
        query = BY_MODEL.format(metric=USAGE_METRICS[metric])
        for start, model, value in await read(
            self.caller, query, [unit, self.caller.organization, days.begin, days.end]
        ):
            found[start][model] = _exact(value, metric)
        return found

    async def first_day(self) -> date:
        """The first day of which anything is known; today if nothing is."""
        ((found,),) = await read(self.caller, FIRST_DAY, [self.caller.organization])
        return found or today()


class Timeseries(StatisticsView):
    """GET /v1/management/statistics/timeseries: tokens or cost by day or week, of the most used models and the rest.

    - `metric`: tokens or cost; `bucket_width`: 1d or 1w. Weeks begin on Monday: other days are moved back to theirs
    - `starting_at`, `ending_at`: UTC days, both inclusive; at most 60 buckets, by default the last 30 days or 12 weeks
    - `limit`: how many models are told apart, at most 50, by default 10; the rest is `__others__`
    """

    async def get(self, request: HttpRequest) -> Answer:
        """Every bucket of the span in order, each with its models, the most used one first."""
        return await _series(self, request, "models", "model", _same, label)


class MarketShare(StatisticsView):
    """GET /v1/management/statistics/market_share: as the time series, by the models' authors. Values are absolute."""

    async def get(self, request: HttpRequest) -> Answer:
        """Every bucket of the span in order, each with its authors, the most used one first."""
        return await _series(self, request, "authors", "author", _author, _same)


async def _series(
    view: StatisticsView, request: HttpRequest, plural: str, singular: str, group: Name, named: Name
) -> Answer:
    metric, wanted = choice(request, "metric", tuple(USAGE_METRICS)), buckets(request, USUAL_BUCKETS, MOST_BUCKETS)
    most = limit(request, USUAL_LIMIT, MOST_LIMIT)
    found = {
        start: _grouped(values, group)
        for start, values in (await view.by_model(metric, wanted.days, wanted.unit)).items()
    }
    top = {name for name, _ in _ranked(_summed(found.values()))[:most]}
    series = []
    for start in wanted:
        values = found.get(start, {})
        entries = [
            {singular: name, "label": named(name), "value": _number(value)}
            for name, value in _ranked({name: value for name, value in values.items() if name in top})
        ]
        rest = sum((value for name, value in values.items() if name not in top), start=_zero(metric))
        if rest:
            entries.append({singular: OTHERS, "label": OTHERS_LABEL, "value": _number(rest)})
        series.append({"period": wanted.period(start), "date": start.isoformat(), plural: entries})
    return _answer({"metric": metric, **_width(wanted), "total_buckets": len(wanted), "series": series})


class Leaderboard(StatisticsView):
    """GET /v1/management/statistics/leaderboard: the models by tokens or cost.

    - `metric`: tokens or cost
    - `starting_at`, `ending_at`: UTC days, both inclusive; by default from the organization's first day until today
    - `limit`: at most 50, by default 10; what all other models used has the rank after the last
    """

    async def get(self, request: HttpRequest) -> Answer:
        """The models, the most used one first."""
        metric = choice(request, "metric", tuple(USAGE_METRICS))
        most = limit(request, USUAL_LIMIT, MOST_LIMIT)
        last = day(request, "ending_at") or today()
        days = span(day(request, "starting_at") or min(await self.first_day(), last), last)
        ranked = _ranked(_summed((await self.by_model(metric, days, "year")).values()))
        entries = [_ranked_entry(rank, model, value) for rank, (model, value) in enumerate(ranked[:most], 1)]
        rest = sum((value for _, value in ranked[most:]), start=_zero(metric))
        if rest:
            others = {"author": OTHERS, "author_label": OTHERS_LABEL}
            entries.append({"rank": most + 1, "model": OTHERS, "label": OTHERS_LABEL, **others, "value": _number(rest)})
        return _answer({"metric": metric, **dates(days), "entries": entries})


class ModelUsage(StatisticsView):
    """GET /v1/management/statistics/model_usage: one model's tokens or cost by day.

    - `model`: its slug; one that was never used has no use
    - `metric`: tokens or cost
    - `starting_at`, `ending_at`: UTC days, both inclusive, at most 30, none in the future
    """

    async def get(self, request: HttpRequest) -> Answer:
        """The sum, and the days on which there was any."""
        name = request.GET.get("model", "")
        if not name:
            raise InvalidRequest("model is required.", param="model", code="invalid_value")
        metric, days = choice(request, "metric", tuple(USAGE_METRICS)), past_days(request, MOST_DAYS)
        model = name.removesuffix(FREE)
        found = await self.by_model(metric, days)
        snapshot = process.current().snapshots.current
        used = [(start, found[start][model]) for start in sorted(found) if model in found[start]]
        data = {
            "model": model,
            # Of what the project has not used it is told no more than what its key may use: that is no way to ask.
            "label": label(model) if used or reachable(snapshot, self.caller, model) else model,
            "metric": metric,
            **dates(days),
            "value": _number(sum((value for _, value in used), start=_zero(metric))),
            "series": [{"date": start.isoformat(), "value": _number(value)} for start, value in used],
        }
        return _answer(data)


class Trending(StatisticsView):
    """GET /v1/management/statistics/trending: the models whose use grows, by size and growth together.

    - `metric`: tokens or cost; `bucket_width`: 1d, a day and the one before, or 1w, seven days and the seven before
    - `ending_at`: the last UTC day; by default yesterday, the last whole one
    - `limit`: at most 50, by default 10

    The score is log(1 + value) x (value + a) / (previous value + a), with a = 1000 tokens or a cent; the growth rate is
    smoothed likewise.
    """

    async def get(self, request: HttpRequest) -> Answer:
        """The models that were used, the strongest trend first."""
        metric, width = choice(request, "metric", tuple(USAGE_METRICS)), choice(request, "bucket_width", WIDTHS)
        most = limit(request, USUAL_LIMIT, MOST_LIMIT)
        last = day(request, "ending_at") or today() - DAY
        length, points = (1, 7) if width == "1d" else (7, 14)
        days = Days(last - (points - 1) * DAY, last)
        found = await self.by_model(metric, days)
        shown = [days.first + place * DAY for place in range(points)]
        zero, alpha = _zero(metric), SMOOTHING[metric]
        trends = []
        for model, total in _summed(found.values()).items():
            values = [found.get(start, {}).get(model, zero) for start in shown]
            value = sum(values[-length:], start=zero)
            previous = sum(values[-2 * length : -length], start=zero)
            growth = (float(value) + alpha) / (float(previous) + alpha)
            if value:
                trends.append((math.log1p(value) * growth, model, total, value, previous, growth - 1, values))
        trends.sort(key=lambda trend: (-trend[0], trend[1]))
        entries = [
            {
                **_ranked_entry(rank, model, value),
                "icon_url": None,
                "total_value": _number(total),
                "previous_value": _number(previous),
                "growth_rate": round(growth, 4),
                "growth_label": f"{growth:+.1%}" if previous else "new",
                "data_points": [
                    {"period": f"{start:%Y%m%d}", "value": _number(point)}
                    for start, point in zip(shown, values, strict=True)
                ],
            }
            for rank, (_, model, total, value, previous, growth, values) in enumerate(trends[:most], 1)
        ]
        return _answer({"metric": metric, "bucket_width": width, "ending_at": last.isoformat(), "entries": entries})


# --- shapes ---------------------------------------------------------------------------------------------------------


def _same(name: str) -> str:
    return name


def _author(model: str) -> str:
    return model.partition("/")[0]


def label(model: str) -> str:
    """The model's name in the catalog; its slug when it is no longer there."""
    known = process.current().snapshots.current.catalog.by_name.get(model)
    return known.name if known else model


def _ranked_entry(rank: int, model: str, value: Value) -> dict[str, Any]:
    author = _author(model)
    return {
        "rank": rank,
        "model": model,
        "label": label(model),
        "author": author,
        "author_label": author,
        "value": _number(value),
    }


def _grouped(values: Values, group: Name) -> dict[str, Value]:
    return _summed({group(name): value} for name, value in values.items())


def _summed(all_values: Iterable[Values]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for values in all_values:
        for name, value in values.items():
            found[name] = found[name] + value if name in found else value
    return found


def _ranked(values: Values) -> list[tuple[str, Value]]:
    """The greatest first; equals by name. What is 0 has no place."""
    used = [(name, value) for name, value in values.items() if value]
    return sorted(used, key=lambda entry: (-entry[1], entry[0]))


def _exact(value: Decimal, metric: str) -> Value:
    return value if metric == "cost" else int(value)


def _zero(metric: str) -> Value:
    return Decimal(0) if metric == "cost" else 0


def _number(value: Value) -> msgspec.Raw | int:
    return value if isinstance(value, int) else number(value)


def dates(days: Days) -> dict[str, str]:
    """How an answer says which days it is about."""
    return {"starting_at": days.first.isoformat(), "ending_at": days.last.isoformat()}


def _width(wanted: Buckets) -> dict[str, str]:
    return {"bucket_width": "1w" if wanted.unit == "week" else "1d", **dates(Days(wanted.first, wanted.last))}


def _answer(data: dict[str, Any]) -> Answer:
    return json_answer({"success": True, "data": data})
