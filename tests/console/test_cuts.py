"""Cutting off an open request in the console: it ends at once, is charged once, and the log says who did it."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.urls import reverse
from django.utils import timezone

from accounts.models import AuditEvent, Change
from accounts.roles import Office, Role
from billing.models import Hold, Lease, LedgerEntry, Usage
from tests.console.browser import console, console_role, context_of, make_hold, url
from tests.console.test_self_service import client_of, member, official
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import NOBODYS, Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import chat, dial
from tests.stage.shelf import make_model, make_provider, make_tariff

LIST = url(Hold, "changelist")


def address(hold: Hold | str) -> str:
    """Where one is cut off."""
    return reverse("cut_request", args=[hold.pk if isinstance(hold, Hold) else hold])


def notes(hold: Hold) -> int:
    """How often the gateways were told to cut it."""
    return Change.objects.filter(table="gateway_cut", row=str(hold.pk)).count()


@pytest.fixture
def hold(alice: Tenant) -> Iterator[Hold]:
    """A request that is open, of a process that nobody knows."""
    now = timezone.now()
    lease = Lease.objects.create(id=uuid4(), host="here", pid=1, started_at=now, heartbeat_at=now)
    made = make_hold(alice, lease)
    yield made
    Hold.objects.filter(pk=made.pk).delete()


@pytest.mark.parametrize("who", ["an operator", "an owner"])
def test_a_stream_ends_when_somebody_cuts_it_off(
    gateway: Gateway, simulated: SimulatedProvider, alice: Tenant, who: str
) -> None:
    rates = make_tariff(input=("1", "2"), output=("2", "4"))
    model = make_model(make_provider(simulated.base_url), "cut?hold=3&prompt=7&tokens=5", rates)
    synchronize(gateway)
    client = console() if who == "an operator" else member(alice, Role.OWNER)[1]
    with dial(gateway) as line:
        line.send(chat(alice.secret, model.slug, stream=True))
        simulated.until(waiting=1)
        line._until(b'"content":"')
        hold = Hold.objects.get(organization=alice.organization.pk)
        link = address(hold)
        assert link in client.get(LIST).content.decode()
        assert "It cannot be taken back" in client.get(link).content.decode()
        assert Hold.objects.filter(pk=hold.pk).exists()  # asking does nothing
        pressed = time.monotonic()
        assert client.post(link)["Location"] == LIST
        said = line._until(b"request_cut")
        took = time.monotonic() - pressed
    simulated.release()
    assert b"[DONE]" not in said and took < 10, took
    until(lambda: not Hold.objects.filter(pk=hold.pk).exists())
    usage = Usage.objects.get(pk=hold.pk)
    assert (usage.status, usage.error, usage.basis) == ("cancelled", "request_cut", "estimated")
    assert usage.charge is not None and usage.charge > 0
    assert LedgerEntry.objects.filter(generation=hold.pk, kind="settle", credit="revenue").count() == 1
    assert books(alice.organization).problems() == []
    event = AuditEvent.objects.get(table="billing_hold", row=str(hold.pk))
    assert (event.action, event.note, event.organization) == ("change", "Cut off.", alice.organization.pk)
    assert event.actor == int(client.session["_auth_user_id"])
    assert client.post(link)["Location"] == LIST  # it has ended: nothing more happens
    assert AuditEvent.objects.filter(row=str(hold.pk)).count() == notes(hold) == 1


def test_who_may_not_cut_it_off_does_nothing(alice: Tenant, charlie: Tenant, hold: Hold) -> None:
    clients: list[tuple[Any, int, int]] = [
        (client_of(official(Office.AUDITOR)), 403, 403),
        (client_of(official(Office.FINANCE)), 404, 404),
        (member(alice, Role.AUDITOR)[1], 403, 403),
        (member(alice, Role.DEVELOPER)[1], 404, 404),
        (member(charlie, Role.OWNER)[1], 404, 302),  # as for one that nobody ever made
    ]
    for client, asked, pressed in clients:
        assert client.get(address(hold)).status_code == asked
        assert client.post(address(hold)).status_code == pressed
    stranger = member(charlie, Role.OWNER)[1]
    assert stranger.post(address(NOBODYS))["Location"] == stranger.post(address(hold))["Location"]
    assert notes(hold) == 0 and not AuditEvent.objects.filter(row=str(hold.pk)).exists()


def test_the_second_wall_holds_of_others_requests(alice: Tenant, charlie: Tenant, hold: Hold) -> None:
    user, _client = member(charlie, Role.OWNER)
    own, _client = member(alice, Role.OWNER)
    with console_role(), connection.cursor() as cursor:
        for person, done in ((user, False), (own, True)):
            cursor.execute("select accounts_enter(%s, '')", [person.pk])
            cursor.execute("select gateway_cut(%s)", [hold.pk])
            assert cursor.fetchone() == (done,)
            assert Hold.objects.filter(pk=hold.pk).exists() is done
    assert notes(hold) == 1


def test_an_owner_sees_their_own_open_requests_without_the_machine(alice: Tenant, charlie: Tenant, hold: Hold) -> None:
    _user, owner = member(alice, Role.OWNER)
    shown = owner.get(LIST)
    assert [row.pk for row in context_of(shown)["cl"].result_list] == [hold.pk]
    assert address(hold) in shown.content.decode()
    assert "process" not in context_of(shown)["cl"].list_display
    _user, auditor = member(alice, Role.AUDITOR)
    assert address(hold) not in auditor.get(LIST).content.decode()
    _user, stranger = member(charlie, Role.OWNER)
    assert list(context_of(stranger.get(LIST))["cl"].result_list) == []
    assert 'data-live="#changelist-form"' in shown.content.decode()
