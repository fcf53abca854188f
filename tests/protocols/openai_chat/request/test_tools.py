"""Tools of a chat request, the choice among them, and the older functions."""

from typing import Any

import pytest

from tests.protocols.openai_chat.requests import ask, fault, function, read, refused, sent, take

SCHEMA = {"type": "object", "properties": {"ccy": {"type": "string"}}, "required": ["ccy"]}
RATE = function("rate", description="Spot rate", parameters=SCHEMA, strict=True)
SQL = {"type": "custom", "custom": {"name": "sql", "description": "d", "format": {"type": "text"}}}


@pytest.mark.row("B115", "B117", "B118", "B119", "B120")
@pytest.mark.parametrize(
    "tool",
    [
        function("f"),
        function("a-Z_9" * 12 + "abcd"),
        function("f", description=None, parameters=None, strict=None),
        function("f", parameters={}, strict=False),
        RATE,
        SQL,
        {"type": "custom", "custom": {"name": "sql"}},
    ],
)
def test_tools_are_functions_or_custom(tool: dict[str, Any]) -> None:
    """Without a schema a function has no arguments; `strict` goes on as it came."""
    assert sent(read(tools=[tool, tool]))["tools"] == [tool, tool]


@pytest.mark.row("B115", "B117", "B118", "B119", "B120")
@pytest.mark.parametrize(
    ("tool", "path", "code"),
    [
        ("f", "", "invalid_type"),
        (None, "", "invalid_type"),
        ({}, ".type", "missing_required_parameter"),
        ({"type": "web_search"}, ".type", "invalid_value"),
        ({"type": ["function"]}, ".type", "invalid_value"),
        ({"type": "function"}, ".function", "missing_required_parameter"),
        ({"type": "function", "function": "f"}, ".function", "invalid_type"),
        ({"type": "custom", "function": {"name": "f"}}, ".custom", "missing_required_parameter"),
        ({"type": "function", "function": {}}, ".function.name", "missing_required_parameter"),
        (function("a b"), ".function.name", "invalid_value"),
        (function("a\n"), ".function.name", "invalid_value"),
        (function(""), ".function.name", "invalid_value"),
        (function("a" * 65), ".function.name", "invalid_value"),
        ({"type": "custom", "custom": {"name": "é"}}, ".custom.name", "invalid_value"),
        (function("f", description=7), ".function.description", "invalid_type"),
        (function("f", parameters=[]), ".function.parameters", "invalid_type"),
        (function("f", strict="yes"), ".function.strict", "invalid_type"),
    ],
)
def test_a_wrong_tool_is_refused(tool: Any, path: str, code: str) -> None:
    assert fault(ask(tools=[RATE, tool])) == (f"tools[1]{path}", code)


@pytest.mark.row("B116")
def test_there_are_at_most_128_tools() -> None:
    assert read(tools=[function(f"f{at}") for at in range(128)])
    assert fault(ask(tools=[function(f"f{at}") for at in range(129)])) == ("tools", "invalid_value")
    assert fault(ask(tools={})) == ("tools", "invalid_type")


@pytest.mark.row("B028")
def test_a_cache_breakpoint_may_stand_beside_a_function() -> None:
    tool = RATE | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    request = read(tools=[RATE, tool])
    assert request.cache_control
    assert sent(request)["tools"] == [RATE, tool]
    assert not read(tools=[RATE]).cache_control
    wrong = RATE | {"cache_control": {"type": "eternal"}}
    assert fault(ask(tools=[wrong])) == ("tools[0].cache_control.type", "invalid_value")


NAMED = {"type": "function", "function": {"name": "rate"}}
CUSTOM = {"type": "custom", "custom": {"name": "sql"}}
ALLOWED = {"mode": "required", "tools": [NAMED, CUSTOM]}


@pytest.mark.row("B122", "B123", "B124", "B125")
@pytest.mark.parametrize(
    "choice", ["none", "auto", "required", NAMED, CUSTOM, {"type": "allowed_tools", "allowed_tools": ALLOWED}]
)
def test_a_choice_goes_on_as_it_came(choice: Any) -> None:
    assert sent(read(tools=[RATE, SQL], tool_choice=choice))["tool_choice"] == choice


@pytest.mark.row("B123")
def test_without_tools_the_choice_is_none_anyway() -> None:
    """And with them auto: nothing is written where the client wrote nothing, since both are what upstreams assume."""
    assert "tool_choice" not in sent(read())
    assert "tool_choice" not in sent(read(tools=[RATE]))
    assert take(ask(tool_choice="none"))
    assert take(ask(tool_choice="auto"))
    assert fault(ask(tool_choice="required")) == ("tool_choice", "invalid_value")


@pytest.mark.row("B125")
def test_allowed_tools_may_stand_beside_their_type() -> None:
    """As one guide has it; an upstream gets them in the protocol's own form."""
    flat = {"type": "allowed_tools"} | ALLOWED
    request = read(tools=[RATE, SQL], tool_choice=flat)
    assert sent(request)["tool_choice"] == {"type": "allowed_tools", "allowed_tools": ALLOWED}
    assert request.body["tool_choice"] == flat


@pytest.mark.row("B122", "B124", "B125")
@pytest.mark.parametrize(
    ("choice", "path", "code"),
    [
        ("any", "", "invalid_value"),
        (7, "", "invalid_type"),
        ({}, ".type", "invalid_value"),
        ({"type": "mcp"}, ".type", "invalid_value"),
        ({"type": "function"}, ".function.name", "missing_required_parameter"),
        ({"type": "function", "function": {"name": "other"}}, ".function.name", "invalid_value"),
        ({"type": "custom", "custom": {"name": "other"}}, ".custom.name", "invalid_value"),
        ({"type": "allowed_tools"}, ".mode", "invalid_value"),
        ({"type": "allowed_tools", "allowed_tools": []}, ".allowed_tools", "invalid_type"),
        (
            {"type": "allowed_tools", "allowed_tools": ALLOWED | {"mode": "none"}},
            ".allowed_tools.mode",
            "invalid_value",
        ),
        ({"type": "allowed_tools"} | ALLOWED | {"tools": []}, ".tools", "invalid_value"),
        ({"type": "allowed_tools"} | ALLOWED | {"tools": ["rate"]}, ".tools[0]", "invalid_value"),
        (
            {"type": "allowed_tools"} | ALLOWED | {"tools": [NAMED, {"type": "function", "function": {"name": "x"}}]},
            ".tools[1].function.name",
            "invalid_value",
        ),
    ],
)
def test_a_wrong_choice_is_refused(choice: Any, path: str, code: str) -> None:
    """A tool that is not among those sent above all."""
    assert fault(ask(tools=[RATE, SQL], tool_choice=choice)) == (f"tool_choice{path}", code)


@pytest.mark.row("B126")
def test_parallel_calls_may_be_forbidden() -> None:
    for value in (True, False):
        assert sent(read(tools=[RATE], parallel_tool_calls=value))["parallel_tool_calls"] is value
    assert fault(ask(tools=[RATE], parallel_tool_calls="no")) == ("parallel_tool_calls", "invalid_type")


@pytest.mark.row("B104")
def test_the_older_functions_are_taken() -> None:
    """And remembered, since their client expects the older form of a call."""
    functions = [{"name": "rate", "parameters": SCHEMA}, {"name": "now"}]
    for choice in ("none", "auto", {"name": "now"}):
        request = read(functions=functions, function_call=choice)
        assert request.legacy_functions
        assert sent(request) == ask(model="up-1", functions=functions, function_call=choice)


@pytest.mark.row("B104")
@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"functions": {}}, "functions", "invalid_type"),
        ({"functions": ["f"]}, "functions[0]", "invalid_type"),
        ({"functions": [{}]}, "functions[0].name", "missing_required_parameter"),
        ({"functions": [{"name": "a b"}]}, "functions[0].name", "invalid_value"),
        ({"functions": [{"name": "f"}] * 129}, "functions", "invalid_value"),
        ({"functions": [{"name": "f"}], "function_call": "required"}, "function_call", "invalid_value"),
        ({"functions": [{"name": "f"}], "function_call": 7}, "function_call", "invalid_type"),
        ({"functions": [{"name": "f"}], "function_call": {}}, "function_call.name", "missing_required_parameter"),
        ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "function_call.name", "invalid_value"),
        ({"function_call": {"name": "g"}}, "function_call.name", "invalid_value"),
    ],
)
def test_wrong_functions_are_refused(fields: dict[str, Any], param: str, code: str) -> None:
    assert fault(ask(**fields)) == (param, code)


def test_a_refusal_says_what_to_do() -> None:
    message = refused(ask(tools=[RATE], tool_choice={"type": "function", "function": {"name": "x"}})).message
    assert message == ("Parameter tool_choice.function.name names none of tools. Send that tool too, or name another.")
