"""A process follows the configuration whatever becomes of the connection that it hears of changes by."""

import asyncio
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from django.db import connection

from billing.backbone.connections import Connections
from gateway.process.snapshot import Snapshots
from routing.models import Offer
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, run
from tests.stage.cast import Tenant
from tests.stage.gate import gate
from tests.stage.lossy import lossy
from tests.stage.product import running, synchronize, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone


def test_a_connection_that_falls_silent_is_left(simulated: SimulatedProvider, alice: Tenant, tmp_path: Path) -> None:
    """Nobody is told that it has ended: a network forgot it. Others are opened as ever, and paid work goes on."""
    provider = make_provider(simulated.base_url)
    model = make_model(provider).slug
    with (
        gate(app_url()) as way,
        running(tmp_path, EGRESS_ALLOW=simulated.url, DATABASE_APP_URL=way.url, DATABASE_ROLE="app") as (gateway,),
    ):
        synchronize(gateway)
        assert gateway.chat(alice.secret, model).status_code == 200
        way.forget()
        Offer.objects.filter(provider=provider).update(active=False)
        until(lambda: gateway.chat(alice.secret, model).status_code == 502, 30, 0.2)


def test_a_request_that_was_cut_while_nothing_was_followed_is_cut() -> None:
    """A cut is no row that could be read anew: who reads everything hears of those that were asked for before."""
    request, heard = uuid4(), set[UUID]()
    with connection.cursor() as cursor:
        cursor.execute(
            """insert into accounts_change (xid, "table", "row", at)
               values (pg_current_xact_id()::text::bigint, 'gateway_cut', %s, clock_timestamp())""",
            [str(request)],
        )

    async def scenario() -> None:
        snapshots = Snapshots(app_url(), Connections(app_url()), lambda gone: None, lambda rests: None, heard.update)
        keeping = asyncio.create_task(snapshots.keep())
        await asyncio.to_thread(until, lambda: snapshots.last_change > 0)
        keeping.cancel()
        await asyncio.wait({keeping})

    run(scenario())
    assert request in heard


@pytest.mark.parametrize("reply", [4, 6, 8, 10])
def test_what_is_broken_off_in_the_midst_of_reading_everything_is_read_again(alice: Tenant, reply: int) -> None:
    """Of the replies 3 to 10, from the first on that asks what there is."""
    model = make_model(make_provider("https://vendor.example/v1")).slug

    async def scenario() -> Snapshots:
        async with lossy(app_url(), reply) as way:
            snapshots = Snapshots(way.url, Connections(app_url()), lambda gone: None, lambda heard: None)
            snapshots.read_at = time.monotonic()  # it has read before, and trusts that no more
            keeping = asyncio.create_task(snapshots.keep())
            await asyncio.to_thread(until, lambda: way.swallowed and snapshots.last_change > 0)
            keeping.cancel()
            await asyncio.wait({keeping})
            return snapshots

    found = run(scenario()).current
    assert alice.key.pk in {caller.key for caller in found.keys.values()}
    assert model in found.catalog.by_name
