"""Who goes first by speed, and what the figures are made of."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.health.faults import Fault
from routing.health.health import Health, Standing, State
from routing.health.latency import Decayed, Published, fastest_first, size_class
from tests.routing.offers import make_offer


def standing(
    seconds: float | None, *, known: bool = True, in_flight: int = 0, uptime: float | None = 1.0, state: str = "usable"
) -> Standing:
    """An offer with an expected time."""
    return Standing(State(state), None, 0.0, seconds, None, None, uptime, known, in_flight)


def firsts(standings: list[Standing], times: int = 20_000) -> list[float]:
    """How often each goes first."""
    rng = random.Random(1)
    counted = Counter(fastest_first(standings, rng)[0] for _ in range(times))
    return [counted[index] / times for index in range(len(standings))]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(0, 0), (999, 0), (1_000, 1), (7_999, 1), (8_000, 2), (32_000, 3), (127_999, 3), (128_000, 4), (10**9, 4)],
)
def test_size_classes_begin_at_their_bounds(tokens: int, expected: int) -> None:
    assert size_class(tokens) == expected


@given(
    st.lists(
        st.builds(
            standing,
            st.none() | st.floats(0.001, 1000),
            known=st.booleans(),
            in_flight=st.integers(0, 50),
            uptime=st.none() | st.floats(0, 1),
            state=st.sampled_from(["usable", "probe"]),
        ),
        max_size=20,
    ),
    st.integers(),
)
def test_the_order_holds_each_offer_once_and_is_the_same_for_the_same_seed(found: list[Standing], seed: int) -> None:
    order = fastest_first(found, random.Random(seed))
    assert sorted(order) == list(range(len(found)))
    assert fastest_first(found, random.Random(seed)) == order
    if any(one.state is State.PROBE for one in found):
        assert found[order[0]].state is State.PROBE


def test_the_fastest_goes_first_but_for_a_second_look_at_the_others() -> None:
    shares = firsts([standing(2.0), standing(1.0), standing(3.0)])
    assert shares[1] == pytest.approx(0.98, abs=0.005)
    assert shares[0] == pytest.approx(0.01, abs=0.005)


def test_the_rest_follows_by_speed_and_the_unknown_last() -> None:
    found = [standing(None, known=False), standing(3.0), standing(1.0), standing(2.0)]
    orders = {tuple(fastest_first(found, random.Random(seed))) for seed in range(50)}
    assert (2, 3, 1, 0) in orders
    assert (0, 2, 3, 1) in orders


def test_of_those_as_good_as_the_best_the_less_busy_one_goes_first() -> None:
    shares = firsts([standing(1.0, in_flight=9), standing(1.04, in_flight=1), standing(1.2)])
    assert shares[1] == pytest.approx(0.98, abs=0.005)


def test_those_as_good_as_the_best_share_the_traffic() -> None:
    shares = firsts([standing(1.0) for _ in range(4)])
    assert all(0.2 < share < 0.3 for share in shares)


@pytest.mark.parametrize(("new", "share"), [(1, 0.1), (3, 0.1), (10, 0.05)])
def test_each_new_offer_gets_its_share_and_all_of_them_no_more_than_half(new: int, share: float) -> None:
    shares = firsts([standing(1.0), *[standing(0.1, known=False) for _ in range(new)]])
    assert all(one == pytest.approx(share, abs=0.01) for one in shares[1:])


def test_when_all_are_new_all_are_tried() -> None:
    shares = firsts([standing(None, known=False) for _ in range(5)])
    assert all(one == pytest.approx(0.2, abs=0.02) for one in shares)


def test_failures_make_an_offer_slower_than_it_looks() -> None:
    assert firsts([standing(1.0, uptime=0.8), standing(2.0)])[1] > 0.97
    assert firsts([standing(1.0, uptime=0.9), standing(2.0)])[0] > 0.97


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 30)), min_size=1, max_size=60))
def test_a_live_figure_lies_between_what_was_measured(measured: list[tuple[float, float]]) -> None:
    figure, now = Decayed(), 0.0
    for value, passed in measured:
        now += passed
        figure.observe(value, now)
    values = [value for value, _ in measured]
    assert min(values) * 0.999 <= figure.value() <= max(values) * 1.001
    assert 0 < figure.weight(now) <= len(values)
    assert figure.weight(now + 60) < figure.weight(now)


def test_a_live_figure_follows_a_step_within_seconds_up_and_more_slowly_down() -> None:
    figure = Decayed()
    for number in range(400):
        figure.observe(1.0, number / 10)
    for number in range(40):
        figure.observe(5.0, 40 + number / 10)
    assert figure.value() > 3.4
    for number in range(40):
        figure.observe(1.0, 44 + number / 10)
    assert 1.2 < figure.value() < 3.4


def published(ttft_ms: float, count: int, age: float = 0.0, *, provider: str, uptime: float = 1.0) -> Published:
    """What the statistics say of an offer of `tests.routing.offers`, for the least prompts."""
    return Published("test/model", provider, "upstream", 0, ttft_ms, 10.0, 100.0, uptime, count, age)


def stream(health: Health, offer: object, now: float, ttft: float, tokens: int = 101, token: float = 0.01) -> None:
    """A streamed answer that began at `now`."""
    trial = health.begin(offer, None, now)  # type: ignore[arg-type]
    trial.first_byte(now + ttft)
    trial.succeeded(now + ttft + (tokens - 1) * token, tokens)


def test_a_new_process_starts_from_the_published_statistics() -> None:
    health, offer, other = Health(), make_offer(), make_offer()
    health.learn([published(500.0, 1000, provider=offer.provider.slug, uptime=0.75)], 0.0)
    found, unknown = health.standings([offer, other], 0, 0.0)
    assert (found.ttft, found.throughput, found.uptime, found.known) == (0.5, 100.0, 0.75, True)
    assert found.seconds == pytest.approx(0.5 + 200 * 0.01)
    assert (unknown.seconds, unknown.ttft, unknown.uptime, unknown.known) == (None, None, None, False)
    assert health.standings([offer], 1, 0.0)[0].seconds is None  # of another size nothing was said


def test_statistics_count_by_the_number_of_calls_and_less_when_they_are_old() -> None:
    offer = make_offer()
    estimates = []
    for count, age in ((1000, 0.0), (1000, 600.0), (1000, 6000.0), (5, 0.0)):
        health = Health()
        health.learn([published(3000.0, count, age, provider=offer.provider.slug)], 0.0)
        for number in range(20):
            stream(health, offer, number * 0.01, 1.0)
        estimates.append(health.standings([offer], 0, 2.0)[0].ttft or 0.0)
    fresh, old, ancient, few = estimates
    assert 1.9 < fresh < 2.2
    assert 1.4 < old < fresh
    assert 1.0 <= ancient < 1.01
    assert 1.2 < few < old


def test_learning_again_replaces_what_was_learnt() -> None:
    health, offer = Health(), make_offer()
    health.learn([published(500.0, 1000, provider=offer.provider.slug)], 0.0)
    health.learn([], 1.0)
    assert health.standings([offer], 0, 1.0)[0].seconds is None


def test_calls_of_one_size_say_nothing_about_another() -> None:
    health, offer = Health(), make_offer()
    for number in range(20):
        stream(health, offer, float(number), 1.0)
    assert health.standings([offer], 0, 20.0)[0].known
    assert not health.standings([offer], 3, 20.0)[0].known


def test_streams_are_measured_by_their_first_token_and_by_each_further_one() -> None:
    health, offer = Health(), make_offer()
    for number in range(20):
        stream(health, offer, number * 0.5, 0.4, tokens=51, token=0.02)
    found = health.standings([offer], 0, 12.0)[0]
    assert found.ttft == pytest.approx(0.4)
    assert found.throughput == pytest.approx(50.0)
    assert found.seconds == pytest.approx(0.4 + 200 * 0.02)


def test_a_whole_answer_is_judged_by_its_length() -> None:
    health, short, long = Health(), make_offer(), make_offer()
    for number in range(20):
        # The same offer in truth: half a second and 20 ms a token.
        for offer, tokens in ((short, 10), (long, 1000)):
            trial = health.begin(offer, None, number * 1.0, streamed=False)
            trial.succeeded(number * 1.0 + 0.5 + tokens * 0.02, tokens)
    first, second = health.standings([short, long], 0, 45.0)
    assert first.seconds == pytest.approx(4.5)
    assert second.seconds == pytest.approx(4.5)


def test_calls_that_wait_for_longer_than_usual_make_an_offer_slow_before_they_end() -> None:
    health, offer = Health(), make_offer()
    for number in range(20):
        stream(health, offer, float(number), 0.5)
    for _ in range(5):
        health.begin(offer, None, 30.0)
    assert health.standings([offer], 0, 30.4)[0].ttft == pytest.approx(0.5)
    assert health.standings([offer], 0, 34.0)[0].ttft == pytest.approx(4.0)


def test_a_client_that_leaves_a_slow_offer_teaches_that_it_is_slow() -> None:
    health, offer = Health(), make_offer()
    for number in range(20):
        stream(health, offer, float(number), 0.5)
    for number in range(5):
        health.begin(offer, None, 30.0 + number).left(36.0 + number)
    found = health.standings([offer], 0, 41.0)[0]
    assert found.ttft is not None
    assert found.ttft > 2.0


def test_what_was_begun_is_in_flight_until_it_ends_once() -> None:
    health, offer = Health(), make_offer()
    trials = [health.begin(offer, None, 0.0, streamed=streamed) for streamed in (True, True, False)]
    assert health.standings([offer], 0, 0.0)[0].in_flight == 3
    trials[0].succeeded(1.0, 5)
    trials[0].left(1.0)
    trials[0].failed(Fault.TIMEOUT, 1.0)
    assert health.standings([offer], 0, 1.0)[0].in_flight == 2
    trials[1].failed(Fault.REJECTED, 1.0, None, 400)
    trials[2].left(1.0)
    assert health.standings([offer], 0, 1.0)[0].in_flight == 0


def test_uptime_counts_the_offers_failures_alone() -> None:
    health, offer = Health(), make_offer()
    for number in range(15):
        health.begin(offer, offer.credentials[0], float(number)).succeeded(float(number), 1)
    for fault in (Fault.REJECTED, Fault.RATE_LIMITED):
        health.begin(offer, offer.credentials[0], 15.0).failed(fault, 15.0)
    assert health.standings([offer], 0, 15.0)[0].uptime == 1.0
    for _ in range(4):
        health.begin(offer, offer.credentials[0], 16.0).failed(Fault.SERVER_ERROR, 16.0)
    assert health.standings([offer], 0, 16.0)[0].uptime == pytest.approx(20 / 24)


def test_a_recovered_offer_is_new_again() -> None:
    health, offer = Health(), make_offer()
    health.learn([published(500.0, 1000, provider=offer.provider.slug)], 0.0)
    for number in range(20):
        stream(health, offer, number * 0.1, 0.5)
    for _ in range(5):
        health.begin(offer, offer.credentials[0], 10.0).failed(Fault.UNREACHABLE, 10.0)
    health.begin(offer, offer.credentials[0], 20.0, probe=True).first_byte(21.0)
    assert not health.standings([offer], 0, 21.0)[0].known
    for number in range(10):
        stream(health, offer, 21.0 + number * 0.1, 0.5)
    assert health.standings([offer], 0, 30.0)[0].known
