"""A price list as `genai-prices` publishes it (`prices/new_data/v2`), from whoever says that this is one. Pure.

Read as money is: a list with one thing that is not as it must be is no list. Of a provider its models are read, of a
model its name, size and prices; what is said besides is passed over. A pattern of the list is run only if the
installed package has it too: another one may be made to take for ever.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any

from genai_prices import types as listed

MOST_BYTES = 8 << 20
MOST_PROVIDERS = 1_000
MOST_MODELS = 50_000  # together
MOST_TEXT = 100  # characters of a name, as the published schema has it; of what the list says of it none is kept
MOST_COUNT = 2**31 - 1  # tokens
MOST_DIGITS = 20  # of a price
LARGEST = {"kcount": Decimal(10_000), "mtok": Decimal(1_000_000)}  # dollars, exclusive: what a rate of ours can be
UNIT = re.compile(r"[a-z][a-z0-9_]{1,62}_[a-z0-9]+", re.ASCII)
NEVER = listed.ClauseOr(or_=[])


class BadList(Exception):
    """This is no price list. The message says where and why."""


def read(data: bytes) -> list[listed.Provider]:
    """The providers of a list, as the installed package has them. Raises BadList."""
    if len(data) > MOST_BYTES:
        raise BadList(f"it is larger than {MOST_BYTES >> 20} MiB")
    try:
        found = json.loads(
            data.decode("utf-8"), parse_float=Decimal, parse_constant=_no_number, object_pairs_hook=_once
        )
    except UnicodeDecodeError:
        raise BadList("it is not UTF-8") from None
    except RecursionError:
        raise BadList("it is nested too deeply") from None
    except (ValueError, ArithmeticError):
        raise BadList("it is no JSON") from None
    rows = _list(found, "the list", MOST_PROVIDERS)
    known = _patterns()
    try:
        providers = [_provider(row, known) for row in rows]
    except RecursionError:
        raise BadList("it is nested too deeply") from None
    _different((provider.id for provider in providers), "the list")
    if sum(len(provider.models) for provider in providers) > MOST_MODELS:
        raise BadList(f"it has more than {MOST_MODELS:,} models")
    return providers


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise BadList("a name stands twice in one object")
    return found


def _no_number(word: str) -> Any:
    raise BadList(f"{word} is no number")


def _patterns() -> frozenset[str]:
    """The patterns of the installed list."""
    from genai_prices.data import providers as installed  # tens of megabytes, for those alone who read a list

    return frozenset(
        clause.regex
        for provider in installed
        for model in provider.models
        for clause in _clauses(model.match)
        if isinstance(clause, listed.ClauseRegex)
    )


def _clauses(match: Any) -> Iterator[Any]:
    yield match
    for clause in getattr(match, "or_", ()) or getattr(match, "and_", ()):
        yield from _clauses(clause)


def _provider(row: Any, known: frozenset[str]) -> listed.Provider:
    given = _object(row, "a provider")
    id = _text(given.get("id"), "a provider's id")
    name = _name(given.get("name"), f"the name of {id}")
    models = [_model(model, id, known) for model in _list(given.get("models"), f"the models of {id}", MOST_MODELS)]
    _different((model.id for model in models), id)
    return listed.Provider(id=id, name=name, api_pattern="", models=models)


def _model(row: Any, provider: str, known: frozenset[str]) -> listed.ModelInfo:
    given = _object(row, f"a model of {provider}")
    id = _text(given.get("id"), f"a model's id at {provider}")
    place = f"{provider}: {id}"
    name, window, prices = given.get("name"), given.get("context_window"), given.get("prices")
    return listed.ModelInfo(
        id=id,
        match=_match(given.get("match"), place, known),
        name=None if name is None else _name(name, f"the name of {place}"),
        context_window=None if window is None else _count(window, f"the size of {place}"),
        prices=_conditions(prices, place) if isinstance(prices, list) else _price(prices, place),
    )


def _match(clause: Any, place: str, known: frozenset[str]) -> Any:
    given = _object(clause, f"what matches {place}")
    if len(given) != 1:
        raise BadList(f"what matches {place} is not one clause")
    ((kind, what),) = given.items()
    if kind in ("or", "and"):
        parts = [_match(part, place, known) for part in _list(what, f"what matches {place}", MOST_MODELS)]
        if not parts:
            raise BadList(f"what matches {place} is nothing")
        return listed.ClauseOr(or_=parts) if kind == "or" else listed.ClauseAnd(and_=parts)
    text = _text(what, f"what matches {place}", most=1000)
    match kind:
        case "equals":
            return listed.ClauseEquals(equals=_text(what, f"what matches {place}"))
        case "starts_with":
            return listed.ClauseStartsWith(starts_with=text)
        case "ends_with":
            return listed.ClauseEndsWith(ends_with=text)
        case "contains":
            return listed.ClauseContains(contains=text)
        case "regex":
            return listed.ClauseRegex(regex=text) if text in known else NEVER
    raise BadList(f"what matches {place} is of no kind that is known")


def _conditions(rows: list[Any], place: str) -> list[listed.ConditionalPrice]:
    """Prices of which the last one that holds counts, the first where none does."""
    if not rows:
        raise BadList(f"{place} has a list of no prices")
    found = []
    for row in rows:
        given = _object(row, f"a price of {place}")
        if not given.keys() <= {"constraint", "prices"}:
            raise BadList(f"a price of {place} has a condition that is not known")
        constraint = given.get("constraint")
        held = None if constraint is None else _constraint(_object(constraint, f"a condition of {place}"), place)
        found.append(listed.ConditionalPrice(held, prices=_price(given.get("prices"), place)))
    return found


def _constraint(given: Mapping[str, Any], place: str) -> Any:
    try:
        if given.keys() == {"start_date"}:
            return listed.StartDateConstraint(start_date=date.fromisoformat(given["start_date"]))
        if given.keys() == {"start_time", "end_time"}:
            begin, end = (time.fromisoformat(given[name]) for name in ("start_time", "end_time"))
            return listed.TimeOfDateConstraint(start_time=begin, end_time=end)
    except (TypeError, ValueError):
        pass
    raise BadList(f"a condition of {place} is none that is known")


def _price(row: Any, place: str) -> listed.ModelPrice:
    given = _object(row, f"the price of {place}")
    for unit in given:
        if not UNIT.fullmatch(unit):
            raise BadList(f"{place} has a price for {unit[:MOST_TEXT]!r}")
    return listed.ModelPrice(**{unit: _amounts(what, unit, place) for unit, what in given.items() if what is not None})


def _amounts(what: Any, unit: str, place: str) -> Decimal | listed.TieredPrices:
    if not isinstance(what, dict):
        return _amount(what, unit, place)
    if what.keys() != {"base", "tiers"}:
        raise BadList(f"{unit} of {place} is no price by size")
    tiers = []
    for row in _list(what["tiers"], f"{unit} of {place}", 1000):
        tier = _object(row, f"{unit} of {place}")
        if tier.keys() != {"start", "price"}:
            raise BadList(f"{unit} of {place} is no price by size")
        tiers.append(listed.Tier(_count(tier["start"], f"{unit} of {place}"), _amount(tier["price"], unit, place)))
    starts = [tier.start for tier in tiers]
    if not starts or starts[0] == 0 or sorted(set(starts)) != starts:
        raise BadList(f"the sizes of {unit} of {place} do not grow")
    return listed.TieredPrices(base=_amount(what["base"], unit, place), tiers=tiers)


# --- values ----------------------------------------------------------------------------------------------------------


def _amount(value: Any, unit: str, place: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        raise BadList(f"{unit} of {place} is no number")
    most = LARGEST.get(unit.rpartition("_")[2], LARGEST["mtok"])
    if not 0 <= value < most:
        raise BadList(f"{unit} of {place} is not within 0 and {most:,}")
    amount = Decimal(value)
    _, digits, exponent = amount.as_tuple()
    # So that no arithmetic on it rounds.
    if len(digits) > MOST_DIGITS or not isinstance(exponent, int) or exponent < -MOST_DIGITS:
        raise BadList(f"{unit} of {place} has more than {MOST_DIGITS} digits")
    return amount


def _count(value: Any, place: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        raise BadList(f"{place} is no count")
    return value


def _text(value: Any, place: str, most: int = MOST_TEXT) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > most or not value.isprintable():
        raise BadList(f"{place} is no text of at most {most} characters")
    return value


def _name(value: Any, place: str) -> str:
    """For people: some have a tab or two spaces in them."""
    return _text(" ".join(value.split()) if isinstance(value, str) else value, place)


def _object(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadList(f"{place} is no object")
    return value


def _list(value: Any, place: str, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise BadList(f"{place} is no list of at most {most:,}")
    return value


def _different(names: Iterable[str], place: str) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise BadList(f"{name} stands twice in {place}")
        seen.add(name)
