"""How fast offers are: live averages that forget, what the statistics say, and who goes first by them.

A live figure is a mean in which what was seen lately weighs most, kept twice: a quick one that forgets in seconds and
a slow one that forgets in a minute. The greater counts, so an offer that slows down is left within seconds and one
that recovers is trusted slowly. It is a mean and not a median: a provider that is thirty times slower for one call in
five is a slow provider. Where there are few calls of our own the published statistics of all processes fill in, by how
many calls they rest on and how old they are.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Protocol
from uuid import UUID

SIZES = (1_000, 8_000, 32_000, 128_000)  # prompt tokens; each begins the next class
SIZE_CLASSES = len(SIZES) + 1
TYPICAL_OUTPUT = 200  # tokens of the answer by which offers are compared
QUICK, SLOW = 4.0, 20.0  # seconds in which a live figure forgets
MOMENT = 0.01  # seconds in which nothing is forgotten yet: so many calls may end in them
LEAST = 5.0  # calls a quick figure remembers whatever their age: fewer are noise
KNOWN = 10.0  # calls after which an offer is no longer new
PUBLISHED_WEIGHT, PUBLISHED_AGE = 20.0, 600.0  # calls the statistics count for at most; seconds in which they age
# An answer that came whole is split as if its offer had this shape until a stream tells better: seconds to the first
# token, and for each.
SHAPE = (0.5, 0.02)

NEAR = 1.05  # times the best: as good as the best, and traffic is shared
NEW_SHARE = 0.1  # of the requests go to each offer that is not known yet ...
MOST_NEW_SHARE = 0.5  # ... and no more to all of them
SECOND_LOOK = 0.02  # of the requests go to offers that are known to be slower, to see whether they still are


def size_class(prompt_tokens: int) -> int:
    """The class of a prompt: 0 below 1k tokens, then below 8k, 32k and 128k, 4 for more."""
    return bisect_right(SIZES, prompt_tokens)


@dataclass(frozen=True, slots=True)
class Published:
    """What the statistics of all processes say of an offer and a size class, as of `age` seconds ago.

    `ttft_ms` and `token_ms` are medians in milliseconds, to the first token and for each further one; `throughput` is
    tokens a second, `uptime` the share (0 to 1) of calls that did not fail by the offer's fault; None: unknown. One
    tenant's failures alone are no evidence for the others, `own` is theirs. `count` is the number of calls behind them.
    """

    model: str
    provider: str
    upstream_model: str
    size_class: int
    ttft_ms: float | None
    token_ms: float | None
    throughput: float | None
    uptime: float | None
    count: int
    age: float
    own: Mapping[UUID, float] = field(default_factory=dict)

    def weight(self, passed: float) -> float:
        """How many calls of our own they count for, `passed` seconds after they were learnt."""
        return min(self.count, PUBLISHED_WEIGHT) * exp(-(self.age + passed) / PUBLISHED_AGE)


class Decayed:
    """A mean that forgets, of seconds. Times are monotonic seconds."""

    __slots__ = ("at", "quick", "quick_weight", "slow", "slow_weight")

    def __init__(self) -> None:
        self.at = 0.0
        self.quick = self.quick_weight = self.slow = self.slow_weight = 0.0

    def observe(self, value: float, now: float) -> None:
        """Takes a measurement in."""
        passed, quick, slow = now - self.at, self.quick_weight, self.slow_weight
        if passed > MOMENT:
            self.at = now
            kept, least = quick * exp(-passed / QUICK), quick if quick < LEAST else LEAST
            quick = kept if kept > least else least
            slow *= exp(-passed / SLOW)
        self.quick_weight = quick = quick + 1
        self.quick += (value - self.quick) / quick
        self.slow_weight = slow = slow + 1
        self.slow += (value - self.slow) / slow

    def weight(self, now: float) -> float:
        """How many recent calls are behind it."""
        return self.slow_weight * exp(-max(0.0, now - self.at) / SLOW)

    def value(self) -> float:
        """The greater of the two means."""
        return self.quick if self.quick > self.slow else self.slow


class Timed(Protocol):
    """What the order by speed reads of a `routing.health.health.Standing`."""

    @property
    def seconds(self) -> float | None: ...
    @property
    def known(self) -> bool: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def uptime(self) -> float | None: ...
    @property
    def probes(self) -> bool: ...


def cost(standing: Timed) -> float:
    """Expected seconds, made dearer by failures: a failure costs the next offer's time and a retry of the budget.

    Unknown seconds are infinite, and an offer that waits for its one probe costs nothing: it is the next to be tried.
    """
    if standing.probes:
        return 0.0
    seconds, uptime = standing.seconds, standing.uptime
    if seconds is None:
        return math.inf
    return seconds if uptime is None or uptime == 1.0 else seconds / max(uptime, 0.1) ** 4


def fastest_first(standings: Sequence[Timed], rng: random.Random) -> list[int]:
    """The order in which to try `standings`, all of them usable: their indexes.

    Mostly the best by `cost`; of several that are as good as the best, the less busy of two taken at random. Each
    offer that is not known yet gets its share of the requests first, and now and then one that is known to be slower
    is tried again. An offer that may be probed goes before all.
    """
    costs = [cost(standing) for standing in standings]
    order = sorted(range(len(standings)), key=costs.__getitem__)
    if len(order) < 2 or standings[order[0]].probes:
        return order
    drawn = rng.random()
    known = [index for index in order if standings[index].known]
    if len(known) < len(order):
        new = [index for index in order if not standings[index].known]
        if not known or drawn < min(NEW_SHARE * len(new), MOST_NEW_SHARE):
            return _with_first(order, new[int(rng.random() * len(new))])
    near = 1
    limit = costs[known[0]] * NEAR
    while near < len(known) and costs[known[near]] <= limit:
        near += 1
    if drawn > 1 - SECOND_LOOK and near < len(known):
        return _with_first(order, known[near + int(rng.random() * (len(known) - near))])
    first = known[0]
    if near > 1:
        one = int(rng.random() * near)
        other = (one + 1 + int(rng.random() * (near - 1))) % near
        first = min(known[one], known[other], key=lambda index: (standings[index].in_flight + 1) * costs[index])
    return _with_first(order, first)


def _with_first(order: list[int], first: int) -> list[int]:
    if order[0] != first:
        order.remove(first)
        order.insert(0, first)
    return order
