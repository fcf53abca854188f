"""What stands above a list: what it is filtered by, each to be taken away, what is often asked, what it comes to."""

import html
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from accounts.models import ApiKey
from accounts.roles import Role
from billing.console import generations
from billing.models import Budget, Usage
from gateway.models import Refused
from tests.console.browser import console, context_of, make_refused, make_usage, url
from tests.console.test_self_service import member
from tests.stage.cast import Tenant

LIST = url(Usage, "changelist")
CHIP = re.compile(r'<a class="chip([^"]*)" href="(\?[^"]*)"([^>]*)>([^<]*)')


def chips(client: Client, address: str, **asked: Any) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What is often asked and what is chosen, by words, with where each leads; and what of the former is asked now."""
    response = client.get(address, asked)
    assert response.status_code == 200
    often: dict[str, str] = {}
    chosen: dict[str, str] = {}
    current = []
    for kind, query, more, words in CHIP.findall(response.content.decode()):
        told, led = html.unescape(words).strip(), html.unescape(query)
        (chosen if "chosen" in kind else often)[told] = led
        if "aria-current" in more:
            current.append(told)
    return often, chosen, current


def listed(client: Client, query: str) -> list[Any]:
    """The rows of a list."""
    return [row.pk for row in context_of(client.get(LIST + query))["cl"].result_list]


def test_what_a_list_is_filtered_by_is_told_and_taken_away(alice: Tenant) -> None:
    organization = str(alice.organization.pk)
    bad, good = make_usage(alice, status="failed"), make_usage(alice)
    client = console()
    asked = {"organization": organization, "project": str(alice.project.pk), "status": "bad", "model": "lab/model"}
    _often, chosen, current = chips(client, LIST, **asked)
    assert list(chosen) == [
        f"Organization: {alice.organization.slug}", f"Project: {alice.project.slug}", "Model: lab/model",
        "Status: Failed or abandoned",
    ]  # fmt: skip
    assert current == ["Failed"]
    assert listed(client, f"?{urlencode(asked)}") == [bad.pk]
    assert listed(client, chosen["Status: Failed or abandoned"]) == [good.pk, bad.pk]
    assert chips(client, LIST, created_at_from_0="2026-01-01", created_at_to_0="2026-01-02")[1].keys() == {
        "Time (UTC): from 2026-01-01, to 2026-01-02"
    }
    whole = chips(client, url(Budget, "changelist"), organization__id__exact=organization, hard__exact="1", q="x")[1]
    assert list(whole) == ["Search: x", "Hard: yes", f"Organization: {alice.organization.slug}"]
    assert chips(client, url(ApiKey, "changelist"), state="expired")[1:] == (
        {"State: Expired": "?"}, ["Expired"],
    )  # fmt: skip
    make_refused(alice)
    assert chips(client, url(Refused, "changelist"), status="400")[1] == {"HTTP status: 400": "?"}


def test_what_is_often_asked_is_a_click_away(alice: Tenant) -> None:
    client, now = console(), timezone.now()
    slow, early = make_usage(alice, duration_ms=30_001), make_usage(alice, ttft_ms=5_001, duration_ms=6_000)
    unpriced = make_usage(alice, charge=None)
    failed = make_usage(alice, status="failed")
    make_usage(alice, at=now - timedelta(days=2), status="failed", charge=None)
    often, chosen, current = chips(client, LIST, organization=str(alice.organization.pk))
    assert list(often) == ["Today", "Failed", "Unpriced", "Slow"] and current == [] and len(chosen) == 1
    assert set(listed(client, often["Slow"])) == {slow.pk, early.pk}
    assert listed(client, often["Unpriced"]) == [unpriced.pk]
    assert listed(client, often["Failed"])[0] == failed.pk and len(listed(client, often["Failed"])) == 2
    again, _chosen, current = chips(client, LIST + often["Slow"])
    assert current == ["Slow"] and len(listed(client, again["Slow"])) == 5
    assert client.get(LIST, {"odd": "nothing of it"}).status_code == 200
    assert listed(client, "?odd=nothing") == []


def test_a_list_is_counted_and_added_up_when_somebody_asks(alice: Tenant, charlie: Tenant) -> None:
    for charge in ("1.25", "0.000000000001"):
        make_usage(alice, charge=Decimal(charge))
    make_usage(alice, status="failed", charge=None)
    make_usage(charlie, charge=Decimal(1000))
    _user, owner = member(alice, Role.OWNER)
    for client, asked in ((console(), {"organization": str(alice.organization.pk)}), (owner, {})):
        page = client.get(f"{LIST}sums/", asked)
        found = context_of(page)["sums"]
        assert "$1.250000000001" in context_of(page)["charge"] and context_of(page)["unpriced"] == 1
        assert [re.sub("<[^>]*>", "", found[name]) for name in ("count", "failed", "prompt", "completion")] == [
            "3", "1", "3,000", "1,500",
        ]  # fmt: skip
        assert f'{LIST}sums/?{urlencode(asked)}"' in client.get(LIST, asked).content.decode()
        assert charlie.organization.slug not in page.content.decode()
    assert owner.get(f"{LIST}sums/", {"provider": "vendor"}).status_code in (302, 400)  # which is not theirs to ask


def test_no_more_is_added_up_than_so_many(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "MOST_ADDED_UP", 2)
    for _ in range(3):
        make_usage(alice)
    page = console().get(f"{LIST}sums/", {"organization": str(alice.organization.pk)})
    assert "The newest" in page.content.decode() and context_of(page)["all"] is False
    assert ">2<" in context_of(page)["sums"]["count"]


def test_a_filter_does_not_tell_whom_one_may_not_see(alice: Tenant, charlie: Tenant) -> None:
    _user, owner = member(alice, Role.OWNER)
    shown = owner.get(LIST, {"organization": str(charlie.organization.pk)}).content.decode()
    assert charlie.organization.slug not in shown
    hostile = '"><script>alert(1)</script>'
    assert "<script>alert" not in console().get(LIST, {"model": hostile}).content.decode()
