"""A provider's bill beside our books, and why they differ: missing calls, token drift, price drift. Pure and exact.

Both are cut into cells of a day, a model and a credential; of a call each, where the bill names its calls. In a cell:

- **missing calls** is what the bill takes for calls that the books have not, or less what the books have for calls that
  the bill has not: the whole amount when one side has none, else the share of that many calls of the side with more.
- **token drift** is what the tokens that the bill has more of cost at our own rates: what the books paid for each class
  of tokens in the cell, on the average. A class without a rate of its own is part of its whole, as it is in a tariff.
- **price drift** is all the rest: the same calls and tokens at other prices, also those that our books have no price
  for.

So the three sum to the gap, to the last of twelve decimals, whatever is rounded in a share. Where calls are named no
share is rounded. Where a bill does not count its calls a missing one is only told when the other side has none in the
cell; else it shows as token drift.
"""

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeVar

from billing.pricing import EACH, PARTS_OF_INPUT, PARTS_OF_OUTPUT, ZERO

WHOLE = dict.fromkeys(PARTS_OF_INPUT, "input") | dict.fromkeys(PARTS_OF_OUTPUT, "output")
DECIMALS = 12
Number = TypeVar("Number", int, Decimal)


class Cell(NamedTuple):
    """What is compared: `call` is the provider's id of it, empty where calls are not named; so is `credential`."""

    day: date
    model: str
    credential: str = ""
    call: str = ""


class Side(NamedTuple):
    """What one side has of a cell: how many calls (None: it does not count them), tokens and searches by item of a
    tariff, each in one item alone, and dollars. `amounts`: what of these is each item's, which only the books know.
    """

    calls: int | None
    counts: Mapping[str, int]
    cost: Decimal
    amounts: Mapping[str, Decimal] = {}

    @property
    def tokens(self) -> int:
        """All tokens together."""
        return sum(count for item, count in self.counts.items() if item not in EACH)


NOTHING = Side(0, {}, ZERO)


class Gap(NamedTuple):
    """Dollars: bill - books, and the three parts that it is the sum of."""

    missing: Decimal = ZERO
    tokens: Decimal = ZERO
    price: Decimal = ZERO

    @property
    def total(self) -> Decimal:
        """The whole gap."""
        return self.missing + self.tokens + self.price


class Line(NamedTuple):
    """A cell without its call: both sides and the gap. `billed.calls` is None where the bill does not count them."""

    cell: Cell
    billed: Side
    booked: Side
    gap: Gap


def split(billed: Side, booked: Side, told: Iterable[str]) -> Gap:
    """Why a cell differs. `told`: the items that the bill has columns for; what it has not is part of its whole."""
    gap = billed.cost - booked.cost
    calls = booked.calls if billed.calls is None else billed.calls
    ours = booked.calls or 0
    if calls is None or (calls == 0) != (ours == 0) or billed is NOTHING or booked is NOTHING:
        return Gap(missing=gap)
    theirs_kept = Fraction(min(ours, calls), calls) if calls else Fraction(1)
    ours_kept = Fraction(min(ours, calls), ours) if ours else Fraction(1)
    missing = _decimal(Fraction(billed.cost) * (1 - theirs_kept)) - _decimal(Fraction(booked.cost) * (1 - ours_kept))
    counts, amounts = _folded(booked, set(told))
    drift = Fraction(0)
    for item in {*counts, *billed.counts}:
        more = billed.counts.get(item, 0) * theirs_kept - counts.get(item, 0) * ours_kept
        for priced in (item, WHOLE.get(item, item)):
            if counts.get(priced):
                drift += more * Fraction(amounts.get(priced, ZERO)) / counts[priced]
                break
    tokens = _decimal(drift)
    return Gap(missing, tokens, gap - missing - tokens)


def compare(bill: Mapping[Cell, Side], books: Mapping[Cell, Side], told: Iterable[str]) -> list[Line]:
    """All cells of both, compared, and summed up without their calls; in order."""
    items = set(told)
    lines: dict[Cell, Line] = {}
    for cell in {**bill, **books}:
        billed, booked = bill.get(cell, NOTHING), books.get(cell, NOTHING)
        gap = split(billed, booked, items)
        place = cell._replace(call="")
        line = lines.get(place)
        if line is not None:
            billed, booked = plus(line.billed, billed), plus(line.booked, booked)
            gap = Gap(*(one + other for one, other in zip(line.gap, gap, strict=True)))
        lines[place] = Line(place, billed, booked, gap)
    return [lines[place] for place in sorted(lines)]


def plus(one: Side, other: Side) -> Side:
    """Both together. What one does not count is not counted."""
    calls = None if one.calls is None or other.calls is None else one.calls + other.calls
    return Side(
        calls, _summed(one.counts, other.counts), one.cost + other.cost, _summed(one.amounts, other.amounts)
    )  # fmt: skip


def _summed(one: Mapping[str, Number], other: Mapping[str, Number]) -> dict[str, Number]:
    return {**one, **{item: one[item] + count if item in one else count for item, count in other.items()}}


def _folded(side: Side, told: set[str]) -> tuple[dict[str, int], dict[str, Decimal]]:
    """The counts and amounts of a side, with each class that is not `told` in its whole."""
    counts: dict[str, int] = {}
    amounts: dict[str, Decimal] = {}
    for item, count in side.counts.items():
        place = item if item in told else WHOLE.get(item, item)
        counts[place] = counts.get(place, 0) + count
        amounts[place] = amounts.get(place, ZERO) + side.amounts.get(item, ZERO)
    return counts, amounts


def _decimal(amount: Fraction) -> Decimal:
    """Rounded to the last decimal that is stored, half to even."""
    return Decimal(round(amount * 10**DECIMALS)).scaleb(-DECIMALS)
