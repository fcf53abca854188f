"""Whole JSON bodies and streams, given to clients that asked for the one or the other."""

import json
from dataclasses import replace
from typing import Any

import pytest

from billing.tokens import Tokens
from gateway.protocols.openai_chat.answer.held import MAX_HELD
from gateway.wire.dialects import STANDARD
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import MAX_EVENT
from routing.health.faults import Fault
from tests.protocols.openai_chat.answers import (
    DONE,
    OURS,
    chunk,
    event,
    reader,
    relay,
    relay_at_every_cut,
    shown,
    usage,
    whole,
)

USAGE = {"prompt_tokens": 11, "completion_tokens": 40, "total_tokens": 51}
SHOWN = shown(11, 40, reasoning_tokens=2)  # Nobody counted the reasoning, so it is estimated.
THOUGHT = {"type": "reasoning.text", "index": 0}
CALL = {"id": "c1", "type": "function", "function": {"name": "fx", "arguments": '{"ccy":"EUR"}'}}
CITED = {
    "type": "url_citation",
    "url_citation": {"title": "Central bank", "url": "https://example.org/p", "start_index": 0, "end_index": 11},
}
MESSAGE = {
    "role": "assistant",
    "content": "7 \u2028é",
    "refusal": None,
    "annotations": [],
    "reasoning": "A prime.",
    "reasoning_content": "A prime.",
    "reasoning_details": [{"index": 0, "type": "reasoning.encrypted", "data": "Z0FB"}],
}


@pytest.mark.row(
    "B204", "B205", "B206", "B207", "B208", "B210", "B216", "B218", "B219", "B220", "B224", "B229", "B235", "B237"
)
def test_a_whole_body_passes_with_every_field_and_our_envelope() -> None:
    seen = relay_at_every_cut(whole(MESSAGE, usage=USAGE, service_tier="default", odd=[1]), stream=False)
    assert seen.body == {
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop", "logprobs": None}],
        "service_tier": "default",
        "odd": [1],
        "usage": SHOWN,
    }
    assert "\u2028é".encode() in seen.final
    assert seen.known == {
        "meaningful": True,
        "complete": True,
        "usage": Tokens(prompt=11, completion=40),
        "usage_suspect": False,
        "finish_reason": "stop",
        "native_finish_reason": "stop",
        "relayed_bytes": len("7 \u2028é".encode()) + len("A prime."),
        "skipped": 0,
    }


@pytest.mark.row("B216", "B217", "B249")
def test_a_whole_body_is_put_right_where_it_is_loose() -> None:
    body = {
        "choices": [{"message": {"tool_calls": [CALL]}}, {"index": 1, "message": {"content": "x"}, "finish_reason": ""}]
    }
    seen = relay_at_every_cut(json.dumps(body).encode(), stream=False)
    assert [(c["index"], c["finish_reason"], c["message"]["content"]) for c in seen.body["choices"]] == [
        (0, "tool_calls", None),
        (1, "stop", "x"),
    ]
    assert "usage" not in seen.body


@pytest.mark.parametrize("before", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n \n", b": ping\n\n: ping\r\r"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_first_byte_that_says_something_decides(before: bytes, stream: bool) -> None:
    body, events = whole({"role": "assistant", "content": "ok"}), chunk({"content": "ok"}, "stop") + DONE
    for upstream in (body, events):
        seen = relay_at_every_cut(before + upstream, stream=stream)
        assert seen.fault is None
        text = "".join(d.get("content") or "" for d, _ in seen.deltas) if stream else seen.message["content"]
        assert text == "ok"


def test_a_long_comment_costs_no_memory() -> None:
    answer = reader()
    for _ in range(15):
        assert answer.feed(b":" + b"x" * 65536) == []
    assert len(answer.feed(b"\n\n" + chunk({"content": "a"}))) == 1


@pytest.mark.row("B136", "B225", "B270", "B277")
def test_a_whole_body_becomes_a_stream() -> None:
    message = MESSAGE | {"tool_calls": [CALL, CALL | {"id": "c2"}], "annotations": [CITED]}
    logprobs = {"content": [{"token": "7", "logprob": -9999.0, "bytes": None, "top_logprobs": []}]}
    body = json.loads(whole(message, "tool_calls", usage=USAGE, system_fingerprint="fp"))
    body["choices"][0]["logprobs"] = logprobs
    seen = relay_at_every_cut(json.dumps(body).encode(), include_usage=True, logprobs=True)
    assert seen.early == b""
    assert seen.deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({name: MESSAGE[name] for name in ("reasoning", "reasoning_content", "reasoning_details")}, None),
        ({"content": "7 \u2028é"}, None),
        ({"tool_calls": [{"index": 0} | CALL, {"index": 1} | CALL | {"id": "c2"}]}, None),
        ({"annotations": [CITED]}, "tool_calls"),
    ]
    assert [made["choices"][0].get("logprobs") for made in seen.chunks[:-1]] == [None, None, None, logprobs, None]
    assert all(made["system_fingerprint"] == "fp" for made in seen.chunks[:-1])
    assert seen.chunks[-1] == OURS | {"choices": [], "usage": SHOWN}
    assert seen.known["usage"] == Tokens(prompt=11, completion=40)


def test_an_empty_whole_body_becomes_a_role_and_a_finish() -> None:
    nothings: list[dict[str, Any]] = [{"content": None}, {"content": "", "tool_calls": []}]
    for nothing in [*nothings, {"tool_calls": None, "function_call": {}}]:
        seen = relay_at_every_cut(whole(nothing, "length"))
        assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({}, "length")]


def test_two_whole_choices_become_two_streams() -> None:
    choices = [{"index": i, "message": {"content": text}, "finish_reason": "stop"} for i, text in enumerate("ab")]
    seen = relay_at_every_cut(json.dumps({"choices": choices}).encode())
    texts = [(made["choices"][0]["index"], made["choices"][0]["delta"].get("content")) for made in seen.chunks]
    assert texts == [(0, ""), (0, "a"), (1, ""), (1, "b"), (0, None), (1, None)]


@pytest.mark.row("B204", "B236")
def test_a_stream_becomes_a_whole_body() -> None:
    def token(text: str) -> dict[str, Any]:
        return {"token": text, "logprob": -0.5, "bytes": None, "top_logprobs": []}

    upstream = (
        chunk({"role": "assistant", "content": ""}, system_fingerprint="fp", choice={"logprobs": None, "odd": 1})
        + chunk({"reasoning": "A ", "reasoning_content": "A "})
        + chunk({"reasoning": "prime.", "reasoning_content": "prime."})
        + chunk({"reasoning_details": [THOUGHT | {"signature": "s"}]})
        + chunk({"content": "7"}, choice={"logprobs": {"content": [token("7")], "refusal": None}})
        + chunk({"content": " é"}, "length", choice={"logprobs": {"content": [token("é")]}, "stop_reason": 2})
        + usage(11, 40)
        + DONE
    )
    seen = relay_at_every_cut(upstream, stream=False, logprobs=True)
    assert seen.body == {
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "7 é",
                    "refusal": None,
                    "annotations": [],
                    "reasoning": "A prime.",
                    "reasoning_content": "A prime.",
                    "reasoning_details": [THOUGHT | {"text": "A prime.", "signature": "s"}],
                },
                "finish_reason": "length",
                "logprobs": {"content": [token("7"), token("é")], "refusal": None},
                "odd": 1,
                "stop_reason": 2,
            }
        ],
        "system_fingerprint": "fp",
        "usage": SHOWN,
    }


@pytest.mark.row("B128", "B228")
def test_streamed_tool_calls_become_whole_ones_in_order() -> None:
    def fragment(index: int, arguments: str, **more: Any) -> bytes:
        name = {"name": more.pop("name")} if "name" in more else {}
        return chunk({"tool_calls": [{"index": index, "function": name | {"arguments": arguments}} | more]})

    upstream = (
        fragment(1, '{"city":', id="b", type="function", name="g", extra_content={"google": {"sig": "x"}})
        + fragment(0, "", id="a", type="function", name="f")
        + fragment(0, "{")
        + fragment(1, '"杭州"}')
        + fragment(0, "}")
        + chunk({}, "tool_calls")
        + DONE
    )
    assert relay_at_every_cut(upstream, stream=False).message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "tool_calls": [
            {
                "id": "b",
                "type": "function",
                "function": {"name": "g", "arguments": '{"city":"杭州"}'},
                "extra_content": {"google": {"sig": "x"}},
            },
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
        ],
    }


@pytest.mark.row("B218", "B226", "B227")
def test_streamed_refusals_function_calls_and_audio_become_whole_ones() -> None:
    refusal = chunk({"refusal": "I "}) + chunk({"refusal": "won't"}, "stop")
    assert relay_at_every_cut(refusal, stream=False).message == {
        "role": "assistant",
        "content": None,
        "refusal": "I won't",
        "annotations": [],
    }
    call = chunk({"function_call": {"name": "f", "arguments": "{"}}) + chunk(
        {"function_call": {"arguments": "}"}}, "function_call"
    )
    assert relay_at_every_cut(call, stream=False).message == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "annotations": [],
        "function_call": {"name": "f", "arguments": "{}"},
    }
    audio = chunk({"audio": {"id": "a1", "transcript": "he"}}) + chunk(
        {"audio": {"id": "a1", "transcript": "llo", "data": "UklG", "expires_at": 9}}, "stop"
    )
    assert relay_at_every_cut(audio, stream=False).message["audio"] == {
        "id": "a1",
        "transcript": "hello",
        "data": "UklG",
        "expires_at": 9,
    }


@pytest.mark.row("B217", "B249")
def test_an_empty_stream_of_a_choice_becomes_empty_text() -> None:
    upstream = chunk({"role": "assistant", "content": ""}) + chunk({}, "stop") + usage(5, 0) + DONE
    seen = relay_at_every_cut(upstream, stream=False)
    assert seen.message == {"role": "assistant", "content": "", "refusal": None, "annotations": []}
    assert seen.body["usage"] == shown(5, 0)


def test_two_streamed_choices_become_two_whole_ones() -> None:
    upstream = chunk({"content": "b"}, "length", index=1) + chunk({"content": "a"}, "stop") + DONE
    choices = relay_at_every_cut(upstream, stream=False).body["choices"]
    assert [(c["index"], c["message"]["content"], c["finish_reason"]) for c in choices] == [
        (0, "a", "stop"),
        (1, "b", "length"),
    ]


@pytest.mark.row("B209")
def test_a_choice_given_in_two_parts_is_one() -> None:
    text = {"index": 0, "message": {"role": "assistant", "content": "Look: "}, "finish_reason": "stop"}
    call = {"index": 0, "message": {"role": "assistant", "tool_calls": [CALL]}, "finish_reason": "tool_calls"}
    more = {"message": {"content": "ok", "annotations": [CITED], "tool_calls": [CALL | {"id": "c2"}]}}
    body = json.dumps({"choices": [text, call, more]}).encode()
    (choice,) = relay_at_every_cut(body, stream=False).body["choices"]
    assert (choice["index"], choice["finish_reason"]) == (0, "tool_calls")
    assert choice["message"] == {
        "role": "assistant",
        "content": "Look: ok",
        "refusal": None,
        "annotations": [CITED],
        "tool_calls": [CALL, CALL | {"id": "c2"}],
    }
    seen = relay_at_every_cut(body)
    assert [made["choices"][0]["index"] for made in seen.chunks] == [0] * 4
    assert seen.deltas[-1] == ({"annotations": [CITED]}, "tool_calls")


@pytest.mark.row("B210")
def test_several_choices_that_were_asked_for_and_have_no_index_are_told_apart_by_place() -> None:
    body = json.dumps({"choices": [{"message": {"content": text}} for text in "ab"]}).encode()
    choices = relay_at_every_cut(body, stream=False, n=2).body["choices"]
    assert [(choice["index"], choice["message"]["content"]) for choice in choices] == [(0, "a"), (1, "b")]


@pytest.mark.row("B217", "B226")
def test_audio_passes_as_it_came() -> None:
    audio = {"id": "a1", "data": "UklG", "expires_at": 9, "transcript": "hello"}
    seen = relay_at_every_cut(whole({"content": None, "audio": audio}), stream=False)
    assert (seen.message["content"], seen.message["audio"]) == (None, audio)


@pytest.mark.row("B200", "B201")
def test_structured_text_comes_whole_or_says_that_it_was_cut() -> None:
    upstream = (
        chunk({"role": "assistant", "content": '{"a":'}) + chunk({"content": "1"}) + chunk({"content": "}"}, "stop")
    )
    assert json.loads(relay_at_every_cut(upstream, stream=False).message["content"]) == {"a": 1}
    text = "".join(delta.get("content", "") for delta, _ in relay_at_every_cut(upstream).deltas)
    assert json.loads(text) == {"a": 1}
    (cut,) = relay_at_every_cut(whole({"content": '{"a":'}, "length"), stream=False).body["choices"]
    assert (cut["message"]["content"], cut["finish_reason"]) == ('{"a":', "length")


@pytest.mark.row("B236")
def test_a_fingerprint_is_passed_on_but_in_the_dialect_that_has_none() -> None:
    body = whole({"content": "x"}, system_fingerprint="fp")
    assert relay([body], stream=False).body["system_fingerprint"] == "fp"
    hiding = replace(STANDARD, hides_fingerprint=True)
    streamed = chunk({"content": "x"}, "stop", system_fingerprint="fp")
    for upstream in (body, streamed):
        assert relay([upstream], stream=False, dialect=hiding).body["system_fingerprint"] is None
    assert "system_fingerprint" not in relay([whole({"content": "x"})], stream=False).body


def test_a_broken_stream_gives_no_body() -> None:
    for upstream in (chunk({"content": "a"}), chunk({"content": "a"}, "stop") + b"data: {\n\n"):
        seen = relay(([upstream]), stream=False)
        assert seen.fault in ("truncated", "invalid_response")
        assert (seen.early, seen.final) == (b"", b"")


def test_an_estimate_is_shown_in_a_whole_body() -> None:
    answer = reader(stream=False)
    answer.feed(whole({"content": "x"}, usage={"prompt_tokens": -5, "completion_tokens": 1}))
    answer.end()
    assert (answer.usage, answer.usage_suspect) == (None, True)
    answer.set_usage(Tokens(prompt=20, completion=1))
    assert json.loads(answer.final())["usage"]["total_tokens"] == 21


@pytest.mark.parametrize(
    "body",
    [
        b"{garbage",
        b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]',
        b'{"choices":[]}',
        b'{"choices":{"0":{}}}',
        b"{}",
        b'{"detail":"Not Found"}',
        b'{"choices":["x"]}',
        b'{"choices":[{"index":0}]}',
        b'{"choices":[{"index":-1,"message":{}}]}',
        b'{"choices":[{"index":0,"message":"x"}]}',
        b'{"choices":[{"index":0,"message":{},"finish_reason":5}]}',
        b'{"choices":[{"index":0,"message":{"content":"\xff"}}]}',
        b'{"choices":[{"index":0,"message":{}}],"choices":[{"index":0,"message":{}}]}',
        b'{"choices":[{"index":0,"message":{}}]} {"choices":[]}',
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_body_that_is_no_answer_is_an_error(body: bytes, stream: bool) -> None:
    seen = relay_at_every_cut(body, stream=stream)
    assert (seen.fault, seen.early, seen.final) == ("invalid_response", b"", b"")
    # What the provider counted is billed, whatever else it said.
    assert seen.known["usage"] == (Tokens(1, 1) if b"prompt_tokens" in body else None)


@pytest.mark.parametrize(
    ("usage", "suspect", "counted"),
    [
        (b'"usage":{"prompt_tokens":NaN,"completion_tokens":1}', True, None),
        (b'"usage":{"prompt_tokens":1e999,"completion_tokens":1}', True, None),
        (
            b'"usage":{"prompt_tokens":1,"completion_tokens":1},"usage":{"prompt_tokens":2,"completion_tokens":1}',
            False,
            2,
        ),
    ],
)
def test_odd_usage_does_not_spoil_an_answer(usage: bytes, suspect: bool, counted: int | None) -> None:
    answer = reader(stream=False)
    answer.feed(b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}],%b}' % usage)
    answer.end()
    assert answer.usage_suspect is suspect
    assert (answer.usage and answer.usage.prompt) == counted


def test_sizes_are_capped() -> None:
    answer = reader()
    answer.feed(b"{")
    with pytest.raises(UpstreamFault) as refused:
        for _ in range(MAX_EVENT // 65536 + 1):
            answer.feed(b" " * 65536)
    assert refused.value.kind is Fault.INVALID_RESPONSE
    piece = chunk({"content": "x" * 500_000})
    answer = reader(stream=False)
    with pytest.raises(UpstreamFault) as refused:
        for _ in range(MAX_HELD // len(piece) + 1):
            answer.feed(piece)
    assert refused.value.kind is Fault.INVALID_RESPONSE
    answer = reader()
    for _ in range(MAX_HELD // len(piece) + 1):
        assert len(answer.feed(piece)) == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", [b"", b"event: error\n"])
def test_an_error_in_a_200_is_the_error_it_says(stream: bool, name: bytes) -> None:
    error = {"error": {"message": "Provider returned error", "code": 429, "metadata": {"provider_name": "P"}}}
    for upstream in (json.dumps(error).encode(), name + event(error), event(error) + DONE):
        seen = relay_at_every_cut(upstream, stream=stream)
        assert (seen.fault, seen.early, seen.final) == ("rate_limited", b"", b"")


def test_an_error_over_several_data_lines_keeps_its_name() -> None:
    upstream = b'event: error\ndata: {"error":\ndata: {"message":"quota","code":429}}\n\n'
    assert relay_at_every_cut(upstream).fault == "rate_limited"
    assert relay_at_every_cut(b'event: error\ndata: {"message":"x","code":503}\n\n').fault == "overloaded"
    assert relay_at_every_cut(b"event: error\ndata: overloaded\n\n").fault == "server_error"


@pytest.mark.row("B273")
def test_an_error_after_text_leaves_the_text() -> None:
    upstream = chunk({"role": "assistant", "content": "Half"}) + event({"error": {"code": "500", "message": "x"}})
    seen = relay_at_every_cut(upstream)
    assert seen.fault == "server_error"
    assert seen.deltas == [({"role": "assistant", "content": "Half"}, None)]
    assert relay_at_every_cut(upstream, stream=False).final == b""


def test_an_answer_that_ended_in_error_does_not_look_finished() -> None:
    assert relay_at_every_cut(chunk({"content": "a"}) + chunk({}, "error") + DONE).fault == "server_error"
    assert relay_at_every_cut(whole({"content": "a"}, "error")).fault == "server_error"
    choice = {"error": {"code": 502, "message": "x"}}
    assert relay_at_every_cut(chunk({}, "error", choice=choice) + DONE).fault == "server_error"
