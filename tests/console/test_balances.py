"""The console's page of prepaid balances: what is left, of which credits, and giving one once."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import ProgrammingError

from billing.credit.prepaid import balance
from billing.models import Counter, Credit, LedgerEntry, Prepaid
from tests.console.browser import console, console_role, context_of, filled, url
from tests.stage.cast import Tenant

ADD = url(Prepaid, "add")


def test_an_operator_gives_credit_once_and_sees_what_is_left(alice: Tenant, charlie: Tenant) -> None:
    client, organization = console(), alice.organization
    form = {"organization": organization.slug, "kind": "top_up", "amount": "12.50", "reference": "invoice 7",
            "expires_at": "", "note": "October"}  # fmt: skip
    for changes, told in (
        ({}, "The organization is postpaid."),
        ({"organization": "nobody", "begin": "on"}, "There is no organization nobody."),
        ({"amount": "-1", "begin": "on"}, "Only an adjustment takes."),
        ({"kind": "expired", "begin": "on"}, "Select a valid choice."),
        ({"reference": "", "begin": "on"}, "This field is required."),
    ):
        assert told in client.post(ADD, {**form, **changes}).content.decode()
    assert not Prepaid.objects.filter(pk=organization.pk).exists()
    page = url(Prepaid, "change", organization.pk)
    response = client.post(ADD, {**form, "begin": "on"})
    assert (response.status_code, response["Location"]) == (302, page)
    again = client.post(ADD, form).content.decode()
    assert "The organization has a credit with the reference invoice 7 already." in again
    until = datetime.now(UTC) + timedelta(days=1)
    gift = {**form, "kind": "gift", "amount": "1", "reference": "gift", "expires_at": f"{until:%Y-%m-%d %H:%M}"}
    assert client.post(ADD, gift).status_code == 302
    Counter.objects.filter(subject=organization.pk, period="balance").update(used=Decimal("0.25"), held=Decimal(2))

    shown = context_of(client.get(page))
    rows = [tuple(row[1:7]) for row in shown["lines"]["rows"]]
    assert rows == [
        ("Gift", "1", "0.75", f"{until:%Y-%m-%d %H:%M}", "gift", "October"),
        ("Top-up", "12.5", "12.5", "", "invoice 7", "October"),
    ]
    assert all(row[7].startswith("op-") for row in shown["lines"]["rows"])
    html = client.get(url(Prepaid, "changelist"), {"q": organization.slug}).content.decode()
    assert all(f'title="{amount}"' in html for amount in ("$13.25", "$2"))

    # When to tell is all that is changed there; that is told to the page's own history.
    fields = filled(client.get(page).content.decode(), "prepaid_form")
    assert client.post(page, {**fields, "alerts": ["5\n0.50"], "granted": "99"}).status_code == 302
    prepaid = Prepaid.objects.get(pk=organization.pk)
    assert (prepaid.alerts, prepaid.granted) == ([5, Decimal("0.5")], Decimal("13.5"))
    assert "greater than or equal to 0" in client.post(page, {**fields, "alerts": ["-1"]}).content.decode()
    assert client.post(url(Prepaid, "delete", organization.pk), {"post": "yes"}).status_code == 403

    stranger = console(superuser=False)
    assert [stranger.get(ADD).status_code, stranger.post(ADD, {**form, "reference": "mine"}).status_code] == [403, 403]
    assert (balance(charlie.organization.pk), Credit.objects.filter(organization=organization).count()) == (None, 2)
    assert LedgerEntry.objects.filter(organization=organization.pk).count() == 2
    with console_role(), pytest.raises(ProgrammingError, match="permission denied"):
        Prepaid.objects.filter(pk=organization.pk).update(granted=99)
