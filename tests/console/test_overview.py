"""The first page: what a range of days came to, for whom it is shown, and what needs somebody."""

import html
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from accounts.models import Membership
from accounts.roles import Office, Role
from billing.console.burn import burning, forecast
from billing.models import Budget, Counter, PriceProposal, Quarantined, SpendRollup, Tariff, UsageRollup
from gateway.console.overview import dashboard
from gateway.models import RefusedCount
from routing.models import Ejection, Offer
from routing.models.model import Forced
from tests.console.browser import console, context_of, exact, make_usage, url
from tests.console.test_self_service import client_of, member, official
from tests.console.test_spend import roll
from tests.stage.cast import Tenant, make_key
from tests.stage.shelf import make_model, make_provider, make_tariff

FIRST_PAGE = reverse("admin:index")


def midnight() -> datetime:
    """The beginning of the running day, UTC."""
    return timezone.now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def page(client: Client, tenant: Tenant | None = None, **asked: Any) -> dict[str, Any]:
    """What the template is told, of a tenant."""
    whose = {"organization": tenant.organization.slug} if tenant else {}
    response = client.get(FIRST_PAGE, {**whose, **asked})
    assert response.status_code == 200
    return context_of(response)


def figures(shown: dict[str, Any]) -> dict[str, str]:
    """The figures' words, money to the last digit."""
    told = {}
    for one in shown["figures"]:
        value = str(one["value"])
        told[one["title"]] = exact(value) if "title=" in value else re.sub(r"<[^>]*>", "", value)
    return told


def rolled(tenant: Tenant, day: datetime, **fields: Any) -> None:
    """A day as the worker makes it, of keys and of how answers ended: ten requests, nine of them completed."""
    roll(tenant, day, requests=10, cached_tokens=250, reasoning_tokens=50, **fields)
    counts = {field.name: 0 for field in UsageRollup._meta.fields if field.get_internal_type() == "BigIntegerField"}
    UsageRollup.objects.create(
        **{**counts, "span": "day", "starts_at": day, "organization": tenant.organization.pk, "model": "lab/a",
           "provider": "one", "charge": 3, "requests": 10, "completed": 9, "ttft_count": 4, "ttft_ms": 1000}
    )  # fmt: skip


def titles(shown: dict[str, Any]) -> list[str]:
    """What needs the person."""
    return [item.title for item in shown["attention"]]


def item(shown: dict[str, Any], title: str) -> Any:
    """What it says of one thing."""
    (found,) = (one for one in shown["attention"] if one.title.startswith(title))
    return found


def test_a_range_of_days_is_told_by_the_rollups(alice: Tenant) -> None:
    for days in (0, 6, 7, 29, 30):
        rolled(alice, midnight() - timedelta(days=days))
    client = console()
    assert figures(page(client, alice, days=7)) == {
        "Spend": "$6", "Requests": "20", "Tokens": "2,400", "Not completed": "10.0 %", "First token": "250 ms",
        "Cache hits": "25.0 %",
    }  # fmt: skip
    shown = page(client, alice, days=30)
    assert figures(shown)["Spend"] == "$12"
    assert [(one["name"], one["count"], one["width"]) for one in shown["tokens"]] == [
        ("fresh", "3,000", 375), ("cached", "1,000", 125), ("written", "0", 0), ("answer", "600", 75),
        ("reasoning", "200", 25),
    ]  # fmt: skip
    bars = [(bar["name"], bar["height"]) for bar in shown["trend"]["bars"]]
    assert len(bars) == 30 and bars[-1] == (f"{midnight():%Y-%m-%d}", dashboard.HEIGHT)
    assert [height for _name, height in bars].count(dashboard.HEIGHT) == 4
    assert page(client, alice, days="400")["asked"].days == 1


def test_the_running_day_is_told_by_its_generations_at_once(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    make_usage(alice, charge=Decimal("0.000000000001"), cached_tokens=500, ttft_ms=100)
    make_usage(alice, status="failed", charge=Decimal("0.25"), stream=False, ttft_ms=7000)
    make_usage(alice, status="abandoned", charge=None, provider_cost=None, ttft_ms=300)
    make_usage(alice, at=timezone.now() - timedelta(days=1, minutes=1), charge=Decimal(7))
    client = console()
    shown = page(client, alice)
    assert figures(shown) == {
        "Spend": "$0.250000000001", "Requests": "3", "Tokens": "4,500", "Not completed": "66.7 %",
        "First token": "200 ms", "Cache hits": "16.7 %",
    }  # fmt: skip
    assert shown["figures"][0]["note"] == "1 of unknown price"
    rolled(alice, midnight())
    assert figures(page(client, alice))["Spend"] == "$0.250000000001"
    monkeypatch.setattr(dashboard, "MOST_LOOKED_AT", 9)  # of which the rollups say that they are more
    assert figures(page(client, alice))["Spend"] == "$3"
    monkeypatch.setattr(dashboard, "MOST_LOOKED_AT", 2)  # which nobody has rolled up yet
    SpendRollup.objects.filter(organization=alice.organization.pk).update(requests=1)
    assert figures(page(client, alice))["Requests"] == "1"


def test_the_dearest_are_named_and_every_number_leads_to_its_rows(alice: Tenant) -> None:
    other, _ = make_key(alice.project, name="other")
    roll(alice, midnight(), charge=Decimal(3))
    roll(alice, midnight(), key=other.pk, model="lab/b", charge=Decimal(7))
    _user, owner = member(alice, Role.OWNER)
    for client, asked in ((owner, None), (client_of(official(Office.FINANCE)), alice)):
        shown = page(client, asked)
        tops = {top["title"]: [(line["name"], exact(line["charge"])) for line in top["lines"]] for top in shown["tops"]}
        assert tops == {
            "Models": [("lab/b", "$7"), ("lab/a", "$3")],
            "Projects": [(str(alice.project), "$10")],
            "Keys": [(str(other), "$7"), (str(alice.key), "$3")],
        }
        links = {top["all"] for top in shown["tops"]} | {figure["link"] for figure in shown["figures"]}
        lines = [line for top in shown["tops"] for line in top["lines"]]
        links |= {line[name] for line in lines for name in ("page", "spend", "generations")}
        assert len(links) > 8
        for link in {link.partition("?")[0]: link for link in links}.values():  # one of each page
            assert client.get(link).status_code == 200, link
    assert "Organizations" in {top["title"] for top in page(console())["tops"]}


def test_an_organizations_people_see_their_own_alone(alice: Tenant, charlie: Tenant) -> None:
    user, developer = member(alice, Role.DEVELOPER)
    own, _ = make_key(alice.project, name="mine", owner=user)
    for tenant in (alice, charlie):
        rolled(tenant, midnight(), charge=Decimal(1000))
        rolled(tenant, midnight() - timedelta(days=1), model="lab/secret", charge=Decimal(1000))
        Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(1), hard=True)
        Counter.objects.filter(subject=tenant.organization.pk, measure="money").update(used=Decimal(1))
    roll(alice, midnight() - timedelta(days=1), key=own.pk, charge=Decimal(5), requests=1)
    _user, owner = member(alice, Role.OWNER)
    shown = page(owner, days=7)
    assert (figures(shown)["Spend"], figures(shown)["Not completed"]) == ("$2005", "14.3 %")
    assert titles(shown) == ["Hard budgets that are spent"] and [one["name"] for one in shown["budgets"]] == [
        f"{alice.organization.slug}, in total"
    ]
    assert shown["providers"] is None and shown["running"] == [] and shown["organizations"] == []
    shown = page(developer, days=7)
    assert figures(shown) == {
        "Spend": "$5", "Requests": "1", "Tokens": "1,200", "Not completed": "-", "First token": "-",
        "Cache hits": "0.0 %",
    }  # fmt: skip
    assert [top["lines"][0]["name"] for top in shown["tops"]] == ["lab/a", str(alice.project), str(own)]
    assert shown["budgets"] == [] and titles(shown) == []
    for client in (owner, developer):
        asked = client.get(FIRST_PAGE, {"days": "7", "organization": str(charlie.organization.slug)})
        assert f"There is no organization {charlie.organization.slug}" in asked.content.decode()
        assert figures(context_of(asked)) == figures(page(client, days=7))
        assert charlie.organization.slug not in client.get(FIRST_PAGE, {"days": 30}).content.decode()


def test_who_belongs_to_two_organizations_chooses(alice: Tenant, charlie: Tenant) -> None:
    user, client = member(alice, Role.OWNER)
    Membership.objects.create(user=user, organization=charlie.organization, role=Role.AUDITOR)
    for tenant, charge in ((alice, 3), (charlie, 4)):
        rolled(tenant, midnight(), charge=Decimal(charge))
    shown = page(client, days=7)
    assert figures(shown)["Spend"] == "$7"
    assert {name for name, _query, _current in shown["organizations"][1:]} == {
        alice.organization.slug,
        charlie.organization.slug,
    }
    (query,) = (query for name, query, _current in shown["organizations"] if name == charlie.organization.slug)
    assert figures(context_of(client.get(f"{FIRST_PAGE}?{query}")))["Spend"] == "$4"


def test_a_budget_is_told_with_what_it_comes_to(alice: Tenant) -> None:
    hard = Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(100))
    soft = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(50), hard=False)
    Budget.objects.create(project=alice.project, organization=alice.organization, period="week", amount=Decimal(0))
    each = Budget.objects.create(organization=alice.organization, period="day", end_user="*", amount=Decimal(10))
    Counter.objects.filter(subject=alice.organization.pk, period="month").update(used=Decimal(85), held=Decimal(3))
    Counter.objects.filter(subject=alice.organization.pk, period="total").update(used=Decimal(75))
    found = burning(Budget.objects.filter(organization=alice.organization), 2)
    told = [(one.budget, one.percent, one.level) for one in found.shown]
    assert told == [(soft, Decimal(150), "over"), (hard, Decimal(85), "near")]
    assert (found.near, found.hard, found.soft) == (1, 0, 1)
    assert (found.shown[1].held, found.shown[0].until) == (Decimal(3), None)
    shown = page(console(), alice)
    link = url(Budget, "change", soft.pk)
    assert item(shown, "Soft budgets").rows == ((f"{alice.organization.slug}, in total: 150 %", link),)
    assert item(shown, "Budgets above").rows[0][0] == f"{alice.organization.slug}, a month: 85 %"
    assert [one["value"] for one in shown["budgets"]] == [100, 85, 0, 0]
    all_four = burning(Budget.objects.filter(organization=alice.organization), 9).shown
    assert each in {one.budget for one in all_four}
    assert burning(Budget.objects.none(), 5) == ([], 0, 0, 0)


@pytest.mark.parametrize(
    ("used", "hours", "comes_to", "reached"),
    [
        ("25", 6, "100", None),  # at the very end is not before it
        ("50", 6, "200", 12),
        ("10", 12, "20", None),
        ("120", 12, "240", None),  # spent already
        ("10", 1, None, None),  # too early to say
        ("0", 12, None, None),
        ("0.000000000001", 12, "0.000000000002", None),  # it would be reached in a year that there is not
    ],
)
def test_a_forecast_goes_on_as_the_window_began(
    used: str, hours: int, comes_to: str | None, reached: int | None
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    until, now = start + timedelta(days=1), start + timedelta(hours=hours)
    found = forecast(Decimal(used), Decimal(100), start, until, now)
    assert found == (
        None if comes_to is None else Decimal(comes_to),
        None if reached is None else start + timedelta(hours=reached),
    )
    assert forecast(Decimal(used), Decimal(100), start, None, now) == (None, None)


def test_it_tells_operators_what_does_not_work(alice: Tenant) -> None:
    provider = make_provider("https://vendor.example/v1")
    provider.slug = f"0-{provider.slug}"  # is among the first, however many of other tests' rest
    provider.save()
    model = make_model(provider, "model-1", make_tariff(input=("1", "2"), output=("2", "4")))
    offer = Offer.objects.get(model=model)
    client = console()

    def counted() -> list[int]:
        told = {one.title: len(one.rows) + one.more for one in page(client)["attention"]}
        return [told.get(kind, 0) for kind in kinds]

    kinds = ("Offers or credentials at rest", "Offers that somebody forced", "Offers without a price")
    before = counted()  # other tests' are there, too
    now = timezone.now()
    rest = Ejection.objects.create(
        offer=offer, cause="server_error", opened_at=now, until=now + timedelta(minutes=1), count=1
    )
    Offer.objects.filter(pk=offer.pk).update(forced=Forced.OPEN, tariff=Tariff.objects.create(slug=model.slug))
    assert counted() == [count + 1 for count in before]
    shown = page(client)
    levels = [one.level for one in shown["attention"]]
    assert levels == sorted(levels)  # what does not work comes first
    (line,) = (one for one in shown["providers"]["lines"] if one["slug"] == provider.slug)
    assert (line["state"], line["level"]) == ("1 at rest", "bad")
    for one in shown["attention"]:
        for link in (one.link, *(page for _name, page in one.rows[:1])):
            assert client.get(link).status_code == 200, link
    auditor = page(client_of(official(Office.AUDITOR)))
    assert "Offers without a price" in titles(auditor) and kinds[0] not in titles(auditor)
    Ejection.objects.filter(pk=rest.pk).update(closed_at=now)
    Offer.objects.filter(pk=offer.pk).update(forced="", active=False)
    assert counted() == before


def test_it_names_the_first_few_and_counts_the_others(alice: Tenant) -> None:
    now = timezone.now()
    for number in range(7):
        make_key(alice.project, name=f"soon-{number}", expires_at=now + timedelta(days=1, hours=number))
    make_key(alice.project, name="later", expires_at=now + timedelta(days=8))
    make_key(alice.project, name="gone", expires_at=now - timedelta(days=1))
    make_key(alice.project, name="revoked", expires_at=now + timedelta(days=1), revoked_at=now)
    _user, owner = member(alice, Role.OWNER)
    found = item(page(owner), "Keys that expire")
    assert [name.split(" ")[0].rpartition("/")[2] for name, _page in found.rows] == [f"soon-{at}" for at in range(5)]
    assert found.more == 2 and "and 2 more" in owner.get(FIRST_PAGE).content.decode()
    for _name, link in found.rows:
        assert owner.get(link).status_code == 200
    _user, developer = member(alice, Role.DEVELOPER)
    assert titles(page(developer)) == []


def test_it_tells_when_refusals_rise(alice: Tenant, charlie: Tenant) -> None:
    now = timezone.now()

    def refused(tenant: Tenant, ago: timedelta, requests: int, code: str = "limited") -> None:
        RefusedCount.objects.create(
            minute=now - ago, organization=tenant.organization.pk, key=tenant.key.pk, status=429, code=code,
            requests=requests,
        )  # fmt: skip

    _user, owner = member(alice, Role.OWNER)
    refused(charlie, timedelta(minutes=5), 1000)
    refused(alice, timedelta(minutes=5), 19)
    assert titles(page(owner)) == []
    refused(alice, timedelta(minutes=6), 5, "model_not_found")
    found = item(page(owner), "Refused requests rise: 24 in the last hour")
    assert [name for name, _page in found.rows] == ["limited: 19", "model_not_found: 5"]
    refused(alice, timedelta(hours=3), 24 * 13)
    assert titles(page(owner)) == []


def test_it_tells_finance_what_waits(alice: Tenant) -> None:
    client = client_of(official(Office.FINANCE))
    tariff = Tariff.objects.create(slug=alice.organization.slug)
    PriceProposal.objects.create(
        tariff=tariff, effective_from=timezone.now() - timedelta(days=9000), rates=[["input", 0, "9", "9"]],
        reason="up", proposed_by="list",
    )  # fmt: skip
    claim = Quarantined.objects.get(pk=make_usage(alice, suspect=True).pk)
    shown = page(client)
    assert any(name.startswith(tariff.slug) for name, _page in item(shown, "Price proposals").rows)
    assert url(Quarantined, "change", claim.pk) in {link for _name, link in item(shown, "Claims in quarantine").rows}
    _user, owner = member(alice, Role.OWNER)
    assert titles(page(owner)) == []


def test_names_are_escaped(alice: Tenant) -> None:
    roll(alice, midnight(), model="<script>alert(1)</script>")
    shown = console().get(FIRST_PAGE, {"organization": alice.organization.slug}).content.decode()
    assert "<script>alert" not in shown and html.escape("<script>alert(1)</script>") in shown
    named = console().get(FIRST_PAGE, {"organization": "<script>alert(2)</script>\0"}).content.decode()
    assert "<script>alert" not in named
