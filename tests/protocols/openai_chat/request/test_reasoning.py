"""How much a model is to think: three spellings, what they mean together, and their translation into each other."""

from typing import Any

import pytest

from gateway.protocols.openai_chat.request.reasoning import (
    EFFORTS,
    ReasoningWish,
    budget_of,
    effort_of,
    spell,
)
from gateway.wire.dialects import DIALECTS
from tests.protocols.openai_chat.requests import ask, fault, read, refused, sent, take

SPELLINGS: dict[str, Any] = {
    "reasoning_effort": "low",
    "reasoning": {"enabled": True, "effort": "medium", "max_tokens": 2000, "exclude": False},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


@pytest.mark.row("B177", "B179", "B181", "B182", "B190")
@pytest.mark.parametrize("name", SPELLINGS)
def test_each_spelling_goes_on_as_it_came(name: str) -> None:
    for dialect in ("standard", "zenmux"):
        assert sent(take(ask(**{name: SPELLINGS[name]}), dialect))[name] == SPELLINGS[name]


@pytest.mark.row("B177", "B181")
@pytest.mark.parametrize("effort", EFFORTS)
def test_an_effort_is_one_of_seven_in_either_place(effort: str) -> None:
    wish = ReasoningWish(effort != "none", effort, None)
    assert read(reasoning_effort=effort).reasoning == read(reasoning={"effort": effort}).reasoning == wish


@pytest.mark.row("B177")
def test_one_dialect_folds_efforts() -> None:
    """Low and medium are its high, the one above is its highest."""
    folded = {"low": "high", "medium": "high", "high": "high", "xhigh": "max", "max": "max", "none": "none"}
    for effort, meant in folded.items():
        body = ask(reasoning_effort=effort, reasoning={"effort": effort, "exclude": True})
        request = take(body, "ezrouter")
        assert request.reasoning is not None
        assert request.reasoning.effort == meant
        assert sent(request)["reasoning_effort"] == meant
        assert sent(request)["reasoning"] == {"effort": meant, "exclude": True}
        assert request.body == body


@pytest.mark.row("B180", "B182", "B185", "B186", "B190")
@pytest.mark.parametrize(
    ("fields", "wish"),
    [
        ({}, None),
        ({"reasoning": None, "reasoning_effort": None, "thinking": None}, None),
        ({"reasoning": {}}, ReasoningWish(True, None, None)),
        ({"reasoning": {"enabled": False}}, ReasoningWish(False, None, None)),
        ({"reasoning": {"enabled": None, "max_tokens": 9}}, ReasoningWish(True, None, 9)),
        ({"reasoning": {"effort": "none"}}, ReasoningWish(False, "none", None)),
        ({"reasoning": {"effort": "high"}, "reasoning_effort": "low"}, ReasoningWish(True, "high", None)),
        ({"reasoning": {"enabled": False}, "reasoning_effort": "low"}, ReasoningWish(False, "low", None)),
        ({"reasoning": {"enabled": True}, "thinking": {"type": "disabled"}}, ReasoningWish(True, None, None)),
        ({"thinking": {"type": "disabled"}}, ReasoningWish(False, None, None)),
        ({"thinking": {}}, ReasoningWish(True, None, None)),
        ({"thinking": {"budget_tokens": 5}}, ReasoningWish(True, None, 5)),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "low"}, ReasoningWish(True, "low", None)),
    ],
)
def test_what_the_spellings_mean_together(fields: dict[str, Any], wish: ReasoningWish | None) -> None:
    """An object that is there asks for reasoning; `reasoning` wins over the effort, and the effort over `thinking`."""
    assert read(**fields).reasoning == wish


@pytest.mark.row("B185")
def test_an_upstream_never_sees_two_efforts() -> None:
    body = sent(read(reasoning={"effort": "high"}, reasoning_effort="low"))
    assert (body["reasoning"], body["reasoning_effort"]) == ({"effort": "high"}, "high")


@pytest.mark.row("B114", "B188")
@pytest.mark.parametrize(
    ("fields", "hidden"),
    [
        ({}, False),
        ({"reasoning": {"exclude": True}}, True),
        ({"reasoning": {"exclude": False}}, False),
        ({"include_reasoning": False}, True),
        ({"include_reasoning": True}, False),
        ({"include_reasoning": True, "reasoning": {"exclude": False}}, False),
        ({"include_reasoning": False, "reasoning": {"exclude": True}}, True),
        ({"include_reasoning": None, "reasoning": {"exclude": None}}, False),
    ],
)
def test_thoughts_may_be_hidden_in_two_ways(fields: dict[str, Any], hidden: bool) -> None:
    assert read(**fields).hides_reasoning is hidden


@pytest.mark.row("B114")
@pytest.mark.parametrize("value", [True, False])
def test_the_two_ways_may_not_disagree(value: bool) -> None:
    body = ask(include_reasoning=value, reasoning={"exclude": value})
    for dialect in DIALECTS:
        assert fault(body, dialect) == ("include_reasoning", "invalid_value")
    assert refused(body, "zenmux").message == "Parameter include_reasoning conflict with reasoning.exclude"


@pytest.mark.row("B177", "B179", "B180", "B181", "B182", "B190")
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
        ({"reasoning_effort": 3}, "reasoning_effort", "invalid_type"),
        ({"reasoning": True}, "reasoning", "invalid_type"),
        ({"reasoning": {"enabled": "yes"}}, "reasoning.enabled", "invalid_type"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
        ({"reasoning": {"max_tokens": 0}}, "reasoning.max_tokens", "invalid_value"),
        ({"reasoning": {"max_tokens": 1.5}}, "reasoning.max_tokens", "invalid_type"),
        ({"reasoning": {"exclude": 1}}, "reasoning.exclude", "invalid_type"),
        ({"thinking": "on"}, "thinking", "invalid_type"),
        ({"thinking": {"type": "on"}}, "thinking.type", "invalid_value"),
        ({"thinking": {"budget_tokens": 0}}, "thinking.budget_tokens", "invalid_value"),
    ],
)
def test_a_wrong_wish_is_refused(fields: dict[str, Any], param: str, code: str) -> None:
    assert fault(ask(**fields)) == (param, code)


def wish(effort: str | None = None, tokens: int | None = None, *, enabled: bool = True) -> ReasoningWish:
    return ReasoningWish(enabled, effort, tokens)


@pytest.mark.row("B183", "B187")
@pytest.mark.parametrize(
    ("asked", "cap", "budget"),
    [
        (wish("low"), 10_000, 2000),
        (wish("medium"), 10_000, 5000),
        (wish("high"), 10_000, 8000),
        (wish("max"), 10_000, 8000),
        (wish("low"), None, 2048),
        (wish("medium"), None, 5120),
        (wish("high"), None, 10240),
        (wish("xhigh"), None, 20480),
        (wish("low"), 2000, 1024),
        (wish(tokens=3000), 10_000, 3000),
        (wish(tokens=10), None, 1024),
        (wish(tokens=9000), 4000, 3999),
        (wish("minimal"), 10_000, 0),
        (wish("none"), None, 0),
        (wish(enabled=False), 10_000, 0),
        (wish(), 10_000, None),
    ],
)
def test_an_effort_as_a_budget(asked: ReasoningWish, cap: int | None, budget: int | None) -> None:
    """A part of the cap where there is one, else a number; at least the least that is taken, less than the cap."""
    assert budget_of(asked, cap) == budget


@pytest.mark.row("B184", "B186")
@pytest.mark.parametrize(
    ("asked", "cap", "effort"),
    [
        (wish(tokens=300), 1000, "low"),
        (wish(tokens=350), 1000, "low"),
        (wish(tokens=351), 1000, "medium"),
        (wish(tokens=650), 1000, "medium"),
        (wish(tokens=651), 1000, "high"),
        (wish(tokens=10**6), 1000, "high"),
        (wish(tokens=2048), None, "low"),
        (wish(tokens=2049), None, "medium"),
        (wish(tokens=5120), None, "medium"),
        (wish(tokens=5121), None, "high"),
        (wish("xhigh", 9), 1000, "xhigh"),
        (wish(), None, "medium"),
        (wish("high", enabled=False), None, "none"),
    ],
)
def test_a_budget_as_an_effort(asked: ReasoningWish, cap: int | None, effort: str) -> None:
    """The nearest tier, the lower one half way between two; medium where only reasoning itself was asked for."""
    assert effort_of(asked, cap) == effort


@pytest.mark.parametrize(
    ("asked", "spelling", "value"),
    [
        (wish("high"), "reasoning", {"enabled": True, "effort": "high"}),
        (wish(tokens=9), "reasoning", {"enabled": True, "max_tokens": 9}),
        (wish(enabled=False), "reasoning", {"enabled": False}),
        (wish("high"), "reasoning_effort", "high"),
        (wish("high"), "thinking", {"type": "enabled", "budget_tokens": 8000}),
        (wish(), "thinking", {"type": "enabled"}),
        (wish(enabled=False), "thinking", {"type": "disabled"}),
    ],
)
def test_a_wish_in_each_spelling(asked: ReasoningWish, spelling: str, value: Any) -> None:
    assert spell(asked, spelling, 10_000) == value
