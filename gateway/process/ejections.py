"""Shares with the other processes what this one finds out: which offers and credentials rest, and who probes them.

Written off the requests' path. While the database is away this process goes by what it knows itself.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from uuid import UUID, uuid4

import psycopg

from billing.backbone.connections import Connections, DatabaseAway
from routing.catalog import Credential, Offer
from routing.health import ejections
from routing.health.breaker import PROBE_SECONDS, Rest, Subject
from routing.health.health import Health
from routing.health.rests import Heard, News

logger = logging.getLogger(__name__)

MOST_WAITING = 1000  # news that the database has not taken yet
AGAIN_SECONDS = 1.0
CLAIM_SECONDS = 0.15  # that a request waits for the others' word


class Ejections:
    """One a process. `keep` runs while the process does."""

    def __init__(self, connections: Connections) -> None:
        self.health = Health(self._tell)
        self._connections = connections
        self._process = uuid4()
        self._waiting: deque[tuple[News, Rest]] = deque(maxlen=MOST_WAITING)
        self._woken = asyncio.Event()
        self._away_until = 0.0

    @property
    def waiting(self) -> int:
        """How many news the database has not taken yet."""
        return len(self._waiting)

    async def claim(
        self, offer: Offer, credential: Credential | None, tenant: UUID | None = None
    ) -> list[Subject] | None:
        """Takes the one probe of an offer among all processes, for a request of `tenant`: what it is for, to be given
        to `Health.begin`.

        Empty: it needs none any more. None: another request has it, and this one had better go elsewhere. Whoever
        gets a list begins at once, or gives it back with `Rests.release`.
        """
        now = time.monotonic()
        claimed = self.health.claim(offer, credential, now, tenant)
        if not claimed:
            busy = self.health.rests.busy(offer.id, None if credential is None else credential.id, now, tenant)
            return None if busy else []
        return claimed if await self.agree(claimed) else None

    async def agree(self, claimed: Sequence[Subject]) -> bool:
        """Whether what `Health.claim` took in this process is not another one's; if it is, it is given back.

        The only place where a request waits for the other processes, and it is the probing one.
        """
        rests = self.health.rests
        try:
            for subject in claimed:
                if not await self._claim(subject):
                    rests.release(claimed, time.monotonic())
                    rests.defer(subject, time.monotonic() + AGAIN_SECONDS)  # by then we shall have heard why
                    return False
        except BaseException:
            rests.release(claimed, time.monotonic())
            raise
        return True

    async def _claim(self, subject: Subject) -> bool:
        values = [*subject, self._process, PROBE_SECONDS]
        if time.monotonic() < self._away_until:
            return True
        try:
            async with asyncio.timeout(CLAIM_SECONDS):
                ((claimed, open),) = await self._connections.call(ejections.CLAIM, values)
        except (DatabaseAway, TimeoutError):
            self._away_until = time.monotonic() + AGAIN_SECONDS  # the next stop of this request does not wait as well
            return True
        # What the database has never heard of, or holds for closed, is nobody's but ours.
        return bool(claimed or not open)

    def hear(self, rows: list[Heard]) -> None:
        """Takes over what other processes, or an operator, decided."""
        self.health.hear(rows, time.monotonic())

    async def keep(self) -> None:
        """Writes the news until cancelled; what the database does not take now it is offered again."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._waiting:
                entry = news, rest = self._waiting[0]
                try:
                    await self._write(news, rest)
                except DatabaseAway as error:
                    logger.warning("%s at rest is not shared: %s", rest.subject, error)
                    await asyncio.sleep(AGAIN_SECONDS)
                    continue
                except psycopg.Error as error:  # of an offer that has just been deleted, for instance
                    logger.warning("%s at rest is not shared: %s", rest.subject, error)
                if self._waiting and self._waiting[0] is entry:  # not dropped meanwhile for newer ones
                    self._waiting.popleft()

    async def _write(self, news: News, rest: Rest) -> None:
        match news:
            case News.OPENED:
                seconds = rest.until - time.monotonic()
                values = [uuid4(), *rest.subject, rest.tenant, rest.cause, seconds, rest.count]
                await self._connections.call(ejections.OPEN, values)
            case News.CLOSED:
                await self._connections.call(ejections.CLOSE, list(rest.subject))
            case News.RELEASED:
                await self._connections.call(ejections.RELEASE, [*rest.subject, self._process])

    def _tell(self, news: News, rest: Rest, now: float) -> None:
        self._waiting.append((news, rest))
        self._woken.set()
