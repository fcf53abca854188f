"""What the pages of an organization, a project, a key and a provider begin with: what matters, and the next steps."""

import html
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, models
from django.test import Client, RequestFactory
from django.utils import timezone

from accounts.models import ApiKey, Organization, Project, User
from accounts.roles import Office, Role
from billing.ids import first_id
from billing.models import Budget, Counter
from gateway.console import hubs
from gateway.models import RefusedCount
from routing.models import Credential, Ejection, Offer
from tests.console.browser import console, console_role, exact, make_balance, make_usage, url
from tests.console.test_overview import midnight
from tests.console.test_self_service import client_of, member, official
from tests.console.test_spend import roll
from tests.stage.cast import Tenant, make_key
from tests.stage.shelf import make_model, make_provider, make_tariff


def told(client: Client, row: models.Model) -> dict[str, Any]:
    """What the page of `row` begins with, for whose browser it is; and the page has it."""
    page = client.get(url(type(row), "change", row.pk))
    assert page.status_code == 200
    request = RequestFactory().get("/")
    request.user = User.objects.get(pk=client.session["_auth_user_id"])
    with console_role():
        found = hubs.hub(request, row)
    assert all(f'href="{html.escape(link)}"' in page.content.decode() for _title, link in found["steps"])
    return found


def money_of(found: dict[str, Any]) -> dict[str, str]:
    """The two sums, to the last digit."""
    return {one["title"]: exact(one["value"]) for one in found["figures"][:2]}


def steps(found: dict[str, Any]) -> list[str]:
    """What may be done next."""
    return [title for title, _link in found["steps"]]


def test_a_page_begins_with_what_its_row_came_to(alice: Tenant, charlie: Tenant) -> None:
    other, _ = make_key(alice.project, name="other")
    roll(alice, midnight(), charge=Decimal(3))
    roll(alice, midnight(), key=other.pk, charge=Decimal(4))
    roll(alice, midnight().replace(day=1) - timedelta(days=1), charge=Decimal(100))
    roll(charlie, midnight(), charge=Decimal(1000))
    mine = make_usage(alice, status="failed", error="upstream_error")
    theirs = make_usage(alice, key=other.pk, key_name="other")
    make_usage(charlie)
    make_usage(alice, at=timezone.now() - timedelta(days=3), status="failed")
    RefusedCount.objects.create(
        minute=timezone.now() - timedelta(hours=2), organization=alice.organization.pk, project=alice.project.pk,
        key=alice.key.pk, status=429, code="limited", requests=6,
    )  # fmt: skip
    client = console()
    for row, sum, calls in (
        (alice.organization, "$7", [theirs, mine]),
        (alice.project, "$7", [theirs, mine]),
        (alice.key, "$3", [mine]),
    ):
        found = told(client, row)
        assert money_of(found) == {"Spend this month": sum, "Spend today": sum}
        shown = [call["link"] for call in found["calls"]]
        assert shown[:-1] == [url(type(one), "change", one.pk) for one in calls]  # the last is of three days ago
        assert (found["failed"]["hour"], found["failed"]["day"], found["failed"]["of"]) == (1, 1, len(calls))
        assert found["failed"]["reasons"] == [("upstream_error", 1)]
        assert (found["refused"]["hour"], found["refused"]["day"]) == (0, 6)
        for link in (found["figures"][0]["link"], found["failed"]["link"], found["refused"]["link"]):
            assert client.get(link).status_code == 200, link
    keys = told(client, alice.organization)["keys"]["lines"]
    assert [(key["name"], key["used"]) for key in keys] == [
        ("other", f"{theirs.created_at:%Y-%m-%d %H:%M}"), ("key", f"{mine.created_at:%Y-%m-%d %H:%M}"),
    ]  # fmt: skip
    assert "keys" not in told(client, alice.key)


def test_it_shows_each_subject_its_own_budgets(alice: Tenant) -> None:
    whole = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    subject = {"organization": alice.organization, "project": alice.project}
    part = Budget.objects.create(**subject, period="total", amount=Decimal(4))
    Counter.objects.filter(subject=alice.project.pk).update(used=Decimal(1))
    client = console()
    link = {one: url(Budget, "change", one.pk) for one in (whole, part)}
    assert [one["link"] for one in told(client, alice.organization)["budgets"]] == [link[part], link[whole]]
    (shown,) = told(client, alice.project)["budgets"]
    assert (shown["link"], shown["percent"], shown["value"]) == (link[part], "25", 25)
    assert told(client, alice.key)["budgets"] == []


def test_the_next_steps_are_those_that_one_may_take(alice: Tenant) -> None:
    make_balance(alice)
    _user, owner = member(alice, Role.OWNER)
    _user, developer = member(alice, Role.DEVELOPER)
    _user, auditor = member(alice, Role.AUDITOR)
    finance = client_of(official(Office.FINANCE))
    see = ["See generations", "See refused requests"]
    assert steps(told(console(), alice.organization)) == [
        "See generations", "See spend", "See refused requests", "Add a project", "Add a budget", "Invite somebody",
        "Top up",
    ]  # fmt: skip
    assert steps(told(owner, alice.organization)) == [*see, "Add a project", "Add a budget", "Invite somebody"]
    assert steps(told(owner, alice.project)) == [*see, "Add a key", "Add a budget"]
    assert steps(told(developer, alice.organization)) == see
    assert steps(told(developer, alice.project)) == [*see, "Add a key"]
    assert steps(told(auditor, alice.project)) == see
    assert steps(told(finance, alice.organization)) == ["See generations", "See spend"]
    for client, row in ((owner, alice.organization), (developer, alice.project)):
        for title, link in told(client, row)["steps"]:
            assert client.get(link).status_code == 200, title
    add = dict(told(owner, alice.project)["steps"])["Add a key"]
    assert f'value="{alice.project.pk}" selected' in owner.get(add).content.decode()


def test_a_developer_is_told_of_their_own_keys_alone(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MOST_CALLS", 1)  # nor do others' crowd theirs out
    user, client = member(alice, Role.DEVELOPER)
    own, _ = make_key(alice.project, name="mine", owner=user)
    mine = make_usage(alice, key=own.pk, key_name="mine")
    make_usage(alice)
    roll(alice, midnight(), charge=Decimal(9))
    roll(alice, midnight(), key=own.pk, charge=Decimal(2))
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(4))
    for row in (alice.organization, alice.project, own):
        found = told(client, row)
        assert money_of(found)["Spend today"] == "$2"
        assert [call["link"] for call in found["calls"]] == [url(type(mine), "change", mine.pk)]
        assert found["budgets"] == []
    assert [key["name"] for key in told(client, alice.organization)["keys"]["lines"]] == ["mine"]


@pytest.mark.parametrize("model", [Organization, Project, ApiKey])
def test_charlie_is_told_nothing(model: type[models.Model], alice: Tenant, charlie: Tenant) -> None:
    _user, client = member(charlie, Role.OWNER)
    row = {Organization: alice.organization, Project: alice.project, ApiKey: alice.key}[model]
    response = client.get(url(model, "change", row.pk))
    assert response.status_code in (302, 403, 404) and alice.organization.slug not in response.content.decode()


def test_a_provider_is_told_with_what_of_it_rests(alice: Tenant) -> None:
    provider = make_provider("https://vendor.example/v1")
    make_model(provider, "model-1", make_tariff(input=("1", "2"), output=("2", "4")))
    rested = make_model(provider, "model-2", make_tariff(input=("1", "2"), output=("2", "4")))
    offer, credential = Offer.objects.get(model=rested), Credential.objects.filter(provider=provider).first()
    now = timezone.now()
    Ejection.objects.create(offer=offer, cause="server_error", opened_at=now, until=now + timedelta(minutes=1), count=1)
    if credential is None:
        credential = Credential.objects.create(provider=provider, name="first")
    Credential.objects.filter(pk=credential.pk).update(sealed="")
    Credential.objects.create(provider=provider, name="zz-off", active=False)
    roll(alice, midnight(), provider=provider.slug, charge=Decimal(9), provider_cost=Decimal(5))
    usage = make_usage(alice, provider=provider.slug)
    found = told(console(), provider)
    assert money_of(found) == {"Cost this month": "$5", "Cost today": "$5"}
    first, second = found["offers"]
    assert (first["name"], first["state"], second["state"]) == (rested.slug, "at rest: server error", "in use")
    assert {one["name"]: one["state"] for one in found["credentials"]}["zz-off"] == "off"
    assert [call["link"] for call in found["calls"]] == [url(type(usage), "change", usage.pk)]
    assert console().get(found["steps"][-1][1]).status_code == 200


def test_what_it_reads_of_generations_is_bounded(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "MOST_LOOKED_AT", 3)
    for _ in range(5):
        make_usage(alice, status="failed")
    failed = told(console(), alice.key)["failed"]
    assert (failed["day"], failed["of"], failed["all"]) == (3, 3, False)


def test_its_keys_are_read_by_their_index(alice: Tenant) -> None:
    with connection.cursor() as cursor:
        # Of months ahead, which are empty, one page is read either way.
        cursor.execute("set local enable_seqscan = off")
        values: dict[str, Any] = {"keys": [alice.key.pk], "since": first_id(timezone.now()), "most": 10}
        cursor.execute(f"explain {hubs.NEWEST}", values)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert re.search(r"Index (Only )?Scan using billing_usage_\w*key\w*", plan), plan
    assert not re.search(r"Seq Scan on billing_usage_(default|" + f"{timezone.now():%Y_%m})", plan), plan
