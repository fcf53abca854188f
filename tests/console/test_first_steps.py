"""First steps: what an installation or an organization still lacks, and a test request through the public API."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse

from accounts.models import Membership, User
from accounts.roles import Role
from billing.models import Usage
from tests.console.browser import console, context_of, make_usage
from tests.matrix.people import client_of
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

INDEX = reverse("admin:index")
ASK = reverse("first_request")


def member(tenant: Tenant, role: Role) -> Any:
    """A browser of a fresh member."""
    user = User.objects.create_user(f"{role}-{tenant.organization.slug}", is_staff=True)
    Membership.objects.create(user=user, organization=tenant.organization, role=role)
    return client_of(user)


def steps(client: Any) -> dict[str, bool] | None:
    """What the first page shows of them: which are done."""
    found = context_of(client.get(INDEX))["first_steps"]
    return found and {step.title: step.done for step in found["steps"]}


def test_an_owner_sees_their_own_steps_until_a_request_was_answered(alice: Tenant, charlie: Tenant) -> None:
    """Charlie's key and answers are none of theirs; a refused or failed request is no answer."""
    alice.key.delete()
    owner = member(alice, Role.OWNER)
    make_usage(charlie)
    expected = {"Add a project": True, "Make a key": False, "Send a first request": False}
    assert steps(owner) == expected
    key, _ = make_key(alice.project)
    assert steps(owner) == {**expected, "Make a key": True}
    make_usage(alice, key=key.pk, status="failed")
    assert steps(owner) == {**expected, "Make a key": True}
    assert "First steps" in owner.get(INDEX).content.decode()
    make_usage(alice, key=key.pk)
    assert steps(owner) is None
    assert "First steps" not in owner.get(INDEX).content.decode()


def test_whoever_has_many_generations_has_begun(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    """When all of the newest have failed, that is another affair."""
    monkeypatch.setattr("gateway.console.starting.first_steps.ENOUGH", 2)
    owner = member(alice, Role.OWNER)
    make_usage(alice, status="failed")
    assert steps(owner) is not None
    make_usage(alice, status="failed")
    assert steps(owner) is None


@pytest.mark.parametrize("role", [Role.DEVELOPER, Role.AUDITOR])
def test_others_are_told_no_steps(alice: Tenant, role: Role) -> None:
    assert steps(member(alice, role)) is None


@pytest.fixture
def reached(gateway: Gateway, settings: Any) -> Iterator[Gateway]:
    """A gateway whose address the console knows."""
    settings.GATEWAY_URL = gateway.url
    yield gateway


def test_a_test_request_goes_through_the_public_api(
    reached: Gateway, simulated: SimulatedProvider, alice: Tenant
) -> None:
    """With the key the models are read, then one is asked: the answer, its cost, and a link to its generation."""
    model = make_model(make_provider(f"{simulated.url}/v1"), "sim?text=Good day")
    alice.key.allowed_models = [model.slug]
    alice.key.save()
    synchronize(reached)
    owner = member(alice, Role.OWNER)
    page = owner.post(ASK, {"secret": alice.secret})
    assert list(context_of(page)["form"].fields["model"].choices) == [(model.slug, model.slug)]
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    page = owner.post(ASK, {"secret": alice.secret, "model": model.slug, "prompt": "Say hello"})
    row = Usage.objects.get(organization=alice.organization.pk)
    assert context_of(page)["told"]["text"] == "Good day"
    html = page.content.decode()
    assert reverse("admin:billing_usage_change", args=[row.pk]) in html
    assert row.charge and f"${row.charge.normalize():f}" in html
    assert "no-store" in page["Cache-Control"]


def test_what_the_gateway_refuses_is_told(reached: Gateway, alice: Tenant) -> None:
    page = member(alice, Role.OWNER).post(ASK, {"secret": "sk-no-key-of-ours"})
    assert context_of(page)["wrong"].startswith("The gateway answered 401. ")


def test_another_organizations_generation_is_not_shown(
    reached: Gateway, simulated: SimulatedProvider, alice: Tenant, charlie: Tenant
) -> None:
    """Charlie's owner with a key of Alice's, whoever gave it to them: the answer is the key's, the books are not."""
    model = make_model(make_provider(f"{simulated.url}/v1"), "sim?text=Good day")
    synchronize(reached)
    form = {"secret": alice.secret, "model": model.slug, "prompt": "Say hello"}
    page = member(charlie, Role.OWNER).post(ASK, form)
    told = context_of(page)["told"]
    assert (told["text"], told["row"], told["cost"]) == ("Good day", None, "")


@pytest.mark.parametrize("secret", ["two words", "line\nbreak", "é" * 10, "x" * 201])
def test_what_is_no_key_goes_nowhere(reached: Gateway, alice: Tenant, secret: str) -> None:
    page = member(alice, Role.OWNER).post(ASK, {"secret": secret})
    assert list(context_of(page)["form"].errors) == ["secret"]


def test_a_console_alone_says_what_it_has_not_been_told(alice: Tenant, settings: Any) -> None:
    settings.GATEWAY_URL, settings.SERVE = "", "console"
    page = member(alice, Role.OWNER).post(ASK, {"secret": alice.secret})
    assert "set GATEWAY_URL" in context_of(page)["wrong"]


def test_it_is_for_whoever_makes_keys(alice: Tenant) -> None:
    for role, status in ((Role.OWNER, 200), (Role.DEVELOPER, 200), (Role.AUDITOR, 403)):
        assert member(alice, role).get(ASK).status_code == status
    assert console().get(ASK).status_code == 200
