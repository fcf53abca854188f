"""Budgets: what they count, cap and refuse. Under parallel requests: `tests/contention`."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Budget, Counter, Tariff, Usage
from routing.models import Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff

pytestmark = pytest.mark.backbone


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def cents() -> Tariff:
    """A cent for an output token, nothing for input: the worst case is the cap in cents."""
    return make_tariff(input="0", output=("5000", "10000"))


def budget(tenant: Tenant, amount: str, period: str = "total", **fields: Any) -> Budget:
    """A hard budget of the organization, or of the given project or key."""
    return Budget.objects.create(organization=tenant.organization, period=period, amount=Decimal(amount), **fields)


def test_money_that_runs_short_lowers_the_upstreams_cap(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40")
    model = make_model(provider, "sim-small?echo", cents)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=1000)
    assert answer.status_code == 200, answer.text
    received = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert received["max_tokens"] == 40


def test_a_client_that_names_no_cap_gets_one_when_money_runs_short(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40")
    model = make_model(provider, "sim-small?echo", cents)
    synchronize(gateway)
    received = json.loads(gateway.chat(alice.secret, model.slug).json()["choices"][0]["message"]["content"])
    assert received[provider.cap_field] == 40


def test_the_cap_is_never_lowered_below_the_keys_least(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40", project=alice.project)
    name = f"sim-{provider.slug}?tokens=2"
    model = make_model(provider, name, cents)
    _, secret = make_key(alice.project, name="picky", min_output_cap=41)
    synchronize(gateway)
    answer = gateway.chat(secret, model.slug, max_tokens=1000)
    assert answer.status_code == 402
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_credit", "insufficient_credit")
    assert error["message"].startswith("The project's budget of $0.4 does not cover")
    assert "Retry-After" not in answer.headers
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert not any(line["model"] == name for line in simulated.lines())
    # What the client itself asks for may be less.
    assert gateway.chat(secret, model.slug, max_tokens=40).status_code == 200


def test_a_charge_above_the_hold_takes_what_the_budget_has_and_the_rest_is_not_the_tenants(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    """The provider says more than its cap: 50 cents, when 30 were held of a budget of 40."""
    rule = budget(alice, "0.40")
    model = make_model(provider, f"sim-{provider.slug}?tokens=50&ignore_max", cents)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=30)
    assert answer.status_code == 200
    usage = Usage.objects.get(organization=alice.organization.pk)
    assert (usage.basis, usage.charge, usage.overrun) == ("capped", Decimal("0.40"), Decimal("0.10"))
    assert usage.provider_cost == Decimal("0.25")
    counter = Counter.objects.get(subject=rule.subject)
    assert (counter.used, counter.held) == (Decimal("0.40"), Decimal(0))
    assert books(alice.organization).problems() == []


def test_a_new_day_begins_with_nothing_spent(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    rule = budget(alice, "0.05", "day")
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    synchronize(gateway)
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_counter set used = 0.05, period_start = period_start - interval '1 day' where subject = %s",
            [rule.subject],
        )
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    assert gateway.chat(alice.secret, model.slug).status_code == 402
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    found = {c.period_start: c.used for c in Counter.objects.filter(subject=rule.subject)}
    assert set(found) >= {today, today - timedelta(days=1)} or len(found) == 2  # the day may have turned meanwhile
    assert set(found.values()) == {Decimal("0.05")}


def test_a_budget_counts_what_was_spent_before_it_was_made(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant, charlie: Tenant
) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    _, other = make_key(alice.project, name="other")
    synchronize(gateway)
    for secret in (alice.secret, other, charlie.secret):
        assert gateway.chat(secret, model.slug).status_code == 200
    rules = [
        budget(alice, "1", "month"),
        budget(alice, "1", "total", project=alice.project),
        budget(alice, "1", "day", project=alice.project, key=alice.key),
    ]
    used = [Counter.objects.get(subject=rule.subject, period=rule.period).used for rule in rules]
    assert used == [Decimal("0.10"), Decimal("0.10"), Decimal("0.05")]


def test_a_budget_that_was_deleted_and_made_again_has_missed_nothing(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    synchronize(gateway)
    rule = budget(alice, "1")
    gateway.chat(alice.secret, model.slug)
    Budget.objects.filter(pk=rule.pk).delete()
    gateway.chat(alice.secret, model.slug)
    budget(alice, "1")
    assert Counter.objects.get(subject=rule.subject).used == Decimal("0.10")
    assert books(alice.organization).problems() == []
