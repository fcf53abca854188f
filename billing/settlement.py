"""Ending holds: what was used and what it costs, made durable before the last part of an answer goes out.

Settlement belongs to the process: `settle` queues at once and synchronously, so a client that leaves, or a cancelled
request, cannot stop it. Within half a second it is acknowledged by a commit or, while the database is away, by an
fsynced line in the spool; both paths are idempotent by the generation's id.
"""

import asyncio
import logging
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from billing.batches import Connections, DatabaseAway, GroupCommit
from billing.spool import Line, Spool

logger = logging.getLogger(__name__)

PATIENCE = 0.5  # seconds a commit may take before the spool stands in for it


class Try(msgspec.Struct):
    """One attempt as it ended; times UTC, durations milliseconds."""

    id: UUID
    generation: UUID
    number: int
    provider: str
    upstream_model: str
    started_at: datetime
    duration_ms: int | None = None
    ttft_ms: int | None = None
    status: str = "dialling"
    fault: str = ""
    upstream_status: int | None = None


class Settlement(msgspec.Struct):
    """One generation's end: the columns of `billing.models.Usage`, and what is needed without its hold."""

    id: UUID
    organization: UUID
    project: UUID
    key: UUID
    organization_slug: str
    project_slug: str
    key_name: str
    model: str
    provider: str
    upstream_model: str
    stream: bool
    end_user: str
    metadata: dict[str, str]
    created_at: datetime
    status: str
    basis: str
    settled_at: datetime
    counters: list[int]
    tries: list[Try]
    attempts: int
    upstream_id: str = ""
    error: str = ""
    finish_reason: str = ""
    native_finish_reason: str = ""
    ttft_ms: int | None = None
    duration_ms: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    audio_input_tokens: int = 0
    image_input_tokens: int = 0
    reasoning_tokens: int = 0
    audio_output_tokens: int = 0
    web_searches: int = 0
    suspect: bool = False
    tariff_version: int | None = None
    charge: Decimal | None = Decimal(0)
    provider_cost: Decimal | None = Decimal(0)
    overrun: Decimal = Decimal(0)
    arithmetic: list[dict[str, Any]] = []


class Settler:
    """The process's way to settlements."""

    def __init__(self, connections: Connections, spool: Spool) -> None:
        self._connections = connections
        self._spool = spool
        self._commits: GroupCommit[Line, None] = GroupCommit(self._commit)
        self._open: set[asyncio.Future[None]] = set()

    def settle(self, settlement: Settlement) -> "asyncio.Future[None]":
        """Queues a settlement; the future is done once it is durable. Fails with `SpoolFull` when nothing took it."""
        loop = asyncio.get_running_loop()
        line = msgspec.json.encode(settlement)
        durable: asyncio.Future[None] = loop.create_future()
        self._open.add(durable)
        durable.add_done_callback(self._open.discard)
        commit = self._commits.put(line)
        timer = loop.call_later(PATIENCE, self._stand_in, line, durable)

        def committed(future: "asyncio.Future[None]") -> None:
            error = future.exception()
            if error is None:
                timer.cancel()
                if not durable.done():
                    durable.set_result(None)
            elif not durable.done():
                timer.cancel()
                self._stand_in(line, durable)

        commit.add_done_callback(committed)
        return durable

    def _stand_in(self, line: Line, durable: "asyncio.Future[None]") -> None:
        """The spool acknowledges in the database's place."""
        if durable.done():
            return

        def spooled(future: "asyncio.Future[None]") -> None:
            if durable.done():
                return
            error = future.exception()
            if error is None:
                durable.set_result(None)
            else:
                durable.set_exception(error)
                durable.exception()

        self._spool.put(line).add_done_callback(spooled)

    async def _commit(self, lines: list[Line]) -> list[None]:
        items = b"[" + b",".join(lines) + b"]"
        await self._connections.call("select count(*) from billing_settle(%s::jsonb)", [items.decode()])
        return [None] * len(lines)

    async def drain_spool(self) -> int:
        """Sends what the spools hold, this process's and dead ones'. Raises `DatabaseAway`. Returns how many.

        A line the database refuses for itself is moved to `refused.jsonl` beside the spools, for an operator.
        """

        async def send(lines: list[Line]) -> None:
            results = await asyncio.gather(*map(self._commits.put, lines), return_exceptions=True)
            for line, result in zip(lines, results, strict=True):
                if isinstance(result, DatabaseAway):
                    raise result
                if isinstance(result, BaseException):
                    logger.critical("a spooled settlement was refused: %s", result)
                    with (self._spool.directory / "refused.jsonl").open("ab") as file:
                        file.write(line + b"\n")

        return await self._spool.drain(send)

    async def finish(self) -> None:
        """Returns when everything settled so far is durable, in the database or in the spool."""
        while self._open:
            await asyncio.wait(set(self._open))

