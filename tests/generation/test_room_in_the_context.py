"""A cap that the gateway sends leaves room for the prompt; providers refuse a prompt and a cap beyond their context."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from accounts.models import Project
from billing.models import Attempt, Budget, Usage
from routing.models import Model, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider

CONTEXT = 8_192
UPSTREAM = f"sim-small?tokens=30&context={CONTEXT}"


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def model(provider: Provider) -> Model:
    """Its longest answer is as long as its context, as many a catalog says."""
    return make_model(provider, UPSTREAM, context_length=CONTEXT, max_output=CONTEXT)


def hard_budget(tenant: Tenant) -> None:
    """Of $100 a month."""
    Budget.objects.create(organization=tenant.organization, period="month", amount=Decimal(100))


def ask(gateway: Gateway, tenant: Tenant, model: Model, text: str, **body: Any) -> httpx.Response:
    """A chat of one message."""
    synchronize(gateway)
    return gateway.chat(tenant.secret, model.slug, messages=[{"role": "user", "content": text}], **body)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "text",
    ["hi", "word " * 600, "word " * 2_000, "word " * 4_000, "a " * 3_000, "Donaudampfschifffahrt " * 900],
    ids=["short", "3 KB", "10 KB", "20 KB", "dense", "long words"],
)
def test_a_hard_budget_sends_a_cap_that_fits_beside_the_prompt(
    gateway: Gateway, model: Model, alice: Tenant, text: str, stream: bool
) -> None:
    hard_budget(alice)
    response = ask(gateway, alice, model, text, stream=stream)
    assert response.status_code == 200, response.text
    usage = Usage.objects.get(organization=alice.organization.pk)
    assert (usage.completion_tokens, usage.basis) == (30, "reported")


def test_so_does_the_default_cap_of_a_project(gateway: Gateway, model: Model, alice: Tenant) -> None:
    Project.objects.filter(pk=alice.project.pk).update(default_output_cap=16_384)
    assert ask(gateway, alice, model, "word " * 1_000).status_code == 200


def test_and_a_cap_that_is_lowered_to_what_the_offer_may_write(gateway: Gateway, model: Model, alice: Tenant) -> None:
    assert ask(gateway, alice, model, "word " * 1_000, max_tokens=32_000).status_code == 200


def test_a_cap_of_the_clients_own_is_sent_as_it_is(gateway: Gateway, model: Model, alice: Tenant) -> None:
    """The provider tells who asks for more than fits; nothing is charged."""
    hard_budget(alice)
    response = ask(gateway, alice, model, "word " * 1_000, max_tokens=8_000)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert Usage.objects.get(organization=alice.organization.pk).charge == 0


def test_a_prompt_beyond_the_context_is_told_as_such(gateway: Gateway, model: Model, alice: Tenant) -> None:
    hard_budget(alice)
    response = ask(gateway, alice, model, "word " * 9_000)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert Usage.objects.get(organization=alice.organization.pk).charge == 0


@pytest.mark.parametrize("stream", [False, True])
def test_what_one_offer_has_no_room_for_goes_to_one_with_a_larger_context(
    gateway: Gateway, provider: Provider, model: Model, alice: Tenant, stream: bool
) -> None:
    """And not to another one that is as small."""
    hard_budget(alice)
    add_offer(model, provider, f"{UPSTREAM}&text=small", priority=1)
    add_offer(model, provider, "sim-small?text=large&context=65536", priority=2, context_length=65_536)
    response = ask(gateway, alice, model, "word " * 9_000, stream=stream)
    assert response.status_code == 200
    assert "large" in response.text
    usage = Usage.objects.get(organization=alice.organization.pk)
    attempts = Attempt.objects.filter(generation=usage.id).order_by("number")
    assert [one.upstream_model for one in attempts] == [UPSTREAM, "sim-small?text=large&context=65536"]
