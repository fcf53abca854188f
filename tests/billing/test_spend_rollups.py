"""What each key spent by hour and day: exactly the sum over its usage rows, in the days from before, too."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from billing.models import LateHour, Mark, SpendRollup
from billing.rollups import COUNTS, SPENT, prune_usage, roll_up_usage
from tests.console.browser import make_usage
from tests.stage.cast import Tenant, make_key

DAY = timedelta(days=1)
FURTHER = COUNTS[2:]


def test_what_a_key_spent_is_the_sum_of_its_rows_also_of_days_from_before(alice: Tenant) -> None:
    now = datetime.now(UTC)
    other, _ = make_key(alice.project)
    make_usage(alice, now - 3 * DAY, charge=Decimal("0.000000000001"), provider_cost=None)
    make_usage(alice, now - 3 * DAY, charge=None, provider_cost=Decimal("0.5"))
    make_usage(alice, now - 3 * DAY, key=other.pk, provider="two", provider_cost=Decimal(2), overrun=Decimal(1))
    make_usage(alice, now)
    assert roll_up_usage()
    SpendRollup.objects.all().delete()
    Mark.objects.filter(name="spend").delete()  # as a release without it leaves them
    assert roll_up_usage()
    rows = SpendRollup.objects.filter(organization=alice.organization.pk, span="day").order_by("starts_at", "provider")
    then, today = ((now - back * DAY).replace(hour=0, minute=0, second=0, microsecond=0) for back in (3, 0))
    fields = ("starts_at", "project", "key", "model", "provider", *(name for name in SPENT if name not in FURTHER))
    mine, theirs, main = alice.key.pk, other.pk, alice.project.pk
    assert list(rows.values_list(*fields)) == [
        (then, main, theirs, "lab/model", "two", 1, 1000, 500, Decimal("0.00132"), Decimal(2), 0, 0),
        (then, main, mine, "lab/model", "vendor", 2, 2000, 1000, Decimal("0.000000000001"), Decimal("0.5"), 1, 1),
        (today, main, mine, "lab/model", "vendor", 1, 1000, 500, Decimal("0.00132"), Decimal("0.0012"), 0, 0),
    ]


def test_hours_of_keys_are_forgotten_after_two_days_and_a_late_one_makes_its_day_whole(alice: Tenant) -> None:
    then = datetime.now(UTC) - 5 * DAY
    make_usage(alice, then)
    Mark.objects.filter(name="spend").delete()  # whatever other tests have rolled up: from the beginning
    assert roll_up_usage()
    prune_usage()
    mine = SpendRollup.objects.filter(organization=alice.organization.pk)
    assert [row.span for row in mine] == ["day"]
    make_usage(alice, then)
    LateHour.objects.create(hour=then.replace(minute=0, second=0, microsecond=0))
    assert roll_up_usage()
    assert mine.get(span="day").charge == Decimal("0.00264")
