"""How fast the caller's own answers were, and how much of its prompts was cached: by model and provider."""

from collections import defaultdict
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

from django.http import HttpRequest

from gateway.door.answers import Answer, json_answer
from gateway.endpoints.periods import choice, past_days
from gateway.endpoints.read_limit import read
from gateway.endpoints.statistics import MOST_DAYS, StatisticsView, dates, label

MOST_MODELS = 10
API = "chat.completions"  # the only one that is served

QUERY = r"""
select regexp_replace(model, '-free$', '') as model, provider, sum(requests), sum(ttft_count), sum(ttft_ms),
       sum(output_tokens), sum(output_ms), sum(prompt_tokens), sum(cached_tokens)
  from billing_usagerollup
 where organization = %s and span = 'day' and starts_at >= %s and starts_at < %s
 group by 1, 2
"""


class Sums(NamedTuple):
    """What the metrics are made of; see `billing.models.UsageRollup`."""

    requests: Decimal
    ttft_count: Decimal
    ttft_ms: Decimal
    output_tokens: Decimal
    output_ms: Decimal
    prompt_tokens: Decimal
    cached_tokens: Decimal

    def __add__(self, other: "Sums") -> "Sums":  # type: ignore[override]  # sums are added, not put in a row
        return Sums(*(one + two for one, two in zip(self, other, strict=True)))


def _throughput(sums: Sums) -> float | None:
    return round(float(1000 * sums.output_tokens / sums.output_ms), 2) if sums.output_ms else None


def _ttft(sums: Sums) -> float | None:
    return round(float(sums.ttft_ms / sums.ttft_count), 1) if sums.ttft_count else None


def _cache_hit(sums: Sums) -> float | None:
    """Prompt tokens include those that were read from a cache and those that were written to it."""
    return round(float(sums.cached_tokens / sums.prompt_tokens), 4) if sums.prompt_tokens else None


# The metric, and whether the greatest is the best.
METRICS: dict[str, tuple[Callable[[Sums], float | None], bool]] = {
    "throughput": (_throughput, True),
    "ttft": (_ttft, False),
    "cache_hit": (_cache_hit, True),
}


class Performance(StatisticsView):
    """GET /v1/management/statistics/performance: the ten best models, each with its providers, the best one first.

    - `metric`: throughput (tokens a second, of completed answers), ttft (mean milliseconds to the first token of
      streamed ones) or cache_hit (the share of prompt tokens read from a cache, 0 to 1)
    - `starting_at`, `ending_at`: UTC days, both inclusive, at most 30, none in the future
    """

    async def get(self, request: HttpRequest) -> Answer:
        """The models of which the metric is known."""
        metric, days = choice(request, "metric", tuple(METRICS)), past_days(request, MOST_DAYS)
        measure, greatest = METRICS[metric]
        models: dict[str, dict[str, Sums]] = defaultdict(dict)
        for model, provider, *sums in await read(self.caller, QUERY, [self.caller.organization, days.begin, days.end]):
            models[model][provider] = Sums(*sums)
        whole = {model: _added(providers) for model, providers in models.items()}
        entries = []
        for rank, (model, value) in enumerate(_best(whole, measure, greatest)[:MOST_MODELS], 1):
            providers = [
                {"provider": slug, "label": slug, "value": value, "requests": int(models[model][slug].requests)}
                for slug, value in _best(models[model], measure, greatest)
            ]
            entry = {"rank": rank, "model": model, "label": label(model), "icon_url": None, "value": value}
            entries.append(entry | (_by_api(providers) if metric == "cache_hit" else {"providers": providers}))
        data = {"metric": metric, **dates(days), "entries": entries}
        return json_answer({"success": True, "data": data})


def _added(providers: dict[str, Sums]) -> Sums:
    first, *others = providers.values()
    for sums in others:
        first = first + sums
    return first


def _best(sums: dict[str, Sums], measure: Callable[[Sums], float | None], greatest: bool) -> list[tuple[str, float]]:
    known = [(name, value) for name, value in ((name, measure(one)) for name, one in sums.items()) if value is not None]
    return sorted(known, key=lambda entry: (-entry[1] if greatest else entry[1], entry[0]))


def _by_api(providers: list[dict[str, Any]]) -> dict[str, Any]:
    """Cache hits differ by the surface that a request came in by."""
    return {
        "top_provider": providers[0],
        "providers": {
            one["provider"]: {"label": one["label"], "apis": [{"api": API, "value": one["value"]}]} for one in providers
        },
    }
