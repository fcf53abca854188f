"""Reading on for clients that have left is bounded: in places, which tenants share, in bytes, by the process's end."""

import json
from pathlib import Path

from billing.models import Hold, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import make_model, make_provider


def drains(gateway: Gateway) -> int:
    """How many answers it reads on for clients that have left."""
    lines = gateway.client.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("meterline_drains ")).split()[1]))


def leave(gateway: Gateway, simulated: SimulatedProvider, tenant: Tenant, model: str, waiting: int) -> None:
    """Asks, and leaves once the provider has so many that wait."""
    with dial(gateway) as line:
        line.send(chat(tenant.secret, model, stream=True))
        simulated.until(waiting=waiting)


def ends(tenant: Tenant) -> list[str]:
    """What the tenant's bills rest on, once nothing of its is held."""
    mine = {"organization": tenant.organization.pk}
    until(lambda: not Hold.objects.filter(**mine).exists(), 20)
    return sorted(Usage.objects.filter(**mine).values_list("basis", flat=True))


def test_places_are_few_and_one_organization_has_half_of_them(
    simulated: SimulatedProvider, alice: Tenant, charlie: Tenant, tmp_path: Path
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"drain-{provider.slug}?hold&tokens=2").slug
    with running(tmp_path, EGRESS_ALLOW=simulated.url, DRAINS_AT_ONCE="2") as (gateway,):
        synchronize(gateway)
        leave(gateway, simulated, alice, model, 1)
        until(lambda: drains(gateway) == 1)
        leave(gateway, simulated, alice, model, 2)
        until(lambda: Usage.objects.filter(organization=alice.organization.pk).count() == 1)  # left at once
        leave(gateway, simulated, charlie, model, 2)
        until(lambda: drains(gateway) == 2)
        simulated.release()
        assert ends(alice) == ["estimated", "reported"]
        assert ends(charlie) == ["reported"]
        assert drains(gateway) == 0
        assert 'meterline_drained_total{outcome="refused"} 1.0' in gateway.client.get("/metrics").text


def test_who_is_read_on_for_endlessly_is_given_up(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    """Ten megabytes that say nothing: more than is read for one."""
    comment = b": " + b"x" * 65_534 + b"\n"
    said = json.dumps({"choices": [{"index": 0, "delta": {"content": "12345678"}}]}).encode()
    data = b"data: " + said + b"\n\n" + comment * 160
    option = simulated.script(f"drain-{alice.organization.slug}", data, chunk=65_536, pauses="70:1s", end="hang")
    model = make_model(make_provider(simulated.base_url), f"sim-small?{option}").slug
    synchronize(gateway)
    with dial(gateway) as line:
        line.send(chat(alice.secret, model, stream=True))
        line._until(b"12345678")
    assert ends(alice) == ["estimated"]
    row = Usage.objects.get(model=model)
    assert (row.status, row.error, row.prompt_tokens, row.completion_tokens) == ("cancelled", "client_left", 1, 2)


def test_a_process_that_stops_reads_on_for_nobody(simulated: SimulatedProvider, alice: Tenant, tmp_path: Path) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"drain-{provider.slug}?hold&tokens=2").slug
    with running(tmp_path, EGRESS_ALLOW=simulated.url) as (gateway,):
        synchronize(gateway)
        leave(gateway, simulated, alice, model, 1)
        until(lambda: drains(gateway) == 1)
        gateway.process.terminate()
        assert ends(alice) == ["estimated"]
        gateway.process.wait(20)
    simulated.release()
