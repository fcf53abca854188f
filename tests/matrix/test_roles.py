"""The role matrix: what each role may do with each model, and on each route."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.urls import reverse

from accounts.access.table import RULES, Verb
from accounts.roles import Office, Role
from billing.exports.pages import LAYOUTS
from billing.models import Budget
from gateway.celery import app
from tests.console.browser import context_of, url
from tests.matrix.people import MEMBERS, ROLES, STAFF, People, gather
from tests.matrix.routes import ELSEWHERE, EXPORTS, ROUTES, TASKS, USUAL, names

WHOLE = os.environ.get("MATRIX") == "whole"
MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label_lower)
BY_LABEL = {model._meta.label_lower: model for model in MODELS}


@pytest.fixture(scope="module")
def people(database: None) -> Iterator[People]:
    """Everybody, with their rows."""
    made = gather()
    yield made
    made.end()


def test_nothing_is_left_out_of_the_matrix() -> None:
    inlines = {one.model._meta.label_lower for page in admin.site._registry.values() for one in page.inlines}
    assert set(BY_LABEL) | inlines <= RULES.keys()
    assert set(RULES) <= set(BY_LABEL) | inlines | {"billing.rate"}
    told = {name for name in names() if not USUAL.match(name)}
    assert told - ELSEWHERE - ROUTES.keys() == set(), "routes that the matrix does not know"
    assert ROUTES.keys() - told == set(), "routes that are no more"
    app.loader.import_default_modules()
    assert {name for name in app.tasks if not name.startswith("celery.")} == TASKS
    assert set(LAYOUTS) == EXPORTS


# What was promised, by the promise's own words; the table says it by model.
PROMISED = {
    "provider secrets": ("routing.credential", "vacd - - - - -"),
    "prices": ("billing.tariffversion", "vacd v v - - -"),
    "prices, read own": ("billing.terms", "vacd v v v - v"),
    "organizations": ("accounts.organization", "vac v v v v v"),
    "keys": ("accounts.apikey", "vac - v vac vac v"),
    "budgets": ("billing.budget", "vacd v v vacd v v"),
    "usage rows": ("billing.usage", "v v v v v v"),
    "ledger": ("billing.ledgerentry", "v v v - - -"),
    "prompts": ("gateway.storedfile", "vd - - vd vd -"),
    "prompts, kept by a project": ("gateway.payload", "vd - - vd - -"),
    "users": ("accounts.user", "vac - v v - v"),
    "roles": ("accounts.membership", "vacd - v vcd - v"),
}


@pytest.mark.parametrize("promise", PROMISED)
def test_the_table_says_what_was_promised(promise: str) -> None:
    label, said = PROMISED[promise]
    rule = RULES[label]
    rights = [*(rule.offices[one] for one in Office), *(rule.roles[one] for one in Role)]
    assert rights == [set(letters.strip("-")) for letters in said.split()]


def rights_of(label: str, role: str) -> frozenset[Verb]:
    """What the table gives a role of the matrix."""
    if role == "superuser":
        return RULES[label].offices[Office.OPERATOR]
    one = ROLES[role]
    if isinstance(one, Office):
        return RULES[label].offices[one]
    return RULES[label].roles[one] if one else frozenset()


CELLS = [(label, role) for label in BY_LABEL for role in ROLES]


@pytest.mark.parametrize(
    ("label", "role"),
    # Of `make matrix` a sixth.
    [(a, b) for n, (a, b) in enumerate(CELLS) if WHOLE or (n // len(ROLES) + n % len(ROLES)) % 6 == 0],
)
def test_a_role_may_do_with_a_model_what_the_table_says(label: str, role: str, people: People) -> None:
    model, client = BY_LABEL[label], people.client(role)
    row, rights = people.row(model, role), rights_of(label, role)
    found: set[Verb] = set()
    assert client.get(url(model, "changelist")).status_code == (200 if Verb.VIEW in rights else 403)
    shown = client.get(url(model, "change", row.pk))
    if shown.status_code == 200:
        found.add(Verb.VIEW)
        if context_of(shown)["has_change_permission"]:
            found.add(Verb.CHANGE)
    assert (client.get(url(model, "history", row.pk)).status_code == 200) == (Verb.VIEW in rights)
    if client.get(url(model, "add")).status_code == 200:
        found.add(Verb.ADD)
    if client.get(url(model, "delete", row.pk)).status_code == 200:
        found.add(Verb.DELETE)
    assert found == rights


@pytest.mark.parametrize("name", ROUTES)
def test_a_route_is_for_those_it_is_for(name: str, people: People) -> None:
    method, given, allowed = ROUTES[name]
    for number, role in enumerate(ROLES):
        if not WHOLE and (number + len(name)) % 6:
            continue
        arguments = {one: _filled(what, name, role, people) for one, what in given.items()}
        response = getattr(people.client(role), method)(reverse(name, kwargs=arguments))
        refused = response.status_code in (403, 404)
        assert refused == (role not in allowed), (name, role, response.status_code)


def _filled(what: str, name: str, role: str, people: People) -> Any:
    if what.startswith("="):
        return what[1:]
    label = name.partition(":")[2].rpartition("_")[0].replace("_", ".", 1) if what == "row" else what
    return people.row(BY_LABEL[label], role).pk


def test_an_office_sees_all_organizations_and_a_member_one(people: People) -> None:
    for role in STAFF:
        names = _slugs(people, role)
        assert {people.alice.organization.slug, people.charlie.organization.slug} <= names
    for role in MEMBERS:
        assert _slugs(people, role) == {people.alice.organization.slug}


def _slugs(people: People, role: str) -> set[str]:
    shown = people.client(role).get(url(BY_LABEL["accounts.organization"], "changelist"), {"all": "1"})
    return {row.slug for row in context_of(shown)["cl"].queryset}


def test_a_developer_has_what_is_theirs(people: People) -> None:
    client = people.client("organization's developer")
    for model, row in people.own.items():
        shown = context_of(client.get(url(model, "changelist")))["cl"].queryset
        assert [one.pk for one in shown] == [row.pk], model
        others = people.rows[model]
        missing = client.get(url(model, "change", others.pk))
        assert missing.status_code in (302, 403), model


def test_what_was_agreed_owners_leave_as_it_is(people: People) -> None:
    agreed = Budget.objects.create(organization=people.alice.organization, period="week", amount=9)
    client = people.client("organization's owner")
    shown = client.get(url(Budget, "change", agreed.pk))
    assert shown.status_code == 200 and not context_of(shown)["has_change_permission"]
    assert client.post(url(Budget, "change", agreed.pk), {"amount": "1"}).status_code == 403
    assert client.post(url(Budget, "delete", agreed.pk), {"post": "yes"}).status_code == 403
    assert Budget.objects.filter(pk=agreed.pk, amount=9).exists()
