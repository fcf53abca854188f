"""Requests that were refused before anything was held for them: counted, and the last of them kept for who looks.

What is held for has a usage row; what is not leaves nothing else. An operator finds it here by its `x-request-id`, by
key and by organization. Noting one is a look into a few dictionaries; a statement of its own writes moments later what
has been noted, and nobody waits for it. So a process that is killed takes the last second of them with it.

However many are refused, and however long the database is away, so many are kept and so many keys told apart.
"""

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from accounts.callers import Caller
from billing.backbone.connections import Connections, DatabaseAway
from gateway.wire import strict_json
from gateway.wire.errors import GatewayError
from gateway.wire.log_lines import moment

logger = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two statements, at least
STOP_SECONDS = 1.0  # that a stop waits for the last one
MOST_KEPT = 200  # by one statement
MOST_OF_A_KEY = 20  # of these, so that who is refused all the time hides nobody; as many of those without a key
MOST_KEYS = 1_000  # told apart in a minute; the others count as if they had none
MOST_COUNTS = 5_000  # in one statement; what would need one more is not counted
LONGEST_MESSAGE = 500  # characters
LONGEST_WORD = 200

# One whose reply was lost is sent again as it was. Each keeps a row at least; if none of them is new it has been done.
# Counts are written in one order, or two processes would wait for each other.
WRITE = """
with kept as (
    insert into gateway_refused
           (id, created_at, organization, project, key, organization_slug, project_slug, key_name,
            status, code, message, method, path, model, address)
    select r.* from jsonb_to_recordset(%s::text::jsonb) r(
           id uuid, created_at timestamptz, organization uuid, project uuid, key uuid, organization_slug text,
           project_slug text, key_name text, status smallint, code text, message text, method text, path text,
           model text, address text)
        on conflict (id) do nothing
    returning 1), counted as (
    insert into gateway_refusedcount as c
           (minute, organization, project, key, organization_slug, project_slug, key_name, status, code, requests)
    select r.* from jsonb_to_recordset(%s::text::jsonb) r(
           minute timestamptz, organization uuid, project uuid, key uuid, organization_slug text, project_slug text,
           key_name text, status smallint, code text, requests bigint)
     where exists (select from kept)
     order by r.minute, r.key, r.status, r.code
        on conflict (minute, key, status, code) do update set requests = c.requests + excluded.requests
    returning 1)
select (select count(*) from kept), (select count(*) from counted)
"""


@dataclass(slots=True)
class _Batch:
    """What one statement writes."""

    kept: list[dict[str, Any]] = field(default_factory=list)
    kept_of: dict[UUID | None, int] = field(default_factory=dict)
    # By minute, key, HTTP status and code.
    counts: dict[tuple[int, UUID | None, int, str], int] = field(default_factory=dict)
    whose: dict[UUID | None, dict[str, str | None]] = field(default_factory=dict)

    def rows(self) -> list[str]:
        """The statement's parameters."""
        counted = [
            {"minute": _at(minute), **self.whose[key], "status": status, "code": code, "requests": requests}
            for (minute, key, status, code), requests in self.counts.items()
        ]
        return [strict_json.dumps(self.kept).decode(), strict_json.dumps(counted).decode()]


class Refused:
    """What a process has refused and not written yet."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._filling = _Batch()
        self._sending: _Batch | None = None
        self._minute = 0
        self._keys: set[UUID] = set()  # that are told apart in this minute
        self._woken = asyncio.Event()

    def note(
        self,
        error: GatewayError,
        status: int,
        *,
        request_id: str,
        caller: Caller | None,
        method: str,
        path: str,
        model: str,
        address: str,
    ) -> None:
        """Notes one that was told `error` with this HTTP status. `caller` is None where no key was known, `model` and
        `address` are empty where they are not known.
        """
        now, batch = time.time(), self._filling
        minute = int(now) // 60
        if minute != self._minute:
            self._minute = minute
            self._keys.clear()
        key = None if caller is None else caller.key
        told = key  # apart from others
        if key is not None and key not in self._keys:
            if len(self._keys) < MOST_KEYS:
                self._keys.add(key)
            else:
                told = None
        code = error.code or ""
        counted = minute, told, status, code
        if counted in batch.counts or len(batch.counts) < MOST_COUNTS:
            batch.counts[counted] = batch.counts.get(counted, 0) + 1
            if told not in batch.whose:
                batch.whose[told] = _whose(caller if told else None)
        of_key = batch.kept_of.get(key, 0)
        if of_key < MOST_OF_A_KEY and len(batch.kept) < MOST_KEPT:
            batch.kept_of[key] = of_key + 1
            row = {
                "id": request_id,
                "created_at": moment(datetime.fromtimestamp(now, UTC)),
                **_whose(caller),
                "status": status,
                "code": code,
                "message": _plain(error.message, LONGEST_MESSAGE),
                "method": method,
                "path": _plain(path, LONGEST_WORD),
                "model": _plain(model, LONGEST_WORD),
                "address": _plain(address, LONGEST_WORD),  # behind too few proxies a client wrote it
            }
            batch.kept.append(row)
        self._woken.set()

    async def keep(self) -> None:
        """Writes what is noted until cancelled; what the database does not take it is offered again."""
        while True:
            await self._woken.wait()
            await asyncio.sleep(EVERY)
            with suppress(DatabaseAway):
                await self.write()

    async def write(self) -> None:
        """Writes what is noted by now. Raises `DatabaseAway`: it is noted still."""
        while self._sending is not None or self._filling.kept:
            if self._sending is None:
                self._sending, self._filling = self._filling, _Batch()
            try:
                await self._connections.call(WRITE, self._sending.rows())
            except psycopg.Error:  # ours to mend; the next ones shall not wait for it
                logger.exception("%d refused requests could not be noted", len(self._sending.kept))
            self._sending = None
        self._woken.clear()

    async def stop(self) -> None:
        """Writes what is left, if the database takes it soon."""
        with suppress(DatabaseAway, TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self.write()


def _whose(caller: Caller | None) -> dict[str, str | None]:
    if caller is None:
        nobody = dict.fromkeys(("organization", "project", "key"))
        return {**nobody, "organization_slug": "", "project_slug": "", "key_name": ""}
    return {
        "organization": str(caller.organization),
        "project": str(caller.project),
        "key": str(caller.key),
        "organization_slug": caller.organization_slug,
        "project_slug": caller.project_slug,
        "key_name": caller.name,
    }


def _at(minute: int) -> str:
    return moment(datetime.fromtimestamp(minute * 60, UTC))


def _plain(text: str, longest: int) -> str:
    """As the database takes it: no NUL, no half of a character."""
    return text[:longest].replace("\0", "\ufffd").encode("utf-8", "replace").decode()
