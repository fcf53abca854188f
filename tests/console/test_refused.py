"""Refused requests in the console: found by what a client tells of them, and by whose they are."""

from typing import Any
from uuid import uuid4

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from gateway.models import Refused, RefusedCount
from tests.console.browser import console, context_of, make_refused
from tests.stage.cast import Tenant

LIST, MINUTES = (reverse(f"admin:gateway_{name}_changelist") for name in ("refused", "refusedcount"))


def listed(client: Client, address: str = LIST, **asked: Any) -> list[Any]:
    """The rows of the first page of a list."""
    response = client.get(address, asked)
    assert response.status_code == 200
    return list(context_of(response)["cl"].result_list)


def test_it_is_found_by_the_request_s_id(alice: Tenant, charlie: Tenant) -> None:
    wanted = make_refused(alice, message="Too many <b>cooks</b>.")
    make_refused(charlie)
    client = console()
    for id in (wanted.pk.hex, str(wanted.pk), f" {wanted.pk.hex} "):
        assert listed(client, q=id) == [wanted]
    assert listed(client, q=uuid4().hex) == listed(client, q="cooks") == []
    page = client.get(reverse("admin:gateway_refused_change", args=[wanted.pk])).content.decode()
    for text in (wanted.pk.hex, "Too many &lt;b&gt;cooks&lt;/b&gt;.", f"{alice.organization.slug}/main", "400"):
        assert text in page


def test_it_is_narrowed_to_whose_it_is_and_what_was_told(alice: Tenant, charlie: Tenant) -> None:
    status, reason = 418, uuid4().hex
    first = make_refused(alice, status=status, code=reason)
    theirs = make_refused(charlie, status=status, code=reason)
    second = make_refused(None, status=status, code=reason)
    client = console()
    assert listed(client, code=reason) == [second, theirs, first]
    asked = {"organization": str(alice.organization.pk), "project": str(alice.project.pk), "key": str(alice.key.pk)}
    assert listed(client, **asked) == listed(client, organization=str(alice.organization.pk)) == [first]
    assert listed(client, code=reason, status="418") == [second, theirs, first]
    for nothing in ("400", "4180", "abc", "٤١٨"):
        assert listed(client, code=reason, status=nothing) == []


def test_minutes_are_told_by_key_and_reason(alice: Tenant, charlie: Tenant) -> None:
    now = timezone.now().replace(second=0, microsecond=0)
    for tenant, requests in ((alice, 12_345), (charlie, 1)):
        ids = {"organization": tenant.organization.pk, "project": tenant.project.pk, "key": tenant.key.pk}
        RefusedCount.objects.create(minute=now, status=429, code="limited", requests=requests, key_name="k", **ids)
    (row,) = listed(console(), MINUTES, organization=str(alice.organization.pk))
    assert (row.key, row.requests) == (alice.key.pk, 12_345)
    assert "12,345" in console().get(MINUTES, {"key": str(alice.key.pk)}).content.decode()


def test_nobody_writes_them_by_hand(alice: Tenant) -> None:
    row = make_refused(alice)
    client = console()
    change = reverse("admin:gateway_refused_change", args=[row.pk])
    assert client.post(change, {"message": "Fine."}).status_code == 403
    assert client.post(reverse("admin:gateway_refused_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    assert client.get(reverse("admin:gateway_refused_add")).status_code == 403
    assert Refused.objects.get(pk=row.pk).message == "Not so."
