"""The playground's keys: for whom, for how long, for how much, and what is kept of them."""

from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid5

import pytest
from django.conf import settings
from django.core.checks import run_checks
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.keys import digest
from accounts.models import ApiKey, AuditEvent, Membership, Project, User
from accounts.roles import Role
from billing.models import Budget
from gateway.console.playground.minting import KEYS
from tests.console.browser import Console, console, context_of
from tests.console.catalog.readers import member
from tests.stage.cast import NOBODYS, Tenant, make_key, make_tenant
from tests.stage.product import Gateway, synchronize

MINT = "playground_key"


def mint(client: Any, project: Any) -> Any:
    """Asks for a key of a project."""
    return client.post(reverse(MINT), {"project": str(project)})


def keys(tenant: Tenant) -> list[ApiKey]:
    """Those of the playground in the tenant's project, in the order they were made."""
    return list(ApiKey.objects.filter(project=tenant.project, name="playground").order_by("created_at"))


def test_a_developer_has_a_key_for_an_hour_and_a_dollar_a_day(alice: Tenant) -> None:
    client, before = member(alice), timezone.now()
    answer = mint(client, alice.project.pk)
    assert answer.status_code == 200 and "no-store" in answer["Cache-Control"]
    secret = answer.json()["key"]
    (key,) = keys(alice)
    assert bytes(key.digest) == digest(secret, settings.KEY_PEPPERS[0])
    assert key.owner is not None and key.owner.username.startswith("developer-")
    assert (key.scopes, key.allowed_endpoints, key.revoked_at) == (["inference"], ["chat/completions"], None)
    assert key.expires_at is not None
    assert before + timedelta(minutes=59) < key.expires_at < timezone.now() + timedelta(minutes=61)
    (budget,) = Budget.objects.filter(key=key)
    assert (budget.organization_id, budget.period, budget.amount, budget.hard, budget.model, budget.end_user) == (
        alice.organization.pk, "day", Decimal(1), True, "", "",
    )  # fmt: skip
    events = AuditEvent.objects.filter(table="accounts_apikey", row=str(key.pk), action="reveal")
    assert [(one.organization, one.note) for one in events] == [(alice.organization.pk, "playground")]
    for one in AuditEvent.objects.filter(organization=alice.organization.pk):
        assert secret not in str([one.before, one.after, one.note])


def test_the_same_person_has_one_key_however_often_they_ask(alice: Tenant, gateway: Gateway) -> None:
    client = member(alice)
    first, second = (mint(client, alice.project.pk).json()["key"] for _ in range(2))
    assert first != second and len(keys(alice)) == 1
    assert Budget.objects.filter(key=keys(alice)[0]).count() == 1
    synchronize(gateway)
    assert gateway.chat(first, "no/such").status_code == 401
    assert gateway.chat(second, "no/such").status_code == 404
    # It is for chats alone.
    answer = gateway.client.get("/v1/models", headers={"Authorization": f"Bearer {second}"})
    assert answer.status_code == 403
    # Another person has another one.
    mint(member(alice, Role.OWNER), alice.project.pk)
    assert len(keys(alice)) == 2


def test_what_an_owner_has_narrowed_or_revoked_stays_so(alice: Tenant) -> None:
    client = member(alice)
    mint(client, alice.project.pk)
    (key,) = keys(alice)
    ApiKey.objects.filter(pk=key.pk).update(allowed_models=["lab/one"])
    Budget.objects.filter(key=key).update(amount=Decimal("0.25"))
    mint(client, alice.project.pk)
    (key,) = keys(alice)
    assert key.allowed_models == ["lab/one"] and Budget.objects.get(key=key).amount == Decimal("0.25")
    ApiKey.objects.filter(pk=key.pk).update(revoked_at=timezone.now())
    mint(client, alice.project.pk)
    revoked, fresh = keys(alice)
    assert revoked.pk == key.pk and revoked.revoked_at is not None
    assert fresh.revoked_at is None and Budget.objects.get(key=fresh).amount == 1


def test_who_had_too_many_revoked_gets_no_more(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.console.playground.minting.MOST_REVOKED", 2)
    client = member(alice)
    for _ in range(2):
        assert mint(client, alice.project.pk).status_code == 200
        ApiKey.objects.filter(project=alice.project, name="playground").update(revoked_at=timezone.now())
    answer = mint(client, alice.project.pk)
    assert answer.status_code == 409 and "key" not in answer.json() and len(keys(alice)) == 2


def test_nobody_has_a_key_of_anothers_project(alice: Tenant) -> None:
    charlie = make_tenant("charlie")
    off = Project.objects.create(organization=alice.organization, slug="off", name="Off", active=False)
    for project in (charlie.project.pk, off.pk, NOBODYS, "none", ""):
        answer = mint(member_of(alice), project)
        assert answer.status_code == 404 and "key" not in answer.json(), project
    # Nor of one in which they read alone.
    user = User.objects.get(username=f"m-{alice.organization.slug}")
    Membership.objects.create(user=user, organization=charlie.organization, role=Role.AUDITOR)
    assert mint(member_of(alice), charlie.project.pk).status_code == 404
    for client in (member(alice, Role.AUDITOR), console(superuser=False)):
        assert mint(client, alice.project.pk).status_code == 403
        assert client.get(reverse("playground")).status_code == 403
    assert mint(Client(), alice.project.pk).status_code == 302
    strict = Console(enforce_csrf_checks=True)
    strict.force_login(User.objects.get(username=f"m-{alice.organization.slug}"))
    assert mint(strict, alice.project.pk).status_code == 403
    assert strict.get(reverse(MINT)).status_code == 405
    assert keys(alice) == keys(charlie) == [] and not ApiKey.objects.filter(project=off).exists()


def member_of(tenant: Tenant) -> Console:
    """The same member each time."""
    user, new = User.objects.get_or_create(username=f"m-{tenant.organization.slug}", is_staff=True)
    if new:
        Membership.objects.create(user=user, organization=tenant.organization, role=Role.DEVELOPER)
    client = Console()
    client.force_login(user)
    return client


def test_the_page_may_reach_the_api_and_nothing_else(alice: Tenant, settings: Any) -> None:
    client = member(alice)
    for serve, public, base, connect in (
        ("all", "", "http://testserver/v1", "connect-src 'self' http://testserver"),
        ("console", "https://api.example", "https://api.example/v1", "connect-src 'self' https://api.example"),
    ):
        settings.SERVE, settings.PUBLIC_URL = serve, public
        page = client.get(reverse("playground"))
        assert context_of(page)["base"] == base
        assert page["Content-Security-Policy"].endswith(connect) and "default-src 'self'" in page[
            "Content-Security-Policy"
        ]  # fmt: skip
        assert [one.pk for one in context_of(page)["projects"]] == [alice.project.pk]
    settings.PUBLIC_URL = ""
    html = client.get(reverse("playground")).content.decode()
    assert "PUBLIC_URL" in html and 'id="playground"' not in html


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("", True), ("https://api.example", True), ("http://127.0.0.1:8000", True), ("https://[::1]:8443", True),
        ("api.example", False), ("https://api.example/v1", False), ("https://api.example; script-src *", False),
        ("https://user@api.example", False), ("ftp://api.example", False), ("https://api.example\n", False),
    ],
)  # fmt: skip
def test_the_public_address_is_an_origin(settings: Any, url: str, right: bool) -> None:
    settings.PUBLIC_URL = url
    assert ("gateway.E011" not in [one.id for one in run_checks()]) is right


def test_an_id_that_somebody_else_has_taken_is_theirs(alice: Tenant, charlie: Tenant) -> None:
    """The ids can be reckoned by who knows a project's and a person's."""
    client = member(alice)
    taken = uuid5(KEYS, f"{alice.project.pk} {client.session['_auth_user_id']} 0")
    theirs, _ = make_key(charlie.project, pk=taken)
    assert mint(client, alice.project.pk).status_code == 200
    (key,) = keys(alice)
    assert key.pk != taken and key.owner_id == int(client.session["_auth_user_id"])
    before = bytes(theirs.digest)
    theirs.refresh_from_db()
    assert (theirs.project_id, bytes(theirs.digest)) == (charlie.project.pk, before)
