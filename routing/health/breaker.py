"""When an offer or a credential rests, and for how long. Times are monotonic seconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from routing.health.faults import Blame, Fault, blame

LONGEST_REST = 300.0  # seconds
LONGEST_RETRY_AFTER = 60.0  # seconds; a provider may ask for more, and is tried again all the same
LEAST_RETRY_AFTER = 1.0
RATIO, LEAST_CALLS = 0.5, 20  # of failures, out of at least so many calls ...
WINDOW, SLICES = 30.0, 6  # ... in so many seconds, counted in slices
SLICE = WINDOW / SLICES
PROBE_SECONDS = 60.0  # after which a probe whose process died is given up for lost
MOST_TENANTS = 64  # that failures are counted of one by one; when more fail, it is not the tenants


class Subject(NamedTuple):
    """What rests: an offer, a credential wherever it is used, or the one with the other."""

    offer: int | None
    credential: UUID | None


@dataclass(slots=True)
class Rest:
    """A subject that is not used until `until`; then one request probes whether it may be used again.

    `count` is how many rests in a row this is. `unheard`: this process decided it, and has not heard it back yet.
    `tenant`: the organization whose requests alone it is for, since only theirs failed; None: it is for all.
    """

    subject: Subject
    cause: Fault
    since: float
    until: float
    count: int
    probed_until: float = 0.0  # a probe is out, here or in another process
    unheard: bool = False
    tenant: UUID | None = None

    @property
    def blame(self) -> Blame:
        """What the cause speaks against; that of an older version's 404 was a rejection."""
        found = blame(self.cause)
        return Blame.OFFER if found is Blame.NOBODY else found

    def holds_for(self, tenant: UUID | None) -> bool:
        """Whether a tenant's requests have to respect it."""
        return self.tenant is None or self.tenant == tenant


class Evidence(Enum):
    """What failures say against an offer."""

    NONE = 0
    OWN = 1  # it fails for the tenant whose request has just failed
    ALL = 2  # it fails


def weighed(failures: Mapping[UUID | None, int]) -> int:
    """How many of some failures count, by tenant: one tenant's for no more than those of all others together.

    What a single tenant provokes is therefore nothing. None stands for whoever is no tenant.
    """
    free = failures.get(None, 0)
    total = sum(failures.values()) - free
    most = max((count for tenant, count in failures.items() if tenant is not None), default=0)
    return free + min(total, 2 * (total - most) + free)


def rest_seconds(cooldown: float, count: int) -> float:
    """How long the `count`th rest in a row is (1 the first), of a provider with that `cooldown`."""
    return min(cooldown * 2.0 ** min(count - 1, 20), LONGEST_REST)


def cool_seconds(cooldown: float, retry_after: float | None) -> float:
    """How long a rate limit is respected: what the provider asks for (RFC 9110, 10.2.3), where that makes sense."""
    if retry_after is None or not 0 <= retry_after < float("inf"):
        return min(cooldown, LONGEST_REST)
    return min(max(retry_after, LEAST_RETRY_AFTER), LONGEST_RETRY_AFTER)


class Outcomes:
    """How an offer's calls ended lately."""

    __slots__ = ("_bad", "_bad_by", "_good", "_in_a_row", "_over_at", "_slice")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self._in_a_row: dict[UUID | None, int] = {}
        self._slice = -(1 << 60)
        self._over_at = -math.inf  # when the slice is over
        self._good = [0] * SLICES
        self._bad = [0] * SLICES
        self._bad_by: list[dict[UUID | None, int]] = [{} for _ in range(SLICES)]

    def forget(self, tenant: UUID) -> None:
        """Forgets the failures of one tenant's calls."""
        self._in_a_row.pop(tenant, None)
        for at, failures in enumerate(self._bad_by):
            self._bad[at] -= failures.pop(tenant, 0)

    def good(self, now: float) -> None:
        """A call ended well."""
        if now >= self._over_at:
            self._turn(now)
        if self._in_a_row:
            self._in_a_row = {}
        self._good[self._slice % SLICES] += 1

    def bad(self, now: float, threshold: int, tenant: UUID | None = None) -> Evidence:
        """A call of `tenant` failed; whether that is enough to rest, and for whom."""
        if now >= self._over_at:
            self._turn(now)
        at = self._slice % SLICES
        self._bad[at] += 1
        for failures in (self._in_a_row, self._bad_by[at]):
            who = tenant if tenant in failures or len(failures) < MOST_TENANTS else None
            failures[who] = failures.get(who, 0) + 1
        lately = self._lately()
        if self._enough(weighed(self._in_a_row), weighed(lately), threshold):
            return Evidence.ALL
        own = self._in_a_row.get(tenant, 0), lately.get(tenant, 0)
        return Evidence.OWN if self._enough(*own, threshold) else Evidence.NONE

    def _enough(self, in_a_row: int, bad: int, threshold: int) -> bool:
        calls = bad + sum(self._good)
        return in_a_row >= threshold or (calls >= LEAST_CALLS and bad >= RATIO * calls)

    def seen(self, now: float, tenant: UUID | None = None) -> tuple[int, int]:
        """How many ended well in the window, and how many failed, as far as that is evidence for `tenant`: one tenant's
        failures alone are none for the others.
        """
        if now >= self._over_at:
            self._turn(now)
        if not any(self._bad):
            return sum(self._good), 0
        lately = self._lately()
        return sum(self._good), max(weighed(lately), lately.get(tenant, 0))

    def failing(self, now: float) -> set[UUID]:
        """For whom more failures count than for others."""
        if now >= self._over_at:
            self._turn(now)
        lately = self._lately()
        counting = weighed(lately)
        return {tenant for tenant, count in lately.items() if tenant is not None and count > counting}

    def _lately(self) -> dict[UUID | None, int]:
        """How many failed in the window, by tenant."""
        lately: dict[UUID | None, int] = {}
        for failures in self._bad_by:
            for who, count in failures.items():
                lately[who] = lately.get(who, 0) + count
        return lately

    def _turn(self, now: float) -> None:
        slice = int(now // SLICE)
        for passed in range(max(self._slice + 1, slice - SLICES + 1), slice + 1):
            at = passed % SLICES
            self._good[at] = self._bad[at] = 0
            self._bad_by[at].clear()
        self._slice = slice
        self._over_at = (slice + 1) * SLICE
