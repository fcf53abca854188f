"""The bytes that this process keeps for its callers: request bodies, files on their way, answers until
they are whole, answers nobody has read yet.

They have one budget (`MEMORY_BYTES`). An organization may hold its share of it: with one more than hold anything there
would be as many equal parts, so some is always left for who comes next. Of its share a key may hold three quarters.
What is small (`FREE_BYTES`) is not counted: connections are bounded elsewhere.
"""

from collections import Counter
from types import TracebackType
from typing import Self
from uuid import UUID

from django.conf import settings

from gateway.process import telemetry
from gateway.wire.errors import Unavailable

FREE_BYTES = 16 * 1024
RETRY_SECONDS = 2
NOBODY = UUID(int=0)  # holds what comes without a key: bodies of the console


class NoRoom(Unavailable):
    """What would have to be kept is more than is to be had just now."""


class Memory:
    """A budget of `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.held = 0
        self._by_organization: Counter[UUID] = Counter()
        self._by_key: Counter[UUID] = Counter()

    def has_room(self, organization: UUID, key: UUID, count: int) -> bool:
        """Whether so many bytes more are within the budget and the shares."""
        holders = len(self._by_organization) + (organization not in self._by_organization)
        share = self._most // (holders + 1)
        return (
            self.held + count <= self._most
            and self._by_organization[organization] + count <= share
            and self._by_key[key] + count <= share * 3 // 4
        )

    def change(self, organization: UUID, key: UUID, count: int) -> None:
        """Counts bytes that have come, or with a negative `count` gone."""
        self.held += count
        for counts, who in ((self._by_organization, organization), (self._by_key, key)):
            counts[who] += count
            if counts[who] <= 0:
                del counts[who]
        telemetry.buffered.set(self.held)


class Share:
    """What one request holds of a budget; given back at the end of a `with`, or by `free`."""

    __slots__ = ("_key", "_memory", "_organization", "held")

    def __init__(self, organization: UUID, key: UUID, memory: Memory | None = None) -> None:
        self._memory = memory or process_memory
        self._organization = organization
        self._key = key
        self.held = 0

    def take(self, count: int) -> None:
        """Holds so many bytes more. Raises `NoRoom` when that is more than is to be had just now."""
        if not self._memory.has_room(self._organization, self._key, count):
            telemetry.out_of_memory.inc()
            raise NoRoom(
                "The gateway holds as much of yours in memory as it can just now. Try again shortly.",
                code="out_of_memory",
                retry_after=RETRY_SECONDS,
            )
        self.keep(count)

    def keep(self, count: int) -> None:
        """Holds so many bytes that are there already."""
        self.held += count
        self._memory.change(self._organization, self._key, count)

    def free(self) -> None:
        """Holds nothing any more."""
        if self.held:
            self._memory.change(self._organization, self._key, -self.held)
            self.held = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.free()


process_memory = Memory(settings.MEMORY_BYTES)
