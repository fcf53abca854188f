"""Closed months: nothing is posted to one any more, what comes late is noted, and what is in flight is waited for."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import CommandError, call_command

from billing.auditing import audit
from billing.backbone.settlement import encode
from billing.models import ClosedMonth, ClosedSum, LedgerEntry, Usage, UsageRollup, month_after
from billing.rollups import roll_up_usage
from billing.sealing import seal, sum_closed
from tests.console.browser import console, url
from tests.stage.backbone import admission, app_url, console_url, database, owner_url, run, settled, wanted
from tests.stage.books import empty, findings, forced, fresh_books, make_whole, spend
from tests.stage.cast import Tenant, make_tenant

pytestmark = pytest.mark.backbone

CHARGE, COST = Decimal("0.00132"), Decimal("0.001")
THIS = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
LAST = THIS - timedelta(days=10)  # a moment of the month that is over
MONTH = date(LAST.year, LAST.month, 1)


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def tenant(fresh: None) -> Tenant:
    """A tenant with one generation in the month that is over; nothing is closed."""
    empty()
    made = make_tenant("alice")
    spend(made, LAST)
    make_whole()
    assert findings() == []
    return made


def close(month: date = MONTH) -> None:
    call_command("close_month", f"{month:%Y-%m}", by="finance", stdout=StringIO())


def dates(row: Usage) -> set[tuple[Any, Any]]:
    """Of what months its entries are, and the day that they are late for."""
    return set(LedgerEntry.objects.filter(generation=row.pk).values_list("created_at", "late_of"))


def sums(tenant: Tenant) -> dict[str, tuple[Decimal, int]]:
    """What the month was when it was closed: balances and how many entries."""
    found = ClosedSum.objects.filter(month=MONTH, organization=tenant.organization.pk)
    return {row.account: (row.debit - row.credit, row.debits + row.credits) for row in found}


ONE = {"revenue": (-CHARGE, 1), "cost": (COST, 1), "provider:vendor": (-COST, 1)}


def one(tenant: Tenant) -> dict[str, tuple[Decimal, int]]:
    """The sums of one generation."""
    return ONE | {f"tenant:{tenant.organization.pk}": (CHARGE, 1)}


def test_what_is_settled_after_the_close_is_of_the_first_open_month_with_a_note(tenant: Tenant) -> None:
    close()
    assert (sum_closed(), sums(tenant)) == (1, one(tenant))
    late = spend(tenant, LAST, model="late/model")
    forced("insert into billing_latehour (hour) values (%s)", LAST.replace(minute=0, second=0, microsecond=0))
    today = spend(tenant, datetime.now(UTC))
    assert dates(late) == {(THIS, LAST.date())}
    assert dates(today) == {(today.created_at, None)}
    assert Usage.objects.get(pk=late.pk).created_at == LAST
    make_whole()
    assert findings() == []  # the rollup of its day is the ledger's of it, late or not
    day = UsageRollup.objects.filter(span="day", organization=tenant.organization.pk, starts_at__lt=THIS)
    assert sum(row.charge for row in day) == 2 * CHARGE
    assert (sum_closed(), sums(tenant)) == (0, one(tenant))


def test_a_month_before_the_closed_one_is_closed_too(tenant: Tenant) -> None:
    close()
    older = spend(tenant, LAST - timedelta(days=31))
    assert dates(older) == {(THIS, (LAST - timedelta(days=31)).date())}


def test_a_correction_of_what_a_closed_month_holds_is_of_the_open_one(tenant: Tenant, tmp_path: Any) -> None:
    """Its process was dead when the month was closed, and is back: reversal and closing are late."""
    item = wanted(tenant.key)

    async def scenario() -> Any:
        async with admission() as door:
            return await door.hold(item)

    held = run(scenario())
    forced("update billing_hold set created_at = %s where id = %s", LAST, item.id)
    with database(app_url()) as app:
        app.execute("select billing_give_back(array[%s::uuid])", [item.id])
        assert dates(Usage(pk=UUID(item.id))) == {(LAST, None)}
        close()
        line = encode(settled(item, held, "0.25")).decode()
        assert app.execute("select outcome from billing_conclude(%s::jsonb)", [f"[{line}]"]).fetchall() == [("late",)]
    entries = LedgerEntry.objects.filter(generation=item.id).order_by("pk")
    assert list(entries.values_list("kind", "amount", "created_at", "late_of")) == [
        ("void", Decimal(0), LAST, None),
        ("reverse", Decimal(0), THIS, LAST.date()),
        ("settle", Decimal("0.25"), THIS, LAST.date()),
    ]


def test_a_settlement_in_flight_is_in_the_sums_or_in_the_next_month(tenant: Tenant) -> None:
    with psycopg.connect(owner_url()) as slow:
        before = spend_by(slow, tenant)
        close()
        assert sum_closed() == 0  # it is not known yet what it will be
        after = spend(tenant, LAST)
        slow.commit()
    assert (dates(before), dates(after)) == ({(LAST, None)}, {(THIS, LAST.date())})
    assert sum_closed() == 0  # its entries are not sealed yet
    seal()
    assert sum_closed() == 1
    assert sums(tenant) == {account: (2 * balance, 2 * count) for account, (balance, count) in one(tenant).items()}
    assert ClosedMonth.objects.get().summed_at is not None


def spend_by(slow: "psycopg.Connection[Any]", tenant: Tenant) -> Usage:
    """As `spend`, but the settlement stays open in a transaction."""
    row = spend(tenant, LAST)
    forced("delete from billing_ledgerentry where generation = %s", row.pk)
    slow.execute("select billing_close(array[%s::uuid])", [row.pk])
    return row


def test_what_is_posted_to_a_closed_month_by_force_is_found(tenant: Tenant) -> None:
    close()
    sum_closed()
    assert audit() == 0
    row = spend(tenant, LAST)
    forced("update billing_ledgerentry set created_at = %s, late_of = null where generation = %s", LAST, row.pk)
    seal()
    audit()
    assert "closed" in dict(findings())
    assert f"{MONTH:%Y-%m} of {tenant.organization.pk}, revenue" in {place for _, place in findings()}


def test_a_sum_that_was_changed_is_found_and_mended_it_is_gone(tenant: Tenant) -> None:
    close()
    sum_closed()
    for sign, count in (("+", 1), ("-", 0)):
        forced(f"update billing_closedsum set debit = debit {sign} 0.000000000001 where account = 'cost'")  # noqa: S608
        assert audit() == count


@pytest.mark.parametrize("month", ["2026-13", "october", f"{THIS:%Y-%m}", f"{month_after(THIS.date()):%Y-%m}"])
def test_only_a_month_that_is_over_is_closed(tenant: Tenant, month: str) -> None:
    with pytest.raises(CommandError):
        call_command("close_month", month)
    assert not ClosedMonth.objects.exists()


def test_a_month_is_closed_once_and_for_good(tenant: Tenant) -> None:
    close()
    for month in (MONTH, (MONTH - timedelta(days=1)).replace(day=1)):
        with pytest.raises(CommandError, match="This month is closed already"):
            close(month)
    statements: list[Any] = [
        "delete from billing_closedmonth",
        "update billing_closedmonth set month = '2000-01-01'",
        "update billing_closedsum set debit = 0",
        "delete from billing_closedsum",
    ]
    for role in (app_url(), console_url()):
        with database(role) as connection:
            for statement in statements:
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(statement)
    assert ClosedMonth.objects.get().closed_by == "finance"


def test_finance_closes_a_month_in_the_console(tenant: Tenant) -> None:
    client = console()
    add = url(ClosedMonth, "add")
    refused = client.post(add, {"month": f"{THIS:%Y-%m-%d}"})
    assert "This month is not over yet." in refused.content.decode()
    assert not ClosedMonth.objects.exists()
    assert client.post(add, {"month": f"{MONTH:%Y-%m-%d}"}).status_code == 302
    closed = ClosedMonth.objects.get()
    user = LogEntry.objects.get(content_type__model="closedmonth", object_id=str(MONTH)).user
    assert (closed.month, closed.closed_by) == (MONTH, user.get_username())
    assert abs(closed.closed_at - datetime.now(UTC)) < timedelta(minutes=1)
    sum_closed()
    page = client.get(url(ClosedMonth, "change", str(MONTH))).content.decode()
    assert "cost: 0.001" in page and "$0.00132" in page
    assert client.post(url(ClosedMonth, "delete", str(MONTH)), {"post": "yes"}).status_code == 403
    assert ClosedMonth.objects.count() == 1
    assert roll_up_usage()
