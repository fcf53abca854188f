"""Budgets of a model and of each end user, as clients meet them: who is refused, by whose name, and who goes on."""

from decimal import Decimal
from typing import Any

import pytest

from billing.models import EACH, Budget, Counter, Tariff, Usage
from routing.models import Policy, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened

HEADER = "x-gateway-budget-remaining"


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def cents() -> Tariff:
    """A cent for an output token, nothing for input."""
    return make_tariff(input="0", output="10000")


def budget(tenant: Tenant, amount: str, **fields: Any) -> Budget:
    """A hard budget of the organization, for ever."""
    return Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(amount), **fields)


def used(tenant: Tenant) -> dict[tuple[str, str | None], Decimal]:
    """Dollars by model and end user; nothing is held any more."""
    found = Counter.objects.filter(organization=tenant.organization.pk, measure="money")
    assert not any(counter.held for counter in found)
    return {(counter.model, counter.end_user): counter.used for counter in found}


def dials(simulated: SimulatedProvider, model: str) -> int:
    """How often a model was called."""
    return sum((line["event"], line["model"]) == ("start", model) for line in simulated.lines())


def test_an_end_user_who_has_spent_his_is_refused_by_name_and_others_go_on(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant, charlie: Tenant
) -> None:
    name = f"sim-{provider.slug}?tokens=5"
    model = make_model(provider, name, cents)
    budget(alice, "0.10", end_user=EACH, project=alice.project)
    budget(charlie, "0.05", end_user=EACH)
    synchronize(gateway)

    def ask(tenant: Tenant = alice, **body: Any) -> Any:
        return gateway.chat(tenant.secret, model.slug, max_tokens=10, **body)

    refused = gateway.chat(alice.secret, model.slug, max_tokens=10, user="ann", n=2)  # 20 cents at worst: 10 for both
    assert refused.status_code == 200
    assert refused.headers[HEADER] == "0.1"
    dialled = dials(simulated, name)
    refused = ask(user="ann")
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    assert error(refused)["message"].startswith("The project's budget of $0.1 for end user ann does not cover")
    assert ask(safety_identifier="ann").status_code == 402
    assert dials(simulated, name) == dialled
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 1

    assert ask(user="ben").headers[HEADER] == "0.1"
    nameless = ask()
    assert (nameless.status_code, nameless.headers[HEADER]) == (200, "0.1")
    assert ask().headers[HEADER] == "0.05"
    assert "$0.1 without a user does" in error(ask())["message"]
    assert nothing_happened(charlie)
    assert ask(charlie, user="ann").headers[HEADER] == "0.05"
    ann, five = Decimal("0.10"), Decimal("0.05")
    assert used(alice) == {("", "ann"): ann, ("", "ben"): five, ("", ""): ann}
    assert used(charlie) == {("", "ann"): five}
    assert books(alice.organization, charlie.organization).problems() == []


def test_a_model_whose_budget_is_spent_is_left_out_and_its_fallback_answers(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    dear = make_model(provider, f"dear-{provider.slug}?tokens=5", cents)
    plain = make_model(provider, f"plain-{provider.slug}?tokens=4", cents)
    Policy.objects.create(level="model", model=dear, fallback=plain.slug)
    budget(alice, "0.05", model=dear.slug)
    budget(alice, "9", model=plain.slug)
    synchronize(gateway)

    def answered(model: str) -> tuple[str, str]:
        """Whose answer it is, and what its budget had left."""
        answer = gateway.chat(alice.secret, model, max_tokens=5)
        assert answer.status_code == 200, answer.text
        return Usage.objects.filter(organization=alice.organization.pk).latest("id").model, answer.headers[HEADER]

    assert answered(dear.slug) == (dear.slug, "0.05")
    assert answered(dear.slug) == (plain.slug, "9")
    assert used(alice) == {(dear.slug, None): Decimal("0.05"), (plain.slug, None): Decimal("0.04")}
    Budget.objects.filter(organization=alice.organization, model=plain.slug).update(amount=Decimal("0.04"))
    refused = gateway.chat(alice.secret, dear.slug, max_tokens=5)
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    assert f"budget of $0.04 of {plain.slug} does not cover" in error(refused)["message"]
    assert books(alice.organization).problems() == []


def test_a_fallback_is_paid_from_its_own_budget_and_without_one_that_covers_it_not_asked(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    name = f"plain-{provider.slug}?tokens=4"
    broken = make_model(provider, f"broken-{provider.slug}?status=503", cents)
    plain = make_model(make_provider(simulated.base_url), name, cents)
    Policy.objects.create(level="model", model=broken, fallback=plain.slug)
    budget(alice, "1", model=broken.slug)
    rule = budget(alice, "0.06", model=plain.slug)
    synchronize(gateway)
    assert gateway.chat(alice.secret, broken.slug, max_tokens=5).status_code == 200
    assert used(alice) == {(broken.slug, None): 0, (plain.slug, None): Decimal("0.04")}
    dialled = dials(simulated, name)
    # Five cents are held, and the fallback's budget has two.
    assert gateway.chat(alice.secret, broken.slug, max_tokens=5).status_code == 503
    assert dials(simulated, name) == dialled
    Budget.objects.filter(pk=rule.pk).update(amount=Decimal("0.09"))
    assert gateway.chat(alice.secret, broken.slug, max_tokens=5).status_code == 200
    assert used(alice) == {(broken.slug, None): 0, (plain.slug, None): Decimal("0.08")}
    assert books(alice.organization).problems() == []


def test_one_end_user_too_many_is_told_when_to_come_back(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    name = f"sim-{provider.slug}?tokens=5"
    model = make_model(provider, name, cents)
    Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(9), end_user=EACH)
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug, max_tokens=5, user="ann").status_code == 200
    Counter.objects.filter(organization=alice.organization.pk, measure="users").update(used=100_000)
    dialled = dials(simulated, name)
    refused = gateway.chat(alice.secret, model.slug, max_tokens=5, user="ben")
    assert (refused.status_code, error(refused)["code"]) == (429, "too_many_end_users")
    assert 0 < int(refused.headers["Retry-After"]) <= 31 * 86_400
    assert dials(simulated, name) == dialled
    assert used(alice) == {("", "ann"): Decimal("0.05")}
    assert gateway.chat(alice.secret, model.slug, max_tokens=5, user="ann").status_code == 200
