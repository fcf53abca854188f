"""Everything that rests just now, in one process's memory, and what it was told by the others."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
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


class Rests:
    """The open rests. `tell` hears of everything that this process decides, at once and outside any await; `changed`
    whenever there is more or less to rest; `recovered` of each subject that may be used again, whoever found out.
    """

    def __init__(
        self,
        tell: Callable[[News, Rest, float], None],
        changed: Callable[[], None],
        recovered: Callable[[Subject, float], None],
    ) -> None:
        self.open: dict[Subject, Rest] = {}
        self._past: dict[Subject, tuple[int, float]] = {}  # how many in a row, and until when that is remembered
        self._tell = tell
        self._changed = changed
        self._recovered = recovered

    def rest(self, subject: Subject, cause: Fault, now: float, cooldown: float, least: float = 0.0) -> None:
        """Rests `subject`, longer each time in a row, `least` seconds at least."""
        self._open(subject, cause, now, lambda count: max(rest_seconds(cooldown, count), least))

    def cool(self, subject: Subject, cause: Fault, now: float, seconds: float) -> None:
        """Rests `subject` for so long, however often it has been."""
        self._open(subject, cause, now, lambda _: seconds)

    def _open(self, subject: Subject, cause: Fault, now: float, seconds: Callable[[int], float]) -> None:
        before = self.open.get(subject)
        count, remembered = self._past.get(subject, (0, 0.0))
        if before is not None:
            count = before.count
        elif now > remembered:
            count = 0
        rest = Rest(subject, cause, now, now + seconds(count + 1), count + 1, unheard=True)
        self.open[subject] = rest
        self._changed()
        self._tell(News.OPENED, rest, now)

    def close(self, subject: Subject, now: float, *, tell: bool = True) -> None:
        """The subject may be used again."""
        rest = self.open.pop(subject, None)
        if rest is None:
            return
        self._past = {past: of for past, of in self._past.items() if now <= of[1]}
        self._past[subject] = rest.count, now + max(REMEMBERED, 2 * (rest.until - rest.since))
        self._changed()
        if tell:
            self._tell(News.CLOSED, rest, now)
        self._recovered(subject, now)

    def claim(self, offer: int, credential: UUID | None, now: float) -> list[Subject]:
        """Takes the probes of what is due; none while another one has them."""
        due = [
            rest
            for rest in map(self.open.get, subjects(offer, credential))
            if rest is not None and rest.until <= now and rest.probed_until <= now
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

    def busy(self, offer: int, credential: UUID | None, now: float) -> bool:
        """Whether an offer with this credential may not be used by a request without its probe."""
        return any(
            now < rest.until or now < rest.probed_until
            for rest in map(self.open.get, subjects(offer, credential))
            if rest is not None
        )

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
            since = now if before is None else before.since
            self.open[row.subject] = Rest(row.subject, row.cause, since, until, row.count, now + row.probed_seconds)
        self._changed()


def subjects(offer: int, credential: UUID | None) -> tuple[Subject, ...]:
    """What may rest of an offer and the credential it is used with."""
    if credential is None:
        return (Subject(offer, None),)
    return Subject(offer, None), Subject(None, credential), Subject(offer, credential)
