"""Whom alerts go to, in the console: a webhook's secret goes in, never comes out, and is bound to its address."""

from typing import Any

import pytest
from django.conf import LazySettings
from django.contrib.messages import get_messages
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse

from billing.alerts import MOST_RECIPIENTS
from billing.models import Delivery, Recipient
from gateway.alerts.signature import key_of, new_secret
from tests.console.browser import console, context_of, filled, make_delivery, submit
from tests.stage.cast import Tenant

FORM = "recipient_form"
ADD = reverse("admin:billing_recipient_add")
HOOK = "https://hook.example.com/meterline"


def add(client: Client, tenant: Tenant, **fields: Any) -> Any:
    """Sends the form of a new webhook of `tenant`'s, and follows to the page that comes next."""
    fields = {"organization": str(tenant.organization.pk), "channel": "webhook", "address": HOOK, **fields}
    untouched: dict[str, Any] = dict(filled(client.get(ADD).content.decode(), FORM))
    return client.post(ADD, {**untouched, **fields}, follow=True)


def only(tenant: Tenant) -> Recipient:
    """The tenant's one recipient."""
    return Recipient.objects.get(organization=tenant.organization)


def said(page: Any) -> list[str]:
    """The messages of a page."""
    return [str(one) for one in get_messages(page.wsgi_request)]


def test_it_works(alice: Tenant) -> None:
    client = console()
    (offered,) = filled(client.get(ADD).content.decode(), FORM)["secret"]
    assert len(key_of(offered)) == 32
    assert filled(client.get(ADD).content.decode(), FORM)["secret"] != [offered]  # and kept by nobody
    page = add(client, alice, secret=offered)
    made = only(alice)
    assert (made.secret(), made.active) == (offered, True)
    assert offered not in made.sealed
    change = reverse("admin:billing_recipient_change", args=[made.pk])
    shown = page.content.decode() + client.get(change).content.decode()
    shown += client.get(reverse("admin:billing_recipient_history", args=[made.pk])).content.decode()
    assert HOOK in shown and offered not in shown and made.sealed not in shown


def test_a_secret_stays_until_another_is_typed_and_the_address_for_good(alice: Tenant) -> None:
    client, first, second = console(), new_secret(), new_secret()
    add(client, alice, secret=first)
    change = reverse("admin:billing_recipient_change", args=[only(alice).pk])
    forged = {"address": "https://eve.example.com/", "channel": "mail"}
    assert submit(client, change, FORM, active=[], **forged).status_code == 302
    made = only(alice)
    assert (made.address, made.channel, made.active, made.secret()) == (HOOK, "webhook", False, first)
    assert submit(client, change, FORM, secret=second).status_code == 302
    assert only(alice).secret() == second
    assert submit(client, change, FORM, secret="whsec_short").status_code == 200
    assert only(alice).secret() == second


@pytest.mark.parametrize(
    "wrong",
    [
        {"address": "hook.example.com"},
        {"address": "https://user:pass@hook.example.com/"},
        {"address": "https://hook.example.com/?token=1"},
        {"address": "ftp://hook.example.com/"},
        {"secret": ""},
        {"secret": "whsec_AAAA"},
        {"secret": "secret"},
        {"channel": "mail", "address": "nobody"},
        {"channel": "mail", "address": "a@example.com\r\nBcc: b@example.com"},
        {"channel": ""},
    ],
    ids=str,
)
def test_what_could_not_be_told_is_refused(wrong: dict[str, str], alice: Tenant) -> None:
    assert add(console(), alice, **wrong).status_code == 200
    assert not Recipient.objects.filter(organization=alice.organization).exists()


def test_mail_needs_no_secret_and_keeps_none(alice: Tenant, settings: LazySettings) -> None:
    settings.EMAIL_HOST = ""
    page = add(console(), alice, channel="mail", address="finance@tenant.example")
    made = only(alice)
    assert (made.channel, made.address, made.sealed) == ("mail", "finance@tenant.example", "")
    assert "No mail is sent: EMAIL_HOST is not set." in said(page)


def test_where_nothing_is_dialled_is_told(alice: Tenant) -> None:
    page = add(console(), alice, address="http://127.0.0.1:9000/hook")
    assert any("add http://127.0.0.1:9000 to EGRESS_ALLOW" in words for words in said(page))
    assert only(alice).address == "http://127.0.0.1:9000/hook"


def test_an_organization_has_so_many_and_each_once(alice: Tenant, charlie: Tenant) -> None:
    client = console()
    add(client, alice)
    add(client, alice)  # a second time
    assert Recipient.objects.filter(organization=alice.organization).count() == 1
    add(client, charlie)
    assert Recipient.objects.filter(organization=charlie.organization).count() == 1
    for number in range(MOST_RECIPIENTS - 1):
        Recipient.objects.create(organization=alice.organization, channel="mail", address=f"{number}@tenant.example")
    assert "20 recipients at most" in add(client, alice, channel="mail", address="more@x.example").content.decode()
    with pytest.raises(ValidationError):
        Recipient(organization=alice.organization, channel="mail", address="more@x.example").full_clean()


def test_what_became_of_a_message_is_listed(alice: Tenant) -> None:
    made = Recipient.objects.create(organization=alice.organization, channel="mail", address="finance@tenant.example")
    sent = make_delivery(made)
    lost = make_delivery(made, status="given_up", tries=8, last_error="status 500", sent_at=None)
    client, address = console(), reverse("admin:billing_delivery_changelist")
    page = context_of(client.get(address, {"q": str(lost.message)}))["cl"]
    assert list(page.result_list) == [lost]
    html = client.get(address, {"status__exact": "given_up"}).content.decode()
    assert "status 500" in html and "finance@tenant.example" in html and alice.organization.slug in html
    assert sent not in context_of(client.get(address, {"status__exact": "given_up"}))["cl"].result_list
    made.delete()  # of whom the messages stay
    assert Delivery.objects.filter(pk__in=[sent.pk, lost.pk]).count() == 2
