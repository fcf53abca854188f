"""The console's page of one model: its use by day, and how fast and how reliable each provider of it is."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import F, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.utils import timezone

from accounts.console import is_operator
from billing.aggregates import Span
from billing.models import UsageRollup
from gateway.console.health_board import Figures, age, by_hour, figures, strip
from gateway.endpoints.statistics import FREE
from routing.models import ALL_SIZES, Model, OfferStatistics, Window
from routing.statistics.sketches import mean, quantile

DAYS = 30
HEIGHT = 120  # of the chart, in its own units


@dataclass(frozen=True, slots=True)
class Range:
    """The least, the greatest and the mean of what single calls took; None: unknown."""

    least: float | None
    greatest: float | None
    mean: float | None


@dataclass(frozen=True, slots=True)
class Seller:
    """A provider of the model, over the last 30 days and hour by hour over the last day."""

    slug: str
    figures: Figures
    hours: list[dict[str, Any]]

    @property
    def first_token(self) -> Range:
        """Milliseconds."""
        sketch = self.figures.ttft
        return Range(quantile(sketch, 0), quantile(sketch, 1), mean(sketch))

    @property
    def speed(self) -> Range:
        """Tokens a second. The mean is of all tokens together: a long answer weighs more than a short one."""
        slowest, quickest = quantile(self.figures.token_time, 1), quantile(self.figures.token_time, 0)
        return Range(
            1_000_000 / slowest if slowest else None, 1_000_000 / quickest if quickest else None,
            self.figures.throughput,
        )  # fmt: skip


def board(request: HttpRequest, model: int) -> HttpResponse:
    """GET: the page of the model with this key."""
    if not is_operator(request):
        raise PermissionDenied
    found = get_object_or_404(Model, pk=model)
    now = timezone.now()
    context = {
        **admin.site.each_context(request),
        "title": found.slug,
        "opts": Model._meta,
        "original": found,
        "model": found,
        "author": found.slug.partition("/")[0],
        "age": age(Window.MONTH, now),
        "days": _days(found, now),
        "sellers": _sellers(found, now),
        "height": HEIGHT,
    }
    return TemplateResponse(request, "admin/model_board.html", context)


def _sellers(model: Model, now: datetime) -> list[Seller]:
    """Those that sell it or have sold it, by slug."""
    rows: dict[str, list[OfferStatistics]] = {
        offer.provider.slug: [] for offer in model.offers.select_related("provider")
    }
    # The month is published less often than an hour or a day: until it is, they know more calls of what is new.
    fullest: dict[tuple[str, str], OfferStatistics] = {}
    for row in OfferStatistics.objects.filter(size_class=ALL_SIZES, model=model.slug).order_by("attempts"):
        fullest[row.provider, row.upstream_model] = row
    for (provider, _), row in fullest.items():
        rows.setdefault(provider, []).append(row)
    hours: dict[str, dict[datetime, list[Figures]]] = defaultdict(lambda: defaultdict(list))
    for (_, provider, _), found in by_hour(now, model=model.slug).items():
        for start, one in found.items():
            hours[provider][start].append(one)
    return [
        Seller(slug, figures(rows[slug]), strip({start: figures(ones) for start, ones in hours[slug].items()}, now))
        for slug in sorted(rows)
    ]


def _days(model: Model, now: datetime) -> list[dict[str, Any]]:
    """The tokens of each of the last 30 UTC days, its free variant's with them, as bars of a chart."""
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    first = today - timedelta(days=DAYS - 1)
    rows = UsageRollup.objects.filter(span=Span.DAY, starts_at__gte=first, model__in=(model.slug, model.slug + FREE))
    sums = dict(
        rows.values("starts_at").annotate(tokens=Sum(F("prompt_tokens") + F("completion_tokens")))
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
