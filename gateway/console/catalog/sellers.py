"""How models do: how fast and how reliable each provider of one is, and how many tokens they had, by day."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, Sum

from billing.aggregates import Span
from billing.models import UsageRollup
from gateway.console.catalog.reader import Reader
from gateway.console.health_board import Figures, by_hour, figures, strip
from gateway.endpoints.statistics import FREE
from routing.models import ALL_SIZES, OfferStatistics, Window
from routing.statistics.sketches import Sketch, mean, quantile

DAYS = 30
HEIGHT = 120  # of the chart, in its own units


@dataclass(frozen=True, slots=True)
class Range:
    """What single calls took, or how fast they were; None: unknown. `most` of ten and of a hundred were no worse."""

    least: float | None
    greatest: float | None
    mean: float | None
    median: float | None
    nine_of_ten: float | None
    most: float | None


@dataclass(frozen=True, slots=True)
class Seller:
    """A provider of a model, over the last 30 days and hour by hour over the last day. Without a name: all of them."""

    slug: str
    figures: Figures
    hours: list[dict[str, Any]]

    @property
    def first_token(self) -> Range:
        """Milliseconds."""
        sketch = self.figures.ttft
        return Range(quantile(sketch, 0), quantile(sketch, 1), mean(sketch), *_quantiles(sketch))

    @property
    def speed(self) -> Range:
        """Tokens a second. The mean is of all tokens together: a long answer weighs more than a short one."""
        sketch = self.figures.token_time
        return Range(
            _rate(quantile(sketch, 1)), _rate(quantile(sketch, 0)), self.figures.throughput,
            *map(_rate, _quantiles(sketch)),
        )  # fmt: skip


def _quantiles(sketch: Sketch) -> tuple[float | None, float | None, float | None]:
    return quantile(sketch, 0.5), quantile(sketch, 0.9), quantile(sketch, 0.99)


def _rate(microseconds: float | None) -> float | None:
    return 1_000_000 / microseconds if microseconds else None


def sellers(model: str, providers: Iterable[str], now: datetime) -> list[Seller]:
    """Those that sell it or have sold it, by slug; `providers` are those that sell it now."""
    rows: dict[str, list[OfferStatistics]] = {slug: [] for slug in providers}
    # The month is published less often than an hour or a day: until it is, they know more calls of what is new.
    fullest: dict[tuple[str, str], OfferStatistics] = {}
    for row in OfferStatistics.objects.filter(size_class=ALL_SIZES, model=model).order_by("attempts"):
        fullest[row.provider, row.upstream_model] = row
    for (provider, _), row in fullest.items():
        rows.setdefault(provider, []).append(row)
    hours: dict[str, dict[datetime, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for (_, provider, _), found in by_hour(now, model=model).items():
        for start, one in found.items():
            hours[provider][start].append(one)
    return [
        Seller(slug, figures(rows[slug]), strip({start: figures(ones) for start, ones in hours[slug].items()}, now))
        for slug in sorted(rows)
    ]


def all_together(model: str, now: datetime) -> list[Seller]:
    """The same of all its providers as one, for who is not told who they are."""
    rows = OfferStatistics.objects.filter(size_class=ALL_SIZES, model=model, window=Window.MONTH)
    hours: dict[datetime, list[Figures]] = defaultdict(list)
    for found in by_hour(now, model=model).values():
        for start, one in found.items():
            hours[start].append(one)
    return [Seller("", figures(rows), strip({start: figures(ones) for start, ones in hours.items()}, now))]


def speeds(models: Iterable[str] | None = None) -> dict[str, Figures]:
    """How each model did in the last 30 days, all its providers together, by slug; None: of every one."""
    rows: dict[str, list[OfferStatistics]] = defaultdict(list)
    found = OfferStatistics.objects.filter(size_class=ALL_SIZES, window=Window.MONTH)
    for row in found if models is None else found.filter(model__in=list(models)):
        rows[row.model].append(row)
    return {model: figures(found) for model, found in rows.items()}


def tokens_a_day(reader: Reader, now: datetime, models: Iterable[str] | None = None) -> dict[str, int]:
    """How many tokens each model had a day, on the average of the last 30 UTC days, its free variant's with them.

    Of the reader's organization, of all for staff who read as none, and of nobody for who has not logged in.
    """
    rows = _used(reader, now)
    if rows is None:
        return {}
    if models is not None:
        rows = rows.filter(model__in=[name for slug in models for name in (slug, slug + FREE)])
    found: dict[str, int] = defaultdict(int)
    for model, tokens in rows.values_list("model").annotate(tokens=Sum(F("prompt_tokens") + F("completion_tokens"))):
        found[model.removesuffix(FREE)] += int(tokens)
    return {model: round(tokens / DAYS) for model, tokens in found.items()}


def days(model: str, reader: Reader, now: datetime) -> list[dict[str, Any]]:
    """The tokens of each of the last 30 UTC days, as bars of a chart, of whom `tokens_a_day` counts; none: empty."""
    rows = _used(reader, now)
    if rows is None:
        return []
    first = _first(now)
    sums = dict(
        rows.filter(model__in=(model, model + FREE))
        .values("starts_at").annotate(tokens=Sum(F("prompt_tokens") + F("completion_tokens")))
        .values_list("starts_at", "tokens")
    )  # fmt: skip
    most = max(sums.values(), default=0) or 1
    bars = []
    for place in range(DAYS):
        day = first + timedelta(days=place)
        tokens = int(sums.get(day, 0))
        height = max(1, round(HEIGHT * tokens / most)) if tokens else 0
        bars.append({"x": place * 20, "y": HEIGHT - height, "height": height, "day": day, "tokens": f"{tokens:,}"})
    return bars


def _used(reader: Reader, now: datetime) -> Any:
    """The days' rollups that the reader's sums are made of; None: none are theirs to see."""
    if reader.is_public:
        return None
    rows = UsageRollup.objects.filter(span=Span.DAY, starts_at__gte=_first(now))
    return rows if reader.organization is None else rows.filter(organization=reader.organization)


def _first(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=DAYS - 1)
