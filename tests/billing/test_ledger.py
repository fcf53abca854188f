"""However a generation ends, it leaves one usage row and one closing transaction, and a stranger can check it."""

import asyncio
import random
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from accounts.models import ApiKey
from billing.models import Attempt, Budget, Hold, LedgerEntry, Limit, Usage
from routing.models import Model, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.load import Clients
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider

pytestmark = pytest.mark.backbone


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def bounded(alice: Tenant) -> Tenant:
    """Alice with every kind of counter."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10**6))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="day", amount=Decimal(10**6))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=10**9)
    return alice


def at_rest(tenant: Tenant) -> None:
    """Returns when no request is open any more, with right books."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), 20)
    assert books(tenant.organization).problems() == []


def only_row(tenant: Tenant) -> Usage:
    """The one generation there is, with its one standing closing transaction, once it is over."""
    at_rest(tenant)
    row = Usage.objects.get(organization=tenant.organization.pk)
    closings = LedgerEntry.objects.filter(organization=tenant.organization.pk).values("transaction", "kind").distinct()
    assert [entry["kind"] in ("settle", "void") for entry in closings] == [True]
    return row


FAULTS = (
    "fault=reset_before",
    "fault=close_before",
    "fault=reset_headers",
    "fault=reset_mid@2",
    "fault=cut_mid@2",
    "fault=fin_mid@2",
    "fault=garbage",
    "fault=half_json@2",
    "fault=error_in_200",
    "fault=error_mid@2",
    "fault=empty_choices",
    "fault=empty_body",
    "fault=html_502",
    "status=400",
    "status=401",
    "status=429",
    "status=500",
    "wrong_usage=negative",
    "wrong_usage=huge",
    "wrong_usage=missing",
    "wrong_usage=twice",
)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_upstreams_failure_is_closed_once(
    gateway: Gateway,
    simulated: SimulatedProvider,
    provider: Provider,
    bounded: Tenant,
    fault: str,
    stream: bool,
) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=6&{fault}")
    synchronize(gateway)
    simulated.reset()
    simulated.until(sockets=0)  # the end of a kept connection would be another attempt
    answer = gateway.chat(bounded.secret, model.slug, stream=stream)
    row = only_row(bounded)
    final = answer.status_code == 200 and ("data: [DONE]" in answer.text if stream else "choices" in answer.json())
    assert row.status == ("completed" if final else "failed")
    assert row.attempts == 1
    # What nobody can read may well be billed by the provider; the tenant pays nothing for it.
    assert (row.charge == 0) == (row.basis in ("nothing", "unknown"))
    assert (row.provider_cost is None) == (row.basis == "unknown")
    assert answer.headers["x-generation-id"] == row.id.hex if answer.status_code == 200 else True


def test_every_dial_is_an_attempt_and_the_last_ones_provider_is_paid(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant
) -> None:
    names = [
        f"chain-{provider.slug}-{number}?{what}" for number, what in enumerate(("status=503", "status=503", "tokens=2"))
    ]
    model = make_model(provider, names[0])
    others = [make_provider(simulated.base_url) for _ in names[1:]]
    for priority, (name, other) in enumerate(zip(names[1:], others, strict=True), 1):
        add_offer(model, other, name, priority=priority)
    synchronize(gateway)
    assert gateway.chat(bounded.secret, model.slug).status_code == 200
    row = only_row(bounded)
    attempts = Attempt.objects.filter(generation=row.id).order_by("number")
    assert [(a.upstream_model, a.status) for a in attempts] == list(
        zip(names, ("failed", "failed", "completed"), strict=True)
    )
    assert [line["model"] for line in simulated.bill() if line["model"] in names] == names
    assert row.provider == others[1].slug
    paid = LedgerEntry.objects.get(generation=row.id, debit="cost")
    assert (paid.credit, paid.amount) == (f"provider:{others[1].slug}", row.provider_cost)


def opened(gateway: Gateway, tenant: Tenant, model: Model, **body: Any) -> bytes:
    """A request as it goes over the wire."""
    content = msgspec.json.encode({"model": model.slug, "messages": [{"role": "user", "content": "hi"}], **body})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(gateway.url).netloc}\r\n"
        f"Authorization: Bearer {tenant.secret}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


async def leave_after(gateway: Gateway, request: bytes, most: int) -> int:
    """A client that sends `request` and leaves without a word once it has `most` bytes; gives how many it took."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(request)
    taken = 0
    try:
        while taken < most and (data := await reader.read(most - taken)):
            taken += len(data)
    finally:
        writer.transport.abort()
    return taken


def leaves(tenant: Tenant, how: str) -> None:
    """What becomes of the answers that the tenant leaves."""
    ApiKey.objects.filter(pk=tenant.key.pk).update(on_leave=how)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_leaves_before_the_first_byte_pays_for_what_was_asked(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant, stream: bool
) -> None:
    """The provider was sent the prompt, and is left at once: two bytes of text are a token."""
    leaves(bounded, "stop")
    model = make_model(provider, f"left-{provider.slug}?hold&tokens=5")
    synchronize(gateway)

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(opened(gateway, bounded, model, stream=stream))
        await asyncio.to_thread(simulated.until, 10.0, waiting=1)
        writer.transport.abort()
        await asyncio.to_thread(simulated.until, 10.0, waiting=0)

    run(scenario())
    row = only_row(bounded)
    assert (row.status, row.basis, row.error) == ("cancelled", "estimated", "client_left")
    assert (row.prompt_tokens, row.completion_tokens) == (1, 0)
    assert (row.charge, row.provider_cost) == (Decimal("0.000002"), Decimal("0.000001"))


@pytest.mark.parametrize("how", ["drain", "finish"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_who_leaves_is_read_on_for_and_pays_what_the_provider_reports(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant, stream: bool, how: str
) -> None:
    leaves(bounded, how)
    model = make_model(provider, f"left-{provider.slug}?hold&tokens=5&prompt=7")
    synchronize(gateway)

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(opened(gateway, bounded, model, stream=stream))
        await asyncio.to_thread(simulated.until, 10.0, waiting=1)
        writer.transport.abort()
        await asyncio.to_thread(until, lambda: "meterline_drains 1.0" in gateway.client.get("/metrics").text)
        simulated.release()

    run(scenario())
    row = only_row(bounded)
    assert (row.status, row.basis, row.error) == ("cancelled", "reported", "client_left")
    assert (row.prompt_tokens, row.completion_tokens) == (7, 5)
    assert (row.charge, row.provider_cost) == (Decimal("0.000034"), Decimal("0.000017"))
    assert "meterline_drains 0.0" in gateway.client.get("/metrics").text


def test_a_client_that_leaves_in_the_middle_pays_for_what_it_got(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant
) -> None:
    leaves(bounded, "stop")
    model = make_model(provider, f"left-{provider.slug}?hold=4&tokens=50")
    synchronize(gateway)

    async def scenario() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(opened(gateway, bounded, model, stream=True))
        await asyncio.to_thread(simulated.until, 10.0, waiting=1)
        await reader.readuntil(b"data: ")
        writer.transport.abort()
        await asyncio.to_thread(simulated.until, 10.0, waiting=0)

    run(scenario())
    row = only_row(bounded)
    assert (row.status, row.basis, row.error) == ("cancelled", "estimated", "client_left")
    assert 0 < row.completion_tokens < 50
    assert row.charge is not None
    assert row.charge > 0


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_clients_that_leave_at_any_byte_leave_one_row_each(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant, stream: bool
) -> None:
    model = make_model(provider, f"cut-{provider.slug}?tokens=12&pace=5ms")
    synchronize(gateway)
    chance = random.Random(11)
    request = opened(gateway, bounded, model, stream=stream)

    async def scenario() -> int:
        whole = await leave_after(gateway, request, 10**6) if not stream else 4000
        cuts = [chance.randrange(whole) for _ in range(60)]
        for start in range(0, 60, 15):
            await asyncio.gather(*(leave_after(gateway, request, cut) for cut in cuts[start : start + 15]))
        return 60 if stream else 61

    asked = run(scenario())
    at_rest(bounded)
    assert Usage.objects.filter(organization=bounded.organization.pk).count() == asked
    simulated.until(answering=0)


def test_a_client_that_leaves_while_it_is_settled_is_settled_once(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, bounded: Tenant
) -> None:
    model = make_model(provider, f"left-{provider.slug}?hold=3&tokens=5&prompt=7")
    synchronize(gateway)

    async def scenario() -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(opened(gateway, bounded, model, stream=True))
        await asyncio.to_thread(simulated.until, 10.0, waiting=1)
        with database(owner_url()) as blocker:
            blocker.execute("begin")
            blocker.execute(
                "select 1 from billing_counter where organization = %s for update", [bounded.organization.pk]
            )
            simulated.release()
            await asyncio.to_thread(until, settlement_waits)
            writer.transport.abort()
            await asyncio.sleep(0.3)  # the gateway hears of it
            blocker.execute("rollback")

    run(scenario())
    row = only_row(bounded)
    assert (row.status, row.basis, row.prompt_tokens, row.completion_tokens) == ("completed", "reported", 7, 5)


def settlement_waits() -> bool:
    """Whether a settlement waits for another transaction, asked from any thread."""
    query = (
        "select 1 from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and query like '%billing_conclude%'"
    )
    with database(owner_url()) as connection:
        return bool(connection.execute(query).fetchall())


def test_a_gateway_that_is_told_to_stop_finishes_what_it_began(
    simulated: SimulatedProvider, provider: Provider, bounded: Tenant, tmp_path: Path
) -> None:
    slow = make_model(provider, f"stop-{provider.slug}?tokens=15&pace=100ms")

    async def scenario(gateway: Gateway) -> Clients:
        async with Clients() as clients:
            asking = [
                asyncio.create_task(clients.ask(gateway.url, bounded.secret, slow.slug, stream=number % 3 != 0))
                for number in range(20)
            ]
            await asyncio.to_thread(simulated.until, 10.0, answering=20)
            gateway.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*asking)
            return clients

    with running(tmp_path, 1, EGRESS_ALLOW=simulated.url) as (gateway,):
        clients = run(scenario(gateway))
        assert gateway.process.wait(20) == 0
    assert all(answer.final for answer in clients.journal)
    assert list((tmp_path / "spool").iterdir()) == []
    at_rest(bounded)
    rows = Usage.objects.filter(organization=bounded.organization.pk)
    assert {(u.id, u.status) for u in rows} == {(a.generation, "completed") for a in clients.journal}


TAMPERING = {
    "a charge one unit up": "update billing_usage set charge = charge + 0.000000000001 where id = %(id)s",
    "a cost one unit down": "update billing_usage set provider_cost = provider_cost - 0.000000000001 where id = %(id)s",
    "a token more": "update billing_usage set completion_tokens = completion_tokens + 1 where id = %(id)s",
    "a rate": "update billing_rate set charge = charge + 0.000001 where version_id ="
    " (select tariff_version from billing_usage where id = %(id)s)",
    "an amount in the ledger": "update billing_ledgerentry set amount = amount * 2 where generation = %(id)s",
    "a posting gone": "delete from billing_ledgerentry where generation = %(id)s and debit = 'cost'",
    "a transaction gone": "delete from billing_ledgerentry where generation = %(id)s",
    "a row gone": "delete from billing_usage where id = %(id)s",
    "another closing": "insert into billing_ledgerentry (transaction, kind, generation, organization, debit, credit,"
    " amount, currency, created_at) select gen_random_uuid(), 'void', id, organization, 'a', 'b', 0, 'USD', now()"
    " from billing_usage where id = %(id)s",
    "a counter": "update billing_counter set used = used + 0.000000000001 where organization ="
    " (select organization from billing_usage where id = %(id)s) and measure = 'money'",
    "a hold of nobody": "update billing_counter set held = 1 where organization ="
    " (select organization from billing_usage where id = %(id)s) and measure = 'open'",
    "an attempt gone": "delete from billing_attempt where generation = %(id)s",
}


@pytest.mark.parametrize("what", TAMPERING)
def test_the_verifier_finds_every_change(gateway: Gateway, provider: Provider, bounded: Tenant, what: str) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=5&prompt=9")
    synchronize(gateway)
    assert gateway.chat(bounded.secret, model.slug).status_code == 200
    row = only_row(bounded)
    with database(owner_url()) as owner:
        changed = owner.execute(TAMPERING[what], {"id": row.id}).rowcount
    assert changed >= 1
    assert books(bounded.organization).problems() != []
