"""Prices: tokens times rates, exactly, each token once, never negative, unknown when a needed rate is."""

from decimal import Decimal
from fractions import Fraction
from functools import reduce

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from billing.pricing import (
    COUNTED,
    PARTS_OF_INPUT,
    PARTS_OF_OUTPUT,
    Ceiling,
    Extras,
    Line,
    Priced,
    Prices,
    Rate,
    Rates,
    Row,
    WorstCase,
    by_size,
    ceiling,
    charged_as,
    compiled,
    known,
    marked_up,
    sheet,
)
from billing.pricing import lines as lines_by
from billing.pricing import price as price_by
from billing.tokens import LARGEST, MOST_EACH, Tokens, estimate

# As the table of rates takes them: six decimals, below a million dollars.
prices = st.decimals(min_value=0, max_value=Decimal("999999.999999"), places=6, allow_nan=False)
rate = st.builds(Rate, cost=st.none() | prices, charge=st.none() | prices)
known_rate = st.builds(Rate, cost=prices, charge=prices)
counts = st.integers(0, 5000) | st.integers(0, LARGEST)
PARTS = (*PARTS_OF_INPUT, *PARTS_OF_OUTPUT)
OTHERS = ("request", *COUNTED)


def price(counted: Tokens, version: Rates) -> Priced:
    """What tokens come to by rates of one size."""
    return price_by(counted, sheet(version))


def lines(counted: Tokens, version: Rates) -> tuple[Line, ...]:
    """The lines of that."""
    return lines_by(counted, sheet(version))


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    """Counts that a provider could report, parts never more than their whole, though they may overlap."""
    prompt, completion = draw(counts), draw(counts)
    inside = {name: draw(st.integers(0, prompt)) for name in PARTS_OF_INPUT.values()}
    written = {name: draw(st.integers(0, completion)) for name in PARTS_OF_OUTPUT.values()}
    beside = {name: draw(st.just(0) | st.integers(0, MOST_EACH)) for name in COUNTED.values()}
    return Tokens(prompt, completion, **beside, **inside, **written)


def rates(of: st.SearchStrategy[Rate]) -> st.SearchStrategy[dict[str, Rate]]:
    """A tariff version: input and output, and any of the rest."""
    optional = dict.fromkeys((*PARTS, *OTHERS), of)
    return st.fixed_dictionaries({"input": of, "output": of}, optional=optional)


sizes = st.sampled_from((1, 1000, 4999, LARGEST - 1)) | st.integers(1, 5000) | st.integers(1, LARGEST)


@st.composite
def sized_rates(draw: st.DrawFn, of: st.SearchStrategy[Rate]) -> list[tuple[str, int, Rate]]:
    """Rows of a tariff version of which some wait for larger prompts."""
    waiting = st.fixed_dictionaries({}, optional=dict.fromkeys(("input", "output", *PARTS, *OTHERS), of))
    steps = draw(st.dictionaries(sizes, waiting, max_size=3))
    rows = [
        (item, above, rate) for above, items in {0: draw(rates(of)), **steps}.items() for item, rate in items.items()
    ]
    return draw(st.permutations(rows))


def as_fractions(counted: Tokens, version: Rates) -> Fraction:
    """The charge, computed another way: part by part, in fractions."""
    total = Fraction(0)
    for whole, count, parts in (
        ("input", counted.prompt, PARTS_OF_INPUT),
        ("output", counted.completion, PARTS_OF_OUTPUT),
    ):
        rest = count
        for item, name in parts.items():
            if item in version:
                part = min(getattr(counted, name), rest)
                total += Fraction(version[item].charge or 0) * part / 10**6
                rest -= part
        total += Fraction(version[whole].charge or 0) * rest / 10**6
    if "request" in version:
        total += Fraction(version["request"].charge or 0)
    for item, name in COUNTED.items():
        if item in version:
            total += Fraction(version[item].charge or 0) * getattr(counted, name)
    return total


def needs(counted: Tokens, version: Rates) -> bool:
    """Whether each count has a rate that it cannot do without."""
    missing = [item for item, name in COUNTED.items() if item not in version and getattr(counted, name)]
    return "web_search" in missing or (bool(missing) and not counted.total)


def test_a_million_tokens_cost_their_rate() -> None:
    bill = price(
        Tokens(prompt=1_000_000, completion=1_000_000),
        {"input": Rate(Decimal("0.10"), Decimal("0.25")), "output": Rate(Decimal("3"), Decimal("4.000001"))},
    )
    assert (bill.cost, bill.charge) == (Decimal("3.10"), Decimal("4.250001"))


def test_parts_with_a_rate_of_their_own_leave_the_whole() -> None:
    version = {
        "input": Rate(None, Decimal("2")),
        "cached_input": Rate(None, Decimal("0.5")),
        "output": Rate(None, Decimal("8")),
    }
    bill = price(Tokens(prompt=100, completion=10, cached=60, reasoning=4), version)
    assert [(line.item, line.quantity) for line in bill.lines] == [
        ("cached_input", 60),
        ("input", 40),
        ("output", 10),  # reasoning has no rate of its own, so it is output
    ]
    assert bill.charge == Decimal("0.000190")
    assert bill.cost is None


@given(tokens(), rates(known_rate))
def test_a_charge_is_exact_and_fits_its_column(counted: Tokens, version: dict[str, Rate]) -> None:
    assume(not needs(counted, version))
    charge = price(counted, version).charge
    assert charge is not None
    assert Fraction(charge) == as_fractions(counted, version)
    assert charge == round(charge, 12)
    assert 0 <= charge < 10**12


@given(tokens(), rates(known_rate))
def test_every_token_is_charged_once(counted: Tokens, version: dict[str, Rate]) -> None:
    quantities = {line.item: line.quantity for line in lines(counted, version)}
    assert sum(quantities.get(item, 0) for item in ("input", *PARTS_OF_INPUT)) == counted.prompt
    assert sum(quantities.get(item, 0) for item in ("output", *PARTS_OF_OUTPUT)) == counted.completion


@given(tokens(), rates(known_rate), st.integers(0, 1000), st.integers(0, 1000))
def test_more_tokens_never_cost_less(counted: Tokens, version: dict[str, Rate], more: int, words: int) -> None:
    assume(not needs(counted, version))
    fewer = Tokens(counted.prompt, counted.completion)
    bigger = Tokens(counted.prompt + more, counted.completion + words)
    low, high = price(fewer, version).charge, price(bigger, version).charge
    assert low is not None
    assert high is not None
    assert low <= high


@given(tokens(), rates(rate))
def test_one_unknown_rate_that_is_needed_makes_the_amount_unknown(counted: Tokens, version: dict[str, Rate]) -> None:
    bill = price(counted, version)
    assert (bill.charge is None) == any(line.rate.charge is None for line in bill.lines)
    assert (bill.cost is None) == any(line.rate.cost is None for line in bill.lines)


@given(tokens(), rates(known_rate), st.integers(1, 128), st.integers(0, 10**6))
def test_the_worst_case_covers_whatever_is_used_within_it(
    counted: Tokens, version: dict[str, Rate], copies: int, spare: int
) -> None:
    cap = -(-counted.completion // copies)  # tokens an answer
    version.setdefault("web_search", Rate(Decimal(1), Decimal(2)))
    extras = Extras(counted.web_searches, counted.images, counted.seconds)
    worst = Prices(version).ceilings().at(counted.prompt).worst(counted.prompt + spare, copies, extras).at(cap)
    charge = price(counted, version).charge if counted.total else Decimal(0)
    assert worst is not None
    assert charge is not None
    assert charge <= worst
    assert worst == round(worst, 12)
    assert worst < 10**12


def fields(counted: Tokens) -> dict[str, int]:
    """The counts by name."""
    return {name: getattr(counted, name) for name in Tokens.__struct_fields__}


THRESHOLD = by_size(
    [
        ("input", 0, Rate(Decimal(1), Decimal(2))),
        ("output", 200_000, Rate(Decimal(7), Decimal(8))),
        ("cached_input", 0, Rate(Decimal("0.1"), Decimal("0.2"))),
        ("input", 200_000, Rate(Decimal(3), Decimal(4))),
        ("output", 0, Rate(Decimal(5), Decimal(6))),
    ]
)


def test_one_token_past_the_size_prices_every_token_of_the_request_anew() -> None:
    at = THRESHOLD.price(Tokens(prompt=200_000, completion=1000, cached=50_000))
    past = THRESHOLD.price(Tokens(prompt=200_001, completion=1000, cached=50_000))
    # 150,000 at $2, 50,000 cached at $0.2, 1000 out at $6; then 150,001 at $4, the cache as before, 1000 out at $8.
    assert (at.charge, past.charge) == (Decimal("0.316"), Decimal("0.618004"))
    assert (at.cost, past.cost) == (Decimal("0.16"), Decimal("0.462003"))
    assert [(line.item, line.quantity, line.rate.charge) for line in past.lines] == [
        ("cached_input", 50_000, Decimal("0.2")),
        ("input", 150_001, Decimal(4)),
        ("output", 1000, Decimal(8)),
    ]


@given(sized_rates(rate), sizes | st.just(0), st.integers(-1, 1))
def test_each_item_has_the_rate_of_the_largest_size_that_the_prompt_is_above(
    rows: list[tuple[str, int, Rate]], size: int, off: int
) -> None:
    prompt = max(size + off, 0)
    held = {item: (above, rate) for item, above, rate in sorted(rows, key=size_of) if above == 0 or prompt > above}
    assert by_size(rows).at(prompt) == {item: rate for item, (_, rate) in held.items()}


def size_of(row: tuple[str, int, Rate]) -> int:
    """From which size of prompt on a rate holds."""
    return row[1]


@given(tokens(), sized_rates(known_rate), st.integers(1, 128), st.just(0) | st.integers(0, 10**6), st.booleans())
def test_the_worst_case_covers_every_size_of_prompt_within_it(
    counted: Tokens, rows: list[tuple[str, int, Rate]], copies: int, spare: int, just_past: bool
) -> None:
    prices = by_size(rows)
    if just_past and prices.steps:
        counted = structs.replace(counted, prompt=prices.steps[-1].above + 1)
    cap = -(-counted.completion // copies)
    worst = prices.worst_case(counted.prompt + spare, copies).at(cap)
    used = Tokens(**{**fields(counted), **dict.fromkeys(COUNTED.values(), 0)})
    charge = prices.price(used).charge
    assert worst is not None
    assert charge is not None
    assert charge <= worst
    assert Fraction(charge) == as_fractions(used, prices.at(counted.prompt))
    assert worst == round(worst, 12)


def test_a_worst_case_counts_the_sizes_it_may_reach_and_no_other() -> None:
    assert THRESHOLD.worst_case(200_000, 1).at(1000) == Decimal("0.406")
    assert THRESHOLD.worst_case(200_001, 1).at(1000) == Decimal("0.808004")
    unknown = by_size(
        [(item, 0, Rate(None, Decimal(1))) for item in ("input", "output")] + [("input", 9, Rate(None, None))]
    )
    assert unknown.worst_case(9, 1).at(1) == Decimal("0.000010")
    assert unknown.worst_case(10, 1).at(1) is None
    assert Prices({}).worst_case(0, 1).at(0) is None


@given(st.lists(st.builds(WorstCase, prices, prices), min_size=1, max_size=4), st.integers(0, 10**6))
def test_the_dearest_of_several_covers_each(cases: list[WorstCase], cap: int) -> None:
    together = reduce(WorstCase.over, cases).at(cap)
    assert together is not None
    for case in cases:
        alone = case.at(cap)
        assert alone is not None
        assert alone <= together


small = st.integers(0, 10**5)


@given(rates(known_rate), rates(known_rate), small, st.lists(small, min_size=2, max_size=2), small, small)
def test_the_worst_case_of_a_continued_answer_covers_two_offers(
    first: dict[str, Rate], second: dict[str, Rate], prompt: int, said: list[int], thought: int, cached: int
) -> None:
    cap = sum(said)
    worst = ceiling(first).over(ceiling(second)).worst_continued(prompt).at(cap)
    broken = Tokens(prompt, said[0], cached=min(cached, prompt), reasoning=min(thought, said[0]))
    rest = Tokens(prompt + said[0], said[1], cached=min(cached, prompt), reasoning=min(thought, said[1]))
    charges = price(broken, first).charge, price(rest, second).charge
    assert worst is not None
    assert None not in charges
    assert sum(charge or 0 for charge in charges) <= worst


def test_the_one_may_write_dearly_and_the_other_read_dearly() -> None:
    cheap, dear = Rate(Decimal(1), Decimal(1)), Rate(Decimal(9), Decimal(9))
    writer, reader = {"input": cheap, "output": dear}, {"input": dear, "output": cheap}
    worst = ceiling(writer).over(ceiling(reader)).worst_continued(10)
    assert (worst.fixed, worst.rate) == (Decimal("0.000180"), Decimal("0.000018"))


def test_counts_add_up_bucket_by_bucket() -> None:
    both = Tokens(5, 3, cached=2, reasoning=1) + Tokens(7, 4, cached=1, web_searches=2)
    assert both == Tokens(12, 7, cached=3, reasoning=1, web_searches=2)


def test_a_worst_case_without_a_price_is_unknown() -> None:
    known, unknown = Rate(Decimal(1), Decimal(1)), Rate(Decimal(1), None)
    assert Ceiling(None, Decimal(1), Decimal(0)).worst_continued(1).at(1) is None
    assert ceiling({"input": known, "output": known}).over(ceiling({"input": unknown, "output": known})).input is None
    assert Prices({}).worst_case(1, 1).at(1) is None
    assert Prices({"input": known}).worst_case(1, 1).at(1) is None
    assert Prices({"input": known, "output": unknown}).worst_case(1, 1).at(1) is None
    assert Prices({"input": known, "output": known, "reasoning": unknown}).worst_case(1, 1).at(1) is None
    assert Prices({"input": known, "output": known, "request": unknown}).worst_case(1, 1).at(1) is None
    assert WorstCase(Decimal(1), Decimal(1)).over(WorstCase(None, None)).at(1) is None


@given(st.text())
def test_an_estimate_is_covered_by_what_a_hold_counts(text: str) -> None:
    size = len(text.encode())
    assert estimate(size) <= size
    assert estimate(size) * 4 >= size


@given(tokens(), rates(rate))
def test_an_unknown_line_leaves_what_is_known(counted: Tokens, version: dict[str, Rate]) -> None:
    lines = price(counted, version).lines
    for amount, column in zip(known(lines), ("charge", "cost"), strict=True):
        each = [line.amount(getattr(line.rate, column)) for line in lines]
        found = [one for one in each if one is not None]
        assert amount == (sum(found) if found else None)


def test_what_is_free_without_a_rate_costs_nothing_and_holds_nothing() -> None:
    vectors = by_size([("input", 0, Rate(Decimal(1), Decimal(2)))], free=("output",))
    assert vectors.lacking() == []
    assert vectors.worst_case(10, 1).at(1000) == Decimal("0.00002")
    dear = by_size([("input", 0, Rate(Decimal(1), Decimal(2))), ("output", 0, Rate(None, None))], free=("output",))
    assert dear.lacking() == [("output", 0, "")]


# --- marginal sizes and classes of service ---------------------------------------------------------------------------

few = st.integers(0, 30)
CLASSES = ("", "flex", "priority")


@st.composite
def few_tokens(draw: st.DrawFn) -> Tokens:
    """So few that each can be looked at."""
    prompt, completion = draw(few), draw(few)
    inside = {name: draw(st.integers(0, prompt)) for name in PARTS_OF_INPUT.values()}
    written = {name: draw(st.integers(0, completion)) for name in PARTS_OF_OUTPUT.values()}
    return Tokens(prompt, completion, **{name: draw(few) for name in COUNTED.values()}, **inside, **written)


@st.composite
def versions(draw: st.DrawFn, rising: bool = False) -> list[Row]:
    """All rows of a tariff version, by size and class of service; `rising`: no size is cheaper than the one below."""
    rows: dict[tuple[str, int, str], Rate] = {}
    above = [0, *sorted(draw(st.sets(st.integers(1, 30), max_size=3)))]
    for service in CLASSES:
        always = ("input", "output", "web_search") if not service else ()
        items = {*always, *draw(st.sets(st.sampled_from(("input", "output", *PARTS, *OTHERS)), max_size=6))}
        for item in sorted(items):
            cost = charge = Decimal(0)
            for size in above:
                if (size and not draw(st.booleans())) or (not size and not rising and service and draw(st.booleans())):
                    continue
                one, other = draw(prices), draw(prices)
                cost, charge = (max(cost, one), max(charge, other)) if rising else (one, other)
                rows[item, size, service] = Rate(cost, charge)
    return [(*place, rate) for place, rate in rows.items()]


def rate_at(rows: list[Row], item: str, prompt: int, service: str) -> Rate | None:
    """The rate of an item in a prompt of this size: the class's own where it has one, else the ordinary one."""
    for wanted in (service, ""):
        found = [
            (above, rate) for name, above, of, rate in rows if (name, of) == (item, wanted) and above < max(prompt, 1)
        ]
        if found:
            return max(found, key=lambda pair: pair[0])[1]
    return None


def token_by_token(counted: Tokens, rows: list[Row], marginal: bool, service: str) -> Fraction:
    """The charge, each token on its own, in fractions."""
    named = {name for name, above, of, _ in rows if of in ("", service) and above < max(counted.prompt, 1)}
    total = Fraction(0)
    for whole, count, parts in (
        ("input", counted.prompt, PARTS_OF_INPUT),
        ("output", counted.completion, PARTS_OF_OUTPUT),
    ):
        laid = [item for item, name in parts.items() if item in named for _ in range(getattr(counted, name))][:count]
        for place, item in enumerate(laid + [whole] * (count - len(laid)), 1):
            size = place if marginal and whole == "input" else counted.prompt
            rate = rate_at(rows, item, size, service) or rate_at(rows, whole, size, service)
            assert rate is not None
            total += Fraction(rate.charge or 0) / 10**6
    if rate := rate_at(rows, "request", counted.prompt, service):
        total += Fraction(rate.charge or 0)
    for item, name in COUNTED.items():
        if rate := rate_at(rows, item, counted.prompt, service):
            total += Fraction(rate.charge or 0) * getattr(counted, name)
    return total


def in_dollars(rows: list[Row], exchange_rate: Decimal) -> list[Row]:
    """Rates in another currency, each in dollars to six decimals, half to even."""

    def worth(amount: Decimal | None) -> Decimal:
        return Decimal(round(Fraction(amount or 0) * Fraction(exchange_rate) * 10**6)) / 10**6

    return [(*place, Rate(worth(rate.cost), worth(rate.charge))) for *place, rate in rows]  # type: ignore[misc]


@given(
    few_tokens(),
    versions(),
    st.booleans(),
    st.sampled_from(CLASSES),
    st.just(Decimal(1)) | st.decimals("0.000000001", "9.999999999", places=9),
)
def test_a_charge_is_what_each_token_comes_to_by_its_size_and_class(
    counted: Tokens, rows: list[Row], marginal: bool, service: str, exchange_rate: Decimal
) -> None:
    assume(counted.total)
    version = compiled(rows, marginal=marginal, exchange_rate=exchange_rate).of(service)
    rows = in_dollars(rows, exchange_rate)
    bill = version.price(counted)
    assert bill.charge is not None
    assert Fraction(bill.charge) == token_by_token(counted, rows, marginal, service)
    assert bill.charge == round(bill.charge, 12) >= 0
    for whole, parts, count in (
        ("input", PARTS_OF_INPUT, counted.prompt),
        ("output", PARTS_OF_OUTPUT, counted.completion),
    ):
        assert sum(line.quantity for line in bill.lines if line.item in (whole, *parts)) == count


@given(few_tokens(), versions(rising=True), st.booleans(), st.sampled_from(CLASSES))
def test_more_of_anything_never_costs_less(counted: Tokens, rows: list[Row], marginal: bool, service: str) -> None:
    assume(counted.total)
    version = compiled(rows, marginal=marginal).of(service)
    before = version.price(counted).charge
    assert before is not None
    for name in Tokens.__struct_fields__:
        more = {name: getattr(counted, name) + 1}
        if name in PARTS_OF_INPUT.values():
            more["prompt"] = counted.prompt + 1
        elif name in PARTS_OF_OUTPUT.values():
            more["completion"] = counted.completion + 1
        after = version.price(structs.replace(counted, **more)).charge
        assert after is not None and after >= before, name


@given(few_tokens(), versions(), st.booleans(), st.sampled_from(CLASSES), st.booleans())
def test_a_hold_covers_whatever_class_may_be_served(
    counted: Tokens, rows: list[Row], marginal: bool, asked: str, fell_back: bool
) -> None:
    assume(counted.total)
    version = compiled(rows, marginal=marginal)
    extras = Extras(counted.web_searches, counted.images, counted.seconds)
    ceilings = version.ceilings()
    for served in (asked, "") if asked else CLASSES:  # who asks for none leaves it to the provider
        charge = version.of(served).price(counted).charge
        worst = ceilings.asked.get(asked, ceilings).at(counted.prompt).worst(counted.prompt, 1, extras)
        held = worst.at(counted.completion)
        assert charge is not None and held is not None and charge <= held
    ordinary = version.price(counted).charge
    held = (
        ceilings.asked.get("default", ceilings)
        .at(counted.prompt)
        .worst(counted.prompt, 1, extras)
        .at(counted.completion)
    )
    assert ordinary is not None and held is not None and ordinary <= held


@given(few_tokens(), versions(), versions(), st.booleans(), st.booleans(), st.sampled_from(CLASSES))
def test_two_lists_with_switches_of_their_own_stay_apart(
    counted: Tokens, ours: list[Row], theirs: list[Row], one: bool, other: bool, service: str
) -> None:
    counted = Tokens(counted.prompt, counted.completion, cached=counted.cached, reasoning=counted.reasoning)
    costs, charges = compiled(ours, marginal=one), compiled(theirs, marginal=other)
    both = charged_as(costs, charges).of(service).price(counted)
    assert both.charge == charges.of(service).price(counted).charge
    if costs.knows(service):
        assert both.cost == costs.of(service).price(counted).cost
    elif charges.knows(service):
        assert both.cost is None or not both.lines
    dearer = marked_up(costs, Decimal(0)).of(service).price(counted)
    assert (dearer.charge, dearer.cost) == (dearer.cost, costs.of(service).price(counted).cost)


def test_a_margin_is_only_of_the_tokens_beyond_the_size() -> None:
    rows: list[Row] = [
        ("input", 0, "", Rate(None, Decimal(2))),
        ("cached_input", 0, "", Rate(None, Decimal("0.2"))),
        ("output", 0, "", Rate(None, Decimal(12))),
        ("input", 200_000, "", Rate(None, Decimal(4))),
        ("output", 200_000, "", Rate(None, Decimal(18))),
    ]
    counted = Tokens(prompt=250_000, completion=1000, cached=50_000)
    whole, margin = compiled(rows).price(counted), compiled(rows, marginal=True).price(counted)
    # 200,000 at $4, 50,000 cached at $0.2, 1,000 at $18; or of what is not cached 150,000 at $2 and 50,000 at $4.
    assert (whole.charge, margin.charge) == (Decimal("0.828"), Decimal("0.528"))
    assert [(line.item, line.quantity, line.rate.charge) for line in margin.lines] == [
        ("cached_input", 50_000, Decimal("0.2")),
        ("input", 150_000, Decimal(2)),
        ("input", 50_000, Decimal(4)),
        ("output", 1000, Decimal(18)),
    ]


def test_a_class_of_service_has_its_own_rates_and_the_ordinary_ones_for_the_rest() -> None:
    known = {"input": "3", "cached_input": "0.3", "output": "15"}
    rows: list[Row] = [(item, 0, "", Rate(Decimal(one), Decimal(one))) for item, one in known.items()]
    rows += [("input", 200_000, "", Rate(Decimal(6), Decimal(6)))]
    rows += [
        (item, 0, "flex", Rate(Decimal(one), Decimal(one))) for item, one in {"input": "1.5", "output": "7.5"}.items()
    ]
    version = compiled(rows)
    counted = Tokens(prompt=1_000_000, completion=1_000_000, cached=500_000)
    assert version.price(counted).charge == Decimal("18.15")
    assert version.of("flex").price(counted).charge == version.of("FLEX").price(counted).charge == Decimal("8.4")
    assert version.of("scale") is version
    assert [version.knows(word) for word in (None, "", "auto", "default", "standard", "Flex", "scale")] == [
        *(True, True, True, True, True, True, False)
    ]


def test_pictures_and_seconds_are_billed_by_a_rate_of_their_own_or_missed_when_nothing_else_tells() -> None:
    known = {"input": "1", "output": "2", "image": "0.04", "second": "0.0001"}
    version = {item: Rate(Decimal(one), Decimal(one)) for item, one in known.items()}
    plain = {item: version[item] for item in ("input", "output")}
    counted = Tokens(1000, 1000, images=2, seconds=60)
    assert price(counted, version).charge == Decimal("0.089")
    assert price(counted, plain).charge == Decimal("0.003")
    assert price(Tokens(seconds=60), version).charge == Decimal("0.006")
    assert price(Tokens(seconds=60), plain).charge is None
    video = {**plain, "video_input": Rate(None, Decimal(5)), "image_output": Rate(None, Decimal(30))}
    assert price(Tokens(1000, 1000, video_input=400, image_output=900), video).charge == Decimal("0.0298")
