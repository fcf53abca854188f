"""Policies in the console: whose requests one is for is chosen once, and a mistake is told with what to do."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from accounts.models import ApiKey, Project
from routing.models import ChoiceWeight, Level, Model, Policy, Provider
from tests.configuration.desk import undone
from tests.console.browser import console, context_of, filled, submit
from tests.console.browser import url as page
from tests.stage.cast import Tenant
from tests.stage.shelf import make_model, make_provider

LIST = reverse("admin:routing_policy_changelist")
ADD = reverse("admin:routing_policy_add")


def errors(response: Any) -> dict[str, list[str]]:
    """What the form says of its fields."""
    assert response.status_code == 200
    found: dict[str, list[str]] = context_of(response)["adminform"].form.errors
    return {name: list(texts) for name, texts in found.items()}


def add(client: Client, **fields: Any) -> Any:
    """Sends the form of a new policy."""
    return submit(client, ADD, "policy_form", **fields)


@pytest.fixture
def provider() -> Provider:
    return make_provider("https://one.example/v1")


@pytest.fixture
def other() -> Provider:
    return make_provider("https://two.example/v1")


@pytest.fixture
def model(provider: Provider) -> Model:
    return make_model(provider)


def test_it_works(alice: Tenant, provider: Provider, other: Provider) -> None:
    client = console()
    made = add(
        client,
        level="project",
        project=str(alice.project.pk),
        strategy="order",
        providers=f"{provider.slug}\r\n\r\n{other.slug}/fast \r\n",
        only_providers="",
        fallback="false",
        max_attempts="2",
        first_byte_timeout="1.5",
        refuses_training="on",
        continues_streams="true",
    )
    assert made.status_code == 302
    policy = Policy.objects.get(project=alice.project)
    assert (policy.level, policy.key, policy.model) == ("project", None, None)
    assert (policy.strategy, policy.factor, policy.fallback, policy.max_attempts) == ("order", "", "false", 2)
    assert (policy.providers, policy.only_providers) == ([provider.slug, f"{other.slug}/fast"], None)
    assert (policy.first_byte_timeout, policy.total_timeout) == (1.5, None)
    assert (policy.refuses_training, policy.refuses_retention, policy.continues_streams) == (True, False, True)
    html = client.get(LIST, {"q": alice.organization.slug}).content.decode()
    assert "Exactly as listed" in html and f"{provider.slug}, {other.slug}/fast" in html and "training" in html


def test_what_is_empty_stays_unsaid(alice: Tenant, provider: Provider) -> None:
    client = console()
    assert add(client, level="key", key=str(alice.key.pk), providers=provider.slug).status_code == 302
    policy = Policy.objects.get(key=alice.key)
    assert (policy.only_providers, policy.max_attempts, policy.continues_streams) == (None, None, None)
    address = page(Policy, "change", policy.pk)
    assert submit(client, address, "policy_form", providers="\r\n").status_code == 302
    policy.refresh_from_db()
    assert policy.providers is None


def test_a_subject_is_one_and_the_levels_own(alice: Tenant, model: Model) -> None:
    client, before = console(), Policy.objects.count()
    nobody = errors(add(client, level="project"))
    assert nobody == {"project": ["Choose the project whose requests this is for."]}
    another = errors(add(client, level="project", key=str(alice.key.pk)))
    assert another == {
        "project": ["Choose the project whose requests this is for."],
        "key": ["Leave this empty, or set the level to key."],
    }
    two = errors(add(client, level="model", model=str(model.pk), project=str(alice.project.pk)))
    assert two == {"project": ["Leave this empty, or set the level to project."]}
    for_all = errors(add(client, level="global", model=str(model.pk)))
    assert for_all == {"model": ["Leave this empty, or set the level to model."]}
    assert errors(add(client, level="")) == {"level": ["This field is required."]}
    assert Policy.objects.count() == before


def test_nobody_has_two(alice: Tenant) -> None:
    client = console()
    Policy.objects.create(level="project", project=alice.project)
    told = errors(add(client, level="project", project=str(alice.project.pk)))
    assert told == {"project": ["This project has a policy already: change that one."]}
    with undone():
        Policy.objects.filter(level="global").delete()
        Policy.objects.create(level="global")
        assert errors(add(client, level="global")) == {
            "level": ["There is a policy for everything already: change that one."]
        }
    assert Policy.objects.filter(project=alice.project).count() == 1


MISTAKES = (
    ({"strategy": "order"}, "providers", "List the providers in their order, or choose another strategy."),
    (
        {"strategy": "round_robin", "factor": "price"},
        "factor",
        "A factor sorts under the strategy by priority alone: choose that one, or no factor.",
    ),
    ({"providers": "NOWHERE"}, "providers", "There is no provider NOWHERE."),
    ({"only_providers": "ONE\nNOWHERE/x"}, "only_providers", "There is no provider NOWHERE/x."),
    ({"providers": "ONE\nONE"}, "providers", "Listed twice: ONE."),
    (
        {"providers": "ONE/a\nONE/b", "only_providers": "TWO"},
        "providers",
        "None of these is among the only providers, so no request could go anywhere.",
    ),
    (
        {"fallback": "NOWHERE"},
        "fallback",
        "There is no provider and no model NOWHERE. Write true, false, or the slug of one.",
    ),
    (
        {"fallback": "ONE", "only_providers": "TWO"},
        "fallback",
        "This provider is not among the only providers: add it there, or name another.",
    ),
    ({"max_attempts": "0"}, "max_attempts", "Ensure this value is greater than or equal to 1."),
    ({"first_byte_timeout": "0"}, "first_byte_timeout", "Give more than 0 seconds, or nothing."),
    ({"total_timeout": "-1"}, "total_timeout", "Give more than 0 seconds, or nothing."),
)


@pytest.mark.parametrize("fields, name, message", MISTAKES)
def test_it_refuses_what_no_request_could_follow(
    fields: dict[str, str], name: str, message: str, alice: Tenant, provider: Provider, other: Provider
) -> None:
    def spelled(text: str) -> str:
        return text.replace("ONE", provider.slug).replace("TWO", other.slug).replace("NOWHERE", f"no-{provider.slug}")

    client = console()
    sent = {field: spelled(value) for field, value in fields.items()}
    found = errors(add(client, level="project", project=str(alice.project.pk), **sent))
    assert list(found) == [name]
    assert found[name][0].startswith(spelled(message))
    assert not Policy.objects.filter(project=alice.project).exists()


def test_it_names_the_circle_of_models_that_fall_back_to_each_other(provider: Provider) -> None:
    client = console()
    first, second, third = (make_model(provider) for _ in range(3))
    Model.objects.filter(pk=first.pk).update(aliases=[f"alias-{first.pk}"])
    itself = errors(add(client, level="model", model=str(first.pk), fallback=f"alias-{first.pk}"))
    assert itself == {"fallback": [f"Models fall back in a circle: {first.slug} -> {first.slug}. Change one of them."]}
    assert add(client, level="model", model=str(first.pk), fallback=second.slug).status_code == 302
    assert add(client, level="model", model=str(second.pk), fallback=third.slug).status_code == 302
    circle = errors(add(client, level="model", model=str(third.pk), fallback=f"alias-{first.pk}"))
    assert circle == {
        "fallback": [
            "Models fall back in a circle: "
            f"{third.slug} -> {first.slug} -> {second.slug} -> {third.slug}. Change one of them."
        ]
    }
    assert not Policy.objects.filter(model=third).exists()
    # Once the circle is broken elsewhere, the same words are taken.
    assert (
        submit(
            client, page(Policy, "change", Policy.objects.get(model=first).pk), "policy_form", fallback=provider.slug
        ).status_code
        == 302
    )
    assert add(client, level="model", model=str(third.pk), fallback=f"alias-{first.pk}").status_code == 302


def test_whose_it_is_stays(alice: Tenant, charlie: Tenant) -> None:
    client = console()
    policy = Policy.objects.create(level="project", project=alice.project)
    address = page(Policy, "change", policy.pk)
    changed = submit(client, address, "policy_form", level="key", key=str(charlie.key.pk), max_attempts="4")
    assert changed.status_code == 302
    policy.refresh_from_db()
    assert (policy.level, policy.project, policy.key, policy.max_attempts) == ("project", alice.project, None, 4)


def test_a_page_leads_to_its_policy(alice: Tenant, model: Model) -> None:
    client = console()
    for level, table, row in ((Level.KEY, ApiKey, alice.key), (Level.PROJECT, Project, alice.project)):
        leads = reverse("admin:routing_policy_of", args=[level, row.pk])
        assert leads in client.get(page(table, "change", row.pk)).content.decode()
        form = client.get(leads, follow=True)
        assert context_of(form)["adminform"].form.initial == {"level": level, level: str(row.pk)}
        policy = Policy.objects.create(**{"level": level, level: row})
        assert client.get(leads)["Location"] == page(Policy, "change", policy.pk)
    leads = reverse("admin:routing_policy_of", args=["model", model.pk])
    assert leads in client.get(page(Model, "change", model.pk)).content.decode()
    for wrong in (("global", "1"), ("owner", "1"), ("key", "no-id"), ("model", "no-id")):
        assert client.get(reverse("admin:routing_policy_of", args=wrong)).status_code == 404
    assert console(superuser=False).get(leads).status_code == 403


def test_an_offer_that_says_nothing_leaves_it_to_the_model(model: Model) -> None:
    offer = model.offers.get()
    client = console()
    address = page(type(offer), "change", offer.pk)
    assert submit(client, address, "offer_form", weight="7").status_code == 302
    offer.refresh_from_db()
    assert (offer.weight, offer.input_modalities, offer.supported_parameters) == (7, None, None)


def test_weights_of_the_choice_are_changed_in_their_list() -> None:
    client, address = console(), reverse("admin:routing_choiceweight_changelist")
    row = ChoiceWeight.objects.get(word="balanced", term="task")
    first = str(row.weight)

    def save(weight: str) -> Any:
        fields = filled(client.get(address).content.decode(), "changelist-form")
        place = next(name for name, values in fields.items() if name.endswith("-id") and values == [str(row.pk)])
        return client.post(address, {**fields, place.removesuffix("id") + "weight": weight, "_save": "Save"})

    with undone():
        assert save("0.75").status_code == 302
        row.refresh_from_db()
        assert row.weight == 0.75
        for wrong in ("-1", "nan", "inf", "1e999", "much", ""):
            assert save(wrong).status_code == 200, wrong
            row.refresh_from_db()
            assert row.weight == 0.75
    row.refresh_from_db()
    assert str(row.weight) == first
