"""A price list as it is published: read to the last digit, or not at all."""

import json
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pytest
from genai_prices import types as listed
from genai_prices.data import providers as installed

from routing.starter import published
from routing.starter.published import BadList, read


def as_published(value: Any) -> Any:
    """What the installed package holds, as the published list says it."""
    if isinstance(value, listed.ModelPrice):
        return {unit: as_published(price) for unit, price in vars(value).items() if price is not None}
    if is_dataclass(value):
        named = {field.name.rstrip("_"): getattr(value, field.name) for field in fields(value)}
        return {name: as_published(what) for name, what in named.items() if what is not None}
    if isinstance(value, list):
        return [as_published(one) for one in value]
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, (date, time)) else value


def provider(**model: Any) -> list[dict[str, Any]]:
    """A list of one model."""
    row = {"id": "swift", "match": {"equals": "swift"}, "prices": {"input_mtok": 1, "output_mtok": 2}, **model}
    return [{"id": "lab", "name": "Lab", "api_pattern": "x", "models": [row]}]


def text(rows: Any) -> bytes:
    return json.dumps(rows).encode()


def test_the_whole_installed_list_is_read_as_it_is() -> None:
    rows = [{"id": one.id, "name": one.name, "models": as_published(one.models)} for one in installed]
    found = read(text(rows))
    moments = [datetime(year, 6, 1, 12, tzinfo=UTC) for year in (2024, 2026, 2030)]
    compared = 0
    for ours, theirs in zip(found, installed, strict=True):
        assert (ours.id, ours.name, len(ours.models)) == (theirs.id, theirs.name, len(theirs.models))
        for model, other in zip(ours.models, theirs.models, strict=True):
            assert (model.id, model.name, model.context_window, model.match) == (
                *(other.id, other.name and " ".join(other.name.split()), other.context_window, other.match),
            )
            for moment in moments:
                assert model.get_prices(moment) == other.get_prices(moment)
            compared += 1
    assert compared > 2000


def test_a_price_keeps_its_digits() -> None:
    prices = b'{"input_mtok":0.10000000000000000001,"requests_kcount":1e-6,"output_mtok":999999.999999}'
    model = b'{"id":"s","match":{"equals":"s"},"prices":' + prices + b"}"
    (lab,) = read(b'[{"id":"lab","name":"Lab","models":[' + model + b"]}]")
    assert vars(lab.models[0].prices) == {
        "input_mtok": Decimal("0.10000000000000000001"),
        "requests_kcount": Decimal("0.000001"),
        "output_mtok": Decimal("999999.999999"),
    }


def test_a_pattern_that_the_installed_list_has_not_is_never_run() -> None:
    slow, known = "(a+)+$", r"^claude-opus-5-\d{4}-\d{2}-\d{2}$"
    match = {"or": [{"regex": slow}, {"regex": known}, {"starts_with": "b"}]}
    ((model,),) = (row.models for row in read(text(provider(match=match))))
    assert not model.is_match("a" * 200 + "!")  # which would take the pattern longer than there is
    assert not model.is_match("aaa")
    assert model.is_match("claude-opus-5-2026-01-02") and model.is_match("bc")


def price(value: str) -> bytes:
    """A list with this price, as it is written."""
    return text(provider()).replace(b'"input_mtok": 1', b'"input_mtok": ' + value.encode())


def sizes(*starts: int) -> bytes:
    """A list with a price by these sizes."""
    tiers = [{"start": start, "price": 2} for start in starts]
    return text(provider(prices={"input_mtok": {"base": 1, "tiers": tiers}}))


WRONG: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"<html>moved</html>", "it is no JSON"),
    "half": (text(provider())[:-1], "it is no JSON"),
    "not UTF-8": (b'["\xff"]', "it is not UTF-8"),
    "something else": (b'{"error":"no"}', "the list is no list of at most 1,000"),
    "deep": (b"[" * 100_000, "it is nested too deeply"),
    "deep clauses": (
        text(provider()).replace(b'{"equals": "swift"}', b'{"or": [' * 900 + b'{"equals": "x"}' + b"]}" * 900),
        "it is nested too deeply",
    ),
    "a long number": (price("1" * 5000), "it is no JSON"),
    "NaN": (price("NaN"), "NaN is no number"),
    "infinite": (price("-Infinity"), "-Infinity is no number"),
    "negative": (price("-0.01"), "input_mtok of lab: swift is not within 0 and 1,000,000"),
    "huge": (price("1e6"), "input_mtok of lab: swift is not within 0 and 1,000,000"),
    "huge exponent": (price("1e999999999"), "input_mtok of lab: swift is not within 0 and 1,000,000"),
    "tiny exponent": (price("1e-999999"), "input_mtok of lab: swift has more than 20 digits"),
    "too exact": (price("0.1234567890123456789012345"), "input_mtok of lab: swift has more than 20 digits"),
    "a word": (price('"1"'), "input_mtok of lab: swift is no number"),
    "yes": (price("true"), "input_mtok of lab: swift is no number"),
    "a price twice": (price('1, "input_mtok": 9'), "a name stands twice in one object"),
    "a model twice": (
        text([{"id": "lab", "name": "Lab", "models": provider()[0]["models"] * 2}]),
        "swift stands twice in lab",
    ),
    "a provider twice": (text(provider() * 2), "lab stands twice in the list"),
    "a long name": (text(provider(id="x" * 101)), "a model's id at lab is no text of at most 100 characters"),
    "a name that breaks lines": (text(provider(id="a\nb")), "a model's id at lab is no text of at most 100 characters"),
    "no match": (text(provider(match={})), "what matches lab: swift is not one clause"),
    "an unknown match": (text(provider(match={"like": "x"})), "what matches lab: swift is of no kind that is known"),
    "no prices": (text(provider(prices=[])), "lab: swift has a list of no prices"),
    "a unit of Python's": (text(provider(prices={"__class__": 1})), "lab: swift has a price for '__class__'"),
    "an unknown condition": (
        text(provider(prices=[{"constraint": {"moon": "full"}, "prices": {}}])),
        "a condition of lab: swift is none that is known",
    ),
    "a day that is none": (
        text(provider(prices=[{"constraint": {"start_date": "2026-02-30"}, "prices": {}}])),
        "a condition of lab: swift is none that is known",
    ),
    "sizes that shrink": (sizes(9, 5), "the sizes of input_mtok of lab: swift do not grow"),
    "sizes that stay": (sizes(5, 5), "the sizes of input_mtok of lab: swift do not grow"),
    "a size of nothing": (sizes(0), "the sizes of input_mtok of lab: swift do not grow"),
    "a size below nothing": (sizes(-1), "input_mtok of lab: swift is no count"),
    "a negative size": (text(provider(context_window=-1)), "the size of lab: swift is no count"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_list_with_one_thing_wrong_is_no_list(case: str) -> None:
    data, why = WRONG[case]
    with pytest.raises(BadList) as caught:
        read(data)
    assert str(caught.value) == why


def test_a_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = text(provider())
    assert len(read(data)) == 1
    monkeypatch.setattr(published, "MOST_BYTES", len(data) - 1)
    with pytest.raises(BadList, match="it is larger than"):
        read(data)
