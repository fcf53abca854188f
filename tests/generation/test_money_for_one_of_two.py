"""What a hard budget does not cover is left out, and what it covers, or costs nothing, is asked as if it were alone."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Budget, Hold, LedgerEntry, Tariff, Usage
from routing.models import Model, Offer, Policy, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

FIELD = "x_gateway_plan"
ALL = ("organization", "project", "key")


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def free() -> Tariff:
    """A price that is known, and nothing."""
    return make_tariff(input="0", output="0")


@pytest.fixture
def cents() -> Tariff:
    """A cent for an output token, nothing for input."""
    return make_tariff(input="0", output="10000")


def budget(tenant: Tenant, amount: str, level: str = "organization") -> Budget:
    """A hard budget of this month."""
    of: dict[str, dict[str, Any]] = {
        "organization": {},
        "project": {"project": tenant.project},
        "key": {"project": tenant.project, "key": tenant.key},
    }
    return Budget.objects.create(organization=tenant.organization, period="month", amount=Decimal(amount), **of[level])


def explained(gateway: Gateway, tenant: Tenant, model: str, **body: Any) -> httpx.Response:
    """A short chat that wants its plan told."""
    return gateway.client.post(
        "/v1/chat/completions",
        json={"model": model, "messages": [{"role": "user", "content": "hi"}], **body},
        headers={"Authorization": f"Bearer {tenant.secret}", "X-Gateway-Explain": "1"},
    )


def reasons(response: httpx.Response) -> list[tuple[Any, str, str]]:
    """Place, model and reason of each candidate."""
    return [(line["order"], line["model"], line["reason"]) for line in response.json()[FIELD]["candidates"]]


def behind(first: Model, second: Model) -> None:
    """The second is the first one's fallback."""
    Policy.objects.create(level="model", model=first, fallback=second.slug)


def nothing_happened(tenant: Tenant) -> None:
    """No row of a call, and no money moved."""
    mine = tenant.organization.pk
    assert not Usage.objects.filter(organization=mine).exists()
    assert not Hold.objects.filter(organization=mine).exists()
    assert not LedgerEntry.objects.filter(organization=mine).exists()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("level", ALL)
@pytest.mark.parametrize("spent", [False, True])
def test_without_money_what_costs_is_refused_and_what_is_free_is_answered(
    gateway: Gateway,
    simulated: SimulatedProvider,
    provider: Provider,
    cents: Tariff,
    free: Tariff,
    alice: Tenant,
    level: str,
    spent: bool,
    stream: bool,
) -> None:
    dear = make_model(provider, f"dear-{provider.slug}?tokens=5", cents)
    gift = make_model(provider, f"gift-{provider.slug}?tokens=5", free)
    budget(alice, "0.05" if spent else "0", level)
    synchronize(gateway)
    if spent:  # to the last cent
        assert gateway.chat(alice.secret, dear.slug, max_tokens=5).status_code == 200
    dialled = len(simulated.lines())

    answer = gateway.chat(alice.secret, dear.slug, stream=stream)
    assert (answer.status_code, answer.json()["error"]["code"]) == (402, "insufficient_credit")
    assert len(simulated.lines()) == dialled
    if not spent:
        nothing_happened(alice)

    answer = gateway.chat(alice.secret, gift.slug, stream=stream, max_tokens=100)
    assert answer.status_code == 200
    row = Usage.objects.get(model=gift.slug)
    assert (row.charge, row.status, row.completion_tokens) == (Decimal(0), "completed", 5)


def test_without_a_budget_everything_is_answered(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, "sim-small?tokens=5", cents)
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_free_model_is_asked_though_its_fallback_costs(
    gateway: Gateway,
    simulated: SimulatedProvider,
    provider: Provider,
    cents: Tariff,
    free: Tariff,
    alice: Tenant,
    stream: bool,
) -> None:
    gift = make_model(provider, f"gift-{provider.slug}?tokens=5", free)
    dear = make_model(provider, f"dear-{provider.slug}", cents)
    behind(gift, dear)
    budget(alice, "0")
    synchronize(gateway)
    answer = explained(gateway, alice, gift.slug, stream=stream)
    assert answer.status_code == 200
    row = Usage.objects.get(organization=alice.organization.pk)
    assert (row.model, row.charge, row.completion_tokens) == (gift.slug, Decimal(0), 5)
    if not stream:
        assert reasons(answer) == [(1, gift.slug, "priority"), (None, dear.slug, "credit")]


def test_a_free_model_that_fails_is_not_followed_by_one_that_the_money_does_not_cover(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, free: Tariff, alice: Tenant
) -> None:
    gift = make_model(provider, f"gift-{provider.slug}?status=503", free)
    dear = make_model(make_provider(simulated.base_url), f"dear-{provider.slug}", cents)
    behind(gift, dear)
    budget(alice, "0")
    synchronize(gateway)
    answer = explained(gateway, alice, gift.slug)
    assert answer.status_code == 503
    assert reasons(answer) == [(1, gift.slug, "priority"), (None, dear.slug, "credit")]
    assert not [line for line in simulated.lines() if line["model"].startswith(f"dear-{provider.slug}")]
    assert Attempt.objects.filter(generation__in=Usage.objects.filter(model=gift.slug).values("id")).count() == 1


def test_a_dear_first_model_is_left_out_and_its_free_fallback_answers(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, free: Tariff, alice: Tenant
) -> None:
    dear = make_model(provider, f"dear-{provider.slug}", cents)
    gift = make_model(provider, f"gift-{provider.slug}?tokens=5", free)
    behind(dear, gift)
    budget(alice, "0")
    synchronize(gateway)
    answer = explained(gateway, alice, dear.slug)
    assert answer.status_code == 200
    assert reasons(answer) == [(1, gift.slug, "priority"), (None, dear.slug, "credit")]
    assert answer.json()[FIELD]["candidates"][1]["why"] == "left out: what a hard budget has left does not cover it"
    row = Usage.objects.get(organization=alice.organization.pk)
    assert (row.model, row.charge, row.attempts) == (gift.slug, Decimal(0), 1)
    attempt = Attempt.objects.get(generation=row.id)
    assert (attempt.number, attempt.model, attempt.status) == (1, gift.slug, "completed")
    assert not [line for line in simulated.lines() if line["model"].startswith(f"dear-{provider.slug}")]


def test_an_offer_past_the_most_attempts_moves_up(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, free: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, "sim-small", cents)
    add_offer(model, make_provider(simulated.base_url), "sim-small", cents, priority=1)
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=5", free, priority=2)
    Policy.objects.create(level="key", key=alice.key, max_attempts=2)
    budget(alice, "0")
    synchronize(gateway)
    answer = explained(gateway, alice, model.slug)
    assert answer.status_code == 200
    assert [reason for _, _, reason in reasons(answer)] == ["priority", "credit", "credit"]


def test_no_offer_lowers_another_one_s_cap(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, free: Tariff, alice: Tenant
) -> None:
    """Ten cents are left: the free one may say all it wants, the one at a cent a token ten."""
    gift = make_model(provider, "sim-small?tokens=40", free, max_output=100)
    failing = make_model(provider, f"failing-{provider.slug}?status=503", free, max_output=100)
    paid = make_model(make_provider(simulated.base_url), "sim-small?echo", cents, max_output=100)
    behind(gift, paid)
    behind(failing, paid)
    budget(alice, "0.10")
    synchronize(gateway)

    answer = explained(gateway, alice, gift.slug)
    assert answer.json()["usage"]["completion_tokens"] == 40
    assert reasons(answer) == [(1, gift.slug, "priority"), (2, paid.slug, "priority")]

    answer = explained(gateway, alice, failing.slug)
    said = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert said["max_tokens"] == 10
    assert Usage.objects.get(model=paid.slug).attempts == 2


def test_a_cap_is_lowered_to_what_the_offer_s_own_price_leaves(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    """A fallback that ten cents do not cover at all does not cut the first one, which they cover with ten tokens."""
    paid = make_model(provider, "sim-small?echo", cents, max_output=100)
    dear = make_model(make_provider(simulated.base_url), "sim-small", make_tariff(input="0", output="900000"))
    behind(paid, dear)
    budget(alice, "0.10")
    synchronize(gateway)
    answer = explained(gateway, alice, paid.slug)
    assert json.loads(answer.json()["choices"][0]["message"]["content"])["max_tokens"] == 10
    assert reasons(answer) == [(1, paid.slug, "priority"), (None, dear.slug, "credit")]


def test_a_hard_budget_s_cap_is_always_told_upstream(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, free: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, "sim-small?echo", free, max_output=77)
    budget(alice, "1")
    synchronize(gateway)
    said = json.loads(gateway.chat(alice.secret, model.slug).json()["choices"][0]["message"]["content"])
    assert said["max_tokens"] == 77


def test_an_offer_of_unknown_price_is_left_out_where_another_has_one(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, f"unknown-{provider.slug}", cents)
    Offer.objects.filter(model=model).update(tariff=None)
    Offer.objects.filter(model=model).get().save()  # noted for the gateway
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=5", cents, priority=1)
    budget(alice, "1")
    synchronize(gateway)
    answer = explained(gateway, alice, model.slug, max_tokens=10)
    assert answer.status_code == 200
    assert [reason for _, _, reason in reasons(answer)] == ["priority", "unpriced"]
    assert Usage.objects.get(organization=alice.organization.pk).charge == Decimal("0.05")
    assert not [line for line in simulated.lines() if line["model"] == f"unknown-{provider.slug}"]


def test_the_refusal_names_the_missing_price(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, alice: Tenant
) -> None:
    bare = make_model(provider, f"bare-{provider.slug}")
    Offer.objects.get(model=bare).delete()
    offer = add_offer(bare, provider, f"bare-{provider.slug}")
    offer.tariff = None
    offer.save()
    half = make_model(provider, f"half-{provider.slug}", make_tariff(input="1"))
    budget(alice, "1", "project")
    synchronize(gateway)
    for model, lacks in ((bare, "no tariff in force"), (half, "a tariff without a rate for output")):
        answer = explained(gateway, alice, model.slug)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (402, "unknown_price")
        assert error["message"] == (
            "The project has a hard budget, which takes no request at an unknown price: "
            f"'{model.slug}' at {provider.slug}/{model.offers.get().upstream_model} has {lacks}. "
            "Whoever runs this gateway can give it a price; until then ask for another model."
        )
        assert reasons(answer) == [(None, model.slug, "unpriced")]
    nothing_happened(alice)


def test_the_refusal_names_what_the_request_itself_can_cause(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    """A search that the offer takes, and its tariff has no rate for."""
    model = make_model(provider, "sim-small?tokens=5", cents, supported_parameters=["web_search_options"])
    budget(alice, "1")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, web_search_options={}, max_tokens=10)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (402, "unknown_price")
    assert "has a tariff without a rate for web_search." in error["message"]
    assert gateway.chat(alice.secret, model.slug, max_tokens=10).status_code == 200
