"""Statements: numbered without a gap, for good, the ledger's sum to the last digit; credit notes; PDF; the console."""

import csv
import io
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection

from billing.console.filters import Range
from billing.documents import pdf, tenants_lines
from billing.exports.columns import Layout
from billing.exports.csv_file import CsvFile
from billing.exports.focus import focus
from billing.exports.generations import GENERATIONS
from billing.exports.pages import chunks
from billing.issuing import ADJUSTED, EARLIER, LATER, credit_note, issue, statement
from billing.models import ClosedMonth, ClosedSum, Statement, Usage
from billing.rollups import roll_up_usage
from billing.sealing import sum_closed
from tests.console.browser import console, url
from tests.stage.backbone import app_url, console_url, database, operating, owner_url
from tests.stage.books import empty, forced, fresh_books, make_whole, post, spend
from tests.stage.cast import Tenant, make_tenant

pytestmark = pytest.mark.backbone

CHARGE = Decimal("0.00132")
THIS = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST = THIS - timedelta(days=10)  # a moment of the month that is over
MONTH = date(LAST.year, LAST.month, 1)
BEFORE = (MONTH - timedelta(days=1)).replace(day=1)
YEAR = datetime.now(UTC).year


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def books(fresh: None) -> None:
    """Nothing used, posted, closed or issued."""
    empty()


@pytest.fixture
def alice(books: None) -> Tenant:
    return make_tenant("alice")


@pytest.fixture
def charlie(books: None) -> Tenant:
    return make_tenant("charlie")


def close(month: date = MONTH) -> None:
    """Closes a month and keeps its sums."""
    make_whole()
    ClosedMonth.objects.create(month=month, closed_by="finance")
    assert sum_closed() == 1


def issued(tenant: Tenant, month: date = MONTH) -> Statement:
    return issue(statement(month, tenant.organization, "finance"))


def owed(tenant: Tenant, month: date = MONTH) -> Decimal:
    """What the ledger was closed at."""
    found = ClosedSum.objects.get(
        month=month, organization=tenant.organization.pk, account=f"tenant:{tenant.organization.pk}"
    )
    return found.debit - found.credit


def test_a_month_by_model_and_provider_is_the_ledger_s_sum(alice: Tenant, charlie: Tenant) -> None:
    spend(alice, LAST)
    spend(alice, LAST, provider="other")
    spend(alice, LAST - timedelta(days=1))
    spend(alice, LAST, model="lab/large")
    spend(charlie, LAST, model="charlie/own")
    spend(alice, THIS + timedelta(seconds=1))  # of another month
    close()
    found = issued(alice)
    one = {"requests": 1, "prompt_tokens": 1000, "completion_tokens": 500, "charge": "0.001320000000"}
    two = {"requests": 2, "prompt_tokens": 2000, "completion_tokens": 1000, "charge": "0.002640000000"}
    assert found.lines == [
        {"model": "lab/large", "provider": "vendor", **one},
        {"model": "lab/model", "provider": "other", **one},
        {"model": "lab/model", "provider": "vendor", **two},
    ]
    assert found.total == 4 * CHARGE == owed(alice)
    assert (found.month, found.organization, found.slug) == (MONTH, alice.organization.pk, alice.organization.slug)
    assert (found.kind, found.currency, found.issuer, found.issued_by) == ("statement", "USD", "Meterline", "finance")
    assert str(found) == f"{YEAR}-00001" and str(issued(charlie)) == f"{YEAR}-00002"


@pytest.mark.parametrize("layout", [GENERATIONS, focus("1.2")], ids=["generations", "focus"])
def test_export_statement_and_ledger_are_one_sum(alice: Tenant, charlie: Tenant, layout: Layout) -> None:
    for n in range(3):
        row = spend(alice, LAST - timedelta(days=n))
        forced("update billing_usage set charge = charge - %s where id = %s", Decimal(n) / 10**12, row.pk)
    spend(charlie, LAST)
    forced("truncate billing_ledgerentry")
    forced("select billing_close(array(select id from billing_usage))")
    close()
    begin, end = THIS - timedelta(days=40), THIS
    mine = Range(begin, end).narrow(Usage.objects.filter(organization=alice.organization.pk))
    text = b"".join(chunks(mine, CsvFile(layout), layout)).decode()
    sums = [Decimal(row[layout.sums[0]]) for row in csv.DictReader(io.StringIO(text, newline=""))]
    assert sum(sums) == issued(alice).total == owed(alice) == 3 * CHARGE - Decimal("0.000000000003")


def test_what_is_late_is_told_on_both_statements(alice: Tenant) -> None:
    spend(alice, LAST)
    close(BEFORE)
    late = spend(alice, LAST - timedelta(days=31))  # of the month before, which is closed
    forced(
        "insert into billing_latehour (hour) values (%s)", late.created_at.replace(minute=0, second=0, microsecond=0)
    )
    close()
    own = {"model": "lab/model", "provider": "vendor", "requests": 1, "prompt_tokens": 1000, "completion_tokens": 500}
    before, after = issued(alice, BEFORE), issued(alice)
    assert before.lines == [
        {**own, "charge": "0.001320000000"},
        {"note": LATER, "charge": "-0.001320000000"},
    ]
    assert after.lines == [{**own, "charge": "0.001320000000"}, {"note": EARLIER, "charge": "0.001320000000"}]
    assert [before.total, after.total] == [Decimal(0), 2 * CHARGE]
    assert owed(alice) == after.total


def test_what_was_priced_anew_is_a_line(alice: Tenant) -> None:
    spend(alice, LAST)
    whose = {"organization": alice.organization.pk, "generation": None}
    account = f"repriced:{alice.organization.pk}"
    post(Decimal("0.0003"), None, kind="reprice", debit="revenue", credit=account, **whose)
    forced("update billing_ledgerentry set created_at = %s where kind = 'reprice'", LAST)
    close()
    found = issued(alice)
    assert found.lines[1:] == [{"note": ADJUSTED, "charge": "-0.000300000000"}]
    assert found.total == CHARGE - Decimal("0.0003") == owed(alice) - Decimal("0.0003")


def test_books_that_do_not_agree_are_not_stated(alice: Tenant) -> None:
    spend(alice, LAST)
    close()
    forced("update billing_usagerollup set charge = charge + 0.000000000001")
    with pytest.raises(ValidationError, match=r"-0\.000000000001 apart"):
        issued(alice)
    assert not Statement.objects.exists()


def test_only_a_month_that_is_closed_and_summed_is_stated_and_once(alice: Tenant) -> None:
    spend(alice, LAST)
    make_whole()
    with pytest.raises(ValidationError, match="is not closed"):
        issued(alice)
    ClosedMonth.objects.create(month=MONTH, closed_by="finance")
    with pytest.raises(ValidationError, match="sums are not kept"):
        issued(alice)
    sum_closed()
    forced("insert into billing_latehour (hour) values (%s)", LAST.replace(minute=0, second=0, microsecond=0))
    with pytest.raises(ValidationError, match="not rolled up"):
        issued(alice)
    roll_up_usage()
    first = issued(alice)
    with pytest.raises(ValidationError, match="already"):
        issued(alice)
    assert list(Statement.objects.all()) == [first]


def row(tenant: Tenant, **fields: Any) -> Statement:
    """A document made beside the rules of the code."""
    named = {"slug": "x", "name": "x", "issuer": "Meterline", "issued_by": "x", "organization": tenant.organization.pk}
    return Statement(**{"kind": "statement", "month": MONTH, "total": Decimal(0), **named, **fields})


def test_the_database_holds_totals_to_the_ledger(alice: Tenant, charlie: Tenant) -> None:
    spend(alice, LAST)
    close()
    wrong = CHARGE + Decimal("0.000000000001")
    true = [{"note": "all", "charge": str(CHARGE)}]
    for fields in (
        {"total": wrong, "lines": [{"note": "all", "charge": str(wrong)}]},
        {"total": CHARGE, "lines": [{"note": "all", "charge": str(wrong)}]},
        {"total": CHARGE, "lines": []},
        {"total": CHARGE, "lines": true, "month": THIS.date()},
        {"total": CHARGE, "lines": true, "organization": charlie.organization.pk},
    ):
        with pytest.raises(IntegrityError):
            issue(row(alice, **fields))
    assert not Statement.objects.exists()
    assert issue(row(alice, total=CHARGE, lines=true, year=1999, number=77)).number == 1  # numbers are not asked for


def test_numbers_have_no_gap_and_begin_anew_with_issuer_and_year(alice: Tenant) -> None:
    close()
    tenants = [make_tenant("alice") for _ in range(6)]
    for tenant in tenants[:2]:
        issue(row(tenant))
    with pytest.raises(IntegrityError):
        issue(row(tenants[2], total=Decimal(1)))  # takes no number with it
    with psycopg.connect(owner_url()) as slow:
        slow.execute(INSERT, [tenants[2].organization.pk, MONTH])  # taken back below, while another one waits
        waits = Thread(target=lambda: _insert(tenants[3]))
        waits.start()
        slow.rollback()
        waits.join(20)
    issue(row(tenants[4], issuer="Another"))
    found = Statement.objects.order_by("issuer", "number").values_list("issuer", "year", "number")
    assert list(found) == [("Another", YEAR, 1), *(("Meterline", YEAR, number) for number in (1, 2, 3))]
    with database(owner_url()) as owner:
        owner.execute("alter table billing_statement disable trigger keep_statements")
        owner.execute("update billing_statement set year = year - 1")
        owner.execute("alter table billing_statement enable trigger keep_statements")
    assert str(issue(row(tenants[5]))) == f"{YEAR}-00001"


INSERT = (
    "insert into billing_statement (issuer, year, number, kind, organization, slug, name, month, currency, total,"
    " lines, reason, issued_by) values ('Meterline', 0, 0, 'statement', %s, 'x', 'x', %s, 'USD', 0, '[]', '', 'x')"
)


def _insert(tenant: Tenant) -> None:
    with operating() as own:
        own.execute(INSERT, [tenant.organization.pk, MONTH])


def test_nobody_changes_a_statement_not_even_the_owner(alice: Tenant) -> None:
    spend(alice, LAST)
    close()
    issued(alice)
    before = list(Statement.objects.values())
    for who in (owner_url, console_url, app_url):
        for attempt in (
            b"update billing_statement set total = 0",
            b"update billing_statement set number = number + 1",
            b"delete from billing_statement",
            b"truncate billing_statement cascade",
        ):
            with database(who()) as somebody, pytest.raises(psycopg.errors.InsufficientPrivilege):
                somebody.execute(attempt)
    assert list(Statement.objects.values()) == before


def test_credit_notes_take_no_more_than_there_is(alice: Tenant) -> None:
    spend(alice, LAST)
    close()
    of = issued(alice)
    note = issue(credit_note(str(of), "0.001", "An outage.", "finance"))
    assert (note.kind, note.refers_to, note.total, note.month) == ("credit", of, Decimal("-0.001"), MONTH)
    assert (str(note), note.reason) == (f"{YEAR}-00002", "An outage.")
    assert note.lines == [{"note": "An outage.", "charge": "-0.001"}]
    for number, amount, reason in (
        (str(of), "0.000320000001", "More than is left."),
        (str(of), "0", "Nothing."),
        (str(of), "-1", "A charge."),
        (str(of), "NaN", "No number."),
        (str(of), "Infinity", "No number."),
        (str(of), "0.0000000000001", "Finer than the books."),
        (str(of), "0.0001", " "),
        (str(of), "0.0001", "x" * 501),
        (str(note), "0.0001", "Of a credit note."),
        (f"{YEAR}-00009", "0.0001", "Of none."),
        ("9" * 40 + "-1", "0.0001", "Of none."),
        ("x", "0.0001", "Of none."),
    ):
        with pytest.raises(ValidationError):
            credit_note(number, amount, reason, "finance")
    with pytest.raises(IntegrityError):  # nor beside the code
        issue(row(alice, kind="credit", refers_to=of, total=Decimal("-0.00033")))
    issue(credit_note(str(of), "0.00032", "The rest.", "finance"))
    assert [str(one) for one in Statement.objects.order_by("pk")] == [f"{YEAR}-0000{n}" for n in (1, 2, 3)]
    assert sum(one.total for one in Statement.objects.all()) == 0


def test_the_document_names_no_provider_and_is_the_same_bytes(alice: Tenant) -> None:
    alice.organization.name = "Alice \u00e9\u4f60 & <Sons>"
    alice.organization.save()
    spend(alice, LAST, provider="secret-vendor")
    spend(alice, LAST, provider="other-vendor")
    spend(alice, LAST, model="lab/" + "long" * 50)
    close()
    found = issued(alice)
    assert len(found.lines) == 3
    assert tenants_lines(found) == [
        ("lab/" + "long" * 50, "1", "1,000", "500", "0.00132"),
        ("lab/model", "2", "2,000", "1,000", "0.00264"),
    ]
    content = pdf(found)
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
    assert pdf(Statement.objects.get(pk=found.pk)) == content
    assert pdf(issue(credit_note(str(found), "0.001", "An outage. " * 40, "finance"))) != content


def test_the_command_issues_what_waits(alice: Tenant, charlie: Tenant, tmp_path: Path) -> None:
    for tenant in (alice, charlie):
        spend(tenant, LAST)
    month, out = f"{MONTH:%Y-%m}", StringIO()
    with pytest.raises(CommandError, match="No organization waits"):
        call_command("issue_statements", month)
    close()
    with pytest.raises(CommandError, match="No organization waits"):
        call_command("issue_statements", month, "--organization=nobody")
    call_command("issue_statements", month, f"--organization={charlie.organization.slug}", "--by=finance", stdout=out)
    call_command("issue_statements", month, f"--pdf={tmp_path}", "--by=finance", stdout=out)
    assert out.getvalue().splitlines() == [
        f"{YEAR}-00001 {charlie.organization.slug}: 0.001320000000 USD",
        f"{YEAR}-00002 {alice.organization.slug}: 0.001320000000 USD",
    ]
    assert [path.name for path in tmp_path.iterdir()] == [f"{YEAR}-00002.pdf"]
    with pytest.raises(CommandError, match="No organization waits"):
        call_command("issue_statements", month)
    with pytest.raises(CommandError, match="is no month"):
        call_command("issue_statements", "2026-13")
    assert Statement.objects.count() == 2


def test_finance_issues_in_the_console(alice: Tenant) -> None:
    spend(alice, LAST)
    close()
    client, add = console(), url(Statement, "add")
    empty_form = dict.fromkeys(("of_month", "of_organization", "credits", "amount", "why"), "")
    asked = {**empty_form, "of_month": f"{MONTH:%Y-%m}", "of_organization": alice.organization.slug}
    for wrong, told in (
        (empty_form, "Give a month and an organization"),
        ({**asked, "amount": "1"}, "Give a month and an organization"),
        ({**asked, "of_organization": "nobody"}, "There is no organization nobody."),
        ({**asked, "of_month": "2026-13"}, "2026-13 is no month."),
        ({**asked, "of_month": f"{THIS:%Y-%m}"}, "The month is not closed"),
        ({**empty_form, "credits": "1-1", "amount": "1", "why": "x"}, "There is no statement 1-1."),
    ):
        assert told in client.post(add, wrong).content.decode()
    assert not Statement.objects.exists()
    assert client.post(add, asked).status_code == 302
    made = Statement.objects.get()
    assert (made.total, str(made), made.issued_by.startswith("op-")) == (CHARGE, f"{YEAR}-00001", True)
    page = client.get(url(Statement, "change", made.pk)).content.decode()
    assert all(text in page for text in ("lab/model", "vendor", "0.00132", f"{YEAR}-00001", f"{MONTH:%Y-%m}"))
    file = client.get(f"/console/billing/statement/{made.pk}/pdf/")
    assert (file.status_code, file["content-type"], file.content) == (200, "application/pdf", pdf(made))
    assert file["content-disposition"] == f'attachment; filename="{YEAR}-00001.pdf"'
    note = {**empty_form, "credits": str(made), "amount": "0.001", "why": "An outage."}
    assert client.post(add, note).status_code == 302
    assert [one.total for one in Statement.objects.order_by("pk")] == [CHARGE, Decimal("-0.001")]
    assert client.post(url(Statement, "change", made.pk), {"total": "0"}).status_code == 403
    assert client.post(url(Statement, "delete", made.pk), {"post": "yes"}).status_code == 403
    assert client.get(f"/console/billing/statement/{2**70}/pdf/").status_code == 404
    stranger = console(superuser=False)
    for path in (f"/console/billing/statement/{made.pk}/pdf/", url(Statement, "changelist"), add):
        assert stranger.get(path).status_code == 403
    assert stranger.post(add, note).status_code == 403
    assert Statement.objects.count() == 2


def test_a_month_of_a_million_is_stated_from_its_rollups(alice: Tenant) -> None:
    """No usage row is read, nor a posting."""
    spend(alice, LAST)
    close()
    with connection.execute_wrapper(_unread):
        assert statement(MONTH, alice.organization, "finance").total == CHARGE


def _unread(execute: Any, sql: Any, params: Any, many: Any, context: Any) -> Any:
    assert 'billing_usage"' not in str(sql) and "billing_ledgerentry" not in str(sql), sql
    return execute(sql, params, many, context)
