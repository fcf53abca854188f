"""A row a send: whatever a provider does to its connections, it has begun no request that is not on the books."""

from typing import Any

import pytest

from billing.models import Attempt, Usage
from routing.models import Ejection, Model, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider


def _begun(simulated: SimulatedProvider, name: str) -> int:
    return sum((line["event"], line["model"]) == ("start", name) for line in simulated.lines())


def _warm(gateway: Gateway, tenant: Tenant, simulated: SimulatedProvider) -> None:
    """Lets the gateway keep a connection to the provider."""
    model = make_model(make_provider(simulated.base_url), "warm?tokens=1")
    synchronize(gateway)
    assert gateway.chat(tenant.secret, model.slug).status_code == 200


def _tries(answer: Any) -> list[tuple[str, str]]:
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    return [(attempt.status, attempt.fault) for attempt in attempts]


def _shaky(simulated: SimulatedProvider, name: str, **fields: Any) -> Model:
    return make_model(make_provider(simulated.base_url, failure_threshold=1, **fields), name)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["reset_before", "close_before"])
def test_a_kept_connection_that_ends_is_an_attempt_and_the_same_offer_has_another(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fault: str, stream: bool
) -> None:
    name = f"once-{fault}-{stream}?fault={fault}&fail_first=1&tokens=2"
    model = _shaky(simulated, name)
    _warm(gateway, alice, simulated)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert answer.status_code == 200
    assert _tries(answer) == [("failed", "unreachable"), ("completed", "")]
    until(lambda: _begun(simulated, name) == 2)
    assert not Ejection.objects.filter(offer__model=model).exists()  # a connection's end is no word on the offer
    assert books(alice.organization).problems() == []


def test_an_offer_that_ends_every_connection_gets_a_second_try_and_then_the_next_offer_has_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    name = "always?fault=reset_before"
    model = _shaky(simulated, name)
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=1", priority=1)
    _warm(gateway, alice, simulated)
    answer = gateway.chat(alice.secret, model.slug)
    assert answer.status_code == 200
    assert _tries(answer) == [("failed", "unreachable"), ("failed", "unreachable"), ("completed", "")]
    assert _begun(simulated, name) == 2


def test_it_counts_among_the_attempts_that_a_policy_allows(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    name = "one?fault=reset_before&fail_first=1&tokens=1"
    model = _shaky(simulated, name)
    Policy.objects.create(level="model", model=model, max_attempts=1)
    _warm(gateway, alice, simulated)
    answer = gateway.chat(alice.secret, model.slug)
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert (_tries(answer), _begun(simulated, name)) == ([("failed", "unreachable")], 1)


def test_among_many_requests_no_send_is_without_its_row(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    name = "often?fault=reset_before&fail_every=3&tokens=1"
    model = make_model(make_provider(simulated.base_url, failure_threshold=1000), name)
    synchronize(gateway)
    statuses = [gateway.chat(alice.secret, model.slug).status_code for _ in range(60)]
    assert set(statuses) <= {200, 502}
    assert _begun(simulated, name) == Attempt.objects.filter(model=model.slug).count() > 60
    assert Usage.objects.filter(model=model.slug).count() == 60
