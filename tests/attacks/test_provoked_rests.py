"""What one tenant provokes at a provider: the others' requests go there all the same."""

import secrets
from typing import Any

import pytest

from routing.models import Ejection, Offer
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider

PAGE = b"<!DOCTYPE html><html><body>Sorry, you have been blocked</body></html>"


class Watched:
    """A model whose first offer does as it is told, and counts; the second one is well."""

    def __init__(self, gateway: Gateway, simulated: SimulatedProvider, **provider: Any) -> None:
        self._gateway, self._simulated = gateway, simulated
        self._name = f"watched-{secrets.token_hex(4)}"
        self.behave("tokens=1")
        provider = {"failure_threshold": 3, "cooldown": 300.0, **provider}
        self.model = make_model(make_provider(simulated.base_url, "sk-upstream-1234567890", **provider), self._name)
        add_offer(self.model, make_provider(simulated.base_url), "sim-small?tokens=1", priority=1)
        synchronize(gateway)

    def behave(self, options: str) -> None:
        """What the first offer does from now on."""
        self._simulated.behave(self._name, options)

    def dialled(self, *tenants: Tenant, **body: Any) -> list[bool]:
        """For a request of each, whether it was sent to the first offer."""
        found = []
        for tenant in tenants:
            before = self._calls()
            self._gateway.chat(tenant.secret, self.model.slug, **body)
            found.append(self._calls() > before)
        return found

    def _calls(self) -> int:
        return sum((line["event"], line["model"]) == ("start", self._name) for line in self._simulated.lines())

    def rests(self) -> list[Ejection]:
        """What rests of the first offer, with its credential or alone."""
        offer = Offer.objects.get(model=self.model, priority=0)
        credential = offer.provider.credentials.get()
        return list(Ejection.objects.filter(offer=offer) | Ejection.objects.filter(credential=credential))


def _option(simulated: SimulatedProvider, kind: str) -> str:
    if kind == "a firewall's page":
        return simulated.script("blocked", PAGE, status=403, content_type="text/html")
    return kind


@pytest.mark.parametrize("kind", ["status=429", "status=401", "status=402", "status=403", "status=500", "status=404"])
def test_what_one_provokes_rests_for_that_one_and_what_two_meet_for_all(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, kind: str
) -> None:
    watched, dana = Watched(gateway, simulated), make_tenant("dana")
    synchronize(gateway)
    watched.behave(kind)
    assert watched.dialled(*[alice] * 8).count(True) == (3 if kind in ("status=500", "status=404") else 1)
    until(lambda: [rest.organization_id for rest in watched.rests()] == [alice.organization.id])
    watched.behave("tokens=1")
    assert watched.dialled(charlie, dana, alice) == [True, True, False]
    watched.behave(kind)
    assert watched.dialled(*[charlie] * 8).count(True) == (3 if kind in ("status=500", "status=404") else 1)
    until(lambda: [rest.organization_id for rest in watched.rests()] == [None])
    assert watched.dialled(charlie, dana, alice) == [False] * 3


def test_a_firewalls_page_says_nothing_of_the_credential(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    watched = Watched(gateway, simulated)
    watched.behave(_option(simulated, "a firewall's page"))
    assert watched.dialled(*[alice] * 10).count(True) == 3
    until(lambda: [rest.cause for rest in watched.rests()] == ["server_error"])
    assert [rest.credential_id for rest in watched.rests()] == [None]
    watched.behave("tokens=1")
    assert watched.dialled(*[charlie] * 3) == [True] * 3


@pytest.mark.parametrize(
    "kind",
    [
        "status=400",
        "status=422",
        "status=413",
        "status=403&code=content_policy_violation",
        "status=404&code=item_not_found&message=Item%20rs_1%20was%20not%20found",
    ],
)
def test_a_refusal_of_the_content_rests_nothing_for_anybody(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, kind: str
) -> None:
    watched = Watched(gateway, simulated, failure_threshold=1)
    watched.behave(kind)
    assert watched.dialled(*[alice] * 24, charlie, alice) == [True] * 26
    assert watched.rests() == []
