"""What every request reads instead of the database: living keys and the catalog, immutable, swapped whole.

Triggers note each changed row; a NOTIFY hurries the refresh, a poll twice a second is the truth. Changes are read by
transaction id from the oldest transaction that was still open at the last read, since a later note can be committed
before an earlier one; a note read twice is applied once. A process that could not read for half an hour, when notes
may have been pruned, loads everything anew.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg.pq import ConnStatus

from accounts import callers
from accounts.callers import Caller
from billing.backbone import request_limits
from billing.backbone.batches import GroupCommit
from billing.backbone.connections import Connections, DatabaseAway
from routing import catalog, terms
from routing.catalog import Catalog, Model
from routing.health import ejections
from routing.health.rests import Heard
from routing.planning import policy
from routing.planning.policy import Policies
from routing.planning.prospect import Prospect
from routing.terms import Terms

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
FOLLOW_SECONDS = 10.0  # that reading what has changed takes at most
LOAD_SECONDS = 120.0  # that reading everything takes at most
STALE_SECONDS = 1800
LOOKUP_SECONDS = 1.0  # that a request waits to hear of its key
MOST_LOOKUPS = 1024  # unknown keys waiting at once; more is an attack
CUTS = "gateway_cut"  # requests that somebody ends in the console (`gateway/sql/cuts.sql`)
PEOPLE = ("accounts_apikey", "accounts_project", "accounts_organization", "accounts_user")


class Bound(NamedTuple):
    """A limit of requests a minute that binds a key: `whose` is key, project or organization."""

    whose: str
    subject: UUID
    limit: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One moment of the configuration. `version` grows with each swap in this process.

    `limits` are requests a minute by subject. `routes` are those of requests that wish nothing, by key and name of
    model, as they have come (`gateway.request.routes`); `orders` those of all models, by key and the request's words
    (`gateway.request.shortlist`). `terms` are the prices of organizations that have their own.
    """

    version: int
    keys: Mapping[bytes, Caller]  # by digest
    catalog: Catalog
    policies: Policies
    limits: Mapping[UUID, int] = field(default_factory=dict)
    routes: dict[tuple[bytes, str, frozenset[str]], list[Prospect]] = field(default_factory=dict)
    orders: dict[tuple[bytes, tuple[str, ...]], list[Model]] = field(default_factory=dict)
    bounds: dict[bytes, tuple[Bound, ...]] = field(default_factory=dict)
    terms: Terms = field(default_factory=dict)

    def priced(self, model: Model, organization: UUID) -> Model:
        """A model at the prices that an organization pays: the same object each time."""
        agreed = self.terms.get(organization)
        return model if agreed is None else terms.priced(model, agreed)

    def bounds_of(self, caller: Caller) -> tuple[Bound, ...]:
        """The limits of requests a minute that bind a key."""
        if not self.limits:
            return ()
        found = self.bounds.get(caller.digest)
        if found is None:
            whose = {"key": caller.key, "project": caller.project, "organization": caller.organization}
            found = tuple(
                Bound(name, subject, self.limits[subject]) for name, subject in whose.items() if subject in self.limits
            )
            if self.keys.get(caller.digest) is caller:
                self.bounds[caller.digest] = found
        return found


class TooManyLookups(Exception):
    """More unknown keys arrive than are worth asking the database for."""


class Snapshots:
    """Keeps the current snapshot. `changed` is called after each swap with the keys that are gone from it, `ejected`
    with what the other processes have learnt of offers and credentials at rest, `cut` with the requests that somebody
    ends, wherever they are open.
    """

    def __init__(
        self,
        url: str,
        connections: Connections,
        changed: Callable[[set[UUID]], None],
        ejected: Callable[[list[Heard]], None],
        cut: Callable[[set[UUID]], None] = lambda requests: None,
    ) -> None:
        self._url = url
        self._connections = connections
        self._changed = changed
        self._ejected = ejected
        self._cut = cut
        self._lookups: GroupCommit[list[bytes], Caller | None] = GroupCommit(self._find)
        self._looking = 0
        self.current = Snapshot(0, {}, Catalog({}), Policies())
        self.read_at = 0.0  # time.monotonic() of the last successful read
        self.tried = asyncio.Event()  # the first read has come to an end, this way or that
        self.last_change = 0  # the highest `Change.id` that `current` holds
        self._distrusted = True  # load everything
        self._from_xid = 0
        self._applied: set[int] = set()
        self._heard = asyncio.Event()  # of a change, since they were followed last

    async def keep(self) -> None:
        """Loads, then follows the changes until cancelled; a database that is away is tried again."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=2
                ) as connection:
                    async with asyncio.timeout(LOAD_SECONDS):
                        await connection.execute("listen meterline_change")
                        if self._distrusted or time.monotonic() - self.read_at > STALE_SECONDS:
                            await self._load(connection)
                    connection.add_notify_handler(lambda notify: self._heard.set())  # with the answer to a query
                    while True:
                        self._heard.clear()
                        # A network that has forgotten a connection tells nobody: the old prices, policies and lists
                        # would stay for a quarter of an hour, until TCP gives up.
                        async with asyncio.timeout(FOLLOW_SECONDS):
                            await self._follow(connection)
                        await self._until_told(connection)
            except (psycopg.OperationalError, OSError, TimeoutError) as error:
                self.tried.set()
                logger.warning("the snapshot was not refreshed: %s", error)
                await asyncio.sleep(POLL_SECONDS)
            except Exception:
                # A change that cannot be applied must not be met for ever: begin anew.
                self.tried.set()
                logger.exception("the snapshot was not refreshed")
                self._distrusted = True
                await asyncio.sleep(POLL_SECONDS)

    async def _until_told(self, connection: psycopg.AsyncConnection[Any]) -> None:
        """Returns when the database has told of a change, or after `POLL_SECONDS`.

        psycopg's own wait would look ten times a second, in each process, for ever.
        """
        loop, socket = asyncio.get_running_loop(), connection.fileno()

        def read() -> None:
            try:
                connection.pgconn.consume_input()
            except psycopg.OperationalError:
                # It is gone, as the next query will say, and libpq has closed the socket: left with the loop, it would
                # be that of whoever opens the next one.
                loop.remove_reader(socket)
                self._heard.set()
                return
            while connection.pgconn.notifies():
                self._heard.set()

        loop.add_reader(socket, read)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._heard.wait()
        finally:
            if connection.pgconn.status == ConnStatus.OK:  # else it has been, and the number may be another's now
                loop.remove_reader(socket)

    async def find(self, digests: list[bytes]) -> Caller | None:
        """Asks the database for a living key that the snapshot lacks: one made a moment ago works at once.

        Refused keys are never in the snapshot, so an unknown, a revoked and an expired key all take this path. Raises
        `TooManyLookups` or `DatabaseAway`.
        """
        if self._looking >= MOST_LOOKUPS:
            raise TooManyLookups
        self._looking += 1
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                return await self._lookups.put(digests)
        except TimeoutError as error:
            raise DatabaseAway("the key was not looked up in time") from error
        finally:
            self._looking -= 1

    async def _find(self, batch: list[list[bytes]]) -> list[Caller | None]:
        wanted = [digest for digests in batch for digest in digests]
        rows = await self._connections.call(callers.FIND, [wanted])
        found = {caller.digest: caller for caller in map(callers.from_row, rows)}
        return [next((found[digest] for digest in digests if digest in found), None) for digests in batch]

    async def _load(self, connection: psycopg.AsyncConnection[Any]) -> None:
        # Read first, so that whatever commits while we load is followed afterwards.
        ((xid, last),) = await _rows(
            connection,
            "select pg_snapshot_xmin(pg_current_snapshot())::text::bigint, coalesce(max(id), 0) from accounts_change",
        )
        keys = map(callers.from_row, await _rows(connection, callers.QUERY))
        models = catalog.from_rows(await _rows(connection, catalog.QUERY))
        policies = await _policies(connection)
        limits = request_limits.from_rows(await _rows(connection, request_limits.QUERY))
        self._ejected(ejections.from_rows(await _rows(connection, ejections.QUERY + "and e.closed_at is null")))
        agreed = terms.from_rows(await _rows(connection, terms.QUERY))
        # All at once: what is broken off is read again, or what was changed since the last read would be missed.
        self._from_xid, self._applied, self._distrusted, self.last_change = xid, set(), False, last
        self._swap({caller.digest: caller for caller in keys}, Catalog(models), policies, limits, agreed)
        # They are no rows to read anew: one that was asked for while nothing was followed would be lost.
        cuts = await _rows(connection, 'select "row" from accounts_change where "table" = %(cuts)s', {"cuts": CUTS})
        self._cut({UUID(row) for (row,) in cuts})

    async def _follow(self, connection: psycopg.AsyncConnection[Any]) -> None:
        rows = await _rows(
            connection,
            'select pg_snapshot_xmin(pg_current_snapshot())::text::bigint, c.id, c."table", c."row"'
            " from (values (1)) one left join accounts_change c on c.xid >= %(xid)s",
            {"xid": self._from_xid},
        )
        changes: dict[str, list[str]] = {}
        seen = set()
        for _, id, table, row in rows:
            if id is None:
                continue
            seen.add(id)
            if id not in self._applied:
                changes.setdefault(table, []).append(row)
        if changes:
            await self._apply(connection, changes)
            self.last_change = max(self.last_change, *seen)
        self._from_xid, self._applied = rows[0][0], seen
        self.read_at = time.monotonic()

    async def _apply(self, connection: psycopg.AsyncConnection[Any], changes: Mapping[str, list[str]]) -> None:
        if rows := changes.get(CUTS):
            self._cut({UUID(row) for row in rows})
        if changes.keys() - {ejections.TABLE, CUTS}:
            await self._apply_configuration(connection, changes)
        # Afterwards: with a changed secret its rest ends, and nobody may try the old one once more.
        if rows := changes.get(ejections.TABLE):
            query = ejections.QUERY + "and e.id = any(%(ids)s)"
            self._ejected(ejections.from_rows(await _rows(connection, query, {"ids": [UUID(row) for row in rows]})))

    async def _apply_configuration(
        self, connection: psycopg.AsyncConnection[Any], changes: Mapping[str, list[str]]
    ) -> None:
        before = self.current
        keys, models, policies, limits = before.keys, before.catalog, before.policies, before.limits
        if any(table in changes for table in PEOPLE):
            keys = await self._changed_keys(connection, changes)
        if any(table in changes for table in catalog.TABLES):
            models = await self._changed_models(connection, changes)
        if any(table in changes for table in policy.TABLES):
            policies = await _policies(connection)
        if subjects := {UUID(row) for row in changes.get(request_limits.TABLE, ())}:
            values = await _rows(connection, request_limits.CHANGED, {"subjects": list(subjects)})
            kept = {subject: limit for subject, limit in limits.items() if subject not in subjects}
            limits = kept | request_limits.from_rows(values)
        agreed = before.terms
        if terms.TABLE in changes or (agreed and not terms.PRICES.isdisjoint(changes)):
            agreed = terms.from_rows(await _rows(connection, terms.QUERY))
        self._swap(keys, models, policies, limits, agreed)
        # A key that was looked up, and has ended before a snapshot ever held it, has open calls to cut all the same.
        if changed := {UUID(row) for row in changes.get("accounts_apikey", ())}:
            self._changed(changed - {caller.key for caller in keys.values()})

    async def _changed_keys(
        self, connection: psycopg.AsyncConnection[Any], changes: Mapping[str, list[str]]
    ) -> dict[bytes, Caller]:
        ids, projects, organizations = (
            {UUID(row) for row in changes.get(table, ())}
            for table in ("accounts_apikey", "accounts_project", "accounts_organization")
        )
        owners = {int(row) for row in changes.get("accounts_user", ())}
        rows = await _rows(
            connection,
            callers.QUERY + "where k.id = any(%(ids)s) or p.id = any(%(projects)s)"
            " or o.id = any(%(organizations)s) or k.owner_id = any(%(owners)s)",
            {
                "ids": list(ids),
                "projects": list(projects),
                "organizations": list(organizations),
                "owners": list(owners),
            },
        )
        keys = {
            digest: caller
            for digest, caller in self.current.keys.items()
            if caller.key not in ids
            and caller.project not in projects
            and caller.organization not in organizations
            and caller.owner not in owners
        }
        keys.update((caller.digest, caller) for caller in map(callers.from_row, rows))
        return keys

    async def _changed_models(
        self, connection: psycopg.AsyncConnection[Any], changes: Mapping[str, list[str]]
    ) -> Catalog:
        rows = {
            table: [UUID(row) if table == "routing_credential" else int(row) for row in changes.get(table, ())]
            for table in catalog.TABLES
        }
        touched = await _rows(connection, catalog.TOUCHED, rows)
        models = self.current.catalog
        ids = {id for (id,) in touched} | models.having(changes)
        found = await _rows(connection, catalog.QUERY + "and m.id = any(%(ids)s)", {"ids": list(ids)})
        return models.with_models(ids, catalog.from_rows(found))

    def _swap(
        self,
        keys: Mapping[bytes, Caller],
        models: Catalog,
        policies: Policies,
        limits: Mapping[UUID, int],
        agreed: Terms,
    ) -> None:
        before = self.current
        self.current = Snapshot(before.version + 1, keys, models, policies, limits, terms=agreed)
        self.read_at = time.monotonic()
        self.tried.set()
        if keys is not before.keys:
            self._changed({caller.key for digest, caller in before.keys.items() if digest not in keys})


async def _policies(connection: psycopg.AsyncConnection[Any]) -> Policies:
    weights = await _rows(connection, policy.WEIGHTS_QUERY)
    return policy.from_rows(await _rows(connection, policy.QUERY), weights)


async def _rows(
    connection: psycopg.AsyncConnection[Any], query: str, params: Mapping[str, object] | None = None
) -> list[tuple[Any, ...]]:
    return await (await connection.execute(query, params)).fetchall()
