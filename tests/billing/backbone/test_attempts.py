"""A row for each dial, written before it: none is left open when its generation ends, whoever hears of what."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import psycopg
import pytest

from billing.backbone.admission import AttemptItem, HoldItem
from billing.ids import new_hex
from billing.models import Attempt, Budget, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import admission, app_url, books, database, owner_url, run, wanted
from tests.stage.cast import Tenant
from tests.stage.gate import gate
from tests.stage.product import launch, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import add_offer, make_model, make_provider

pytestmark = pytest.mark.backbone

AGAIN = "select alive from billing_attempt_again(%s::jsonb)"
END = "select billing_give_back(%s::uuid[])"


def hold(tenant: Tenant) -> HoldItem:
    """A hold and its first attempt."""
    item = wanted(tenant.key)

    async def scenario() -> None:
        async with admission() as door:
            await door.hold(item)

    run(scenario())
    return item


def second(tenant: Tenant, item: HoldItem) -> str:
    """The second attempt, as JSON."""
    again = AttemptItem(new_hex(), item.id, 2, "provider", "upstream", "test/model", tenant.key.pk)
    return msgspec.json.encode([again]).decode()


def waits(statement: str) -> bool:
    """Whether such a statement waits for a lock."""
    with database(owner_url()) as owner:
        query = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like %s"
        return bool(owner.execute(query, [f"%{statement}%"]).fetchall())


def test_an_attempt_that_is_being_written_ends_with_its_generation(alice: Tenant) -> None:
    item = hold(alice)
    with psycopg.connect(app_url()) as writing, database(app_url()) as ending, ThreadPoolExecutor() as pool:
        assert writing.execute(AGAIN, [second(alice, item)]).fetchall() == [(True,)]
        ended = pool.submit(ending.execute, END, [[item.id]])
        until(lambda: waits("billing_give_back"), 10)
        writing.commit()
        ended.result(10)
    attempts = Attempt.objects.filter(generation=item.id).order_by("number")
    assert [(attempt.number, attempt.status) for attempt in attempts] == [(1, "cancelled"), (2, "cancelled")]
    assert books(alice.organization).problems() == []


def test_no_attempt_is_written_for_a_generation_that_is_ending(alice: Tenant) -> None:
    item = hold(alice)
    with psycopg.connect(app_url()) as ending, database(app_url()) as writing, ThreadPoolExecutor() as pool:
        ending.execute(END, [[item.id]])
        written = pool.submit(lambda: writing.execute(AGAIN, [second(alice, item)]).fetchall())
        until(lambda: waits("billing_attempt_again"), 10)
        ending.commit()
        assert written.result(10) == [(False,)]
    attempts = Attempt.objects.filter(generation=item.id)
    assert [(attempt.number, attempt.status) for attempt in attempts] == [(1, "cancelled")]
    assert books(alice.organization).problems() == []


@pytest.mark.parametrize("leaves", [False, True])
def test_an_attempt_whose_reply_is_lost_ends_with_its_generation(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path, leaves: bool
) -> None:
    """The first offer fails while the database is cut off, so nobody hears whether the second may be dialled."""
    Budget.objects.create(organization=alice.organization, period="total", amount=1000)
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"lost-{provider.slug}?hold&status=500")
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=3", priority=1)
    with gate(app_url()) as way:
        gateway = launch(tmp_path, EGRESS_ALLOW=simulated.url, DATABASE_APP_URL=way.url)
        try:
            gateway.until_ready()
            with dial(gateway) as line:
                line.send(chat(alice.secret, model.slug))
                simulated.until(10, waiting=1)
                way.shut()
                simulated.release()
                if leaves:
                    until(lambda: not simulated.state()["waiting"], 10)
                    line.socket.close()
                else:
                    assert line.answer().status == 502
                until(lambda: gateway.client.get("/metrics").text.count("meterline_open_calls 0.0") == 1, 10)
            way.open()
            until(lambda: Usage.objects.filter(organization=alice.organization.pk).exists(), 20)
        finally:
            gateway.stop()
    usage = Usage.objects.get(organization=alice.organization.pk)
    attempts = Attempt.objects.filter(generation=usage.id).order_by("number")
    assert [(a.number, a.status, a.fault) for a in attempts] == [
        (1, "failed", "server_error"),
        (2, "cancelled", "not_dialled"),
    ]
    assert books(alice.organization).problems() == []
