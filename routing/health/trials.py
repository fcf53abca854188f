"""One dial, from the health's point of view."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from routing.catalog import Credential
from routing.health.breaker import Evidence, Subject, cool_seconds
from routing.health.faults import Blame, Fault, blame
from routing.health.records import Record
from routing.health.rests import Rests, subjects


class Trial:
    """Ends exactly once, by `succeeded`, `failed` or `left`; what is told afterwards changes nothing."""

    __slots__ = (
        "_claimed", "_credential", "_ended", "_first", "_record", "_rests", "_size_class", "_started",
        "_streamed", "_tenant",
    )  # fmt: skip

    def __init__(
        self, rests: Rests, record: Record[Any], credential: Credential | None, now: float, size_class: int,
        streamed: bool, claimed: Sequence[Subject], tenant: UUID | None,
    ) -> None:  # fmt: skip
        self._rests = rests
        self._tenant = tenant
        self._record = record
        self._credential = credential
        self._started = now
        self._size_class = size_class
        self._streamed = streamed
        self._claimed = claimed
        self._first: float | None = None
        self._ended = False
        record.in_flight += 1
        pace = record.paces[size_class]
        if streamed:
            pace.waiting += 1
            pace.waiting_began += now
        else:
            pace.whole += 1
            pace.whole_began += now
        record.standings.clear()

    def first_byte(self, now: float) -> None:
        """A stream's first token came, which is verdict enough for a probe."""
        if self._ended or self._first is not None or not self._streamed:
            return
        self._first = now
        self._waits_no_more()
        self._record.first_token(self._size_class, now - self._started, now)
        self._record.standings.clear()
        self._answered(now)

    def succeeded(self, now: float, output_tokens: int = 0) -> None:
        """The answer is complete."""
        if not self._end():
            return
        record, size_class = self._record, self._size_class
        if not self._streamed:
            record.whole(size_class, now - self._started, output_tokens, now)
        elif self._first is not None and output_tokens > 1:
            record.rest_of_stream(size_class, now - self._first, output_tokens - 1, now)
        if self._first is None:
            self._answered(now)
        record.outcomes.good(now)

    def failed(self, fault: Fault, now: float, retry_after: float | None = None, status: int | None = None) -> None:
        """The dial came to nothing. `retry_after` is what the provider asked for, in seconds; `status` its HTTP one."""
        if not self._end():
            return
        blamed = blame(fault)
        if fault is Fault.TIMEOUT:
            self._took_at_least(now)
        if blamed is Blame.OFFER or (blamed is Blame.CREDENTIAL and self._credential is None):
            self._offer_failed(fault, now, retry_after)
        else:
            self._limited_or_refused(blamed, fault, now, retry_after, status)

    def _limited_or_refused(
        self, blamed: Blame, fault: Fault, now: float, retry_after: float | None, status: int | None
    ) -> None:
        offer, rests = self._record.offer, self._rests
        credential = None if self._credential is None else self._credential.id
        if credential is not None or blamed is Blame.NOBODY:
            self._answered(now, credential_taken=blamed is Blame.NOBODY)
        # Else it is the offer itself that is limited, and its rest goes on.
        cooldown = offer.provider.cooldown
        if blamed is Blame.COOL:
            subject, seconds = Subject(offer.id, credential), cool_seconds(cooldown, retry_after)
            rests.cool(subject, fault, now, seconds, **self._witness(subject))
        elif blamed is Blame.CREDENTIAL:
            # A 403 speaks of what the credential may not do here, and not of what it is.
            subject = Subject(offer.id if status == 403 else None, credential)
            rests.rest(subject, fault, now, cooldown, **self._witness(subject))
        rests.release(self._claimed, now)

    def _witness(self, subject: Subject) -> Any:
        """Who says so: see `Rests.rest`."""
        return {"tenant": self._tenant, "probed": subject in self._claimed, "started": self._started}

    def left(self, now: float) -> None:
        """It ended without a verdict: the client left, or another dial won."""
        if self._end():
            self._took_at_least(now)
            self._rests.release(self._claimed, now)

    def _end(self) -> bool:
        if self._ended:
            return False
        self._ended = True
        self._record.in_flight -= 1
        if not self._streamed:
            pace = self._record.paces[self._size_class]
            pace.whole -= 1
            pace.whole_began -= self._started
        elif self._first is None:
            self._waits_no_more()
        self._record.standings.clear()
        return True

    def _waits_no_more(self) -> None:
        pace = self._record.paces[self._size_class]
        pace.waiting -= 1
        pace.waiting_began = pace.waiting_began - self._started if pace.waiting else 0.0

    def _took_at_least(self, now: float) -> None:
        """The first token would have come later than now, which is news if it should have been there."""
        pace = self._record.paces[self._size_class]
        waited = now - self._started
        if self._first is None and self._streamed and waited > pace.ttft.value():
            pace.ttft.observe(waited, now)

    def _answered(self, now: float, *, credential_taken: bool = True) -> None:
        """The offer, and the credential it was used with, work: what rested for this tenant may be used again.

        A call that began before the rest says nothing about it.
        """
        offer = self._record.offer
        if not self._rests.open:
            return
        credential = None if self._credential is None else self._credential.id
        for subject in subjects(offer.id, credential)[: None if credential_taken else 1]:
            rest = self._rests.find(subject, self._tenant)
            if rest is not None and rest.since <= self._started:
                self._rests.close(subject, now)

    def _offer_failed(self, fault: Fault, now: float, retry_after: float | None) -> None:
        record, rests = self._record, self._rests
        subject, provider = Subject(record.offer.id, None), record.offer.provider
        least = 0.0 if retry_after is None else cool_seconds(0.0, retry_after)
        others = [claimed for claimed in self._claimed if claimed != subject]
        began = self._started if self._first is None else self._first
        if rests.find(subject, self._tenant) is not None:
            rests.rest(subject, fault, now, provider.cooldown, least, **self._witness(subject))
        elif began >= record.recovered_at:
            evidence = record.outcomes.bad(now, provider.failure_threshold, self._tenant)
            record.find_failing(now)
            if evidence is not Evidence.NONE and record.offer.forced != "closed":
                tenant = self._tenant if evidence is Evidence.OWN else None
                rests.rest(subject, fault, now, provider.cooldown, least, tenant=tenant, started=began)
        rests.release(others, now)
