"""Token counts times rates: the only arithmetic on prices, in `Decimal`, never rounded.

A token rate is dollars per million tokens with at most six decimals, so an amount has at most twelve and
`numeric(24,12)` holds it exactly. An item without a rate of its own is part of its parent (cached input of input,
reasoning of output); with one it leaves the parent's count, since counts are inclusive (see `billing/tokens.py`).
Pictures that were made and seconds are in the tokens as well where there are tokens: they are billed only by a rate of
their own, and one that is missing is missed only where there are none.

Rates may depend on the size of the prompt (`Prices`). The size is a threshold on the whole request, not a margin: a
prompt of one token more than it has every token of the request, the answer's too, at the other rate. So Google prices
"prompts > 200k tokens", Anthropic inputs above 200k and OpenAI inputs above 272k, and so `genai-prices` computes its
`TieredPrices` (`total_input_tokens > tier.start`). It is the size of the whole prompt, cached tokens included.

A version that is `marginal` has only the tokens of the prompt beyond a size at that size's rates. The prompt is laid
out in the order of `PARTS_OF_INPUT`, what is plain input last: what is cached is a prompt's beginning. The answer, and
what is counted beside the tokens, is at the rates of the size that the whole prompt has, as without.

Rates may depend on the class of service, too (`Prices.classes`): an item for which a class has rates goes by these
alone, at every size; the others keep the ordinary ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

import msgspec

from billing.tokens import Tokens

ZERO, ONE, MILLIONTH = Decimal(0), Decimal(1), Decimal("0.000001")
UNBOUNDED = 2**62  # output tokens: nobody counts so far

# Items that are inside another one's count, and where that count lies in `Tokens`.
PARTS_OF_INPUT = {
    "cached_input": "cached",
    "cache_write_5m": "cache_write_5m",
    "cache_write_1h": "cache_write_1h",
    "audio_input": "audio_input",
    "image_input": "image_input",
    "video_input": "video_input",
}
PARTS_OF_OUTPUT = {"reasoning": "reasoning", "audio_output": "audio_output", "image_output": "image_output"}
# Items that are no tokens, and what counts them. Dollars each, as a request is.
COUNTED = {"web_search": "web_searches", "image": "images", "second": "seconds"}
EACH = frozenset({"request", *COUNTED})
# Words for the class of service that ordinary rates are for; "" and "auto" leave it to the provider.
DEFAULT_CLASS = ("default", "standard")
ORDINARY = frozenset({"", "auto", *DEFAULT_CLASS})


def service_word(service: object) -> str:
    """The word among an offer's parameters that says that its prices have rates for a class of service."""
    return f"service_tier={str(service).lower()}"


@dataclass(frozen=True, slots=True)
class Rate:
    """Dollars for one item: per million tokens, or each for those of `EACH`. None: unknown.

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
        return amount if self.item in EACH else amount * MILLIONTH


class Priced(msgspec.Struct, frozen=True):
    """What a generation costs us and what the tenant is charged, with the lines that add up to it. None: unknown."""

    cost: Decimal | None
    charge: Decimal | None
    lines: tuple[Line, ...]


class Sheet(msgspec.Struct, frozen=True):
    """Rates as they are applied, made once for every request (`sheet`): only what has a rate is looked at.

    - `input`, `output`: the wholes' rates; `inputs`, `outputs`: their parts', each an item and the count it goes by
    - `request`: its line, if it has a rate; `each`: the rates of what is counted beside the tokens, None: none
    - `stretches`: of a marginal version, the prompt's rates up to each size; empty: it has one rate an item
    """

    input: Rate
    inputs: tuple[tuple[str, str, Rate], ...]
    output: Rate
    outputs: tuple[tuple[str, str, Rate], ...]
    request: tuple[Line, ...]
    each: tuple[tuple[str, str, Rate | None], ...]
    stretches: tuple[tuple[int, Rates], ...] = ()


def sheet(rates: Rates, stretches: tuple[tuple[int, Rates], ...] = ()) -> Sheet:
    """The sheet of rates by item."""
    return Sheet(
        rates.get("input", UNKNOWN),
        tuple((item, part, rates[item]) for item, part in PARTS_OF_INPUT.items() if item in rates),
        rates.get("output", UNKNOWN),
        tuple((item, part, rates[item]) for item, part in PARTS_OF_OUTPUT.items() if item in rates),
        (Line("request", 1, rates["request"]),) if "request" in rates else (),
        tuple((item, counted, rates.get(item)) for item, counted in COUNTED.items()),
        stretches,
    )


def lines(tokens: Tokens, by: Sheet) -> tuple[Line, ...]:
    """The lines of a bill: every item with a quantity, none counted twice. A missing rate is an unknown price."""
    found: list[Line] = []
    # Counts that overlap (a cached image) must not add up to more than the whole.
    if by.stretches:
        found += _stretched(tokens, by.stretches)
    else:
        rest = tokens.prompt
        for item, part, rate in by.inputs:
            if quantity := min(getattr(tokens, part), rest):
                found.append(Line(item, quantity, rate))
                rest -= quantity
        if rest:
            found.append(Line("input", rest, by.input))
    rest = tokens.completion
    for item, part, rate in by.outputs:
        if quantity := min(getattr(tokens, part), rest):
            found.append(Line(item, quantity, rate))
            rest -= quantity
    if rest:
        found.append(Line("output", rest, by.output))
    found += by.request
    if tokens.web_searches or tokens.images or tokens.seconds:
        for item, counted, one in by.each:
            # Tokens say it as well, if there are any; nothing else says that there was a search.
            if (quantity := getattr(tokens, counted)) and (one or item == "web_search" or not tokens.total):
                found.append(Line(item, quantity, one or UNKNOWN))
    return tuple(found)


def _stretched(tokens: Tokens, stretches: tuple[tuple[int, Rates], ...]) -> Iterator[Line]:
    """The lines of a prompt of which each stretch, up to so many tokens, has rates of its own."""
    laid: list[tuple[str, int]] = []
    rest = tokens.prompt
    for item, part in PARTS_OF_INPUT.items():
        if any(item in rates for _, rates in stretches) and (quantity := min(getattr(tokens, part), rest)):
            laid.append((item, quantity))
            rest -= quantity
    laid.append(("input", rest))
    found: dict[tuple[str, Rate], int] = {}
    begin = 0
    for item, quantity in laid:
        start = 0
        for end, rates in stretches:
            if (here := min(end, begin + quantity) - max(start, begin)) > 0:
                named = item if item in rates else "input"
                place = named, rates.get(named, UNKNOWN)
                found[place] = found.get(place, 0) + here
            start = end
        begin += quantity
    return (Line(item, quantity, rate) for (item, rate), quantity in found.items())


def price(tokens: Tokens, by: Sheet) -> Priced:
    """What `tokens` cost and are charged by a sheet. Amounts are >= 0 and exact; one unknown line makes None."""
    bill = lines(tokens, by)
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


class Extras(msgspec.Struct, frozen=True):
    """What a request may be billed for beside tokens, at most."""

    searches: int = 0
    images: int = 0
    seconds: int = 0


NO_EXTRAS = Extras()


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The dearest rates of a tariff version, in dollars: an input token, an output token, a request, and each of what
    is counted beside the tokens.

    None: unknown.
    """

    input: Decimal | None
    output: Decimal | None
    request: Decimal | None
    search: Decimal | None = None
    image: Decimal | None = ZERO
    second: Decimal | None = ZERO

    def worst(self, input_tokens: int, copies: int, extras: Extras = NO_EXTRAS) -> WorstCase:
        """The worst case of a request of at most `input_tokens` and `extras` that asks for `copies` answers."""
        fixed = self.fixed(input_tokens, extras)
        if fixed is None or self.output is None:
            return WorstCase(None, None)
        return WorstCase(fixed, self.output * copies)

    def fixed(self, input_tokens: int, extras: Extras) -> Decimal | None:
        """Dollars, at most, whatever is written."""
        if self.input is None or self.request is None:
            return None
        fixed = self.input * input_tokens + self.request
        if extras is NO_EXTRAS:
            return fixed
        for count, each in (
            (extras.searches, self.search), (extras.images, self.image), (extras.seconds, self.second)
        ):  # fmt: skip
            if count:
                if each is None:
                    return None
                fixed += each * count
        return fixed

    def worst_continued(self, input_tokens: int) -> WorstCase:
        """The worst case of an answer that one offer begins and another ends, if this is `over` the ceilings of both.

        Each reads the prompt, the second one also what the first one wrote, and together they write no more than the
        output cap.
        """
        once = self.worst(input_tokens, 1)
        if once.fixed is None or once.rate is None or self.input is None:
            return once
        return WorstCase(once.fixed * 2, once.rate + self.input)

    def price(self, input_tokens: int, output_tokens: int, extras: Extras = NO_EXTRAS) -> Decimal | None:
        """Dollars, at most, for so many tokens and `extras`, all answers together; None: unknown."""
        fixed = self.fixed(input_tokens, extras)
        return None if fixed is None or self.output is None else fixed + self.output * output_tokens

    def over(self, other: "Ceiling") -> "Ceiling":
        """The dearer of each of two."""
        return Ceiling(
            _dearer(self.input, other.input),
            _dearer(self.output, other.output),
            _dearer(self.request, other.request),
            _dearer(self.search, other.search),
            _dearer(self.image, other.image),
            _dearer(self.second, other.second),
        )


def ceiling(rates: Rates) -> Ceiling:
    """The dearest rates among `rates`: every input token at the dearest input rate, output alike."""
    charge_in, charge_out = _dearest(rates, "input", PARTS_OF_INPUT), _dearest(rates, "output", PARTS_OF_OUTPUT)
    return Ceiling(
        None if charge_in is None else charge_in.scaleb(-6),
        None if charge_out is None else charge_out.scaleb(-6),
        rates["request"].charge if "request" in rates else ZERO,
        rates["web_search"].charge if "web_search" in rates else None,
        rates["image"].charge if "image" in rates else ZERO,
        rates["second"].charge if "second" in rates else ZERO,
    )


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of a tariff version by size of prompt: `base`, and from a size (exclusive) on a higher one.

    Over every class of service, since a provider may choose; `asked`: of a request that asks for one, by that.
    """

    base: Ceiling
    steps: tuple[tuple[int, Ceiling], ...] = ()
    asked: Mapping[str, "Ceilings"] = field(default_factory=dict)

    def at(self, input_tokens: int) -> Ceiling:
        """The one over every prompt of at most `input_tokens`."""
        found = self.base
        for above, higher in self.steps:
            if input_tokens <= above:
                break
            found = higher
        return found

    def over(self, other: "Ceilings") -> "Ceilings":
        """The dearer of both at every size, of any class of service."""
        sizes = sorted({above for above, _ in (*self.steps, *other.steps)})
        steps = tuple((above, self.at(above + 1).over(other.at(above + 1))) for above in sizes)
        return Ceilings(self.base.over(other.base), steps)


@dataclass(frozen=True, slots=True)
class Step:
    """All rates of prompts of more than `above` tokens, exclusive, up to the next step."""

    above: int
    rates: Rates


class Marginal(NamedTuple):
    """Whether only what of a prompt is beyond a size is at its rates: in what it costs, and in what is charged."""

    cost: bool
    charge: bool


WHOLE = Marginal(False, False)


@dataclass(frozen=True, slots=True)
class Prices:
    """The rates of a tariff version: `rates` below every step, then `steps` by size, ascending. No rates: unknown.

    `classes`: the prices of other classes of service than the ordinary one, by name. `sheets`: of every size.
    """

    rates: Rates
    steps: tuple[Step, ...] = ()
    marginal: Marginal = WHOLE
    classes: Mapping[str, "Prices"] = field(default_factory=dict)
    sheets: tuple[Sheet, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sheets = [sheet(self.rates)]
        for reached, step in enumerate(self.steps, 1):
            sheets.append(sheet(step.rates, self._stretches(reached) if any(self.marginal) else ()))
        object.__setattr__(self, "sheets", tuple(sheets))

    def _stretches(self, reached: int) -> tuple[tuple[int, Rates], ...]:
        """The rates of a prompt that has reached so many steps, up to each size, the last one without an end."""
        each = (self.rates, *(step.rates for step in self.steps))
        ends = (*(step.above for step in self.steps[:reached]), UNBOUNDED)
        cost, charge = self.marginal
        if cost and charge:
            return tuple(zip(ends, each[: reached + 1], strict=True))
        whole = each[reached]
        return tuple(
            (end, _charged_as(one if cost else whole, one if charge else whole))
            for end, one in zip(ends, each[: reached + 1], strict=True)
        )

    def at(self, prompt: int) -> Rates:
        """The rates of a request whose whole prompt is `prompt` tokens; of a marginal version, of its last token."""
        rates = self.rates
        for step in self.steps:
            if prompt <= step.above:
                break
            rates = step.rates
        return rates

    def of(self, service: str | None) -> "Prices":
        """Those of a class of service; one without rates of its own has the ordinary ones, see `knows`."""
        return self.classes.get(service.lower(), self) if service and self.classes else self

    def knows(self, service: str | None) -> bool:
        """Whether there are rates for a class of service; ordinary rates are for one that nobody named."""
        named = (service or "").lower()
        return named in ORDINARY or named in self.classes

    def price(self, tokens: Tokens) -> Priced:
        """What `tokens` cost and are charged, at the rates of their prompt's size and the ordinary class of service."""
        sheets = self.sheets
        if not self.steps:
            return price(tokens, sheets[0])
        return price(tokens, sheets[sum(tokens.prompt > step.above for step in self.steps)])

    def lacking(self) -> list[tuple[str, int, str]]:
        """Items, with the size above which and the class of service for which they are meant, without whose charge no
        worst case is known.
        """
        found = [(item, 0, "") for item in ("input", "output") if item not in self.rates]
        for service, prices in (("", self), *self.classes.items()):
            for above, rates in ((0, prices.rates), *((step.above, step.rates) for step in prices.steps)):
                found += [
                    (item, above, service)
                    for item, rate in rates.items()
                    if rate.charge is None
                    and item not in COUNTED
                    and (not service or rate is not self.at(above + 1).get(item))
                ]
        return found

    def ceilings(self) -> Ceilings:
        """What no request under these prices exceeds."""
        highest = base = ceiling(self.rates)
        steps = [(step.above, highest := ceiling(step.rates).over(highest)) for step in self.steps]
        own = Ceilings(base, tuple(steps))
        if not self.classes:
            return own
        asked = {service: prices.ceilings().over(own) for service, prices in self.classes.items()}
        every = reduce(Ceilings.over, asked.values())
        return Ceilings(every.base, every.steps, {**asked, **dict.fromkeys(DEFAULT_CLASS, own)})

    def worst_case(self, input_tokens: int, copies: int) -> WorstCase:
        """The worst case of a request of at most `input_tokens`, of whatever size it turns out to be."""
        return self.ceilings().at(input_tokens).worst(input_tokens, copies)


NO_PRICES = Prices({})
Row = tuple[str, int, str, Rate]  # an item's rate above a size of prompt (0: of any), for a class of service ("": any)


def compiled(
    rows: Iterable[Row], *, free: Iterable[str] = (), marginal: bool = False, exchange_rate: Decimal = ONE
) -> Prices:
    """Prices from the rows of a version, each (item, size, class) once.

    An item without a rate at a step keeps the one it has below it; what is `free` without any costs nothing. Rates in
    another currency come to dollars at the version's `exchange_rate`, each rounded to the six decimals of a rate, half
    to even, so that every amount of them is exact.
    """
    ordinary: list[tuple[str, int, Rate]] = []
    classes: dict[str, dict[int, dict[str, Rate]]] = {}
    for item, above, service, rate in rows:
        if exchange_rate != ONE:
            rate = Rate(_exchanged(rate.cost, exchange_rate), _exchanged(rate.charge, exchange_rate))
        if service:
            classes.setdefault(service, {}).setdefault(above, {})[item] = rate
        else:
            ordinary.append((item, above, rate))
    base = by_size(ordinary, free=free, marginal=marginal)
    found = {service: _overlaid(base, sizes) for service, sizes in classes.items()}
    return Prices(base.rates, base.steps, base.marginal, found) if found else base


def _exchanged(amount: Decimal | None, exchange_rate: Decimal) -> Decimal | None:
    return None if amount is None else (amount * exchange_rate).quantize(MILLIONTH)


def _overlaid(base: Prices, sizes: Mapping[int, Rates]) -> Prices:
    """Prices in which an item for which `sizes` has rates goes by these from the first of them on."""
    own: Rates = {}
    found = []
    for above in sorted({0, *sizes, *(step.above for step in base.steps)}):
        own = {**own, **sizes.get(above, {})}
        found.append(Step(above, {**base.at(above + 1), **own}))
    return Prices(found[0].rates, tuple(found[1:]), base.marginal)


def by_size(rates: Iterable[tuple[str, int, Rate]], *, free: Iterable[str] = (), marginal: bool = False) -> Prices:
    """`compiled` of rates for the ordinary class of service alone."""
    sizes: dict[int, dict[str, Rate]] = {0: dict.fromkeys(free, FREE)}
    for item, above, rate in rates:
        sizes.setdefault(above, {})[item] = rate
    current: dict[str, Rate] = {}
    found = [Step(above, current := current | sizes[above]) for above in sorted(sizes)]
    return Prices(found[0].rates, tuple(found[1:]), Marginal(marginal, marginal))


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

    steps = tuple(Step(step.above, over(step.rates)) for step in prices.steps)
    marginal = Marginal(prices.marginal.cost, prices.marginal.cost)
    classes = {service: marked_up(one, percent) for service, one in prices.classes.items()}
    return Prices(over(prices.rates), steps, marginal, classes)


def charged_as(prices: Prices, others: Prices) -> Prices:
    """Prices of which the costs are those of `prices`, and the charges those of `others`.

    Where one of the two has no rate for an item, its price is that of what the item is part of, so that each amount is
    what its own list alone would make of it. Of a class of service that only `prices` have rates for the charges are
    the ordinary ones; of one that only `others` have, the cost is unknown.
    """
    sizes = sorted({step.above for step in (*prices.steps, *others.steps)})
    steps = tuple(Step(above, _charged_as(prices.at(above + 1), others.at(above + 1))) for above in sizes)
    marginal = Marginal(prices.marginal.cost, others.marginal.charge)
    classes = {
        service: charged_as(_plain(prices.classes.get(service) or _costless(prices)), _plain(others.of(service)))
        for service in dict.fromkeys((*prices.classes, *others.classes))
    }
    return Prices(_charged_as(prices.rates, others.rates), steps, marginal, classes)


def _plain(prices: Prices) -> Prices:
    return Prices(prices.rates, prices.steps, prices.marginal) if prices.classes else prices


def _costless(prices: Prices) -> Prices:
    """These with every cost unknown."""

    def without(rates: Rates) -> Rates:
        return {item: Rate(None, rate.charge) for item, rate in rates.items()}

    steps = tuple(Step(step.above, without(step.rates)) for step in prices.steps)
    return Prices(without(prices.rates), steps, prices.marginal)


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
