"""One request and its answer: plays a plan on a connection and writes its two lines of the bill."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from .answer import Counted
from .bill import Bill, End, Start
from .connection import Connection
from .models import Behaviour
from .plan import Plan, Say, Stop, Transfer, Wait

# Some clients throw away what they have buffered when a reset arrives: give them this long to read it.
LINGER = 0.05


class Gate:
    """Where `hold` waits: in order of arrival, until released."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __len__(self) -> int:
        return sum(1 for waiter in self._waiting if not waiter.done())

    async def wait(self) -> None:
        """Returns when a later `release` lets this one go."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def release(self, most: int | None = None) -> int:
        """Lets go those that wait, at most `most`, the oldest first; says how many. Later ones wait again."""
        released = 0
        while self._waiting and (most is None or released < most):
            waiter = self._waiting.popleft()
            if not waiter.done():  # a client that left while it waited has cancelled its own
                waiter.set_result(None)
                released += 1
        return released


class Exchange:
    """A plan being played. Whoever ends it first writes its end, once: the plan, the client, or a reset."""

    def __init__(
        self, connection: Connection, bill: Bill, gate: Gate, start: Start, over: Callable[["Exchange"], None]
    ) -> None:
        self._connection, self._bill, self._gate, self._over = connection, bill, gate, over
        self._task: asyncio.Task[None] | None = None
        self._handed = connection.handed
        self.end = End(**{field: getattr(start, field) for field in START_FIELDS}, started=start.at)

    def play(self, plan: Plan, behaviour: Behaviour) -> None:
        """Starts to play; returns at once."""
        self._task = asyncio.get_running_loop().create_task(self._played(plan, behaviour))

    def at_once(self, data: bytes, counted: Counted, usage: bytes) -> None:
        """A whole right answer, head included, in one write, without a task."""
        end = self.end
        end.status, end.events, end.usage = 200, 1, usage.decode()
        end.prompt_tokens, end.completion_tokens = counted.prompt, counted.completion
        self._connection.write(data)
        self._finish("complete")

    def client_left(self) -> None:
        """The bill says so with this very moment; nothing more is said."""
        self._finish("client_closed")
        self._cancel()

    def abort(self) -> None:
        """Resets the connection in the middle of the answer."""
        self._finish("aborted")
        self._connection.reset()
        self._cancel()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, ended: str) -> None:
        if self.end.ended:
            return
        self.end.bytes = self._sent() - (0 if ended == "complete" else self._connection.unsent())
        self.end.ended = ended
        self.end.at = time.time()
        self._bill.write(self.end)
        self._over(self)

    def _sent(self) -> int:
        return self._connection.handed - self._handed

    async def _played(self, plan: Plan, behaviour: Behaviour) -> None:
        try:
            await self._ahead(plan, behaviour)
            stop = await self._body(plan, behaviour)
        except Exception:
            self._finish("failed")
            self._connection.reset()
            raise
        connection = self._connection
        if stop is Stop.RESET:
            self._finish("reset")
            connection.reset()
        elif stop is Stop.CUT:
            self._finish("closed")
            connection.close()
        else:
            self._finish("complete")
            if behaviour.close or plan.transfer in (Transfer.CLOSE, Transfer.RAW):
                connection.close()
            else:
                connection.poisoned = plan.poison
                connection.free(behaviour.idle)

    async def _ahead(self, plan: Plan, behaviour: Behaviour) -> None:
        if silence := behaviour.first + plan.delay:
            await asyncio.sleep(silence)
        if behaviour.hold == 0:
            await self._gate.wait()
        head = plan.head(behaviour.close)
        if head:
            self.end.status = plan.status
            await self._write(head, behaviour)

    async def _body(self, plan: Plan, behaviour: Behaviour) -> Stop | None:
        """Plays the steps; gives the stop that ended them, None at the body's own end."""
        chunked = plan.transfer is Transfer.CHUNKED
        loop = asyncio.get_running_loop()
        began, paced, end = loop.time(), 0, self.end
        for step in plan.steps:
            if isinstance(step, Say):
                if step.tokens and behaviour.pace:
                    # Each token has its own moment, so that lateness does not add up.
                    if (early := began + paced * behaviour.pace - loop.time()) > 0:
                        await asyncio.sleep(early)
                    paced += 1
                self._count(plan, step)
                if step.data:
                    await self._write(
                        b"%x\r\n%b\r\n" % (len(step.data), step.data) if chunked else step.data, behaviour
                    )
                if chunked and not behaviour.pace:
                    # An event leaves in a write of its own, and a stream without pace starves nobody.
                    await asyncio.sleep(0)
                if end.events == behaviour.hold:
                    await self._gate.wait()
            elif isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
            elif step is Stop.HANG:
                await loop.create_future()
            else:
                await self._connection.flushed()
                await asyncio.sleep(LINGER if step is Stop.RESET and self._sent() else 0)
                return step
        if chunked:
            await self._write(b"0\r\n\r\n", behaviour)
        return None

    def _count(self, plan: Plan, step: Say) -> None:
        if plan.counted is not None:
            self.end.prompt_tokens = plan.counted.prompt
            self.end.cached_tokens = plan.counted.cached
        self.end.events += 1
        self.end.completion_tokens += step.tokens
        self.end.reasoning_tokens += step.thought
        if step.usage is not None:
            self.end.usage = step.usage.decode()

    async def _write(self, data: bytes, behaviour: Behaviour) -> None:
        if not behaviour.segment:
            self._connection.write(data)
            await self._connection.may_write()
            return
        for start in range(0, len(data), behaviour.segment):
            self._connection.write(data[start : start + behaviour.segment])
            await asyncio.sleep(behaviour.gap)
            await self._connection.flushed()


START_FIELDS = ("id", "model", "path", "stream", "attempt_id", "request_id", "credential", "connection")
