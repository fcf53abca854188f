"""Months that are dropped: their rollups stay to the unit, made again too; no book notices; what may not go stays."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db.models import Sum
from psycopg.errors import InsufficientPrivilege, RaiseException

from accounts.models import Organization
from billing.auditing import audit
from billing.bills.files import BadBill, Form
from billing.bills.reconciling import reconcile
from billing.closings import month_after
from billing.credit.prepaid import grant
from billing.dropping import BUSY, DIFFERS, Stays, drop, drop_old, months
from billing.ids import first_id
from billing.issuing import statement
from billing.models import (
    Attempt,
    Budget,
    ClosedMonth,
    Counter,
    CreditKind,
    DroppedMonth,
    ExportSchedule,
    LateHour,
    Mark,
    Repricing,
    Retention,
    SpendRollup,
    Usage,
    UsageRollup,
)
from billing.retention import kept_since
from billing.rollups import COUNTED, SPENT, roll_up_usage
from billing.sealing import seal, sum_closed
from billing.spending import Days, Whose, books, lines
from tests.console.browser import console, make_attempt, make_usage, submit, url
from tests.console.test_replays import worker
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.books import empty, findings, forced, fresh_books, make_whole
from tests.stage.cast import Tenant, make_tenant
from tests.stage.shelf import make_tariff

pytestmark = pytest.mark.backbone

DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
UNIT = Decimal("0.000000000001")


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield
        empty()


def month(back: int) -> datetime:
    """The first moment of a month, so many before the running one."""
    start = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(back):
        start = (start - DAY).replace(day=1)
    return start


def began(tenant: Tenant, at: datetime, made: datetime | None = None, **fields: Any) -> Usage:
    """A generation that began `at`, by a process whose clock said `made`."""
    if made:
        fields["id"] = first_id(made + timedelta(milliseconds=int(uuid4().int % 1000)))
    return make_usage(tenant, at, **{"charge": Decimal("0.00132"), "provider_cost": Decimal("0.001"), **fields})


def settle(*rows: Usage) -> None:
    """Posts them."""
    forced("select billing_close(%s::uuid[])", [row.pk for row in rows])


@pytest.fixture
def alice(fresh: None) -> Tenant:
    """Of four months ago, which is closed, and since; beside another one."""
    empty()
    alice, charlie = make_tenant("alice"), make_tenant("charlie")
    old, after = month(4), month(3)
    unpriced = [{"item": "input", "quantity": 1, "cost": "1", "charge": None}]
    settle(
        began(alice, old, charge=UNIT),
        began(alice, old + 3 * DAY, charge=None, arithmetic=unpriced),
        began(alice, old + 3 * DAY, model="lab/other", provider_cost=None),
        began(charlie, old + 3 * DAY),
        began(alice, after + timedelta(seconds=2), made=after - timedelta(seconds=9)),  # its maker's clock is behind
        began(alice, after - timedelta(seconds=2), made=after + timedelta(seconds=9)),  # or ahead
        began(alice, after + timedelta(seconds=3)),
        began(alice, after + 9 * DAY),
        began(alice, datetime.now(UTC)),
    )
    make_whole()
    ClosedMonth.objects.create(month=old.date(), closed_by="finance")
    assert sum_closed() == 1
    Retention.objects.filter(table="usage").update(months=3)
    assert findings() == []
    return alice


def rolled() -> dict[str, list[Any]]:
    """All days."""
    used = UsageRollup.objects.filter(span="day").order_by("starts_at", "organization", "model", "provider")
    spent = SpendRollup.objects.filter(span="day").order_by("starts_at", "key", "model", "provider")
    return {
        "used": list(used.values_list("starts_at", "organization", "model", "provider", *COUNTED)),
        "spent": list(spent.values_list("starts_at", "project", "key", "model", "provider", *SPENT)),
    }


def is_there(table: str = "usage") -> bool:
    """Whether the month of four months ago is."""
    with database(owner_url()) as owner:
        found = owner.execute("select to_regclass(%s) is not null", [f"billing_{table}_{month(4):%Y_%m}"]).fetchall()
    return found == [(True,)]


def test_a_month_goes_and_every_book_stays_as_it_was(alice: Tenant) -> None:
    old = month(4)
    last = month(3) - DAY
    organization = Organization.objects.get(pk=alice.organization.pk)
    whose, days = Whose(organization=organization.pk), Days(old.date(), datetime.now(UTC).date())
    before, spent = rolled(), lines(days, whose, ["month", "model"], 100)
    issued = statement(old.date(), organization, "finance")
    all_charged = sum((row.charge or 0) for row in Usage.objects.filter(organization=organization.pk))
    assert [(one.first, one.objection) for one in months() if one.table == "usage"][:2] == [
        (old.date(), ""), (month(3).date(), "it is to be kept"),
    ]  # fmt: skip

    with worker():
        ((dropped, rows),) = drop_old()
        assert drop_old() == []
    assert (dropped.table, dropped.first, rows) == ("usage", old.date(), 5)
    assert not is_there() and Usage.objects.count() == 4
    (told,) = DroppedMonth.objects.all()
    assert (told.rows, told.charge, told.provider_cost) == (5, UNIT + 3 * Decimal("0.00132"), Decimal("0.004"))
    assert kept_since() == month(3)

    def nothing_has_changed() -> None:
        assert rolled() == before
        assert lines(days, whose, ["month", "model"], 100) == spent
        for _ in range(2):
            assert audit() == 0, findings()

    nothing_has_changed()
    for at in (old, old + 3 * DAY, last, month(3)):  # made again, as after a late settlement
        LateHour.objects.create(hour=at)
    assert roll_up_usage()
    nothing_has_changed()
    Mark.objects.filter(name="spend").delete()  # all of it
    assert roll_up_usage()
    nothing_has_changed()

    again = statement(old.date(), organization, "finance")
    assert (again.lines, again.total) == (issued.lines, issued.total)
    found = books(days, organization.pk)
    assert found is not None and found.agree and (found.usage, found.kept) == (None, month(3).date())
    page = console().get("/console/spend/", {"from": str(days.first), "to": str(days.last)}).content.decode()
    assert f"Usage rows are kept since {found.kept}" in page and "They agree to the last digit." in page
    budget = Budget.objects.create(organization=organization, period="total", amount=Decimal(100))
    assert Counter.objects.get(subject=budget.subject, measure="money").used == all_charged
    mine = Usage.objects.filter(organization=organization.pk, model="lab/other")
    assert not mine.exists()  # its one generation is of the month that went
    Budget.objects.create(organization=organization, period="total", amount=Decimal(100), model="lab/other")
    assert Counter.objects.get(owner=budget.subject, model="lab/other").used == Decimal("0.00132")


def test_what_a_balance_has_paid_is_known_when_its_month_is_gone(alice: Tenant) -> None:
    """It is prepaid since before the month."""
    charged = Usage.objects.filter(organization=alice.organization.pk).aggregate(sum=Sum("charge"))["sum"]
    grant(alice.organization, CreditKind.TOP_UP, Decimal(1), "all of it", "finance", begin=True)
    balance = Counter.objects.filter(subject=alice.organization.pk, period="balance")
    balance.update(used=charged)
    forced("update billing_prepaid set since = %s where organization_id = %s", month(5), alice.organization.pk)
    with worker():
        drop_old()
    seal()
    audit()
    assert findings() == []
    balance.update(used=charged + UNIT)
    audit()
    assert findings() == [("prepaid", f"use of the balance of {alice.organization.pk}")]


def test_what_settles_after_all_is_added_to_what_was_kept_and_all_of_it_is_audited(alice: Tenant) -> None:
    with worker():
        drop_old()
    before = {row[0]: row for row in rolled()["used"] if row[1] == alice.organization.pk and row[2] == "lab/model"}
    at = month(4) + 3 * DAY
    row = began(alice, at)
    settle(row)
    LateHour.objects.create(hour=at.replace(minute=0))  # as settlement notes it
    assert roll_up_usage()
    after = {row[0]: row for row in rolled()["used"] if row[1] == alice.organization.pk and row[2] == "lab/model"}
    changed = {start for start in after if after[start] != before[start]}
    assert changed == {at} and after[at][4] == before[at][4] + 1
    seal()
    for _ in range(2):
        assert audit() == 0, findings()
    forced("update billing_usage set charge = charge + 0.000000000001 where id = %s", row.pk)
    assert audit() == 1
    assert findings() == [("generation", f"generation {row.pk.hex} of {row.organization}")]
    forced("update billing_usage set charge = charge - 0.000000000001 where id = %s", row.pk)
    assert audit() == 0
    forced("update billing_spendrollup set charge = charge + 0.000000000001 where span = 'kept' and id ="
           " (select min(id) from billing_spendrollup where span = 'kept')")  # fmt: skip
    audit()
    assert findings() == [("rollup", "what is kept of dropped months")]


def stays(why: str) -> None:
    """The month is not dropped, and nothing of it has happened."""
    before = rolled()
    with worker(), pytest.raises(Stays) as caught:
        drop("usage", month(4).date())
    assert str(caught.value) == why
    with worker():
        assert drop_old() == []
    assert is_there() and rolled() == before and not DroppedMonth.objects.exists()
    assert not UsageRollup.objects.filter(span="kept").exists()


def test_what_may_not_go_stays_and_the_workers_role_drops_nothing_that_nobody_has_said(alice: Tenant) -> None:
    old = month(4)
    with database(app_url()) as app:
        with pytest.raises(RaiseException, match="its rollups are not kept"):
            app.execute("select billing_drop_month('usage', %s)", [month(4).date()])
        for table, first in (("attempt", 4), ("usage", 3), ("usage", 0)):
            with pytest.raises(RaiseException, match="stays"):
                app.execute("select billing_drop_month(%s, %s)", [table, month(first).date()])
        with pytest.raises(InsufficientPrivilege):
            app.execute("update billing_retention set months = 3")
        with pytest.raises(InsufficientPrivilege):
            app.execute("insert into billing_droppedmonth values (1, 'usage', '2020-01-01', 0)")
    assert is_there() and not DroppedMonth.objects.exists()
    note = LateHour.objects.create(hour=old + DAY)
    stays("it is not rolled up yet")
    note.delete()
    made = ExportSchedule.objects.create(name="finance", kind="folder", every="month", first=old.date())
    stays("the schedule finance has not stored it")
    ExportSchedule.objects.filter(pk=made.pk).update(active=False)
    forced("update billing_usagerollup set charge = charge + 0.000000000001 where span = 'day' and starts_at = %s",
           old)  # fmt: skip
    stays(DIFFERS)
    forced("update billing_usagerollup set charge = charge - 0.000000000001 where span = 'day' and starts_at = %s",
           old)  # fmt: skip
    with psycopg.connect(owner_url()) as reading:
        reading.execute("select count(*) from billing_usage")
        with worker(), pytest.raises(Stays, match=BUSY):
            drop("usage", old.date())
        reading.rollback()
    assert is_there() and not UsageRollup.objects.filter(span="kept").exists()
    forced("update billing_closedmonth set summed_at = null")
    stays("it is not closed, or its sums are not kept yet")
    Retention.objects.filter(table="usage").update(months=4)
    stays("it is to be kept")
    Retention.objects.filter(table="usage").update(months=None)
    stays("it is to be kept")


def test_an_operator_says_how_long_each_is_kept_and_a_dry_run_shows_what_would_go(alice: Tenant) -> None:
    (usage, *_) = Usage.objects.order_by("id")
    make_attempt(usage, id=first_id(month(4) + DAY))
    Retention.objects.filter(table="attempt").update(months=3)

    client, page = console(), url(Retention, "change", "usage")
    refused = submit(client, page, "retention_form", months="2")
    assert refused.status_code == 200 and Retention.objects.get(pk="usage").months == 3
    html = client.get(page).content.decode()
    assert f"{month(4):%Y-%m}: goes" in html and f"{month(3):%Y-%m}: stays, it is to be kept" in html

    def said(*arguments: str) -> str:
        out = StringIO()
        call_command("retention", *arguments, stdout=out)
        return out.getvalue()

    shown = said()
    assert "Attempts: 3 months and the running one are kept." in shown
    for table in ("usage", "attempt"):
        assert f"{table} of {month(4):%Y-%m}: about" in shown and is_there(table)
    assert shown.count("would go") == 2 and f"{month(3):%Y-%m}" in shown and "stays, it is to be kept" in shown
    assert submit(client, page, "retention_form", months="").status_code == 302
    shown = said("--drop")
    assert f"attempt of {month(4):%Y-%m}: 1 rows dropped" in shown
    assert is_there() and not is_there("attempt") and not Attempt.objects.exists()
    assert (kept_since(), kept_since("attempt")) == (None, month(3))
    assert audit() == 0


def test_what_needs_the_rows_says_that_they_are_gone(alice: Tenant, tmp_path: Any) -> None:
    with worker():
        drop_old()
    old = month(4).date()
    version = make_tariff(input="1", output="2").versions.get()
    for first in (old, month_after(old)):
        run = Repricing(version=version, first=first, until=first + DAY)
        if first == old:
            with pytest.raises(ValidationError) as caught:
                run.full_clean()
            assert set(caught.value.message_dict) == {"first"}
        else:
            run.full_clean()
    bill = f"day,model,cost\r\n{old},m,1\r\n".encode()
    with pytest.raises(BadBill, match="kept any more"):
        reconcile("vendor", Form.METERLINE, [("bill.csv", bill)], {}, "finance")
    with pytest.raises(CommandError, match="kept any more"):
        call_command("export_usage", str(tmp_path / "a.csv"), f"--from={old}", f"--to={old}")
    made = ExportSchedule(name="reports", kind="folder", every="day", first=old)
    with pytest.raises(ValidationError) as caught:
        made.full_clean()
    assert set(caught.value.message_dict) == {"first"} and list(tmp_path.iterdir()) == []
