"""Every value of a body or an event replaced by one of another type: never more than a refusal or a fault."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_chat import AnswerReader as ChatReader
from gateway.protocols.openai_chat import parse
from gateway.protocols.openai_responses import native, upstream_request
from gateway.protocols.openai_responses.client_request import chat_form
from gateway.protocols.openai_responses.thoughts import FORMAT, pack
from gateway.protocols.openai_responses.upstream_answer import AnswerReader, whole
from gateway.wire import sse, strict_json
from gateway.wire.errors import InvalidRequest, UpstreamFault
from tests.protocols.openai_responses.answers import (
    CASES,
    deltas,
    recorded,
    recorded_whole,
    shown,
    writer,
    written,
)
from tests.protocols.strange import changed

BODY: dict[str, Any] = {
    "model": "m-1",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": "https://x.example/a.png", "detail": "low"},
                {"type": "input_file", "file_data": "JVBERi0=", "filename": "a.pdf"},
            ],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "s"}],
            "content": [{"type": "reasoning_text", "text": "t"}],
            "encrypted_content": "x",
        },
        {"type": "reasoning", "summary": [], "encrypted_content": pack([{"type": "reasoning.text", "text": "t"}])},
        {"role": "assistant", "content": [{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]},
        {"type": "function_call", "call_id": "a", "name": "f", "namespace": "n", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "p", "input": "+"},
        {"type": "local_shell_call", "call_id": "c", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "1"}]},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "2"},
        {"type": "local_shell_call_output", "id": "c", "output": "3"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "f",
            "parameters": {"type": "object"},
            "strict": True,
            "allowed_callers": ["direct"],
        },
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "lark", "definition": "a"}},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "f", "description": "d"}]},
        {"type": "local_shell"},
        {"type": "web_search", "filters": {"allowed_domains": None}, "user_location": {"type": "approximate"}},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto", "context": "auto"},
    "text": {"format": {"type": "json_schema", "name": "r", "schema": {}, "strict": True}, "verbosity": "low"},
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "max_output_tokens": 100,
    "metadata": {"a": "b"},
    "top_logprobs": 1,
    "truncation": "auto",
}


WITHHELD = ("verbosity", "logprobs", "web_search_options", "cache_control", "reasoning_effort", "temperature")


def test_a_body_with_a_strange_value_is_taken_or_refused_by_name() -> None:
    taken = 0
    for body in changed(BODY):
        try:
            form = chat_form(body)
        except InvalidRequest as error:
            assert error.param
            continue
        native.body(body, model="up", output_cap=None, stream=False, store=False, reasons=True, withheld=WITHHELD)
        try:
            request = parse(form.body, 9999)
            asked = {**request.body, **request.changes}
            upstream_request.body(asked, model="up-1", output_cap=9, stream=False, reasons=True)
        except InvalidRequest as error:
            assert form.retold(error).param
            continue
        answer = writer(**body)
        for chunk in deltas({"content": "x"}):
            answer.chunk(chunk)
        assert answer.final()
        taken += 1
    assert taken > 100


@pytest.mark.parametrize(
    "case", ("reasoning_tools", "tools_parallel", "search", "tool_custom", "refusal", "error_at_once")
)
def test_an_event_with_a_strange_value_is_read_or_a_fault(case: str) -> None:
    told = [json.loads(data) for _, data in sse.EventReader().feed(recorded(case))]
    for at, event in enumerate(told):
        for strange in changed({key: value for key, value in event.items() if key != "response"}):
            read([*told[:at], strange, *told[at + 1 :]])


CHUNKS: list[dict[str, Any]] = [
    {
        "id": "x1",
        "model": "up-1",
        "service_tier": "default",
        "choices": [
            {
                "index": 0,
                "delta": {
                    "role": "assistant",
                    "content": "a",
                    "refusal": "b",
                    "reasoning": "c",
                    "reasoning_details": [
                        {"type": "reasoning.summary", "summary": "s", "index": 0, "format": FORMAT, "id": "rs_1"},
                        {"type": "reasoning.text", "text": "t", "signature": "S", "index": 1, "format": "f"},
                        {"type": "reasoning.encrypted", "data": "d", "index": 2},
                    ],
                    "audio": {"transcript": "d"},
                    "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
                    "annotations": [{"type": "url_citation", "url_citation": {"url": "u", "start_index": 0}}],
                    "tool_calls": [
                        {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                "logprobs": {"content": [{"token": "a", "logprob": -1.0}]},
                "finish_reason": None,
            }
        ],
    },
    {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}},
    },
]


def test_whatever_a_chat_provider_sends_is_told_or_a_fault() -> None:
    told = 0
    for chunks in changed(CHUNKS):
        if not all(type(chunk) is dict for chunk in chunks):
            continue
        try:
            made = shown(chunks, logprobs=True)
        except UpstreamFault:
            continue
        assert len(sse.EventReader().feed(written(made))) > 2
        told += 1
    assert told > 100


def read(told: list[dict[str, Any]]) -> None:
    reader, chat = AnswerReader(), ChatReader(parse(ASKED, 99), id="g1", created=1, model="m")
    try:
        for event in told:
            for chunk in reader.event("", event):
                chat.feed(sse.encode(strict_json.dumps(chunk)))
        chat.end()
    except UpstreamFault:
        return
    json.loads(chat.final())


ASKED = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]}


def test_a_failure_with_a_strange_value_is_a_failure() -> None:
    for error in changed({"error": {"code": "server_error", "message": "m", "type": "t", "param": "p"}}):
        (told,) = AnswerReader().event("response.failed", {"response": {"status": "failed"} | error})
        chat = ChatReader(parse(ASKED, 99), id="g1", created=1, model="m")
        with pytest.raises(UpstreamFault):
            chat.feed(sse.encode(strict_json.dumps(told)))


@pytest.mark.parametrize("case", CASES)
def test_a_whole_answer_with_a_strange_value_is_read_or_a_fault(case: str) -> None:
    fields = {"id", "status", "error", "incomplete_details", "model", "output", "usage", "service_tier"}
    body = {name: value for name, value in recorded_whole(case).items() if name in fields}
    for strange in changed(body):
        chat = ChatReader(parse(ASKED, 99), id="g1", created=1, model="m")
        try:
            chat.feed(strict_json.dumps(whole(strange)))
            chat.end()
        except UpstreamFault:
            continue
        json.loads(chat.final())
