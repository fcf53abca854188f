"""What is measured of one offer."""

from typing import Generic, TypeVar
from uuid import UUID

from routing.catalog import Offer
from routing.health.breaker import Outcomes
from routing.health.latency import KNOWN, SHAPE, SIZE_CLASSES, Decayed, Published

REMEMBERED = 600.0  # seconds after which an offer that was not used is new again
WAITING = 3  # calls whose age says something
PRIOR = 5.0  # calls that went well, in place of statistics: one failure alone is not a bad offer

Cached = TypeVar("Cached")


class Pace:
    """The speed for one size class, and the calls that are waiting: how many, and the sum of their beginnings."""

    __slots__ = ("calls", "token", "total", "ttft", "waiting", "waiting_began", "whole", "whole_began")

    def __init__(self) -> None:
        self.calls = 0
        self.ttft, self.token, self.total = Decayed(), Decayed(), Decayed()
        self.waiting = self.whole = 0
        self.waiting_began = self.whole_began = 0.0


class Record(Generic[Cached]):
    """One offer's outcomes, load and speed.

    `standings`, by size class, are what was made of them last; whatever happens to the offer clears them. Those of a
    tenant for whom it is `failing`, and for the others not, are its own, by size class and tenant. Each holds until
    `fresh_until`.
    """

    __slots__ = (
        "failing", "fresh_until", "in_flight", "offer", "outcomes", "paces", "published", "recovered_at", "recovering",
        "standings",
    )  # fmt: skip

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.published: list[Published | None] | None = None
        self.outcomes = Outcomes()
        self.in_flight = 0
        self.paces: list[Pace] = [Pace() for _ in range(SIZE_CLASSES)]
        self.recovered_at = float("-inf")
        self.recovering = False
        self.standings: dict[int | tuple[int, UUID], Cached] = {}
        self.fresh_until: dict[int | tuple[int, UUID], float] = {}
        self.failing: frozenset[UUID] = frozenset()

    def recover(self, now: float) -> None:
        """It is back: its speed is to be learnt anew, and its failures are forgotten."""
        self.recovered_at = now
        self.recovering = True
        self.outcomes.clear()
        for pace in self.paces:
            pace.calls = 0
            pace.ttft, pace.token, pace.total = Decayed(), Decayed(), Decayed()
        self.standings.clear()

    def find_failing(self, now: float) -> None:
        """For whom it fails, and for the others not."""
        said = [published.own for published in self.published or () if published is not None and published.own]
        self.failing = frozenset(self.outcomes.failing(now).union(*said))

    def first_token(self, size_class: int, seconds: float, now: float) -> None:
        """A stream's first token came after `seconds`."""
        pace = self.paces[size_class]
        pace.ttft.observe(seconds, now)
        pace.calls += 1
        if pace.calls >= KNOWN:
            self.recovering = False

    def rest_of_stream(self, size_class: int, seconds: float, tokens: int, now: float) -> None:
        """A stream's further `tokens` took `seconds`."""
        self.paces[size_class].token.observe(seconds / tokens, now)

    def whole(self, size_class: int, seconds: float, tokens: int, now: float) -> None:
        """A whole answer of `tokens` took `seconds`: split in the shape the offer is known by.

        Without its tokens, as after a client that left, nothing is learnt of it.
        """
        if not tokens:
            return
        pace = self.paces[size_class]
        ttft = pace.ttft.value() if pace.ttft.slow_weight else SHAPE[0]
        token = pace.token.value() if pace.token.slow_weight else SHAPE[1]
        ratio = seconds / max(ttft + tokens * token, 1e-9)
        pace.token.observe(token * ratio, now)
        pace.total.observe(seconds, now)
        self.first_token(size_class, ttft * ratio, now)

    def pace(self, size_class: int, now: float, passed: float) -> tuple[float | None, float | None, bool]:
        """Seconds to the first token and for each further one, None: unknown; and whether that rests on enough calls.

        `passed` is how long ago the statistics were learnt.
        """
        pace = self.paces[size_class]
        published = self.published[size_class] if self.published else None
        weight = published.weight(passed) if published else 0.0
        ttft = _merged(pace.ttft, weight, published.ttft_ms if published else None, now)
        token = _merged(pace.token, weight, published.token_ms if published else None, now)
        if pace.waiting >= WAITING:
            # What has not come yet says how slow it is before it comes.
            age = now - pace.waiting_began / pace.waiting
            if age > (ttft or 0.0) and (ttft is not None or pace.waiting >= KNOWN):
                ttft = age
        if pace.whole >= WAITING and ttft is not None and pace.total.slow_weight:
            late = (now - pace.whole_began / pace.whole) / max(pace.total.value(), 1e-9)
            if late > 1:
                ttft, token = ttft * late, token and token * late
        known = pace.calls >= KNOWN and now - pace.ttft.at < REMEMBERED
        if not self.recovering:
            known = known or weight >= KNOWN
        return ttft, token, known

    def uptime(self, size_class: int, now: float, passed: float, tenant: UUID | None = None) -> float | None:
        """The share of calls that did not fail by its fault, as a tenant has evidence of; None: unknown."""
        good, bad = self.outcomes.seen(now, tenant)
        published = self.published[size_class] if self.published else None
        weight, said = PRIOR, 1.0
        if published is not None and published.uptime is not None:
            weight, said = max(PRIOR, published.weight(passed)), published.uptime
            if tenant is not None:
                said = published.own.get(tenant, said)
        elif not good + bad:
            return None
        return (good + weight * said) / (good + bad + weight)


def _merged(live: Decayed, weight: float, milliseconds: float | None, now: float) -> float | None:
    if milliseconds is None or not weight:
        return live.value() if live.slow_weight else None
    own = live.weight(now)
    return (own * live.value() + weight * milliseconds / 1000) / (own + weight)
