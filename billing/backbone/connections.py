"""Connections to the database: a few for each purpose, never more, and given in turn to those who wait for one."""

import asyncio
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

STATEMENT_SECONDS = 2.0
PATIENCE = 2.0  # seconds a call waits for a connection
IDLE_SECONDS = 60.0  # a connection that nobody has used for so long is given back
# PostgreSQL would plan the functions' statements anew for every batch, which costs more than running them. A plan that
# is kept may be older than the rows: made on an empty table it reads all of it, which soon is a month's usage, or an
# index to hash or merge it with the batch. So what a batch names is looked up one by one. And a bitmap of a few rows
# costs more to set up than it saves.
SESSION = (
    f"set statement_timeout = {int(STATEMENT_SECONDS * 1000)}; set plan_cache_mode = force_generic_plan; "
    "set jit = off; set enable_seqscan = off; set enable_hashjoin = off; set enable_mergejoin = off; "
    "set enable_bitmapscan = off"
)
STALE_LEASE = "ML001"  # raised by `billing_admit`


class DatabaseAway(Exception):
    """The database could not be reached, or did not answer; what was sent may or may not have been done."""


class ConnectionLost(DatabaseAway):
    """The server hung up, or had done so before."""


class Busy(DatabaseAway):
    """No connection was to be had in time; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Asker:
    """In whose name a call is: the turn is `tenant`'s, and of `key` so many may wait."""

    tenant: Hashable
    key: Hashable


OURSELVES = Asker("", "")


class Turns:
    """So many `places`, given in turn: one to each tenant that waits, then the next to each.

    A tenant has `share` places at most, so that a slow one leaves some to the others; `queue` calls of a key wait at
    most, and four times as many of a tenant.
    """

    def __init__(self, places: int, share: int, queue: int, patience: float) -> None:
        self.places = places
        self.free = places
        self.refused = 0  # calls that got no place
        self._share, self._queue, self._patience = share, queue, patience
        self._taken: dict[Hashable, int] = {}
        self._lines: dict[Hashable, deque[tuple[Asker, asyncio.Future[None]]]] = {}  # whose turn is first comes first
        self._queued: dict[Hashable, int] = {}  # by key

    @property
    def waiting(self) -> int:
        """How many calls wait."""
        return sum(map(len, self._lines.values()))

    async def take(self, asker: Asker) -> None:
        """Takes a place; `give` gives it back. Raises `Busy`: at once past a bound, else when the patience is over."""
        tenant = asker.tenant
        if self.free and tenant not in self._lines and self._taken.get(tenant, 0) < self._share:
            self._begin(tenant)
            return
        line = self._lines.setdefault(tenant, deque())
        queued = self._queued.get(asker.key, 0)
        if queued >= self._queue or len(line) >= 4 * self._queue:
            self.refused += 1
            raise Busy("too many calls wait for the database already")
        entry = asker, asyncio.get_running_loop().create_future()
        line.append(entry)
        self._queued[asker.key] = queued + 1
        try:
            async with asyncio.timeout(self._patience):
                await entry[1]
        except BaseException as error:
            if entry[1].done() and not entry[1].cancelled():
                self.give(asker)  # it came at the very moment
            else:
                self._leave(entry)
            if isinstance(error, TimeoutError):
                self.refused += 1
                raise Busy("no connection to the database was free in time") from error
            raise

    def give(self, asker: Asker) -> None:
        """Gives a place back, to whoever is next."""
        tenant = asker.tenant
        self.free += 1
        if self._taken[tenant] == 1:
            del self._taken[tenant]
        else:
            self._taken[tenant] -= 1
        while self.free and (next_one := next(filter(self._may, self._lines), None)) is not None:
            entry = self._lines[next_one][0]
            self._leave(entry)
            if next_one in self._lines:
                self._lines[next_one] = self._lines.pop(next_one)  # to the end: the others come first now
            if not entry[1].cancelled():
                self._begin(next_one)
                entry[1].set_result(None)

    def _may(self, tenant: Hashable) -> bool:
        return self._taken.get(tenant, 0) < self._share

    def _begin(self, tenant: Hashable) -> None:
        self.free -= 1
        self._taken[tenant] = self._taken.get(tenant, 0) + 1

    def _leave(self, entry: tuple[Asker, "asyncio.Future[None]"]) -> None:
        asker = entry[0]
        line = self._lines.get(asker.tenant)
        if line is None or entry not in line:
            return  # its turn had come when it had just stopped waiting
        line.remove(entry)
        if not line:
            del self._lines[asker.tenant]
        if self._queued[asker.key] == 1:
            del self._queued[asker.key]
        else:
            self._queued[asker.key] -= 1


class Connections:
    """Up to `most` connections of the app's role, each given to one call at a time.

    They are opened when needed, dropped on error and given back when idle, all but `keep` of them.

    `share`, `queue` and `patience` say how those share them in whose name the calls are: see `Turns`.
    """

    def __init__(
        self,
        url: str,
        most: int = 6,
        *,
        share: int | None = None,
        queue: int = 256,
        patience: float = PATIENCE,
        keep: int = 0,
    ) -> None:
        self.turns = Turns(most, share or most, queue, patience)
        self._url = url
        self._keep = min(keep, most)
        # Cursors, one a connection, since to make one costs a fifth of a statement; with what it ran last, and when.
        self._idle: list[tuple[str, psycopg.AsyncCursor[Any], float]] = []
        self._running: set[asyncio.Task[Any]] = set()

    @property
    def idle(self) -> int:
        """How many connections are open and not in use."""
        return len(self._idle)

    async def call(
        self, query: str, params: Sequence[object] | dict[str, object], asker: Asker = OURSELVES
    ) -> list[tuple[Any, ...]]:
        """Runs one statement as a transaction of its own and returns its rows.

        Sent again once when an idle connection turns out dead; the callers' statements are idempotent. Raises
        `DatabaseAway`, `Busy` when no connection was free in time, or psycopg's error when what was sent is at fault.

        Once it is sent it goes on to its end, should its caller leave: the server would go on with it all the same, on
        one connection more than we count.
        """
        await self.turns.take(asker)
        try:
            task = asyncio.get_running_loop().create_task(self._run(query, params))
        except BaseException:
            self.turns.give(asker)
            raise
        self._running.add(task)
        task.add_done_callback(lambda ended: self._ended(ended, asker))
        return await asyncio.shield(task)

    async def run(
        self, query: str, params: Sequence[object] | dict[str, object], asker: Asker = OURSELVES
    ) -> list[tuple[Any, ...]]:
        """As `call`, in a task of the process's own that nobody cancels: it needs no other one, which costs 10 us."""
        task = asyncio.current_task()
        assert task is not None
        await self.turns.take(asker)
        self._running.add(task)
        try:
            return await self._run(query, params)
        finally:
            self._running.discard(task)
            self.turns.give(asker)

    def _ended(self, task: "asyncio.Task[Any]", asker: Asker) -> None:
        self._running.discard(task)
        self.turns.give(asker)
        if not task.cancelled():
            task.exception()  # seen, even if its caller has left

    async def _run(self, query: str, params: Sequence[object] | dict[str, object]) -> list[tuple[Any, ...]]:
        reused = bool(self._idle)
        try:
            return await self._send(query, params)
        except ConnectionLost:
            if not reused:
                raise
            await self._close(self._idle)  # whatever ended one of them has likely ended all
            return await self._send(query, params)

    async def _send(self, query: str, params: Sequence[object] | dict[str, object]) -> list[tuple[Any, ...]]:
        cursor: psycopg.AsyncCursor[Any] | None = None
        try:
            # The server gives up after its statement timeout; ours is for a network that swallows everything.
            async with asyncio.timeout(STATEMENT_SECONDS + 1):
                cursor = self._take(query) if self._idle else await self._open()
                await cursor.execute(query, params, prepare=True)
                rows = await cursor.fetchall()
        except BaseException as error:
            if cursor is not None:
                # Also when cancelled in the middle: its next answer would be another's.
                await cursor.connection.close()
            if isinstance(error, (psycopg.Error, TimeoutError, OSError)) and not _own_fault(error):
                raise (ConnectionLost if _hung_up(error) else DatabaseAway)(str(error)) from error
            raise
        self._idle.append((query, cursor, monotonic()))
        return rows

    def _take(self, query: str) -> psycopg.AsyncCursor[Any]:
        """An idle connection: the one that ran `query` last, whose server has its plans at hand, else any."""
        for number, (last, _, _) in enumerate(self._idle):
            if last == query:
                return self._idle.pop(number)[1]
        return self._idle.pop()[1]

    async def _open(self) -> psycopg.AsyncCursor[Any]:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=2)
        try:
            set_json_loads(msgspec.json.decode, connection)
            await connection.execute(SESSION)
        except BaseException:
            await connection.close()
            raise
        return connection.cursor()

    async def give_back(self, seconds: float = IDLE_SECONDS) -> None:
        """Closes the connections that have been idle for so long."""
        now = monotonic()
        old = [entry for entry in self._idle if now - entry[2] >= seconds]
        await self._close(old[: max(len(self._idle) - self._keep, 0)])

    async def _close(self, entries: list[tuple[str, psycopg.AsyncCursor[Any], float]]) -> None:
        entries = list(entries)
        self._idle = [entry for entry in self._idle if entry not in entries]
        for _, cursor, _ in entries:
            await cursor.connection.close()

    async def close(self) -> None:
        """Waits for the calls that still run, each of bounded length, and closes everything."""
        if self._running:
            await asyncio.wait(self._running)
        await self._close(self._idle)


def _own_fault(error: Exception) -> bool:
    """Whether what was sent is at fault; a server in recovery or a full disk, for instance, is not."""
    return (
        isinstance(error, (psycopg.DataError, psycopg.IntegrityError))
        or getattr(error, "sqlstate", None) == STALE_LEASE
    )


def _hung_up(error: Exception) -> bool:
    """Whether the connection ended: psycopg says that without a SQLSTATE, a server that stops with 57P01 or a kin."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "57P")[:3] == "57P"
