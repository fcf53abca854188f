"""Whatever a client or a provider sends: it is taken, refused by name, or the provider's fault, and never ours."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.anthropic_messages import client_answer, native
from gateway.protocols.anthropic_messages.client_request import chat_form
from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.anthropic_messages.upstream_answer import MAX_BLOCKS, UpstreamAnswer
from gateway.protocols.anthropic_messages.upstream_request import Reading
from gateway.protocols.anthropic_messages.upstream_request import body as upstream_body
from gateway.protocols.openai_chat import AnswerReader, parse
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.protocols.anthropic_messages.messages import ASKED, events, told

WORDS = (
    *(
        "type",
        "text",
        "role",
        "user",
        "assistant",
        "system",
        "content",
        "source",
        "base64",
        "url",
        "data",
        "media_type",
    ),
    *("image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "signature", "sealed:e30="),
    *(
        "id",
        "name",
        "input",
        "tool_use_id",
        "is_error",
        "cache_control",
        "ephemeral",
        "ttl",
        "1h",
        "citations",
        "enabled",
    ),
    *(
        "https://x.example/1.png",
        "iVBORw0KGgo=",
        "application/pdf",
        "image/png",
        "custom",
        "input_schema",
        "auto",
        "tool",
    ),
    *("budget_tokens", "adaptive", "effort", "format", "schema", "json_schema", "high", "title", "context", "file_id"),
)
words = st.sampled_from(WORDS)
leaves = st.none() | st.booleans() | st.integers(-1, 3000) | st.floats(0, 1) | words
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=12
)
BLOCKS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": "hi"},
    {"type": "text", "text": " ", "cache_control": {"type": "ephemeral"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}},
    {"type": "image", "source": {"type": "url", "url": "https://x.example/1.png"}},
    {"type": "document", "source": {"type": "text", "data": "abc"}, "title": "t", "citations": {"enabled": False}},
    {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
    {"type": "search_result", "title": "t", "source": "s", "content": [{"type": "text", "text": "x"}]},
    {"type": "tool_use", "id": "a:b", "name": "f", "input": {"x": 1}},
    {"type": "tool_result", "tool_use_id": "a:b", "content": "1", "is_error": True},
    {"type": "tool_result", "tool_use_id": "z", "content": [{"type": "text", "text": ""}]},
    {"type": "thinking", "thinking": "So.", "signature": "Eq=="},
    {"type": "thinking", "thinking": "So.", "signature": ""},
    {"type": "redacted_thinking", "data": "sealed:e30="},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
)
FIELDS: dict[str, tuple[Any, ...]] = {
    "system": ("Be brief.", [{"type": "text", "text": "Be brief."}]),
    "tools": (
        [{"name": "f", "input_schema": {"anyOf": [{"type": "object"}]}}, {"type": "bash_20250124", "name": "b"}],
        [],
    ),
    "tool_choice": ({"type": "any"}, {"type": "tool", "name": "f"}, {"type": "none"}),
    "thinking": ({"type": "enabled", "budget_tokens": 3_000}, {"type": "adaptive"}, {"type": "disabled"}),
    "output_config": ({"effort": "high"}, {"format": {"type": "json_schema", "schema": {"type": "object"}}}),
    "stop_sequences": (["END", " "], []),
    "temperature": (0.5, 1),
}


@st.composite
def mostly(draw: st.DrawFn, made: dict[str, Any]) -> dict[str, Any]:
    """An object as it should be, now and then with anything in place of a field."""
    if not made or draw(st.integers(0, 19)):
        return made
    return {**made, draw(st.sampled_from(list(made))): draw(values)}


blocks = st.sampled_from(BLOCKS).flatmap(mostly)
turns = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "user", "assistant", "assistant", "system"]),
    st.lists(blocks, max_size=4) | st.just("hi"),
)
optional = st.fixed_dictionaries({}, optional={name: st.sampled_from(made) for name, made in FIELDS.items()})


@given(optional.flatmap(mostly), st.lists(turns, min_size=1, max_size=4))
def test_a_client_s_body_is_taken_or_refused_by_name(fields: dict[str, Any], messages: list[Any]) -> None:
    asked = {"model": "m", "max_tokens": 4000, "messages": messages, **fields}
    try:
        form = chat_form(asked)
        request = parse(form.body, 1_000)
    except InvalidRequest as error:
        assert error.message
        return
    native.upstream_body(asked, model="m", output_cap=2_000)
    native.count_body(asked, model="m")
    native.built_in(asked)
    for takes in (Takes(), Takes(adaptive=True, formats=False, urls=False)):
        try:
            made = upstream_body(request.body, model="m", output_cap=2_000, stream=True, takes=takes)
        except InvalidRequest as error:
            assert form.param(error.param) or error.param is None
        else:
            assert made.body["messages"] and all(turn["content"] for turn in made.body["messages"])


DELTAS: tuple[dict[str, Any], ...] = (
    {"type": "text_delta", "text": "a"},
    {"type": "thinking_delta", "thinking": "b"},
    {"type": "signature_delta", "signature": "Eq=="},
    {"type": "input_json_delta", "partial_json": '{"input":'},
    {"type": "input_json_delta", "partial_json": '"x"}'},
    {"type": "citations_delta", "citation": {"type": "web_search_result_location", "url": "https://x.example"}},
    {"type": "newer_delta"},
)
STARTS: tuple[dict[str, Any], ...] = (
    {"type": "text", "text": ""},
    {"type": "text", "text": "a"},
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "redacted_thinking", "data": "Em=="},
    *({"type": "tool_use", "id": "t", "name": name, "input": {}} for name in ("f", "run", "answer")),
    {"type": "tool_use", "id": "u", "name": "f", "input": {"a": 1}},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "newer_block"},
)
USAGE = {"input_tokens": 5, "output_tokens": 2, "cache_creation": {"ephemeral_1h_input_tokens": 1}}
indices = st.integers(0, 2)
provider_events = st.one_of(
    mostly({"type": "message_start", "message": {"id": "m", "model": "x", "content": [], "usage": USAGE}}),
    st.builds(
        lambda index, block: {"type": "content_block_start", "index": index, "content_block": block},
        indices,
        st.sampled_from(STARTS).flatmap(mostly),
    ),
    st.builds(
        lambda index, delta: {"type": "content_block_delta", "index": index, "delta": delta},
        indices,
        st.sampled_from(DELTAS).flatmap(mostly),
    ),
    st.builds(lambda index: {"type": "content_block_stop", "index": index}, indices),
    mostly({"type": "message_delta", "delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": USAGE}),
    st.sampled_from([{"type": "ping"}, {"type": "message_stop"}, {"type": "newer_event"}]),
)


@given(st.lists(provider_events, max_size=12))
def test_a_provider_s_events_are_read_or_its_fault_and_a_client_s_stream_stays_one(sent: list[dict[str, Any]]) -> None:
    answer = UpstreamAnswer(Reading(answer_tool="answer", custom_tools=frozenset({"run"})))
    reader = AnswerReader(parse(ASKED, 100), id="gen-1", created=1, model="m")
    shown: list[dict[str, Any]] = []
    try:
        for event in sent:
            for chunk in answer.event("", event):
                for frame in reader.feed(b"data: " + json.dumps(chunk).encode() + b"\n\n"):
                    shown.append(json.loads(frame[6:]))
    except UpstreamFault:
        pass
    found = events(told(shown)) if shown else []
    depth = 0
    for name, _ in found:
        depth += {"content_block_start": 1, "content_block_stop": -1}.get(name, 0)
        assert depth in (0, 1)
    assert depth == 0


@given(
    mostly({"id": "m", "model": "x", "stop_reason": "end_turn", "stop_sequence": "END", "usage": USAGE}),
    st.lists(st.sampled_from(STARTS).flatmap(mostly), max_size=4),
)
def test_a_provider_s_message_is_read_or_its_fault(message: dict[str, Any], content: list[Any]) -> None:
    try:
        made = UpstreamAnswer().whole({**message, "content": content})
        reader = AnswerReader(
            parse({**ASKED, "stream": False, "stream_options": None}, 100), id="g", created=1, model="m"
        )
        reader.feed(json.dumps(made).encode())
        reader.end()
        client_answer.whole(json.loads(reader.final()))
    except UpstreamFault:
        pass


def test_blocks_without_end_are_the_end_of_an_answer() -> None:
    answer = UpstreamAnswer()
    block = {"type": "content_block_start", "content_block": {"type": "text", "text": ""}}
    for index in range(MAX_BLOCKS):
        answer.event("", {**block, "index": index})
    with pytest.raises(UpstreamFault):
        answer.event("", {**block, "index": MAX_BLOCKS})


def test_what_waits_for_an_open_call_costs_no_more_than_it_is_long() -> None:
    """Fifty thousand pieces of two calls that are mixed: each is looked at once."""
    pieces = 25_000
    sent: list[dict[str, Any]] = [{"tool_calls": [call(0, '{"a":"'), call(1, '{"a":"')]}]
    sent += [{"tool_calls": [call(at % 2, "x")]} for at in range(2 * pieces)]
    sent.append({"tool_calls": [call(0, '"}'), call(1, '"}')]})
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in sent]
    made = told(chunks)
    given_ = [data["delta"]["partial_json"] for _, data in events(made) if data["type"] == "content_block_delta"]
    assert "".join(given_) == ('{"a":"' + "x" * pieces + '"}') * 2


def test_many_calls_that_are_mixed_cost_no_more_than_one() -> None:
    calls, rounds = 1_000, 100
    sent: list[dict[str, Any]] = [{"tool_calls": [call(at, '{"a":"') for at in range(calls)]}]
    sent += [{"tool_calls": [call(at, "x") for at in range(calls)]} for _ in range(rounds)]
    sent.append({"tool_calls": [call(at, '"}') for at in range(calls)]})
    chunks = [{"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in sent]
    blocks = [data for _, data in events(told(chunks)) if data["type"] == "content_block_start"]
    assert [data["content_block"]["id"] for data in blocks] == [f"c{at}" for at in range(calls)]


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a"}] * 12_000}}],
        [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "a"}] * 12_000}],
        [{"type": "tool_result", "tool_use_id": "a"}] * 12_000,
        [{"type": "tool_use", "id": "a", "name": "f", "input": {}}] * 9_000,
    ],
    ids=["document", "result", "results", "calls"],
)
def test_a_turn_of_many_blocks_costs_no_more_than_it_is_long(content: list[Any]) -> None:
    role = "assistant" if content[0]["type"] == "tool_use" else "user"
    asked = {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": role, "content": content}, {"role": "user", "content": "hi"}],
    }
    form = chat_form(asked)
    assert upstream_body(parse(form.body, 1_000).body, model="m", output_cap=9, stream=True).body["messages"]


def call(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": f"c{index}", "function": {"name": "f", "arguments": arguments}}
