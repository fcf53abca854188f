"""Feeding the reader of an answer without holding up the loop.

What is ordinary is read where it comes. A large event or body is decoded, checked and written again in a thread of its
own, so that the loop gets its turn between the steps: with 32 MiB they take a tenth of a second together. What has
to be kept of a large one until its end counts in the process's memory.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from gateway.process.memory import Share
from gateway.protocols.sides import Answer

ORDINARY = 64 * 1024  # Bytes; of the smallest events a reader takes some 20 ms for them.

_threads = ThreadPoolExecutor(2, "answers")

Result = TypeVar("Result")


def is_small(reader: Answer, data: bytes) -> bool:
    """Whether `reader` may take `data` at once, as nearly all pieces are: no coroutine is made for those."""
    return len(data) + reader.kept <= ORDINARY


async def feed(reader: Answer, data: bytes, memory: Share) -> list[bytes]:
    """`reader.feed`. Raises what it raises, and `NoRoom` where `memory` has none for what it would keep; then nothing
    was read.
    """
    kept = len(data) + reader.kept
    if kept <= ORDINARY:
        return reader.feed(data)
    if kept > memory.held and (reader.abandoned is None or reader.unread > ORDINARY):
        memory.take(max(kept - memory.held, ORDINARY))
    if len(data) + reader.unread <= ORDINARY:
        return reader.feed(data)
    return await _apart(partial(reader.feed, data))


async def end(reader: Answer) -> None:
    """`reader.end`. Raises what it raises."""
    if reader.unread <= ORDINARY:
        reader.end()
    else:
        await _apart(reader.end)


async def _apart(work: Callable[[], Result]) -> Result:
    done = asyncio.get_running_loop().run_in_executor(_threads, work)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        # Whoever settles now looks at the reader: not while a thread changes it.
        await asyncio.wait([done])
        if done.done() and not done.cancelled():
            done.exception()  # It is of no interest any more.
        raise
