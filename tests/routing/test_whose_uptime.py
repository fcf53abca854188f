"""Whose evidence an uptime is: what one tenant's requests provoke lowers an offer in nobody else's order."""

import random
from typing import Any
from uuid import UUID

import pytest

from routing.catalog import Offer
from routing.health.breaker import WINDOW
from routing.health.faults import Fault
from routing.health.health import Health
from routing.health.latency import Published, fastest_first
from routing.health.records import PRIOR
from tests.routing.offers import make_offer, make_provider

ALICE, BOB, CHARLIE = (UUID(int=number) for number in (1, 2, 3))


def answers(health: Health, offer: Offer, now: float, count: int = 1, tenant: UUID = BOB, seconds: float = 0.5) -> None:
    """Requests are answered, each in so many seconds."""
    for _ in range(count):
        trial = health.begin(offer, offer.credentials[0], now, tenant=tenant)
        trial.first_byte(now + seconds)
        trial.succeeded(now + seconds, 1)


def failures(health: Health, offer: Offer, now: float, tenant: UUID | None, count: int = 1) -> None:
    """Requests fail by the offer's fault."""
    for _ in range(count):
        health.begin(offer, offer.credentials[0], now, tenant=tenant).failed(Fault.SERVER_ERROR, now)


def uptimes(health: Health, offer: Offer, now: float) -> list[float | None]:
    """For the three, and for nobody in particular."""
    return [health.standings([offer, make_offer()], 0, now, who)[0].uptime for who in (ALICE, BOB, CHARLIE, None)]


def patient() -> Offer:
    """An offer that no number of failures here rests."""
    return make_offer(make_provider(failure_threshold=1_000))


def share(bad: float, good: float) -> Any:
    """An uptime, with what is believed beforehand."""
    return pytest.approx((good + PRIOR) / (good + bad + PRIOR))


def test_one_tenants_failures_are_its_own_evidence_alone() -> None:
    health, offer = Health(), patient()
    answers(health, offer, 0.0, 40)
    failures(health, offer, 1.0, ALICE, 10)
    assert uptimes(health, offer, 2.0) == [share(10, 40), 1.0, 1.0, 1.0]


def test_they_move_the_others_order_by_nothing() -> None:
    health, fast, slow = Health(), patient(), patient()
    answers(health, fast, 0.0, 40, seconds=0.5)
    answers(health, slow, 0.0, 40, seconds=0.9)
    failures(health, fast, 1.0, ALICE, 30)

    def firsts(tenant: UUID) -> float:
        standings = health.standings([fast, slow], 0, 2.0, tenant)
        return sum(fastest_first(standings, random.Random(seed))[0] == 0 for seed in range(500)) / 500

    assert firsts(BOB) > 0.97
    assert firsts(ALICE) < 0.03


def test_failures_of_two_count_for_all_as_far_as_the_other_one_has_as_many() -> None:
    health, offer = Health(), patient()
    answers(health, offer, 0.0, 40)
    failures(health, offer, 1.0, ALICE, 10)
    failures(health, offer, 1.0, BOB, 3)
    assert uptimes(health, offer, 2.0) == [share(10, 40), share(6, 40), share(6, 40), share(6, 40)]


def test_of_a_single_tenant_they_count_as_ever() -> None:
    health, offer = Health(), patient()
    answers(health, offer, 0.0, 20, ALICE)
    failures(health, offer, 1.0, ALICE, 4)
    assert uptimes(health, offer, 2.0)[0] == share(4, 20)
    failures(health, offer, 2.0, ALICE, 4)
    assert uptimes(health, offer, 2.0)[0] == share(8, 20)


def test_failures_of_nobody_in_particular_count_for_all() -> None:
    health, offer = Health(), patient()
    answers(health, offer, 0.0, 20)
    failures(health, offer, 1.0, None, 4)
    assert uptimes(health, offer, 2.0) == [share(4, 20)] * 4


def test_they_are_forgotten_with_the_window() -> None:
    health, offer = Health(), patient()
    failures(health, offer, 1.0, ALICE, 4)
    assert uptimes(health, offer, 2.0)[0] == share(4, 0)
    assert uptimes(health, offer, 3.0 + 2 * WINDOW) == [None] * 4


def published(offer: Offer, uptime: float, own: dict[UUID, float]) -> Published:
    """What the statistics say of 1,000 calls."""
    provider = offer.provider.slug
    return Published("test/model", provider, offer.upstream_model, 0, 500.0, 10.0, 100.0, uptime, 1000, 0.0, own)


def test_the_statistics_tell_each_tenant_its_own() -> None:
    health, offer = Health(), patient()
    health.standings([offer], 0, 0.0)
    health.learn([published(offer, 0.9, {ALICE: 0.5})], 0.0)
    assert uptimes(health, offer, 0.0) == [0.5, 0.9, 0.9, 0.9]
    health.learn([published(offer, 0.9, {})], 1.0)
    assert uptimes(health, offer, 1.0) == [0.9] * 4
