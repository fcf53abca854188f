"""What a process knows of its database, and says: whether it answers, how the clocks are, who holds up its cleaning."""

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.test import override_settings

from billing.backbone.connections import Connections
from billing.models import Hold
from gateway.process.database import Database, Pools
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, database, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.clock import set_clock
from tests.stage.product import launch, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone


# Of its connections a server keeps some for superusers.
SERVERS = """
select case name when 'max_connections' then setting::integer else -setting::integer end from pg_settings
 where name in ('max_connections', 'superuser_reserved_connections')
"""


def looked(seconds: float = 0.0, looks: int = 1) -> Database:
    """What a look finds, on a machine whose clock is `seconds` ahead."""

    async def scenario() -> Database:
        pools = Pools(app_url(), Connections(app_url()))
        found = Database(pools, lambda: time.time() + seconds)
        for _ in range(looks):
            await found.look()
        await pools.close()
        return found

    result: Database = run(scenario())
    return result


@pytest.mark.parametrize(("seconds", "agrees"), [(0, True), (50, True), (-50, True), (70, False), (-3600, False)])
def test_a_clock_more_than_a_minute_off_does_not_agree(seconds: float, agrees: bool) -> None:
    found = looked(seconds)
    assert found.agrees is agrees
    assert abs(found.ahead - seconds) < 5


def test_it_knows_how_many_connections_there_may_be() -> None:
    found = looked()
    assert found.wanted > 0
    assert found.allowed > 0


def test_it_says_when_more_may_be_wanted_than_there_are(caplog: pytest.LogCaptureFixture) -> None:
    # Gateways that other tests have just killed are counted until they are known to be dead.
    until(lambda: (found := looked()).wanted <= found.allowed, 40, 0.5)
    caplog.clear()
    looked()
    assert "connections together" not in caplog.text
    with override_settings(DATABASE_READ_CONNECTIONS=10_000):
        found = looked(looks=2)
    assert found.wanted > 10_000 > found.allowed
    said = f"may take {found.wanted} connections together, and the database allows {found.allowed}"
    assert caplog.text.count(said) == 1  # not with each look


@pytest.mark.parametrize(("seconds", "says"), [(0.5, False), (-0.5, False), (3, True), (-3, True)])
def test_a_clock_more_than_a_second_off_is_said(seconds: float, says: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert looked(seconds).agrees
    assert ("this machine's clock is" in caplog.text) is says


def test_what_the_roles_may_open_fits_what_processes_open() -> None:
    """Two gateways beside their successors, with the worker and the beat; and the console."""
    query = "select rolconnlimit from pg_roles where rolname = %s"
    with database(owner_url()) as owner:
        limits = [owner.execute(query, [role]).fetchall() for role in ("meterline_app", "meterline_console")]
        most = sum(int(value) for (value,) in owner.execute(SERVERS).fetchall())
    assert limits == [[(120,)], [(40,)]]
    assert most > 120 + 40
    assert 4 * Pools(app_url(), Connections(app_url())).most + 4 <= 120
    assert 2 * settings.CONSOLE_REQUESTS <= 40


def test_a_transaction_that_stays_open_is_seen() -> None:
    async def scenario() -> float:
        pools = Pools(app_url(), Connections(app_url()))
        found = Database(pools)
        await found.look()
        until_seen = time.monotonic() + 10
        while found.oldest_seconds < 0.2 and time.monotonic() < until_seen:
            await found.look()
        await pools.close()
        return found.oldest_seconds

    with database(owner_url()) as analyst:
        analyst.execute("begin isolation level repeatable read")
        analyst.execute("select 1")
        assert run(scenario()) >= 0.2
        analyst.execute("rollback")


@pytest.fixture
def hour_ahead() -> Iterator[str]:
    """The way to a database whose clock is an hour ahead for whoever comes by it."""
    with set_clock(timedelta(hours=1)) as found:
        yield found.url


def test_a_process_whose_clock_is_an_hour_off_takes_no_work_and_says_why(
    hour_ahead: str, alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(f"{simulated.url}/v1"))
    gateway = launch(tmp_path, DATABASE_APP_URL=hour_ahead, EGRESS_ALLOW=simulated.url)
    try:
        until(lambda: gateway.readiness().get("missing") == ["clock"], 30)
        assert -3700 < gateway.readiness()["clock_ahead_seconds"] < -3500
        refused = gateway.chat(alice.secret, model.slug)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert re.search(r"clock is -3(599|60\d)\.\d s ahead", gateway.log.read_text())
        assert not Hold.objects.filter(organization=alice.organization.pk).exists()
    finally:
        gateway.stop()
