"""Waiting for room, for callers whose dialect queues what meets a limit where others are refused with 429."""

import asyncio
from collections.abc import AsyncGenerator

from gateway.errors import RateLimited
from gateway.planning import Call
from gateway.process import Process
from gateway.relay import relay

PAUSE_SECONDS = 1.0  # room comes when a window ends, and whenever another request does
MOST_WAITING = 256  # in a process: each keeps its body in memory and asks once a pause


class Queue:
    """The calls of one process that wait."""

    def __init__(self) -> None:
        self._waiting = 0

    async def begin(self, process: Process, call: Call) -> tuple[bytes, AsyncGenerator[bytes]]:
        """The first part of the answer to `call`, and the generator of the others, which the caller closes.

        Raises whatever `relay` does; `RateLimited` once the dialect's patience is over, and at once when it has none.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + call.dialect.queue_seconds
        while True:
            parts = relay(process, call)
            try:
                return await anext(parts), parts
            except RateLimited:
                # Refused before the hold: nothing of the call is written, so it may be made again as it is.
                await parts.aclose()
                if clock() + PAUSE_SECONDS > until or self._waiting >= MOST_WAITING:
                    raise
            except BaseException:
                await parts.aclose()
                raise
            self._waiting += 1
            try:
                await asyncio.sleep(PAUSE_SECONDS)
            finally:
                self._waiting -= 1
