"""The console as a whole: who gets in, what no page may do, and what every page costs."""

import html
import re
import secrets
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qs
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.admin import site
from django.contrib.auth.models import Permission
from django.db import ProgrammingError, connection, models
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from accounts.console import Record
from accounts.console import number as counted
from accounts.models import Organization, Project, User
from billing.backbone.leases import DEAD_AFTER, EVERYBODY, HOUSEKEEPER
from billing.models import Hold, Lease, Retention, Tariff, Usage
from gateway.models import Payload, StoredFile
from tests.console.browser import (
    KEPT,
    PAGES,
    READ_ONLY,
    Rows,
    addresses,
    console,
    console_role,
    context_of,
    filled,
    make_rows,
    url,
)
from tests.stage.cast import Tenant, make_key, make_tenant

# Deleted but never added or changed, and not to be read: test_at_rest and test_payloads have their rules.
TESTED_ELSEWHERE = {StoredFile, Payload}

# Nothing is collected in a checkout: the packages' own folders are served.


@pytest.fixture(scope="module")
def rows(database: None) -> Iterator[Rows]:
    """A row of every page, and none of them on hold at the end."""
    made = make_rows(make_tenant("alice"))
    yield made
    made[Hold].delete()


def test_every_model_of_ours_is_tested() -> None:
    ours = {m for m in admin.site._registry if m._meta.app_label in ("accounts", "billing", "routing", "gateway")}
    assert ours == set(PAGES) | TESTED_ELSEWHERE
    assert set(admin.site._registry) == ours, "a page that came with a library"


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_it_works_with_the_rights_of_the_console(model: type[models.Model], rows: Rows) -> None:
    client = console()
    for address in addresses(model, rows[model]):
        response = client.get(address)
        assert response.status_code == 200, address
        assert response["Content-Security-Policy"].startswith("default-src 'self'; script-src 'self' 'unsafe-eval'")
        for part in ("object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'", "form-action 'self'"):
            assert part in response["Content-Security-Policy"]
        assert "unsafe-inline" not in response["Content-Security-Policy"]
        assert response["X-Frame-Options"] == "DENY"
        assert response["Referrer-Policy"] == "same-origin"
        assert response["X-Content-Type-Options"] == "nosniff"
        assert "no-store" in response["Cache-Control"]
        html = response.content.decode()
        assert "<style" not in html and " style=" not in html and " onclick=" not in html
        assert html.count("<script") == html.count("<script src=") + html.count('<script id="django-admin')


def test_the_role_of_these_tests_may_not_write_what_the_product_writes(rows: Rows) -> None:
    for model in READ_ONLY:
        with console_role(), pytest.raises(ProgrammingError, match="permission denied"):
            model._base_manager.filter(pk=rows[model].pk).delete()
    assert Usage.objects.filter(pk=rows[Usage].pk).exists()


@pytest.mark.parametrize("model", PAGES, ids=lambda model: model.__name__)
def test_it_shows_staff_nothing_whatever_permissions_they_hold(model: type[models.Model], rows: Rows) -> None:
    client = console(superuser=False)
    User.objects.get(pk=client.session["_auth_user_id"]).user_permissions.set(Permission.objects.all())
    before = model._base_manager.values().get(pk=rows[model].pk)
    for address in addresses(model, rows[model]):
        assert client.get(address).status_code == 403, address
        assert client.post(address, {"name": "stolen", "post": "yes", "_save": "Save"}).status_code == 403, address
    assert model._base_manager.values().get(pk=rows[model].pk) == before


def test_it_shows_staff_an_empty_first_page() -> None:
    response = console(superuser=False).get(reverse("admin:index"))
    assert response.status_code == 200
    assert context_of(response)["figures"] is None and context_of(response)["sidebar_navigation"] == []
    assert "/console/billing/" not in response.content.decode()


def test_it_sends_strangers_to_the_login(rows: Rows) -> None:
    for model in PAGES:
        for address in addresses(model, rows[model]):
            response = Client().get(address)
            assert (response.status_code, response["Location"]) == (302, f"/console/login/?next={address}")


@pytest.mark.parametrize("model", READ_ONLY, ids=lambda model: model.__name__)
def test_it_changes_nothing_that_the_product_writes(model: type[models.Model], rows: Rows) -> None:
    client, row = console(), rows[model]
    before = model._base_manager.values().get(pk=row.pk)
    total = model._base_manager.count()
    fields = dict.fromkeys(before, "1")
    for page in ("change", "delete"):
        response = client.post(url(model, page, row.pk), {**fields, "post": "yes", "_save": "Save"})
        assert response.status_code == 403
    assert client.post(url(model, "add"), fields).status_code == 403
    delete = {"action": "delete_selected", "_selected_action": str(row.pk), "post": "yes"}
    client.post(url(model, "changelist"), delete)
    assert model._base_manager.values().get(pk=row.pk) == before
    assert model._base_manager.count() == total


@pytest.mark.parametrize("model", KEPT, ids=lambda model: model.__name__)
def test_it_deletes_nothing_that_usage_refers_to(model: type[models.Model], rows: Rows) -> None:
    client, row = console(), rows[model]
    assert client.post(url(model, "delete", row.pk), {"post": "yes"}).status_code == 403
    client.post(url(model, "changelist"), {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
    assert model._base_manager.filter(pk=row.pk).exists()


def test_it_refuses_a_post_without_the_token(rows: Rows) -> None:
    client, organization = console(enforce_csrf_checks=True), rows[Organization]
    address = url(Organization, "change", organization.pk)
    fields = filled(client.get(address).content.decode(), "organization_form")
    assert client.post(address, {**fields, "name": ["Forged"]}).status_code == 403
    assert not Organization.objects.filter(pk=organization.pk, name="Forged").exists()


def queries(client: Client, address: str, **params: str) -> list[str]:
    """The SQL that a page issues."""
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(address, params).status_code == 200
    return [query["sql"] for query in captured.captured_queries]


def test_it_asks_as_often_for_many_rows_as_for_few(rows: Rows) -> None:
    client = console()

    def asked() -> dict[str, int]:
        return {model.__name__: len(queries(client, url(model, "changelist"))) for model in PAGES}

    few = asked()
    more = [make_rows(make_tenant("bob")) for _ in range(3)]
    try:
        assert asked() == few
    finally:
        for made in more:
            made[Hold].delete()


# Said by each request before its page: these tests' role, the session, the person, what proves it and may be seen.
BEFORE = re.compile(
    r"set role |reset role|set_config\('meterline\.|from accounts_enter|accounts_signedin|django_session|"
    r'FROM "accounts_user" WHERE "accounts_user"\."id" = \d+ LIMIT|FROM "accounts_(totp|passkey)"'
)


@pytest.fixture(scope="module")
def priced(rows: Rows) -> Iterator[None]:
    """An offer whose price is in force, and lacks something, and its rows of every page."""
    made = make_rows(make_tenant("bob"))
    tariff: Any = made[Tariff]
    version = tariff.versions.create(effective_from=timezone.now() - timedelta(days=1))
    version.rates.create(item="input", cost=Decimal(1), charge=Decimal(2))
    yield
    made[Hold].delete()


@pytest.mark.parametrize("model", [*PAGES, *TESTED_ELSEWHERE], ids=lambda model: model.__name__)
def test_a_list_takes_three_queries_at_most(model: type[models.Model], priced: None) -> None:
    own = [sql for sql in queries(console(), url(model, "changelist")) if not BEFORE.search(sql)]
    assert len(own) <= 3, "\n".join(own)
    assert own and len([sql for sql in own if "COUNT(*)" in sql]) <= 1


def test_it_refuses_regular_expressions_in_the_query_string() -> None:
    client = console()
    for model in PAGES:
        response = client.get(url(model, "changelist"), {"name__regex": "(a+)+$", "id__iregex": "(a+)+$"})
        assert response.status_code == 400, model


@pytest.mark.parametrize("term", ["%" * 8, "_" * 100, "a " * 500, "\0", "'; drop table accounts_apikey; --"])
def test_it_survives_any_search(term: str) -> None:
    client = console()
    for model in PAGES:
        if site._registry[model].search_fields:
            sent = queries(client, url(model, "changelist"), q=term)
            assert max(map(len, sent)) < 30_000
    response = client.get(
        reverse("admin:autocomplete"),
        {"term": term, "app_label": "accounts", "model_name": "apikey", "field_name": "project"},
    )
    assert response.status_code == 200


def test_an_operator_logs_in_and_out() -> None:
    name, password = f"op-{secrets.token_hex(4)}", secrets.token_urlsafe()
    User.objects.create_superuser(name, password=password)
    client = Client()
    assert client.post("/console/login/", {"username": name, "password": "wrong"}).status_code == 200
    anonymous = client.get("/console/")
    assert anonymous.status_code == 302
    response = client.post("/console/login/?next=https://evil.example/", {"username": name, "password": password})
    assert (response.status_code, response["Location"]) == (302, "/console/")
    assert client.get("/console/").status_code == 200
    User.objects.filter(username=name).update(is_active=False)
    assert client.get("/console/").status_code == 302


def test_it_makes_a_person_whose_password_is_hashed() -> None:
    client, name = console(), f"bob-{secrets.token_hex(4)}"
    fields = {
        "username": name,
        "usable_password": "true",
        "password1": "correct-horse-9",
        "password2": "correct-horse-9",
    }
    people = User.objects.count()
    for missing in ("username", "password1", "password2"):
        assert client.post(url(User, "add"), {**fields, missing: ""}).status_code == 200, missing
    assert User.objects.count() == people
    assert client.post(url(User, "add"), fields).status_code == 302
    person = User.objects.get(username=name)
    assert person.check_password("correct-horse-9") and "correct" not in person.password
    assert not person.is_staff and not person.is_superuser


def test_a_project_stays_in_its_organization(alice: Tenant, charlie: Tenant) -> None:
    client = console()
    address = url(Project, "change", alice.project.pk)
    fields = filled(client.get(address).content.decode(), "project_form")
    changes = {"organization": str(charlie.organization.pk), "name": ["Renamed"]}
    assert client.post(address, {**fields, **changes}).status_code == 302
    alice.project.refresh_from_db()
    assert (alice.project.organization_id, alice.project.name) == (alice.organization.pk, "Renamed")


def test_it_writes_down_who_changed_what(alice: Tenant) -> None:
    client = console()
    address = url(Organization, "change", alice.organization.pk)
    fields = filled(client.get(address).content.decode(), "organization_form")
    assert client.post(address, {**fields, "name": ["Renamed"]}).status_code == 302
    make_key(alice.project)
    history = client.get(url(Organization, "history", alice.organization.pk)).content.decode()
    assert "Changed Name." in history


def test_it_counts_gateways_alone(alice: Tenant) -> None:
    now = timezone.now()
    gateways = Lease.objects.exclude(pk__in=(EVERYBODY, HOUSEKEEPER))
    before = gateways.count()
    for id in (EVERYBODY, HOUSEKEEPER):
        Lease.objects.update_or_create(
            pk=id, defaults={"host": "here", "pid": 1, "started_at": now, "heartbeat_at": now}
        )
    Lease.objects.create(id=uuid4(), host="here", pid=2, started_at=now, heartbeat_at=now)
    Lease.objects.create(
        id=uuid4(), host="here", pid=3, started_at=now, heartbeat_at=now - DEAD_AFTER - timedelta(seconds=1)
    )
    client = console()

    def alive() -> int:
        return gateways.filter(heartbeat_at__gt=timezone.now() - DEAD_AFTER).count()

    for _ in range(3):  # other tests' gateways come and go
        known = alive()
        figures = context_of(client.get(reverse("admin:index")))["running"]
        if alive() == known:
            break
    (figure,) = (one for one in figures if one["title"] == "Processes")
    assert (figure["value"], figure["note"]) == (counted(known), "gateways that are alive")
    shown = context_of(client.get(reverse("admin:billing_lease_changelist"), {"p": 1}))["cl"]
    kinds = {row.pk: shown.model_admin.kind(row) for row in shown.queryset}
    assert EVERYBODY not in kinds
    assert (kinds.pop(HOUSEKEEPER), set(kinds.values()), len(kinds)) == ("worker", {"gateway"}, before + 2)


@pytest.fixture(scope="module")
def three(database: None) -> Iterator[list[Rows]]:
    """Three rows of every page."""
    made = [make_rows(make_tenant("alice")) for _ in range(3)]
    yield made
    for rows in made:
        rows[Hold].delete()


# Of retention there are two rows, ever; leases come and go with the processes of this run.
WALKED = [one for one in PAGES if one not in (Lease, Retention)]


@pytest.mark.parametrize("model", WALKED, ids=lambda model: model.__name__)
def test_a_list_that_is_walked_by_its_links_keeps_what_was_asked(
    model: type[models.Model], three: list[Rows], monkeypatch: pytest.MonkeyPatch
) -> None:
    page = admin.site._registry[model]
    monkeypatch.setattr(page, "list_per_page", 1)
    asked = {"o": "1", **({"q": "alice"} if page.search_fields and not isinstance(page, Record) else {})}
    client, seen = console(), []
    for number in range(1, 4):
        response = client.get(url(model, "changelist"), {**asked, "p": str(number)})
        (row,) = context_of(response)["cl"].result_list
        seen.append(row.pk)
        links = [parse_qs(html.unescape(link)) for link in re.findall(r'href="\?([^"]*)"', response.content.decode())]
        after = [link for link in links if link.get("p") == [str(number + 1)]]
        assert after or number == 3
        assert all(link == {name: [value] for name, value in asked.items()} | {"p": link["p"]} for link in after)
    assert len(set(seen)) == 3
