"""Claims of idempotency keys: which generation answers what a client may send more than once.

A claim is durable before the hold, and there is one for all processes: PostgreSQL's primary key decides between twins.
It ends with the settlement, which brings the answer in the same commit (`billing/sql/answers.sql`), or is given back.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from uuid import UUID

import msgspec
import psycopg

from billing.backbone.batches import GroupCommit
from billing.backbone.connections import STALE_LEASE, Connections, DatabaseAway
from billing.backbone.leases import Lease


class Claim(msgspec.Struct, frozen=True):
    """A request as `billing_claim` takes it; see there."""

    id: UUID
    fingerprint: UUID
    organization: UUID
    key: UUID
    generation: str


class Claimed(msgspec.Struct, frozen=True):
    """What became of it; `verdict` as `billing_claim` has it, `generation` the one that has the claim."""

    verdict: str
    generation: str


class Claims:
    """The process's way to claims, under its lease. `patience` says how many seconds one is waited for.

    `most` is how many bytes an organization may have kept in 24 hours; 0: any number.
    """

    def __init__(self, connections: Connections, lease: Lease, patience: Callable[[], float], most: int) -> None:
        self._connections = connections
        self._lease = lease
        self._patience = patience
        self._most = most
        # What this process answers for: from before it claims until its settlement is in the tables.
        self._ours: set[str] = set()
        self._used = False
        self._claims: GroupCommit[Claim, Claimed] = GroupCommit(self._claim)
        self._returns: GroupCommit[Claim, None] = GroupCommit(self._give_back)

    async def claim(self, item: Claim) -> Claimed:
        """Claims, or says why not. Raises `DatabaseAway` when no answer came in time; then nothing is claimed."""
        self._used = True
        self._ours.add(item.generation)
        future = self._claims.put(item)
        mine = False
        try:
            async with asyncio.timeout(self._patience()):
                found = await future
            mine = found.verdict == "claimed"
        except TimeoutError as error:
            raise DatabaseAway("no claim in time") from error
        finally:
            if not mine:
                # In flight it may still be granted: then it is given back when its answer comes or, without one, as a
                # stray. Or its answer has come at this very moment.
                self._ours.discard(item.generation)
                if future.done() and not future.cancelled() and not future.exception():
                    self._return_unclaimed(item, future.result())
        return found

    def give_back(self, item: Claim) -> None:
        """Nothing was told under it. Should the database be away, it is found as a stray."""
        self._ours.discard(item.generation)
        self._returns.put(item)

    def forget(self, ids: Iterable[str]) -> None:
        """The ends of these generations are in the tables."""
        if self._ours:
            self._ours.difference_update(ids)

    async def give_back_strays(self) -> int:
        """Gives back the claims of this process's lease that nobody here answers for. Raises `DatabaseAway`.

        Returns how many.
        """
        if not self._used:
            return 0
        rows = await self._connections.call(
            "select id, generation from billing_keptanswer where lease = %s and state = 'running'", [self._lease.id]
        )
        # Compared only now: whatever was claimed while the query ran is among ours already.
        strays = [(id, generation) for id, generation in rows if generation.hex not in self._ours]
        if strays:
            ids, generations = zip(*strays, strict=True)
            await self._connections.call(
                "select billing_unclaim(%s::uuid[], %s::uuid[])", [list(ids), list(generations)]
            )
        return len(strays)

    def _return_unclaimed(self, item: Claim, found: Claimed) -> None:
        if found.verdict == "claimed" and item.generation not in self._ours:
            self._returns.put(item)

    async def _claim(self, batch: list[Claim]) -> list[Claimed]:
        params = [self._lease.id, msgspec.json.encode(batch).decode(), self._most]
        for last in (False, True):
            try:
                rows = await self._connections.run("select * from billing_claim(%s, %s::jsonb, %s)", params)
                break
            except psycopg.Error as error:
                if error.sqlstate != STALE_LEASE or last:
                    raise
                await self._lease.renew()  # we were paused past our lease
        found = {generation.hex: Claimed(verdict, answered.hex) for generation, verdict, answered in rows}
        for item in batch:
            self._return_unclaimed(item, found[item.generation])
        return [found[item.generation] for item in batch]

    async def _give_back(self, batch: list[Claim]) -> list[None]:
        ids, generations = [item.id for item in batch], [item.generation for item in batch]
        with suppress(DatabaseAway):
            await self._connections.run("select billing_unclaim(%s::uuid[], %s::uuid[])", [ids, generations])
        return [None] * len(batch)
