"""Group commit: whatever arrives while a batch is in flight forms the next one.

One durable transaction for many requests is what makes a hold before every dial affordable: alone a commit costs a
request 400 us of our time, in a batch of thirty-two 36 us.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import psycopg
from psycopg.types.json import set_json_loads

logger = logging.getLogger(__name__)

MOST = 256  # items a batch
IN_FLIGHT = 1  # batches at once: a second one waits for the same counters' locks, and both are smaller
STATEMENT_SECONDS = 2.0
# PostgreSQL would plan the functions' statements anew for every batch, which costs more than running them. A plan that
# is kept may be older than the rows: made on an empty table it reads all of it, which soon is a month's usage. And a
# bitmap of a few rows costs more to set up than it saves.
SESSION = (
    f"set statement_timeout = {int(STATEMENT_SECONDS * 1000)}; set plan_cache_mode = force_generic_plan; "
    "set jit = off; set enable_seqscan = off; set enable_bitmapscan = off"
)
STALE_LEASE = "ML001"  # raised by `billing_admit`

Item = TypeVar("Item")
Result = TypeVar("Result")


class DatabaseAway(Exception):
    """The database could not be reached, or did not answer; what was sent may or may not have been done."""


class ConnectionLost(DatabaseAway):
    """The server hung up, or had done so before."""


class Connections:
    """A few connections of the app's role, each given to one batch at a time; opened when needed, dropped on error."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._idle: list[tuple[str, psycopg.AsyncConnection[Any]]] = []  # each with the query it ran last

    async def call(self, query: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        """Runs one statement as a transaction of its own and returns its rows.

        Sent again once when an idle connection turns out dead; the callers' statements are idempotent. Raises
        `DatabaseAway`, or psycopg's error when what was sent is at fault.
        """
        reused = bool(self._idle)
        try:
            return await self._call(query, params)
        except ConnectionLost:
            if not reused:
                raise
            await self.close()  # whatever ended one of them has likely ended all
            return await self._call(query, params)

    async def _call(self, query: str, params: Sequence[object]) -> list[tuple[Any, ...]]:
        connection: psycopg.AsyncConnection[Any] | None = None
        try:
            # The server gives up after its statement timeout; ours is for a network that swallows everything.
            async with asyncio.timeout(STATEMENT_SECONDS + 1):
                connection = self._take(query) if self._idle else await self._open()
                cursor = await connection.execute(query, params, prepare=True)
                rows = await cursor.fetchall()
        except BaseException as error:
            if connection is not None:
                await connection.close()  # also when cancelled in the middle: its next answer would be another's
            if isinstance(error, (psycopg.Error, TimeoutError, OSError)) and not _own_fault(error):
                raise (ConnectionLost if _hung_up(error) else DatabaseAway)(str(error)) from error
            raise
        self._idle.append((query, connection))
        return rows

    def _take(self, query: str) -> psycopg.AsyncConnection[Any]:
        """An idle connection: the one that ran `query` last, whose server has its plans at hand, else any."""
        own = (number for number, (last, _) in enumerate(self._idle) if last == query)
        return self._idle.pop(next(own, -1))[1]

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(self._url, autocommit=True, connect_timeout=2)
        try:
            set_json_loads(msgspec.json.decode, connection)
            await connection.execute(SESSION)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def close(self) -> None:
        """Closes the idle connections."""
        idle, self._idle = self._idle, []
        for _, connection in idle:
            await connection.close()


def _own_fault(error: Exception) -> bool:
    """Whether what was sent is at fault; a server in recovery or a full disk, for instance, is not."""
    return (
        isinstance(error, (psycopg.DataError, psycopg.IntegrityError))
        or getattr(error, "sqlstate", None) == STALE_LEASE
    )


def _hung_up(error: Exception) -> bool:
    """Whether the connection ended: psycopg says that without a SQLSTATE, a server that stops with 57P01 or a kin."""
    return isinstance(error, psycopg.OperationalError) and (error.sqlstate or "57P")[:3] == "57P"


class GroupCommit(Generic[Item, Result]):
    """Collects items into batches and sends at most `IN_FLIGHT` of them at a time, in order of arrival.

    `send` takes a batch and returns a result for each item. When it raises something other than `DatabaseAway`, the
    items are sent one by one, so that a poisonous one fails alone.
    """

    def __init__(self, send: Callable[[list[Item]], Awaitable[list[Result]]]) -> None:
        self._send = send
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False

    def put(self, item: Item) -> asyncio.Future[Result]:
        """Queues `item`; it is sent whether or not anybody awaits the future.

        Cancelling the future before the item is sent takes it back; afterwards it changes nothing.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._waiting.append((item, future))
        if not self._woken and len(self._tasks) < IN_FLIGHT:
            # Not at once: what else arrives in this turn of the loop shares the batch.
            self._woken = True
            loop.call_soon(self._start)
        return future

    def _start(self) -> None:
        self._woken = False
        if self._waiting and len(self._tasks) < IN_FLIGHT:
            task = asyncio.get_running_loop().create_task(self._flush())
            self._tasks.add(task)  # the loop itself keeps only weak references
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # Between the flush's last look and this call something may have come that counted on it to go on.
        if self._waiting and not task.cancelled():
            self._start()

    async def _flush(self) -> None:
        while self._waiting:
            batch: list[tuple[Item, asyncio.Future[Result]]] = []
            while self._waiting and len(batch) < MOST:
                entry = self._waiting.popleft()
                if not entry[1].cancelled():
                    batch.append(entry)
            if batch:
                await self._deliver(batch)

    async def _deliver(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            results = await self._send([item for item, _ in batch])
        except DatabaseAway as error:
            for _, future in batch:
                _fail(future, DatabaseAway(str(error)))
        except Exception as error:
            if len(batch) == 1:
                logger.exception("a batch of one was refused")
                _fail(batch[0][1], error)
            else:
                for entry in batch:
                    await self._deliver([entry])
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # marks it as seen: a caller that left is no reason for a warning
