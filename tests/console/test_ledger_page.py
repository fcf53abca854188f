"""The console's list of the ledger: by tenant, account, day and generation, with what that comes to, and as a file."""

import csv
import gzip
import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from billing import postings
from billing.models import LedgerEntry
from billing.postings import COLUMNS, entries_csv
from billing.sealing import seal
from tests.console.browser import console, context_of, make_entry, make_usage
from tests.stage.books import forced
from tests.stage.cast import NOBODYS, Tenant

LIST, EXPORT = reverse("admin:billing_ledgerentry_changelist"), reverse("admin:billing_ledgerentry_export")
NOW = datetime.now(UTC)
DAY = NOW.replace(hour=12) - timedelta(days=20)  # older than what is shown unasked


def of(tenant: Tenant, **more: str) -> dict[str, str]:
    """The filter for a tenant."""
    return {"organization": str(tenant.organization.pk), **more}


def on(first: datetime, last: datetime | None = None) -> dict[str, str]:
    """The filter for some days."""
    return {"created_at_from": f"{first:%Y-%m-%d}", "created_at_to": f"{last or first:%Y-%m-%d}"}


def entry(tenant: Tenant, at: datetime, amount: str, **fields: Any) -> LedgerEntry:
    """A posting of a generation of the tenant's."""
    return make_entry(make_usage(tenant, at, charge=Decimal(amount)), **fields)


def listed(asked: dict[str, str]) -> list[LedgerEntry]:
    """The first page of the list."""
    response = console().get(LIST, asked)
    assert response.status_code == 200
    return list(context_of(response)["cl"].result_list)


def sums(asked: dict[str, str]) -> list[tuple[str, ...]]:
    """What the page says that they come to."""
    found: list[tuple[str, ...]] = context_of(console().get(LIST, asked))["sums"]["rows"]
    return found


@pytest.fixture
def alice_books(alice: Tenant, charlie: Tenant) -> tuple[Tenant, dict[str, LedgerEntry]]:
    """Alice's postings of a day three weeks ago, the day after, and now; Charlie's beside them."""
    cost = {"debit": "cost", "credit": f"provider:{alice.organization.slug}"}
    made = {
        "old": entry(alice, DAY, "0.25"),
        "cost": entry(alice, DAY + timedelta(seconds=1), "0.125", **cost),
        "next": entry(alice, DAY + timedelta(days=1), "1.000000000001"),
        "new": entry(alice, NOW, "2"),
    }
    for at in (DAY, NOW):
        entry(charlie, at, "1000")
    return alice, made


Books = tuple[Tenant, dict[str, LedgerEntry]]


def test_it_filters_by_tenant_account_and_day(alice_books: Books) -> None:
    alice, made = alice_books
    provider, tenant = f"provider:{alice.organization.slug}", f"tenant:{alice.organization.slug}"
    for asked, names in (
        (of(alice), ["new"]),
        (of(alice, **on(DAY)), ["cost", "old"]),
        (of(alice, **on(DAY, NOW)), ["new", "next", "cost", "old"]),
        (of(alice, created_at_to=f"{DAY:%Y-%m-%d}"), ["cost", "old"]),
        (of(alice, created_at_from=f"{DAY:%Y-%m-%d}", account="cost"), ["cost"]),
        (of(alice, created_at_from=f"{DAY:%Y-%m-%d}", account="revenue"), ["new", "next", "old"]),
        ({"account": provider, **on(DAY)}, ["cost"]),
        ({"account": tenant, **on(DAY, NOW)}, ["new", "next", "old"]),
        (of(alice, account="tenant:nobody"), []),
    ):
        assert listed(asked) == [made[name] for name in names], asked
    assert listed({"q": str(made["cost"].generation)}) == [made["cost"]]
    html = console().get(LIST, of(alice, **on(DAY))).content.decode()
    assert f"tenant:{alice.organization.slug}" in html and "0.125 USD" in html and "1000 USD" not in html


@pytest.mark.parametrize("sealed", [False, True])
def test_it_says_what_the_chosen_entries_come_to_sealed_or_not(alice_books: Books, sealed: bool) -> None:
    alice, made = alice_books
    if sealed:
        seal()
    provider, tenant = f"provider:{alice.organization.slug}", f"tenant:{alice.organization.slug}"
    assert sums(of(alice, **on(DAY, DAY + timedelta(days=1)))) == [
        ("cost", "$0.125", "$0", "$0.125", "1", "$0.125"),
        (provider, "$0", "$0.125", "-$0.125", "1", "-$0.125"),
        ("revenue", "$0", "$1.250000000001", "-$1.250000000001", "2", "-$1.250000000001"),
        (tenant, "$1.250000000001", "$0", "$1.250000000001", "2", "$1.250000000001"),
    ]
    # The balance is of all days up to the end of the chosen ones.
    assert sums(of(alice, account=tenant)) == [(tenant, "$2", "$0", "$2", "1", "$3.250000000001")]
    assert sums({"account": provider, **on(DAY)}) == [(provider, "$0", "$0.125", "-$0.125", "1", "-$0.125")]
    assert sums(of(alice, **on(DAY - timedelta(days=9)))) == []
    assert sums({"q": str(made["next"].generation)}) == [
        ("revenue", "$0", "$1.000000000001", "-$1.000000000001", "1"),
        ("tenant", "$1.000000000001", "$0", "$1.000000000001", "1"),
    ]
    everyone = {row[0]: row for row in sums(on(DAY))}
    assert everyone[provider] == (provider, "$0", "$0.125", "-$0.125", "1")  # and no balance: it would be of all time
    assert Decimal(everyone["tenant"][1][1:]) >= Decimal("1000.25")


def test_a_row_late_for_a_closed_month_says_so(alice_books: Books) -> None:
    alice, made = alice_books
    forced("update billing_ledgerentry set late_of = '2026-01-31' where id = %s", made["new"].pk)
    html = console().get(LIST, of(alice)).content.decode()
    assert "Jan. 31, 2026" in html or "2026-01-31" in html


def test_it_tells_when_too_much_is_not_sealed(alice_books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, _ = alice_books
    seal()
    entry(alice, NOW, "4")
    entry(alice, NOW, "8")
    assert sums(of(alice))[-1][1] == "$14"
    monkeypatch.setattr(postings, "MOST_UNSEALED", 1)
    response = console().get(LIST, of(alice))
    assert context_of(response)["sums"]["rows"][-1][1] == "$2"
    assert "too much was posted since" in response.content.decode()


def test_it_reads_by_an_index_and_counts_nothing(alice_books: Books) -> None:
    alice, _ = alice_books
    client = console()
    for asked in (of(alice), of(alice, **on(DAY), account="cost"), on(DAY), {"account": "cost", **on(DAY)}):
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST, asked)
        (query,) = [one["sql"] for one in captured.captured_queries if 'FROM "billing_ledgerentry"' in one["sql"]]
        assert "COUNT(" not in query and "LIMIT 50" in query
        with connection.cursor() as cursor:
            cursor.execute("set enable_seqscan = off")
            cursor.execute(f"explain {query}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            cursor.execute("reset enable_seqscan")
        assert "ledger_by_" in plan and "Seq Scan on billing_ledgerentry" not in plan, plan  # which: `bench.books`


def test_an_account_is_looked_for_where_it_is_alone(alice_books: Books) -> None:
    """Not through all entries of the chosen days, which are not on it."""
    alice, made = alice_books
    client = console()
    for account, days in ((f"provider:{alice.organization.slug}", [DAY.date()]), ("provider:none", [])):
        with CaptureQueriesContext(connection) as captured:
            response = client.get(LIST, {"account": account, **on(DAY - timedelta(days=99), NOW)})
        assert list(context_of(response)["cl"].result_list) == [made["cost"]] * len(days)
        read = [one["sql"] for one in captured.captured_queries if 'FROM "billing_ledgerentry"' in one["sql"]]
        assert len(read) == len(days)
        for day, sql in zip(days, read, strict=True):
            assert f"'{day} 00:00:00+00:00'" in sql and f"'{day + timedelta(days=1)} 00:00:00+00:00'" in sql


def test_the_file_is_what_is_filtered_and_no_cell_is_a_formula(alice_books: Books) -> None:
    alice, made = alice_books
    formula = entry(alice, DAY + timedelta(seconds=2), "0.5", debit="=1+1", credit="+x", late_of=date(2026, 1, 31))
    client = console()
    page = client.get(LIST, of(alice, **on(DAY))).content.decode()
    assert f"{EXPORT}?organization={alice.organization.pk}&amp;created_at_from={DAY:%Y-%m-%d}" in page
    response = client.get(EXPORT, of(alice, **on(DAY)), headers={"Accept-Encoding": "gzip"})
    assert response["Content-Type"] == "text/csv; charset=utf-8" and "no-store" in response["Cache-Control"]
    assert response["Content-Disposition"].startswith('attachment; filename="ledger-until-')
    rows = read(gzip.decompress(whole(response)).decode())
    assert [row["id"] for row in rows] == [str(made[name].pk) for name in ("old", "cost")] + [str(formula.pk)]
    assert rows[2] == {
        "id": str(formula.pk), "created_at": f"{DAY + timedelta(seconds=2):%Y-%m-%dT%H:%M:%S.%fZ}", "kind": "settle",
        "transaction": formula.transaction.hex, "generation": formula.generation.hex if formula.generation else "",
        "organization": alice.organization.pk.hex, "debit": "'=1+1", "credit": "'+x", "amount": "0.500000000000",
        "currency": "USD", "late_of": "2026-01-31",
    }  # fmt: skip
    assert (rows[0]["late_of"], rows[0]["debit"]) == ("", f"tenant:{alice.organization.pk}")
    assert [row["amount"] for row in read(whole(client.get(EXPORT, of(alice, account="revenue"))).decode())] == [
        "2.000000000000"
    ]


def whole(response: Any) -> bytes:
    """A file that is streamed; its queries run in this thread, on this connection."""

    async def pieces() -> list[bytes]:
        return [piece async for piece in response.streaming_content]

    return b"".join(async_to_sync(pieces)())


def read(text: str) -> list[dict[str, str]]:
    rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    assert text.splitlines()[0] == ",".join(f'"{name}"' for name in COLUMNS)
    return rows


def test_a_file_in_pages_has_every_entry_once_whatever_their_dates(alice: Tenant) -> None:
    made = [entry(alice, NOW - timedelta(seconds=number // 3), str(number)) for number in range(10)]
    mine = LedgerEntry.objects.filter(organization=alice.organization.pk)
    expected = [str(one.pk) for one in sorted(made, key=lambda one: (one.created_at, one.pk))]
    for page in (1, 2, 3, 10, 11):
        assert [row["id"] for row in read(b"".join(entries_csv(mine, page)).decode())] == expected


def test_it_shows_and_exports_nothing_to_others(alice_books: Books) -> None:
    alice, _ = alice_books
    for address in (LIST, EXPORT):
        refused = console(superuser=False).get(address, of(alice))
        assert refused.status_code == 403 and "USD" not in refused.content.decode()
        assert Client().get(address)["Location"] == f"/console/login/?next={address}"


def test_it_filters_by_nothing_else(alice_books: Books) -> None:
    client = console()
    with CaptureQueriesContext(connection) as captured:
        for lookup in ("kind", "amount__gt", "debit__regex", "id__gt", "generation", "late_of__isnull"):
            for address in (LIST, EXPORT):
                assert client.get(address, {lookup: "1"}).status_code == 400
    read = [query["sql"] for query in captured.captured_queries if 'FROM "billing_ledgerentry"' in query["sql"]]
    assert read == []


def test_a_hostile_address_shows_nothing(alice_books: Books) -> None:
    alice, _ = alice_books
    client = console()
    for name in ("organization", "account", "created_at_from", "created_at_to", "q"):
        for value in ("'", NOBODYS, "9999-12-31", "0001-01-01", "2026-02-30", "%", "\0x", "x" * 3000, str(uuid4())):
            if name == "organization" or value not in ("\0x",):
                response = client.get(LIST, {**of(alice), name: value})
                assert response.status_code == 200 and "USD" not in response.content.decode(), (name, value)
                assert whole(client.get(EXPORT, {**of(alice), name: value})).count(b"\n") == 1, (name, value)
    html = client.get(LIST, of(alice, created_at_from='"><script>alert(1)</script>')).content.decode()
    assert "There is nothing like that." in html and "<script>alert" not in html
