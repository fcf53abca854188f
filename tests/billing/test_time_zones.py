"""Budgets by the clock of the organization's time zone: each window begins once, and counts what was spent in it."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import Organization
from billing.models import Budget, Counter
from tests.console.browser import console, make_usage, submit, url
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import error


def window(period: str, now: datetime, zone: str) -> datetime:
    """When the window that holds `now` began, as a hold computes it."""
    with connection.cursor() as cursor:
        cursor.execute("select billing_window(%s, %s, %s)", [period, now, zone])
        found: datetime = cursor.fetchone()[0]
    return found


@pytest.mark.parametrize(
    ("period", "zone", "now", "began"),
    [
        ("day", "UTC", "2026-11-29T23:59:59", "2026-11-29T00:00:00"),
        ("day", "Asia/Tokyo", "2026-11-29T14:59:59", "2026-11-28T15:00:00"),
        ("day", "Asia/Tokyo", "2026-11-29T15:00:00", "2026-11-29T15:00:00"),
        ("day", "Asia/Kathmandu", "2026-11-29T18:15:00", "2026-11-29T18:15:00"),  # 5:45 ahead
        ("week", "UTC", "2026-11-29T23:59:59", "2026-11-23T00:00:00"),  # a Sunday
        ("week", "America/New_York", "2026-11-30T04:59:59", "2026-11-23T05:00:00"),
        ("week", "America/New_York", "2026-11-30T05:00:00", "2026-11-30T05:00:00"),
        ("month", "Pacific/Auckland", "2026-11-30T11:00:00", "2026-11-30T11:00:00"),
        ("month", "UTC", "2026-12-31T23:59:59", "2026-12-01T00:00:00"),
        # A day of 23 hours and one of 25: each begins once.
        ("day", "Europe/Berlin", "2026-03-29T21:59:59", "2026-03-28T23:00:00"),
        ("day", "Europe/Berlin", "2026-03-29T22:00:00", "2026-03-29T22:00:00"),
        ("day", "Europe/Berlin", "2026-10-25T22:59:59", "2026-10-24T22:00:00"),
        ("day", "Europe/Berlin", "2026-10-25T23:00:00", "2026-10-25T23:00:00"),
        ("month", "Europe/Berlin", "2026-10-31T22:59:59", "2026-09-30T22:00:00"),
        # A clock that is put forward at midnight: the day begins at one.
        ("day", "America/Santiago", "2026-09-06T04:00:00", "2026-09-06T04:00:00"),
        ("total", "Asia/Tokyo", "2026-11-29T15:00:00", "2000-01-01T00:00:00"),
        ("minute", "Asia/Kathmandu", "2026-11-29T15:00:59", "2026-11-29T15:00:00"),
    ],
)
def test_a_window_begins_by_the_zones_clock(database: None, period: str, zone: str, now: str, began: str) -> None:
    moment, expected = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (now, began))
    assert window(period, moment, zone) == expected


MOMENTS = st.integers(0, 4 * 365 * 86_400).map(
    lambda seconds: datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)
ZONES = st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "Pacific/Apia"])


@given(MOMENTS, ZONES, st.sampled_from(["day", "week", "month"]))
def test_windows_lie_one_behind_the_other(database: None, moment: datetime, zone: str, period: str) -> None:
    began = window(period, moment, zone)
    assert began <= moment
    assert window(period, began, zone) == began
    before = began - timedelta(microseconds=1)
    assert window(period, before, zone) < began
    local = began.astimezone(ZoneInfo(zone))
    assert local.hour == 0 and (period != "week" or local.weekday() == 0) and (period != "month" or local.day == 1)


def test_another_zone_counts_what_was_spent_in_its_own_window(alice: Tenant) -> None:
    now = timezone.now()
    ages = [timedelta(minutes=minutes) for minutes in range(65, 48 * 60, 90)]
    for age in ages:
        make_usage(alice, now - age, charge=Decimal(1))
    for period in ("day", "week", "month", "total"):
        Budget.objects.create(organization=alice.organization, period=period, amount=Decimal(1000))
    for zone in ("Asia/Tokyo", "America/Los_Angeles", "UTC"):
        alice.organization.time_zone = zone
        alice.organization.save()
        for budget in Budget.objects.filter(organization=alice.organization):
            assert budget.time_zone == zone
            start = window(budget.period, timezone.now(), zone)
            counter = Counter.objects.get(
                subject=budget.subject, measure="money", period=budget.period, period_start=start
            )
            assert counter.used == sum(now - age >= start for age in ages), (zone, budget.period)
    late = Budget.objects.create(
        organization=alice.organization, project=alice.project, period="day", amount=Decimal(1), time_zone="Asia/Tokyo"
    )
    late.refresh_from_db()
    assert late.time_zone == "UTC"  # the organization's, whatever is said


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../etc/passwd", "UTC; drop table x", "Europe/Berlin\n"])
def test_what_is_no_zone_is_refused_everywhere(alice: Tenant, zone: str) -> None:
    alice.organization.time_zone = zone
    with pytest.raises(ValidationError):
        alice.organization.full_clean()
    with pytest.raises(DatabaseError), transaction.atomic():  # nor by one who asks the database
        Organization.objects.filter(pk=alice.organization.pk).update(time_zone=zone or "nowhere")
    assert Organization.objects.get(pk=alice.organization.pk).time_zone == "UTC"


def test_an_operator_sets_it_in_the_console(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="week", amount=Decimal(5))
    page, client = url(Organization, "change", alice.organization.pk), console()
    refused = submit(client, page, "organization_form", time_zone="Mars/Olympus")
    assert "There is no such time zone." in refused.content.decode()
    assert submit(client, page, "organization_form", time_zone="Asia/Tokyo").status_code == 302
    assert Budget.objects.get(organization=alice.organization).time_zone == "Asia/Tokyo"


def test_a_week_is_spent_once(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1&prompt=1")  # $6 a million of both
    alice.organization.time_zone = "Pacific/Auckland"
    alice.organization.save()
    Budget.objects.create(organization=alice.organization, period="week", amount=Decimal("0.01"))
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    Budget.objects.filter(organization=alice.organization).update(amount=Decimal("0.000006"))
    refused = gateway.chat(alice.secret, model.slug)
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    counter = Counter.objects.get(subject=alice.organization.pk, period="week", measure="money")
    assert counter.period_start == window("week", timezone.now(), "Pacific/Auckland")
    assert (counter.used, counter.held) == (Decimal("0.000006"), Decimal(0))
    assert books(alice.organization).problems() == []
