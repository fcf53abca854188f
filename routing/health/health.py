"""What one process knows of its offers: who may be used, with which credential, and how fast that will be.

In memory and without I/O; the time is always an argument, in monotonic seconds, so that a simulation can drive it.
Requests read `standings`; what becomes of each dial is told to the `Trial` that `begin` gives.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from routing.catalog import Credential, Offer
from routing.health.breaker import Rest, Subject
from routing.health.faults import Blame, Fault
from routing.health.latency import SIZE_CLASSES, TYPICAL_OUTPUT, Published
from routing.health.records import Record
from routing.health.rests import Heard, News, Rests, subjects
from routing.health.trials import Trial

FRESH = 1.0  # seconds a standing is good for when nothing happens
FRESH_BUSY = 0.2  # and while calls are waiting for their first token


class State(StrEnum):
    """Whether an offer may be used."""

    USABLE = "usable"
    PROBE = "probe"  # its rest is over: this request may be the one that tries it
    LAST = "last"  # rests, but so do too many of its kind: it may follow those that do not
    RESTING = "resting"  # its breaker is open, or its probe is out
    COOLING = "cooling"  # rate limited, or no credential may be used for now
    REFUSED = "refused"  # forced open by the operator, or without any credential


USABLE, PROBE, LAST = State.USABLE, State.PROBE, State.LAST
RESTING, COOLING, REFUSED = State.RESTING, State.COOLING, State.REFUSED


class Standing(NamedTuple):
    """An offer as it stands at a moment, for prompts of one size class.

    `credential` is the one to use (None: the provider takes none); `until` when it may be used again, where it may
    not, and `cause` why. `seconds` is how long a typical whole answer is expected to take with the load it has now,
    `ttft` how long to its first token; `throughput` is tokens a second; `uptime` 0 to 1; None: not known. `known` is
    False for an offer that is new, or newly recovered, and has few calls yet.
    """

    state: State
    credential: Credential | None
    until: float
    seconds: float | None
    ttft: float | None
    throughput: float | None
    uptime: float | None
    known: bool
    in_flight: int
    cause: Fault | None = None

    @property
    def probes(self) -> bool:
        """Whether the request that is sent there is its one probe."""
        return self.state is PROBE


def _nobody(news: News, rest: Rest, now: float) -> None:
    """The one to tell where there is only one process."""


class Health:
    """What this process knows. `tell` hears of every rest this process opens or closes, and shares it."""

    def __init__(self, tell: Callable[[News, Rest, float], None] = _nobody) -> None:
        self.rests = Rests(tell, self._forget_standings, self._recovered)
        self._records: dict[int, Record[Standing]] = {}
        self._published: dict[tuple[str, str], list[Published | None]] = {}
        self._learnt_at = 0.0

    def standings(
        self,
        offers: Sequence[Offer],
        size_class: int,
        now: float,
        tenant: UUID | None = None,
        account: str = "",
    ) -> list[Standing]:
        """How each of one model's `offers` stands for a tenant's requests, in their order.

        `account`: no other may be used, see `Offer.opens`.
        """
        found = []
        plain = True
        records = self._records
        alone = tenant in self.rests.tenants if self.rests.tenants else False
        for offer in offers:
            record = records.get(offer.id)
            if record is None or record.offer is not offer:
                record = self._record(offer)
            whose = tenant if record.failing and tenant in record.failing else None
            of = size_class if whose is None else (size_class, whose)
            standing = record.standings.get(of)
            if alone or account:
                standing = self._look(record, size_class, now, tenant, account)
            elif standing is None or now >= record.fresh_until[of]:
                if whose is not None:
                    record.find_failing(now)
                standing = record.standings[of] = self._look(record, size_class, now, whose)
                until = standing.until
                good_for = now + (FRESH_BUSY if record.in_flight else FRESH)
                record.fresh_until[of] = min(good_for, until) if until > now else good_for
            if standing.state is not USABLE:
                plain = False
            found.append(standing)
        return found if plain else self._spare(offers, found)

    def begin(
        self,
        offer: Offer,
        credential: Credential | None,
        now: float,
        probe: bool = False,
        *,
        size_class: int = 0,
        streamed: bool = True,
        claimed: Sequence[Subject] = (),
        tenant: UUID | None = None,
    ) -> Trial:
        """A dial begins. `probe`: it is the one that tries what rested, as its standing said.

        Where several processes share what rests, `claimed` is the probe they agreed upon. `tenant` is whose request it
        is: what its dials alone find out rests nothing for others.
        """
        if probe and not claimed:
            claimed = self.claim(offer, credential, now, tenant)
        return Trial(self.rests, self._record(offer), credential, now, size_class, streamed, claimed, tenant)

    def claim(
        self, offer: Offer, credential: Credential | None, now: float, tenant: UUID | None = None
    ) -> list[Subject]:
        """Takes the probe of an offer, before its dial; empty when there is none to have.

        What is claimed must be begun or given back with `rests.release`.
        """
        return self.rests.claim(offer.id, None if credential is None else credential.id, now, tenant)

    def learn(self, rows: Iterable[Published], now: float) -> None:
        """Takes over the published statistics, in place of the ones before."""
        self._published = {}
        self._learnt_at = now
        for row in rows:
            classes = self._published.setdefault((row.provider, row.upstream_model), [None] * SIZE_CLASSES)
            before = classes[row.size_class]
            # Two models may be sold from the same place, which is then equally fast for both.
            if before is None or row.count > before.count:
                classes[row.size_class] = row
        for record in self._records.values():
            record.published = self._published.get((record.offer.provider.slug, record.offer.upstream_model))
            record.find_failing(now)
        self._forget_standings()

    def hear(self, rows: Iterable[Heard], now: float) -> None:
        """Takes over what other processes decided."""
        self.rests.hear(rows, now)

    def _recovered(self, rest: Rest, now: float) -> None:
        """An offer's breaker closed: what was known of it before holds no more."""
        offer, credential = rest.subject
        record = self._records.get(offer) if offer is not None and credential is None else None
        if record is None:
            return
        if rest.tenant is None:
            record.recover(now)
        else:
            record.outcomes.forget(rest.tenant)

    def _forget_standings(self) -> None:
        for record in self._records.values():
            record.standings.clear()

    def _record(self, offer: Offer) -> Record[Standing]:
        record = self._records.get(offer.id)
        if record is None:
            record = self._records[offer.id] = Record(offer)
        elif record.offer is offer:
            return record
        record.offer = offer
        record.published = self._published.get((offer.provider.slug, offer.upstream_model))
        record.find_failing(self._learnt_at)
        record.standings.clear()
        return record

    def _look(
        self,
        record: Record[Standing],
        size_class: int,
        now: float,
        tenant: UUID | None = None,
        account: str = "",
    ) -> Standing:
        state, until, credential, cause = self._state(record.offer, now, tenant, account)
        ttft, token, known = record.pace(size_class, now, now - self._learnt_at)
        seconds = None if ttft is None else ttft + TYPICAL_OUTPUT * (token or 0.0)
        return Standing(
            state,
            credential,
            until,
            seconds,
            ttft,
            1 / token if token else None,
            record.uptime(size_class, now, now - self._learnt_at, tenant),
            known,
            record.in_flight,
            cause,
        )

    def _state(
        self, offer: Offer, now: float, tenant: UUID | None, account: str
    ) -> tuple[State, float, Credential | None, Fault | None]:
        credentials = offer.credentials
        if account:
            credentials = tuple(one for one in credentials if one.id.hex == account)
        if offer.forced == "open" or (not credentials and offer.provider.auth_style != "none"):
            return REFUSED, math.inf, None, None
        first = credentials[0] if credentials else None
        if not self.rests.open:
            return USABLE, 0.0, first, None
        find = self.rests.find
        rest = find(Subject(offer.id, None), tenant)
        probe = False
        if rest is not None and not (offer.forced == "closed" and rest.blame is Blame.OFFER):
            if now < rest.until:
                return RESTING if rest.blame is Blame.OFFER else COOLING, rest.until, first, rest.cause
            if now < rest.probed_until:
                return RESTING, rest.probed_until, first, rest.cause
            probe = True
        if first is None:
            return PROBE if probe else USABLE, 0.0, None, None
        soonest, probing, cause = math.inf, False, None
        for credential in credentials:
            rests = [found for of in subjects(offer.id, credential.id)[1:] if (found := find(of, tenant))]
            until = max((found.until for found in rests), default=0.0)
            probed = max((found.probed_until for found in rests), default=0.0)
            if until <= now and probed <= now:
                return PROBE if probe or rests else USABLE, 0.0, credential, None
            probing = probing or until <= now
            if max(until, probed) < soonest:
                soonest, cause = max(until, probed), max(rests, key=lambda found: found.until).cause
        return RESTING if probing else COOLING, soonest, first, cause

    def _spare(self, offers: Sequence[Offer], found: list[Standing]) -> list[Standing]:
        """Lets no more than half of a model's offers rest, and none when there would be no other left.

        A request whose other offers failed then has somewhere to go, and an outage of everything is met with requests
        and not with silence.
        """
        resting = [index for index, standing in enumerate(found) if standing.state is RESTING]
        if not resting:
            return found
        if any(standing.state is USABLE for standing in found):
            open = self.rests.open
            most = max(1, sum(standing.state is not REFUSED for standing in found) // 2)
            # Those that have rested for the longest have failed most often.
            resting.sort(key=lambda index: getattr(open.get(Subject(offers[index].id, None)), "since", math.inf))
            del resting[:most]
        for index in resting:
            found[index] = found[index]._replace(state=LAST)
        return found
