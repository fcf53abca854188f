"""The tenant matrix: nobody of Alice's organization sees, counts or changes anything of Charlie's, by any way in."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import connection, models
from django.urls import reverse

from accounts.access.access import Access
from accounts.access.table import RULES, Verb
from accounts.console import Record
from accounts.models import ApiKey, Membership, Project, User
from billing.models import Budget, Statement
from gateway.models import StoredFile
from tests.console.browser import console_role, context_of, filled, url
from tests.matrix.people import MEMBERS, ROLES, People, gather
from tests.stage.cast import NOBODYS

WHOLE = os.environ.get("MATRIX") == "whole"
MODELS = sorted(admin.site._registry, key=lambda model: model._meta.label_lower)
SEEN = [
    model for model in MODELS if any(Verb.VIEW in rights for rights in RULES[model._meta.label_lower].roles.values())
]
# Each role meets some of the models; `make matrix` has every role meet every one.
CELLS = [(model, role) for n, model in enumerate(MODELS) for m, role in enumerate(MEMBERS) if WHOLE or n % 6 == m]
LISTED = [(model, role) for n, model in enumerate(SEEN) for m, role in enumerate(MEMBERS) if WHOLE or n % 6 == m]


def name(value: Any) -> str:
    """Of a cell's part."""
    return value if isinstance(value, str) else value._meta.label_lower


@pytest.fixture(scope="module")
def people(database: None) -> Iterator[People]:
    """Everybody, with their rows."""
    made = gather()
    yield made
    made.end()


def leaks(people: People, response: Any, said: tuple[str, ...] = ()) -> list[str]:
    """What of Charlie's stands in an answer; `said` is what the request itself has named."""
    text = (whole(response) if response.streaming else response.content.decode()) + str(response.headers)
    return [mark for mark in people.marks if mark in text and mark not in said]


def whole(response: Any) -> str:
    """A file that was streamed."""

    async def read() -> bytes:
        return b"".join([piece async for piece in response.streaming_content])

    return async_to_sync(read)().decode()


def other(model: type[models.Model]) -> Any:
    """A primary key that no row has."""
    field: Any = model._meta.pk
    if isinstance(field, models.OneToOneField):
        field = field.target_field
    return (
        NOBODYS if isinstance(field, models.UUIDField) else 2**31 - 7 if isinstance(field, models.IntegerField) else "-"
    )


@pytest.mark.parametrize(("model", "role"), CELLS, ids=name)
def test_a_row_of_anothers_is_as_one_that_is_not(model: type[models.Model], role: str, people: People) -> None:
    client, row = people.client(role), people.theirs[model]
    if not RULES[model._meta.label_lower].organization:
        pytest.skip("of no organization")
    before = model._base_manager.values().get(pk=row.pk)
    for page in ("change", "delete", "history"):
        found, missing = client.get(url(model, page, row.pk)), client.get(url(model, page, other(model)))
        assert found.status_code == missing.status_code, page
        assert found.status_code in (302, 403, 404), page
        assert found.get("Location") == missing.get("Location"), page
        assert leaks(people, found, (str(row.pk),)) == [], page
    for page, words in (("change", {"name": "stolen", "slug": "stolen", "role": "owner"}), ("delete", {"post": "yes"})):
        assert client.post(url(model, page, row.pk), {**words, "_save": "Save"}).status_code in (302, 403, 404)
    assert model._base_manager.values().get(pk=row.pk) == before


@pytest.mark.parametrize(("model", "role"), LISTED, ids=name)
def test_no_list_search_or_filter_tells_of_anothers(model: type[models.Model], role: str, people: People) -> None:
    client, address = people.client(role), url(model, "changelist")
    organization = people.charlie.organization
    if client.get(address).status_code == 403:
        assert Verb.VIEW not in RULES[model._meta.label_lower].roles[ROLES[role]]  # type: ignore[index]
        return
    assert leaks(people, client.get(address)) == []
    asked: list[dict[str, str]] = [
        {"q": organization.slug},
        {"o": "-1"},
        {"all": ""},
        {"p": "1"},
        {"organization": str(organization.pk)},
    ]
    for path in ("organization", "project__organization"):
        asked += [{f"{path}__id__exact": str(organization.pk)}, {f"{path}__slug__startswith": organization.slug[:5]}]
    asked += [{"project": str(people.charlie.project.pk)}, {"key": str(people.charlie.key.pk)}]
    asked += [{"owner__password__startswith": "p"}, {"user__is_superuser__exact": "1"}]
    query: dict[str, str]
    for query in asked if WHOLE else asked[:1] + asked[4:8]:
        response = client.get(address, query)
        assert response.status_code in (200, 302, 400), query
        assert leaks(people, response, tuple(query.values())) == [], query
        if response.status_code == 200:
            assert people.theirs[model].pk not in [row.pk for row in context_of(response)["cl"].queryset], query
    for page in ("add", "change"):
        arguments = [people.row(model, role).pk] if page == "change" else []
        assert leaks(people, client.get(url(model, page, *arguments))) == [], page


@pytest.mark.parametrize("role", MEMBERS)
def test_what_is_asked_for_as_somebody_types_is_their_own(role: str, people: People) -> None:
    client, typed = people.client(role), people.charlie.organization.slug
    asked = 0
    for model, page in admin.site._registry.items():
        for field in page.autocomplete_fields:
            query = {"app_label": model._meta.app_label, "model_name": str(model._meta.model_name), "field_name": field}
            for term in (typed, ""):
                response = client.get(reverse("admin:autocomplete"), {**query, "term": term})
                assert response.status_code in (200, 403), query
                assert leaks(people, response) == [], query
                assert term == "" or response.status_code == 403 or json.loads(response.content)["results"] == []
                asked += 1
    assert asked > 30


def test_nothing_is_made_or_moved_to_anothers(people: People) -> None:
    client, theirs = people.client("organization's owner"), people.charlie
    aims: dict[type[models.Model], dict[str, Any]] = {
        Project: {"organization": theirs.organization.pk, "slug": "stolen", "name": "Stolen"},
        ApiKey: {"project": theirs.project.pk, "name": "stolen", "owner": people.users["organization's owner"].pk},
        Budget: {
            "organization": theirs.organization.pk,
            "project": theirs.project.pk,
            "period": "month",
            "amount": "1",
        },
    }
    for model, aim in aims.items():
        count = model._base_manager.count()
        form = f"{model._meta.model_name}_form"
        fields = filled(client.get(url(model, "add")).content.decode(), form)
        response = client.post(url(model, "add"), {**fields, **aim})
        assert response.status_code == 200, model
        assert model._base_manager.count() == count
        row = people.rows[model]
        before = model._base_manager.values().get(pk=row.pk)
        fields = filled(client.get(url(model, "change", row.pk)).content.decode(), form)
        client.post(url(model, "change", row.pk), {**fields, **{key: str(value) for key, value in aim.items()}})
        after = model._base_manager.values().get(pk=row.pk)
        for path in ("organization_id", "project_id", "key_id"):
            assert before.get(path) == after.get(path), (model, path)
    # Of the same organization, but beside another one's key.
    mixed = {"organization": people.alice.organization.pk, "key": theirs.key.pk, "period": "total", "amount": "1"}
    fields = filled(client.get(url(Budget, "add")).content.decode(), "budget_form")
    assert client.post(url(Budget, "add"), {**fields, **mixed}).status_code == 200
    assert not Budget.objects.filter(key=theirs.key).exists()


@pytest.mark.parametrize("role", MEMBERS)
def test_no_action_reaches_anothers(role: str, people: People) -> None:
    client = people.client(role)
    actions: list[tuple[type[models.Model], str]] = [(ApiKey, "revoke_selected")]
    actions += [(model, "delete_selected") for model in SEEN]
    for model, action in actions:
        row = people.theirs[model]
        before = model._base_manager.values().get(pk=row.pk)
        data = {"action": action, ACTION_CHECKBOX_NAME: [str(row.pk)], "post": "yes", "confirmed": "yes", "index": "0"}
        assert leaks(people, client.post(url(model, "changelist"), data), (str(row.pk),)) == []
        assert model._base_manager.values().get(pk=row.pk) == before
    address = reverse("admin:accounts_apikey_revoke", args=[people.theirs[ApiKey].pk])
    assert client.post(address, {"confirmed": "yes"}).status_code in (403, 404)
    assert ApiKey.objects.get(pk=people.theirs[ApiKey].pk).revoked_at is None


@pytest.mark.parametrize("role", MEMBERS)
def test_no_export_page_or_search_has_anothers(role: str, people: People) -> None:
    client = people.client(role)
    address, slug = reverse("admin:billing_usage_export"), people.alice.organization.slug
    body = whole(client.get(address, {"created_at_from_0": "2020-01-01"}))
    assert slug in body and not any(mark in body for mark in people.marks)
    assert "provider_cost" not in body and "upstream" not in body.splitlines()[0]
    aimed = client.get(address, {"organization": str(people.charlie.organization.pk)})
    assert len(whole(aimed).splitlines()) == 1
    for path in ("index", "search"):
        response = client.get(reverse(f"admin:{path}"), {"s": people.charlie.organization.slug, "extended": "1"})
        assert leaks(people, response, (people.charlie.organization.slug,)) == []
    pdf = reverse("admin:billing_statement_pdf", args=[people.theirs[Statement].pk])
    assert client.get(pdf).status_code in (403, 404)


# --- the second wall --------------------------------------------------------------------------------------------------

HELD = [model for model in SEEN if model is not User]  # people are looked up before anybody has entered


@pytest.mark.parametrize("role", MEMBERS if WHOLE else MEMBERS[:1])
def test_the_database_holds_back_what_the_pages_would_show(
    role: str, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the filters of the pages taken away."""
    monkeypatch.setattr(Access, "rows", lambda self, queryset, verb=Verb.VIEW: queryset)
    monkeypatch.setattr(Access, "offered", lambda self, queryset, to, verbs: queryset)
    monkeypatch.setattr(Access, "may", lambda self, model, verb, row=None: True)
    client = people.client(role)
    for model in HELD:
        response = client.get(url(model, "changelist"))
        assert response.status_code == 200, model
        assert leaks(people, response) == [], model
    for model in HELD:
        assert client.get(url(model, "change", people.theirs[model].pk)).status_code in (302, 404), model
    export = client.get(reverse("admin:billing_usage_export"))
    with console_role():  # in which a process that serves reads a file to its end
        entered(people.users[role])
        body = whole(export)
    assert people.alice.organization.slug in body
    assert not any(mark in body for mark in people.marks)


def entered(user: User | None) -> None:
    """Has this connection see what a person may see."""
    with connection.cursor() as cursor:
        cursor.execute("select accounts_enter(%s, '')", [user.pk if user else None])


@pytest.mark.parametrize("role", [*MEMBERS, "nobody's", None])
def test_the_consoles_role_sees_what_the_person_may_see(role: str | None, people: People) -> None:
    with console_role():
        entered(people.users[role] if role else None)
        for model in HELD:
            found = model._base_manager.defer(*(["content"] if model is StoredFile else ()))
            own, theirs = (found.filter(pk=rows[model].pk).exists() for rows in (people.rows, people.theirs))
            assert (own, theirs) == (role in MEMBERS, False), model


def test_the_consoles_role_writes_nothing_of_anothers(people: People) -> None:
    owner, row = people.users["organization's owner"], people.theirs
    organization = people.charlie.organization
    with console_role():
        entered(owner)
        assert Project.objects.filter(pk=row[Project].pk).update(name="stolen") == 0
        assert Membership.objects.filter(pk=row[Membership].pk).delete()[0] == 0
        assert Budget.objects.filter(organization=people.alice.organization, contract=True).update(amount=0) == 0
        for make in (
            lambda: Project.objects.create(organization=organization, slug="stolen", name="Stolen"),
            lambda: Membership.objects.create(user=owner, organization=organization, role="owner"),
            lambda: Project.objects.filter(pk=people.rows[Project].pk).update(organization=organization),
        ):
            with pytest.raises(Exception, match="row-level security"):
                make()
    assert Project.objects.get(pk=people.rows[Project].pk).organization == people.alice.organization


def test_every_table_of_an_organization_is_held_apart() -> None:
    """Each with a column that says whose it is, and each that the matrix leads to an organization from."""
    with connection.cursor() as cursor:
        cursor.execute(
            "select c.relname, c.relrowsecurity, count(p.polname)"
            " from pg_class c left join pg_policy p on p.polrelid = c.oid"
            " where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition"
            " and (has_table_privilege('meterline_console', c.oid, 'select')"
            "      or has_any_column_privilege('meterline_console', c.oid, 'select')) group by c.oid"
        )
        tables = {table: (on, count) for table, on, count in cursor.fetchall()}
        cursor.execute(
            "select table_name from information_schema.columns where table_schema = 'public'"
            " and column_name in ('organization', 'organization_id') and table_name = any(%s)",
            [list(tables)],
        )
        told = {table for (table,) in cursor.fetchall()}
    led = {model._meta.db_table for model in MODELS if RULES[model._meta.label_lower].organization} - {"accounts_user"}
    assert {table for table in told | led if tables[table] != (True, 5)} == set()


def test_a_hidden_row_cannot_be_told_by_the_order_or_number_of_rows(people: People) -> None:
    client = people.client("organization's owner")
    for model in SEEN:
        if isinstance(admin.site._registry[model], Record):
            continue  # is never counted
        shown = context_of(client.get(url(model, "changelist"), {"e": "1"}))["cl"]
        assert shown.result_count == shown.root_queryset.count() < model._base_manager.count(), model
