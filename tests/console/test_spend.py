"""The console's page Spend: what was spent, by whom and on what, and whether the other books say so too."""

import csv
import io
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing import spending
from billing.console import spend as page
from billing.console.spend import NoSuch, asked_for, change
from billing.models import LateHour, Mark, SpendRollup
from billing.postings import Postings
from billing.rollups import roll_up_usage
from billing.sealing import seal
from billing.spending import FURTHER, Days, Whose
from tests.billing.test_export_formats import sheets
from tests.console.browser import console, console_role, context_of, exact
from tests.stage.books import forced, spend
from tests.stage.cast import NOBODYS, Tenant, make_key

SPEND, EXPORT = reverse("spend"), reverse("spend_export")
# Two whole months that are over, neither of them this one or the last.
SECOND = ((datetime.now(UTC).replace(day=1) - timedelta(days=40)).replace(day=1)).replace(
    hour=0, minute=0, second=0, microsecond=0
)
FIRST = (SECOND - timedelta(days=1)).replace(day=1)
CHARGE, COST = Decimal("0.00132"), Decimal("0.001")


def months(first: datetime = SECOND, last: datetime = SECOND) -> dict[str, str]:
    """The days of these months."""
    end = (last + timedelta(days=32)).replace(day=1) - timedelta(days=1)
    return {"from": f"{first:%Y-%m-%d}", "to": f"{end:%Y-%m-%d}"}


def roll(tenant: Tenant, day: datetime, **fields: Any) -> SpendRollup:
    """A day of a key's, as the worker makes it."""
    row: dict[str, Any] = {
        "span": "day", "starts_at": day, "organization": tenant.organization.pk, "project": tenant.project.pk,
        "key": tenant.key.pk, "model": "lab/a", "provider": "one", "requests": 2, "prompt_tokens": 1000,
        "completion_tokens": 200, "charge": Decimal(3), "provider_cost": Decimal(2), "unpriced": 0, "uncosted": 0,
    }  # fmt: skip
    return SpendRollup.objects.create(**{**row, **fields})


def of(tenant: Tenant) -> dict[str, str]:
    """The filter for a tenant."""
    return {"organization": tenant.organization.slug}


def shown(asked: dict[str, Any], client: Client | None = None) -> dict[str, Any]:
    """What the page is told."""
    response = (client or console()).get(SPEND, asked)
    assert response.status_code == 200
    return context_of(response)


def table(asked: dict[str, Any]) -> list[tuple[str, ...]]:
    """The page's lines: what they are called, requests, tokens, and to the last digit charge, cost, margin, before."""
    return [(*(name for name, *_ in line["cells"]), *sums(line)) for line in shown(asked)["lines"]]


def sums(row: dict[str, Any]) -> tuple[str, ...]:
    counts = (re.sub(r"<[^>]*>", "", row[name]) for name in ("requests", "tokens"))
    return (*counts, *(exact(row[name]) for name in ("charge", "cost", "margin", "before")), row["change"])


def follow(link: str) -> dict[str, Any]:
    """The page that a link leads to."""
    response = console().get(f"{SPEND}?{link}")
    assert response.status_code == 200
    return context_of(response)


@pytest.fixture
def months_of_alice(alice: Tenant, charlie: Tenant) -> Tenant:
    """Alice's two months; Charlie's are dearer."""
    other, _ = make_key(alice.project, name="other")
    roll(alice, SECOND)
    roll(alice, SECOND + timedelta(days=1), model="lab/b", provider="two", charge=Decimal("0.000000000001"), requests=1)
    roll(alice, SECOND + timedelta(days=1), key=other.pk, charge=Decimal(7), unpriced=1, uncosted=2)
    roll(alice, FIRST, charge=Decimal(5), provider_cost=Decimal(1), requests=4)
    roll(alice, FIRST, model="lab/gone", charge=Decimal("0.5"), provider_cost=Decimal(0), requests=1)
    roll(alice, FIRST - timedelta(days=1), charge=Decimal(100))
    roll(alice, SECOND, span="hour", charge=Decimal(9))
    for day in (FIRST, SECOND):
        roll(charlie, day, charge=Decimal(1000))
    return alice


def test_it_answers_what_an_organization_spent_in_a_month_by_model(months_of_alice: Tenant) -> None:
    assert table({**months(), **of(months_of_alice), "by": "model"}) == [
        ("lab/a", "4", "2,400", "$10", "$4", "$6", "$5", "+100.0 %"),
        ("lab/b", "1", "1,200", "$0.000000000001", "$2", "-$1.999999999999", "$0", "none before"),
        ("lab/gone", "0", "0", "$0", "$0", "$0", "$0.5", "-100.0 %"),
    ]
    found = shown({**months(), **of(months_of_alice), "by": "model"})
    assert sums(found["total"]) == (
        "5", "3,600", "$10.000000000001", "$6", "$4.000000000001", "$5.5", "+81.8 %",
    )  # fmt: skip
    assert (found["unpriced"], found["uncosted"]) == (1, 2)
    assert (found["before"].first, found["before"].last) == (FIRST.date(), (SECOND - timedelta(days=1)).date())
    html = console().get(SPEND, {**months(), **of(months_of_alice)}).content.decode()
    assert "lab/gone" in html and "1 unpriced" in html and "in which it began, however late it was settled" in html


@pytest.mark.parametrize(
    ("by", "lines"),
    [
        (["project"], [("{slug}/main", "10.000000000001", "5.5")]),
        (["key"], [("{slug}/main/other", "7", "0"), ("{slug}/main/key", "3.000000000001", "5.5")]),
        (["provider"], [("one", "10", "5.5"), ("two", "0.000000000001", "0")]),
        (["day"], [("{day0}", "3", "5.5"), ("{day1}", "7.000000000001", "0")]),
        (["month"], [("{month}", "10.000000000001", "5.5")]),
        (
            ["day", "model"],
            [
                ("{day0}", "lab/a", "3", "5"), ("{day0}", "lab/gone", "0", "0.5"),
                ("{day1}", "lab/a", "7", "0"), ("{day1}", "lab/b", "0.000000000001", "0"),
            ],
        ),
        (
            ["organization", "provider"],
            [("{slug}", "one", "10", "5.5"), ("{slug}", "two", "0.000000000001", "0")],
        ),
    ],
)  # fmt: skip
def test_it_tells_apart_by_what_is_asked(months_of_alice: Tenant, by: list[str], lines: list[tuple[str, ...]]) -> None:
    words = {
        "slug": months_of_alice.organization.slug, "month": f"{SECOND:%Y-%m}", "day0": str(SECOND.date()),
        "day1": str(SECOND.date() + timedelta(days=1)),
    }  # fmt: skip
    found = shown({**months(), **of(months_of_alice), "by": by})["lines"]
    told = [
        (*(name for name, *_ in line["cells"]), exact(line["charge"])[1:], exact(line["before"])[1:]) for line in found
    ]
    assert told == [tuple(word.format(**words) for word in line) for line in lines]


def test_its_links_narrow_until_there_is_nothing_left_to_tell_apart(months_of_alice: Tenant) -> None:
    organization = months_of_alice.organization
    found = shown({**months(), "model": "lab/a", "provider": "one"})
    (line,) = (line for line in found["lines"] if line["cells"][0][0] == organization.slug)
    trail = [organization.slug]
    for _ in range(4):
        _, link, _ = line["cells"][0]
        found = follow(link)
        trail.append(found["asked"].by[0])
        line = found["lines"][0]
    assert trail == [organization.slug, "project", "key", "day", "day"]
    assert found["asked"].days == Days(SECOND.date() + timedelta(days=1), SECOND.date() + timedelta(days=1))
    assert [one["name"] for one in found["chosen"]] == ["organization", "project", "key", "model", "provider"]
    assert sums(found["total"])[2:5] == ("$7", "$2", "$5")
    # And back: without the organization nothing of it is left.
    wider = follow(found["chosen"][0]["query"])
    assert [one["name"] for one in wider["chosen"]] == ["model", "provider"]
    by_month = follow(
        shown({**months(FIRST), **of(months_of_alice), "by": ["month", "model"]})["lines"][0]["cells"][0][1]
    )
    assert by_month["asked"].days == Days(FIRST.date(), SECOND.date() - timedelta(days=1))
    assert by_month["asked"].by == ("model",)
    assert f"organization={organization.pk}" in by_month["generations"] and organization.slug not in by_month["ledger"]
    for address in (by_month["generations"], by_month["ledger"]):
        assert console().get(address).status_code == 200


def test_one_tenants_ids_show_nothing_of_another_ones(months_of_alice: Tenant, charlie: Tenant) -> None:
    mixed = [
        {**of(months_of_alice), "project": str(charlie.project.pk)},
        {**of(months_of_alice), "key": str(charlie.key.pk)},
        {"project": str(months_of_alice.project.pk), "key": str(charlie.key.pk)},
        {"organization": str(NOBODYS), "key": str(charlie.key.pk)},
    ]
    for asked in mixed:
        response = console().get(SPEND, {**months(), **asked})
        assert "There is no such" in context_of(response)["wrong"] and "lines" not in context_of(response)
        assert console().get(EXPORT, {**months(), **asked}).status_code == 302
    html = console().get(SPEND, {**months(), **of(months_of_alice), "by": ["key", "model"]}).content.decode()
    assert charlie.organization.slug not in html
    # A key alone is enough, and is found by its tenant's index.
    with CaptureQueriesContext(connection) as captured:
        assert table({**months(), "key": str(months_of_alice.key.pk), "by": "model"})[0][0] == "lab/a"
    read = [query["sql"] for query in captured.captured_queries if "billing_spendrollup r" in query["sql"]]
    assert len(read) == 2 and all(f"organization = '{months_of_alice.organization.pk.hex}'" in sql for sql in read)


def test_the_file_is_what_is_seen_and_no_cell_is_a_formula(months_of_alice: Tenant) -> None:
    roll(months_of_alice, SECOND, model='=HYPERLINK("x")', provider="@one", charge=Decimal("0.25"))
    response = console().get(EXPORT, {**months(), **of(months_of_alice), "by": ["key", "model", "provider", "day"]})
    assert response.status_code == 200 and response["Content-Type"] == "text/csv; charset=utf-8"
    assert "no-store" in response["Cache-Control"]
    day = SECOND.date()
    named = f'attachment; filename="spend-{day}-{months()["to"]}-by-key-model-provider-day.csv"'
    assert response["Content-Disposition"] == named
    rows = list(csv.DictReader(io.StringIO(response.content.decode(), newline=""), strict=True))
    assert [row["model"] for row in rows] == ["lab/a", '\'=HYPERLINK("x")', "lab/gone", "lab/a", "lab/b"]
    assert rows[1] == {
        "organization_slug": months_of_alice.organization.slug, "organization": months_of_alice.organization.pk.hex,
        "project_slug": "main", "project": months_of_alice.project.pk.hex, "key_name": "key",
        "key": months_of_alice.key.pk.hex, "model": "'=HYPERLINK(\"x\")", "provider": "'@one", "day": str(day),
        "requests": "2", "prompt_tokens": "1000", "completion_tokens": "200", "charge": "0.250000000000",
        "provider_cost": "2.000000000000", "margin": "-1.750000000000", "unpriced": "0", "uncosted": "0",
        "requests_before": "0", "charge_before": "0", "provider_cost_before": "0",
        **dict.fromkeys(FURTHER, "0"),
    }  # fmt: skip
    total = shown({**months(), **of(months_of_alice)})["total"]
    assert f"${sum((Decimal(row['charge']) for row in rows), Decimal(0)).normalize():f}" == exact(total["charge"])


def test_the_workbook_has_the_cells_of_the_csv_file_typed(months_of_alice: Tenant) -> None:
    roll(months_of_alice, SECOND, model='=HYPERLINK("x")', provider="<&>", charge=Decimal("0.25"))
    asked = {**months(), **of(months_of_alice), "by": ["model", "provider", "month"]}
    client = console()
    response = client.get(EXPORT, {**asked, "format": "xlsx"})
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    assert (response.status_code, response["Content-Type"]) == (200, kind)
    assert response["Content-Disposition"].endswith('-by-model-provider-month.xlsx"')
    (rows,) = sheets(response.content).values()
    plain = list(csv.reader(io.StringIO(client.get(EXPORT, asked).content.decode(), newline=""), strict=True))
    assert [[text for _, _, text in row] for row in rows] == [[text.removeprefix("'") for text in row] for row in plain]
    assert [kind for kind, _, _ in rows[1]][:3] == ["inlineStr"] * 3 and rows[1][0][2] != ""
    formula = next(row for row in rows if row[0][2].startswith("="))
    assert formula[0][:2] == ("inlineStr", "0") and formula[6] == ("n", "0", "0.250000000000")
    assert client.get(EXPORT, {**asked, "format": "none"})["Content-Type"] == "text/csv; charset=utf-8"


def test_a_file_that_would_be_too_long_is_refused_and_a_page_says_that_there_is_more(
    months_of_alice: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_FILED", 2)
    monkeypatch.setattr(page, "MOST_LINES", 2)
    asked = {**months(), **of(months_of_alice), "by": "model"}
    client = console()
    response = client.get(EXPORT, asked, follow=True)
    html = response.content.decode()
    assert response.redirect_chain and "More than 2 lines" in html
    assert "the first 2 are shown" in html and "$10.000000000001" in html and "lab/gone" not in html
    assert client.get(EXPORT, {**asked, "by": "provider"}).status_code == 200


def test_the_chart_has_a_bar_a_day_and_one_a_month_for_what_is_longer(months_of_alice: Tenant) -> None:
    found = shown({**months(), **of(months_of_alice)})
    bars = found["bars"]
    assert len(bars) == (date.fromisoformat(months()["to"]) - SECOND.date()).days + 1
    assert [(bar["height"], bar["before_height"]) for bar in bars[:3]] == [(51, 94), (120, 0), (0, 0)]
    assert found["width"] == 20 * len(bars)  # also where most days have none
    assert bars[0]["title"] == f"{SECOND.date()}: $3; before: $5.5"
    year = shown({**of(months_of_alice), "from": f"{FIRST - timedelta(days=90):%Y-%m}-01", "to": months()["to"]})
    assert year["unit"] == "month" and 4 <= len(year["bars"]) <= 6
    assert (year["bars"][-1]["title"], year["bars"][-2]["title"]) == (
        f"{SECOND:%Y-%m}: $10.000000000001; before: $0", f"{FIRST:%Y-%m}: $5.5; before: $0",
    )  # fmt: skip


def test_no_page_of_it_needs_what_the_policy_forbids(months_of_alice: Tenant) -> None:
    response = console().get(SPEND, {**months(), **of(months_of_alice)})
    html = response.content.decode()
    assert "unsafe-inline" not in response["Content-Security-Policy"]
    assert "<style" not in html and not re.search(r"<[^<>]*\s(style|on[a-z]+)=", html)
    assert html.count("<script") == html.count("<script src=") + html.count('<script id="django-admin')
    assert html.count('role="main"') == 1
    assert 'href="/console/spend/"' in html and f"?{months()['from']}" not in html


NAMES = ("from", "to", "organization", "project", "key", "model", "provider", "by")
HOSTILE = (
    *("'", '"><script>alert(1)</script>', "0", "-1", "9999-12-31", "0001-01-01", "2026-02-30", "%", "\0", "x" * 5000),
    *("\u0662\u0660\u0662\u0666-01-01", "{{ 7|add:7 }}", "id; drop table billing_usage", "month) or (1=1"),
)


def test_a_hostile_address_shows_nothing_of_anybodys(months_of_alice: Tenant) -> None:
    client = console()
    for number, name in enumerate(NAMES):
        for value in HOSTILE[number % 2 :: 2] if name not in ("from", "by") else HOSTILE:
            asked = {**months(), **of(months_of_alice), "model": "lab/none", name: value}
            address = (SPEND, EXPORT)[len(value) % 2]
            response = client.get(address, asked)
            assert response.status_code in (200, 302, 400), (address, asked)
            html = response.content.decode()
            assert "<script>alert" not in html and "$10" not in html and "lab/a" not in html


@pytest.mark.parametrize(
    ("asked", "days"),
    [
        ({}, (date(2026, 3, 1), date(2026, 3, 15))),
        ({"from": "2026-02-10"}, (date(2026, 2, 10), date(2026, 2, 28))),
        ({"to": "2026-02-10"}, (date(2026, 2, 1), date(2026, 2, 10))),
        ({"from": "2026-03-15", "to": "2026-03-15"}, (date(2026, 3, 15), date(2026, 3, 15))),
        ({"from": "2026-03-20"}, (date(2026, 3, 20), date(2026, 3, 31))),
    ],
)
def test_a_range_is_whole_days_and_by_itself_the_month(asked: dict[str, str], days: tuple[date, date]) -> None:
    found = asked_for(asked, ["nonsense", "model", "model"], date(2026, 3, 15))
    assert (found.days, found.by) == (Days(*days), ("model",))


@pytest.mark.parametrize(
    "asked", [("2026-03-02", "2026-03-01"), ("2020-01-01", "2026-01-01"), ("1999-12-31", ""), ("1", "")]
)
def test_what_is_no_range_is_refused(asked: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="not a"):
        asked_for(dict(zip(("from", "to"), asked, strict=True)), [], date(2026, 3, 15))
    with pytest.raises(NoSuch):
        asked_for({"organization": "no-such-slug"}, [], date(2026, 3, 15))


@pytest.mark.parametrize(
    ("days", "before"),
    [
        (("2026-03-01", "2026-03-31"), ("2026-02-01", "2026-02-28")),
        (("2026-02-01", "2026-02-28"), ("2026-01-01", "2026-01-31")),
        (("2026-03-01", "2026-03-30"), ("2026-02-01", "2026-02-28")),
        (("2026-03-01", "2026-03-12"), ("2026-02-01", "2026-02-12")),
        (("2026-01-01", "2026-03-31"), ("2025-10-01", "2025-12-31")),
        (("2026-03-05", "2026-03-11"), ("2026-02-26", "2026-03-04")),
        (("2000-01-01", "2000-01-01"), ("1999-12-01", "1999-12-01")),
    ],
)
def test_the_range_before(days: tuple[str, str], before: tuple[str, str]) -> None:
    found = Days(*map(date.fromisoformat, days)).before()
    assert (str(found.first), str(found.last)) == before


def test_changes_are_told_in_percent() -> None:
    assert [change(*one) for one in ((0, 0), (1, 0), (0, 4), (5, 4), (Decimal("1.5"), Decimal(3)))] == [
        "", "none before", "-100.0 %", "+25.0 %", "-50.0 %",
    ]  # fmt: skip


def test_it_says_until_when_the_rollups_are() -> None:
    mark, client = Mark.objects.filter(name="spend"), console()
    now = datetime.now(UTC)
    Mark.objects.update_or_create(name="spend", defaults={"until": now, "ran_at": now})
    assert shown({}, client)["age"] == {"text": f"Usage until {now:%Y-%m-%d %H:%M:%S} UTC.", "late": False}
    mark.update(until=now - timedelta(minutes=11))
    assert shown({}, client)["age"]["late"] is True
    assert "No worker seems to run" in client.get(SPEND).content.decode()
    mark.delete()
    found = shown({}, client)
    assert found["age"] == {"text": "Nothing has been rolled up yet.", "late": True}
    assert found["books"]["level"] == "none"


def test_it_is_for_operators(months_of_alice: Tenant) -> None:
    for address in (SPEND, EXPORT):
        refused = console(superuser=False).get(address, {**months(), **of(months_of_alice)})
        assert refused.status_code == 403 and "lab/a" not in refused.content.decode()
        response = Client().get(address)
        assert (response.status_code, response["Location"]) == (302, f"/console/login/?next={address}")
        assert console(enforce_csrf_checks=True).post(address, {}).status_code == 403


def test_it_reads_rollups_alone_and_few_rows_of_anything_else(months_of_alice: Tenant) -> None:
    client = console()
    with CaptureQueriesContext(connection) as captured:
        shown({**months(), "by": ["organization", "model", "day"]}, client)
    statements = [query["sql"] for query in captured.captured_queries]
    assert len([sql for sql in statements if "billing_" in sql]) <= 10
    assert not any("billing_usage " in sql for sql in statements)
    assert all("limit 101" in sql for sql in statements if "lines as" in sql)


# --- beside the other books ------------------------------------------------------------------------------------------


@pytest.fixture
def books(alice: Tenant, charlie: Tenant) -> tuple[Tenant, datetime]:
    """Alice's two generations two days ago, and Charlie's, all rolled up and sealed; and when they were."""
    day = datetime.now(UTC) - timedelta(days=2)
    Mark.objects.filter(name__in=("usage", "spend")).update(until=day - timedelta(hours=1))
    spend(alice, day)
    spend(alice, day, model="lab/b")
    spend(charlie, day)
    assert roll_up_usage()
    seal()
    return alice, day


def compared(day: datetime, **asked: str) -> dict[str, Any]:
    """The line where the books meet."""
    found: dict[str, Any] = shown({"from": str(day.date()), "to": str(day.date()), **asked})["books"]
    return found


def said(found: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {side["name"]: (side["charge"], side["cost"], side["requests"]) for side in found["sides"]}


@pytest.mark.backbone
def test_usage_rollups_and_ledger_meet(books: tuple[Tenant, datetime]) -> None:
    alice, day = books
    found = compared(day, **of(alice))
    assert said(found) == dict.fromkeys(("Usage rows", "Rollups", "Ledger"), ("0.00264", "0.002", "2"))
    assert (found["words"], found["level"]) == ("They agree to the last digit.", "good")
    # The ledger knows no models: the whole organization is compared.
    assert said(compared(day, **of(alice), model="lab/b"))["Rollups"] == ("0.00264", "0.002", "2")
    for tampering, name in (
        ("billing_usage set charge = charge + 0.000000000001 where model = 'lab/b'", "Usage rows"),
        ("billing_accountday set debit = debit + 0.000000000001 where account like 'tenant:%'", "Ledger"),
    ):
        mine = f" and organization = '{alice.organization.pk}'"
        assert forced(f"update {tampering}{mine}") == 1
        found = compared(day, **of(alice))
        assert said(found)[name] == ("0.002640000001", "0.002", "2")
        assert found["words"] == "They do not agree."
        assert {side["name"] for side in found["sides"] if side["differs"]} == {name}
        forced(f"update {tampering.replace('+', '-')}{mine}")
    assert compared(day, **of(alice))["level"] == "good"


@pytest.mark.backbone
def test_what_is_late_is_told_and_what_is_not_over_is_not_compared(books: tuple[Tenant, datetime]) -> None:
    alice, day = books
    assert compared(datetime.now(UTC)) == {
        "words": "Compared is what is over: days of which nothing is on its way any more.", "level": "none",
    }  # fmt: skip
    late = spend(alice, day)  # neither sealed nor rolled up
    LateHour.objects.create(hour=day.replace(minute=0, second=0, microsecond=0))
    found = compared(day, **of(alice))
    assert (said(found)["Usage rows"][2], said(found)["Ledger"][2], found["level"]) == ("3", "2", "busy")
    forced("update billing_ledgerentry set created_at = now(), late_of = %s where generation = %s", day.date(), late.pk)
    LateHour.objects.filter(hour=day.replace(minute=0, second=0, microsecond=0)).delete()
    SpendRollup.objects.filter(organization=alice.organization.pk, model=late.model).update(
        requests=2, charge=2 * CHARGE, provider_cost=2 * COST
    )
    seal()
    found = compared(day, **of(alice))
    assert said(found)["Ledger"] == ("0.00396", "0.003", "3")
    assert (found["level"], found["late"]) == ("good", "0.00132")


@pytest.mark.backbone
def test_many_usage_rows_are_read_when_that_is_asked_for(
    books: tuple[Tenant, datetime], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, day = books
    monkeypatch.setattr(spending, "ADDED_UP_AT_ONCE", 1)
    found = compared(day, **of(alice))
    assert set(said(found)) == {"Rollups", "Ledger"} and found["unread"] and found["level"] == "good"
    assert said(compared(day, **of(alice), rows="1"))["Usage rows"] == ("0.00264", "0.002", "2")


@pytest.mark.backbone
def test_the_console_begins_behind_the_last_block_of_the_ledger(books: tuple[Tenant, datetime]) -> None:
    """And does not ask each entry's policy whether it may be seen: what is not sealed is little among millions."""
    alice, day = books
    asked: list[tuple[str, Any]] = []

    def note(execute: Any, statement: str, values: Any, *args: Any) -> Any:
        asked.append((statement, values))
        return execute(statement, values, *args)

    with console_role(), connection.cursor() as cursor:
        with connection.execute_wrapper(note):
            spending.books(Days(day.date(), day.date()), alice.organization.pk)
            Postings(first=day.date()).sums()
            Postings(account="cost", first=day.date()).where_there_are()
        cursor.execute("set enable_seqscan = off")
        try:
            plans = []
            for statement, values in asked:
                if "billing_ledgerentry" in statement:
                    cursor.execute(f"explain {statement}", values)
                    plans.append("\n".join(line for (line,) in cursor.fetchall()))
        finally:
            cursor.execute("reset enable_seqscan")
    assert [re.findall(r"Index Cond: \(id > ", plan) for plan in plans] == 3 * [["Index Cond: (id > "]]


def test_a_tenant_that_is_no_more_is_told_by_its_id() -> None:
    ghost = uuid4()
    SpendRollup.objects.create(
        span="day", starts_at=SECOND, organization=ghost, project=ghost, key=ghost, model="lab/a", provider="one",
        requests=1, prompt_tokens=1, completion_tokens=1, charge=Decimal(10**6), provider_cost=Decimal(1), unpriced=0,
        uncosted=0,
    )  # fmt: skip
    (first, *_) = spending.lines(Days(SECOND.date(), SECOND.date()), Whose(organization=ghost), ["key"], 5)
    assert (first.names, first.meant) == ((f"{ghost}/{ghost}/{ghost}",), (str(ghost),))
    SpendRollup.objects.filter(organization=ghost).delete()
