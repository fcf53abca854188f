"""When an offer or a credential rests, for how long, and how it comes back. All times are given, none is waited for."""

import math
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.catalog import Offer
from routing.health.breaker import Evidence, Outcomes, Subject, cool_seconds
from routing.health.faults import Blame, Fault, blame
from routing.health.health import Health, Standing, State
from routing.health.rests import Heard
from tests.routing.offers import make_offer, make_provider

OFFERS_FAULT = sorted(fault for fault in Fault if blame(fault) is Blame.OFFER)


def fail(health: Health, offer: Offer, now: float, fault: Fault = Fault.SERVER_ERROR, **said: float | int) -> None:
    """A dial that began and failed at `now`."""
    health.begin(offer, offer.credentials[0] if offer.credentials else None, now).failed(fault, now, **said)  # type: ignore[arg-type]


def succeed(health: Health, offer: Offer, now: float) -> None:
    """A dial that began and succeeded at `now`."""
    health.begin(offer, offer.credentials[0], now).succeeded(now, 1)


def one(health: Health, offer: Offer, now: float) -> Standing:
    """How an offer stands that has a healthy neighbour."""
    return health.standings([offer, make_offer()], 0, now)[0]


def eject(health: Health, offer: Offer, now: float) -> None:
    """Opens the breaker of an offer."""
    for _ in range(offer.provider.failure_threshold):
        fail(health, offer, now)


@pytest.mark.parametrize("fault", OFFERS_FAULT)
def test_failures_in_a_row_open_the_breaker(fault: Fault) -> None:
    health, offer = Health(), make_offer()
    for number in range(5):
        assert one(health, offer, float(number)).state is State.USABLE
        fail(health, offer, float(number), fault)
    assert one(health, offer, 4.0)[:3] == (State.RESTING, offer.credentials[0], 14.0)
    assert one(health, offer, 13.99).state is State.RESTING
    assert one(health, offer, 14.0).state is State.PROBE


def test_a_threshold_of_one_opens_at_the_first_failure() -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    fail(health, offer, 0.0, Fault.UNREACHABLE)
    assert one(health, offer, 0.0).state is State.RESTING


def test_a_success_between_failures_begins_the_count_anew() -> None:
    health, offer = Health(), make_offer()
    for number in range(12):
        (succeed if number % 4 == 3 else fail)(health, offer, number * 100.0)
    assert one(health, offer, 1200.0).state is State.USABLE


def test_half_of_twenty_calls_failing_in_half_a_minute_opens_it_whatever_their_order() -> None:
    health, offer = Health(), make_offer()
    for number in range(19):
        (succeed if number % 2 else fail)(health, offer, float(number))
    assert one(health, offer, 19.0).state is State.USABLE
    succeed(health, offer, 19.0)
    fail(health, offer, 19.5)
    assert one(health, offer, 19.5).state is State.RESTING


def test_the_same_ratio_over_a_longer_time_does_not() -> None:
    health, offer = Health(), make_offer()
    for number in range(60):
        (succeed if number % 2 else fail)(health, offer, number * 3.0)
    assert one(health, offer, 180.0).state is State.USABLE


@pytest.mark.parametrize("status", [400, 413, 422, None])
def test_a_clients_fault_punishes_nobody(status: int | None) -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    for _ in range(100):
        health.begin(offer, offer.credentials[0], 0.0).failed(Fault.REJECTED, 0.0, status=status)
    assert one(health, offer, 0.0)[:2] == (State.USABLE, offer.credentials[0])
    assert one(health, offer, 0.0).uptime is None


def test_a_model_the_provider_no_longer_has_is_the_offers_fault() -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    fail(health, offer, 0.0, Fault.NOT_FOUND, status=404)
    assert one(health, offer, 0.0).state is State.RESTING


def test_each_rest_in_a_row_is_twice_as_long_and_none_longer_than_five_minutes() -> None:
    health, offer = Health(), make_offer()
    eject(health, offer, 0.0)
    now, lengths = 0.0, []
    for _ in range(8):
        until = one(health, offer, now).until
        lengths.append(until - now)
        now = until
        health.begin(offer, offer.credentials[0], now, probe=True).failed(Fault.TIMEOUT, now)
    assert lengths == [10, 20, 40, 80, 160, 300, 300, 300]


def test_an_offer_that_fails_again_soon_after_its_recovery_rests_for_longer_and_later_it_does_not() -> None:
    health, offer = Health(), make_offer()
    eject(health, offer, 0.0)
    health.begin(offer, offer.credentials[0], 10.0, probe=True).succeeded(10.0, 1)
    assert one(health, offer, 10.0).state is State.USABLE
    eject(health, offer, 20.0)
    assert one(health, offer, 20.0).until == 40.0
    health.begin(offer, offer.credentials[0], 40.0, probe=True).succeeded(40.0, 1)
    eject(health, offer, 400.0)
    assert one(health, offer, 400.0).until == 410.0


def test_one_request_is_the_probe_and_the_others_go_elsewhere() -> None:
    health, offer = Health(), make_offer()
    eject(health, offer, 0.0)
    assert one(health, offer, 10.0).state is State.PROBE
    probe = health.begin(offer, offer.credentials[0], 10.0, probe=True)
    assert one(health, offer, 10.0).state is State.RESTING
    assert health.claim(offer, offer.credentials[0], 10.0) == []
    probe.first_byte(12.0)
    assert one(health, offer, 12.0).state is State.USABLE


def test_a_client_that_leaves_gives_the_probe_back() -> None:
    health, offer = Health(), make_offer()
    eject(health, offer, 0.0)
    probe = health.begin(offer, offer.credentials[0], 10.0, probe=True)
    probe.left(11.0)
    assert one(health, offer, 11.0).state is State.PROBE
    probe.succeeded(12.0, 5)  # too late: it has ended
    assert one(health, offer, 12.0).state is State.PROBE


def test_a_probe_that_never_ends_is_given_up_after_a_minute() -> None:
    health, offer = Health(), make_offer()
    eject(health, offer, 0.0)
    health.begin(offer, offer.credentials[0], 10.0, probe=True)
    assert one(health, offer, 69.9).state is State.RESTING
    assert one(health, offer, 70.0).state is State.PROBE


def test_calls_that_began_before_the_rest_neither_prolong_nor_end_it() -> None:
    health, offer = Health(), make_offer()
    early = [health.begin(offer, offer.credentials[0], 0.0) for _ in range(4)]
    eject(health, offer, 1.0)
    early[0].failed(Fault.TIMEOUT, 5.0)
    early[1].succeeded(6.0, 1)
    assert one(health, offer, 6.0)[::2][:2] == (State.RESTING, 11.0)
    health.begin(offer, offer.credentials[0], 11.0, probe=True).succeeded(12.0, 1)
    for trial in early:
        trial.failed(Fault.TIMEOUT, 13.0)
    for _ in range(4):
        fail(health, offer, 13.0)
    assert one(health, offer, 13.0).state is State.USABLE


def test_a_stream_that_breaks_after_the_probe_counts_as_a_failure_of_the_recovered_offer() -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    fail(health, offer, 0.0)
    probe = health.begin(offer, offer.credentials[0], 10.0, probe=True)
    probe.first_byte(11.0)
    probe.failed(Fault.TRUNCATED, 12.0)
    assert one(health, offer, 12.0)[::2][:2] == (State.RESTING, 32.0)


def test_no_more_than_half_of_the_offers_rest() -> None:
    health, offers = Health(), [make_offer() for _ in range(5)]
    for number in (3, 1, 0, 4):
        eject(health, offers[number], float(number != 3))
    states = [standing.state for standing in health.standings(offers, 0, 2.0)]
    assert states[2] is State.USABLE
    assert sorted(states) == [State.LAST, State.LAST, State.RESTING, State.RESTING, State.USABLE]
    assert states[3] is State.RESTING  # it was the first


def test_when_all_rest_all_are_used_and_a_success_ends_the_rest() -> None:
    health, offers = Health(), [make_offer() for _ in range(3)]
    for offer in offers:
        eject(health, offer, 0.0)
    assert [standing.state for standing in health.standings(offers, 0, 1.0)] == [State.LAST] * 3
    succeed(health, offers[1], 2.0)
    assert [standing.state for standing in health.standings(offers, 0, 2.0)] == [
        State.RESTING, State.USABLE, State.LAST,
    ]  # fmt: skip


def test_cooled_offers_are_not_used_though_nothing_else_is_left() -> None:
    health, offers = Health(), [make_offer() for _ in range(2)]
    fail(health, offers[0], 0.0, Fault.RATE_LIMITED, retry_after=30.0)
    fail(health, offers[1], 0.0, Fault.RATE_LIMITED)
    found = health.standings(offers, 0, 1.0)
    assert [(standing.state, standing.until) for standing in found] == [(State.COOLING, 30.0), (State.COOLING, 10.0)]


def test_a_model_with_one_offer_is_not_silent_while_its_cool_down_is_probed() -> None:
    health, offer = Health(), make_offer()
    fail(health, offer, 0.0, Fault.RATE_LIMITED)
    health.begin(offer, offer.credentials[0], 10.0, probe=True)
    assert [standing.state for standing in health.standings([offer], 0, 10.0)] == [State.LAST]


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(20, 20), (0, 1), (0.2, 1), (1e9, 60), (61, 60), (-1, 15), (None, 15), (math.nan, 15), (math.inf, 15)],
)
def test_retry_after_is_honoured_where_it_makes_sense(asked: float | None, seconds: float) -> None:
    assert cool_seconds(15.0, asked) == seconds
    health, offer = Health(), make_offer(make_provider(cooldown=15.0))
    health.begin(offer, offer.credentials[0], 100.0).failed(Fault.RATE_LIMITED, 100.0, asked, 429)
    assert one(health, offer, 100.0)[::2][:2] == (State.COOLING, 100.0 + seconds)


def test_a_provider_that_is_always_rate_limited_is_asked_once_a_cool_down() -> None:
    health, offer = Health(), make_offer(make_provider(cooldown=15.0))
    called = []
    for now in range(0, 51, 5):
        standing = one(health, offer, float(now))
        if standing.state in (State.USABLE, State.PROBE):
            called.append(now)
            trial = health.begin(offer, standing.credential, float(now), standing.state is State.PROBE)
            trial.failed(Fault.RATE_LIMITED, float(now), None, 429)
    assert called == [0, 15, 30, 45]


def test_a_rate_limit_rests_the_offer_with_that_credential_alone() -> None:
    provider = make_provider()
    first, second = make_offer(provider, credentials=2), make_offer(provider)
    health = Health()
    fail(health, first, 0.0, Fault.RATE_LIMITED)
    assert one(health, first, 0.0)[:2] == (State.USABLE, first.credentials[1])
    assert one(health, second, 0.0)[:2] == (State.USABLE, second.credentials[0])


@pytest.mark.parametrize("fault", [Fault.AUTH, Fault.EXHAUSTED])
def test_a_refused_credential_rests_at_all_offers_of_its_provider(fault: Fault) -> None:
    first = make_offer(credentials=2)
    second = replace(first, id=first.id + 100_000)
    health = Health()
    fail(health, first, 0.0, fault, status=401)
    for offer in (first, second):
        assert one(health, offer, 0.0)[:2] == (State.USABLE, first.credentials[1])
    health.begin(second, first.credentials[1], 0.0).failed(fault, 0.0, status=401)
    assert one(health, first, 0.0)[::2][:2] == (State.COOLING, 10.0)
    assert one(health, first, 10.0)[:2] == (State.PROBE, first.credentials[0])


def test_a_403_rests_the_credential_for_that_offer_alone() -> None:
    first = make_offer()
    other = replace(first, id=first.id + 100_000)
    health = Health()
    fail(health, first, 0.0, Fault.AUTH, status=403)
    assert one(health, first, 0.0).state is State.COOLING
    assert one(health, other, 0.0).state is State.USABLE


def test_a_provider_without_credentials_is_rate_limited_as_an_offer() -> None:
    offer = make_offer(make_provider(auth_style="none"), credentials=0)
    health = Health()
    assert one(health, offer, 0.0)[:2] == (State.USABLE, None)
    fail(health, offer, 0.0, Fault.RATE_LIMITED, retry_after=7.0)
    assert one(health, offer, 0.0)[::2][:2] == (State.COOLING, 7.0)
    probe = health.begin(offer, None, 7.0, probe=True)
    probe.failed(Fault.RATE_LIMITED, 7.0, 9.0)
    assert one(health, offer, 7.0)[::2][:2] == (State.COOLING, 16.0)
    assert [rest.count for rest in health.rests.open.values()] == [2]
    assert one(health, offer, 7.0).known is False


def test_an_offer_that_answers_a_probe_with_429_is_reachable_again() -> None:
    health, offer = Health(), make_offer(credentials=2)
    eject(health, offer, 0.0)
    health.begin(offer, offer.credentials[0], 10.0, probe=True).failed(Fault.RATE_LIMITED, 10.0, 30.0, 429)
    assert one(health, offer, 10.0)[:2] == (State.USABLE, offer.credentials[1])


def test_the_operators_word_is_above_the_breakers() -> None:
    health = Health()
    open, closed = make_offer(forced="open"), make_offer(forced="closed")
    assert one(health, open, 0.0).state is State.REFUSED
    for _ in range(50):
        fail(health, closed, 0.0)
    assert one(health, closed, 0.0).state is State.USABLE
    fail(health, closed, 0.0, Fault.RATE_LIMITED, retry_after=5.0)
    assert one(health, closed, 0.0).state is State.COOLING


def test_an_offer_without_any_credential_is_refused_even_when_nothing_else_is_left() -> None:
    assert [standing.state for standing in Health().standings([make_offer(credentials=0)], 0, 0.0)] == [State.REFUSED]


def test_what_another_process_tells_holds_here_and_so_does_its_end() -> None:
    health, offer = Health(), make_offer()
    subject = Subject(offer.id, None)
    health.hear([Heard(subject, Fault.TIMEOUT, 20.0, 0.0, 2, False)], 100.0)
    assert one(health, offer, 100.0)[::2][:2] == (State.RESTING, 120.0)
    health.hear([Heard(subject, Fault.TIMEOUT, -1.0, 60.0, 2, False)], 121.0)
    assert one(health, offer, 121.0)[::2][:2] == (State.RESTING, 181.0)  # its probe is out
    health.hear([Heard(subject, Fault.TIMEOUT, -1.0, 0.0, 2, True)], 122.0)
    assert one(health, offer, 122.0).state is State.USABLE
    eject(health, offer, 123.0)
    assert one(health, offer, 123.0).until == 163.0  # the third in a row


def test_what_this_process_just_decided_is_not_undone_by_older_news() -> None:
    health, offer = Health(), make_offer()
    subject = Subject(offer.id, None)
    eject(health, offer, 100.0)
    health.hear([Heard(subject, Fault.TIMEOUT, -5.0, 0.0, 1, False)], 100.1)
    assert one(health, offer, 100.1)[::2][:2] == (State.RESTING, 110.0)
    # It comes back, a little later: who was told that it ends at 110 may ask then.
    health.hear([Heard(subject, Fault.SERVER_ERROR, 9.9, 0.0, 1, False)], 100.2)
    assert one(health, offer, 100.2).until == 110.0
    health.hear([Heard(subject, Fault.SERVER_ERROR, 9.9, 0.0, 1, False)], 100.3)  # another process's
    assert one(health, offer, 100.3).until == pytest.approx(110.2)
    health.hear([Heard(subject, Fault.SERVER_ERROR, -1.0, 0.0, 1, False)], 100.3)
    assert one(health, offer, 100.3).state is State.PROBE


@given(
    st.lists(st.tuples(st.sampled_from(["good", "bad"]), st.floats(0, 20)), max_size=80),
    st.integers(1, 10),
    st.sampled_from([None, uuid4()]),
)
def test_the_window_counts_as_a_plain_list_does(
    events: list[tuple[str, float]], threshold: int, tenant: UUID | None
) -> None:
    outcomes, now, past = Outcomes(), 0.0, []
    for kind, passed in events:
        now += passed
        past.append((now, kind))
        tripped = Evidence.NONE
        if kind == "bad":
            tripped = outcomes.bad(now, threshold, tenant)
        else:
            outcomes.good(now)
        # Slices of five seconds: what is certainly inside the window is counted, and nothing older than it.
        inside = [of for at, of in past if at // 5 > now // 5 - 6]
        assert outcomes.seen(now, tenant) == (inside.count("good"), inside.count("bad"))
        in_a_row = 0
        for _, of in past:
            in_a_row = in_a_row + 1 if of == "bad" else 0
        expected = kind == "bad" and (
            in_a_row >= threshold or (len(inside) >= 20 and inside.count("bad") * 2 >= len(inside))
        )
        # The failures of one tenant alone are evidence for that tenant.
        enough = Evidence.ALL if tenant is None else Evidence.OWN
        assert tripped is (enough if expected else Evidence.NONE)


def test_every_fault_has_one_to_blame() -> None:
    assert {fault: blame(fault) for fault in Fault if blame(fault) is not Blame.OFFER} == {
        Fault.AUTH: Blame.CREDENTIAL,
        Fault.EXHAUSTED: Blame.CREDENTIAL,
        Fault.RATE_LIMITED: Blame.COOL,
        Fault.REJECTED: Blame.NOBODY,
    }
