"""Taking room before a dial: money, tokens, a place, all or nothing, in one durable call shared by many requests.

The decision is PostgreSQL's alone (`billing/sql/admission.sql`): it checks in that call that the key is alive, so that
a revoked key makes no paid call after its revocation has committed.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from billing.batches import STATEMENT_SECONDS, Connections, DatabaseAway, GroupCommit
from billing.leases import Lease

PATIENCE = 0.25  # seconds a request waits for its hold
AWAY_SECONDS = 0.5  # how long, after the database was found away, requests are refused without asking it


class Refused(Exception):
    """No room. `verdict` is key, unpriced, credit, requests, tokens or open.

    `subject` is the id of the key, project or organization whose budget or limit (of `limit`, in its own unit) it was;
    `retry_after` whole seconds until there may be room, None when time alone brings none.
    """

    def __init__(self, verdict: str, subject: UUID | None, limit: Decimal | None, retry_after: int | None) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.subject = subject
        self.limit = limit
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Held:
    """What a request was given: its output cap, perhaps lowered, and the dollars it may cost (None: price unknown)."""

    output_cap: int
    money: Decimal | None
    counters: list[int]
    hard: bool
    admitted_at: datetime


class HoldItem(msgspec.Struct):
    """One request as `billing_admit` takes it; see there for the meaning and units of each field."""

    id: UUID
    attempt: UUID
    key: UUID
    model: str
    fixed: Decimal | None
    rate: Decimal | None
    cap: int
    min_cap: int
    tokens: int
    copies: int
    facts: dict[str, Any]


class AttemptItem(msgspec.Struct):
    """One further dial as `billing_attempt_again` takes it."""

    id: UUID
    generation: UUID
    number: int
    provider: str
    upstream_model: str
    key: UUID


class Admission:
    """The process's way to holds, under its lease."""

    def __init__(self, connections: Connections, lease: Lease) -> None:
        self._connections = connections
        self._lease = lease
        # Holds that may exist though nobody waits for them any more, and when to give them back.
        self._unclaimed: dict[UUID, float] = {}
        self._holds: GroupCommit[HoldItem, Held | Refused] = GroupCommit(self._admit)
        self._attempts: GroupCommit[AttemptItem, bool] = GroupCommit(self._again)
        self._away_until = 0.0

    async def hold(self, item: HoldItem) -> Held:
        """Holds room for a request. Raises `Refused`, or `DatabaseAway` when no answer came in time."""
        if time.monotonic() < self._away_until:
            raise DatabaseAway("the database was away a moment ago")
        future = self._holds.put(item)
        try:
            async with asyncio.timeout(PATIENCE):
                verdict = await asyncio.shield(future)
        except TimeoutError as error:
            self._leave(item.id, future)
            raise DatabaseAway("no hold in time") from error
        except DatabaseAway:
            self._away_until = time.monotonic() + AWAY_SECONDS
            self._leave(item.id, future)
            raise
        except asyncio.CancelledError:
            self._leave(item.id, future)
            raise
        if isinstance(verdict, Refused):
            raise verdict
        return verdict

    async def attempt_again(self, item: AttemptItem) -> bool:
        """Writes a further attempt before its dial; False when the key has been revoked. Raises `DatabaseAway`."""
        async with asyncio.timeout(PATIENCE * 4):
            return await asyncio.shield(self._attempts.put(item))

    async def give_back(self) -> None:
        """Gives back the holds that were granted after their request had stopped waiting. Raises `DatabaseAway`.

        Should the process die first, its lease does it.
        """
        now = time.monotonic()
        due = [id for id, moment in self._unclaimed.items() if moment <= now]
        if due:
            await self._connections.call("select billing_give_back(%s)", [due])
            for id in due:
                del self._unclaimed[id]

    def _leave(self, id: UUID, future: "asyncio.Future[Held | Refused]") -> None:
        """Nobody waits for this hold any more.

        Cancelled before it is sent, it is never sent. In flight, it may yet be granted, until the server's statement
        timeout has passed; only then giving it back is sure to find it.
        """
        future.cancel()
        self._unclaimed[id] = time.monotonic() + STATEMENT_SECONDS * 2 + 1

    async def _admit(self, batch: list[HoldItem]) -> list[Held | Refused]:
        items = msgspec.json.encode(batch).decode()
        for last in (False, True):
            try:
                rows = await self._connections.call("select * from billing_admit(%s, %s::jsonb)", [self._lease.id, items])
                break
            except psycopg.Error as error:
                if error.sqlstate != "ML001" or last:
                    raise
                await self._lease.renew()  # we were paused past our lease
        verdicts: dict[UUID, Held | Refused] = {}
        for id, verdict, cap, money, counters, hard, retry_after, subject, limit, admitted_at in rows:
            if verdict == "admitted":
                verdicts[id] = Held(cap, money, counters, hard, admitted_at)
            else:
                verdicts[id] = Refused(verdict, subject, limit, retry_after)
        return [verdicts[item.id] for item in batch]

    async def _again(self, batch: list[AttemptItem]) -> list[bool]:
        items = msgspec.json.encode(batch).decode()
        rows = await self._connections.call("select * from billing_attempt_again(%s::jsonb)", [items])
        alive = dict(rows)
        return [alive[item.id] for item in batch]
