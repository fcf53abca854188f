"""Usage by hour and day: exactly the sum over the usage rows, whenever they were settled."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.console.filters import Range
from billing.exports.csv_file import CsvFile
from billing.exports.generations import GENERATIONS
from billing.exports.pages import chunks
from billing.ids import EPOCH, first_id
from billing.models import LateHour, Mark, Usage, UsageRollup
from billing.rollups import COUNTED, make, prune_usage, roll_up_usage
from tests.console.browser import make_usage
from tests.stage.backbone import admission, backbone, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant, make_tenant

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SUMMED = (*COUNTED[2:16], "charge")


def rollups(tenant: Tenant, span: str) -> list[dict[str, Any]]:
    """A tenant's rollups, in order, without their keys."""
    rows = UsageRollup.objects.filter(organization=tenant.organization.pk, span=span)
    ordered = rows.order_by("starts_at", "model", "provider").values()
    return [{name: value for name, value in row.items() if name != "id"} for row in ordered]


def sums(tenant: Tenant, span: str) -> dict[tuple[datetime, str, str], dict[str, Any]]:
    """What they must say, added up here."""
    found: dict[tuple[datetime, str, str], dict[str, Any]] = defaultdict(lambda: defaultdict(int))
    for row in Usage.objects.filter(organization=tenant.organization.pk).order_by("pk"):
        start = row.created_at.replace(minute=0, second=0, microsecond=0)
        start = start if span == "hour" else start.replace(hour=0)
        entry = found[start, row.model, row.provider]
        entry["requests"] += 1
        entry["completed"] += row.status == "completed"
        for name in SUMMED:
            entry[name] += getattr(row, name) or 0
        entry["unpriced"] += row.charge is None
    return found


def check(tenant: Tenant) -> None:
    """Both spans are the sums, exactly."""
    for span in ("hour", "day"):
        expected = sums(tenant, span)
        rows = rollups(tenant, span)
        assert [(row["starts_at"], row["model"], row["provider"]) for row in rows] == sorted(expected)
        for row in rows:
            entry = expected[row["starts_at"], row["model"], row["provider"]]
            assert {name: row[name] for name in entry} == entry


def test_it_works(alice: Tenant) -> None:
    now = datetime.now(UTC)
    make_usage(alice, now, ttft_ms=100, duration_ms=600)
    make_usage(alice, now, ttft_ms=50, duration_ms=250, stream=False, charge=None)
    make_usage(alice, now, status="failed", ttft_ms=7, duration_ms=9, completion_tokens=0, charge=Decimal(0))
    assert roll_up_usage()
    (hour,), (day,) = rollups(alice, "hour"), rollups(alice, "day")
    assert hour == {
        "span": "hour", "starts_at": now.replace(minute=0, second=0, microsecond=0),
        "organization": alice.organization.pk, "model": "lab/model", "provider": "vendor",
        "requests": 3, "completed": 2, "prompt_tokens": 3000, "completion_tokens": 1000, "cached_tokens": 0,
        "cache_write_5m_tokens": 0, "cache_write_1h_tokens": 0, "audio_input_tokens": 0, "image_input_tokens": 0,
        "reasoning_tokens": 0, "audio_output_tokens": 0, "web_searches": 0,
        "video_input_tokens": 0, "image_output_tokens": 0, "images": 0, "seconds": 0,
        "charge": Decimal("0.00132"), "unpriced": 1,
        "ttft_count": 2, "ttft_ms": 107, "output_tokens": 1000, "output_ms": 750,
    }  # fmt: skip
    assert day == hour | {"span": "day", "starts_at": hour["starts_at"].replace(hour=0)}


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 4 * 24 * 60),
            st.sampled_from(["lab/a", "lab/b"]),
            st.sampled_from(["one", "two"]),
            st.one_of(st.none(), st.decimals(0, 1000, places=12)),
            st.integers(0, 10**6),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_rollups_are_the_sums_of_the_rows(calls: list[tuple[int, str, str, Decimal | None, int]]) -> None:
    alice = make_tenant("alice")
    now = datetime.now(UTC)
    for minutes, model, provider, charge, tokens in calls:
        make_usage(
            alice, now - timedelta(minutes=minutes), model=model, provider=provider, charge=charge,
            prompt_tokens=tokens, cached_tokens=tokens // 2,
        )  # fmt: skip
    Mark.objects.update_or_create(name="usage", defaults={"until": now - 5 * DAY, "ran_at": now})
    assert roll_up_usage()
    check(alice)
    before = rollups(alice, "hour"), rollups(alice, "day")
    assert roll_up_usage()
    assert (rollups(alice, "hour"), rollups(alice, "day")) == before


def test_a_stopped_worker_goes_on_from_its_mark_a_day_a_step(alice: Tenant) -> None:
    roll_up_usage()
    now = datetime.now(UTC)
    for hours in (1, 20, 30, 49, 75):
        make_usage(alice, now - hours * HOUR)
    Mark.objects.filter(name="usage").update(until=now - 76 * HOUR)
    steps = 0
    while not roll_up_usage(most_days=1):
        steps += 1
        assert steps < 10
        assert Mark.objects.get(name="usage").until <= now
    assert steps >= 3
    check(alice)


def test_without_any_usage_there_is_nothing_to_catch_up_with() -> None:
    with transaction.atomic():
        Usage.objects.all().delete()
        Mark.objects.update_or_create(name="usage", defaults={"until": EPOCH, "ran_at": EPOCH})
        assert roll_up_usage(most_days=1)
        assert Mark.objects.get(name="usage").until > datetime.now(UTC) - HOUR
        transaction.set_rollback(True)


def test_two_workers_at_once_end_the_same(alice: Tenant) -> None:
    now = datetime.now(UTC)
    for minutes in range(0, 300, 10):
        make_usage(alice, now - timedelta(minutes=minutes))

    def work(_: int) -> None:
        try:
            roll_up_usage()
        finally:
            connection.close()

    for _ in range(3):
        Mark.objects.filter(name="usage").update(until=now - 6 * HOUR)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
        roll_up_usage()
        check(alice)


def test_what_settles_after_its_hour_was_passed_is_counted(alice: Tenant, tmp_path: Any) -> None:
    item = wanted(alice.key)

    async def hold() -> Any:
        async with admission() as door:
            return await door.hold(item)

    held = run(hold())
    roll_up_usage()
    # Two days pass, in which the process is away and its usage waits in its spool.
    ago = datetime.now(UTC) - 2 * DAY
    make_usage(alice, ago + timedelta(minutes=1), model="lab/other")
    late = settled(
        wanted(alice.key), held, "0.25", id=UUID(int=first_id(ago).int | 7).hex, created_at=ago, completion_tokens=7
    )
    Mark.objects.filter(name="usage").update(until=datetime.now(UTC))

    async def settle() -> None:
        async with backbone(tmp_path) as here:
            await here.settler.settle(late)

    run(settle())
    assert [note.hour for note in LateHour.objects.filter(hour__gte=ago - HOUR, hour__lte=ago)] == [
        ago.replace(minute=0, second=0, microsecond=0)
    ]
    assert roll_up_usage()
    assert not LateHour.objects.exists()
    check(alice)
    assert {row["model"]: row["charge"] for row in rollups(alice, "day") if row["starts_at"] < ago} == {
        "lab/other": Decimal("0.00132"), late.model: Decimal("0.25"),
    }  # fmt: skip


def test_what_settles_in_time_leaves_no_note(alice: Tenant, tmp_path: Any) -> None:
    before = set(LateHour.objects.values_list("pk", flat=True))

    async def settle() -> None:
        async with backbone(tmp_path) as here:
            item = wanted(alice.key)
            held = await here.admission.hold(item)
            await here.settler.settle(settled(item, held, "0.5"))

    run(settle())
    assert set(LateHour.objects.values_list("pk", flat=True)) == before
    roll_up_usage()
    check(alice)


def test_a_note_that_is_not_to_be_seen_yet_is_not_taken(alice: Tenant) -> None:
    roll_up_usage()
    ago = datetime.now(UTC) - 3 * DAY
    with database(owner_url()) as other, other.transaction(force_rollback=True):
        other.execute("insert into billing_latehour (hour) values (%s)", [ago])
        assert roll_up_usage()
        assert other.execute("select count(*) from billing_latehour where hour = %s", [ago]).fetchone() == (1,)


def test_hours_are_forgotten_after_35_days_and_days_are_not(alice: Tenant) -> None:
    now = datetime.now(UTC)
    old = now - 36 * DAY
    make_usage(alice, old)
    make_usage(alice, now - 34 * DAY)
    Mark.objects.update_or_create(name="usage", defaults={"until": old - DAY, "ran_at": EPOCH})
    roll_up_usage()
    days = rollups(alice, "day")
    assert (len(days), len(rollups(alice, "hour"))) == (2, 2)
    prune_usage()
    assert [row["starts_at"] > old + DAY for row in rollups(alice, "hour")] == [True]
    assert rollups(alice, "day") == days
    # And what comes late for a day without hours does not take the rest of it away.
    make_usage(alice, old.replace(hour=(old.hour + 7) % 24), charge=Decimal(3))
    LateHour.objects.create(hour=old.replace(hour=(old.hour + 7) % 24, minute=0, second=0, microsecond=0))
    roll_up_usage()
    assert [row["requests"] for row in rollups(alice, "day")] == [2, 1]


def test_a_call_across_the_months_border_is_in_the_month_it_began_in_everywhere(alice: Tenant) -> None:
    """Rollups, the list, the file that leaves: by the date of its hold, however late it was settled."""
    first = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    eve = first - timedelta(seconds=5)
    late = make_usage(alice, eve, settled_at=first + timedelta(seconds=10), charge=Decimal("0.5"))
    make_usage(alice, first, charge=Decimal("0.25"))
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, eve.replace(hour=0, minute=0, second=0), first + DAY)
    assert [(row["starts_at"], row["charge"]) for row in rollups(alice, "day")] == [
        (first - DAY, Decimal("0.5")), (first, Decimal("0.25")),
    ]  # fmt: skip
    assert [row["starts_at"] for row in rollups(alice, "hour")] == [first - HOUR, first]
    of_alice = Usage.objects.filter(organization=alice.organization.pk)
    before, after = Range(None, first).narrow(of_alice), Range(first, None).narrow(of_alice)
    assert ([row.pk for row in before], after.count()) == ([late.pk], 1)
    (_, line) = b"".join(chunks(before, CsvFile(GENERATIONS), GENERATIONS)).decode().splitlines()
    assert f'"{eve:%Y-%m-%dT%H:%M:%S}.000000Z","{first:%Y-%m-%dT%H:%M:%S}' in line.replace(":10.", ":00.")


def test_what_was_rolled_up_before_the_clock_was_set_back_is_rolled_up_anew(alice: Tenant) -> None:
    """By the mark it is done for an hour to come."""
    roll_up_usage()
    now = datetime.now(UTC)
    make_usage(alice, now)
    Mark.objects.filter(name="usage").update(until=now + HOUR)
    assert roll_up_usage()
    assert [(row["starts_at"], row["requests"]) for row in rollups(alice, "hour")] == [
        (now.replace(minute=0, second=0, microsecond=0), 1)
    ]


def test_what_a_clock_up_to_a_minute_ahead_has_named_is_not_missing(alice: Tenant) -> None:
    """An id is of its maker's clock: a range goes by the database's."""
    now = datetime.now(UTC)
    for apart in (59, -59):
        made = now + timedelta(seconds=apart)
        id = UUID(int=first_id(made).int | 7)
        make_usage(alice, now - timedelta(seconds=1), id=id)
        of_alice = Usage.objects.filter(pk=id)
        assert Range(None, now).narrow(of_alice).exists()
        assert Range(now - timedelta(seconds=2), None).narrow(of_alice).exists()
        assert not Range(now, None).narrow(of_alice).exists()
