"""Token counts times rates: the only arithmetic on prices, in `Decimal`, never rounded.

A token rate is dollars per million tokens with at most six decimals, so an amount has at most twelve and
`numeric(24,12)` holds it exactly. An item without a rate of its own is part of its parent (cached input of input,
reasoning of output); with one it leaves the parent's count, since counts are inclusive (see `billing/tokens.py`).

Rates may depend on the size of the prompt (`Prices`). The size is a threshold on the whole request, not a margin: a
prompt of one token more than it has every token of the request, the answer's too, at the other rate. So Google prices
"prompts > 200k tokens", Anthropic inputs above 200k and OpenAI inputs above 272k, and so `genai-prices` computes its
`TieredPrices` (`total_input_tokens > tier.start`). It is the size of the whole prompt, cached tokens included.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from billing.tokens import Tokens

ZERO, MILLIONTH = Decimal(0), Decimal("0.000001")
UNBOUNDED = 2**62  # output tokens: nobody counts so far

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
    """Dollars for one item: per million tokens, or each for `request` and `web_search`. None: unknown.

    `said`: both as text, for every bill's lines.
    """

    cost: Decimal | None
    charge: Decimal | None
    said: Mapping[str, str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "said", {"cost": text(self.cost), "charge": text(self.charge)})


def text(amount: Decimal | None) -> str | None:
    """All digits, no exponent; None: unknown."""
    return None if amount is None else f"{amount:f}"


UNKNOWN, FREE = Rate(None, None), Rate(ZERO, ZERO)
Rates = Mapping[str, Rate]  # by item (`billing.models.Item`), for one size of prompt


# What is made for each request is a struct: a frozen dataclass takes eight times as long to make.
class Line(msgspec.Struct, frozen=True):
    """One line of the arithmetic: so much of an item, at a rate, makes an amount of dollars."""

    item: str
    quantity: int
    rate: Rate

    def amount(self, price: Decimal | None) -> Decimal | None:
        """Dollars at `price`; None when it is unknown."""
        if price is None:
            return None
        amount = price * self.quantity
        return amount if self.item in ("request", "web_search") else amount * MILLIONTH


class Priced(msgspec.Struct, frozen=True):
    """What a generation costs us and what the tenant is charged, with the lines that add up to it. None: unknown."""

    cost: Decimal | None
    charge: Decimal | None
    lines: tuple[Line, ...]


def lines(tokens: Tokens, rates: Rates) -> tuple[Line, ...]:
    """The lines of a bill: every item with a quantity, none counted twice. A missing rate is an unknown price."""
    found: list[Line] = []
    for whole, rest, parts in (
        ("input", tokens.prompt, PARTS_OF_INPUT),
        ("output", tokens.completion, PARTS_OF_OUTPUT),
    ):
        for item, part in parts.items():
            # Counts that overlap (a cached image) must not add up to more than the whole.
            if item in rates and (quantity := min(getattr(tokens, part), rest)):
                found.append(Line(item, quantity, rates[item]))
                rest -= quantity
        if rest:
            found.append(Line(whole, rest, rates.get(whole, UNKNOWN)))
    if "request" in rates:
        found.append(Line("request", 1, rates["request"]))
    if tokens.web_searches:
        found.append(Line("web_search", tokens.web_searches, rates.get("web_search", UNKNOWN)))
    return tuple(found)


def price(tokens: Tokens, rates: Rates) -> Priced:
    """What `tokens` cost and are charged under `rates`. Amounts are >= 0 and exact; one unknown line makes None."""
    bill = lines(tokens, rates)
    cost: Decimal | None = ZERO
    charge: Decimal | None = ZERO
    for line in bill:
        its_cost, its_charge = line.amount(line.rate.cost), line.amount(line.rate.charge)
        cost = None if cost is None or its_cost is None else cost + its_cost
        charge = None if charge is None or its_charge is None else charge + its_charge
    return Priced(cost, charge, bill)


def known(bill: Iterable[Line]) -> tuple[Decimal | None, Decimal | None]:
    """What the lines of known price are charged and cost: one unknown line does not erase the others. None: no line is
    of known price.
    """
    charge: Decimal | None = None
    cost: Decimal | None = None
    for line in bill:
        charge, cost = plus(charge, line.amount(line.rate.charge)), plus(cost, line.amount(line.rate.cost))
    return charge, cost


def plus(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    """The sum of what is known; None when neither is."""
    return other if one is None else one if other is None else one + other


class WorstCase(msgspec.Struct, frozen=True):
    """The dearest a request can come to: `fixed` dollars and `rate` dollars an output token. None: unknown price."""

    fixed: Decimal | None
    rate: Decimal | None

    def at(self, output_cap: int) -> Decimal | None:
        """Dollars when the output is `output_cap` tokens."""
        return None if self.fixed is None or self.rate is None else self.fixed + self.rate * output_cap

    def cap_within(self, money: Decimal) -> int:
        """The most output tokens that `money` dollars pay for; -1: not even the prompt, or the price is unknown."""
        if self.fixed is None or self.rate is None or self.fixed > money:
            return -1
        return int((money - self.fixed) // self.rate) if self.rate else UNBOUNDED

    def over(self, other: "WorstCase") -> "WorstCase":
        """One that covers both at any output cap. An unknown price makes it unknown."""
        if self.fixed is None or self.rate is None or other.fixed is None or other.rate is None:
            return WorstCase(None, None)
        return WorstCase(max(self.fixed, other.fixed), max(self.rate, other.rate))


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The dearest rates of a tariff version, in dollars: an input token, an output token, a request, a web search.

    None: unknown.
    """

    input: Decimal | None
    output: Decimal | None
    request: Decimal | None
    search: Decimal | None = None

    def worst(self, input_tokens: int, copies: int, searches: int = 0) -> WorstCase:
        """The worst case of a request of at most `input_tokens` and `searches` that asks for `copies` answers."""
        fixed = self.fixed(input_tokens, searches)
        if fixed is None or self.output is None:
            return WorstCase(None, None)
        return WorstCase(fixed, self.output * copies)

    def fixed(self, input_tokens: int, searches: int) -> Decimal | None:
        """Dollars, at most, whatever is written."""
        if self.input is None or self.request is None:
            return None
        fixed = self.input * input_tokens + self.request
        if not searches:
            return fixed
        return None if self.search is None else fixed + self.search * searches

    def worst_continued(self, input_tokens: int) -> WorstCase:
        """The worst case of an answer that one offer begins and another ends, if this is `over` the ceilings of both.

        Each reads the prompt, the second one also what the first one wrote, and together they write no more than the
        output cap.
        """
        once = self.worst(input_tokens, 1)
        if once.fixed is None or once.rate is None or self.input is None:
            return once
        return WorstCase(once.fixed * 2, once.rate + self.input)

    def price(self, input_tokens: int, output_tokens: int, searches: int = 0) -> Decimal | None:
        """Dollars, at most, for so many tokens and searches, all answers together; None: unknown."""
        fixed = self.fixed(input_tokens, searches)
        return None if fixed is None or self.output is None else fixed + self.output * output_tokens

    def over(self, other: "Ceiling") -> "Ceiling":
        """The dearer of each of two."""
        return Ceiling(
            _dearer(self.input, other.input),
            _dearer(self.output, other.output),
            _dearer(self.request, other.request),
            _dearer(self.search, other.search),
        )


def ceiling(rates: Rates) -> Ceiling:
    """The dearest rates among `rates`: every input token at the dearest input rate, output alike."""
    charge_in, charge_out = _dearest(rates, "input", PARTS_OF_INPUT), _dearest(rates, "output", PARTS_OF_OUTPUT)
    return Ceiling(
        None if charge_in is None else charge_in.scaleb(-6),
        None if charge_out is None else charge_out.scaleb(-6),
        rates["request"].charge if "request" in rates else ZERO,
        rates["web_search"].charge if "web_search" in rates else None,
    )


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of a tariff version by size of prompt: `base`, and from a size (exclusive) on a higher one."""

    base: Ceiling
    steps: tuple[tuple[int, Ceiling], ...] = ()

    def at(self, input_tokens: int) -> Ceiling:
        """The one over every prompt of at most `input_tokens`."""
        found = self.base
        for above, higher in self.steps:
            if input_tokens <= above:
                break
            found = higher
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """All rates of prompts of more than `above` tokens, exclusive, up to the next step."""

    above: int
    rates: Rates


@dataclass(frozen=True, slots=True)
class Prices:
    """The rates of a tariff version: `rates` below every step, then `steps` by size, ascending. No rates: unknown."""

    rates: Rates
    steps: tuple[Step, ...] = ()

    def at(self, prompt: int) -> Rates:
        """The rates of a request whose whole prompt is `prompt` tokens."""
        rates = self.rates
        for step in self.steps:
            if prompt <= step.above:
                break
            rates = step.rates
        return rates

    def price(self, tokens: Tokens) -> Priced:
        """What `tokens` cost and are charged, at the rates of their prompt's size."""
        return price(tokens, self.at(tokens.prompt))

    def lacking(self) -> list[tuple[str, int]]:
        """Items, with the size above which they are meant, without whose charge no worst case is known."""
        found = [(item, 0) for item in ("input", "output") if item not in self.rates]
        for above, rates in ((0, self.rates), *((step.above, step.rates) for step in self.steps)):
            found += [(item, above) for item, rate in rates.items() if rate.charge is None and item != "web_search"]
        return found

    def ceilings(self) -> Ceilings:
        """What no request under these prices exceeds."""
        highest = base = ceiling(self.rates)
        steps = [(step.above, highest := ceiling(step.rates).over(highest)) for step in self.steps]
        return Ceilings(base, tuple(steps))

    def worst_case(self, input_tokens: int, copies: int) -> WorstCase:
        """The worst case of a request of at most `input_tokens`, of whatever size it turns out to be."""
        return self.ceilings().at(input_tokens).worst(input_tokens, copies)


NO_PRICES = Prices({})


def by_size(rates: Iterable[tuple[str, int, Rate]], *, free: Iterable[str] = ()) -> Prices:
    """Prices from rates of an item for prompts above so many tokens, 0: of any size; each (item, above) stands once.

    An item without a rate at a step keeps the one it has below it; what is `free` without any costs nothing.
    """
    sizes: dict[int, dict[str, Rate]] = {0: dict.fromkeys(free, FREE)}
    for item, above, rate in rates:
        sizes.setdefault(above, {})[item] = rate
    current: dict[str, Rate] = {}
    found = [Step(above, current := current | sizes[above]) for above in sorted(sizes)]
    return Prices(found[0].rates, tuple(found[1:]))


def marked_up(prices: Prices, percent: Decimal) -> Prices:
    """Prices whose charges are their costs and so many per cent more.

    Rounded to the six decimals of a rate, half to even, so that every amount of them is exact. An unknown cost makes an
    unknown charge.
    """
    factor = 1 + percent / 100

    def over(rates: Rates) -> Rates:
        return {
            item: Rate(rate.cost, None if rate.cost is None else (rate.cost * factor).quantize(MILLIONTH))
            for item, rate in rates.items()
        }

    return Prices(over(prices.rates), tuple(Step(step.above, over(step.rates)) for step in prices.steps))


def charged_as(prices: Prices, others: Prices) -> Prices:
    """Prices of which the costs are those of `prices`, and the charges those of `others`.

    Where one of the two has no rate for an item, its price is that of what the item is part of, so that each amount is
    what its own list alone would make of it.
    """
    sizes = sorted({step.above for step in (*prices.steps, *others.steps)})
    steps = tuple(Step(above, _charged_as(prices.at(above + 1), others.at(above + 1))) for above in sizes)
    return Prices(_charged_as(prices.rates, others.rates), steps)


def _charged_as(costs: Rates, charges: Rates) -> Rates:
    return {
        item: Rate(_rate_of(item, costs).cost, _rate_of(item, charges).charge)
        for item in dict.fromkeys((*costs, *charges))
    }


def _rate_of(item: str, rates: Rates) -> Rate:
    whole = "input" if item in PARTS_OF_INPUT else "output" if item in PARTS_OF_OUTPUT else item
    return rates.get(item) or rates.get(whole) or (FREE if item == "request" else UNKNOWN)


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


def _dearer(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else max(one, other)
