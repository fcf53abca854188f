"""The money backbone without a gateway around it, in this process, on the tests' database and in the app's role."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import psycopg
from django.conf import settings
from django.db import connection
from environ import Env

from accounts.models import ApiKey, Organization
from billing.backbone.admission import Admission, Held, HoldItem
from billing.backbone.backbone import Backbone
from billing.backbone.connections import Connections, DatabaseAway
from billing.backbone.leases import Lease
from billing.backbone.settlement import Settlement, Try
from billing.ids import new_hex, new_id
from tests.stage.verifier import Books


def owner_url() -> str:
    """The tests' database, as its owner."""
    return _on_test_database(settings.DATABASE_URL)


def app_url() -> str:
    """The tests' database, as the API sees it."""
    return _on_test_database(settings.DATABASE_APP_URL)


def console_url() -> str:
    """The tests' database, as the console sees it."""
    return _on_test_database(settings.DATABASE_CONSOLE_URL)


def _on_test_database(url: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{connection.settings_dict['NAME']}"))


@contextmanager
def speaking_to(url: str) -> Iterator[None]:
    """Django's ORM, and with it `tests.stage.product`, on another database while the block runs."""
    connection.close()
    before = dict(connection.settings_dict)
    connection.settings_dict.update(Env.db_url_config(url))
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)


@contextmanager
def migrating() -> Iterator[None]:
    """Waits until nobody else migrates in this cluster: its roles belong to all databases of all workers."""
    with database(settings.DATABASE_URL) as cluster:
        cluster.execute("select pg_advisory_lock(hashtext('the tests migrate'))")
        yield


@contextmanager
def database(url: str) -> Iterator["psycopg.Connection[Any]"]:
    """A connection of its own, each statement a transaction."""
    with psycopg.connect(url, autocommit=True) as found:
        yield found


@asynccontextmanager
async def backbone(spool: Path, url: str | None = None) -> AsyncIterator[Backbone]:
    """A running backbone with a lease of its own."""
    made = Backbone(url or app_url(), spool)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@asynccontextmanager
async def admission(url: str | None = None) -> AsyncIterator[Admission]:
    """Admission alone, under a lease that nobody renews."""
    connections = Connections(url or app_url())
    lease = Lease(connections, new_id())
    await lease.renew()
    try:
        yield Admission(connections, lease)
    finally:
        await connections.close()


@contextmanager
def operating() -> Iterator["psycopg.Connection[Any]"]:
    """A connection of the console's that has entered as somebody who sees all organizations."""
    with database(console_url()) as connection:
        connection.execute("select set_config('meterline.sees', 'all', false)")
        yield connection


def wanted(
    key: ApiKey, *, fixed: str | None = "0", rate: str | None = "0.01", cap: int = 100, **changes: Any
) -> HoldItem:
    """A request's wish for a hold: by default at most $1, for 100 output tokens at a cent, no input, one answer."""
    project = key.project
    facts = {
        "organization": project.organization_id,
        "project": project.pk,
        "organization_slug": project.organization.slug,
        "project_slug": project.slug,
        "key_name": key.name,
        "provider": "provider",
        "upstream_model": "upstream",
        "tariff_version": None,
        "stream": False,
        "end_user": "",
        "metadata": {},
    }
    item: dict[str, Any] = {
        "id": new_hex(),
        "attempt": new_hex(),
        "key": key.pk,
        "model": "test/model",
        **worst([(fixed, rate, cap)]),
        "min_cap": 1,
        "tokens": 0,
        "least": 0,
        "answer": None,
        "copies": 1,
        "facts": facts,
    }
    return HoldItem(**{**item, **changes})


def worst(offers: Sequence[tuple[str | None, str | None, int]]) -> dict[str, Any]:
    """The fields of a wish for a hold that say what its offers cost at worst: each (fixed, rate, cap)."""
    exact = [
        (None if fixed is None else Decimal(fixed), None if rate is None else Decimal(rate), cap)
        for fixed, rate, cap in offers
    ]
    priced = [fixed + rate * cap for fixed, rate, cap in exact if fixed is not None and rate is not None]
    return {
        "money": max(priced) if len(priced) == len(exact) else None,
        "offers": exact,
        "cap": max(cap for _, _, cap in exact),
    }


async def hold_many(here: Admission, key: ApiKey, count: int) -> list[tuple[HoldItem, Held]]:
    """`count` holds of a client that comes back when it is told to."""

    async def one() -> tuple[HoldItem, Held]:
        while True:
            item = wanted(key)
            try:
                return item, await here.hold(item)
            except DatabaseAway:
                await asyncio.sleep(0.1)

    held: list[tuple[HoldItem, Held]] = []
    while len(held) < count:
        held += await asyncio.gather(*(one() for _ in range(min(25, count - len(held)))))
    return held


def settled(item: HoldItem, held: Held, charge: str | Decimal | None = "0", **changes: Any) -> Settlement:
    """The settlement of a hold at a flat charge that costs the operator nothing, under no tariff."""
    row: dict[str, Any] = {
        **item.facts,
        "id": item.id,
        "key": item.key,
        "model": item.model,
        "created_at": held.admitted_at,
        "settled_at": datetime.now(UTC),
        "status": "completed",
        "basis": "reported",
        "counters": held.counted(item.model),
        "tries": [Try(item.attempt, item.id, 1, "provider", "upstream", held.admitted_at, status="completed")],
        "attempts": 1,
        "charge": None if charge is None else Decimal(charge),
    }
    return Settlement(**{**row, **changes})


def books(*organizations: Organization) -> Books:
    """Their books as they are now."""
    return Books(owner_url(), [organization.pk for organization in organizations])


def run(scenario: Any) -> Any:
    """Runs a coroutine to its end; the ORM is for before and after it."""
    return asyncio.run(scenario)


def transactions(generation: UUID | str) -> list[tuple[str, Decimal]]:
    """The ledger of a generation: kind and amount, in the order of writing."""
    with database(owner_url()) as connection:
        return connection.execute(
            "select kind, amount from billing_ledgerentry where generation = %s order by id", [generation]
        ).fetchall()
