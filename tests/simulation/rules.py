"""The rules that are compared: ours, the mean of the last ten, and two choices by peak-EWMA."""

import math
import random
from collections import deque
from collections.abc import Sequence
from uuid import UUID

from routing.catalog import Model
from routing.health.breaker import Rest
from routing.health.faults import Fault
from routing.health.health import Health
from routing.health.rests import News
from routing.health.retries import RetryBudget
from routing.health.trials import Trial
from routing.planning.plan import Wanted, plan
from routing.planning.policy import Policy, together
from routing.planning.prospect import prospect
from tests.routing.offers import make_offer, make_provider
from tests.routing.plans import NOW, make_model
from tests.simulation.world import Provider

MOST_ATTEMPTS = 3
LEAST_LATENCY = together([Policy(strategy="least_latency")])
FAILED_SECONDS = 30.0  # what a failure counts for in the plain rules, which know no breaker


class Ours:
    """What a gateway process does under `least_latency`, for so many tenants; 0: for whoever."""

    def __init__(
        self, providers: Sequence[Provider], seed: int, *, failure_threshold: int = 5, tenants: int = 0
    ) -> None:
        self._tenants: list[UUID | None] = [UUID(int=number) for number in range(tenants)] or [None]
        self.opened: list[float] = []  # when something began to rest
        self.health = Health(self._hear)
        self.retries = RetryBudget(0.0)
        self.offers = [
            make_offer(make_provider(slug=provider.name, failure_threshold=failure_threshold, cooldown=15.0))
            for provider in providers
        ]
        self._places = {offer.id: place for place, offer in enumerate(self.offers)}
        self._providers = providers
        self._models: dict[tuple[int, ...], Model] = {}
        self._random = random.Random(seed)

    def _hear(self, news: News, rest: Rest, now: float) -> None:
        if news is News.OPENED:
            self.opened.append(now)

    def request(self, now: float) -> None:
        """Counts it."""
        self.retries.request(now)

    def dial(self, now: float, tried: Sequence[int]) -> "OurDial | None":
        """The first of the order that has not been tried."""
        if len(tried) == MOST_ATTEMPTS or (tried and not self.retries.may_retry(now)):
            return None
        there = tuple(
            index for index, provider in enumerate(self._providers) if index not in tried and provider.there(now)
        )
        model = self._models.get(there)
        if model is None:
            model = self._models[there] = make_model(*(self.offers[index] for index in there))
        tenant = self._random.choice(self._tenants)
        wanted = Wanted(text_bytes=1000, output_cap=None, copies=1, max_price=None, now=NOW, clock=now, tenant=tenant)
        found = plan([prospect(model, LEAST_LATENCY)], wanted, self.health, self._random.getrandbits(32)).taken
        if not found:
            return None
        first = found[0]
        trial = self.health.begin(first.offer, first.credential, now, probe=first.probe, tenant=tenant)
        return OurDial(self._places[first.offer.id], trial)


class OurDial:
    """A trial."""

    def __init__(self, index: int, trial: Trial) -> None:
        self.index = index
        self._trial = trial
        self.first_token = trial.first_byte
        self.succeeded = trial.succeeded

    def failed(self, fault: Fault, now: float, retry_after: float | None) -> None:
        """Tells it."""
        self._trial.failed(fault, now, retry_after)


class Plain:
    """A rule that looks at whole answers alone; a failure counts as a slow one, and the next best is tried."""

    def __init__(self, providers: Sequence[Provider], seed: int) -> None:
        self.random = random.Random(seed)
        self.in_flight = [0] * len(providers)
        self._providers = providers

    def request(self, now: float) -> None:
        """Counts nothing."""

    def dial(self, now: float, tried: Sequence[int]) -> "PlainDial | None":
        """The rule's choice among those not tried yet."""
        left = [index for index, provider in enumerate(self._providers) if provider.there(now) and index not in tried]
        if not left or len(tried) == MOST_ATTEMPTS:
            return None
        index = self.choose(left, now)
        self.in_flight[index] += 1
        return PlainDial(self, index, now)

    def choose(self, left: Sequence[int], now: float) -> int:
        """Which of `left`."""
        raise NotImplementedError

    def observe(self, index: int, seconds: float, now: float) -> None:
        """An answer took so long."""
        raise NotImplementedError


class PlainDial:
    """A dial of a plain rule."""

    def __init__(self, rule: Plain, index: int, started: float) -> None:
        self.index = index
        self._rule = rule
        self._started = started

    def first_token(self, now: float) -> None:
        """Is not looked at."""

    def succeeded(self, now: float, tokens: int) -> None:
        """Its time counts."""
        self._end(now - self._started, now)

    def failed(self, fault: Fault, now: float, retry_after: float | None) -> None:
        """Counts as a slow answer."""
        self._end(FAILED_SECONDS, now)

    def _end(self, seconds: float, now: float) -> None:
        self._rule.in_flight[self.index] -= 1
        self._rule.observe(self.index, seconds, now)


class MeanOfTen(Plain):
    """The least mean of the last ten answers; one without any is tried first."""

    def __init__(self, providers: Sequence[Provider], seed: int) -> None:
        super().__init__(providers, seed)
        self._last: list[deque[float]] = [deque(maxlen=10) for _ in providers]

    def choose(self, left: Sequence[int], now: float) -> int:
        """The least mean."""
        return min(left, key=lambda index: sum(self._last[index]) / max(len(self._last[index]), 1))

    def observe(self, index: int, seconds: float, now: float) -> None:
        """One of ten."""
        self._last[index].append(seconds)


class PeakEwma(Plain):
    """Two at random, and of them the one with the least product of its average and its load. The average jumps up to
    a greater value at once and comes down in ten seconds.
    """

    def __init__(self, providers: Sequence[Provider], seed: int) -> None:
        super().__init__(providers, seed)
        self._average = [0.0] * len(providers)
        self._at = [0.0] * len(providers)

    def choose(self, left: Sequence[int], now: float) -> int:
        """The cheaper of two."""
        two = self.random.sample(left, min(2, len(left)))
        return min(two, key=lambda index: self._average[index] * (self.in_flight[index] + 1))

    def observe(self, index: int, seconds: float, now: float) -> None:
        """Moves the average."""
        weight = math.exp(-(now - self._at[index]) / 10.0)
        average = self._average[index]
        self._average[index] = seconds if seconds > average else average * weight + seconds * (1 - weight)
        self._at[index] = now
