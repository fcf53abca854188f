"""The plan of one request: which offers, in which order, and why. Over frozen offers, without a database."""

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.pricing import Prices, Rate
from gateway.process.seats import Rotations
from routing.catalog import TariffVersion
from routing.health.faults import Fault
from routing.health.health import Health
from routing.planning.ordering import WORDS, Reason, rotation
from routing.planning.policy import DEFAULT, Policy, together
from tests.routing.plans import (
    LONG_AGO,
    NOW,
    failed,
    ids,
    make_model,
    make_offer,
    make_provider,
    measured,
    planned,
    rates,
    reasons,
    wanting,
)

THREE = (make_offer(1, priority=0), make_offer(2, priority=1), make_offer(3, priority=2))


def policy(**fields: Any) -> Policy:
    """A request's policy over the default."""
    return together([Policy(**fields, source="request")])


def order(offers: Any, held: Policy = DEFAULT, *, health: Health | None = None, seed: int = 0, **wanted: Any) -> Any:
    """The offers' ids in the order to try."""
    return ids(planned([make_model(*offers)], wanting(**wanted), held, health or Health(), seed))


def out(offers: Any, held: Policy = DEFAULT, *, health: Health | None = None, **wanted: Any) -> dict[int, str]:
    """Why offers were left out."""
    found = planned([make_model(*offers)], wanting(**wanted), held, health or Health(), 0)
    return reasons([candidate for candidate in found.candidates() if candidate.position is None])


def test_it_takes_offers_by_priority() -> None:
    found = planned([make_model(*THREE)], wanting(output_cap=7), DEFAULT, Health(), 0)
    assert [(one.offer.id, one.position, one.taken, one.reason) for one in found.candidates()] == [
        (1, 0, True, Reason.PRIORITY),
        (2, 1, True, Reason.PRIORITY),
        (3, 2, True, Reason.PRIORITY),
    ]
    first = found.taken[0]
    assert first.credential == THREE[0].credentials[0]
    assert (first.output_cap, first.tariff_version, first.probe) == (7, 1, False)
    # 400 bytes are at most 400 tokens: at $1 a million, and the answer at $2.
    assert first.worst.at(7) == Decimal("0.000414")
    assert found.input_tokens == 400


def test_no_more_than_the_most_attempts_are_taken_and_the_others_stay_in_order() -> None:
    found = planned([make_model(*THREE)], wanting(), policy(max_attempts=2), Health(), 0)
    assert [one.offer.id for one in found.taken] == [1, 2]
    assert [(one.offer.id, one.taken, one.position) for one in found.ordered()] == [
        (1, True, 0),
        (2, True, 1),
        (3, False, 2),
    ]


def test_every_reason_has_words() -> None:
    assert WORDS.keys() == set(Reason)


# --- what an offer cannot do ----------------------------------------------------------------------------------------


def test_modalities() -> None:
    offers = (make_offer(1, input_modalities=("text",)), make_offer(2, input_modalities=("text", "image"), priority=1))
    assert order(offers, modalities=frozenset({"image"})) == [2]
    assert out(offers, modalities=frozenset({"image"})) == {1: "modality"}
    assert order(offers) == [1, 2]
    unknown = (make_offer(1, input_modalities=()),)
    assert order(unknown, modalities=frozenset({"audio"})) == [1]


def test_a_context_that_is_surely_too_small_is_left_out_unless_there_is_no_other() -> None:
    small, large = make_offer(1, context_length=1000), make_offer(2, context_length=100_000, priority=1)
    assert order((small, large), text_bytes=8_000) == [1, 2]
    assert order((small, large), text_bytes=8_008) == [2]
    assert out((small, large), text_bytes=8_008) == {1: "context"}
    assert order((small,), text_bytes=8_008) == [1]
    unknown = make_offer(3, context_length=0, priority=2)
    assert order((small, unknown), text_bytes=8_008) == [3]


def test_offers_that_take_every_parameter_are_preferred() -> None:
    poor = make_offer(1, supported_parameters=("temperature",), priority=0)
    rich = make_offer(2, supported_parameters=("temperature", "seed"), priority=1)
    lacking = {(1, ("temperature",)): 1}
    assert order((poor, rich)) == [1, 2]
    assert order((poor, rich), lacking=lacking) == [2, 1]
    assert order((poor, rich), lacking=lacking, strict=True) == [2]
    assert out((poor, rich), lacking=lacking, strict=True) == {1: "parameters"}
    assert order((poor, rich), policy(strategy="order", providers=("p1", "p2")), lacking=lacking) == [1, 2]


def test_what_one_protocol_has_words_for_goes_to_those_who_speak_it_and_list_its_tools() -> None:
    theirs = {"protocol": "google_gemini"}
    other = make_offer(1, priority=0)
    speaks = make_offer(2, make_provider("p2", **theirs), priority=1)
    lists = make_offer(3, make_provider("p3", **theirs), supported_parameters=("codeExecution",), priority=2)
    offers = (other, speaks, lists)
    assert order(offers) == [1, 2, 3]
    only = frozenset({"google_gemini"})
    assert order(offers, protocols=only) == [2, 3]
    assert out(offers, protocols=only) == {1: "protocol"}
    assert out(offers, protocols=only, built_in=("codeExecution",)) == {1: "protocol", 2: "built_in"}
    assert order(offers, protocols=only | {"openai_chat"}) == [1, 2, 3]


def test_the_highest_price() -> None:
    cheap = make_offer(1, priority=1, versions=rates(input="1", output="2"))
    dear = make_offer(2, priority=0, versions=rates(input="1", output="20"))
    unknown = make_offer(3, priority=2, versions=())
    # 400 tokens at $1 and 1000 at $2 a million, exactly.
    limit = Decimal("0.0024")
    assert order((cheap, dear, unknown), max_price=limit) == [1]
    assert out((cheap, dear, unknown), max_price=limit) == {2: "too_dear", 3: "unpriced"}
    assert order((cheap, dear), max_price=limit - Decimal("0.000000000001")) == []
    assert order((cheap, dear), max_price=limit, output_cap=80) == [2, 1]
    assert order((cheap, dear), max_price=limit, copies=2) == []


def test_prices_are_those_in_force() -> None:
    tomorrow = NOW + timedelta(days=1)
    dearer = TariffVersion(2, tomorrow, Prices({"input": Rate(None, Decimal(10)), "output": Rate(None, Decimal(20))}))
    model = make_model(make_offer(1, versions=(*rates(input="1", output="2"), dearer)))
    versions = [
        planned([model], wanting(now=now), DEFAULT, Health(), 0).taken[0].tariff_version
        for now in (NOW, tomorrow, NOW, tomorrow - timedelta(microseconds=1), LONG_AGO - timedelta(days=1))
    ]
    assert versions == [1, 2, 1, 1, None]


# --- what a policy leaves out ---------------------------------------------------------------------------------------


def test_an_allow_list() -> None:
    held = policy(only_providers=frozenset({"p1", "p3/other"}))
    offers = (*THREE, make_offer(4, "p3", upstream_model="other"))
    assert set(order(offers, held)) == {1, 4}
    assert out(offers, held) == {2: "not_allowed", 3: "not_allowed"}


def test_what_becomes_of_data() -> None:
    trains = make_offer(1, make_provider("p1", trains_on_data=True))
    keeps = make_offer(2, make_provider("p2", retains_data=True))
    neither = make_offer(3, make_provider("p3", retains_data=False))
    offers = (trains, keeps, neither)
    assert out(offers, policy(refuses_training=True)) == {1: "trains"}
    assert out(offers, policy(refuses_retention=True)) == {1: "retains", 2: "retains"}


# --- what health leaves out -----------------------------------------------------------------------------------------


def test_states_of_health() -> None:
    health = Health()
    offers = [make_offer(id, priority=id) for id in range(1, 7)]
    failed(health, offers[0], Fault.SERVER_ERROR)
    failed(health, offers[1], Fault.RATE_LIMITED, times=1, retry_after=20.0)
    failed(health, offers[2], Fault.AUTH, times=1)
    offers[3] = replace(offers[3], forced="open")
    offers[4] = replace(offers[4], credentials=())
    assert order(offers, health=health) == [6]
    assert out(offers, health=health) == {
        1: "resting",
        2: "cooling",
        3: "refused",
        4: "forced_open",
        5: "no_credential",
    }


def test_when_all_rest_all_are_tried() -> None:
    health = Health()
    for offer in THREE:
        failed(health, offer, Fault.SERVER_ERROR)
    found = planned([make_model(*THREE)], wanting(), DEFAULT, health, 0)
    assert ids(found) == [1, 2, 3]
    assert set(reasons(found.taken).values()) == {"last"}


def test_a_half_open_offer_is_tried_where_it_stands() -> None:
    health = Health()
    failed(health, THREE[0], Fault.SERVER_ERROR)
    assert order(THREE, health=health, clock=5.0) == [2, 3]
    found = planned([make_model(*THREE)], wanting(clock=20.0), DEFAULT, health, 0)
    assert [(one.offer.id, one.probe) for one in found.taken] == [(1, True), (2, False), (3, False)]


# --- the order ------------------------------------------------------------------------------------------------------


def test_a_list_goes_first_and_the_others_follow() -> None:
    offers = (*THREE, make_offer(4, priority=3))
    assert order(offers, policy(strategy="priority", providers=("p3", "p2"))) == [3, 2, 1, 4]
    assert order(offers, policy(strategy="order", providers=("p3", "p2"))) == [3, 2, 1, 4]
    assert order(offers, policy(strategy="order", providers=("p3", "p2"), fallback=False)) == [3, 2]
    assert out(offers, policy(strategy="order", providers=("p3", "p2"), fallback=False)) == {
        1: "no_fallback",
        4: "no_fallback",
    }


def test_a_list_may_name_an_endpoint() -> None:
    offers = (
        make_offer(1, "north", upstream_model="m-a"),
        make_offer(2, "north", upstream_model="m-b", priority=1),
        make_offer(3, "south", priority=2),
    )

    def listed(*slugs: str) -> Any:
        return order(offers, policy(strategy="order", providers=slugs, fallback=False))

    assert listed("north/m-b") == [2]
    assert listed("north") == [1, 2]
    assert listed("north/no_such_endpoint") == [1, 2]
    assert listed("south", "north/m-b", "north") == [3, 2, 1]
    assert listed("nowhere") == []


@pytest.mark.parametrize(
    ("fallback", "listed", "expected"),
    [
        (True, None, [1, 2, 3]),
        (False, None, [1]),
        ("p3", None, [1, 3]),
        ("p1", None, [1]),
        ("nowhere", None, [1]),
        (True, ("p2",), [2, 1, 3]),
        (False, ("p3", "p2"), [3, 2]),
        ("p1", ("p3", "p2"), [3, 2, 1]),
    ],
)
def test_forms_of_fallback(fallback: bool | str, listed: tuple[str, ...] | None, expected: list[int]) -> None:
    assert order(THREE, policy(strategy="priority", providers=listed, fallback=fallback)) == expected


def test_without_fallback_the_first_usable_offer_is_the_only_one() -> None:
    health = Health()
    failed(health, THREE[0], Fault.SERVER_ERROR)
    assert order(THREE, policy(fallback=False), health=health) == [2]


def test_factors() -> None:
    health = Health()
    offers = [
        make_offer(1, quality=10, versions=rates(input="3", output="3")),
        make_offer(2, quality=90, versions=rates(input="1", output="4"), priority=1),
        make_offer(3, quality=10, versions=rates(input="1", output="1"), priority=2),
    ]
    measured(health, offers[0], 0.5, tokens=10)
    measured(health, offers[1], 0.2, tokens=50)
    measured(health, offers[2], 0.9, tokens=900)

    def by(factor: str) -> Any:
        return order(offers, policy(strategy="priority", factor=factor), health=health)

    assert by("price") == [3, 2, 1]
    assert by("latency") == [2, 1, 3]
    assert by("throughput") == [3, 2, 1]
    assert by("quality") == [2, 1, 3]


def test_an_unknown_price_comes_last_and_is_not_zero() -> None:
    offers = (make_offer(1, versions=()), make_offer(2, priority=1))
    assert order(offers, policy(strategy="priority", factor="price")) == [2, 1]


def test_a_factor_sorts_a_list_by_priority_and_never_an_explicit_order() -> None:
    offers = (
        make_offer(1, versions=rates(input="3", output="3")),
        make_offer(2, versions=rates(input="2", output="2")),
        make_offer(3, versions=rates(input="1", output="1")),
    )
    listed = ("p1", "p2")
    assert order(offers, policy(strategy="priority", factor="price", providers=listed)) == [2, 1, 3]
    assert order(offers, policy(strategy="order", factor="price", providers=listed, fallback=False)) == [1, 2]


def test_an_offer_nobody_has_measured_is_tried_first_now_and_then() -> None:
    health = Health()
    offers = (make_offer(1), make_offer(2), make_offer(3))
    measured(health, offers[0], 0.5)
    measured(health, offers[1], 0.2)
    held = policy(strategy="priority", factor="latency")
    firsts = [order(offers, held, health=health, seed=seed)[0] for seed in range(400)]
    assert set(firsts) == {2, 3}
    assert 8 <= firsts.count(3) <= 40  # one in 20


def test_least_latency_looks_past_priority() -> None:
    health = Health()
    offers = (make_offer(1, priority=0), make_offer(2, priority=9))
    measured(health, offers[0], 2.0)
    measured(health, offers[1], 0.1)
    firsts = [order(offers, policy(strategy="least_latency"), health=health, seed=seed)[0] for seed in range(200)]
    assert firsts.count(2) > 180
    assert order(offers, DEFAULT, health=health) == [1, 2]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((1, 1, 1), (0, 1, 2)),
        ((2, 1), (0, 1, 0)),
        ((4, 2, 2), (0, 1, 2, 0)),
        ((1, 0), (0,)),
        ((0, 0), (0, 1)),
    ],
)
def test_a_round_is_even(weights: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert rotation(weights) == expected


def test_a_round_of_great_weights_is_bounded() -> None:
    found = rotation((32_767, 1, 16_383))
    assert len(found) <= 1000
    assert found.count(0) == pytest.approx(2 * found.count(2), abs=2)
    assert found.count(1) == 1


def test_round_robin_spreads_over_those_that_can_be_used() -> None:
    offers = [make_offer(id, weight=weight) for id, weight in ((1, 2), (2, 1), (3, 1))]
    held = policy(strategy="round_robin")
    firsts = [order(offers, held, turn=turn)[0] for turn in range(400)]
    assert [firsts.count(id) for id in (1, 2, 3)] == [200, 100, 100]
    health = Health()
    failed(health, offers[0], Fault.RATE_LIMITED, times=1, retry_after=20.0)
    firsts = [order(offers, held, turn=turn, health=health)[0] for turn in range(400)]
    assert [firsts.count(id) for id in (1, 2, 3)] == [0, 200, 200]
    assert sorted(order(offers, held, turn=3)) == [1, 2, 3]


# --- conversations --------------------------------------------------------------------------------------------------

CACHING = (
    make_offer(1, versions=rates(input="1.0", output="2")),
    make_offer(2, versions=rates(input="1.5", output="2", cached_input="0.2"), priority=1),
)
CHEAPEST = policy(strategy="priority", factor="price")


def test_a_conversation_stays_where_its_prompt_is_cached_while_that_costs_no_more() -> None:
    assert order(CACHING, CHEAPEST) == [1, 2]
    found = planned([make_model(*CACHING)], wanting(seat=2), CHEAPEST, Health(), 0)
    assert ids(found) == [2, 1]
    assert found.taken[0].reason is Reason.SEAT
    dear = (CACHING[0], replace(CACHING[1], versions=rates(input="5", output="20", cached_input="0.2")))
    assert order(dear, CHEAPEST, seat=2) == [1, 2]


def test_it_moves_when_its_offer_rests() -> None:
    health = Health()
    failed(health, CACHING[1], Fault.SERVER_ERROR)
    assert order(CACHING, CHEAPEST, seat=2, health=health)[0] == 1


def test_a_seat_does_not_pass_priority_nor_an_explicit_list_nor_a_turn() -> None:
    assert order(CACHING, DEFAULT, seat=2) == [1, 2]
    alike = (replace(CACHING[0], priority=0), replace(CACHING[1], priority=0))
    assert {order(alike, DEFAULT, seat=2, seed=seed)[0] for seed in range(20)} == {2}
    assert order(alike, policy(strategy="priority", providers=("p1", "p2")), seat=2) == [1, 2]
    assert order(alike, policy(strategy="round_robin"), seat=2, turn=0) == [1, 2]


def test_a_seat_that_was_paid_for_is_kept_whatever_it_costs_while_its_offer_is_well() -> None:
    assert order(CACHING, DEFAULT, seat=2, stays=True) == [2, 1]
    assert order(CACHING, policy(strategy="priority", providers=("p1", "p2")), seat=2, stays=True) == [1, 2]
    health = Health()
    failed(health, CACHING[1], Fault.SERVER_ERROR)
    assert order(CACHING, DEFAULT, seat=2, stays=True, health=health) == [1]


def test_by_latency_a_seat_is_kept_while_it_is_about_as_fast() -> None:
    health = Health()
    offers = (make_offer(1), make_offer(2), make_offer(3))
    measured(health, offers[0], 0.50)
    measured(health, offers[1], 0.60)
    measured(health, offers[2], 9.0)
    held = policy(strategy="least_latency")
    assert {order(offers, held, health=health, seat=2, seed=seed)[0] for seed in range(50)} == {2}
    assert 1 in {order(offers, held, health=health, seat=3, seed=seed)[0] for seed in range(50)}
    unmeasured = (*offers, make_offer(4))
    assert 4 in {order(unmeasured, held, health=health, seat=2, seed=seed)[0] for seed in range(100)}


def test_signed_thoughts_go_to_the_kind_of_provider_that_made_them() -> None:
    offers = (
        make_offer(1, make_provider("p1", reasoning_format="other-v1")),
        make_offer(2, make_provider("p2"), priority=1),
        make_offer(3, make_provider("p3", reasoning_format="own-v1"), priority=2),
    )
    assert order(offers, formats=frozenset({"own-v1"})) == [3, 2, 1]
    assert order(offers) == [1, 2, 3]
    # Whoever answered signed them, so cost and priority do not matter.
    assert order(offers, formats=frozenset({"own-v1"}), seat=2) == [2, 3, 1]


# --- several models -------------------------------------------------------------------------------------------------


def test_further_models_follow_and_one_attempt_is_kept_for_them() -> None:
    first = make_model(*THREE, id=1, slug="acme/one")
    second = make_model(make_offer(8), make_offer(9, priority=1), id=2, slug="acme/two")
    found = planned([first, second], wanting(), DEFAULT, Health(), 0)
    assert [one.offer.id for one in found.taken] == [1, 2, 8]
    assert ids(found) == [1, 2, 8, 3, 9]
    assert [one.model.slug for one in found.taken] == ["acme/one", "acme/one", "acme/two"]
    alone = planned([first, second], wanting(), policy(fallback=False), Health(), 0)
    assert ids(alone) == [1]


def test_each_model_has_its_own_policy_and_bounds() -> None:
    first = make_model(make_offer(1), id=1, slug="acme/one")
    second = make_model(make_offer(8), make_offer(9), id=2, slug="acme/two", image_token_bound=5000)
    only = policy(only_providers=frozenset({"p9"}))
    found = planned([first, second], wanting(images=1), DEFAULT, Health(), 0, [only])
    assert ids(found) == [1, 9]
    assert found.input_tokens == 5400
    assert reasons(found.candidates())[8] == "not_allowed"


# --- the record -----------------------------------------------------------------------------------------------------


def test_a_long_list_is_as_good_as_a_short_one() -> None:
    listed = (*(f"n{number}" for number in range(20)), "p2", "p1")
    held = policy(strategy="order", providers=listed, fallback=False)
    assert order(THREE, held) == order(THREE, held) == [2, 1]


def test_its_record() -> None:
    offers = (*THREE[:2], make_offer(3, max_output=10), make_offer(4, versions=()))
    held = together([Policy(strategy="priority", factor="price", max_attempts=1, source="key")])
    model = make_model(*offers)
    found = planned([model], wanting(max_price=Decimal("0.0024"), output_cap=50), held, Health(), 5)
    assert found.record() == {
        "model": "acme/m",
        "seed": 5,
        "by": "key",
        "taken": 1,
        "wanted": {"bytes": 400, "cap": 50, "max_price": "0.0024"},
        "policy": {"factor": "price", "max_attempts": 1},
        "offers": [[1, "p1", "m", "price", 3.0], [3, "p3", "m", "price", 3.0], [2, "p2", "m", "price", 3.0]],
        "out": [[4, "p4", "m", "unpriced", None]],
    }


def test_four_processes_take_even_turns_each_from_where_it_began() -> None:
    model, held = make_model(make_offer(1), make_offer(2), make_offer(3)), policy(strategy="round_robin")
    firsts: Counter[int] = Counter()
    for process in range(4):
        rotations = Rotations(random.Random(process))
        for _ in range(750):
            found = planned([model], wanting(turn=rotations.turn("a")), held, Health(), 0)
            firsts[found.taken[0].offer.id] += 1
    assert firsts == {1: 1000, 2: 1000, 3: 1000}
