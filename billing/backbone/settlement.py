"""Ending holds: what was used and what it costs, made durable before the last part of an answer goes out.

Settlement belongs to the process: `settle` queues at once and synchronously, so a client that leaves, or a cancelled
request, cannot stop it. Within half a second it is acknowledged by a commit or, while the database is away, by an
fsynced line in the spool; both paths are idempotent by the generation's id.
"""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from billing.backbone.batches import GroupCommit
from billing.backbone.connections import Connections, DatabaseAway
from billing.backbone.spool import Gone, Line, Spool, SpoolFull, batches

logger = logging.getLogger(__name__)

PATIENCE = 0.5  # seconds a commit may take before the spool stands in for it
CONCLUDE = "select id, overrun from billing_conclude(%s::jsonb)"
CONCLUDE_KEPT = "select id, overrun from billing_conclude_kept(%s::jsonb)"
KEPT = b"}}"  # how a line ends that has an answer to keep, which is its last field; of others hardly any


class Try(msgspec.Struct, omit_defaults=True):
    """One attempt as it ended; times UTC, durations milliseconds."""

    id: str
    generation: str
    number: int
    provider: str
    upstream_model: str
    started_at: datetime
    duration_ms: int | None = None
    ttft_ms: int | None = None
    status: str = "dialling"
    fault: str = ""
    upstream_status: int | None = None
    model: str = ""
    credential: UUID | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    offset_ms: int | None = None
    connect_ms: int | None = None


class Kept(msgspec.Struct, frozen=True):
    """What is kept of an answer for whoever sends its request again: the claim's id, and sealed bytes.

    None: it is too much to keep.
    """

    id: UUID
    content: bytes | None


class Settlement(msgspec.Struct, omit_defaults=True):
    """One generation's end: the columns of `billing.models.Usage`, and what is needed without its hold.

    A line does not say what is as usual: it is a third shorter, and the database reads it in two thirds of the time.
    """

    id: str
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
    plan: dict[str, Any] | None = None  # not the last that a line has: see `KEPT`
    counters: list[int] = []
    tries: list[Try] = []
    attempts: int = 0
    app: str | None = None
    upstream_id: str = ""
    service_tier: str | None = None
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
    video_input_tokens: int = 0
    image_output_tokens: int = 0
    images: int = 0
    seconds: int = 0
    suspect: bool = False
    tariff_version: int | None = None
    charge: Decimal | None = Decimal(0)
    provider_cost: Decimal | None = Decimal(0)
    overrun: Decimal = Decimal(0)
    arithmetic: list[dict[str, Any]] = []
    request_id: str | None = None
    queue_ms: int | None = None
    hard: bool = False  # it was held on a hard budget, which bounds what is taken of its charge
    # Few have it, and the lines of the others do not name it. It stays the last: see `KEPT`.
    kept: Kept | msgspec.UnsetType = msgspec.UNSET


def encode(settlement: Settlement) -> Line:
    """A settlement as `billing_settle` takes it. What a provider wrote may hold what PostgreSQL's JSON cannot."""
    try:
        line = msgspec.json.encode(settlement)
        if line.find(rb"\u0000") < 0:
            return line
    except UnicodeEncodeError:  # half of a surrogate pair
        pass
    return msgspec.json.encode(_storable(msgspec.to_builtins(settlement, builtin_types=(datetime, Decimal))))


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_storable(name): _storable(inner) for name, inner in value.items()}
    return [_storable(inner) for inner in value] if isinstance(value, list) else value


class Ending:
    """A settlement on its way to where nothing can lose it: the tables or, when they take too long, the spool.

    To await it is to wait until it is there; raises `SpoolFull` when neither took it. Who waits may be cancelled: the
    settlement goes on. `commit` is its way to the tables, `over` is told once when it is durable or was refused.
    `overrun` is what of the charge of generation `id` no budget covered, as the tables found.
    """

    __slots__ = (
        *("_commit", "_is_over", "_over", "_spool", "_spooled", "_timer", "_waiting"),
        *("error", "id", "line", "overrun"),
    )

    def __init__(
        self, id: str, line: Line, commit: "asyncio.Future[None]", spool: Spool, over: Callable[["Ending"], None]
    ) -> None:
        self.id = id
        self.overrun = Decimal(0)
        self.line = line
        self.error: BaseException | None = None  # why nobody may rely on it
        self._commit = commit
        self._spool = spool
        self._spooled: asyncio.Future[None] | None = None
        self._over = over
        self._is_over = False
        self._waiting: list[asyncio.Future[None]] = []
        self._timer = commit.get_loop().call_later(PATIENCE, self._stand_in)
        commit.add_done_callback(self._committed)

    def __await__(self) -> Generator[Any, None, None]:
        if not self._is_over:
            waiter = self._commit.get_loop().create_future()
            self._waiting.append(waiter)
            yield from waiter
        if self.error is not None:
            raise self.error

    def _committed(self, commit: "asyncio.Future[None]") -> None:
        self._timer.cancel()
        if commit.exception() is None:
            self._end(None)
        elif self._spooled is None:
            self._stand_in()
        elif self._spooled.done():
            self._end(self._spooled.exception())

    def _stand_in(self) -> None:
        self._spooled = self._spool.put(self.line)
        self._spooled.add_done_callback(self._was_spooled)

    def _was_spooled(self, spooled: "asyncio.Future[None]") -> None:
        error = spooled.exception()
        if error is None or (self._commit.done() and self._commit.exception() is not None):
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._is_over:  # the other way was faster
            return
        self._is_over, self.error = True, error
        self._over(self)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)


class Settler:
    """The process's way to settlements. `settled` is told whose ends are in the tables."""

    def __init__(self, connections: Connections, spool: Spool, settled: Callable[[list[str]], None]) -> None:
        self._connections = connections
        self._spool = spool
        self._settled = settled
        self._commits: GroupCommit[Line, None] = GroupCommit(self._commit)
        self._open: set[Ending] = set()
        self._homeless: list[tuple[str, Line]] = []  # neither the database nor the disk has taken them yet

    def settle(self, settlement: Settlement) -> Ending:
        """Queues a settlement. One that neither the database nor the disk took is tried again."""
        return self._place(settlement.id, encode(settlement))

    async def warm(self) -> None:
        """Opens a connection and compiles the functions on it. Raises `DatabaseAway`."""
        await self._commit([])

    def _place(self, id: str, line: Line) -> Ending:
        ending = Ending(id, line, self._commits.put(line), self._spool, self._over)
        self._open.add(ending)
        return ending

    def _over(self, ending: Ending) -> None:
        self._open.discard(ending)
        if ending.error is not None:
            self._homeless.append((ending.id, ending.line))

    async def _commit(self, lines: list[Line]) -> list[None]:
        for some in batches(lines):
            await self._conclude(some)
        return [None] * len(lines)

    async def _conclude(self, lines: list[Line]) -> None:
        items = b"[" + b",".join(lines) + b"]"
        conclude = CONCLUDE_KEPT if any(line.endswith(KEPT) for line in lines) else CONCLUDE
        rows = await self._connections.run(conclude, [items.decode()])
        self._settled([id.hex for id, _ in rows])
        if overruns := {id.hex: overrun for id, overrun in rows if overrun}:
            for ending in self._open:
                ending.overrun = overruns.get(ending.id, ending.overrun)

    def try_again(self) -> None:
        """Places what neither the database nor the disk has taken."""
        homeless, self._homeless = self._homeless, []
        for id, line in homeless:
            self._place(id, line)

    async def drain_spool(self, gone: Gone | None = None) -> int:
        """Sends what the spools hold, this process's and dead ones', of whose leases `gone` is told.

        Raises `DatabaseAway`. Returns how many.
        """
        return await self._spool.drain(self._send, gone)

    async def _send(self, lines: list[Line]) -> None:
        results = await asyncio.gather(*map(self._commits.put, lines), return_exceptions=True)
        refused = []
        for line, result in zip(lines, results, strict=True):
            if isinstance(result, DatabaseAway):
                raise result
            if isinstance(result, BaseException):
                logger.critical("a spooled settlement was refused: %s", result)
                refused.append(line)
        if refused:
            await self._give_up(refused)

    async def _give_up(self, lines: list[Line]) -> None:
        """The tables will never take these: they go to `refused.jsonl` beside the spools, for an operator, and their
        holds end.
        """
        with (self._spool.directory / "refused.jsonl").open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
        ids = [UUID(msgspec.json.decode(line)["id"]) for line in lines]
        await self._connections.call("select billing_give_up(%s)", [ids])
        self._settled([id.hex for id in ids])

    async def finish(self) -> None:
        """Returns when everything settled so far is durable, in the database or in the spool, or has failed to be."""
        while self._open:
            with suppress(SpoolFull):
                await next(iter(self._open))
