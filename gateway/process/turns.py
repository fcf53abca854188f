"""Work is taken in turn for each organization, so that one with much of it does not keep the others waiting."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from uuid import UUID

# A round of the event loop begins requests until it has lasted so long: most take a third of a millisecond until they
# wait for their hold, some two. The more begin together, the more share a commit.
ROUND_SECONDS = 0.01
A_ROUND = 16  # of those that wait are begun in one round


class Waiting:
    """Who waits. Of each organization the first comes next, one organization after the other."""

    def __init__(self) -> None:
        self._queues: dict[UUID, deque[asyncio.Future[None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def join(self, organization: UUID) -> "asyncio.Future[None]":
        """What to await; cancelled, it is passed over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(organization, deque()).append(future)
        return future

    def call(self) -> bool:
        """Lets the next one go on. False: nobody waits."""
        while self._queues:
            organization = next(iter(self._queues))
            queue = self._queues.pop(organization)
            future = queue.popleft()
            if queue:
                self._queues[organization] = queue  # behind the others
            if not future.done():
                future.set_result(None)
                return True
        return False


class Rounds:
    """The loop's rounds: in each requests begin for `ROUND_SECONDS`, of those that wait `A_ROUND`. Nobody waits while
    there is less to do. `clock` tells seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._waiting = Waiting()
        self._clock = clock
        self._begun = 0
        self._ends = 0.0  # when this round is over, once something has begun in it

    async def turn(self, organization: UUID) -> None:
        """Returns when it is the turn of a request of `organization`."""
        if self._waiting or (self._begun and self._clock() >= self._ends):
            await self._waiting.join(organization)
            return
        if not self._begun:
            self._ends = self._clock() + ROUND_SECONDS
            asyncio.get_running_loop().call_soon(self._next)
        self._begun += 1

    def _next(self) -> None:
        self._begun = 0
        while self._begun < A_ROUND and self._waiting.call():
            self._begun += 1
        if self._begun:
            self._ends = self._clock() + ROUND_SECONDS
            asyncio.get_running_loop().call_soon(self._next)


class Places:
    """So many places; who takes one gives it back."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting = Waiting()

    @asynccontextmanager
    async def place(self, organization: UUID) -> AsyncGenerator[None]:
        """Holds a place, once it is the organization's turn."""
        if self._free and not self._waiting:
            self._free -= 1
        else:
            called = self._waiting.join(organization)
            try:
                await called
            except asyncio.CancelledError:
                if called.done() and not called.cancelled():
                    self._give_back()
                raise
        try:
            yield
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if not self._waiting.call():
            self._free += 1
