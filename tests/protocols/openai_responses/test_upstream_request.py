"""What a provider of the Responses protocol is sent for a chat body."""

from typing import Any

import pytest

from gateway.protocols.openai_chat import parse
from gateway.protocols.openai_responses.thoughts import FORMAT
from gateway.protocols.openai_responses.upstream_request import ENCRYPTED, LOGPROBS, body, chat_path, not_carried
from gateway.wire.errors import InvalidRequest

HI = {"role": "user", "content": "hi"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="


def sent(*messages: Any, cap: int | None = None, reasons: bool = False, **fields: Any) -> dict[str, Any]:
    """The body for a provider, of a chat body that is taken."""
    chat = {"model": "m-1", "messages": list(messages) or [HI]} | fields
    request = parse(chat, 99)
    asked = {**request.body, **request.changes}
    return body(asked, model="up-1", output_cap=cap, stream=False, reasons=reasons)


def items(*messages: Any) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = sent(*messages)["input"]
    return made


def call(id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}


def calls(*ids: str, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [call(id) for id in ids]} | fields


def gave(id: str, content: Any = "1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def refused(*messages: Any, **fields: Any) -> str | None:
    with pytest.raises(InvalidRequest) as caught:
        sent(*messages, **fields)
    assert caught.value.param is not None
    assert caught.value.param in caught.value.message
    return caught.value.param


def test_the_smallest_body() -> None:
    assert sent() == {
        "model": "up-1",
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "stream": False,
        "store": False,
    }


def test_instructions_keep_their_role_and_place() -> None:
    said = [{"role": role, "content": role} for role in ("system", "user", "developer", "user")]
    assert items(*said) == [{"type": "message", **message} for message in said]


def test_pictures_and_files() -> None:
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "image_url", "image_url": "https://x.example/a.png"},
        {"type": "file", "file": {"file_data": PDF, "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": PDF}},
        {"type": "file", "file": {"file_data": "JVBERi0=", "filename": "b.pdf"}},
        {"type": "file", "file": {"file_data": "https://x.example/a.pdf"}},
    ]
    (message,) = items({"role": "user", "content": parts})
    assert message["content"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
        {"type": "input_image", "image_url": "https://x.example/a.png", "detail": "auto"},
        {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
        {"type": "input_file", "filename": "file.pdf", "file_data": PDF},
        {"type": "input_file", "filename": "b.pdf", "file_data": PDF},
        {"type": "input_file", "file_url": "https://x.example/a.pdf"},
    ]


def test_cache_breakpoints_are_told() -> None:
    part = {"type": "text", "text": "long", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert items({"role": "user", "content": [part]})[0]["content"] == [
        {"type": "input_text", "text": "long", "prompt_cache_breakpoint": {"mode": "explicit"}}
    ]


@pytest.mark.parametrize(
    "part",
    (
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}},
    ),
)
def test_sound_and_films_are_refused_by_name(part: dict[str, Any]) -> None:
    assert (
        refused(HI, {"role": "user", "content": [{"type": "text", "text": "a"}, part]}) == "messages[1].content[1].type"
    )


def test_a_turn_with_tools_is_items_in_order() -> None:
    entries = [
        {"type": "reasoning.summary", "summary": "s", "format": FORMAT, "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAA+/é=", "id": "rs_1", "format": FORMAT, "index": 1},
    ]
    turn = calls("a", "b", content="Both.", reasoning_details=entries)
    assert items(HI, turn, gave("a"), gave("b", [{"type": "text", "text": "2"}]))[1:] == [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "s"}],
            "encrypted_content": "gAAA+/é=",
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Both."}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "2"}]},
    ]


@pytest.mark.parametrize("content", ("", None, [], [{"type": "text", "text": ""}]))
def test_empty_words_beside_calls_are_no_item(content: Any) -> None:
    assert [item["type"] for item in items(HI, calls("a", content=content), gave("a", ""))] == [
        *("message", "function_call", "function_call_output"),
    ]


def test_arguments_pass_as_they_are_and_none_are_an_empty_object() -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [call("a", '{"a":'), call("b", "")]}
    assert [item["arguments"] for item in items(HI, turn)[1:3]] == ['{"a":', "{}"]


def test_ids_that_are_too_long_stand_for_themselves_everywhere() -> None:
    first, second, short = "k" * 64 + "1" * 16, "k" * 64 + "2" * 16, "k" * 64
    made = items(HI, calls(first, second, short), gave(first), gave(second), gave(short))
    ids = [item["call_id"] for item in made[1:]]
    assert ids[:3] == ids[3:]
    assert len(set(ids)) == 3
    assert all(len(id) <= 64 for id in ids)
    assert ids[2] == short


def test_custom_tools_are_called_and_answered_as_such() -> None:
    turn = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "p", "input": "+a"}}],
    }
    assert items(HI, turn, gave("c"))[1:] == [
        {"type": "custom_tool_call", "call_id": "c", "name": "p", "input": "+a"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    ]


def test_functions_of_the_older_form() -> None:
    turn = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    made = sent(HI, turn, {"role": "function", "name": "f", "content": "1"}, functions=[{"name": "f"}])
    assert made["tools"] == [
        {"type": "function", "parameters": {"type": "object", "properties": {}}, "strict": False, "name": "f"}
    ]
    first, second = made["input"][1:]
    assert (first["type"], second["type"]) == ("function_call", "function_call_output")
    assert first["call_id"] == second["call_id"] != ""


def test_thoughts_of_other_providers_stay_here() -> None:
    others = [
        {"type": "reasoning.text", "text": "t", "signature": "S", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.text", "text": "t", "index": 1},
        {"type": "reasoning.summary", "summary": "s", "index": 2},
    ]
    turn = {"role": "assistant", "content": "x", "reasoning_details": others, "reasoning_content": "t"}
    assert [item["type"] for item in items(HI, turn)] == ["message", "message"]


def test_each_thought_keeps_its_own_id() -> None:
    entries = [
        {"type": "reasoning.encrypted", "data": "d1", "id": "rs_1", "format": FORMAT, "index": 0},
        {"type": "reasoning.summary", "summary": "s2", "id": "rs_2", "format": FORMAT, "index": 1},
        {"type": "reasoning.encrypted", "data": "d2", "id": "rs_2", "format": FORMAT, "index": 2},
    ]
    made = items(HI, {"role": "assistant", "content": "x", "reasoning_details": entries})
    assert [(item.get("id"), item.get("encrypted_content")) for item in made[1:3]] == [("rs_1", "d1"), ("rs_2", "d2")]


def test_fragments_of_a_summary_from_a_stream_are_one() -> None:
    entries = [
        {"type": "reasoning.summary", "summary": "a", "id": "rs_1", "format": FORMAT, "index": 0},
        {"type": "reasoning.summary", "summary": "b", "id": "rs_1", "format": FORMAT, "index": 0},
        {"type": "reasoning.encrypted", "data": "d", "id": "rs_1", "format": FORMAT, "index": 1},
    ]
    made = items(HI, {"role": "assistant", "content": "x", "reasoning_details": entries})
    assert made[1]["summary"] == [{"type": "summary_text", "text": "ab"}]


def test_a_refusal_goes_back_as_one() -> None:
    made = items(HI, {"role": "assistant", "content": None, "refusal": "No."}, HI)
    assert made[1]["content"] == [{"type": "refusal", "refusal": "No."}]


def test_tools_are_flat_and_say_whether_they_are_strict() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    grammar = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    tools = [
        {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema, "strict": True}},
        {"type": "function", "function": {"name": "g"}},
        {"type": "function", "function": {"name": "h", "parameters": {}}},
        {"type": "custom", "custom": {"name": "p", "format": grammar}},
    ]
    nothing = {"type": "object", "properties": {}}
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function"}]}}
    choice["allowed_tools"]["tools"][0]["function"] = {"name": "f"}  # type: ignore[index]
    made = sent(tools=tools, tool_choice=choice)
    assert made["tools"] == [
        {"type": "function", "name": "f", "description": "d", "parameters": schema, "strict": True},
        {"type": "function", "name": "g", "parameters": nothing, "strict": False},
        {"type": "function", "name": "h", "parameters": nothing, "strict": False},
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
    ]
    assert made["tool_choice"] == {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "function", "name": "f"}],
    }


@pytest.mark.parametrize("tools", ([], None))
def test_no_tools_are_not_sent(tools: Any) -> None:
    assert "tools" not in sent(tools=tools)


def test_a_search_is_a_tool() -> None:
    place = {"type": "approximate", "approximate": {"country": "NO"}}
    made = sent(web_search_options={"search_context_size": "low", "user_location": place})
    assert made["tools"] == [
        {
            "type": "web_search",
            "search_context_size": "low",
            "user_location": {"type": "approximate", "country": "NO"},
        }
    ]


def test_structured_output_is_the_providers_own() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "r", "strict": True, "schema": schema}}
    made = sent(response_format=form, verbosity="low")
    assert made["text"] == {
        "format": {"type": "json_schema", "name": "r", "strict": True, "schema": schema},
        "verbosity": "low",
    }
    bare = sent(response_format={"type": "json_schema", "json_schema": {"name": "r"}})
    assert bare["text"]["format"] == {"type": "json_schema", "name": "r", "schema": {"type": "object"}}
    assert sent(response_format={"type": "json_object"})["text"] == {"format": {"type": "json_object"}}


@pytest.mark.parametrize(("cap", "meant"), ((1, 16), (16, 16), (500, 500), (None, None)))
def test_the_cap_is_within_what_the_provider_takes(cap: int | None, meant: int | None) -> None:
    assert sent(cap=cap).get("max_output_tokens") == meant


@pytest.mark.parametrize(
    ("wish", "meant"),
    (
        ({}, {"summary": "auto"}),
        ({"reasoning_effort": "high"}, {"effort": "high", "summary": "auto"}),
        ({"reasoning": {"effort": "low", "exclude": True}}, {"effort": "low"}),
        ({"reasoning": {"enabled": False}}, {"effort": "none"}),
        ({"reasoning": {"enabled": True}}, {"summary": "auto"}),
        ({"reasoning": {"effort": "high", "summary": "detailed"}}, {"effort": "high", "summary": "detailed"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1000}}, {"effort": "low", "summary": "auto"}),
        ({"thinking": {"type": "disabled"}}, {"effort": "none"}),
    ),
)
def test_the_wish_to_think_in_each_spelling(wish: dict[str, Any], meant: dict[str, Any]) -> None:
    made = sent(reasons=True, **wish)
    assert made["reasoning"] == meant
    assert made["include"] == [ENCRYPTED]


def test_a_budget_is_the_effort_nearest_to_it() -> None:
    made = sent(reasons=True, cap=4000, reasoning={"max_tokens": 3000})
    assert made["reasoning"]["effort"] == "high"


def test_a_model_that_does_not_think_is_not_asked_for_thoughts() -> None:
    assert sent().keys().isdisjoint({"include", "reasoning"})
    assert sent(logprobs=True, top_logprobs=2)["include"] == [LOGPROBS]


def test_what_means_the_same_goes_as_it_is() -> None:
    fields: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "parallel_tool_calls": False,
        "store": True,
    }
    made = sent(**fields)
    assert {name: made[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("name", "value", "nothing"),
    (
        ("stop", ["x"], []),
        ("seed", 7, None),
        ("frequency_penalty", 1, 0),
        ("presence_penalty", 1, 0),
        ("logit_bias", {"1": 2}, {}),
        ("n", 2, 1),
        ("modalities", ["text", "audio"], ["text"]),
        ("prediction", {"type": "content", "content": "x"}, None),
        ("top_k", 7, None),
    ),
)
def test_what_has_no_place_is_refused_by_name(name: str, value: Any, nothing: Any) -> None:
    assert refused(**{name: value}) == name
    assert not_carried({"model": "m", "messages": [HI], name: value}) == (name,)
    assert not_carried({"model": "m", "messages": [HI], name: nothing}) == ()
    assert name not in sent(**{name: nothing})


def test_an_answer_in_sound_cannot_be_gone_on_from() -> None:
    assert refused(HI, {"role": "assistant", "audio": {"id": "a"}}, HI) == "messages[1].audio"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    (
        ("max_output_tokens", "max_completion_tokens"),
        ("text.format.schema", "response_format"),
        ("input[3].call_id", "messages"),
        ("reasoning.effort", "reasoning_effort"),
        ("tools[0].parameters", "tools[0].parameters"),
        ("temperature", "temperature"),
    ),
)
def test_what_a_provider_faults_has_the_chat_forms_name(theirs: str, ours: str) -> None:
    assert chat_path(theirs) == ours
