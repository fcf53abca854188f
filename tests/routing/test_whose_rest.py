"""For whom something rests: what one tenant's requests provoke at a provider keeps nobody else from it.

`threshold` failures rest an offer; a credential rests at the first. Times are given, none is waited for.
"""

from uuid import UUID, uuid4

import pytest

from routing.catalog import Offer
from routing.health.breaker import MOST_TENANTS, Evidence, Outcomes, Subject, weighed
from routing.health.faults import Fault
from routing.health.health import Health, State
from routing.health.rests import Heard
from tests.routing.offers import make_offer, make_provider

ALICE, BOB, CHARLIE = (UUID(int=number) for number in (1, 2, 3))
AT_ONCE = [(Fault.AUTH, 401), (Fault.AUTH, 403), (Fault.EXHAUSTED, 402), (Fault.RATE_LIMITED, 429)]


def fail(health: Health, offer: Offer, now: float, tenant: UUID, fault: Fault, status: int = 0) -> None:
    """A request of `tenant` fails."""
    trial = health.begin(offer, offer.credentials[0], now, tenant=tenant)
    trial.failed(fault, now, None, status or None)


def succeed(health: Health, offer: Offer, now: float, tenant: UUID) -> None:
    """A request of `tenant` is answered."""
    health.begin(offer, offer.credentials[0], now, tenant=tenant).succeeded(now, 1)


def states(health: Health, offer: Offer, now: float) -> list[State]:
    """How an offer with a healthy neighbour stands for the three, and for nobody in particular."""
    other = make_offer()
    return [health.standings([offer, other], 0, now, tenant)[0].state for tenant in (ALICE, BOB, CHARLIE, None)]


USABLE, RESTING, COOLING, PROBE = State.USABLE, State.RESTING, State.COOLING, State.PROBE


@pytest.mark.parametrize(("fault", "status"), AT_ONCE)
def test_one_tenants_refusal_rests_the_credential_for_that_tenant_alone(fault: Fault, status: int) -> None:
    health, offer = Health(), make_offer()
    for now in range(5):
        fail(health, offer, float(now), ALICE, fault, status)
        assert states(health, offer, float(now)) == [COOLING, USABLE, USABLE, USABLE]
    assert len(health.rests.open) == 1


@pytest.mark.parametrize(("fault", "status"), AT_ONCE)
def test_a_second_tenants_refusal_rests_it_for_all_and_counts_from_there(fault: Fault, status: int) -> None:
    health, offer = Health(), make_offer()
    for now in (0.0, 10.0, 30.0):  # Alice's own probes fail: 10, 20 and 40 s, or 10 s each time
        fail(health, offer, now, ALICE, fault, status)
    fail(health, offer, 31.0, BOB, fault, status)
    assert states(health, offer, 31.0) == [COOLING] * 4
    ((rest),) = health.rests.open.values()
    assert (rest.tenant, rest.count, rest.until) == (None, 1, 41.0)


def test_a_long_past_refusal_of_one_is_no_evidence_with_that_of_another() -> None:
    health, offer = Health(), make_offer()
    fail(health, offer, 0.0, ALICE, Fault.RATE_LIMITED)
    fail(health, offer, 1000.0, BOB, Fault.RATE_LIMITED)
    assert states(health, offer, 1000.0) == [USABLE, COOLING, USABLE, USABLE]


@pytest.mark.parametrize("fault", [Fault.SERVER_ERROR, Fault.TIMEOUT, Fault.INVALID_RESPONSE, Fault.NOT_FOUND])
def test_an_offer_that_fails_for_one_tenant_rests_for_that_one(fault: Fault) -> None:
    health, offer = Health(), make_offer()
    for number in range(200):
        fail(health, offer, number / 100, ALICE, fault)
    assert states(health, offer, 2.0) == [RESTING, USABLE, USABLE, USABLE]


def test_the_failures_of_several_rest_it_for_all_and_as_soon_as_ever() -> None:
    health, offer = Health(), make_offer()
    for number, tenant in enumerate((ALICE, BOB, ALICE, CHARLIE)):
        fail(health, offer, float(number), tenant, Fault.SERVER_ERROR)
    assert states(health, offer, 3.0) == [USABLE] * 4
    fail(health, offer, 4.0, BOB, Fault.SERVER_ERROR)
    assert states(health, offer, 4.0) == [RESTING] * 4


def test_one_loud_tenant_needs_others_to_fail_as_often_as_half_the_threshold() -> None:
    health, offer = Health(), make_offer()
    for _ in range(50):
        fail(health, offer, 0.0, ALICE, Fault.SERVER_ERROR)
    for _ in range(2):
        fail(health, offer, 1.0, BOB, Fault.SERVER_ERROR)
        assert states(health, offer, 1.0) == [RESTING, USABLE, USABLE, USABLE]
    fail(health, offer, 1.0, BOB, Fault.SERVER_ERROR)
    assert states(health, offer, 1.0) == [RESTING] * 4


def test_half_of_the_calls_failing_is_no_evidence_while_they_are_one_tenants() -> None:
    health, offer = Health(), make_offer()
    for number in range(100):
        fail(health, offer, number / 10, ALICE, Fault.SERVER_ERROR)
        succeed(health, offer, number / 10, BOB)
    assert states(health, offer, 10.0)[1:] == [USABLE] * 3


def test_an_answer_to_one_does_not_end_the_rest_of_another_and_its_own_does() -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    fail(health, offer, 0.0, ALICE, Fault.SERVER_ERROR)
    succeed(health, offer, 1.0, BOB)
    assert states(health, offer, 1.0) == [RESTING, USABLE, USABLE, USABLE]
    assert states(health, offer, 10.0) == [PROBE, USABLE, USABLE, USABLE]
    probe = health.begin(offer, offer.credentials[0], 10.0, probe=True, tenant=ALICE)
    assert states(health, offer, 10.0) == [RESTING, USABLE, USABLE, USABLE]
    probe.succeeded(11.0, 1)
    assert states(health, offer, 11.0) == [USABLE] * 4
    assert not health.rests.open


def test_an_offer_back_for_one_tenant_is_not_new_to_the_others() -> None:
    health, offer = Health(), make_offer(make_provider(failure_threshold=1))
    for now in range(20):
        health.begin(offer, offer.credentials[0], float(now), tenant=BOB).first_byte(now + 0.5)
    fail(health, offer, 20.0, ALICE, Fault.SERVER_ERROR)
    health.begin(offer, offer.credentials[0], 30.0, probe=True, tenant=ALICE).first_byte(30.0)
    assert health.standings([offer], 0, 30.0, BOB)[0].known


def test_ten_overlapping_refusals_are_one_rest() -> None:
    health, offer = Health(), make_offer(make_provider(cooldown=15.0))
    trials = [health.begin(offer, offer.credentials[0], 0.0) for _ in range(10)]
    for number, trial in enumerate(trials):
        trial.failed(Fault.AUTH, 1.0 + number / 10, None, 401)
    ((rest),) = health.rests.open.values()
    assert (rest.count, rest.until) == (1, 16.0)
    # Later, when the rest is over, it is no different: they knew nothing of it.
    late = [health.begin(offer, offer.credentials[0], 0.5) for _ in range(2)]
    late[0].failed(Fault.AUTH, 17.0, None, 401)
    assert health.rests.open[rest.subject].count == 1
    health.begin(offer, offer.credentials[0], 18.0, probe=True).succeeded(19.0, 1)
    late[1].failed(Fault.AUTH, 20.0, None, 401)
    assert not health.rests.open
    # But the probe of a rest makes the next one longer, and so does a failure soon after its end.
    for now, until in ((21.0, 51.0), (51.0, 111.0)):
        health.begin(offer, offer.credentials[0], now, probe=True).failed(Fault.AUTH, now, None, 401)
        assert health.rests.open[rest.subject].until == until


def test_of_several_limits_the_later_end_stands() -> None:
    health, offer = Health(), make_offer()
    for now, seconds, until in ((0.0, 60.0, 60.0), (1.0, 5.0, 60.0), (2.0, 59.0, 61.0)):
        health.begin(offer, offer.credentials[0], now).failed(Fault.RATE_LIMITED, now, seconds, 429)
        ((rest),) = health.rests.open.values()
        assert (rest.count, rest.until) == (1, until)


def test_what_another_process_found_out_for_one_tenant_holds_for_that_one() -> None:
    health, offer = Health(), make_offer()
    subject = Subject(None, offer.credentials[0].id)
    health.hear([Heard(subject, Fault.AUTH, 20.0, 0.0, 1, False, ALICE)], 100.0)
    assert states(health, offer, 100.0) == [COOLING, USABLE, USABLE, USABLE]
    fail(health, offer, 101.0, BOB, Fault.AUTH, 401)
    assert states(health, offer, 101.0) == [COOLING] * 4
    health.hear([Heard(subject, Fault.AUTH, 0.0, 0.0, 1, True)], 102.0)
    assert states(health, offer, 102.0) == [USABLE] * 4


def test_what_is_remembered_of_tenants_is_bounded() -> None:
    outcomes = Outcomes()
    for _ in range(10 * MOST_TENANTS):
        outcomes.bad(0.0, 10**9, uuid4())
    assert max(map(len, (*outcomes._bad_by, outcomes._in_a_row))) <= MOST_TENANTS + 1
    assert outcomes.bad(0.0, MOST_TENANTS, ALICE) is Evidence.ALL


def test_one_tenants_failures_weigh_no_more_than_all_others_together() -> None:
    failures: list[dict[UUID | None, int]] = [
        {},
        {ALICE: 9},
        {ALICE: 9, BOB: 1},
        {ALICE: 2, BOB: 2, CHARLIE: 1},
        {None: 3},
    ]
    assert list(map(weighed, failures)) == [0, 0, 2, 5, 3]
