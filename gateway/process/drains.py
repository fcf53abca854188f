"""Answers whose clients have left, read on for what the provider counts: so many, so long, so many bytes.

Nothing runs here: such an answer goes on in the task that it began in, as if somebody still took its parts. What is
kept is the bound. Past it the call is given up, and its bill is an estimate.
"""

import asyncio
from collections import Counter
from typing import Any, Protocol
from uuid import UUID

from gateway.process import telemetry

BYTES_EACH = 8 << 20  # of an answer, once its client has left
BYTES_TOGETHER = 256 << 20  # of all that are open


class Drained(Protocol):
    """A call that can be read on."""

    @property
    def organization(self) -> UUID: ...

    def left(self) -> bool: ...

    def give_up(self) -> None: ...


class Drain:
    """One answer that is read on, from its client's leaving to its settlement, which must `close` it."""

    __slots__ = ("_bytes", "_call", "_drains", "_timer")

    def __init__(self, drains: "Drains", call: Drained, seconds: float | None) -> None:
        self._drains = drains
        self._call: Drained | None = call
        self._bytes = 0
        loop = asyncio.get_running_loop()
        self._timer = None if seconds is None else loop.call_later(seconds, call.give_up)

    def read(self, size: int) -> None:
        """So many more bytes have come. Gives the call up when they are too many."""
        self._bytes += size
        self._drains.bytes += size
        if self._call is not None and (self._bytes > BYTES_EACH or self._drains.bytes > BYTES_TOGETHER):
            self._call.give_up()

    def close(self, counted: bool) -> None:
        """It is settled; `counted`: by what the provider said."""
        if self._timer is not None:
            self._timer.cancel()
        call, self._call, self._timer = self._call, None, None  # the call has this: the way back would close a circle
        if call is not None:
            self._drains.end(call, self._bytes)
        telemetry.drained.count("counted" if counted else "estimated")


class Drains:
    """Those of a process. An organization has at most half of the places.

    `calls`: those that might be read on, by their tasks.
    """

    def __init__(self, most: int) -> None:
        self.bytes = 0
        self.calls: dict[asyncio.Task[Any], Drained] = {}
        self._most = most
        self._open: set[Drained] = set()
        self._shares: Counter[UUID] = Counter()
        self._over = False

    def left(self, task: "asyncio.Task[Any]") -> bool:
        """The client that `task` answers has left; whether the task is to go on all the same."""
        call = self.calls.get(task)
        return call is not None and call.left()

    def begin(self, call: Drained, seconds: float | None) -> Drain | None:
        """A place for a call, `seconds` long (None: as long as the provider may take); None: there is none."""
        share = self._shares[call.organization]
        if self._over or len(self._open) >= self._most or share >= max(1, self._most // 2):
            telemetry.drained.count("refused")
            return None
        self._open.add(call)
        self._shares[call.organization] = share + 1
        return Drain(self, call, seconds)

    def end(self, call: Drained, size: int) -> None:
        """Gives a place back, and the bytes that its call has read."""
        self._open.discard(call)
        self.bytes -= size
        self._shares[call.organization] -= 1
        if not self._shares[call.organization]:
            del self._shares[call.organization]

    def give_up(self) -> None:
        """The process is to stop: it reads on for nobody."""
        self._over = True
        for call in [*self._open]:
            call.give_up()

    def __len__(self) -> int:
        return len(self._open)
