"""Everything that rests just now, in one process's memory, and what it was told by the others."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from routing.health.breaker import PROBE_SECONDS, Rest, Subject, rest_seconds
from routing.health.faults import Fault

REMEMBERED = 60.0  # seconds after a recovery in which the next rest counts as one more in a row, at the least
CLOCKS = 0.5  # seconds by which a rest may differ between two processes


class News(StrEnum):
    """What happened to a rest."""

    OPENED = "opened"  # or prolonged, after a probe that failed
    CLOSED = "closed"
    RELEASED = "released"  # its probe ended without a verdict


@dataclass(frozen=True, slots=True)
class Heard:
    """A rest as another process tells it: seconds are from now, and may be past."""

    subject: Subject
    cause: Fault
    seconds: float
    probed_seconds: float
    count: int
    closed: bool
    tenant: UUID | None = None


class Past(NamedTuple):
    """What is remembered of a rest that ended: which in a row it was, until when that counts, and when it ended."""

    number: int
    until: float
    ended: float


class Rests:
    """The open rests. `tell` hears of everything that this process decides, at once and outside any await; `changed`
    whenever there is more or less to rest; `recovered` of each rest that is over, whoever found out.

    A subject rests for nobody, for one tenant, or for all. What one tenant's requests find out makes it rest for these;
    when another tenant's find out the same, it is no longer one tenant's affair, and a rest for all begins. `tenants`
    are those that something rests for alone.
    """

    def __init__(
        self,
        tell: Callable[[News, Rest, float], None],
        changed: Callable[[], None],
        recovered: Callable[[Rest, float], None],
    ) -> None:
        self.open: dict[Subject, Rest] = {}
        self.tenants: frozenset[UUID] = frozenset()
        self._past: dict[tuple[Subject, UUID | None], Past] = {}
        self._tell = tell
        self._told_changed = changed
        self._recovered = recovered

    def find(self, subject: Subject, tenant: UUID | None) -> Rest | None:
        """The rest of `subject` that holds for a tenant."""
        rest = self.open.get(subject)
        return rest if rest is None or rest.holds_for(tenant) else None

    def rest(
        self,
        subject: Subject,
        cause: Fault,
        now: float,
        cooldown: float,
        least: float = 0.0,
        *,
        tenant: UUID | None = None,
        probed: bool = False,
        started: float = math.inf,
    ) -> None:
        """Rests `subject`, longer each time in a row, `least` seconds at least.

        `tenant`: whose request says so; None: it is known without any. `probed`: it was the probe of what rested.
        `started`: when the call began that says so: it grows no rest that it did not know of.
        """
        self._open(
            subject, cause, now, lambda count: max(rest_seconds(cooldown, count), least), least, tenant, probed, started
        )

    def cool(
        self,
        subject: Subject,
        cause: Fault,
        now: float,
        seconds: float,
        *,
        tenant: UUID | None = None,
        probed: bool = False,
        started: float = math.inf,
    ) -> None:
        """Rests `subject` for so long, however often it has been."""
        self._open(subject, cause, now, lambda _: seconds, seconds, tenant, probed, started)

    def _open(
        self,
        subject: Subject,
        cause: Fault,
        now: float,
        seconds: Callable[[int], float],
        least: float,
        tenant: UUID | None,
        probed: bool,
        started: float,
    ) -> None:
        before = self.open.get(subject)
        if before is not None and not (before.tenant is None or before.tenant == tenant):
            # Another tenant's, and so for all from now on; unless that was long ago.
            if now <= before.until + REMEMBERED:
                tenant = None
            before = None
        if before is None:
            past = self._past.get((subject, tenant), Past(0, 0.0, -math.inf))
            if started < past.ended:
                return
            count = past.number + 1 if now <= past.until else 1
            rest = Rest(subject, cause, now, now + seconds(count), count)
        elif probed or (started >= before.since and now >= before.until and now >= before.probed_until):
            tenant, count = before.tenant, before.count + 1
            rest = Rest(subject, cause, now, now + seconds(count), count)
        elif now + least > before.until:  # one of several that find out the same
            tenant = before.tenant
            rest = replace(before, cause=cause, until=now + least)
        else:
            return
        rest.unheard, rest.tenant = True, tenant
        self.open[subject] = rest
        self._changed()
        self._tell(News.OPENED, rest, now)

    def _changed(self) -> None:
        self.tenants = frozenset(rest.tenant for rest in self.open.values() if rest.tenant is not None)
        self._told_changed()

    def close(self, subject: Subject, now: float, *, tell: bool = True) -> None:
        """The subject may be used again."""
        rest = self.open.pop(subject, None)
        if rest is None:
            return
        self._past = {of: past for of, past in self._past.items() if now <= past.until}
        until = now + max(REMEMBERED, 2 * (rest.until - rest.since))
        self._past[subject, rest.tenant] = Past(rest.count, until, now)
        self._changed()
        if tell:
            self._tell(News.CLOSED, rest, now)
        self._recovered(rest, now)

    def claim(self, offer: int, credential: UUID | None, now: float, tenant: UUID | None = None) -> list[Subject]:
        """Takes the probes of what is due; none while another one has them."""
        due = [
            rest for rest in self._holding(offer, credential, tenant) if rest.until <= now and rest.probed_until <= now
        ]
        for rest in due:
            rest.probed_until = now + PROBE_SECONDS
        if due:
            self._changed()
        return [rest.subject for rest in due]

    def release(self, claimed: Iterable[Subject], now: float, *, tell: bool = True) -> None:
        """Gives back probes that ended without a verdict; the next request may be the probe."""
        for subject in claimed:
            rest = self.open.get(subject)
            if rest is not None and rest.probed_until > now:
                rest.probed_until = 0.0
                self._changed()
                if tell:
                    self._tell(News.RELEASED, rest, now)

    def busy(self, offer: int, credential: UUID | None, now: float, tenant: UUID | None = None) -> bool:
        """Whether an offer with this credential may not be used by a request without its probe."""
        return any(now < rest.until or now < rest.probed_until for rest in self._holding(offer, credential, tenant))

    def _holding(self, offer: int, credential: UUID | None, tenant: UUID | None) -> Iterator[Rest]:
        for subject in subjects(offer, credential):
            if (rest := self.find(subject, tenant)) is not None:
                yield rest

    def defer(self, subject: Subject, until: float) -> None:
        """Leaves the probe of `subject` to others until then."""
        rest = self.open.get(subject)
        if rest is not None:
            rest.probed_until = until
            self._changed()

    def hear(self, rows: Iterable[Heard], now: float) -> None:
        """Takes over what other processes decided."""
        for row in rows:
            if row.closed:
                self.close(row.subject, now, tell=False)
                continue
            before = self.open.get(row.subject)
            until = now + row.seconds
            if before is not None and before.unheard and until < before.until - CLOCKS:
                continue  # what this process decided is still on its way to where the row was read from
            if before is not None and before.unheard and row.count == before.count and until <= before.until + CLOCKS:
                until = min(until, before.until)  # its way there and back is no reason: a client was told when it ends
            since = now if before is None else before.since
            self.open[row.subject] = Rest(
                row.subject, row.cause, since, until, row.count, now + row.probed_seconds, tenant=row.tenant
            )
        self._changed()


def subjects(offer: int, credential: UUID | None) -> tuple[Subject, ...]:
    """What may rest of an offer and the credential it is used with."""
    if credential is None:
        return (Subject(offer, None),)
    return Subject(offer, None), Subject(None, credential), Subject(offer, credential)
