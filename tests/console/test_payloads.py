"""Kept payloads in the console: shown to owners and operators alone, for a reason, which is logged before."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.urls import reverse

from accounts.models import AuditEvent, Membership, Project, User
from accounts.roles import Office, Role
from gateway.models import Payload
from tests.console.browser import Console, console, console_role, make_payload, make_usage, sealed_sides, url
from tests.matrix.people import client_of
from tests.stage.cast import Tenant

CHARLIES = "owner of another organization"
PROMPT, ANSWER = "What is <b>the canary</b>?", "It is a bird."


@pytest.fixture
def payload(alice: Tenant) -> Payload:
    """One of Alice's, of a generation there is."""
    return make_payload(alice, **{**sealed_sides(make_usage(alice), PROMPT, ANSWER), "answer_bytes": 1000})


def person(tenant: Tenant, role: Role | Office | None) -> Console:
    """Somebody with a role in the tenant's organization, or an office."""
    user = User.objects.create_user(f"person-{uuid4().hex[:12]}", is_staff=True)
    if isinstance(role, Role):
        Membership.objects.create(user=user, organization=tenant.organization, role=role)
    elif role is not None:
        user.groups.add(Group.objects.get(name=role))
    return client_of(user)


def reveal(client: Console, payload: Payload, reason: str = "a complaint, ticket 7") -> Any:
    """Asks for what is in it."""
    return client.post(reverse("admin:gateway_payload_reveal", args=[payload.pk]), {"reason": reason})


def events(payload: Payload) -> list[AuditEvent]:
    """What the log has of it."""
    return list(AuditEvent.objects.filter(table="gateway_payload", row=str(payload.pk)))


@pytest.mark.parametrize("role", [Role.OWNER, Office.OPERATOR], ids=str)
def test_it_is_shown_for_a_reason_that_is_logged(role: Role | Office, payload: Payload, alice: Tenant) -> None:
    client = person(alice, role)
    page = client.get(reverse("admin:billing_usage_change", args=[payload.pk])).content.decode()
    assert "Payload kept" in page and "canary" not in page
    assert "canary" not in client.get(url(Payload, "change", payload.pk)).content.decode()
    assert events(payload) == []
    shown = reveal(client, payload)
    assert shown.status_code == 200 and "no-store" in shown["Cache-Control"]
    html = shown.content.decode()
    assert "What is &lt;b&gt;the canary&lt;/b&gt;?" in html and ANSWER in html
    assert f"{len(ANSWER)} bytes are kept of 1000" in html
    (event,) = events(payload)
    assert (event.action, event.note, event.address) == ("reveal", "a complaint, ticket 7", "127.0.0.1")
    assert (event.organization, event.actor) == (alice.organization.pk, int(client.session["_auth_user_id"]))


@pytest.mark.parametrize(
    "role", [Role.DEVELOPER, Role.AUDITOR, Office.FINANCE, Office.AUDITOR, None, CHARLIES], ids=str
)
def test_nobody_else_sees_that_there_is_any(role: Any, payload: Payload, alice: Tenant, charlie: Tenant) -> None:
    client = person(charlie, Role.OWNER) if role == CHARLIES else person(alice, role)
    page = client.get(reverse("admin:billing_usage_change", args=[payload.pk]), follow=True).content.decode()
    assert "Payload kept" not in page and reverse("admin:gateway_payload_reveal", args=[payload.pk]) not in page
    assert reveal(client, payload).status_code in (302, 403, 404)
    assert client.post(url(Payload, "delete", payload.pk), {"post": "yes"}).status_code in (302, 403, 404)
    assert events(payload) == [] and Payload.objects.filter(pk=payload.pk).exists()


@pytest.mark.parametrize("role", [Role.OWNER, Role.DEVELOPER, Role.AUDITOR, Office.FINANCE, Office.AUDITOR, CHARLIES])
def test_the_database_itself_shows_it_to_nobody_else(
    role: Any, payload: Payload, alice: Tenant, charlie: Tenant
) -> None:
    """Whatever the console's code asks for, as whomever it has entered."""
    client = person(charlie, Role.OWNER) if role == CHARLIES else person(alice, role)
    with console_role(), connection.cursor() as cursor:
        cursor.execute("select accounts_enter(%s, '192.0.2.7')", [client.session["_auth_user_id"]])
        cursor.execute("select prompt from gateway_reveal_payload(%s, 'why', 30)", [payload.pk])
        shown = cursor.fetchall()
    assert bool(shown) == bool(events(payload)) == (role == Role.OWNER)
    if role == Role.OWNER:
        assert events(payload)[0].address == "192.0.2.7"


@pytest.mark.parametrize("reason", ["", "   ", "\0", "x" * 501])
def test_without_a_reason_nothing_is_shown_or_logged(reason: str, payload: Payload) -> None:
    refused = reveal(console(), payload, reason)
    assert (refused.status_code, refused["Location"]) == (302, url(Payload, "change", payload.pk))
    assert console().get(reverse("admin:gateway_payload_reveal", args=[payload.pk])).status_code == 405
    assert events(payload) == []


def test_what_was_changed_is_not_shown(payload: Payload, alice: Tenant) -> None:
    """Neither changed bytes nor another generation's payload, copied here."""
    other = make_payload(alice, make_usage(alice))
    Payload.objects.filter(pk=other.pk).update(prompt=payload.prompt, answer=b"1." + bytes(payload.answer)[2:-1])
    html = reveal(console(), other).content.decode()
    assert html.count("This cannot be opened") == 2 and "canary" not in html and ANSWER not in html


@pytest.mark.parametrize("days", [0, 1])
def test_what_is_kept_no_longer_is_not_shown_although_it_is_there_still(days: int, payload: Payload) -> None:
    Payload.objects.filter(pk=payload.pk).update(created_at=payload.created_at.replace(year=2020))
    Project.objects.filter(pk=payload.project).update(payload_days=days)
    assert reveal(console(), payload).status_code == 404
    assert events(payload) == []


def test_an_owner_deletes_and_that_is_logged(payload: Payload, alice: Tenant) -> None:
    owner = person(alice, Role.OWNER)
    other = make_payload(alice)
    gone = owner.post(url(Payload, "delete", payload.pk), {"post": "yes"})
    assert gone.status_code == 302 and not Payload.objects.filter(pk=payload.pk).exists()
    chosen = {"action": "delete_selected", "_selected_action": [str(other.pk)], "post": "yes"}
    assert owner.post(url(Payload, "changelist"), chosen).status_code == 302
    assert not Payload.objects.filter(pk=other.pk).exists()
    for row in (payload, other):
        (event,) = events(row)
        assert (event.action, event.organization) == ("delete", alice.organization.pk)


def test_an_owner_switches_it_on_and_no_developer_does(alice: Tenant) -> None:
    page = url(Project, "change", alice.project.pk)
    assert 'name="payload_days"' in person(alice, Role.OWNER).get(page).content.decode()
    assert 'name="payload_days"' not in person(alice, Role.DEVELOPER).get(page).content.decode()
