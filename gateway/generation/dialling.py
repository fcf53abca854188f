"""One dial under its deadlines, and what becomes of it when its client leaves.

A streaming client is told that we still wait: `wait` then gives None. A dial that is the probe of an offer which rested
is seen through even when its client leaves: the offer would else rest for as long as impatient clients are the ones to
try it.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from functools import lru_cache
from types import TracebackType
from typing import Any, Self, TypeVar

from gateway.generation import reading
from gateway.generation.attempt import Attempt
from gateway.process.deadline import NEVER, Deadline
from gateway.process.memory import NoRoom
from gateway.process.process import Process
from gateway.protocols.sides import Answer, UpstreamSide
from gateway.upstream.client import Target
from gateway.upstream.reply import Reply
from gateway.wire.errors import UpstreamFault, let_go
from routing.base_url import parse_base_url
from routing.catalog import Provider
from routing.health.faults import Fault

KEEP_ALIVE_SECONDS = 10.0
MOST_ERROR_BYTES = 64 * 1024

Result = TypeVar("Result")


@lru_cache(maxsize=1024)
def target(base_url: str, connect_timeout: float, accept: str, path: str, more: tuple[tuple[str, str], ...]) -> Target:
    """Where requests of one kind go, and how they begin, with `more` header fields; the same object each time."""
    headers = (
        ("Content-Type", "application/json"),
        ("Accept", accept),
        ("User-Agent", "meterline"),
        *more,
    )
    return Target("POST", parse_base_url(base_url), path, headers, connect_timeout)


class Pace:
    """By when one dial must have come how far, on the loop's clock.

    `total` is what is left of the whole request, in seconds; `first_byte` what the policy allows, if it says so. The
    provider's own timeouts hold where they are shorter.
    """

    __slots__ = ("_clock", "_deadline", "_idle", "beat", "beats", "cut_off", "due")

    def __init__(
        self, deadline: Deadline, provider: Provider, *, first_byte: float | None, total: float, beats: bool
    ) -> None:
        self._deadline = deadline
        self._clock = deadline.clock
        self._idle = provider.idle_timeout
        now = self._clock()
        self.cut_off = now + (total if total < provider.total_timeout else provider.total_timeout)
        soon = provider.first_byte_timeout
        self.due = now + (soon if first_byte is None or first_byte > soon else first_byte)
        self.beats = beats
        self.beat = now + KEEP_ALIVE_SECONDS if beats else NEVER

    async def wait(self, awaitable: Awaitable[Result]) -> Result | None:
        """What it gives, which is never None; None when it is time for a sign of life, and then it may be asked again.

        Raises `UpstreamFault` (TIMEOUT) when a deadline has passed.
        """
        last = self.due if self.due < self.cut_off else self.cut_off
        try:
            return await self._deadline.wait(awaitable, self.beat if self.beat < last else last)
        except TimeoutError:
            if self._clock() >= last:
                raise UpstreamFault(Fault.TIMEOUT, "not in time") from None
            self.told()
            return None

    async def wait_silently(self, awaitable: Awaitable[Result]) -> Result:
        """What it gives; no sign of life meanwhile. Raises `UpstreamFault` as `wait`."""
        try:
            return await self._deadline.wait(awaitable, min(self.due, self.cut_off))
        except TimeoutError:
            raise UpstreamFault(Fault.TIMEOUT, "not in time") from None

    def heard(self, answering: bool) -> None:
        """The provider said something. Until that is the beginning of an answer the first byte's deadline goes on.

        Raises `UpstreamFault` when it has been talking for too long.
        """
        now = self._clock()
        if answering:
            self.due = now + self._idle
        elif now >= self.due:
            raise UpstreamFault(Fault.TIMEOUT, "no answer in time")
        if now >= self.cut_off:
            raise UpstreamFault(Fault.TIMEOUT, "the answer took too long")

    def end_within(self, seconds: float) -> None:
        """The answer must be at its end in so many seconds."""
        self.cut_off = min(self.cut_off, self._clock() + seconds)

    def told(self) -> None:
        """The client was sent something."""
        if self.beats:
            self.beat = self._clock() + KEEP_ALIVE_SECONDS


class Dialling:
    """`with` it begins the dial of an attempt; on the way out, whatever that is, nothing stays open.

    `reply` gives the answer's head, and the attempt its reader; None when it is time for a sign of life.
    """

    __slots__ = ("_attempt", "_coroutine", "_process", "_reader", "_reply", "_side", "_task", "pace")

    def __init__(
        self,
        process: Process,
        attempt: Attempt,
        pace: Pace,
        dialling: Coroutine[Any, Any, Reply],
        side: UpstreamSide,
        reader: Answer,
    ) -> None:
        self.pace = pace
        self._process = process
        self._attempt = attempt
        self._coroutine = dialling
        self._side = side
        self._reader = reader
        self._task: asyncio.Task[Reply] | None = None
        self._reply: Reply | None = None

    def __enter__(self) -> Self:
        """The dial begins."""
        self._attempt.begin()
        # A task where the dial goes on while the client is told something, or after the client has left.
        if self.pace.beats or self._attempt.claimed:
            self._task = asyncio.get_running_loop().create_task(self._coroutine)
        return self

    async def reply(self) -> Reply | None:
        """The head of an answer that is no refusal. Raises `UpstreamFault`."""
        reply = await self.pace.wait(self._coroutine if self._task is None else asyncio.shield(self._task))
        if reply is not None:
            self._reply = reply
            if not 200 <= reply.status < 300:
                said = await self.pace.wait_silently(_error_body(reply))
                raise self._fault(reply, said)
            self._attempt.reader = self._reader
        return reply

    def _fault(self, reply: Reply, said: bytes) -> UpstreamFault:
        fault = self._side.fault(reply.status, reply.headers, said)
        if fault.param is not None and not self._reader.passes:
            fault.param = self._side.chat_path(fault.param)
        return fault

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Aborts what is under way; or hands it over, when it is a probe whose client has left."""
        left = kind is not None and issubclass(kind, asyncio.CancelledError | GeneratorExit)
        if left and self._attempt.undecided:
            self._attempt.seen_off = True
            self._process.see_off(self._see_off())
        else:
            self._abort()

    def _abort(self) -> None:
        task, reply = self._task, self._reply
        if task is not None and not task.cancel() and reply is None:
            reply = task.result() if not task.cancelled() and task.exception() is None else None
        if reply is not None:
            reply.abort()  # does nothing once it is released

    async def _see_off(self) -> None:
        """Waits for the verdict on the offer, until the first byte's deadline; nobody reads the answer."""
        attempt = self._attempt
        try:
            async with asyncio.timeout_at(min(self.pace.due, self.pace.cut_off)):
                await self._decide()
            attempt.acquitted()
        except UpstreamFault as fault:
            attempt.condemned(fault)
        except TimeoutError:
            attempt.condemned(UpstreamFault(Fault.TIMEOUT, "no verdict in time"))
        except NoRoom as error:
            let_go(error)
        finally:
            attempt.given_up()  # unless there was a verdict
            attempt.memory.free()
            self._abort()

    async def _decide(self) -> None:
        reply = self._reply
        if reply is None:
            assert self._task is not None
            reply = self._reply = await self._task
        if not 200 <= reply.status < 300:
            raise self._fault(reply, await _error_body(reply))
        reader = self._attempt.reader = self._reader
        while not (reader.complete or (self.pace.beats and reader.meaningful)):
            if data := await reply.read():
                await reading.feed(reader, data, self._attempt.memory)
            else:
                await reading.end(reader)


async def _error_body(reply: Reply) -> bytes:
    """The body of an error answer; an unreadable or endless one is as good as none."""
    try:
        return await reply.read_all(MOST_ERROR_BYTES)
    except UpstreamFault:
        return b""
