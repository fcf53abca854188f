"""Token counts times rates: the only arithmetic on prices, in `Decimal`, never rounded.

A token rate is dollars per million tokens with at most six decimals, so an amount has at most twelve and
`numeric(24,12)` holds it exactly. An item without a rate of its own is part of its parent (cached input of input,
reasoning of output); with one it leaves the parent's count, since counts are inclusive (see `billing/tokens.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from billing.tokens import Tokens

ZERO = Decimal(0)

# Items that are inside another one's count, and where that count lies in `Tokens`.
PARTS_OF_INPUT = {
    "cached_input": "cached",
    "cache_write_5m": "cache_write_5m",
    "cache_write_1h": "cache_write_1h",
    "audio_input": "audio_input",
    "image_input": "image_input",
}
PARTS_OF_OUTPUT = {"reasoning": "reasoning", "audio_output": "audio_output"}


@dataclass(frozen=True, slots=True)
class Rate:
    """Dollars for one item: per million tokens, or each for `request` and `web_search`. None: unknown."""

    cost: Decimal | None
    charge: Decimal | None


Rates = Mapping[str, Rate]  # by item (`billing.models.Item`)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the arithmetic: so much of an item, at a rate, makes an amount of dollars."""

    item: str
    quantity: int
    rate: Rate

    def amount(self, price: Decimal | None) -> Decimal | None:
        """Dollars at `price`; None when it is unknown."""
        if price is None:
            return None
        amount = price * self.quantity
        return amount if self.item in ("request", "web_search") else amount.scaleb(-6)


@dataclass(frozen=True, slots=True)
class Priced:
    """What a generation costs us and what the tenant is charged, with the lines that add up to it. None: unknown."""

    cost: Decimal | None
    charge: Decimal | None
    lines: tuple[Line, ...]


def lines(tokens: Tokens, rates: Rates) -> tuple[Line, ...]:
    """The lines of a bill: every item with a quantity, none counted twice. A missing rate is an unknown price."""
    quantities: dict[str, int] = {}
    for whole, total, parts in (
        ("input", tokens.prompt, PARTS_OF_INPUT),
        ("output", tokens.completion, PARTS_OF_OUTPUT),
    ):
        rest = total
        for item, field in parts.items():
            if item in rates:
                # Counts that overlap (a cached image) must not add up to more than the whole.
                quantity = min(getattr(tokens, field), rest)
                quantities[item] = quantity
                rest -= quantity
        quantities[whole] = rest
    if "request" in rates:
        quantities["request"] = 1
    quantities["web_search"] = tokens.web_searches
    unknown = Rate(None, None)
    return tuple(Line(item, quantity, rates.get(item, unknown)) for item, quantity in quantities.items() if quantity)


def price(tokens: Tokens, rates: Rates) -> Priced:
    """What `tokens` cost and are charged under `rates`. Amounts are >= 0 and exact; one unknown line makes None."""
    bill = lines(tokens, rates)
    return Priced(
        _sum(line.amount(line.rate.cost) for line in bill),
        _sum(line.amount(line.rate.charge) for line in bill),
        bill,
    )


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The dearest a request can come to: `fixed` dollars and `rate` dollars an output token. None: unknown price."""

    fixed: Decimal | None
    rate: Decimal | None

    def at(self, output_cap: int) -> Decimal | None:
        """Dollars when the output is `output_cap` tokens."""
        return None if self.fixed is None or self.rate is None else self.fixed + self.rate * output_cap


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The dearest rates of a tariff version, in dollars: an input token, an output token, a request. None: unknown."""

    input: Decimal | None
    output: Decimal | None
    request: Decimal | None

    def worst(self, input_tokens: int, copies: int) -> WorstCase:
        """The worst case of a request of at most `input_tokens` that asks for `copies` answers."""
        if self.input is None or self.output is None or self.request is None:
            return WorstCase(None, None)
        return WorstCase(self.input * input_tokens + self.request, self.output * copies)

    def price(self, input_tokens: int, output_tokens: int) -> Decimal | None:
        """Dollars, at most, for so many tokens, all answers together; None: unknown."""
        if self.input is None or self.output is None or self.request is None:
            return None
        return self.input * input_tokens + self.request + self.output * output_tokens


def ceiling(rates: Rates) -> Ceiling:
    """The dearest rates among `rates`: every input token at the dearest input rate, output alike."""
    charge_in, charge_out = _dearest(rates, "input", PARTS_OF_INPUT), _dearest(rates, "output", PARTS_OF_OUTPUT)
    return Ceiling(
        None if charge_in is None else charge_in.scaleb(-6),
        None if charge_out is None else charge_out.scaleb(-6),
        rates["request"].charge if "request" in rates else ZERO,
    )


def worst_case(input_tokens: int, copies: int, rates: Rates) -> WorstCase:
    """The worst case of a request under `rates`, see `Ceiling`."""
    return ceiling(rates).worst(input_tokens, copies)


def worst_case_continued(input_tokens: int, offers: Iterable[Rates]) -> WorstCase:
    """The worst case of an answer that one of `offers` begins and another ends.

    Both read the prompt, the second one also what the first one wrote, and together they write no more than the cap.
    """
    once, read = WorstCase(ZERO, ZERO), ZERO
    for rates in offers:
        once, charge_in = dearest((once, worst_case(input_tokens, 1, rates))), _dearest(rates, "input", PARTS_OF_INPUT)
        if once.fixed is None or once.rate is None or charge_in is None:
            return WorstCase(None, None)
        read = max(read, charge_in)
    assert once.fixed is not None and once.rate is not None
    return WorstCase(once.fixed * 2, once.rate + read.scaleb(-6))


def dearest(cases: Iterable[WorstCase]) -> WorstCase:
    """One case that covers all of `cases` at any output cap. An unknown price makes it unknown."""
    fixed, rate = ZERO, ZERO
    for case in cases:
        if case.fixed is None or case.rate is None:
            return WorstCase(None, None)
        fixed, rate = max(fixed, case.fixed), max(rate, case.rate)
    return WorstCase(fixed, rate)


def _dearest(rates: Rates, whole: str, parts: Mapping[str, str]) -> Decimal | None:
    if whole not in rates:
        return None
    found = ZERO
    for item in (whole, *parts):
        if item in rates:
            charge = rates[item].charge
            if charge is None:
                return None
            found = max(found, charge)
    return found


def _sum(amounts: Iterable[Decimal | None]) -> Decimal | None:
    total = ZERO
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total
