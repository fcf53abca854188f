"""A provider's key that is changed, and a provider that is switched off, while many ask: X6."""

import hashlib

import pytest

from billing.models import Usage
from routing.models import Credential, Provider
from tests.contention.changes import Change, ask_while_changing, change, change_by
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, run
from tests.stage.cast import Tenant
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider

pytestmark = pytest.mark.backbone

ROTATIONS = scaled(2, 10)
SWITCHES = scaled(2, 10)
REQUESTS = scaled(60, 3000)
UNUSED_AFTER = 1.0  # seconds


def secret(number: int) -> str:
    """A provider's key."""
    return f"sk-provider-{number:08}"


def digest(number: int) -> str:
    """How the simulated provider's bill names that key."""
    return hashlib.sha256(secret(number).encode()).hexdigest()[:16]


@pytest.mark.parametrize("way", ["in place", "beside"])
def test_a_provider_s_key_is_rotated_and_no_request_fails(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, figures: Figures, way: str
) -> None:
    """The new key is put into the old one's row, or into a row of its own before the old one is switched off."""
    provider = make_provider(simulated.base_url, secret(0))
    name = f"rotated-{provider.slug}?tokens=3"
    model = make_model(provider, name).slug
    synchronize(*fleet)
    rows = [provider.credentials.get()]

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model, stream=number % 2 == 0)

    def rotate(number: int) -> Change:
        return change_by(lambda: put(number + 1))

    def put(number: int) -> None:
        row = rows[-1] if way == "in place" else Credential(provider=provider, name=f"number {number}")
        row.put(secret(number))
        row.save()
        if row is not rows[-1]:
            Credential.objects.filter(pk=rows[-1].pk).update(active=False)
            rows.append(row)

    journal, changes = run(
        ask_while_changing(fleet, REQUESTS, ROTATIONS, ask, rotate, clients=scaled(4, 16), apart=1.2)
    )
    failed = [answer for answer in journal if answer.status != 503 and not answer.final]
    assert failed == []
    begun = [line for line in simulated.lines() if line["model"] == name and line["event"] == "start"]
    numbers = {digest(number): number for number in range(ROTATIONS + 1)}
    used = [(numbers[line["credential"]["digest"]], line["at"]) for line in begun]
    assert {number for number, _ in used} == set(range(ROTATIONS + 1))
    ends = [made.at.timestamp() for made in changes]  # of each key but the last
    late = max((at - ends[number] for number, at in used if number < ROTATIONS), default=0.0)
    assert late < UNUSED_AFTER
    found = Usage.objects.filter(organization=alice.organization.pk, error="")
    assert found.count() == sum(answer.final for answer in journal)
    assert set(found.values_list("attempts", flat=True)) == {1}
    assert books(alice.organization).problems() == []
    figures("X6", failed=len(failed), seconds_that_an_old_key_was_used=round(max(late, 0.0), 3))


def test_a_provider_that_is_switched_off_gets_nothing_and_another_all(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant, figures: Figures
) -> None:
    """The first of two, off and on by turns."""
    first, second = (make_provider(simulated.base_url) for _ in range(2))
    names = [f"switched-{provider.slug}?tokens=3" for provider in (first, second)]
    model = make_model(first, names[0])
    add_offer(model, second, names[1], priority=200)
    synchronize(*fleet)

    async def ask(clients: Clients, url: str, number: int) -> Answer:
        return await clients.insist(url, alice.secret, model=model.slug, stream=number % 2 == 0)

    def switch(number: int) -> Change:
        return change("update routing_provider set active = %s where id = %s", number % 2 == 1, first.pk)

    journal, changes = run(ask_while_changing(fleet, REQUESTS, SWITCHES, ask, switch, clients=scaled(4, 16), apart=1.2))
    failed = [answer for answer in journal if answer.status != 503 and not answer.final]
    assert failed == []
    times: list[list[float]] = [[], []]
    for line in simulated.lines():
        if line["model"] in names and line["event"] == "start":
            times[names.index(line["model"])].append(line["at"])
    moments = [made.at.timestamp() for made in changes]
    late = 0.0
    for off, on in zip(moments[::2], [*moments[1::2], float("inf")][: len(moments[::2])], strict=True):
        late = max([late, *(at - off for at in times[0] if off < at < on)])
        assert any(off < at < on for at in times[1])
    assert late < UNUSED_AFTER
    assert any(at > moments[1] for at in times[0])  # and it is back
    assert books(alice.organization).problems() == []
    figures("X6", failed=len(failed), seconds_that_it_was_asked_yet=round(late, 3))


def test_the_only_provider_switched_off_gets_nothing(
    fleet: list[Gateway], simulated: SimulatedProvider, alice: Tenant
) -> None:
    provider = make_provider(simulated.base_url)
    name = f"only-{provider.slug}?tokens=3"
    model = make_model(provider, name).slug
    synchronize(*fleet)
    assert [gateway.chat(alice.secret, model).status_code for gateway in fleet] == [200] * 4
    Provider.objects.filter(pk=provider.pk).update(active=False)
    synchronize(*fleet)
    assert {gateway.chat(alice.secret, model).status_code for gateway in fleet} == {502}
    assert sum(line["model"] == name for line in simulated.bill()) == 4
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 4
