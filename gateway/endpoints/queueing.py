"""Waiting for room, for callers whose dialect queues what meets a limit where others are refused with 429."""

import asyncio
from collections.abc import AsyncGenerator

from gateway.process.process import Process
from gateway.relay import relay
from gateway.request.planning import Call
from gateway.wire.errors import RateLimited

PAUSE_SECONDS = 1.0  # room comes when a window ends, and whenever another request does
MOST_WAITING = 256  # in a process: each keeps its body in memory and asks once a pause


class Queue:
    """The calls of one process that wait."""

    def __init__(self) -> None:
        self._waiting = 0

    async def wait(self, process: Process, call: Call, refusal: RateLimited) -> tuple[bytes, AsyncGenerator[bytes]]:
        """Begins `call` anew, after its `refusal`, until there is room.

        Gives the first part of the answer, and the generator of the others, which the caller closes. Raises whatever
        `relay` does; the refusal once the dialect's patience is over, and at once when it has none.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + call.dialect.queue_seconds
        while clock() + PAUSE_SECONDS <= until and self._waiting < MOST_WAITING:
            self._waiting += 1
            try:
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                self._waiting -= 1
            # Refused before the hold: nothing of the call was written, so it may be made again as it is.
            parts = relay(process, call)
            try:
                return await anext(parts), parts
            except RateLimited as again:
                refusal = again
        raise refusal
