"""A bill and the books: three parts that sum to the gap exactly, each error in its own, and no order matters."""

from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from billing.bills.gaps import Cell, Side, compare
from billing.bills.gaps import split as split_apart

DAY = date(2026, 10, 5)
RATES = {"input": Decimal("0.4"), "cached_input": Decimal("0.1"), "output": Decimal("1.6")}  # dollars a million
TOLD = frozenset(RATES)
EACH = {"input": 600, "cached_input": 400, "output": 500}  # a call
COST = Decimal("0.00108")  # of it


def booked(calls: int, rates: dict[str, Decimal] = RATES, **counts: int) -> Side:
    """What the books have of some equal calls."""
    found = {item: calls * count for item, count in {**EACH, **counts}.items() if item in rates}
    amounts = {item: (rates[item] * count).scaleb(-6) for item, count in found.items()}
    return Side(calls, found, sum(amounts.values(), Decimal(0)), amounts)


def billed(calls: int | None, of: int, cost: Decimal, **counts: int) -> Side:
    """What a bill has of `of` equal calls."""
    return Side(calls, {item: of * count for item, count in {**EACH, **counts}.items()}, cost)


def split(*sides: Any) -> Any:
    """The three parts; whole ones are written as plain numbers."""
    return split_apart(*sides)


def test_the_same_is_no_gap() -> None:
    assert split(billed(7, 7, 7 * COST), booked(7), TOLD) == (0, 0, 0)


def test_calls_that_one_side_lacks() -> None:
    assert split(billed(9, 9, 9 * COST), booked(7), TOLD) == (2 * COST, 0, 0)
    assert split(billed(6, 6, 6 * COST), booked(7), TOLD) == (-COST, 0, 0)
    assert split(billed(3, 3, 3 * COST), Side(0, {}, Decimal(0)), TOLD) == (3 * COST, 0, 0)


def test_tokens_that_drift_are_priced_at_our_rates() -> None:
    more = billed(2, 2, 2 * COST + Decimal("0.00016"), output=550)
    assert split(more, booked(2), TOLD) == (0, Decimal("0.00016"), 0)
    # 400 cached ones that the provider did not take for cached.
    uncached = billed(1, 1, COST + Decimal("0.00012"), input=1000, cached_input=0)
    assert split(uncached, booked(1), TOLD) == (0, Decimal("0.00012"), 0)


def test_other_prices_are_the_rest() -> None:
    assert split(billed(2, 2, 3 * COST), booked(2), TOLD) == (0, 0, COST)
    unpriced = Side(2, {item: 2 * count for item, count in EACH.items()}, Decimal(0))
    assert split(billed(2, 2, 2 * COST), unpriced, TOLD) == (0, 0, 2 * COST)


def test_all_three_at_once() -> None:
    """A call more, 50 tokens more in each, and a tenth dearer."""
    cost = (Decimal("0.00116") * 3) * Decimal("1.1")
    gap = split(billed(3, 3, cost, output=550), booked(2), TOLD)
    assert gap == (cost / 3, Decimal("0.00016"), 2 * Decimal("0.000116"))
    assert gap.total == cost - 2 * COST


def test_a_class_that_only_one_side_tells_of_is_part_of_its_whole() -> None:
    # No rate of its own with us: 1000 at the rate of input.
    flat = {"input": Decimal("0.4"), "output": Decimal("1.6")}
    ours = booked(1, flat, input=1000)
    assert split(billed(1, 1, ours.cost), ours, TOLD) == (0, 0, 0)
    # No column of its own in the bill.
    bill = Side(1, {"input": 1000, "output": 500}, COST)
    assert split(bill, booked(1), {"input", "output"}) == (0, 0, 0)


def test_a_bill_that_counts_no_calls_tells_a_missing_one_where_the_other_side_has_none() -> None:
    cells = {Cell(DAY, "a"): billed(None, 2, 2 * COST), Cell(DAY, "b"): billed(None, 1, COST)}
    books = {Cell(DAY, "a"): booked(1), Cell(DAY, "c"): booked(1)}
    found: list[Any] = [(line.cell.model, *line.gap) for line in compare(cells, books, TOLD)]
    assert found == [
        ("a", 0, COST, 0), ("b", COST, 0, 0), ("c", -COST, 0, 0),
    ]  # fmt: skip


def test_calls_that_are_named_are_compared_one_by_one_and_told_together() -> None:
    cell = Cell(DAY, "m", "prod")
    bill = {
        cell._replace(call="1"): billed(1, 1, COST),
        cell._replace(call="2"): billed(1, 1, COST + Decimal("0.0008"), output=1000),
        cell._replace(call="3"): billed(1, 1, 7 * COST, output=9000),
    }
    books = {cell._replace(call=call): booked(1) for call in ("1", "2", "4")}
    (line,) = compare(bill, books, TOLD)
    assert line.cell == cell
    assert line.gap == (7 * COST - COST, Decimal("0.0008"), Decimal(0))
    assert (line.billed.calls, line.booked.calls) == (3, 3)


amounts = st.decimals(min_value=0, max_value=Decimal("999999.999999999999"), places=12, allow_nan=False)
items = st.sampled_from(["input", "cached_input", "output", "reasoning", "web_search"])
counts = st.dictionaries(items, st.integers(0, 10**9))
names = st.sampled_from(["", "prod"])
cells = st.builds(
    Cell, day=st.just(DAY), model=st.sampled_from("ab"), credential=names, call=st.sampled_from(["", "1", "2"])
)
costs = amounts | amounts.map(Decimal.copy_negate)
calls = st.none() | st.integers(0, 50)
bills = st.dictionaries(cells, st.builds(Side, calls=calls, counts=counts, cost=costs, amounts=st.just({})))


@st.composite
def ours(draw: st.DrawFn) -> Side:
    """What books have, whose amounts sum to its cost."""
    found = draw(counts)
    each = {item: draw(amounts) for item in found}
    return Side(draw(st.integers(1, 50)), found, sum(each.values(), Decimal(0)), each)


@given(bills, st.dictionaries(cells, ours()), st.sets(st.sampled_from(["input", "cached_input", "output"])))
def test_the_parts_sum_to_the_gap(bill: dict[Cell, Side], books: dict[Cell, Side], told: set[str]) -> None:
    lines = compare(bill, books, told)
    for line in lines:
        assert sum(map(Fraction, line.gap)) == Fraction(line.billed.cost) - Fraction(line.booked.cost)
        assert all(part == round(part, 12) for part in line.gap)
    total = sum(Fraction(side.cost) for side in bill.values()) - sum(Fraction(side.cost) for side in books.values())
    assert sum(Fraction(line.gap.total) for line in lines) == total


@given(bills, st.dictionaries(cells, ours()), st.randoms(use_true_random=False))
def test_no_order_matters(bill: dict[Cell, Side], books: dict[Cell, Side], chance: object) -> None:
    def shuffled(sides: dict[Cell, Side]) -> dict[Cell, Side]:
        items = list(sides.items())
        chance.shuffle(items)  # type: ignore[attr-defined]
        return dict(items)

    found = compare(bill, books, TOLD)
    assert compare(shuffled(bill), shuffled(books), TOLD) == found
    assert [line.cell for line in found] == sorted(line.cell for line in found)
