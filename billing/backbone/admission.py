"""Taking room before a dial: money, tokens, a place, all or nothing, in one durable call shared by many requests.

The decision is PostgreSQL's alone (`billing/sql/admission.sql`): it checks in that call that the key is alive, so that
a revoked key makes no paid call after its revocation has committed.
"""

import asyncio
import time
from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from billing.backbone.batches import GroupCommit
from billing.backbone.connections import STALE_LEASE, Connections, DatabaseAway
from billing.backbone.leases import Lease
from billing.ids import new_hex

PATIENCE = 0.5  # seconds a request waits for its hold, at least
MOST_PATIENCE = 1.8  # and at most
# It waits for a batch that is on its way and for its own, each behind what other processes, and our settlements, commit
# under the same counters' locks. So patience follows what a commit takes, of which the lease tells us before the first
# request, and what a batch has lately taken: twice that, and as much again for a machine that is busy.
COMMITS = 16
BATCHES = 4
FADING = 0.9  # what is left of the longest batch's time after each shorter one
# And this and so many turns of the loop, since a process that is late itself hears its clock before an answer that is
# there already, and needs some turns to read it: with a thousand clients arriving at once, each may take long.
GRACE = 0.05
TURNS = 12
AWAY_SECONDS = 0.5  # how long, after the database was found away, requests are refused without asking it


class Refused(Exception):
    """No room. `verdict` is key, unpriced, credit, users, requests, tokens, never or open; never: more than a limit of
    tokens; users: too many end users have a counter of a budget's.

    `subject` is the id of the key, project or organization whose budget or limit (of `limit`, in its own unit; None for
    a prepaid balance) it was;
    `retry_after` whole seconds until there may be room, None when time alone brings none; `money` the dollars that
    there were, if it was for lack of them. Of a budget that counts the calls of a `model` or an `end_user` alone, which
    (None: whichever; an empty name: of requests without one).
    """

    def __init__(
        self,
        verdict: str,
        subject: UUID | None,
        limit: Decimal | None,
        retry_after: int | None,
        money: Decimal | None = None,
        model: str = "",
        end_user: str | None = None,
    ) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        self.subject = subject
        self.limit = limit
        self.retry_after = retry_after
        self.money = money
        self.model = model
        self.end_user = end_user


class Held(msgspec.Struct, frozen=True):
    """What a request was given: its output cap, perhaps lowered, and the dollars it may cost (None: price unknown).

    On a `hard` budget an offer may write no more than those dollars pay for. `room` is what the one with the least left
    had before this hold; None: none binds, or it is not known. `by_model`: counters that count the answers of one model
    alone, or None for a model that may not answer, since its own budget has less than was held.
    """

    output_cap: int
    money: Decimal | None
    counters: list[int]
    hard: bool
    admitted_at: datetime
    room: Decimal | None = None
    by_model: dict[str, list[int] | None] | None = None

    def counted(self, model: str) -> list[int]:
        """The counters that a charge goes to when `model` has answered."""
        return self.counters if self.by_model is None else self.counters + (self.by_model.get(model) or [])


class HoldItem(msgspec.Struct):
    """One request as `billing_admit` takes it; see there for the meaning and units of each field."""

    id: str
    attempt: str
    key: UUID
    model: str
    money: Decimal | None
    offers: list[tuple[Decimal | None, Decimal | None, int]]
    cap: int
    min_cap: int
    tokens: int
    least: int
    answer: int | None
    copies: int
    facts: dict[str, Any]
    patience: int = int(PATIENCE * 1000)  # what is left of it when it is sent
    models: list[str] | msgspec.UnsetType = msgspec.UNSET


class AttemptItem(msgspec.Struct):
    """One further dial as `billing_attempt_again` takes it."""

    id: str
    generation: str
    number: int
    provider: str
    upstream_model: str
    model: str
    key: UUID


class Admission:
    """The process's way to holds, under its lease."""

    def __init__(
        self, connections: Connections, lease: Lease, patience: tuple[float, float] = (PATIENCE, MOST_PATIENCE)
    ) -> None:
        self._connections = connections
        self.lease = lease
        self._least_patience, self._most_patience = patience
        self._batch_seconds = 0.0  # the longest of late
        # What this process answers for: from before a hold is asked for until its end is in the tables.
        self._ours: dict[str, float] = {}  # until when its request waits for the hold
        self._holds: GroupCommit[HoldItem, Held | Refused | DatabaseAway] = GroupCommit(self._admit)
        self._attempts: GroupCommit[AttemptItem, bool] = GroupCommit(self._again)
        self._returns: GroupCommit[str, None] = GroupCommit(self._give_back)
        self._away_until = 0.0

    @property
    def patience(self) -> float:
        """Seconds that a request waits for its hold, as commits are now."""
        slow = max(COMMITS * self.lease.commit_seconds, BATCHES * self._batch_seconds)
        return min(max(self._least_patience, slow), self._most_patience)

    async def hold(self, item: HoldItem) -> Held:
        """Holds room for a request. Raises `Refused`, or `DatabaseAway` when no answer came in time."""
        now = time.monotonic()
        if now < self._away_until:
            raise DatabaseAway("the database was away a moment ago")
        patience = self.patience
        self._ours[item.id] = now + patience
        future = self._holds.put(item)
        loop = future.get_loop()
        timer = loop.call_later(patience, lambda: loop.call_later(GRACE, _give_up, future, TURNS))
        try:
            verdict = await future
        except BaseException as error:
            self._leave(item.id, future)
            if isinstance(error, DatabaseAway):
                self._away_until = time.monotonic() + AWAY_SECONDS
            elif isinstance(error, asyncio.CancelledError) and not _being_cancelled():
                raise DatabaseAway("no hold in time") from None
            raise
        finally:
            timer.cancel()
        if isinstance(verdict, Held):
            return verdict
        del self._ours[item.id]
        raise verdict

    async def warm(self) -> None:
        """Asks for a hold that is refused, so that a connection is open and the functions are compiled on it before
        the first request waits for that. Raises `DatabaseAway`.
        """
        nobody = UUID(int=0)
        await self._admit(
            [
                HoldItem(
                    id=new_hex(),
                    attempt=new_hex(),
                    key=nobody,
                    model="",
                    money=None,
                    offers=[],
                    cap=1,
                    min_cap=1,
                    tokens=0,
                    least=0,
                    answer=None,
                    copies=1,
                    facts={"organization": nobody, "project": nobody},
                )
            ]
        )

    def _leave(self, id: str, future: "asyncio.Future[Held | Refused | DatabaseAway]") -> None:
        """Nobody waits for this hold any more.

        Not sent yet, it never will be. In flight it may still be granted: then it is given back when its answer comes
        or, without one, when `give_back` finds it.
        """
        del self._ours[id]
        if future.done() and not future.cancelled() and not future.exception() and isinstance(future.result(), Held):
            self._returns.put(id)
        future.cancel()

    async def attempt_again(self, item: AttemptItem) -> bool:
        """Writes a further attempt before its dial; False when the key has been revoked. Raises `DatabaseAway`."""
        async with asyncio.timeout(self.patience * 4):
            return await asyncio.shield(self._attempts.put(item))

    def forget(self, ids: Iterable[str]) -> None:
        """The ends of these generations are in the tables."""
        for id in ids:
            self._ours.pop(id, None)

    async def give_back(self) -> int:
        """Gives back the holds of this process's lease that nobody here answers for. Raises `DatabaseAway`.

        They were granted by a server whose answer was lost, or which was frozen and did it long after. Should the
        process die first, its lease does it. Returns how many.
        """
        rows = await self._connections.call("select id from billing_hold where lease = %s", [self.lease.id])
        # Compared only now: whatever was granted while the query ran is among ours already.
        strays = [id.hex for (id,) in rows if id.hex not in self._ours]
        if strays:
            await self._give_back(strays)
        return len(strays)

    async def _give_back(self, ids: list[str]) -> list[None]:
        await self._connections.call("select billing_give_back(%s::uuid[])", [ids])
        return [None] * len(ids)

    async def _admit(self, batch: list[HoldItem]) -> list[Held | Refused | DatabaseAway]:
        now = time.monotonic()
        for item in batch:
            item.patience = int(max(self._ours.get(item.id, now) - now, GRACE) * 1000)  # all of them still wait
        items = msgspec.json.encode(batch).decode()
        for last in (False, True):
            try:
                rows = await self._connections.run("select * from billing_admit(%s, %s::jsonb)", [self.lease.id, items])
                break
            except psycopg.Error as error:
                if error.sqlstate != STALE_LEASE or last:
                    raise
                await self.lease.renew()  # we were paused past our lease
        self._batch_seconds = max(time.monotonic() - now, FADING * self._batch_seconds)
        verdicts: dict[str, Held | Refused | DatabaseAway] = {}
        for uuid, verdict, cap, money, counters, hard, retry_after, subject, limit, admitted_at in rows:
            id = uuid.hex
            if verdict == "admitted":
                if type(counters) is dict:
                    verdicts[id] = Held(cap, money, counters["all"], hard, admitted_at, limit, counters["models"])
                else:
                    verdicts[id] = Held(cap, money, counters, hard, admitted_at, limit)
                if id not in self._ours:
                    self._returns.put(id)  # its request has left
            elif verdict == "late":
                verdicts[id] = DatabaseAway("other requests held the counters for too long")
            else:
                verdicts[id] = Refused(verdict, subject, limit, retry_after, money, **(counters or {}))
        return [verdicts[item.id] for item in batch]

    async def _again(self, batch: list[AttemptItem]) -> list[bool]:
        items = msgspec.json.encode(batch).decode()
        rows = await self._connections.run("select * from billing_attempt_again(%s::jsonb)", [items])
        alive = {id.hex: verdict for id, verdict in rows}
        return [alive[item.id] for item in batch]


def _give_up(future: "asyncio.Future[Any]", turns: int) -> None:
    """Cancels what has no answer after so many turns of the loop."""
    if turns and not future.done():
        future.get_loop().call_soon(_give_up, future, turns - 1)
    else:
        future.cancel()


def _being_cancelled() -> bool:
    """Whether somebody wants the running task itself to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
