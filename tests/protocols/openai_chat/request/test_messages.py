"""Messages of a chat request: roles, the turns of assistants and tools, and history that comes back untouched."""

import json
from time import process_time
from typing import Any

import pytest

from gateway.protocols.openai_chat import parse
from tests.protocols.openai_chat.requests import HI, ask, called, fault, function, read, refused, saying, sent, take

CALL = called("c-1", "rate", '{"ccy":"EUR"}')
CLAUDE = {
    "type": "reasoning.text",
    "text": "Ask\u2028twice.\u00e9",
    "signature": 'RXh0cmE+Lz0=\\"\u0001',
    "format": "anthropic-claude-v1",
    "index": 0,
}


@pytest.mark.row("B019", "B020", "B021")
@pytest.mark.parametrize(
    ("fields", "param", "code", "message", "vendor"),
    [
        (
            {},
            "messages",
            "missing_required_parameter",
            "Parameter messages is required: an array of at least one message.",
            "Parameter messages is required",
        ),
        (
            {"messages": None},
            "messages",
            "missing_required_parameter",
            "Parameter messages is required: an array of at least one message.",
            "Parameter messages is required",
        ),
        (
            {"messages": []},
            "messages",
            "invalid_value",
            "Parameter messages can not be empty. Send at least one message.",
            "Parameter messages can not be empty",
        ),
        (
            {"messages": [HI, None]},
            "messages[1]",
            "invalid_value",
            "Parameter messages can not contain null elements.",
            "Parameter messages can not contain null elements",
        ),
    ],
)
def test_there_is_at_least_one_message_and_none_is_null(
    fields: dict[str, Any], param: str, code: str, message: str, vendor: str
) -> None:
    """The wording that clients match on is kept: to the letter in its vendor's dialect."""
    body = {"model": "m-1"} | fields
    assert fault(body) == (param, code)
    assert refused(body).message == message
    assert refused(body, "zenmux").message == vendor


@pytest.mark.parametrize(
    ("messages", "param", "code"),
    [
        ({}, "messages", "invalid_type"),
        ("hi", "messages", "invalid_type"),
        (["hi"], "messages[0]", "invalid_type"),
        ([HI, 7], "messages[1]", "invalid_type"),
        ([{"content": "x"}], "messages[0].role", "missing_required_parameter"),
        ([HI | {"role": "robot"}], "messages[0].role", "invalid_value"),
        ([HI | {"role": ["user"]}], "messages[0].role", "invalid_value"),
        ([HI | {"content": 5}], "messages[0].content", "invalid_type"),
        ([HI | {"content": {"type": "text"}}], "messages[0].content", "invalid_type"),
        ([HI, HI | {"name": 7}], "messages[1].name", "invalid_type"),
    ],
)
def test_a_message_is_an_object_with_a_role_and_content(messages: Any, param: str, code: str) -> None:
    assert fault(ask(messages=messages)) == (param, code)


@pytest.mark.row("B022")
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": []},
        {"role": "system", "content": None},
        {"role": "developer"},
        {"role": "tool", "tool_call_id": "c-1"},
        {"role": "tool", "tool_calls": [CALL]},
        {"role": "assistant"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "assistant", "content": None, "refusal": None, "audio": None, "function_call": None},
    ],
)
def test_a_message_without_content_is_refused(message: dict[str, Any]) -> None:
    assert fault(ask(messages=[HI, message])) == ("messages[1].content", "invalid_value")
    vendor = "Parameter messages can not contain elements without content"
    assert refused(ask(messages=[HI, message]), "zenmux").message == vendor


@pytest.mark.row("B022", "B045", "B046", "B047", "B048", "B050")
@pytest.mark.parametrize(
    "instead",
    [
        {"tool_calls": [CALL]},
        {"tool_calls": [{"id": "c-2", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}]},
        {"tool_calls": [CALL, called("c-3", "rate", "")]},
        {"function_call": {"name": "rate", "arguments": "{"}},
        {"refusal": "I will not."},
        {"audio": {"id": "audio-1"}},
    ],
)
@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": []}])
def test_an_assistant_s_turn_may_have_something_else_than_content(
    instead: dict[str, Any], content: dict[str, Any]
) -> None:
    """Calls of either kind, the older form of a call, a refusal, or an earlier spoken answer; each goes on as it is."""
    message = {"role": "assistant"} | content | instead
    assert sent(read(messages=[HI, message]))["messages"] == [HI, message]


@pytest.mark.row("B023", "B025", "B027", "B032", "B064")
@pytest.mark.parametrize("role", ["developer", "system", "user", "assistant", "tool"])
@pytest.mark.parametrize("content", ["", "x", [{"type": "text", "text": "x"}, {"type": "text", "text": ""}]])
def test_five_roles_speak_in_a_string_or_in_parts(role: str, content: Any) -> None:
    message = {"role": role, "content": content} | ({"tool_call_id": "c-1"} if role == "tool" else {})
    for dialect in ("standard", "zenmux", "ezrouter"):
        assert sent(take(ask(messages=[message]), dialect))["messages"] == [message]


@pytest.mark.row("B027", "B064")
@pytest.mark.parametrize("role", ["developer", "system", "tool"])
def test_three_roles_have_text_parts_only(role: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    message = {"role": role, "content": [image], "tool_call_id": "c-1"}
    assert fault(ask(messages=[message])) == ("messages[0].content[0].type", "invalid_value")


@pytest.mark.row("B026")
@pytest.mark.parametrize("role", ["developer", "system", "user", "assistant", "tool"])
def test_every_role_may_have_a_name(role: str) -> None:
    message = {"role": role, "content": "x", "name": "bob", "tool_call_id": "c-1"}
    assert sent(read(messages=[message]))["messages"] == [message]


@pytest.mark.row("B024")
def test_the_function_role_is_refused_but_after_a_function_call() -> None:
    """Deprecated and not supported; what an older client says in its own terms passes whole."""
    answer = {"role": "function", "name": "rate", "content": "1.08"}
    error = refused(ask(messages=[HI, answer]))
    assert (error.param, error.code) == ("messages[1].role", "invalid_value")
    assert "deprecated and not supported" in error.message
    call = {"role": "assistant", "content": None, "function_call": {"name": "rate", "arguments": "{}"}}
    history: list[dict[str, Any]] = [HI, call, answer, answer]
    assert sent(read(messages=history))["messages"] == history
    plain = {"role": "assistant", "content": "x"}
    assert fault(ask(messages=[call, answer, plain, answer])) == ("messages[3].role", "invalid_value")
    assert fault(ask(messages=[answer])) == ("messages[0].role", "invalid_value")
    del answer["name"]
    assert fault(ask(messages=history)) == ("messages[2].name", "missing_required_parameter")


@pytest.mark.row("B029", "B030")
def test_the_last_message_may_be_the_assistant_s() -> None:
    """The beginning of the answer. The conversation is all there is; nothing is remembered between two calls."""
    history = [HI, {"role": "assistant", "content": "The answer is"}]
    assert sent(read(messages=history))["messages"] == history


@pytest.mark.row("B031")
def test_messages_are_bounded_in_number() -> None:
    assert len(read(messages=[HI] * 100_000).body["messages"]) == 100_000
    assert fault(ask(messages=[HI] * 100_001)) == ("messages", "invalid_value")


@pytest.mark.row("B044")
def test_an_assistant_says_texts_or_one_refusal() -> None:
    text, refusal = {"type": "text", "text": "x"}, {"type": "refusal", "refusal": "no"}
    for taken in ([text], [text, text], [refusal]):
        assert take(saying(*taken, role="assistant"))
    for mixed in ([text, refusal], [refusal, refusal], [refusal, text]):
        assert fault(saying(*mixed, role="assistant")) == ("messages[0].content", "invalid_value")
    wrong = saying({"type": "refusal", "refusal": 7}, role="assistant")
    assert fault(wrong) == ("messages[0].content[0].refusal", "invalid_type")
    assert fault(saying({"type": "image_url"}, role="assistant"))[0] == "messages[0].content[0].type"


@pytest.mark.row("B045", "B046", "B047", "B048", "B050", "B051")
@pytest.mark.parametrize(
    ("fields", "path", "code"),
    [
        ({"refusal": 7}, "refusal", "invalid_type"),
        ({"audio": "a"}, "audio", "invalid_type"),
        ({"audio": {}}, "audio.id", "missing_required_parameter"),
        ({"audio": {"id": 1}}, "audio.id", "invalid_type"),
        ({"tool_calls": {}}, "tool_calls", "invalid_type"),
        ({"tool_calls": [7]}, "tool_calls[0]", "invalid_type"),
        ({"tool_calls": [CALL | {"id": None}]}, "tool_calls[0].id", "missing_required_parameter"),
        ({"tool_calls": [CALL | {"id": ""}]}, "tool_calls[0].id", "missing_required_parameter"),
        ({"tool_calls": [CALL | {"id": 7}]}, "tool_calls[0].id", "invalid_type"),
        ({"tool_calls": [CALL, CALL | {"type": None}]}, "tool_calls[1].type", "missing_required_parameter"),
        ({"tool_calls": [CALL | {"type": "magic"}]}, "tool_calls[0].type", "invalid_value"),
        ({"tool_calls": [CALL | {"type": ["function"]}]}, "tool_calls[0].type", "invalid_type"),
        ({"tool_calls": [CALL | {"type": "custom"}]}, "tool_calls[0].custom", "missing_required_parameter"),
        ({"tool_calls": [CALL | {"function": "f"}]}, "tool_calls[0].function", "invalid_type"),
        (
            {"tool_calls": [CALL | {"function": {"arguments": "{}"}}]},
            "tool_calls[0].function.name",
            "missing_required_parameter",
        ),
        (
            {"tool_calls": [CALL | {"function": {"name": "f"}}]},
            "tool_calls[0].function.arguments",
            "missing_required_parameter",
        ),
        (
            {"tool_calls": [CALL | {"function": {"name": "f", "arguments": {"a": 1}}}]},
            "tool_calls[0].function.arguments",
            "invalid_type",
        ),
        (
            {"tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": 1}}]},
            "tool_calls[0].custom.input",
            "invalid_type",
        ),
        ({"function_call": "f"}, "function_call", "invalid_type"),
        ({"function_call": {"arguments": "{}"}}, "function_call.name", "missing_required_parameter"),
        ({"function_call": {"name": "f", "arguments": {}}}, "function_call.arguments", "invalid_type"),
        ({"reasoning": ["x"]}, "reasoning", "invalid_type"),
        ({"reasoning_content": 7}, "reasoning_content", "invalid_type"),
    ],
)
def test_a_wrong_turn_is_refused(fields: dict[str, Any], path: str, code: str) -> None:
    assert fault(ask(messages=[HI, {"role": "assistant", "content": "x"} | fields])) == (f"messages[1].{path}", code)


@pytest.mark.row("B049")
@pytest.mark.parametrize("arguments", ["{", "", "not json", '{"a":1,"a":2}', "\u0000\u2028", "[1e999]"])
def test_arguments_are_the_model_s_words(arguments: str) -> None:
    """JSON or not, nobody mends or refuses them."""
    message = {"role": "assistant", "content": None, "tool_calls": [called("c-1", "rate", arguments)]}
    assert sent(read(messages=[HI, message]))["messages"][1] == message


@pytest.mark.row("B051", "B052", "B053", "B055", "B056", "B057", "B061")
def test_what_a_model_thought_comes_back_byte_for_byte_and_in_order() -> None:
    """The second turn of a tool loop: a signature that differs by a byte would be void."""
    details = [
        CLAUDE,
        CLAUDE | {"index": "1", "text": ""},
        {"type": "reasoning.text", "signature": "only", "format": None, "index": 2},
        {"type": "reasoning.summary", "summary": "s", "format": "openai-responses-v1", "index": 1.5},
        {"id": "rs_1", "type": "reasoning.encrypted", "data": "gAAAA==", "format": "openai-responses-v1"},
        {"type": "reasoning.something_new", "value": [1, {"b": 0.1}]},
    ]
    history = [
        {"role": "user", "content": "Rate for NOK?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning": "Ask\u2028twice.\u00e9",
            "reasoning_content": "Ask twice.",
            "reasoning_details": details,
            "tool_calls": [CALL],
        },
        {"role": "tool", "tool_call_id": "c-1", "name": "rate", "content": '{"usd":0.09}'},
    ]
    body = ask(messages=history, reasoning={"enabled": True}, stream=False, tools=[function("rate")])
    assert json.dumps(sent(take(body))["messages"]) == json.dumps(history)


@pytest.mark.row("B053", "B054", "B055", "B056", "B057")
@pytest.mark.parametrize(
    ("entry", "field", "code"),
    [
        ({}, ".type", "missing_required_parameter"),
        ({"type": 7}, ".type", "invalid_type"),
        ({"type": "reasoning.text"}, ".text", "missing_required_parameter"),
        ({"type": "reasoning.text", "text": 7}, ".text", "invalid_type"),
        ({"type": "reasoning.summary", "text": "x"}, ".summary", "missing_required_parameter"),
        ({"type": "reasoning.encrypted", "data": None}, ".data", "missing_required_parameter"),
        ({"type": "reasoning.encrypted", "data": {}}, ".data", "invalid_type"),
        (CLAUDE | {"signature": 7}, ".signature", "invalid_type"),
        (CLAUDE | {"format": 7}, ".format", "invalid_type"),
        (CLAUDE | {"index": True}, ".index", "invalid_type"),
        (CLAUDE | {"index": [0]}, ".index", "invalid_type"),
        ("x", "", "invalid_type"),
    ],
)
def test_each_type_of_thought_has_its_fields(entry: Any, field: str, code: str) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "x", "reasoning_details": [CLAUDE, entry]}
    assert fault(ask(messages=[message])) == (f"messages[0].reasoning_details[1]{field}", code)
    message = {"role": "assistant", "content": "x", "reasoning_details": {}}
    assert fault(ask(messages=[message])) == ("messages[0].reasoning_details", "invalid_type")


@pytest.mark.row("B064")
@pytest.mark.parametrize(
    ("id", "code"),
    [
        ({}, "missing_required_parameter"),
        ({"tool_call_id": ""}, "missing_required_parameter"),
        ({"tool_call_id": 7}, "invalid_type"),
    ],
)
def test_a_tool_s_message_names_its_call(id: dict[str, Any], code: str) -> None:
    message = {"role": "tool", "content": "1"} | id
    assert fault(ask(messages=[HI, message])) == ("messages[1].tool_call_id", code)


@pytest.mark.row("B065")
def test_the_call_it_names_need_not_be_there() -> None:
    """Some clients trim their history; the provider decides."""
    message = {"role": "tool", "content": "1", "tool_call_id": "gone"}
    assert sent(read(messages=[message]))["messages"] == [message]


def test_many_function_turns_are_looked_through_once() -> None:
    """A search back from each of them to the call would take a minute here."""
    call = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    turns = [{"role": "function", "name": "f", "content": "1"}] * 50_000
    body = ask(messages=[call, *turns])
    started = process_time()
    assert parse(body, 100)
    assert process_time() - started < 5
