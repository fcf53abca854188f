"""What a client of the Messages protocol asks for, as a request of the chat form."""

from typing import Any

import pytest

from gateway.protocols.anthropic_messages.client_request import chat_form
from gateway.protocols.openai_chat import parse
from tests.protocols.anthropic_messages.requests import (
    EPHEMERAL,
    HI,
    PDF,
    PNG,
    SIGNATURE,
    assistant,
    body,
    chat,
    refused,
    result,
    text,
    use,
    user,
)


@pytest.mark.row("B345")
def test_a_plain_request() -> None:
    fields = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["END"], "stream": True}
    made = chat(HI, **fields, system="Be brief.", metadata={"user_id": "u-1"}, service_tier="standard_only")
    assert made == {
        "model": "acme/m-1",
        "max_tokens": 64,
        "messages": [{"role": "system", "content": "Be brief."}, HI],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "stop": ["END"],
        "stream": True,
        "user": "u-1",
        "service_tier": "default",
    }


def test_instructions_in_blocks_keep_their_breakpoints_and_their_place() -> None:
    system = [text("One."), text("Two.", cache_control={"type": "ephemeral", "ttl": "1h", "scope": "global"})]
    made = chat(HI, {"role": "system", "content": "Three."}, {"role": "assistant", "content": "ok"}, HI, system=system)
    cached = {"type": "ephemeral", "ttl": "1h"}
    assert made["messages"][0] == {"role": "system", "content": [text("One."), text("Two.", cache_control=cached)]}
    assert [message["role"] for message in made["messages"]] == ["system", "user", "system", "assistant", "user"]


def test_pictures_and_documents() -> None:
    blocks = [
        text("what is it", cache_control=EPHEMERAL),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://pictures.example/1.png"}},
        {
            "type": "document",
            "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
        },
        {"type": "document", "source": {"type": "url", "url": "https://papers.example/1.pdf"}},
        {
            "type": "document",
            "title": "Notes",
            "context": "Old.",
            "source": {"type": "text", "media_type": "text/plain", "data": "abc"},
        },
        {"type": "document", "source": {"type": "content", "content": [text("inside")]}},
        {"type": "search_result", "title": "Oslo", "source": "https://x.example", "content": [text("Sun.")]},
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
    ]
    form = chat_form(body(user(*blocks)))
    parse(form.body, 1_000)
    assert form.only_native == () and form.names_files
    assert form.body["messages"][0]["content"] == [
        text("what is it", cache_control=EPHEMERAL),
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}},
        text("a.pdf"),
        {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
        {"type": "file", "file": {"filename": "document.pdf", "file_data": "https://papers.example/1.pdf"}},
        text("Notes\nOld."),
        text("abc"),
        text("inside"),
        text("Oslo\nhttps://x.example"),
        text("Sun."),
        {"type": "file", "file": {"file_id": "file-1"}},
    ]


def test_results_come_before_what_else_a_turn_says() -> None:
    made = chat(
        HI,
        assistant(text("Checking."), use("a", city="Oslo"), use("b", "g")),
        user(text("go on"), result("b", [text("1"), text("2")]), result("a", "5")),
    )["messages"]
    arguments = {"name": "f", "arguments": '{"city":"Oslo"}'}
    assert made[1] == {
        "role": "assistant",
        "content": [text("Checking.")],
        "tool_calls": [
            {"id": "a", "type": "function", "function": arguments},
            {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert made[2:] == [
        {"role": "tool", "tool_call_id": "b", "content": [text("1"), text("2")]},
        {"role": "tool", "tool_call_id": "a", "content": "5"},
        {"role": "user", "content": [text("go on")]},
    ]


def test_a_result_that_is_a_picture_a_failure_or_nothing() -> None:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    made = chat(
        HI,
        assistant(use("a"), use("b"), use("c")),
        user(result("a", [picture]), result("b", "no file", is_error=True), result("c", cache_control=EPHEMERAL)),
    )["messages"][2:]
    assert made == [
        {"role": "tool", "tool_call_id": "a", "content": "The result follows in the next message."},
        {"role": "tool", "tool_call_id": "b", "content": [text("The tool failed."), text("no file")]},
        {"role": "tool", "tool_call_id": "c", "content": [text("", cache_control=EPHEMERAL)]},
        {
            "role": "user",
            "content": [
                text("Content of the result of a:"),
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
    ]


def test_thoughts_keep_their_order_and_their_bytes() -> None:
    made = chat(
        HI,
        assistant(
            {"type": "thinking", "thinking": "So.", "signature": SIGNATURE},
            {"type": "redacted_thinking", "data": "Emw="},
            {"type": "thinking", "thinking": "", "signature": SIGNATURE},
            {"type": "thinking", "thinking": "Open.", "signature": ""},
            use("a"),
        ),
        user(result("a", "1")),
    )["messages"][1]
    signed = {"type": "reasoning.text", "signature": SIGNATURE, "format": "anthropic-claude-v1"}
    assert made["reasoning_details"] == [
        {**signed, "text": "So.", "index": 0},
        {"type": "reasoning.encrypted", "data": "Emw=", "format": "anthropic-claude-v1", "index": 1},
        {**signed, "text": "", "index": 2},
        {"type": "reasoning.text", "text": "Open.", "index": 3},
    ]
    assert made["content"] is None


def test_a_seal_that_was_changed_is_refused_by_name() -> None:
    for signature in ("sealed:###", "sealed:e30", "sealed:WzFd"):
        block = {"type": "thinking", "thinking": "So.", "signature": signature}
        assert refused(HI, assistant(block)) is not None


@pytest.mark.row("B343")
def test_tools_and_the_choice_among_them() -> None:
    closed = {"required": ["city"], "additionalProperties": False}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, **closed}
    tools = [
        {"name": "f", "description": "d", "input_schema": schema, "cache_control": EPHEMERAL, "strict": True},
        {
            "type": "custom",
            "name": "g",
            "input_schema": {"type": "object"},
            "eager_input_streaming": True,
            "strict": True,
        },
    ]
    form = chat_form(body(tools=tools, tool_choice={"type": "any", "disable_parallel_tool_use": True}))
    parse(form.body, 1_000)
    assert form.body["tools"] == [
        {
            "type": "function",
            "function": {"name": "f", "description": "d", "strict": True, "parameters": schema},
            "cache_control": EPHEMERAL,
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object"}}},
    ]
    assert (form.body["tool_choice"], form.body["parallel_tool_calls"]) == ("required", False)
    assert form.ignored == ("tools[1].strict", "tools[1].eager_input_streaming")
    for choice, meant in (
        ({"type": "auto"}, "auto"),
        ({"type": "none"}, "none"),
        ({"type": "tool", "name": "g"}, {"type": "function", "function": {"name": "g"}}),
    ):
        assert chat(tools=tools, tool_choice=choice)["tool_choice"] == meant


@pytest.mark.row("B137")
def test_a_search_of_the_web_is_the_chat_form_s_as_far_as_it_has_fields_for_it() -> None:
    place = {"type": "approximate", "city": "Oslo"}
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3, "user_location": place}
    form = chat_form(body(tools=[tool]))
    parse(form.body, 1_000)
    approximate = {"type": "approximate", "approximate": {"city": "Oslo"}}
    assert form.body["web_search_options"] == {"user_location": approximate}
    assert (form.only_native, form.ignored) == ((), ("tools[0].max_uses",))
    assert refused(tools=[{**tool, "user_location": "Oslo"}]) == "tools[0].user_location"


def test_a_name_longer_than_the_chat_form_has_is_made_fit_everywhere_and_told_back() -> None:
    name = "mcp__" + "x" * 90
    form = chat_form(
        body(
            HI,
            assistant(use("a", name)),
            user(result("a", "1")),
            tools=[{"name": name, "input_schema": {"type": "object"}}],
            tool_choice={"type": "tool", "name": name},
        )
    )
    parse(form.body, 1_000)
    short = form.body["tools"][0]["function"]["name"]
    assert len(short) == 64
    assert form.body["tool_choice"]["function"]["name"] == short
    assert form.body["messages"][1]["tool_calls"][0]["function"]["name"] == short
    assert form.names == {short: name}


@pytest.mark.row("B342")
@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, {"enabled": True, "max_tokens": 2000}),
        ({"thinking": {"type": "disabled"}}, {"enabled": False}),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "xhigh"}},
            {"enabled": True, "effort": "xhigh"},
        ),
        ({"output_config": {"effort": "low"}}, {"effort": "low"}),
        ({}, None),
    ],
)
def test_how_much_to_think(fields: dict[str, Any], reasoning: Any) -> None:
    assert chat(**fields).get("reasoning") == reasoning


@pytest.mark.row("B344")
def test_a_structured_answer_in_both_spellings() -> None:
    form = {"type": "json_schema", "schema": {"type": "object", "properties": {"a": {"type": "string"}}}}
    expected = {"type": "json_schema", "json_schema": {"name": "answer", "schema": form["schema"], "strict": False}}
    assert chat(output_config={"format": form})["response_format"] == expected
    assert chat(output_format=form)["response_format"] == expected


def test_a_breakpoint_for_the_whole_request_goes_behind_its_last_text() -> None:
    assert chat(cache_control=EPHEMERAL)["messages"] == [user(text("hi", cache_control=EPHEMERAL))]


def test_fields_that_nobody_here_knows_are_named_and_do_not_stop_a_translation() -> None:
    form = chat_form(
        body(
            context_management={"edits": []},
            new_beta_field={"x": 1},
            diagnostics=None,
            speed="fast",
            thinking={"type": "disabled", "display": "omitted"},
            output_config={"effort": "high", "task_budget": 5},
            metadata={"team": "a"},
        )
    )
    assert form.only_native == ()
    assert sorted(form.ignored) == [
        *("context_management", "metadata.team", "new_beta_field", "output_config.effort", "output_config.task_budget"),
        *("speed", "thinking.display"),
    ]


@pytest.mark.parametrize(
    ("fields", "paths"),
    [
        (
            {"tools": [{"type": "web_search_20250305", "name": "s", "allowed_domains": ["a.example"]}]},
            ("tools[0].type",),
        ),
        (
            {"tools": [{"type": "web_search_20250305", "name": "s"}], "tool_choice": {"type": "tool", "name": "s"}},
            ("tool_choice.type",),
        ),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, ("tools[0].type",)),
        (
            {"tools": [{"name": "f", "input_schema": {}, "allowed_callers": ["code_execution"]}]},
            ("tools[0].allowed_callers",),
        ),
        (
            {
                "tools": [{"type": "web_search_20250305", "name": "s"}, {"name": "f", "input_schema": {}}],
                "tool_choice": {"type": "tool", "name": "s"},
            },
            ("tool_choice.name",),
        ),
        ({"mcp_servers": [{"name": "x"}], "container": "c"}, ("mcp_servers", "container")),
        ({"inference_geo": "eu"}, ("inference_geo",)),
        ({"max_tokens": 0}, ("max_tokens",)),
        ({"thinking": {"type": "between_tools"}}, ("thinking.type",)),
    ],
)
def test_what_only_this_protocol_can_carry_is_named(fields: dict[str, Any], paths: tuple[str, ...]) -> None:
    assert chat_form(body(**fields)).only_native == paths


@pytest.mark.parametrize(
    ("message", "path"),
    [
        (assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), "type"),
        (user(result("a", [{"type": "tool_reference", "tool_name": "f"}])), "content[0].type"),
        (
            user({"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}),
            "citations",
        ),
    ],
)
def test_blocks_that_only_this_protocol_has_are_named(message: Any, path: str) -> None:
    form = chat_form(body(HI, message, HI))
    assert form.only_native == (f"messages[1].content[0].{path}",)
    parse(form.body, 1_000)


def test_a_path_of_the_chat_form_is_told_as_the_client_knows_it() -> None:
    form = chat_form(body(HI, assistant(use("a")), user(result("a", "1"), text("go on")), system="Be brief."))
    told = {
        "messages[0].content": "system",
        "messages[1].content": "messages[0].content",
        "messages[3].content": "messages[2].content[0]",
        "messages[4].content[0]": "messages[2].content",
        "messages": "messages",
        "tools[2].function.parameters": "tools[2].input_schema",
        "tools[2].function.name": "tools[2].name",
        "stop": "stop_sequences",
        "response_format.json_schema.schema": "output_config.format.schema",
        "reasoning.max_tokens": "thinking.budget_tokens",
        "model": "model",
    }
    assert {path: form.param(path) for path in told} == told
    assert form.param(None) is None
