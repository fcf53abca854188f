"""Statistics of offers: attempts by minute and hour, sketches, and the windows that are published."""

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from billing.ids import EPOCH, first_id
from billing.models import Attempt, Mark
from routing.health.latency import size_class
from routing.models import ALL_SIZES, OfferRollup, OfferStatistics, Window
from routing.statistics import rollups as statistics
from routing.statistics.rollups import make, prune, roll_up
from routing.statistics.sketches import bucket, mean, merged, middle, quantile
from tests.console.browser import make_usage
from tests.stage.cast import Tenant

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DEFAULTS = {"status": "completed", "fault": "", "ttft_ms": 200, "duration_ms": 1200, "prompt_tokens": 100}


class Offer:
    """An offer that nobody else has attempts at."""

    def __init__(self) -> None:
        self.provider = f"provider-{secrets.token_hex(6)}"
        self.names = {"model": "lab/model", "provider": self.provider, "upstream_model": "upstream"}

    def attempt(self, at: datetime, **fields: Any) -> Attempt:
        """A dial that began `at`: 200 ms to the first of 101 tokens, ten ms each."""
        row = {**DEFAULTS, "completion_tokens": 101, "number": 1, "started_at": at, **self.names, **fields}
        generation = row.pop("generation", None) or new_id(at)
        return Attempt.objects.create(id=new_id(at), generation=generation, **row)

    def rollups(self, span: str) -> list[dict[str, Any]]:
        """Its rollups, in order; without their keys, which are new whenever they are made."""
        rows = OfferRollup.objects.filter(span=span, provider=self.provider).order_by("starts_at", "size_class")
        return [{name: value for name, value in row.items() if name != "id"} for row in rows.values()]

    def published(self, window: str, size: int = ALL_SIZES) -> OfferStatistics:
        """What is published of it."""
        return OfferStatistics.objects.get(provider=self.provider, window=window, size_class=size)


@pytest.fixture
def offer() -> Iterator[Offer]:
    """An offer; its attempts are gone afterwards, so that later runs do not see them."""
    made = Offer()
    yield made
    Attempt.objects.filter(provider=made.provider).delete()


def new_id(at: datetime) -> UUID:
    """A UUIDv7 of a moment."""
    return UUID(int=first_id(at).int | secrets.randbits(62))


def minute(ago: timedelta = timedelta(0)) -> datetime:
    """The start of a recent minute."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - ago


def made(start: datetime, end: datetime) -> None:
    """Makes the rollups of a time."""
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, start, end)


# --- sketches -------------------------------------------------------------------------------------------------------


@given(st.floats(min_value=1, max_value=1e9))
def test_a_bucket_stands_for_its_values_within_five_percent(value: float) -> None:
    assert abs(middle(bucket(value)) - value) <= 0.05 * value


@given(st.lists(st.integers(1, 10**8), min_size=1, max_size=200), st.floats(0, 1))
def test_quantiles_of_a_sketch_are_those_of_the_values_within_five_percent(values: list[int], share: float) -> None:
    half = len(values) // 2
    parts: list[dict[str, int]] = [{}, {}]
    for place, value in enumerate(values):
        part = parts[place < half]
        part[str(bucket(value))] = part.get(str(bucket(value)), 0) + 1
    sketch = merged(parts)
    exact = sorted(values)[max(1, -int(-share * len(values) // 1)) - 1]
    found = quantile(sketch, share)
    assert found is not None and abs(found - exact) <= 0.05 * exact + 1e-6
    average = mean(sketch)
    assert average is not None and abs(average * len(values) - sum(values)) <= 0.05 * sum(values) + 1e-6


def test_an_empty_sketch_knows_nothing() -> None:
    assert quantile({}, 0.5) is None and mean({}) is None and merged([]) == {}


def test_the_database_makes_the_same_sketches() -> None:
    values = [0.0, 1.0, 1.05, 1.1, 2.0, 99.0, 100.0, 101.0, 12345.0, 86_400_000.0]
    with connection.cursor() as cursor:
        cursor.execute("select routing_bucket(v) from unnest(%s::float8[]) with ordinality as t(v, n) order by n",
                       [values])  # fmt: skip
        assert [found for (found,) in cursor.fetchall()] == [bucket(value) for value in values]
        sketch = {"0": 3, "7": 2, "50": 5, "-1": 0}
        for share in (0.0, 0.1, 0.3, 0.31, 0.5, 0.9, 1.0):
            cursor.execute("select routing_quantile(%s::jsonb, %s)", ['{"0": 3, "7": 2, "50": 5}', share])
            assert cursor.fetchone() == (pytest.approx(quantile(sketch, share)),)
        cursor.execute(
            "select routing_quantile('{}', 0.5), routing_merge(%s)::text, routing_tally(null::integer[])::text",
            ['[{"1": 2}, {"1": 3, "4": 1}, {}]'],
        )
        assert cursor.fetchone() == (None, '{"1": 5, "4": 1}', "{}")


# --- rollups --------------------------------------------------------------------------------------------------------


def test_it_counts_how_attempts_ended(offer: Offer, alice: Tenant) -> None:
    at = minute(HOUR)
    usage = make_usage(alice, at, cached_tokens=40)
    offer.attempt(at, generation=usage.pk)
    offer.attempt(at + timedelta(seconds=59, milliseconds=999))
    offer.attempt(at, status="cancelled", completion_tokens=5)
    for fault in ("timeout", "timeout", "server_error", "rate_limited", "auth"):
        offer.attempt(at, status="failed", fault=fault, ttft_ms=None, completion_tokens=None)
    for fault in ("timeout", "auth", "rejected"):
        offer.attempt(at, generation=usage.pk, status="failed", fault=fault, ttft_ms=None, completion_tokens=None)
    offer.attempt(at, status="failed", fault="not_found", upstream_status=404, ttft_ms=None, completion_tokens=0)
    offer.attempt(at, status="dialling", ttft_ms=None, duration_ms=None)
    offer.attempt(at, status="unknown", ttft_ms=None, duration_ms=None)
    offer.attempt(at + MINUTE)
    offer.attempt(at - timedelta(milliseconds=1), prompt_tokens=8000)
    made(at - MINUTE, at + 2 * MINUTE)
    before, found, after = offer.rollups("minute")
    assert (before["starts_at"], before["size_class"], before["attempts"]) == (at - MINUTE, size_class(8000), 1)
    assert (after["starts_at"], after["attempts"], after["completed"]) == (at + MINUTE, 1, 1)
    ttft, token = str(bucket(200)), str(bucket(10_000))
    assert found == {
        **offer.names, "span": "minute", "starts_at": at, "size_class": 0,
        "attempts": 12, "completed": 2, "cancelled": 1, "offer_faults": 5, "client_faults": 1,
        "faults": {"timeout": 3, "server_error": 1, "rate_limited": 1, "auth": 2, "rejected": 1, "not_found": 1},
        "failing": {str(alice.organization.pk): 1},
        "ttft": {ttft: 3}, "token_time": {token: 2},
        "prompt_tokens": 1200, "completion_tokens": 207, "cached_tokens": 40,
        "output_tokens": 200, "output_ms": 2000,
    }  # fmt: skip


@pytest.mark.parametrize("tokens", [0, 999, 1000, 7999, 8000, 31_999, 32_000, 127_999, 128_000, 10**6])
def test_size_classes_are_those_of_the_plan(offer: Offer, tokens: int) -> None:
    at = minute(HOUR)
    offer.attempt(at, prompt_tokens=tokens)
    made(at, at + MINUTE)
    assert [row["size_class"] for row in offer.rollups("minute")] == [size_class(tokens)]


def test_a_whole_answer_is_split_in_the_usual_shape(offer: Offer, alice: Tenant) -> None:
    at = minute(HOUR)
    usage = make_usage(alice, at, stream=False)
    # 500 ms and 20 ms a token would be 2500 ms; it took twice as long.
    offer.attempt(at, generation=usage.pk, ttft_ms=4990, duration_ms=5000, completion_tokens=100)
    made(at, at + MINUTE)
    (row,) = offer.rollups("minute")
    assert (row["ttft"], row["token_time"]) == ({str(bucket(1000)): 1}, {str(bucket(40_000)): 1})
    assert (row["output_tokens"], row["output_ms"]) == (100, 4000)


def test_hours_are_the_sum_of_their_minutes(offer: Offer) -> None:
    at = minute(5 * HOUR).replace(minute=0)
    for place in range(30):
        offer.attempt(at + place * 2 * MINUTE, ttft_ms=100 + 10 * place)
    offer.attempt(at + HOUR)
    for start in range(0, 70, 7):
        made(at + start * MINUTE, at + (start + 7) * MINUTE)
    hour, next_hour = offer.rollups("hour")
    minutes = offer.rollups("minute")[:-1]
    assert len(minutes) == 30
    assert (hour["starts_at"], hour["attempts"], next_hour["starts_at"]) == (at, 30, at + HOUR)
    assert hour["ttft"] == merged(row["ttft"] for row in minutes)
    assert hour["output_ms"] == sum(row["output_ms"] for row in minutes) == 30 * 1200 - sum(range(100, 400, 10))


def test_making_a_window_again_changes_nothing_and_finds_what_came_late(offer: Offer) -> None:
    at = minute(HOUR)
    late = offer.attempt(at, status="dialling", ttft_ms=None, duration_ms=None)
    offer.attempt(at)
    made(at, at + MINUTE)
    first = offer.rollups("minute"), offer.rollups("hour")
    made(at, at + MINUTE)
    assert (offer.rollups("minute"), offer.rollups("hour")) == first
    assert first[0][0]["attempts"] == 1
    Attempt.objects.filter(pk=late.pk).update(status="failed", fault="timeout", prompt_tokens=9000)
    made(at, at + MINUTE)
    assert [row["attempts"] for row in offer.rollups("minute")] == [1, 1]
    Attempt.objects.filter(pk=late.pk).update(status="completed", fault="", prompt_tokens=90)
    made(at, at + MINUTE)
    assert [row["attempts"] for row in offer.rollups("minute")] == [2]
    assert [row["attempts"] for row in offer.rollups("hour")] == [2]


def test_a_stopped_worker_goes_on_from_its_mark(offer: Offer) -> None:
    roll_up()
    now = datetime.now(UTC)
    for ago in (1, 61, 170, 179):
        offer.attempt(now - ago * MINUTE)
    forgotten = offer.attempt(now - 10 * HOUR)
    Mark.objects.filter(name="offers").update(until=now - 3 * HOUR)
    assert not roll_up(most_steps=1)
    assert Mark.objects.get(name="offers").until < now - HOUR
    assert roll_up()
    assert Mark.objects.get(name="offers").until >= now
    assert sum(row["attempts"] for row in offer.rollups("minute")) == 4
    assert sum(row["attempts"] for row in offer.rollups("hour")) == 4
    assert forgotten.started_at < now - 9 * HOUR  # done before: it is not looked for again


def test_two_workers_at_once_end_the_same(offer: Offer) -> None:
    now = datetime.now(UTC)
    for seconds in range(0, 600, 5):
        offer.attempt(now - timedelta(seconds=seconds))

    def work(_: int) -> None:
        try:
            roll_up()
        finally:
            connection.close()

    for _ in range(5):
        Mark.objects.filter(name="offers").update(until=now - 15 * MINUTE)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(work, range(2)))
        roll_up()
        assert sum(row["attempts"] for row in offer.rollups("minute")) == 120
        assert sum(row["attempts"] for row in offer.rollups("hour")) == 120


def test_windows_are_published(offer: Offer) -> None:
    now = datetime.now(UTC)
    for ago, ttft in ((0, 100), (4, 100), (50, 1000), (60 * 20, 10_000), (60 * 24 * 20, 50_000)):
        offer.attempt(now - ago * MINUTE, ttft_ms=ttft, duration_ms=ttft + 1000)
    offer.attempt(now - MINUTE, status="failed", fault="timeout", prompt_tokens=200_000, ttft_ms=None)
    start = now - timedelta(days=21)
    Mark.objects.update_or_create(name="offers", defaults={"until": start, "ran_at": start})
    Mark.objects.filter(name__startswith="offers:").update(until=EPOCH)
    assert roll_up()
    counts = {window: offer.published(window).attempts for window in Window.values}
    assert counts == {"5m": 3, "1h": 4, "1d": 5, "30d": 6}
    short = offer.published("5m", 0)
    assert (short.attempts, short.completed, short.offer_faults, short.faults) == (2, 2, 0, {})
    assert short.ttft_p50 == pytest.approx(100, rel=0.05) and short.token_p50 == pytest.approx(10_000, rel=0.05)
    failing = offer.published("5m", 4)
    assert (failing.attempts, failing.offer_faults, failing.faults, failing.ttft_p50) == (1, 1, {"timeout": 1}, None)
    assert offer.published("30d", 0).ttft_p50 == pytest.approx(1000, rel=0.05)
    assert now <= short.published_at == statistics.published_at()["5m"]

    Attempt.objects.filter(provider=offer.provider).delete()
    made(minute(10 * MINUTE), minute() + MINUTE)
    roll_up()
    assert not OfferStatistics.objects.filter(provider=offer.provider, window="5m").exists()
    assert offer.published("30d").attempts == 6  # published every ten minutes only


def test_what_was_made_before_the_clock_was_set_back_is_made_anew(offer: Offer) -> None:
    """By the marks it is done for an hour to come."""
    roll_up()
    now = datetime.now(UTC)
    offer.attempt(now - MINUTE)
    Mark.objects.filter(name__startswith="offers").update(until=now + HOUR)
    assert roll_up()
    assert {window: offer.published(window).attempts for window in Window.values} == dict.fromkeys(Window.values, 1)
    marks = Mark.objects.filter(name__startswith="offers").values_list("until", flat=True)
    assert len(marks) == 5 and all(now <= mark <= datetime.now(UTC) for mark in marks)


def test_old_rollups_are_forgotten_but_none_that_may_be_made_again(offer: Offer) -> None:
    roll_up()
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    ages = {"minute": (47, 49, 80), "hour": (34 * 24, 35 * 24 + 2)}
    zeros = dict.fromkeys(
        ("attempts", "completed", "cancelled", "offer_faults", "client_faults", "prompt_tokens", "completion_tokens",
         "cached_tokens", "output_tokens", "output_ms"), 0,
    )  # fmt: skip
    for span, hours in ages.items():
        for age in hours:
            OfferRollup.objects.create(
                span=span, starts_at=now - age * HOUR, size_class=0, faults={}, ttft={}, token_time={},
                **offer.names, **zeros,
            )  # fmt: skip

    def left() -> dict[str, list[float]]:
        return {
            span: sorted((now - row["starts_at"]) / HOUR for row in offer.rollups(span)) for span in ("minute", "hour")
        }

    mark = Mark.objects.get(name="offers")
    Mark.objects.filter(name="offers").update(until=now - 60 * HOUR)
    prune()
    assert left() == {"minute": [47, 49], "hour": [34 * 24]}
    Mark.objects.filter(name="offers").update(until=mark.until)
    prune()
    assert left() == {"minute": [47], "hour": [34 * 24]}
