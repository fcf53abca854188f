"""Generations in the console: found by time, tenant and name without counting, shown with their arithmetic."""

import html
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.console import CountlessPaginator, dollars, money
from billing.console.filters import Range, asked_range
from billing.console.generations import GenerationPage
from billing.console.timing import seconds
from billing.ids import first_id
from billing.models import Usage
from gateway.templatetags.plans import outcome, plan_table
from tests.console.browser import console, context_of, exact, make_attempt, make_entry, make_usage
from tests.stage.cast import NOBODYS, Tenant, make_key

LIST = reverse("admin:billing_usage_changelist")
DAY = datetime(2026, 3, 14, tzinfo=UTC)


def listed(client: Client, **asked: Any) -> list[Usage]:
    """The generations on the first page of the list."""
    response = client.get(LIST, asked)
    assert response.status_code == 200
    return list(context_of(response)["cl"].result_list)


def of(tenant: Tenant) -> dict[str, str]:
    """The filter for a tenant."""
    return {"organization": str(tenant.organization.pk)}


def test_it_works(alice: Tenant, charlie: Tenant) -> None:
    first = make_usage(alice, at=timezone.now() - timedelta(hours=1), model="lab/first")
    second = make_usage(alice, model="lab/second", charge=None)
    make_usage(charlie)
    client = console()
    assert listed(client, **of(alice)) == [second, first]
    html = client.get(LIST, of(alice)).content.decode()
    for text in (
        "lab/first",
        "1,000",
        "500",
        "$0.00132",
        "unknown",
        f"{alice.organization.slug} / main · key",
        "Completed",
    ):
        assert text in html


def test_it_counts_nothing_and_sorts_by_nothing_but_the_id(alice: Tenant) -> None:
    make_usage(alice)
    client = console()
    for asked in ({}, of(alice), {"model": "lab/model"}, {"o": "3"}, {"all": ""}, {"_facets": "True"}, {"p": "2"}):
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST, asked)
        asked_of_usage = [q["sql"] for q in captured.captured_queries if 'FROM "billing_usage"' in q["sql"]]
        assert len(asked_of_usage) == 1, asked
        (sql,) = asked_of_usage
        assert "COUNT(" not in sql and "count(" not in sql
        assert 'ORDER BY "billing_usage"."id" DESC' in sql and "LIMIT 50" in sql
        assert '"billing_usage"."id" >=' in sql and 'WHERE "billing_usage"."created_at"' not in sql


def test_it_reads_one_tenant_by_its_index(alice: Tenant) -> None:
    client = console()
    with CaptureQueriesContext(connection) as captured:
        client.get(LIST, {"project": str(alice.project.pk)})
    (sql,) = [q["sql"] for q in captured.captured_queries if 'FROM "billing_usage"' in q["sql"]]
    where = sql.partition("WHERE")[2]
    for column, row in (("organization", alice.organization), ("project", alice.project)):
        assert f"\"{column}\" = '{row.pk.hex}'" in where


def test_it_pages_without_an_end_it_would_have_to_know(alice: Tenant) -> None:
    now = timezone.now()
    made = [make_usage(alice, at=now - timedelta(seconds=n)) for n in range(60)]
    client = console()
    assert listed(client, **of(alice)) == made[:50]
    assert listed(client, **of(alice), p="2") == made[50:]
    assert listed(client, **of(alice), p="3") == []
    assert listed(client, **of(alice), p="200") == []
    for beyond in ("201", "99999999999", "-1", "0", "x"):
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST, {**of(alice), "p": beyond})
        assert not any("OFFSET" in query["sql"] for query in captured.captured_queries), beyond


def test_it_shows_the_last_week_unless_asked(alice: Tenant) -> None:
    now = timezone.now()
    recent = make_usage(alice, at=now - timedelta(days=6, hours=23))
    old = make_usage(alice, at=now - timedelta(days=7, hours=1))
    client = console()
    assert listed(client, **of(alice)) == [recent]
    assert listed(client, **of(alice), created_at_from_0=f"{old.created_at:%Y-%m-%d}") == [recent, old]
    assert listed(client, q=old.pk.hex) == [old]


@pytest.mark.row("B379")
def test_a_range_is_half_open_and_a_day_is_whole(alice: Tenant) -> None:
    moments = {
        "before": DAY - timedelta(milliseconds=1),
        "start": DAY,
        "noon": DAY + timedelta(hours=12),
        "last": DAY + timedelta(days=1) - timedelta(milliseconds=1),
        "after": DAY + timedelta(days=1),
    }
    made = {name: make_usage(alice, at=moment) for name, moment in moments.items()}
    client = console()

    def names(**asked: str) -> list[str]:
        found = listed(client, **of(alice), **asked)
        return [name for row in reversed(found) for name, usage in made.items() if usage == row]

    day = {"created_at_from_0": "2026-03-14", "created_at_to_0": "2026-03-14"}
    assert names(**day) == ["start", "noon", "last"]
    assert names(**day, created_at_from_1="12:00") == ["noon", "last"]
    assert names(**day, created_at_to_1="12:00") == ["start"]
    assert names(created_at_to_0="2026-03-13") == ["before"]
    assert names(created_at_from_0="2026-03-15", created_at_to_0="2026-04-01") == ["after"]
    assert names(created_at_from_0="2026-03-15", created_at_to_0="2026-03-14") == []


@pytest.mark.parametrize("text", ["14.03.2026", "2026-02-30", "yesterday", "2026-03-14T10:00", "9999-12-31", "'", "0"])
def test_a_range_that_is_none_shows_nothing_and_says_so(text: str, alice: Tenant) -> None:
    make_usage(alice)
    client = console()
    for name in ("created_at_from_0", "created_at_to_0"):
        assert listed(client, **of(alice), **{name: text}) == []
        assert "The range of time is not one." in client.get(LIST, {name: text}).content.decode()
    assert listed(client, **of(alice), created_at_from_0="2026-03-14", created_at_from_1="25:00") == []


@given(st.integers(-10_000_000, 200_000_000_000), st.integers(0, 2**62 - 1))
def test_a_range_of_time_is_a_range_of_ids(seconds: int, noise: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moment = epoch + timedelta(seconds=seconds)
    narrowed = Range(moment, moment).narrow(Usage.objects.all())
    # By the database's clock exactly; of ids, which are of their makers' clocks, a minute more at both ends.
    minute = timedelta(minutes=1)
    low, high = first_id(max(moment, epoch + minute) - minute), first_id(max(moment, epoch) + minute)
    sql = str(narrowed.query)
    assert f">= {low}" in sql and f"< {high}" in sql
    assert f">= {moment}" in sql and f"< {moment}" in sql
    if moment >= epoch:
        assert first_id(moment).int >> 80 == seconds * 1000
        assert first_id(moment).int | noise < first_id(moment + timedelta(seconds=1)).int


def test_a_search_looks_at_all_time() -> None:
    assert asked_range({"q": "x"}) == Range(None, None)
    assert asked_range({}).end is None and asked_range({}).start is not None
    assert asked_range({"q": "x", "created_at_from_0": "2026-03-14"}) == Range(DAY, None)


@pytest.mark.row("B379")
def test_it_filters(alice: Tenant) -> None:
    other, _ = make_key(alice.project, name="other")
    plain = make_usage(alice, at=timezone.now() - timedelta(seconds=1))
    made = {
        "key": make_usage(alice, key=other.pk),
        "model": make_usage(alice, model="lab/other"),
        "provider": make_usage(alice, provider="other"),
        "status": make_usage(alice, status="failed"),
        "basis": make_usage(alice, basis="estimated"),
    }
    client = console()
    for name, usage in made.items():
        assert listed(client, **of(alice), **{name: str(getattr(usage, name))}) == [usage], name
    assert listed(client, project=str(alice.project.pk))[-1] == plain
    assert len(listed(client, **of(alice), model="lab/model", provider="vendor", status="completed")) == 3


@pytest.mark.row("B018", "B095")
def test_it_filters_by_what_the_client_says(alice: Tenant) -> None:
    emea = make_usage(alice, at=timezone.now() - timedelta(seconds=1), metadata={"team": "emea"})
    apac = make_usage(alice, metadata={"team": "apac"}, app="Chat for Mac")
    make_usage(alice)
    client = console()
    assert listed(client, **of(alice), app="Chat for Mac") == [apac]
    assert listed(client, **of(alice), app="Chat") == []
    assert listed(client, **of(alice), metadata="team") == [apac, emea]
    assert listed(client, **of(alice), metadata="team=emea") == [emea]
    for nothing in ("team=", "emea", "=", "te", "team=%", "'"):
        assert listed(client, **of(alice), metadata=nothing) == [], nothing


@pytest.mark.parametrize("name", ["organization", "project", "key", "status", "basis"])
@pytest.mark.parametrize("value", [NOBODYS, "other", "'", "\0"])
def test_a_choice_that_is_none_shows_nothing(name: str, value: str, alice: Tenant) -> None:
    make_usage(alice)
    assert listed(console(), **{**of(alice), name: value}) == []


@pytest.mark.parametrize(
    "lookup", ["upstream_id", "metadata__a", "charge__gt", "error__regex", "id__gt", "pk", "key__in"]
)
def test_it_filters_by_nothing_else(lookup: str) -> None:
    with CaptureQueriesContext(connection) as captured:
        assert console().get(LIST, {lookup: "1"}).status_code == 400
    assert not any("billing_usage" in query["sql"] for query in captured.captured_queries)


@pytest.mark.row("B379")
def test_it_is_found_by_its_id(alice: Tenant) -> None:
    usage = make_usage(alice)
    client = console()
    for text in (usage.pk.hex, str(usage.pk), f" {usage.pk.hex.upper()} "):
        assert listed(client, q=text) == [usage]
    for text in (usage.pk.hex[:-1], "lab/model", uuid4().hex, "%", "gen"):
        assert listed(client, q=text) == []


@pytest.mark.row("B382")
def test_a_page_shows_what_the_amounts_are_made_of(alice: Tenant) -> None:
    usage = make_usage(
        alice,
        end_user="user-7",
        metadata={"team": "emea"},
        arithmetic=[
            {"item": "input", "quantity": 1000, "cost": "0.4", "charge": "0.44"},
            {"item": "output", "quantity": 500, "cost": None, "charge": "1.76"},
            {"item": "web_search", "quantity": 2, "cost": "0.01", "charge": "0.0125"},
        ],
    )
    make_attempt(usage, number=1, provider="first", status="failed", fault="timeout", upstream_status=503)
    make_attempt(usage, number=2, ttft_ms=412)
    make_entry(usage)
    make_attempt(make_usage(alice), provider="stranger")
    response = console().get(reverse("admin:billing_usage_change", args=[usage.pk]))
    rows = context_of(response)["arithmetic"]["rows"]
    assert [(row[0], re.sub("<[^>]*>", "", row[1]), row[2], exact(row[3]), row[4]) for row in rows[:3]] == [
        ("Input tokens", "1,000", "$0.44", "$0.00044", "$0.4"),
        ("Output tokens", "500", "$1.76", "$0.00088", "unknown"),
        ("A web search", "2", "$0.0125", "$0.025", "$0.01"),
    ]
    assert [exact(row[5]) for row in rows] == ["$0.0004", "No price is known.", "$0.02", "No price is known."]
    assert (rows[3][0], exact(rows[3][3])) == ("Sum", "$0.02632")
    tries = context_of(response)["timing"]["rows"]
    assert [(row["attempt"].provider, outcome(row["attempt"]), row["first"]) for row in tries] == [
        ("first", "was not in time", "-"),
        ("vendor", "answered", "412 ms"),
    ]
    (posting,) = context_of(response)["postings"]["rows"]
    assert posting[1:] == ("settle", f"tenant:{alice.organization.slug}", "revenue", "0.00132 USD")
    html = response.content.decode()
    for text in (usage.pk.hex, "user-7", "emea", "first", "$0.02632", "tenant:"):
        assert text in html
    assert "stranger" not in html


def test_a_ledger_entry_leads_to_its_generation(alice: Tenant) -> None:
    usage = make_usage(alice)
    entry = make_entry(usage)
    make_entry(make_usage(alice))
    client = console()
    response = client.get(reverse("admin:billing_ledgerentry_changelist"), {"q": usage.pk.hex})
    assert list(context_of(response)["cl"].result_list) == [entry]
    assert reverse("admin:billing_usage_change", args=[usage.pk]) in response.content.decode()
    assert f"tenant:{alice.organization.slug}" in response.content.decode()


def test_it_says_when_a_price_is_unknown(alice: Tenant) -> None:
    usage = make_usage(alice, status="abandoned", charge=Decimal(0), provider_cost=None, arithmetic=[])
    response = console().get(reverse("admin:billing_usage_change", args=[usage.pk]))
    assert context_of(response)["arithmetic"]["rows"] == []
    assert "$0" in response.content.decode() and "unknown" in response.content.decode()


@pytest.mark.parametrize("id", ["not-an-id", NOBODYS])
def test_it_knows_no_other_generation(id: str) -> None:
    response = console().get(f"{LIST}{id}/change/")
    assert (response.status_code, response["Location"]) == (302, reverse("admin:index"))


def test_it_shows_where_it_could_have_gone_and_why(alice: Tenant) -> None:
    plan = {
        "model": "lab/model",
        "seed": 1,
        "by": "project",
        "taken": 1,
        "wanted": {"bytes": 9},
        "policy": {"factor": "price", "fallback": False, "providers": ["vendor", "other"]},
        "offers": [[1, "vendor", "model-1", "price", 0.15], [2, "other", "model-2", "price", 0.3, "lab/else"]],
        "out": [[3, "third", "model-3", "resting", None]],
    }
    page = reverse("admin:billing_usage_change", args=[make_usage(alice, plan=plan).pk])
    response = console().get(page)
    assert plan_table(plan)["rows"] == [
        (1, "lab/model", "vendor", "model-1", "may be dialled", "by its price",
         "$0.15 for a million tokens in and a million out"),
        (2, "lab/else", "other", "model-2", "behind the last attempt", "by its price",
         "$0.3 for a million tokens in and a million out"),
        ("-", "lab/model", "third", "model-3", "left out", "it failed lately and rests", "-"),
    ]  # fmt: skip
    html = response.content.decode()
    decided = "Decided by the project&#x27;s policy (factor price, fallback no, providers vendor other)."
    assert decided in html and "it failed lately and rests" in html
    without = console().get(reverse("admin:billing_usage_change", args=[make_usage(alice).pk]))
    assert "No plan was kept with it." in without.content.decode()


def test_pages_keep_their_filters_to_the_last(alice: Tenant, charlie: Tenant) -> None:
    """Walked by its own links a filtered list shows each of its rows once and nobody else's, and says where it ends."""
    most = CountlessPaginator.PAGES * GenerationPage.list_per_page
    pattern = make_usage(alice)
    now = first_id(timezone.now()).int
    Usage.objects.bulk_create(copied(pattern, UUID(int=now + number)) for number in range(most + 10))
    make_usage(charlie)
    client = console()
    mine = f"{LIST}?organization={alice.organization.pk}"

    def walk(address: str) -> tuple[list[UUID], str]:
        page = client.get(address, follow=True)
        rows = context_of(page)["cl"].result_list
        assert {row.organization for row in rows} == {alice.organization.pk}
        after = re.search(r'href="([^"]*)"[^>]*>Next<', page.content.decode())
        assert bool(after) != ("Narrow the filters" in page.content.decode())
        return [row.pk for row in rows], LIST + html.unescape(after[1]) if after else ""

    first, address = walk(mine)
    second, _ = walk(address)
    assert len({*first, *second}) == 100
    _, address = walk(f"{mine}&p=199")
    last, end = walk(address)
    assert len(last) == 50 and not end
    # Whoever goes on by hand sees the first rows of the same filter, and not everybody's.
    assert walk(f"{mine}&p=201")[0] == first


def copied(usage: Usage, id: UUID) -> Usage:
    """The same generation under another id."""
    values = {field.attname: getattr(usage, field.attname) for field in Usage._meta.concrete_fields}
    return Usage(**{**values, "id": id})


def test_a_day_without_a_time_is_no_error(alice: Tenant) -> None:
    page = console().get(LIST, {"created_at_from_0": "2026-01-31", "created_at_to_0": "2026-02-01"})
    assert "Enter a valid" not in page.content.decode()
    assert 'value="2026-01-31"' in page.content.decode()


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("37.499067", "$37.50"),
        ("1234567.891", "$1,234,567.89"),
        ("0.99996", "$1.00"),
        ("0.000123456", "$0.0001235"),
        ("0.25", "$0.25"),
        ("0.000000000001", "$0.000000000001"),
    ],
)
def test_money_in_lists_is_short_and_its_title_exact(amount: str, text: str) -> None:
    shown = money(Decimal(amount))
    assert f">{text}</span>" in shown
    assert exact(shown) == dollars(Decimal(amount))


def test_a_tenant_is_looked_for_not_listed(alice: Tenant, charlie: Tenant) -> None:
    client = console()
    make_usage(alice)
    html = client.get(LIST, of(alice)).content.decode()
    assert f'<option value="{alice.organization.pk}" selected>{alice.organization.slug}</option>' in html
    assert str(charlie.organization.pk) not in html and charlie.organization.slug not in html
    asked = {"app_label": "accounts", "model_name": "project", "field_name": "organization"}
    for name, value in asked.items():
        assert f'data-{name.replace("_", "-")}="{value}"' in html
    found = client.get(reverse("admin:autocomplete"), {**asked, "term": charlie.organization.slug}).json()
    assert found["results"] == [{"id": str(charlie.organization.pk), "text": charlie.organization.slug}]


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [(None, "-"), (0, "0 ms"), (4, "4 ms"), (999, "999 ms"), (1000, "1.00 s"), (61_234, "61.23 s")],
)
def test_a_short_time_is_not_shown_as_none(milliseconds: int | None, shown: str) -> None:
    assert seconds(milliseconds) == shown
