"""Simulated providers, and the loop in virtual time that sends them requests."""

import heapq
import itertools
import random
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from routing.health.faults import Fault

TOKENS = 200  # of an answer, on average
SPREAD = 0.4  # standard deviation of the logarithm of every time


@dataclass
class Provider:
    """How a provider behaves. Times are seconds; each is a function of the moment where that matters.

    `slower` multiplies all its times, `slow_share` of its calls take 30 times as long, `down` says how its calls fail
    (after `failing_takes`), `limit` is how many calls a second it takes before it answers 429 with `Retry-After: 2`.
    """

    name: str
    ttft: float
    token: float
    slower: Callable[[float], float] = lambda now: 1.0
    slow_share: Callable[[float], float] = lambda now: 0.0
    down: Callable[[float], Fault | None] = lambda now: None
    failing_takes: float = 0.05
    limit: int | None = None
    there: Callable[[float], bool] = lambda now: True
    _second: int = field(default=-1, init=False)
    _in_second: int = field(default=0, init=False)

    @property
    def mean(self) -> float:
        """Seconds of a whole answer of the average length, when it is well."""
        return self.ttft + TOKENS * self.token

    def limited(self, now: float) -> bool:
        """Counts a call; whether it is one too many."""
        if self.limit is None:
            return False
        if int(now) != self._second:
            self._second, self._in_second = int(now), 0
        self._in_second += 1
        return self._in_second > self.limit


class Dial(Protocol):
    """What a rule learns of a dial it chose; `index` is the provider's."""

    index: int

    def first_token(self, now: float) -> None: ...
    def succeeded(self, now: float, tokens: int) -> None: ...
    def failed(self, fault: Fault, now: float, retry_after: float | None) -> None: ...


class Rule(Protocol):
    """Chooses where a request goes."""

    def request(self, now: float) -> None: ...
    def dial(self, now: float, tried: Sequence[int]) -> Dial | None:
        """The next dial of a request that `tried` these before; None: it gives up."""
        ...


@dataclass
class Log:
    """What happened: (when a request came, how long it took, or None when it failed) and (when, where) of dials."""

    requests: list[tuple[float, float | None]] = field(default_factory=list)
    dials: list[tuple[float, int]] = field(default_factory=list)
    failures: list[tuple[float, int]] = field(default_factory=list)

    def latencies(self, begin: float, end: float) -> list[float]:
        """Of the requests that came between and were answered."""
        return [took for at, took in self.requests if begin <= at < end and took is not None]

    def mean(self, begin: float, end: float) -> float:
        """The mean of `latencies`."""
        found = self.latencies(begin, end)
        return sum(found) / len(found)

    def quantile(self, share: float, begin: float, end: float) -> float:
        """A quantile of `latencies`."""
        found = sorted(self.latencies(begin, end))
        return found[int(share * (len(found) - 1))]

    def share(self, index: int, begin: float, end: float) -> float:
        """The share of a provider among the dials between."""
        found = [where for at, where in self.dials if begin <= at < end]
        return found.count(index) / len(found)

    def counts(self, begin: float, end: float) -> tuple[int, int]:
        """How many requests came, and how many dials were made, between."""
        requests, dials = (
            bisect_left(found, (end,)) - bisect_left(found, (begin,)) for found in (self.requests, self.dials)
        )
        return requests, dials


class World:
    """Providers under a steady stream of requests, routed by one rule. The same seed gives the same run."""

    def __init__(self, providers: Sequence[Provider], rule: Rule, seed: int) -> None:
        self.providers = providers
        self.log = Log()
        self._rule = rule
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()

    def run(self, seconds: float, a_second: float) -> Log:
        """Lets `a_second` requests come in the mean (Poisson) for so long, and all of them end."""
        now = 0.0
        while (now := now + self._random.expovariate(a_second)) < seconds:
            self._at(now, self._request)
        while self._events:
            at, _, what = heapq.heappop(self._events)
            what(at)
        return self.log

    def _at(self, when: float, what: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def _request(self, now: float) -> None:
        self._rule.request(now)
        number = len(self.log.requests)
        self.log.requests.append((now, None))
        self._dial(now, number, [])

    def _dial(self, now: float, number: int, tried: list[int]) -> None:
        dial = self._rule.dial(now, tried)
        if dial is None:
            return
        provider = self.providers[dial.index]
        self.log.dials.append((now, dial.index))
        fault = provider.down(now)
        if fault is not None or provider.limited(now):
            failed = fault or Fault.RATE_LIMITED
            retry_after = None if fault else 2.0

            def fail(at: float) -> None:
                self.log.failures.append((at, dial.index))
                dial.failed(failed, at, retry_after)
                self._dial(at, number, [*tried, dial.index])

            self._at(now + provider.failing_takes, fail)
            return
        factor = provider.slower(now) * (30.0 if self._random.random() < provider.slow_share(now) else 1.0)
        tokens = max(2, round(TOKENS * self._noise()))
        first = provider.ttft * factor * self._noise()
        rest = provider.token * tokens * factor * self._noise()

        def finish(at: float) -> None:
            dial.succeeded(at, tokens)
            came = self.log.requests[number][0]
            self.log.requests[number] = came, at - came

        self._at(now + first, dial.first_token)
        self._at(now + first + rest, finish)

    def _noise(self) -> float:
        """Around 1, with a mean of 1."""
        return self._random.lognormvariate(-SPREAD * SPREAD / 2, SPREAD)
