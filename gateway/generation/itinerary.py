"""Where a generation goes next: the plan's candidates in order, each with the credential that may be used by then.

A plan is made once; what happens while its dials take their time is asked of the health anew.
"""

from collections.abc import Sequence
from decimal import Decimal
from math import ceil
from uuid import UUID

from msgspec import Struct

from gateway.generation.continuation import goes_on
from gateway.process.ejections import Ejections
from gateway.wire.errors import UpstreamFault
from routing.catalog import Credential
from routing.health.breaker import Subject
from routing.health.faults import Fault
from routing.health.health import Standing, State
from routing.planning.plan import Candidate, Plan

# What another credential of the same provider may get past.
OF_THE_CREDENTIAL = frozenset({Fault.AUTH, Fault.EXHAUSTED, Fault.RATE_LIMITED})
INFINITE = Decimal("Infinity")
MOST_RETRY_AFTER = 60  # seconds; who waits longer had better ask again


class Stop(Struct):
    """A candidate, the credential to use, and the probes that were claimed for it and must be begun or released.

    `fresh`: it is to be dialled on a new connection, since a kept one has just ended before it answered.
    """

    candidate: Candidate
    credential: Credential | None
    claimed: Sequence[Subject] = ()
    fresh: bool = False


class Itinerary:
    """The way of one generation, of an organization's. Times are monotonic seconds."""

    __slots__ = ("_beyond", "_ejections", "_health", "_left", "_organization", "_plan", "_size_class", "_stops")

    def __init__(self, plan: Plan, ejections: Ejections, organization: UUID) -> None:
        self._plan = plan
        self._organization = organization
        self._ejections = ejections
        self._health = ejections.health
        self._size_class = plan.size_class
        self._left = list(plan.taken)
        self._beyond: list[Candidate] | None = None
        self._stops: list[Stop] = []

    async def first(self, now: float) -> Stop:
        """Where it begins: with the plan's first, unless somebody else took its probe a moment ago."""
        candidate = self._left[0]
        if candidate.probe:
            return await self._next_of(self._left, now) or self._go(self._left.pop(0), candidate.credential)
        del self._left[0]
        return self._go(candidate, candidate.credential)

    def renew(self) -> None:
        """The plan has changed: goes by what it says now, but for those that it has been to."""
        self._left = [one for one in self._plan.taken if not any(stop.candidate is one for stop in self._stops)]
        self._beyond = None

    async def after(self, candidate: Candidate, fault: UpstreamFault, now: float) -> Stop | None:
        """Where it goes when `candidate` failed; None: nowhere."""
        if fault.stale and (stop := await self._once_more(candidate, now)):
            return stop
        if fault.kind in OF_THE_CREDENTIAL and (stop := await self._with_another_credential(candidate, now)):
            return stop
        ways = self._left, self._affordable()
        if not fault.retryable:
            if fault.code != "context_length_exceeded":
                return None
            ways = (
                [way for way in ways[0] if _may_have_room(way, candidate)],
                [way for way in ways[1] if _may_have_room(way, candidate)],
            )
        return await self._next_of(ways[0], now) or await self._next_of(ways[1], now)

    async def to_continue(self, candidate: Candidate, now: float) -> Stop | None:
        """Where a stream that broke at `candidate` may be continued: at another offer of its model."""
        left = [other for other in self._left if other.model is candidate.model and goes_on(other)]
        return await self._next_of(left, now)

    def retry_after(self, now: float) -> int | None:
        """Whole seconds, at least 1, until the first candidate may be used again; None when none has to rest."""
        found = self._standings(self._plan.ordered(), now)
        if all(standing.state is State.USABLE for standing in found):
            return None
        waits = [standing.until - now if standing.state in _NOT_NOW else 0.0 for standing in found]
        return max(1, min(MOST_RETRY_AFTER, ceil(min(waits))))

    async def _once_more(self, candidate: Candidate, now: float) -> Stop | None:
        """The same candidate, once: what ended was a connection that had been kept, and says nothing of it."""
        if self._stops[-1].fresh:
            return None
        (standing,) = self._standings([candidate], now)
        stop = await self._stop(candidate, standing) if standing.state not in _NOT_NOW else None
        if stop is not None:
            stop.fresh = True
        return stop

    def _standings(self, candidates: Sequence[Candidate], now: float) -> list[Standing]:
        offers = [candidate.offer for candidate in candidates]
        account = self._plan.wanted.account
        return self._health.standings(offers, self._size_class, now, self._organization, account)

    async def _with_another_credential(self, candidate: Candidate, now: float) -> Stop | None:
        (standing,) = self._standings([candidate], now)
        credential = standing.credential
        used = any(stop.candidate is candidate and stop.credential is credential for stop in self._stops)
        if credential is None or used:
            return None
        return await self._stop(candidate, standing) if standing.state in _NOW else None

    async def _next_of(self, left: list[Candidate], now: float) -> Stop | None:
        """The first of `left` that may be used, else the first that rests with all others; None: none of these."""
        if not left:
            return None
        found = self._standings(left, now)
        for states in (_NOW, _AT_WORST):
            for candidate, standing in zip(left, found, strict=True):
                if standing.state in states and (stop := await self._stop(candidate, standing)):
                    for way in (self._left, self._beyond or []):
                        if candidate in way:
                            way.remove(candidate)
                    return stop
        return None

    async def _stop(self, candidate: Candidate, standing: Standing) -> Stop | None:
        """The stop at a candidate; None when somebody else, here or in another process, has its probe."""
        if standing.state is not State.PROBE:
            return self._go(candidate, standing.credential)
        claimed = await self._ejections.claim(candidate.offer, standing.credential, self._organization)
        return None if claimed is None else self._go(candidate, standing.credential, claimed)

    def _go(self, candidate: Candidate, credential: Credential | None, claimed: Sequence[Subject] = ()) -> Stop:
        stop = Stop(candidate, credential, claimed)
        self._stops.append(stop)
        return stop

    def _affordable(self) -> list[Candidate]:
        """Those past the plan's taken ones that cost no more at worst than these: the hold covers them."""
        if self._beyond is None:
            taken = self._plan.taken
            costs = [_at_worst(candidate) for candidate in taken]
            most = max(costs)
            self._beyond = [
                candidate for candidate in self._plan.ordered()[len(taken) :] if _at_worst(candidate) <= most
            ]
        return self._beyond


def _may_have_room(other: Candidate, candidate: Candidate) -> bool:
    """Whether a prompt that was too long for `candidate` may fit: another model, or a larger context of this one."""
    return other.model is not candidate.model or other.offer.context_length > candidate.offer.context_length > 0


def _at_worst(candidate: Candidate) -> Decimal:
    """Dollars; an unknown price is more than any known one."""
    money = candidate.worst.at(candidate.output_cap)
    return INFINITE if money is None else money


_NOW = (State.USABLE, State.PROBE)
_AT_WORST = (State.LAST,)
_NOT_NOW = (State.COOLING, State.RESTING)
