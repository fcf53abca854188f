"""One request's account: its hold, its attempts, and the settlement that ends it, exactly once, on every exit.

`async with Generation(...)` holds on the way in and settles on the way out, whatever the way out is: an answer, a
fault, a client that left, a revoked key, a cancelled task. Settling is synchronous up to the queue of the process's
settler, so no cancellation comes between.
"""

import asyncio
import time
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from billing.backbone.admission import AttemptItem, Held, HoldItem, Refused
from billing.backbone.connections import DatabaseAway
from billing.backbone.settlement import Ending, Settlement, Try
from billing.backbone.spool import SpoolFull
from billing.ids import new_hex
from billing.models import Status
from billing.tokens import estimate
from gateway.generation import continuation, explaining
from gateway.generation.attempt import Attempt
from gateway.generation.bill import UNREADABLE, Bill, bill
from gateway.generation.itinerary import Itinerary, Stop
from gateway.generation.refusals import REVOKED, refusal, unavailable
from gateway.generation.usage_row import facts, settlement
from gateway.process import telemetry
from gateway.process.deadline import NEVER, Deadline
from gateway.process.process import Process
from gateway.request.planning import Call
from gateway.wire.errors import GatewayError, Unauthenticated, UpstreamFault
from routing.health.faults import Fault
from routing.planning.plan import Candidate

# Of a 429 or a 503 a client wants to know when to come back.
_COME_BACK = frozenset({Fault.RATE_LIMITED, Fault.EXHAUSTED, Fault.OVERLOADED})


class Generation:
    """The account of one `Call`. One task owns it.

    - `caller`: who calls; the registry of open calls reads it
    - `begun`: the client has been sent a byte
    - `attempts`: the dials, in order; `attempt`: the last one, which is running, or is the one that answered
    - `continues`: a text that breaks off is to be continued; `said`: what an attempt before this one said of it
    - `deadline`: of the task that holds; `created`: seconds since 1970, the same in all that the client sees
    """

    def __init__(self, process: Process, call: Call) -> None:
        self.call = call
        self.caller = call.caller
        self.begun = False
        self.attempts: list[Attempt] = []
        self.attempt: Attempt
        self.deadline: Deadline
        self.created = int(time.time())
        self._process = process
        self._facts: dict[str, Any] = {}  # what the hold keeps
        self._held: Held | None = None
        self._started = time.monotonic()
        self._itinerary = Itinerary(call.plan, process.ejections)
        self.continues = continuation.may_continue(call)
        self.said = ""
        self._ttft_ms: int | None = None
        self._ending: Ending | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cut = False
        self._bill: Bill | None = None  # once settled

    @property
    def relayed(self) -> bool:
        """Whether the client has been sent something meaningful."""
        return any(attempt.relayed for attempt in self.attempts)

    async def __aenter__(self) -> Self:
        """Holds. Raises what the client is told when there is no room; nothing has happened then."""
        if self._process.backbone.spool.full:
            raise unavailable(30)
        now = time.monotonic()
        self._process.retries.request(now)
        attempt = self._attempt(await self._itinerary.first(now))
        item = self._hold_item(attempt)
        self._task = asyncio.current_task()
        assert self._task is not None
        self.deadline = Deadline(self._task)
        # Open from now on: the key may be revoked after the hold has committed and before we hear of it.
        self._process.open_calls.add(self)
        try:
            self._held = await self._hold(item)
        except BaseException:
            self._process.open_calls.discard(self)
            self.deadline.close()
            attempt.given_up()
            raise
        attempt.row.started_at = self._held.admitted_at
        self._go_on_with(attempt)
        return self

    def _hold_item(self, attempt: Attempt) -> HoldItem:
        call, caller = self.call, self.caller
        self._facts = facts(call, attempt.candidate)
        first, *others = call.offers
        worst, cap, tokens = first.worst, first.output_cap, call.input_tokens
        for other in others:
            worst = worst.over(other.worst)
            cap = max(cap, other.output_cap)
        if self.continues:
            worst = continuation.worst_case(call.offers, tokens)
            tokens = 2 * tokens + cap  # the prompt is read twice, and what was said is read once
        return HoldItem(
            id=call.id,
            attempt=attempt.row.id,
            key=caller.key,
            model=attempt.row.model,
            fixed=worst.fixed,
            rate=worst.rate,
            cap=cap,
            min_cap=min(caller.min_output_cap, cap),
            tokens=tokens,
            copies=call.asked.n,
            facts=self._facts,
        )

    async def _hold(self, item: HoldItem) -> Held:
        if not self._process.database.agrees:
            raise unavailable(5)  # the clocks are too far apart, see `gateway.process.database`
        try:
            return await self._process.backbone.admission.hold(item)
        except Refused as refused:
            raise refusal(refused, self.caller, self.call.model.slug) from refused
        except DatabaseAway as error:
            raise unavailable(1) from error
        except asyncio.CancelledError:
            if error_of_cut := self.was_cut():
                raise error_of_cut from None
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settles unless that has been done."""
        self._process.open_calls.discard(self)
        self.deadline.close()
        if self._ending is None:
            self._settle(Status.FAILED if isinstance(error, GatewayError) else Status.CANCELLED, error)

    def cut(self) -> None:
        """The key may not be used any more: stops the call, wherever it waits."""
        if self._task is not None and not self._cut:
            self._cut = True
            if self.attempts:
                self.attempt.given_up()  # nobody may go on in its name
            self._task.cancel()

    def was_cut(self) -> GatewayError | None:
        """After a cancellation: what the client is told if the key's end was the reason; None otherwise."""
        if not self._cut or self._task is None:
            return None
        self._task.uncancel()
        return Unauthenticated(REVOKED)

    # --- attempts ---------------------------------------------------------------------------------------------------

    def output_cap(self, candidate: Candidate) -> int | None:
        """The cap to send with this dial; None when neither client, project nor budget asks for one."""
        assert self._held is not None
        cap = min(self._held.output_cap, candidate.output_cap)
        if self.said:
            return max(1, cap - estimate(len(self.said.encode())))
        asked = self.call.asked.output_cap is not None or self.caller.default_output_cap is not None
        return cap if asked or cap < candidate.offer.max_output else None

    @property
    def seconds_left(self) -> float:
        """Of the time that the policy allows the whole request."""
        total = self.call.plan.policy.total_timeout
        return NEVER if total is None else max(0.0, total - (time.monotonic() - self._started))

    async def may_go_on(self, fault: UpstreamFault) -> bool:
        """Notes how the running attempt failed, and writes the next one if there may be one, before its dial.

        There is none after output (but for a text that is continued), after a fault of the request's own, past the
        policy's attempts or time, past the process's budget for retries, or for a revoked key. Then `fault` is what
        the client is told: the last one.
        """
        self.attempt.failed(fault, self.call.id)
        now = time.monotonic()
        stop = await self._following(fault, now)
        if stop is not None and await self._write(stop):
            return True
        if fault.kind in _COME_BACK:
            self._say_when(fault, now)
        return False

    async def _following(self, fault: UpstreamFault, now: float) -> Stop | None:
        if len(self.attempts) >= (self.call.plan.policy.max_attempts or 1) or not self.seconds_left:
            return None
        if self.relayed:
            stop = await self._to_continue(now)
        else:
            stop = await self._itinerary.after(self.attempt.candidate, fault, now)
        if stop is not None and not self._process.retries.may_retry(now):
            self._process.health.rests.release(stop.claimed, now)
            return None
        return stop

    async def _to_continue(self, now: float) -> Stop | None:
        """Where the rest of the text may come from; None when this is not plain text, or has been continued."""
        reader = self.attempt.reader
        said = reader.said if reader is not None and self.continues and not self.said else ""
        if not said or not said.strip():
            return None
        stop = await self._itinerary.to_continue(self.attempt.candidate, now)
        if stop is not None:
            self.said = said
        return stop

    async def _write(self, stop: Stop) -> bool:
        attempt = self._attempt(stop)
        row = attempt.row
        item = AttemptItem(
            row.id, row.generation, row.number, row.provider, row.upstream_model, row.model, self.caller.key
        )
        alive = False
        try:
            with suppress(DatabaseAway, TimeoutError):
                alive = await self._process.backbone.admission.attempt_again(item)
        finally:
            if not alive:
                attempt.given_up()
        if alive:
            self._go_on_with(attempt)
            if not self.relayed:
                self._ttft_ms = None  # a whole answer may have begun and broken off unseen
        return alive

    def _attempt(self, stop: Stop) -> Attempt:
        candidate, offer = stop.candidate, stop.candidate.offer
        attempt = Attempt(self._process.health, stop, self.call.plan.size_class, self.call.asked.stream)
        attempt.row = Try(
            new_hex(),
            self.call.id,
            len(self.attempts) + 1,
            offer.provider.slug,
            offer.upstream_model,
            datetime.now(UTC),
            model=candidate.model.slug,
            credential=None if stop.credential is None else stop.credential.id,
        )
        self.call.dialled = candidate
        return attempt

    def _go_on_with(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.attempts.append(attempt)

    def _say_when(self, fault: UpstreamFault, now: float) -> None:
        """Retry-After: when the first of those that could have answered may be asked again."""
        cooldown = max(1, min(60, round(self.attempt.candidate.offer.provider.cooldown)))
        soonest = None if fault.kind is Fault.OVERLOADED else self._itinerary.retry_after(now)
        fault.retry_after = soonest or fault.retry_after or cooldown

    def first_event(self) -> None:
        """Notes the first meaningful event of a stream, or the first bytes of a whole answer."""
        self.attempt.first_event()
        if self._ttft_ms is None:
            self._ttft_ms = _ms(self._started)
            if self.call.asked.stream:
                telemetry.first_token(self.attempt.row.provider).observe(self._ttft_ms / 1000)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def complete(self) -> bytes:
        """Settles a whole answer; when that is durable, gives its last part.

        Raises `Unavailable` when nothing takes the settlement.
        """
        attempt = self.attempt
        attempt.completed()
        assert attempt.reader is not None
        ending = self._settle(Status.COMPLETED, None)
        assert self._bill is not None
        attempt.reader.set_usage(self._bill.tokens, instead=bool(self.said))
        try:
            await ending
        except SpoolFull as error:
            raise unavailable(30) from error
        attempt.reader.set_cost(self._bill.charge)
        if self.call.conversation is not None:
            self._process.seats.take(self.call.conversation, attempt.candidate.offer.id, time.monotonic())
        return explaining.final(attempt.reader.final(), self.call, self.attempts)

    async def fail(self, error: GatewayError) -> None:
        """Settles a failed one; returns when that is durable, or cannot be: nothing final goes out after it.

        An answer that was complete when it was cut, or that nothing took, has been settled as such already.
        """
        ending = self._ending or self._settle(Status.CANCELLED if self._cut else Status.FAILED, error)
        explaining.beside(error, self.call, self.attempts)
        with suppress(SpoolFull):
            await ending

    def _settle(self, status: Status, error: BaseException | None) -> Ending:
        """Queues the settlement, synchronously."""
        assert self._held is not None
        ended = status.value
        owed = self._bill = self._owed(status, error, self._held)
        self.attempt.left(ended)
        row = settlement(self.call, self._facts, self.attempts, self._held, owed, ended)
        row.error = _error_code(error, self._cut)
        row.duration_ms = _ms(self._started)
        if status is Status.COMPLETED or self.relayed:
            row.ttft_ms = self._ttft_ms
        self._ending = self._process.backbone.settler.settle(row)
        self._count(row)
        return self._ending

    def _owed(self, status: Status, error: BaseException | None, held: Held) -> Bill:
        owing = [attempt for attempt in self.attempts if attempt.relayed]
        if status is Status.COMPLETED and not self.attempt.relayed:
            owing.append(self.attempt)
        if not owing and isinstance(error, UpstreamFault) and error.unreadable:
            return UNREADABLE
        return bill(owing, self.call.asked.text_bytes, held)

    def _count(self, row: Settlement) -> None:
        telemetry.generations.count(row.status)
        telemetry.tokens.count("prompt", row.prompt_tokens)
        telemetry.tokens.count("completion", row.completion_tokens)
        if row.suspect:
            telemetry.suspect.labels(row.provider).inc()
        if row.charge is None:
            telemetry.unpriced.labels(row.model).inc()
        reader = self.attempt.reader
        if reader is not None and reader.skipped:
            telemetry.skipped_events.labels(row.provider).inc(reader.skipped)


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)


def _error_code(error: BaseException | None, cut: bool) -> str:
    if cut:
        return "key_revoked"
    if isinstance(error, GatewayError):
        return error.code or error.type
    return "" if error is None else "client_left"
