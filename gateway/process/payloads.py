"""What was asked and what was answered, kept for the projects that want it: sealed, bounded, and off the way of money.

A request of such a project notes its body and the parts of its answer as they go out; when that is over and its
settlement is on its way, one writer of the process cuts, packs, seals and stores them. Whatever goes wrong here loses a
payload, which is counted, and nothing else: no answer waits for it, and none changes.

Kept are the beginnings, `PAYLOAD_BYTES` of each side. Long runs of data, such as pictures in base64, are left out with
their length in their place, and what looks like an API key is masked; headers, and with them keys, are never taken.
"""

import asyncio
import logging
import re
import zlib
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings

from accounts.callers import Caller
from accounts.keys import PREFIX
from accounts.sealing import seal_bytes
from billing.backbone.connections import Connections, DatabaseAway
from gateway.process import telemetry

logger = logging.getLogger(__name__)

LOOKED_AT = 4  # times as much is looked at as is kept, since data is left out of it
MOST_HELD = 64 << 20  # bytes that wait in the process, of requests under way and of those that are over
RETRY_SECONDS = 1.0
STOP_SECONDS = 1.0  # that a stop waits for what is left
A_ROW = 500  # bytes that a row counts as, besides what it holds
PROMPT, ANSWER = SIDES = ("prompt", "answer")

# From the beginning of a run alone: tried from each of its bytes, many that are too short would hold the interpreter.
DATA = re.compile(rb"(?<![A-Za-z0-9+/_\\-])[A-Za-z0-9+/_\\-]{1024,}={0,2}")
# A whole one, or the beginning of one where what is looked at ends.
KEY = re.compile(re.escape(PREFIX).encode() + rb"(?:[0-9A-Za-z]{36}|[0-9A-Za-z]{0,35}\Z)")

# A day's bytes are counted in one row an organization, once for each payload: a commit whose answer was lost is sent
# again. A project that has switched it off since keeps nothing more.
WRITE = """
with room as (
    insert into gateway_payloadday as d (organization, day, bytes)
    select %(organization)s::uuid, (now() at time zone 'UTC')::date, %(size)s::bigint
     where %(size)s <= %(most)s
       and exists (select from accounts_project p where p.id = %(project)s and p.payload_days > 0)
       and not exists (select from gateway_payload y where y.id = %(id)s)
        on conflict (organization, day) do update set bytes = d.bytes + excluded.bytes
     where d.bytes + excluded.bytes <= %(most)s
    returning 1)
insert into gateway_payload
       (id, organization, project, key, created_at, prompt_bytes, answer_bytes, prompt, answer)
select %(id)s, %(organization)s, %(project)s, %(key)s, %(created_at)s, %(prompt_bytes)s, %(answer_bytes)s,
       %(prompt)s, %(answer)s
  from room
    on conflict (id) do nothing
returning 1
"""
IS_THERE = "select 1 from gateway_payload where id = %(id)s"


class Settled(Protocol):
    """A call, of which it is known whether it has been settled: `gateway.request.planning.Call`."""

    id: str
    settled: Any | None


class Taking:
    """What is noted of one request, until `end`."""

    __slots__ = (
        *("_call", "_most", "_parts", "_payloads", "_taken"),
        *("answer_bytes", "begun", "caller", "generation", "held", "prompt", "prompt_bytes"),
    )

    def __init__(self, payloads: "Payloads", caller: Caller, call: Settled, body: bytes) -> None:
        self.caller = caller
        self.begun = False  # something of the answer is here
        self.answer_bytes = 0  # as it went out
        self.held = 0
        self.generation = call.id  # 32 hex digits
        self._call: Settled | None = call  # until the end: it holds all that was asked
        self._payloads: Payloads | None = payloads
        self._most: int = settings.PAYLOAD_BYTES * LOOKED_AT
        self._taken = 0
        self._parts: list[bytes] = []
        self.prompt_bytes = len(body)  # as it came
        self.prompt = body[: self._most]  # and nothing that holds the rest
        self._hold(len(self.prompt))

    @property
    def answer(self) -> bytes:
        """The beginning of what went out."""
        return b"".join(self._parts)

    def take(self, part: bytes) -> None:
        """A part of the answer that is about to go out."""
        self.begun = True
        self.answer_bytes += len(part)
        if self._taken < self._most and self._payloads is not None:
            piece = part[: self._most - self._taken]
            self._taken += len(piece)
            self._parts.append(piece)
            self._hold(len(piece))

    def end(self) -> None:
        """No more will come. What was never held for has no generation, and leaves nothing."""
        payloads, call = self._payloads, self._call
        self._payloads = self._call = None
        if payloads is not None and call is not None:
            payloads.put(self, keep=call.settled is not None)

    def through(self, parts: AsyncGenerator[bytes]) -> "Noted":
        """The parts, noted as they pass, and the end with them."""
        return Noted(self, parts)

    def _hold(self, count: int) -> None:
        assert self._payloads is not None
        if not self._payloads.hold(self, count):
            self._payloads = None
            self._parts.clear()
            self.prompt = b""


class Noted(AsyncGenerator[bytes]):
    """The parts of an answer on their way out. No generator of its own: one that is closed before it began would leave
    the answer's open.
    """

    def __init__(self, taking: Taking, parts: AsyncGenerator[bytes]) -> None:
        self._taking = taking
        self._parts = parts

    async def asend(self, value: None) -> bytes:
        """The next part."""
        try:
            part = await self._parts.asend(value)
        except BaseException:
            self._taking.end()
            raise
        self._taking.take(part)
        return part

    async def athrow(self, *error: Any) -> bytes:
        """As the answer takes it."""
        try:
            return await self._parts.athrow(*error)
        except BaseException:
            self._taking.end()
            raise

    async def aclose(self) -> None:
        """Closes the answer."""
        try:
            await self._parts.aclose()
        finally:
            self._taking.end()


class Payloads:
    """What a process has noted and not stored yet. `most_held` bytes wait at most."""

    def __init__(self, connections: Connections, most_held: int = MOST_HELD) -> None:
        self.held = 0
        self._connections = connections
        self._most_held = most_held
        self._waiting: deque[Taking] = deque()
        self._woken = asyncio.Event()

    def begin(self, caller: Caller, call: Settled, body: bytes) -> Taking | None:
        """Begins to note a request, if its project wants that and the installation lets it."""
        return Taking(self, caller, call, body) if min(caller.payload_days, settings.PAYLOAD_DAYS_MOST) > 0 else None

    def hold(self, taking: Taking, count: int) -> bool:
        """Whether so many bytes more are kept for a request; else it is given up, and counted."""
        if self.held + count > self._most_held:
            self._let_go(taking, "memory")
            return False
        self.held += count
        taking.held += count
        return True

    def put(self, taking: Taking, *, keep: bool) -> None:
        """Takes what is over: to be stored, or not."""
        if keep:
            self._waiting.append(taking)
            self._woken.set()
        else:
            self._let_go(taking)

    async def keep(self) -> None:
        """Stores what waits until cancelled; what the database does not take it is offered again."""
        while True:
            await self._woken.wait()
            try:
                await self.write()
            except DatabaseAway:
                await asyncio.sleep(RETRY_SECONDS)

    async def write(self) -> None:
        """Stores what waits by now. Raises `DatabaseAway`: the rest waits still."""
        while self._waiting:
            taking = self._waiting[0]
            try:
                row = await asyncio.to_thread(_row, taking)
                kept = await self._connections.call(WRITE, row) or await self._connections.call(IS_THERE, row)
                outcome = "kept" if kept else "full"
            except DatabaseAway:
                raise
            except Exception as error:  # ours to mend; the next ones shall not wait for it. Its words may quote it.
                logger.error("a payload could not be kept: %s", type(error).__name__)
                outcome = "refused"
            self._waiting.popleft()
            self._let_go(taking, outcome)
        self._woken.clear()

    async def stop(self) -> None:
        """Stores what is left, if the database takes it soon."""
        with suppress(DatabaseAway, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.write()
        for _ in self._waiting:
            telemetry.payloads.count("away")

    def _let_go(self, taking: Taking, outcome: str = "") -> None:
        self.held -= taking.held
        taking.held = 0
        if outcome:
            telemetry.payloads.count(outcome)


def kept_of(content: bytes) -> bytes:
    """What is kept of one side: its beginning, without long data and without keys."""
    looked_at = KEY.sub(b"(a key)", content[: settings.PAYLOAD_BYTES * LOOKED_AT])
    return DATA.sub(_left_out, looked_at)[: settings.PAYLOAD_BYTES]


def _left_out(run: re.Match[bytes]) -> bytes:
    return b"(%d characters of data are left out)" % len(run[0])


def place(side: str, generation: UUID) -> str:
    """What a side of a payload is sealed for."""
    return f"payload {side} of {generation.hex}"


def _row(taking: Taking) -> dict[str, object]:
    """The parameters of `WRITE`."""
    generation, caller = UUID(taking.generation), taking.caller
    sides = {PROMPT: taking.prompt, ANSWER: taking.answer}
    sealed = {
        side: seal_bytes(zlib.compress(kept_of(content), 1), place(side, generation)) for side, content in sides.items()
    }
    return {
        **sealed,
        "id": generation,
        "organization": caller.organization,
        "project": caller.project,
        "key": caller.key,
        "created_at": datetime.now(UTC),
        "prompt_bytes": taking.prompt_bytes,
        "answer_bytes": taking.answer_bytes,
        "size": sum(map(len, sealed.values())) + A_ROW,
        "most": settings.PAYLOAD_ORGANIZATION_BYTES or 2**62,
    }
