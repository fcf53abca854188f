"""The bytes of OpenAI chat streams: cut anywhere, ended early, damaged."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.tokens import Tokens
from gateway.wire.dialects import STANDARD, ZENMUX
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import MAX_EVENT
from routing.health.faults import Fault
from tests.protocols.openai_chat.answers import DONE, chunk, event, reader, relay, relay_at_every_cut, usage

OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")


def test_text_is_true_to_the_byte() -> None:
    text = "a\u2028b\u0085c\u2029d\x0b\x0c\x1c\x1d\x1e 你好🦀 done ✅"
    seen = relay_at_every_cut(chunk({"role": "assistant", "content": text}) + STOP + DONE)
    assert seen.deltas[0][0]["content"] == text
    assert "\u2028b\u0085c\u2029".encode() in seen.early
    assert seen.known["relayed_bytes"] == len(text.encode())


@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_other_line_ends_come_out_as_lf(newline: bytes) -> None:
    upstream = b"\xef\xbb\xbf: hello\n\n" + OK + STOP + DONE
    seen = relay_at_every_cut(upstream.replace(b"\n", newline))
    assert seen == relay([OK + STOP + DONE])
    assert b"\r" not in seen.early + seen.final


def test_data_without_a_space_keeps_one_of_two_spaces() -> None:
    upstream = chunk({"role": "assistant", "content": " ok"}).replace(b"data: ", b"data:") + b"data:[DONE]\n\n"
    seen = relay_at_every_cut(upstream)
    assert seen.deltas == [({"role": "assistant", "content": " ok"}, None), ({}, "stop")]


def test_done_without_a_reason_ends_a_tool_call_as_such() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert relay_at_every_cut(chunk({"tool_calls": [call]}) + DONE).deltas[-1] == ({}, "tool_calls")


@pytest.mark.parametrize("end", [b"", b"\n", b"data: [DONE]", b"data: [DONE]\n", b"data: [DO", b'data: {"id":'])
def test_an_answer_with_its_finish_reason_is_complete_without_more(end: bytes) -> None:
    seen = relay_at_every_cut(OK + STOP + end)
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "stop")]
    assert seen.known["complete"]


@pytest.mark.parametrize("tail", [b"", b"data: ", STOP[:-20], b"data: {", OK.rstrip()])
def test_a_stream_that_breaks_off_does_not_look_finished(tail: bytes) -> None:
    seen = relay_at_every_cut(OK + tail)
    assert seen.fault == "truncated"
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None)]
    assert not seen.known["complete"]


def test_the_last_event_may_lack_its_blank_line() -> None:
    seen = relay_at_every_cut((OK + STOP + usage(3, 1)).rstrip(b"\n"))
    assert seen.fault is None
    assert seen.known["usage"] == Tokens(prompt=3, completion=1)
    seen = relay_at_every_cut((STOP + chunk({"content": "late"})).rstrip(b"\n"))
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "late"}, None), ({}, "stop")]


@pytest.mark.row("B271")
def test_comments_and_pings_are_nothing() -> None:
    upstream = (
        b": PROCESSING\n\n: PROCESSING\n\ndata: : keepalive\n\ndata: \n\nevent: ping\ndata: {}\n\n"
        + event({"type": "ping"})
        + OK
        + STOP
        + DONE
    )
    answer = reader()
    assert answer.feed(upstream[: upstream.index(b'data: {"id"')]) == []
    assert not answer.meaningful
    seen = relay_at_every_cut(upstream)
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "stop")]
    assert seen.known["skipped"] == 3


@pytest.mark.row("B252")
def test_an_event_of_an_unknown_kind_passes_with_its_name() -> None:
    seen = relay_at_every_cut(OK + b'event: trace\ndata: {"a":\ndata: 1}\n\n' + STOP + DONE)
    assert seen.early.endswith(b'event: trace\ndata: {"a":1}\n\n')
    assert relay_at_every_cut(OK + b'event: trace\ndata: {"a":1}\n\n' + STOP, stream=False).fault is None


def test_nothing_after_done_is_read() -> None:
    seen = relay_at_every_cut(OK + STOP + DONE + b"data: {garbage\n\n" + usage(9, 9))
    assert seen.fault is None
    assert seen.known["usage"] is None


BROKEN = [
    b"data: {garbage\n\n",
    b'data: {"choices":[{"index":0,"delta":{"content":"x"}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n',
    b'data: "text"\n\n',
    b"data: []\n\n",
    b'data: {"choices":{"0":1}}\n\n',
    b'data: {"choices":[1]}\n\n',
    b'data: {"choices":[{"index":"0","delta":{}}]}\n\n',
    b'data: {"choices":[{"index":128,"delta":{}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":"x"}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":["x"]}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":5}]}\n\n',
    b'data: {"choices":' + b"[" * 2000 + b"]" * 2000 + b"}\n\n",
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_event_is_an_error_and_what_came_before_it_is_not_lost(broken: bytes) -> None:
    seen = relay([broken + STOP + DONE])
    assert (seen.fault, seen.early, seen.final) == ("invalid_response", b"", b"")
    seen = relay_at_every_cut(OK + broken + STOP + DONE) if len(broken) < 200 else relay([OK + broken + STOP])
    assert seen.fault == "invalid_response"
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None)]


@pytest.mark.parametrize("number", [b"NaN", b"-Infinity", b"1e999"])
def test_a_number_that_is_none_spoils_the_usage_and_not_the_answer(number: bytes) -> None:
    counts = b'{"prompt_tokens":3,"completion_tokens":%b}' % number
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"x"}}],"x":[%b],"usage":%b}\n\n' % (number, counts)
    seen = relay_at_every_cut(OK + odd + STOP + DONE)
    assert seen.fault is None
    assert b'"x":[null]' in seen.early
    assert (seen.known["usage"], seen.known["usage_suspect"]) == (None, True)


HALVES = [
    (b'"a\\ud83d b"', "a\ufffd b"),
    (b'"\\udE00"', "\ufffd"),
    (b'"\\ud83d\\ud83d\\ude00"', "\ufffd\U0001f600"),
    (b'"\\ud83d\\\\ude00"', "\ufffd\\ude00"),
    (b'"\\\\ud83d\\ude00"', "\\ud83d\ufffd"),
    (b'"a\xed\xa0\xbd b"', "a\ufffd b"),
    (b'"\xed\xa0\xbd\xed\xb8\x80"', "\U0001f600"),
]


@pytest.mark.parametrize(("written", "read"), HALVES)
def test_half_a_character_is_replaced_and_the_answer_goes_on(written: bytes, read: str) -> None:
    body = b'{"choices":[{"index":0,"%b":{"content":%b},"finish_reason":%b}],"usage":%b}'
    counts = b'{"prompt_tokens":3,"completion_tokens":1}'
    streamed = b"data: " + body % (b"delta", written, b"null", counts) + b"\n\n" + STOP + DONE
    for upstream in (streamed, body % (b"message", written, b'"stop"', counts)):
        seen = relay_at_every_cut(upstream)
        assert seen.fault is None
        assert "".join(delta.get("content", "") for delta, _ in seen.deltas) == read
        assert seen.known["usage"] == Tokens(3, 1)
        assert relay_at_every_cut(upstream, stream=False).message["content"] == read


def test_a_pair_torn_over_two_events_is_two_halves() -> None:
    torn = [b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % half for half in (b"\\ud83d", b"\\ude00")]
    seen = relay_at_every_cut(b"".join(torn) + STOP + DONE)
    assert [delta.get("content") for delta, _ in seen.deltas] == ["\ufffd", "\ufffd", None]


def test_half_a_character_in_a_name_is_replaced_too() -> None:
    odd = b'data: {"choices":[{"index":0,"delta":{"content":"x","\\ud83d":{"\\udc00":["\\ud800"]}}}]}\n\n'
    seen = relay_at_every_cut(odd + STOP + DONE)
    assert seen.deltas[0][0]["\ufffd"] == {"\ufffd": ["\ufffd"]}


def test_a_fault_waits_for_the_frames_before_it() -> None:
    answer = reader()
    assert len(answer.feed(OK + b"data: {\n\n")) == 1
    assert answer.fault is not None
    assert answer.fault.kind is Fault.INVALID_RESPONSE
    with pytest.raises(UpstreamFault) as again:
        answer.feed(STOP)
    assert again.value is answer.fault
    with pytest.raises(UpstreamFault):
        answer.end()


def test_an_endless_line_is_refused() -> None:
    answer = reader()
    answer.feed(OK)
    with pytest.raises(UpstreamFault) as refused:
        for _ in range(MAX_EVENT // 65536 + 1):
            answer.feed(b"data: " + b"x" * 65536)
    assert (refused.value.kind, refused.value.unreadable) == (Fault.INVALID_RESPONSE, True)
    assert refused.value.message == "The provider sent a piece of more than 33554432 bytes."


@pytest.mark.parametrize(
    "upstream", [b"", b"\n\n", b": PROCESSING\n\n: PROCESSING\n\n", DONE, usage(3, 1) + DONE, b"<html>busy</html>"]
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_empty_stream_is_no_answer(upstream: bytes, stream: bool) -> None:
    seen = relay_at_every_cut(upstream, stream=stream)
    assert (seen.fault, seen.final, seen.known["meaningful"]) == ("invalid_response", b"", False)


@pytest.mark.parametrize("upstream", [b": PROCESSING\n\n", DONE])
def test_who_gets_nothing_is_told_so(upstream: bytes) -> None:
    answer = reader()
    with pytest.raises(UpstreamFault) as nothing:
        answer.feed(upstream)
        answer.end()
    assert (nothing.value.status, nothing.value.message) == (502, "The provider's answer was empty.")


deltas = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["assistant", "", None]),
        "content": st.none() | st.text(max_size=4) | st.just([{"type": "text", "text": "x"}]),
        "reasoning": st.none() | st.text(max_size=3),
        "reasoning_content": st.none() | st.text(max_size=3),
        "reasoning_details": st.none()
        | st.lists(st.just({"type": "reasoning.text", "text": "t", "index": "0"}) | st.integers(), max_size=2),
        "annotations": st.none() | st.just([{"type": "url_citation"}]) | st.just("x"),
        "refusal": st.none() | st.text(max_size=3),
        "function_call": st.none() | st.just({"name": "f", "arguments": "{}"}) | st.integers(),
        "audio": st.none() | st.just({"id": "a", "data": "AAAA"}) | st.just("x"),
        "tool_calls": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "index": st.none() | st.integers(-1, 2),
                    "id": st.none() | st.sampled_from(["", "a", "b"]) | st.integers(),
                    "type": st.none() | st.just("function"),
                    "function": st.none()
                    | st.just("x")
                    | st.fixed_dictionaries(
                        {},
                        optional={"name": st.none() | st.just("f"), "arguments": st.none() | st.text(max_size=3)},
                    ),
                },
            ),
            max_size=2,
        ),
        "odd": st.none() | st.lists(st.integers(), max_size=2) | st.text(max_size=2) | st.just({"k": {"data": 1}}),
    },
)
events = st.builds(
    chunk,
    deltas,
    st.none() | st.sampled_from(["stop", "length", "", "weird", "tool_calls", "function_call"]),
    index=st.integers(0, 2),
    choice=st.just({}) | st.just({"logprobs": {"content": [{"token": "x"}]}}) | st.just({"logprobs": {"content": 1}}),
)
upstreams = st.lists(events | st.just(usage(3, 1)) | st.binary(max_size=5) | st.sampled_from(BROKEN[:3]), max_size=8)


asked = st.fixed_dictionaries(
    {},
    optional={
        "functions": st.just([{"name": "f"}]),
        "include_reasoning": st.booleans(),
        "logprobs": st.booleans(),
        "include_usage": st.booleans(),
        "stops": st.just(("a", "bc")),
        "output_cap": st.integers(1, 3),
        "dialect": st.sampled_from([STANDARD, ZENMUX]),
    },
)


@pytest.mark.row("B130")
@given(upstreams, st.booleans(), st.lists(st.integers(0, 500), max_size=4), st.booleans(), asked)
def test_whatever_comes_and_however_it_is_cut(
    pieces: list[bytes], done: bool, cuts: list[int], stream: bool, how: dict[str, Any]
) -> None:
    upstream = b"".join(pieces) + (DONE if done else b"")
    at = [0, *sorted(cuts), max(500, len(upstream))]
    how = how | {"stream": stream, "include_usage": stream and how.get("include_usage", False)}
    seen = relay([upstream[a:b] for a, b in pairwise(at)], **how)
    assert seen == relay([upstream], **how)
    if seen.fault is not None:
        assert seen.final == b""
    elif stream:
        _check_chunks(seen.deltas)
    else:
        for choice in seen.body["choices"]:
            message = choice["message"]
            assert {"content", "refusal", "annotations"} <= message.keys()
            assert message["role"] == "assistant"
            _check_finish(choice["finish_reason"], message)


def _check_chunks(shown: list[tuple[dict[str, Any], str | None]]) -> None:
    came: dict[str, Any] = {}
    for delta, finish in shown:
        assert delta.get("role", "assistant") == "assistant"
        for call in delta.get("tool_calls", []):
            assert type(call["index"]) is int
        if finish is not None:
            assert delta.keys() <= {"annotations"}
        came |= delta
    for _, finish in shown:
        if finish is not None:
            _check_finish(finish, came)


def _check_finish(finish: str, came: dict[str, Any]) -> None:
    assert finish in ("stop", "length", "tool_calls", "function_call")
    assert came.get(finish) or finish in ("stop", "length")
