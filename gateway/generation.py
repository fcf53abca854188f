"""One request's account: its hold, its attempts, and the settlement that ends it, exactly once, on every exit.

`async with Generation(...)` holds on the way in and settles on the way out, whatever the way out is: an answer, a
fault, a client that left, a revoked key, a cancelled task. Settling is synchronous up to the queue of the process's
settler, so no cancellation comes between.
"""

import asyncio
import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from accounts.callers import Caller
from billing import pricing
from billing.admission import AttemptItem, Held, HoldItem, Refused
from billing.batches import DatabaseAway
from billing.ids import new_id
from billing.models import Basis, Status
from billing.settlement import Settlement, Try
from billing.spool import SpoolFull
from billing.tokens import Tokens, estimate
from gateway import telemetry
from gateway.deadline import Deadline
from gateway.errors import (
    Fault,
    GatewayError,
    InsufficientCredit,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UpstreamFault,
)
from gateway.planning import Call
from gateway.process import Process
from gateway.protocols.openai_chat import AnswerReader
from routing.plan import Candidate

logger = logging.getLogger(__name__)

REVOKED = "This API key has been revoked, or may not be used any more."


class Generation:
    """The account of one `Call`. One task owns it."""

    def __init__(self, process: Process, call: Call) -> None:
        self.call = call
        self.begun = False  # the client has been sent a byte
        self.relayed = False  # the client has been sent something meaningful
        self.reader: AnswerReader | None = None
        self.deadline: Deadline  # of the task that holds
        self._process = process
        self._held: Held | None = None
        self._candidate = call.offers[0]
        self._tries: list[Try] = []
        self._started = time.monotonic()
        self._try_started = self._started
        self._ttft_ms: int | None = None
        self._durable: asyncio.Future[None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._cut = False
        self._charge: Decimal | None = None  # once settled

    @property
    def caller(self) -> Caller:
        """Who calls; the registry of open calls reads it."""
        return self.call.caller

    async def __aenter__(self) -> Self:
        """Holds. Raises what the client is told when there is no room; nothing has happened then."""
        if self._process.backbone.spool.full:
            raise self._unavailable(30)
        call, first = self.call, self.call.offers[0]
        worst = pricing.dearest(candidate.worst for candidate in call.offers)
        attempt = new_id()
        item = HoldItem(
            id=call.id,
            attempt=attempt,
            key=call.caller.key,
            model=call.model.slug,
            fixed=worst.fixed,
            rate=worst.rate,
            cap=max(candidate.output_cap for candidate in call.offers),
            min_cap=min(call.caller.min_output_cap, max(candidate.output_cap for candidate in call.offers)),
            tokens=call.input_tokens,
            copies=call.asked.n,
            facts=self._facts(first),
        )
        self._task = asyncio.current_task()
        assert self._task is not None
        self.deadline = Deadline(self._task)
        # Open from now on: the key may be revoked after the hold has committed and before we hear of it.
        self._process.open_calls.add(self)
        try:
            self._held = await self._hold(item)
        except BaseException:
            self._process.open_calls.remove(self)
            self.deadline.close()
            raise
        self._tries.append(self._try(attempt, 1, first, self._held.admitted_at))
        return self

    async def _hold(self, item: HoldItem) -> Held:
        try:
            return await self._process.backbone.admission.hold(item)
        except Refused as refused:
            raise self._refusal(refused) from refused
        except DatabaseAway as error:
            raise self._unavailable(1) from error
        except asyncio.CancelledError:
            if error_of_cut := self.was_cut():
                raise error_of_cut from None
            raise

    def _unavailable(self, retry_after: int) -> Unavailable:
        return Unavailable(
            "Paid requests are not taken just now. Try again shortly.",
            code="billing_unavailable",
            retry_after=retry_after,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Settles unless that has been done."""
        self._process.open_calls.remove(self)
        self.deadline.close()
        if self._durable is None:
            self._settle(Status.FAILED if isinstance(error, GatewayError) else Status.CANCELLED, error)

    def cut(self) -> None:
        """The key may not be used any more: stops the call, wherever it waits."""
        if self._task is not None and not self._cut:
            self._cut = True
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
        asked = self.call.asked.output_cap is not None or self.caller.default_output_cap is not None
        return cap if asked or cap < candidate.offer.max_output else None

    async def may_go_on(self, fault: UpstreamFault) -> bool:
        """Notes how the running attempt failed, and writes the next one if there may be one, before its dial.

        There is none after output, after a fault of the request's own, after the last offer, or for a revoked key.
        """
        self._failed(fault)
        if self.relayed or not fault.retryable or len(self._tries) == len(self.call.offers):
            return False
        attempt, number, candidate = new_id(), len(self._tries) + 1, self.call.offers[len(self._tries)]
        item = AttemptItem(
            attempt, self.call.id, number, candidate.offer.provider.slug, candidate.offer.upstream_model,
            candidate.model.slug, self.caller.key,
        )  # fmt: skip
        try:
            if not await self._process.backbone.admission.attempt_again(item):
                return False
        except (DatabaseAway, TimeoutError):
            return False
        self._candidate = candidate
        self._try_started = time.monotonic()
        self.reader = None
        self._tries.append(self._try(attempt, number, candidate, datetime.now(UTC)))
        return True

    def _failed(self, fault: UpstreamFault) -> None:
        attempt = self._tries[-1]
        attempt.status, attempt.fault = "failed", fault.kind.value
        attempt.upstream_status = fault.upstream_status
        attempt.duration_ms = _ms(self._try_started)
        telemetry.faults.labels(attempt.provider, attempt.fault).inc()
        if fault.kind is not Fault.REJECTED:  # that one's words are the client's, and may quote what it asked
            logger.warning("%s: %s failed: %s, %r", self.call.id.hex, attempt.provider, attempt.fault, fault.detail)

    def first_event(self) -> None:
        """Notes the first meaningful event."""
        if self._ttft_ms is None:
            self._ttft_ms = _ms(self._started)
            self._tries[-1].ttft_ms = _ms(self._try_started)
            telemetry.first_token(self._tries[-1].provider).observe(self._ttft_ms / 1000)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def complete(self) -> None:
        """Settles a whole answer; returns when that is durable. Raises `Unavailable` when nothing takes it."""
        assert self.reader is not None
        tokens, _ = self._tokens()
        self.reader.set_usage(tokens)
        try:
            await asyncio.shield(self._settle(Status.COMPLETED, None))
        except SpoolFull as error:
            raise self._unavailable(30) from error
        self.reader.set_cost(self._charge)

    async def fail(self, error: GatewayError) -> None:
        """Settles a failed one; returns when that is durable, or cannot be: nothing final goes out after it.

        An answer that was complete when it was cut, or that nothing took, has been settled as such already.
        """
        durable = self._durable or self._settle(Status.CANCELLED if self._cut else Status.FAILED, error)
        with suppress(SpoolFull):
            await asyncio.shield(durable)

    def _tokens(self) -> tuple[Tokens, Basis]:
        reader = self.reader
        if reader is not None and reader.usage is not None:
            return reader.usage, Basis.REPORTED
        if reader is None or not (self.relayed or reader.complete):
            return Tokens(), Basis.NOTHING
        return Tokens(estimate(self.call.asked.text_bytes), estimate(reader.relayed_bytes)), Basis.ESTIMATED

    def _settle(self, status: Status, error: BaseException | None) -> "asyncio.Future[None]":
        """Queues the settlement, synchronously."""
        assert self._held is not None
        call, caller, held, candidate = self.call, self.caller, self._held, self._candidate
        if status is Status.COMPLETED or self.relayed:
            tokens, basis = self._tokens()
        else:
            tokens, basis = Tokens(), Basis.NOTHING
        priced = pricing.price(tokens, candidate.rates) if basis is not Basis.NOTHING else NOTHING
        charge, overrun = priced.charge, Decimal(0)
        if held.hard and charge is not None and held.money is not None and charge > held.money:
            charge, overrun, basis = held.money, charge - held.money, Basis.CAPPED
        attempt = self._tries[-1]
        if attempt.status == "dialling":
            attempt.status = status.value
            attempt.duration_ms = _ms(self._try_started)
        reader = self.reader
        suspect = reader is not None and reader.usage_suspect
        settlement = Settlement(
            **self._facts(candidate),
            id=call.id,
            key=caller.key,
            model=candidate.model.slug,
            created_at=held.admitted_at,
            settled_at=datetime.now(UTC),
            status=status.value,
            basis=basis.value,
            error=_error_code(error, self._cut),
            counters=held.counters,
            tries=self._tries,
            attempts=len(self._tries),
            upstream_id=reader.upstream_id if reader else "",
            finish_reason=(reader.finish_reason or "") if reader else "",
            native_finish_reason=(reader.native_finish_reason or "") if reader else "",
            ttft_ms=self._ttft_ms,
            duration_ms=_ms(self._started),
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            cached_tokens=tokens.cached,
            cache_write_5m_tokens=tokens.cache_write_5m,
            cache_write_1h_tokens=tokens.cache_write_1h,
            audio_input_tokens=tokens.audio_input,
            image_input_tokens=tokens.image_input,
            reasoning_tokens=tokens.reasoning,
            audio_output_tokens=tokens.audio_output,
            web_searches=tokens.web_searches,
            suspect=suspect,
            charge=charge,
            provider_cost=priced.cost,
            overrun=overrun,
            arithmetic=[
                {
                    "item": line.item,
                    "quantity": line.quantity,
                    "cost": _text(line.rate.cost),
                    "charge": _text(line.rate.charge),
                }
                for line in priced.lines
            ],
            plan=call.plan.record(),
        )
        self._charge = charge
        self._durable = self._process.backbone.settler.settle(settlement)
        self._count(status, tokens, charge, suspect)
        return self._durable

    def _count(self, status: Status, tokens: Tokens, charge: Decimal | None, suspect: bool) -> None:
        telemetry.ended(status.value).inc()
        telemetry.prompt_tokens.inc(tokens.prompt)
        telemetry.completion_tokens.inc(tokens.completion)
        if suspect:
            telemetry.suspect.labels(self._tries[-1].provider).inc()
        if charge is None:
            telemetry.unpriced.labels(self.call.model.slug).inc()
        if self.reader is not None and self.reader.skipped:
            telemetry.skipped_events.labels(self._tries[-1].provider).inc(self.reader.skipped)

    def _facts(self, candidate: Candidate) -> dict[str, Any]:
        """What a usage row says of a call before it is dialled; the hold keeps it for the case that we die."""
        caller, asked = self.caller, self.call.asked
        return {
            "organization": caller.organization,
            "project": caller.project,
            "organization_slug": caller.organization_slug,
            "project_slug": caller.project_slug,
            "key_name": caller.name,
            "provider": candidate.offer.provider.slug,
            "upstream_model": candidate.offer.upstream_model,
            "tariff_version": candidate.tariff_version,
            "stream": asked.stream,
            "end_user": asked.end_user or "",
            "metadata": asked.metadata,
        }

    def _try(self, id: UUID, number: int, candidate: Candidate, started_at: datetime) -> Try:
        offer = candidate.offer
        return Try(
            id, self.call.id, number, offer.provider.slug, offer.upstream_model, started_at, model=candidate.model.slug
        )

    def _refusal(self, refused: Refused) -> GatewayError:
        caller = self.caller
        whose = {caller.key: "key", caller.project: "project", caller.organization: "organization"}
        subject = whose.get(refused.subject, "key") if refused.subject else "key"
        limit = f"{refused.limit.normalize():f}" if refused.limit is not None else "?"
        match refused.verdict:
            case "key":
                return Unauthenticated(REVOKED)
            case "credit":
                return InsufficientCredit(
                    f"The {subject}'s budget of ${limit} does not cover this request at its worst. "
                    "Raise the budget, or ask for fewer output tokens."
                )
            case "unpriced":
                return InsufficientCredit(
                    f"The price of '{self.call.model.slug}' is unknown and a hard budget applies.",
                    code="unknown_price",
                )
        words = {"requests": "requests a minute", "tokens": "tokens a minute", "open": "open requests"}
        return RateLimited(
            f"The {subject}'s limit of {limit} {words[refused.verdict]} is reached.",
            retry_after=refused.retry_after,
            headers={
                f"x-ratelimit-limit-{refused.verdict}": limit,
                f"x-ratelimit-remaining-{refused.verdict}": "0",
                f"x-ratelimit-reset-{refused.verdict}": f"{refused.retry_after}s",
            },
        )


NOTHING = pricing.Priced(Decimal(0), Decimal(0), ())


def _ms(since: float) -> int:
    return round((time.monotonic() - since) * 1000)


def _text(price: Decimal | None) -> str | None:
    return None if price is None else f"{price:f}"


def _error_code(error: BaseException | None, cut: bool) -> str:
    if cut:
        return "key_revoked"
    if isinstance(error, GatewayError):
        return error.code or error.type
    return "" if error is None else "client_left"
