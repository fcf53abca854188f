"""Bodies that take long to parse are parsed in a process of their own, one after the other, in turn for each
organization (`gateway.wire.json_worker`).
"""

import asyncio
import logging
import marshal
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

from gateway.process.turns import Places
from gateway.wire.errors import Unavailable
from gateway.wire.json_worker import LENGTH, VALUE
from gateway.wire.strict_json import MAX_VALUES, BadJson

logger = logging.getLogger(__name__)

LIGHT_BYTES = 16 * 1024  # whatever such a body holds, it is parsed in a moment
MOST_BYTES, MOST_VALUES = 256 * 1024, 5_000  # and one of so many bytes, if it holds no more values
ROOT = Path(__file__).resolve().parents[2]


def is_light(body: bytes) -> bool:
    """Whether the event loop may parse a body: it takes 2 ms or so."""
    size = len(body)
    if size <= LIGHT_BYTES:
        return True
    return size <= MOST_BYTES and body.count(b",") + body.count(b"[") + body.count(b"{") <= MOST_VALUES


class Parser:
    """The way to that process, which is started when it is first needed."""

    def __init__(self) -> None:
        self._places = Places(1)
        self._worker: asyncio.subprocess.Process | None = None
        self._running: set[asyncio.Task[bytes]] = set()

    async def loads(self, organization: UUID, body: bytes, most_values: int = MAX_VALUES) -> Any:
        """`strict_json.loads` of a body of the organization's. Raises `BadJson`, or `Unavailable` without a worker."""
        async with self._places.place(organization):
            # What has begun is seen through when its client leaves: the next one's answer comes behind this one's.
            task = asyncio.get_running_loop().create_task(self._ask(body, most_values))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            try:
                said = await asyncio.shield(task)
            except asyncio.CancelledError:
                if not task.done():
                    await asyncio.wait([task])
                raise
        value = marshal.loads(memoryview(said)[1:])  # noqa: S302 - our own process wrote it
        if said[:1] != VALUE:
            raise BadJson(*value)
        return value

    async def close(self) -> None:
        """Ends the process."""
        if self._worker is not None:
            self._worker.kill()
            await self._worker.wait()

    async def _ask(self, body: bytes, most_values: int) -> bytes:
        head = len(body).to_bytes(LENGTH) + most_values.to_bytes(LENGTH)
        for _ in range(2):  # one that has died is replaced once
            try:
                if self._worker is None:
                    self._worker = await _start()
                incoming, outgoing = self._worker.stdout, self._worker.stdin
                assert incoming is not None and outgoing is not None
                outgoing.writelines([head, body])
                await outgoing.drain()
                length = await incoming.readexactly(LENGTH)
                return await incoming.readexactly(int.from_bytes(length))
            except (OSError, asyncio.IncompleteReadError) as error:
                logger.warning("the process that parses large bodies has ended: %r", error)
                self._worker = None
        raise Unavailable("The body cannot be read just now. Try again shortly.", retry_after=1)


async def _start() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway.wire.json_worker",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
    )
