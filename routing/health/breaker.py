"""When an offer or a credential rests, and for how long. Times are monotonic seconds."""

import math
from dataclasses import dataclass
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


class Subject(NamedTuple):
    """What rests: an offer, a credential wherever it is used, or the one with the other."""

    offer: int | None
    credential: UUID | None


@dataclass(slots=True)
class Rest:
    """A subject that is not used until `until`; then one request probes whether it may be used again.

    `count` is how many rests in a row this is. `unheard`: this process decided it, and has not heard it back yet.
    """

    subject: Subject
    cause: Fault
    since: float
    until: float
    count: int
    probed_until: float = 0.0  # a probe is out, here or in another process
    unheard: bool = False

    @property
    def blame(self) -> Blame:
        """What the cause speaks against; an offer that rests because of a 404 has the rejection as its cause."""
        found = blame(self.cause)
        return Blame.OFFER if found is Blame.NOBODY else found


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

    __slots__ = ("_bad", "_good", "_over_at", "_slice", "in_a_row")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self.in_a_row = 0
        self._slice = -(1 << 60)
        self._over_at = -math.inf  # when the slice is over
        self._good = [0] * SLICES
        self._bad = [0] * SLICES

    def good(self, now: float) -> None:
        """A call ended well."""
        if now >= self._over_at:
            self._turn(now)
        self.in_a_row = 0
        self._good[self._slice % SLICES] += 1

    def bad(self, now: float, threshold: int) -> bool:
        """A call failed; whether that is enough to rest."""
        if now >= self._over_at:
            self._turn(now)
        self.in_a_row += 1
        self._bad[self._slice % SLICES] += 1
        if self.in_a_row >= threshold:
            return True
        bad = sum(self._bad)
        calls = bad + sum(self._good)
        return calls >= LEAST_CALLS and bad >= RATIO * calls

    def seen(self, now: float) -> tuple[int, int]:
        """How many ended well, and how many failed, in the window."""
        if now >= self._over_at:
            self._turn(now)
        return sum(self._good), sum(self._bad)

    def _turn(self, now: float) -> None:
        slice = int(now // SLICE)
        for passed in range(max(self._slice + 1, slice - SLICES + 1), slice + 1):
            self._good[passed % SLICES] = self._bad[passed % SLICES] = 0
        self._slice = slice
        self._over_at = (slice + 1) * SLICE
