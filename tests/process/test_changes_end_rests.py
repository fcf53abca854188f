"""A changed secret, address or name, and what is switched on again, is tried at once by every process; until then the
client is told what is wrong, and not that it asks too often.
"""

import secrets
from collections.abc import Callable, Iterator

import pytest

from routing.models import Ejection, Model, Offer, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider


@pytest.fixture(scope="module")
def pair(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Two processes on one database."""
    with running(tmp_path_factory.mktemp("pair"), 2, EGRESS_ALLOW=simulated.url) as gateways:
        yield gateways


class Failing:
    """A model with one offer whose provider fails, until it is told to answer; it rests for long."""

    def __init__(self, simulated: SimulatedProvider, pair: list[Gateway], behaviour: str) -> None:
        self._simulated, self.pair = simulated, pair
        self.name = f"failing-{secrets.token_hex(4)}"
        self.behave(behaviour)
        self.provider: Provider = make_provider(
            simulated.base_url, "sk-wrong-1234567890", failure_threshold=1, cooldown=300.0
        )
        self.model: Model = make_model(self.provider, self.name)
        self.offer: Offer = self.model.offers.get()
        synchronize(*pair)

    def behave(self, options: str) -> None:
        """What it does from now on."""
        self._simulated.behave(self.name, options)

    def calls(self) -> int:
        """How often it was called."""
        return sum((line["event"], line["model"]) == ("start", self.name) for line in self._simulated.lines())

    def rests(self) -> list[str]:
        """Who ended its rests, or nobody yet."""
        rows = Ejection.objects.filter(offer=self.offer) | Ejection.objects.filter(
            credential__in=self.provider.credentials.all()
        )
        return [row.closed_by for row in rows.order_by("opened_at")]


@pytest.mark.parametrize(
    ("behaviour", "told", "reason"),
    [
        ("status=401", (502, "upstream_auth"), "refused"),
        ("status=403", (502, "upstream_auth"), "refused"),
        ("status=402", (429, "upstream_exhausted"), "exhausted"),
        ("status=429", (429, "upstream_rate_limited"), "cooling"),
    ],
)
def test_the_cause_stays_in_the_error_and_in_the_plan(
    pair: list[Gateway], alice: Tenant, simulated: SimulatedProvider, behaviour: str, told: tuple[int, str], reason: str
) -> None:
    failing = Failing(simulated, pair, behaviour)
    for _ in range(4):
        answer = pair[0].chat(alice.secret, failing.model.slug)
        assert (answer.status_code, answer.json()["error"]["code"]) == told
    assert failing.calls() == 1
    assert ("retry-after" in answer.headers) == (told[0] == 429)
    until(lambda: failing.rests() == [""])
    synchronize(*pair)
    for gateway in pair:
        body = {"model": failing.model.slug, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {alice.secret}", "X-Gateway-Explain": "1"}
        answer = gateway.client.post("/v1/chat/completions", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == told
        (line,) = answer.json()["error"].get("x_gateway_plan", answer.json().get("x_gateway_plan"))["candidates"]
        assert line["reason"] == reason
    assert failing.calls() == 1


def _new_secret(failing: Failing) -> None:
    credential = failing.provider.credentials.get()
    credential.put("sk-right-1234567890")
    credential.save()


def _switched_off_and_on(failing: Failing) -> None:
    for active in (False, True):
        failing.provider.active = active
        failing.provider.save()


def _credential_off_and_on(failing: Failing) -> None:
    for active in (False, True):
        failing.provider.credentials.update(active=active)


def _new_address(failing: Failing) -> None:
    failing.provider.base_url = failing.provider.base_url.replace("127.0.0.1", "localhost") + "/"
    failing.provider.base_url = failing.provider.base_url.replace("localhost", "127.0.0.1")
    failing.provider.save()
    _new_secret(failing)


def _new_name(failing: Failing) -> None:
    Offer.objects.filter(pk=failing.offer.pk).update(upstream_model=f"{failing.name}?tokens=1")


@pytest.mark.parametrize(
    ("behaviour", "change"),
    [
        ("status=401", _new_secret),
        ("status=401", _credential_off_and_on),
        ("status=403", _switched_off_and_on),
        ("status=500", _switched_off_and_on),
        ("status=404", _new_name),
        ("status=500", _new_address),
        ("status=429&retry_after=60", _new_address),
    ],
)
def test_what_is_changed_is_tried_at_once_in_all_processes(
    pair: list[Gateway],
    alice: Tenant,
    charlie: Tenant,
    simulated: SimulatedProvider,
    behaviour: str,
    change: Callable[[Failing], None],
) -> None:
    failing = Failing(simulated, pair, behaviour)
    for tenant in (alice, charlie):
        assert pair[0].chat(tenant.secret, failing.model.slug).status_code != 200
    until(lambda: failing.rests() == [""])
    synchronize(*pair)
    before = failing.calls()
    failing.behave("tokens=1")
    change(failing)
    synchronize(*pair)
    assert failing.rests() == ["operator"]
    for gateway in pair:
        for tenant in (alice, charlie):
            assert gateway.chat(tenant.secret, failing.model.slug).status_code == 200
    if change is not _new_name:
        assert failing.calls() == before + 4


def test_what_changes_nothing_ends_nothing(pair: list[Gateway], alice: Tenant, simulated: SimulatedProvider) -> None:
    failing = Failing(simulated, pair, "status=401")
    assert pair[0].chat(alice.secret, failing.model.slug).status_code == 502
    until(lambda: failing.rests() == [""])
    failing.provider.name = "Another name"
    failing.provider.idle_timeout = 7
    failing.provider.save()
    failing.provider.credentials.get().save()
    failing.offer.save()
    synchronize(*pair)
    assert failing.rests() == [""]
    assert pair[1].chat(alice.secret, failing.model.slug).status_code == 502
    assert failing.calls() == 1
