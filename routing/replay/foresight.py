"""How fast and how reliable offers were in a span of time, from the rollups of all processes: what a replay goes by."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from routing.catalog import Offer
from routing.health.health import Health
from routing.health.latency import Published
from routing.models.statistics import OfferRollup
from routing.statistics.rollups import MINUTES_KEPT
from routing.statistics.sketches import merged, quantile

CLOCK = 0.0  # of the replay's health: nothing ages in it
STEPS = 200  # values that a distribution is drawn from
# Multiples of these, without their whole part, fill the range from 0 to 1 evenly and never in step with each other.
TTFT_STRIDE, TOKEN_STRIDE = 0.6180339887498949, 0.7548776662466927

Place = tuple[str, str]  # provider and what it calls the model


@dataclass(slots=True)
class Pace:
    """Values drawn from what one offer took: milliseconds to the first token, and for each further one."""

    ttft: list[float]
    token: list[float]
    drawn: int = 0

    def draw(self, tokens: int) -> tuple[float, float]:
        """Milliseconds to the first token and to the end of an answer of `tokens`."""
        self.drawn += 1
        ttft = self.ttft[int(self.drawn * TTFT_STRIDE % 1 * len(self.ttft))]
        token = self.token[int(self.drawn * TOKEN_STRIDE % 1 * len(self.token))] if self.token else 0.0
        return ttft, ttft + token * max(tokens - 1, 0)


@dataclass(slots=True)
class Foresight:
    """`health` knows what the span's statistics say; `pace` is by offer and size class, -1 for all sizes."""

    health: Health = field(default_factory=Health)
    paces: dict[tuple[Place, int], Pace] = field(default_factory=dict)

    def pace(self, offer: Offer, size_class: int) -> Pace | None:
        """The offer's pace with prompts of that size, else with any; None: it was not measured."""
        place = (offer.provider.slug, offer.upstream_model)
        return self.paces.get((place, size_class)) or self.paces.get((place, -1))


def foresee(start: datetime, end: datetime, now: datetime) -> Foresight:
    """What the rollups say of a time from `start` to `end`: by the minute where minutes are kept, else by the hour."""
    by_minute = start >= now - MINUTES_KEPT + timedelta(hours=1)
    span, first = ("minute", start.replace(second=0, microsecond=0))
    if not by_minute:
        span, first = "hour", start.replace(minute=0, second=0, microsecond=0)
    return learnt(OfferRollup.objects.filter(span=span, starts_at__gte=first, starts_at__lt=end).iterator())


def learnt(rollups: Iterable[OfferRollup]) -> Foresight:
    """Foresight from rollups."""
    sums: dict[tuple[Place, int], dict[str, int]] = {}
    sketches: dict[tuple[Place, int], tuple[dict[str, int], dict[str, int]]] = {}
    models: dict[Place, str] = {}
    for row in rollups:
        place = (row.provider, row.upstream_model)
        models[place] = row.model
        for size_class in (row.size_class, -1):
            at = (place, size_class)
            counts = sums.setdefault(at, dict.fromkeys(COUNTED, 0))
            for name in COUNTED:
                counts[name] += getattr(row, name)
            ttft, token = sketches.get(at, ({}, {}))
            sketches[at] = merged((ttft, row.ttft)), merged((token, row.token_time))
    found = Foresight()
    found.health.learn(
        [_published(models[at[0]], at, counts, *sketches[at]) for at, counts in sums.items() if at[1] >= 0], CLOCK
    )
    for at, (ttft, token) in sketches.items():
        if ttft:
            found.paces[at] = Pace(_values(ttft, 1.0), _values(token, 0.001))
    return found


COUNTED = ("attempts", "completed", "cancelled", "offer_faults", "client_faults", "output_tokens", "output_ms")


def _published(
    model: str, at: tuple[Place, int], counts: Mapping[str, int], ttft: Mapping[str, int], token: Mapping[str, int]
) -> Published:
    (provider, upstream_model), size_class = at
    judged = counts["completed"] + counts["offer_faults"]
    token_us = quantile(token, 0.5)
    return Published(
        model,
        provider,
        upstream_model,
        size_class,
        quantile(ttft, 0.5),
        None if token_us is None else token_us / 1000,
        1000 * counts["output_tokens"] / counts["output_ms"] if counts["output_ms"] else None,
        counts["completed"] / judged if judged else None,
        counts["attempts"] - counts["client_faults"] - counts["cancelled"],
        0.0,
    )


def _values(sketch: Mapping[str, int], scale: float) -> list[float]:
    """As many values as `STEPS`, spread as the sketch's are, times `scale`."""
    found = (quantile(sketch, (step + 0.5) / STEPS) for step in range(STEPS))
    return [value * scale for value in found if value is not None]
