"""One request's account: its hold, its attempts, and the settlement that ends it, exactly once, on every exit.

`async with Generation(...)` holds on the way in and settles on the way out, whatever the way out is: an answer, a
fault, a client that left, a revoked key, a cancelled task. Settling is synchronous up to the queue of the process's
settler, so no cancellation comes between. A client that leaves ends it only where its key says so, or where there is no
place: else the answer is read on in the same task, for what the provider counts.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from django.conf import settings

from accounts.models import OnLeave
from billing.backbone.admission import AttemptItem, Held
from billing.backbone.connections import DatabaseAway
from billing.backbone.settlement import Ending, Settlement, Try
from billing.backbone.spool import SpoolFull
from billing.ids import new_hex
from billing.models import Basis, Status
from billing.tokens import estimate
from gateway.generation import continuation, explaining
from gateway.generation.attempt import Attempt
from gateway.generation.bill import Bill, bill
from gateway.generation.dialling import Pace
from gateway.generation.estimate import Estimate, learn_text
from gateway.generation.holding import cap_paid, hold, hold_item, learn
from gateway.generation.itinerary import Itinerary, Stop
from gateway.generation.refusals import REVOKED, unavailable
from gateway.generation.room import room
from gateway.generation.usage_row import facts, settlement
from gateway.process import telemetry
from gateway.process.deadline import NEVER, Deadline, boot_time
from gateway.process.drains import Drain
from gateway.process.keeping import Keeping
from gateway.process.memory import NoRoom
from gateway.process.process import Process
from gateway.request.planning import Call
from gateway.wire.errors import Forbidden, GatewayError, Unauthenticated, UpstreamFault, let_go
from routing.health.faults import Fault
from routing.planning.plan import Candidate

logger = logging.getLogger(__name__)

STOPPED_SECONDS = 10.0  # that the end of an answer waits for its usage, when the gateway itself has stopped its text

# Between the end of the dials' own time, a call's cut and the end of its hold: clocks differ, and a cut takes a moment.
SPARE_SECONDS = 30
_COMPLETED, _REPORTED, _UNKNOWN = Status.COMPLETED, Basis.REPORTED, Basis.UNKNOWN  # members are slow to look up
# Of a 429 or a 503 a client wants to know when to come back.
_COME_BACK = frozenset({Fault.RATE_LIMITED, Fault.EXHAUSTED, Fault.OVERLOADED})


class Generation:
    """The account of one `Call`. One task owns it.

    - `caller`: who calls; the registry of open calls reads it
    - `begun`: the client has been sent a byte
    - `attempts`: the dials, in order; `attempt`: the last one, which is running, or is the one that answered
    - `continues`: a text that breaks off is to be continued; `said`: what an attempt before this one said of it
    - `drain`: the client has left, or wants no more of the text, and the answer is read on
    - `deadline`: of the task that holds; `ends_by`: when it is cut at the latest, before its hold is taken for free
    - `created`: seconds since 1970, the same in all that the client sees
    - `failure`: the event that ends a stream, where it is kept, as it was settled
    """

    def __init__(self, process: Process, call: Call) -> None:
        self.call = call
        self.caller = call.caller
        self.begun = False
        self.attempts: list[Attempt] = []
        self.attempt: Attempt
        self.deadline: Deadline
        self.ends_by = NEVER
        now = time.time()
        self.created = int(now)
        # The request's id says when it came, by this same clock.
        arrived = call.request_id[:12]
        self._queue_ms = max(0, int(now * 1000) - int(arrived, 16)) if arrived else None
        self._process = process
        self._facts: dict[str, Any] = {}  # what the hold keeps
        self._held: Held | None = None
        self._paid: Decimal | None = None  # dollars, where they are fewer than the worst case of its offers
        self._started = time.monotonic()
        self._itinerary = Itinerary(call.plan, process.ejections, call.caller.organization)
        self.continues = continuation.may_continue(call)
        self.said = ""
        self._ttft_ms: int | None = None
        self._ending: Ending | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cut: GatewayError | None = None  # why it was stopped
        self._left = self._enough = False
        self.drain: Drain | None = None
        self._lost: list[Try] = []  # their rows may have been written, and nobody dialled
        self._bill: Bill | None = None  # once settled
        self._last: bytes | None = None  # part of an answer that is kept, as it was settled
        self.failure: bytes | None = None

    @property
    def id(self) -> str:
        """As the client gets it."""
        return self.call.id

    @property
    def organization(self) -> UUID:
        """Whose it is."""
        return self.caller.organization

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
        self._task = asyncio.current_task()
        assert self._task is not None
        self.deadline = Deadline(self._task)
        # Open from now on: the key may be revoked after the hold has committed and before we hear of it.
        self._process.open_calls.add(self)
        self._process.drains.calls[self._task] = self
        try:
            while (held := await self._hold(attempt)) is None:
                attempt.given_up()
                self._itinerary.renew()
                attempt = self._attempt(await self._itinerary.first(now))
        except BaseException:
            self._over()
            self.deadline.close()
            attempt.given_up()
            raise
        self._held = held
        if self.call.keeping is not None:
            self.call.keeping.held = True
        attempt.row.started_at = held.admitted_at
        self._go_on_with(attempt)
        return self

    def _longest(self) -> float:
        """How many seconds the dials may take together, by their own deadlines."""
        policy = self.call.plan.policy
        dials = 0.0
        for candidate in self.call.offers:
            if (its := candidate.offer.provider.total_timeout) > dials:
                dials = its
        dials *= policy.max_attempts or 1
        return min(policy.total_timeout, dials) if policy.total_timeout else dials

    async def _hold(self, attempt: Attempt) -> Held | None:
        """The hold for a first attempt; None: the money does not cover its offer, and the plan now begins with one that
        it does. Offers further on that it does not cover are left out as well.
        """
        if not self._process.database.agrees:
            raise unavailable(5)  # the clocks are too far apart, see `gateway.process.database`
        call = self.call
        self._facts = facts(call, attempt.candidate)
        expected = self._process.lengths.expected(self.caller.digest, attempt.candidate.model.id)
        seconds = self._longest() + SPARE_SECONDS
        self.ends_by = boot_time() + seconds
        known = {**self._facts, "seconds": seconds + SPARE_SECONDS}
        item = hold_item(call, attempt.candidate, attempt.row, known, self.continues, expected)
        try:
            held = await hold(self._process.backbone.admission, call, item)
        except asyncio.CancelledError:
            if reason := self.was_cut():
                raise reason from None
            raise
        if held is not None and held.hard and held.money != item.money:
            self._paid = held.money
            self.continues = False  # one answer is paid for, and not two
            self._itinerary.renew()
        elif held is not None and held.by_model is not None:
            self._itinerary.renew()
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settles unless that has been done."""
        self._over()
        self.deadline.close()
        if self._ending is None:
            self._settle(Status.FAILED if isinstance(error, GatewayError) else Status.CANCELLED, error)

    def _over(self) -> None:
        self._process.open_calls.discard(self)
        for attempt in self.attempts:
            attempt.memory.free()
        if self._task is not None:
            self._process.drains.calls.pop(self._task, None)

    def cut(self, reason: GatewayError | None = None) -> None:
        """Stops the call, wherever it waits; without a `reason` because its key may not be used any more."""
        if self._task is not None and self._cut is None:
            self._cut = reason or Unauthenticated(REVOKED)
            if self.attempts:
                self.attempt.given_up()  # nobody may go on in its name
            self._task.cancel()

    def left(self) -> bool:
        """The client has left. Whether the call is to go on without it: else who asks cancels its task."""
        if not self._left:
            self._left = True
            if self._ending is None and self.attempts and self.attempt.goes_on:
                self.drain = self.drain or self._begin_drain(settings.DRAIN_SECONDS)
        return self.drain is not None and self._ending is None

    def give_up(self) -> None:
        """It has been read on for long enough, or there is no time any more."""
        self._enough = True
        if self._left and self._task is not None and self._ending is None:
            self._task.cancel()  # nobody waits for its last part

    def reads_on(self, pace: Pace) -> bool:
        """Whether an answer that the gateway itself has stopped is read on for its usage, at the `pace` of its dial."""
        if self.drain is None:
            self.drain = self._begin_drain(None)
            if self.drain is not None and self.caller.on_leave != OnLeave.FINISH:
                pace.end_within(STOPPED_SECONDS)
        return self.drain is not None and not self._enough

    def _begin_drain(self, seconds: float | None) -> Drain | None:
        if self.caller.on_leave == OnLeave.STOP:
            return None
        return self._process.drains.begin(self, None if self.caller.on_leave == OnLeave.FINISH else seconds)

    def was_cut(self) -> GatewayError | None:
        """After a cancellation: what the client is told if `cut` was the reason; None otherwise."""
        if self._cut is not None and self._task is not None:
            self._task.uncancel()
        return self._cut

    # --- attempts ---------------------------------------------------------------------------------------------------

    def output_cap(self, candidate: Candidate, *, named: bool = False) -> int | None:
        """The cap to send with this dial; None when neither client, project, limit nor hard budget asks for one, and
        it need not be `named`.
        """
        assert self._held is not None
        cap, own = min(self._held.output_cap, candidate.output_cap), self.call.asked.output_cap
        if self._paid is not None:
            cap = min(cap, cap_paid(candidate, self._paid))
        asked = named or own is not None or self.caller.default_output_cap is not None
        if not (asked or self._held.hard or self.said or cap < candidate.offer.max_output):
            return None
        if cap != own:
            cap = min(cap, room(self.call, candidate, self._process.tokenizers))
        return max(1, cap - estimate(len(self.said.encode()))) if self.said else cap

    @property
    def seconds_left(self) -> float:
        """Of the time that the policy allows the whole request."""
        total = self.call.plan.policy.total_timeout
        return NEVER if total is None else max(0.0, total - (time.monotonic() - self._started))

    async def may_go_on(self, fault: UpstreamFault) -> bool:
        """Notes how the running attempt failed, and writes the next one if there may be one, before its dial.

        There is none after output (but for a text that is continued), after a fault of the request's own, past the
        policy's attempts or time, past the process's budget for retries, for a revoked key, or for a client that has
        left. Then `fault` is what the client is told: the last one.
        """
        self.attempt.failed(fault, self.call.id)
        let_go(fault)
        if self.drain is not None and not self._left:
            self.drain.close(self.attempt.reader is not None and self.attempt.reader.counted)
            self.drain = None
        now = time.monotonic()
        stop = await self._following(fault, now)
        if stop is not None and await self._write(stop):
            return True
        if fault.kind in _COME_BACK:
            self._say_when(fault, now)
        return False

    async def _following(self, fault: UpstreamFault, now: float) -> Stop | None:
        if self._left or len(self.attempts) >= (self.call.plan.policy.max_attempts or 1) or not self.seconds_left:
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
        alive: bool | None = None  # not known
        try:
            with suppress(DatabaseAway, TimeoutError):
                alive = await self._process.backbone.admission.attempt_again(item)
        finally:
            if not alive:
                attempt.given_up()
            if alive is None:
                row.status, row.fault = Status.CANCELLED.value, "not_dialled"
                self._lost.append(row)
        if alive:
            self._go_on_with(attempt)
            if not self.relayed:
                self._ttft_ms = None  # a whole answer may have begun and broken off unseen
        return bool(alive)

    def _attempt(self, stop: Stop) -> Attempt:
        candidate, offer = stop.candidate, stop.candidate.offer
        attempt = Attempt(
            self._process.health,
            stop,
            self.caller.organization,
            self.caller.key,
            self.call.plan.size_class,
            self.call.asked.stream,
        )
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
        attempt.row.offset_ms = _ms(self._started)
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
        ending = self._settle(_COMPLETED, None)
        assert self._bill is not None
        if self._last is None:
            attempt.reader.set_usage(self._bill.tokens)
        try:
            await ending
        except SpoolFull as error:
            raise unavailable(30) from error
        if self.call.conversation is not None:
            offer = attempt.candidate.offer.id
            self._process.seats.take(self.call.conversation, offer, time.monotonic(), self.call.seat_seconds)
        if self._last is not None:
            return self._last
        charge = self._bill.charge
        attempt.reader.set_cost(charge if charge is None else charge - ending.overrun)
        return explaining.final(attempt.reader.final(), self.call, self.attempts)

    async def fail(self, error: GatewayError, event: Callable[[GatewayError], bytes]) -> None:
        """Settles a failed one; returns when that is durable, or cannot be: nothing final goes out after it.

        `event` is how a stream tells of it, should it be kept. An answer that was complete when it was cut, or that
        nothing took, has been settled as such already.
        """
        ended = Status.CANCELLED if isinstance(self._cut, Unauthenticated | Forbidden) else Status.FAILED
        ending = self._ending or self._settle(ended, error, event)
        explaining.beside(error, self.call, self.attempts)
        with suppress(SpoolFull):
            await ending

    def _settle(
        self, status: Status, error: BaseException | None, event: Callable[[GatewayError], bytes] | None = None
    ) -> Ending:
        """Queues the settlement, synchronously."""
        assert self._held is not None
        whole = status is _COMPLETED
        if self._left:
            status = Status.CANCELLED
        ended = status.value
        ours = isinstance(error, Exception) and not isinstance(error, UpstreamFault) and not (self._cut or self._left)
        # Whose answer is too much to keep pays for it, and nobody for what was too much to send.
        ours = ours and not (isinstance(error, NoRoom) and self.attempt.reader is not None)
        owed = self._bill = bill(self.attempts, Estimate(self.call, self._process.tokenizers), ours=ours)
        self.attempt.left(ended)
        row = settlement(self.call, self._facts, self.attempts, self._held, owed, ended)
        if self._lost:
            row.tries += self._lost
            row.attempts += len(self._lost)
        row.hard = self._held.hard
        if (why := self._cut or error) is not None:
            row.error = _error_code(why)
        if self._left and self._cut is None:
            row.error = "client_left"
        row.queue_ms, row.duration_ms = self._queue_ms, _ms(self._started)
        if status is _COMPLETED or self.relayed:
            row.ttft_ms = self._ttft_ms
        self.call.settled = row
        if self.call.keeping is not None:
            self._keep(self.call.keeping, row, whole, error, event)
        self._ending = self._process.backbone.settler.settle(row)
        if self.drain is not None:
            self.drain.close(owed.basis == Basis.REPORTED)
        self._count(row, owed)
        if owed.basis is _REPORTED:
            learn(self._process.lengths, self.call, self.attempt.candidate, owed.tokens)
            learn_text(self._process.tokenizers, self.attempt.candidate, self.attempt.reader)
        return self._ending

    def _keep(
        self,
        keeping: Keeping,
        row: Settlement,
        whole: bool,
        error: BaseException | None,
        event: Callable[[GatewayError], bytes] | None,
    ) -> None:
        """What is told goes with the settlement, in one commit: so it is made before, and told as it was kept. Only a
        charge that a hard budget cuts is known later; the cost in the answer is then the whole.

        Kept is a whole answer, also one that nobody waits for any more, and what a provider's failure made of it. Not
        what was cut short because somebody left, the key ended or we stop; nor what says when to come back, as the same
        request again is what it asks for; nor what was never sent.
        """
        reader = self.attempt.reader
        if whole:
            assert reader is not None and self._bill is not None
            reader.set_usage(self._bill.tokens)
            reader.set_cost(self._bill.charge)
            self._last = explaining.final(reader.final(), self.call, self.attempts)
            row.kept = keeping.answered(self._last)
            return
        if (
            event is None
            or not isinstance(error, UpstreamFault)
            or not error.sent
            or error.retry_after is not None
            or self._left
        ):
            self._process.backbone.claims.give_back(keeping.claim)
            keeping.drop()
            return
        explaining.beside(error, self.call, self.attempts)
        if self.begun:
            self.failure = event(error)
            row.kept = keeping.answered(self.failure)
        else:
            error.headers["x-generation-id"] = self.call.id
            row.kept = keeping.refused(error)

    def _count(self, row: Settlement, owed: Bill) -> None:
        telemetry.generations.count(row.status)
        telemetry.tokens.count("prompt", row.prompt_tokens)
        telemetry.tokens.count("completion", row.completion_tokens)
        if row.suspect:
            telemetry.suspect.labels(row.provider).inc()
        if owed.unpriced:
            telemetry.unpriced.labels(row.model).inc()
            logger.error("%s: %s has no rate for %s", row.id, row.model, ", ".join(owed.unpriced))
        if owed.basis is _UNKNOWN:
            telemetry.uncounted.labels(row.provider).inc()
        reader = self.attempt.reader
        if reader is not None and reader.skipped:
            telemetry.skipped_events.labels(row.provider).inc(reader.skipped)


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)


def _error_code(error: BaseException) -> str:
    if isinstance(error, Unauthenticated):
        return "key_revoked"
    if isinstance(error, GatewayError):
        return error.code or error.type
    return "client_left"
