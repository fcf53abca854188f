"""One dial's account: which offer, with which credential, what became of it, and what its offer's health is told."""

import logging
import time
from uuid import UUID

from billing.backbone.settlement import Try
from billing.models import Basis
from billing.tokens import Tokens, estimate
from gateway.generation.estimate import Estimate
from gateway.generation.itinerary import Stop
from gateway.process import telemetry
from gateway.process.memory import Share
from gateway.protocols.sides import Answer
from gateway.upstream.model_name import over_model
from gateway.upstream.veil import veil_over
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from routing.health.health import Health
from routing.health.trials import Trial

logger = logging.getLogger(__name__)

_REPORTED = Basis.REPORTED  # an enum's members are slow to look up
# The provider's own word that it did nothing. After any other fault it may well have worked, and bill it.
_REFUSALS = frozenset(
    {
        *(Fault.AUTH, Fault.RATE_LIMITED, Fault.EXHAUSTED, Fault.OVERLOADED, Fault.SERVER_ERROR, Fault.REJECTED),
        Fault.FORBIDDEN_ADDRESS,
    }
)


class Attempt:
    """One dial of a generation, from before its row is written.

    - `candidate`, `credential`: where it goes; None: the provider takes no credential
    - `fresh`: it wants a new connection
    - `hidden`: what of its credential nobody may read in the provider's words
    - `claimed`: the probes it has taken; such a dial is seen through even when its client leaves
    - `row`: what will be stored of it
    - `service`: the class of service that the provider is asked for; empty: none
    - `memory`: what is kept of its answer
    - `reader`: of its answer, once there is one; `relayed`: the client has been sent something of that
    - `seen_off`: somebody else waits for its verdict
    - `fault`: how it failed
    """

    __slots__ = (
        *("candidate", "claimed", "credential", "fault", "fresh", "hidden", "memory", "reader", "relayed", "row"),
        *("seen_off", "service"),
        *("_health", "_organization", "_over", "_size_class", "_started", "_streamed", "_trial"),
    )

    def __init__(
        self, health: Health, stop: Stop, organization: UUID, key: UUID, size_class: int, streamed: bool
    ) -> None:
        self.candidate = stop.candidate
        self.credential = stop.credential
        self.claimed = stop.claimed
        self.fresh = stop.fresh
        self.hidden: tuple[str, ...] = ()  # until something of it is sent
        self.service = ""
        self.row: Try
        self.memory = Share(organization, key)
        self.reader: Answer | None = None
        self.fault: UpstreamFault | None = None
        self.relayed = self.seen_off = False
        self._health = health
        self._organization = organization
        self._size_class = size_class
        self._streamed = streamed
        self._trial: Trial | None = None
        self._started = time.monotonic()
        self._over = False

    @property
    def undecided(self) -> bool:
        """Whether it is a probe that has no verdict yet."""
        return bool(self.claimed) and not self._over and not (self._streamed and self.row.ttft_ms is not None)

    @property
    def served(self) -> str:
        """The class of service as it was served, in the provider's word; where that is none, as it was asked for."""
        tier = self.reader.tier if self.reader is not None else ""
        return self.service if tier in ("", "auto") else tier

    @property
    def goes_on(self) -> bool:
        """Whether its dial has begun and not ended."""
        return self._trial is not None and not self._over

    def begin(self) -> None:
        """The dial begins now."""
        self._started = time.monotonic()
        self._trial = self._health.begin(
            self.candidate.offer,
            self.credential,
            self._started,
            claimed=self.claimed,
            size_class=self._size_class,
            streamed=self._streamed,
            tenant=self._organization,
        )

    def first_event(self) -> None:
        """Notes the first meaningful event of a stream, or the first bytes of a whole answer."""
        if self.row.ttft_ms is None:
            now = time.monotonic()
            self.row.ttft_ms = round((now - self._started) * 1000)
            if self._streamed and self._trial is not None:
                self._trial.first_byte(now)

    def completed(self) -> None:
        """The answer is whole."""
        self._end("completed")
        self.acquitted()

    def failed(self, fault: UpstreamFault, generation: str) -> None:
        """The provider failed; `generation` is the id that the log names.

        Here its words become ours: whoever reads them, client, log or books, finds no secret in them that was sent; and
        a client finds our name for the model.
        """
        row = self.row
        self._end("failed")
        self.fault = fault
        if veil := veil_over(self.hidden):
            fault.hide(veil.over)
        if renamed := over_model(self.candidate.offer.upstream_model, self.candidate.model.slug):
            fault.rename(renamed)
        row.fault, row.upstream_status = fault.kind.value, fault.upstream_status
        self.condemned(fault)
        telemetry.faults.labels(row.provider, row.fault).inc()
        at = f" at {self.candidate.offer.provider.base_url}" if fault.kind is Fault.NOT_FOUND else ""
        logger.warning("%s: %s failed%s: %s, %r", generation, row.provider, at, row.fault, fault.detail)

    def left(self, status: str) -> None:
        """It ended without a verdict, as `status`; does nothing when it has ended."""
        if not self._over:
            self._end(status)
            if not self.seen_off:
                self.given_up()

    # --- the verdict, which may come after the end ---

    def acquitted(self) -> None:
        """The offer works."""
        if self._trial is not None:
            reader = self.reader
            assert reader is not None
            usage = reader.usage
            written = usage.completion if usage is not None else estimate(reader.relayed_bytes)
            if not written and not reader.relayed_bytes:
                written = 1  # an answer that says nothing, such as vectors, takes its time all the same
            self._trial.succeeded(time.monotonic(), written)

    def condemned(self, fault: UpstreamFault) -> None:
        """The offer, its credential or nobody is to blame."""
        if fault.stale:
            self.given_up()
        elif self._trial is not None:
            self._trial.failed(fault.kind, time.monotonic(), fault.retry_after, fault.upstream_status)

    def given_up(self) -> None:
        """No verdict will come."""
        now = time.monotonic()
        if self._trial is not None:
            self._trial.left(now)
        else:
            self._health.rests.release(self.claimed, now)
        self.claimed = ()

    def _end(self, status: str) -> None:
        if not self._over:
            self._over = True
            self.row.status = status
            self.row.duration_ms = round((time.monotonic() - self._started) * 1000)

    def used(self, estimate: Estimate, *, ours: bool = False) -> tuple[Tokens, Basis]:
        """What it used, and how that is known: the settlement rule for one attempt, see docs/design.md.

        `ours`: it was ended by a failure of the gateway's own.
        """
        reader, fault = self.reader, self.fault
        estimate.doubt(self.candidate, reader)
        if reader is not None and reader.counted:
            usage = reader.usage
            assert usage is not None
            # A half that is 0 though something was sent or said was not counted.
            if usage.prompt and (usage.completion or reader.empty):
                return usage, _REPORTED
        elif reader is not None and reader.counted_as_nothing:
            return Tokens(), _REPORTED
        elif not self.relayed and not (reader is not None and reader.complete):
            failure = None if fault is None or fault.made else fault
            if self._trial is None or (failure and (failure.kind in _REFUSALS or not failure.sent)):
                return Tokens(), Basis.NOTHING
            if (failure and (reader is None or reader.usage is None)) or ours:
                return Tokens(), Basis.UNKNOWN
        return estimate.of(self.candidate, reader), Basis.ESTIMATED
