"""What a key's requests do before they are held for: how many of them a minute end without a hold, and how many are
under way. So what is refused, or only reads, is limited as well, and costs no more than a look into a dictionary.

Counted in this process alone, on its clock. Requests that are held for are counted in PostgreSQL, exactly and for all
processes; these here are counted beside them, against the same limits of requests a minute of the key, its project and
its organization.
"""

import time
from math import ceil
from uuid import UUID

from accounts.callers import Caller
from gateway.process import telemetry
from gateway.process.snapshot import Bound, Snapshot
from gateway.wire.errors import RateLimited


class Arrival:
    """One request, from its key's being known until it is held for, or ends."""

    __slots__ = ("_arrivals", "_bounds", "_key")

    def __init__(self, arrivals: "Arrivals", key: bytes, bounds: tuple[Bound, ...]) -> None:
        self._arrivals: Arrivals | None = arrivals
        self._key = key
        self._bounds = bounds

    @property
    def is_held(self) -> bool:
        """Whether it is held for, or over."""
        return self._arrivals is None

    def held(self) -> None:
        """It is held for: others count it from now on."""
        if self._arrivals is not None:
            self._arrivals.left(self._key)
            self._arrivals = None

    def ended(self, ours: bool) -> None:
        """It is over. One that was not held for counts, unless its failure was `ours`."""
        if self._arrivals is not None:
            if self._bounds and not ours:
                self._arrivals.count(self._bounds)
            self.held()


class Arrivals:
    """The requests of a process that are not held for yet. `most` is how many of one key may be; 0: any number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way: dict[bytes, int] = {}
        self._minute = 0
        self._ended: dict[UUID, int] = {}  # in this minute, by subject; of those alone that have a limit

    def __len__(self) -> int:
        return sum(self._under_way.values())

    def enter(self, caller: Caller, snapshot: Snapshot) -> Arrival:
        """A request of `caller`. Raises `RateLimited` if its key has too many under way, or too many have ended without
        a hold in this minute.
        """
        key = caller.digest  # a UUID would be hashed anew each time
        under_way = self._under_way.get(key, 0)
        if self._most and under_way >= self._most:
            telemetry.turned_away.count("under_way")
            raise RateLimited(
                f"This key has {under_way} requests under way that have not been dialled yet. Send fewer at once.",
                code="too_many_requests_under_way",
                retry_after=1,
            )
        bounds = snapshot.bounds_of(caller)
        if bounds and self._ended:
            self._check(bounds)
        self._under_way[key] = under_way + 1
        return Arrival(self, key, bounds)

    def left(self, key: bytes) -> None:
        """One of the key's is under way no more."""
        left = self._under_way[key] - 1
        if left:
            self._under_way[key] = left
        else:
            del self._under_way[key]

    def count(self, bounds: tuple[Bound, ...]) -> None:
        """One has ended without a hold that these limits apply to."""
        self._turn()
        for bound in bounds:
            self._ended[bound.subject] = self._ended.get(bound.subject, 0) + 1

    def _check(self, bounds: tuple[Bound, ...]) -> None:
        left = self._turn()
        for bound in bounds:
            # At a limit of 0 the first one goes on: a hold says no in its own words, or lets it wait for room.
            if self._ended.get(bound.subject, 0) >= max(1, bound.limit):
                telemetry.turned_away.count("requests")
                raise RateLimited.reached(bound.whose, "requests", str(bound.limit), ceil(left))

    def _turn(self) -> float:
        """Begins anew with each minute; gives the seconds that are left of this one."""
        minute, seconds = divmod(time.time(), 60)
        if minute != self._minute:
            self._minute = int(minute)
            self._ended.clear()
        return 60 - seconds
