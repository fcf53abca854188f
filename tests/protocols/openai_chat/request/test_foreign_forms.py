"""Blocks of Anthropic's protocol in chat messages, as one guide has them: put into this protocol's own form."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_chat.request.foreign_clients import with_plain_texts
from gateway.protocols.openai_chat.request.foreign_forms import without_others_thoughts
from gateway.protocols.openai_chat.request.parts import GEMINI
from tests.protocols.openai_chat.requests import HI, ask, called, fault, read, saying, sent, take


@pytest.mark.row("B066")
def test_anthropic_s_blocks_become_calls_results_and_thoughts() -> None:
    cache = {"type": "ephemeral"}
    history = [
        HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Ask.", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ=="},
                {"type": "text", "text": "One moment."},
                {"type": "tool_use", "id": "t-1", "name": "rate", "input": {"ccy": "EUR"}},
                {"type": "tool_use", "id": "t-2", "name": "now", "input": {}, "cache_control": cache},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "go on"},
                {"type": "tool_result", "tool_use_id": "t-1", "content": "1.08"},
                {"type": "tool_result", "tool_use_id": "t-2", "content": [{"type": "text", "text": "noon"}]},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t-3"}]},
    ]
    body = ask(messages=history)
    before = json.dumps(body)
    assert sent(take(body))["messages"] == [
        HI,
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "One moment."}],
            "tool_calls": [
                called("t-1", "rate", '{"ccy":"EUR"}'),
                called("t-2", "now", "{}") | {"cache_control": cache},
            ],
            "reasoning_details": [
                {
                    "type": "reasoning.text",
                    "text": "Ask.",
                    "signature": "c2ln",
                    "format": "anthropic-claude-v1",
                    "index": 0,
                },
                {"type": "reasoning.encrypted", "data": "ZGF0YQ==", "format": "anthropic-claude-v1", "index": 1},
            ],
        },
        {"role": "tool", "tool_call_id": "t-1", "content": "1.08"},
        {"role": "tool", "tool_call_id": "t-2", "content": [{"type": "text", "text": "noon"}]},
        {"role": "user", "content": [{"type": "text", "text": "go on"}]},
        {"role": "tool", "tool_call_id": "t-3", "content": ""},
    ]
    assert json.dumps(body) == before


@pytest.mark.row("B066")
def test_a_tool_that_failed_is_told_apart() -> None:
    """The block says so in a field that this protocol does not have; its cache breakpoint moves to the last part."""
    cache = {"type": "ephemeral", "ttl": "1h"}
    block = {"type": "tool_result", "tool_use_id": "t-1", "content": "no such currency", "is_error": True}
    (message,) = sent(take(saying(block | {"cache_control": cache})))["messages"]
    assert message["content"] == [
        {"type": "text", "text": "The tool failed."},
        {"type": "text", "text": "no such currency", "cache_control": cache},
    ]
    (message,) = sent(take(saying(block | {"content": None})))["messages"]
    assert message["content"] == [{"type": "text", "text": "The tool failed."}]


@pytest.mark.row("B066")
@pytest.mark.parametrize(
    ("role", "block", "path"),
    [
        ("assistant", {"type": "tool_use", "name": "f", "input": {}}, ".id"),
        ("assistant", {"type": "tool_use", "id": "t", "name": "f", "input": "{}"}, ".input"),
        ("assistant", {"type": "thinking", "thinking": "x"}, ".signature"),
        ("assistant", {"type": "tool_result", "tool_use_id": "t"}, ".type"),
        ("user", {"type": "tool_result"}, ".tool_use_id"),
        ("user", {"type": "tool_result", "tool_use_id": "t", "content": 7}, ".content"),
        ("user", {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}, ".content[0].type"),
        ("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}, ".type"),
    ],
)
def test_a_wrong_block_is_refused(role: str, block: dict[str, Any], path: str) -> None:
    assert fault(saying(block, role=role))[0] == f"messages[0].content[0]{path}"


def test_a_signature_on_a_call_goes_to_its_maker_alone() -> None:
    """Some clients send back a call whole and no thoughts: then it is all that tells whose they were."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    signed = call | {"extra_content": {"google": {"thought_signature": "U0lH"}}}
    turn = {"role": "assistant", "tool_calls": [signed, call]}
    messages: Any = [{"role": "user", "content": "hi"}, turn, {"role": "tool", "tool_call_id": "c", "content": "1"}]
    assert read(messages=messages).thoughts == {GEMINI}
    assert without_others_thoughts(messages, GEMINI) == messages
    assert without_others_thoughts(messages, "other-v1") == [
        messages[0],
        turn | {"tool_calls": [call, call]},
        messages[2],
    ]
    assert turn["tool_calls"] == [signed, call]
    bare = {**turn, "tool_calls": [call | {"extra_content": {"acme": 1}}]}
    assert read(messages=[messages[0], bare, messages[2]]).thoughts == set()


def test_texts_of_another_protocol_s_client_are_one_string() -> None:
    text, more = {"type": "text", "text": "hi"}, {"type": "text", "text": "you"}
    cached = text | {"cache_control": {"type": "ephemeral"}}
    picture = {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}}
    untouched: list[Any] = [[text, cached], [text, picture], [], "hi", None]
    for role, both in (("system", "hi\nyou"), ("user", "hi\nyou"), ("tool", "hi\nyou"), ("assistant", "hiyou")):
        messages = [{"role": role, "content": content} for content in ([text], [text, more], *untouched)]
        assert [message["content"] for message in with_plain_texts(messages)] == ["hi", both, *untouched]
        assert messages[1]["content"] == [text, more]
