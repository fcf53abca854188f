"""The retry budget: a tenth of the requests of ten seconds, and sixty-four for a process with little traffic."""

from hypothesis import given
from hypothesis import strategies as st

from routing.health.retries import RetryBudget


def allowed(budget: RetryBudget, now: float, asked: int = 10_000) -> int:
    """How many of `asked` retries it grants at once."""
    return sum(budget.may_retry(now) for _ in range(asked))


def test_a_process_without_traffic_may_retry_sixty_four_times_at_once() -> None:
    budget = RetryBudget(1000.0)
    assert allowed(budget, 1000.0) == 64
    assert allowed(budget, 1005.0) == 0


def test_the_floor_is_there_again_after_the_window() -> None:
    budget = RetryBudget(0.0)
    assert allowed(budget, 0.5) == 64
    assert allowed(budget, 10.9) == 0
    assert allowed(budget, 11.0) == 64


def test_a_tenth_of_much_traffic_is_more_than_the_floor() -> None:
    budget = RetryBudget(0.0)
    for number in range(10_000):
        budget.request(number / 1000)
    assert 900 <= allowed(budget, 9.999) <= 1000


def test_old_requests_count_no_more() -> None:
    budget = RetryBudget(0.0)
    for _ in range(10_000):
        budget.request(0.0)
    assert allowed(budget, 25.0) == 64


def test_a_clock_that_stands_still_or_jumps_far_does_no_harm() -> None:
    budget = RetryBudget(5.0)
    budget.request(5.0)
    budget.request(4.0)
    budget.request(1e9)
    assert allowed(budget, 1e9) == 64


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 200), st.integers(0, 200)), max_size=40))
def test_no_retry_is_granted_beyond_the_budget_of_its_window(steps: list[tuple[float, int, int]]) -> None:
    budget, now = RetryBudget(0.0), 0.0
    requests: list[float] = []
    retries: list[float] = []
    for passed, asked, wanted in steps:
        now += passed
        for _ in range(asked):
            budget.request(now)
            requests.append(now)
        for _ in range(wanted):
            if budget.may_retry(now):
                retries.append(now)
                recent = sum(at > now - 10 for at in requests)
                assert sum(at > now - 10 for at in retries) <= max(64, 0.1 * recent)
