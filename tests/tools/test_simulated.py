"""The simulated provider keeps its word: it says, bills and breaks exactly what a model's name asks for."""

import hashlib
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulated import chat, models
from tests.simulated.plan import Call, Request, Say
from tests.simulated.process import SimulatedProvider, start
from tests.simulated.raw import CHAT, HELLO, ask, counts, dial, drain, leave_after, request, usage

SPEECH = "You said: hello there — I am a simulated model: nothing was generated and nothing was"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
ID = re.compile(rb"chatcmpl-[0-9a-f]{8}-[0-9a-f]{8}")


@pytest.fixture(scope="module")
def process() -> Iterator[SimulatedProvider]:
    with start() as provider:
        yield provider


@pytest.fixture
def provider(process: SimulatedProvider) -> SimulatedProvider:
    process.reset()
    return process


# --- what is said, and billed ---
def test_it_answers_whole_and_bills_what_it_said(provider: SimulatedProvider) -> None:
    before = time.time()
    headers = "Connection: close\r\nX-Attempt-Id: a-1\r\nX-Request-Id: r-1\r\n"
    headers += "Authorization: Bearer sk-simulated-abcd\r\n"
    seen = ask(provider, "sim", headers=headers)
    (line,) = provider.bill()
    assert (seen.status, seen.ended) == (200, "fin")
    message = {"role": "assistant", "content": SPEECH}
    assert seen.json == {
        "id": line["id"],
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "sim",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage(6, 16),
    }
    assert counts(line) == (6, 0, 16, 0)
    assert json.loads(line["usage"]) == usage(6, 16)
    assert (line["model"], line["path"], line["stream"], line["status"]) == ("sim", CHAT, False, 200)
    assert (line["ended"], line["fault"], line["events"], line["bytes"]) == (
        "complete",
        None,
        1,
        len(seen.raw),
    )
    assert (line["attempt_id"], line["request_id"]) == ("a-1", "r-1")
    digest = hashlib.sha256(b"sk-simulated-abcd").hexdigest()[:16]
    assert line["credential"] == {"digest": digest, "last4": "abcd"}
    assert before <= line["started"] <= line["at"] <= time.time()


def test_it_streams_a_token_an_event_and_usage_only_when_asked(provider: SimulatedProvider) -> None:
    seen = ask(provider, "sim?tokens=2", stream=True, stream_options={"include_usage": True})
    (line,) = provider.bill()
    shell = {
        "id": line["id"],
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "sim?tokens=2",
    }
    deltas = [{"role": "assistant", "content": ""}, {"content": "You"}, {"content": " said:"}]
    assert seen.events == [
        *({**shell, "choices": [{"index": 0, "delta": d, "finish_reason": None}], "usage": None} for d in deltas),
        {**shell, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": None},
        {**shell, "choices": [], "usage": usage(6, 2)},
        "[DONE]",
    ]
    assert seen.chunks[1]
    assert (counts(line), line["events"], line["bytes"]) == ((6, 0, 2, 0), 6, len(seen.raw))
    assert json.loads(line["usage"]) == usage(6, 2)

    unasked = ask(provider, "sim?tokens=2", stream=True)
    assert len(unasked.events) == 5
    assert not any("usage" in event for event in unasked.events[:-1])
    assert (counts(provider.bill()[1]), provider.bill()[1]["usage"]) == ((6, 0, 2, 0), None)


def test_the_start_line_is_written_before_the_answer(provider: SimulatedProvider) -> None:
    with dial(provider) as client:
        client.sendall(request("sim?hold"))
        provider.until(waiting=1)
        (line,) = provider.lines()
        assert (line["event"], line["model"]) == ("start", "sim?hold")
        assert provider.release() == 1
        drain(client)
    assert [line["event"] for line in provider.lines()] == ["start", "end"]
    assert provider.lines()[0]["at"] == provider.lines()[1]["started"]


@given(
    tokens=st.integers(0, 30),
    reasoning=st.integers(0, 10),
    cached=st.integers(0, 20),
    n=st.integers(1, 3),
    cap=st.none() | st.integers(1, 30),
    tools=st.integers(0, 3),
    hidden=st.booleans(),
    stream=st.booleans(),
)
def test_what_is_counted_is_what_is_said(
    tokens: int, reasoning: int, cached: int, n: int, cap: int | None, tools: int, hidden: bool, stream: bool
) -> None:
    options = f"tokens={tokens}&reasoning={reasoning}&cached={cached}" + (f"&tools={tools}" if tools else "")
    options += "&reasoning_field=hidden" if hidden else ""
    schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
    body = {
        "messages": HELLO,
        "n": n,
        "max_completion_tokens": cap,
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": schema}}],
        "stream_options": {"include_usage": True},
    }
    call = Call("id", Request("POST", CHAT, {}, (), b""), "sim", body, models.read(options), stream)
    steps = [step for step in chat.right(call).steps if isinstance(step, Say)]
    said = sum(step.tokens for step in steps)
    thought = sum(step.thought for step in steps)
    (reported,) = {step.usage for step in steps if step.usage}
    assert json.loads(reported) == usage(6, said, min(cached, 6), thought)

    answer = call.answer
    # A call is its name and the 24 characters of {"city":"Oslo","days":7}, 3 fragments.
    wanted = reasoning + (tools * 4 if tools else tokens)
    per_choice = wanted if cap is None else min(cap, wanted)
    assert said == n * per_choice
    assert thought == n * min(reasoning, per_choice)
    assert answer.finish == ("length" if per_choice < wanted else "tool_calls" if tools else "stop")
    if not tools and not hidden:
        message = answer.message()
        spoken = len(message["content"].split()) + len(message.get("reasoning_content", "").split())
        assert n * spoken == said


def test_the_same_request_gets_the_same_bytes_but_for_ids(provider: SimulatedProvider) -> None:
    for how in ({}, {"stream": True, "n": 2}):
        for model in ("sim-small", "sim?reasoning=3&cached=2", "sim?fault=gzip&id=same", "sim?status=529"):
            one, two = ask(provider, model, **how), ask(provider, model, **how)
            assert ID.search(one.raw) and one.raw != two.raw
            assert ID.sub(b"ID", one.raw) == ID.sub(b"ID", two.raw)


def test_what_is_said_can_be_chosen(provider: SimulatedProvider) -> None:
    def content(model: str, **how: Any) -> Any:
        return ask(provider, model, **how).json["choices"][0]["message"]["content"]

    assert content("sim?text=a%26b%20%20c%E2%80%A8%F0%9F%A6%80%20") == "a&b  c\u2028\N{CRAB} "
    assert ask(provider, "sim?text=a%26b%20%20c%E2%80%A8%F0%9F%A6%80%20", stream=True).text == "a&b  c\u2028\N{CRAB} "
    assert content("sim?tokens=0") == ""
    assert content("sim?ignore_max&tokens=3", max_tokens=1) == "You said: hello"
    sent = request("sim?echo", extra={"deep": [1, None, "é"]}, max_tokens=1)
    assert content("sim?echo", extra={"deep": [1, None, "é"]}, max_tokens=1).encode() == sent.partition(b"\r\n\r\n")[2]
    length = str(len(request("sim?echo_headers").partition(b"\r\n\r\n")[2]))
    assert json.loads(content("sim?echo-headers", headers="Connection: close\r\nX-A: 1\r\nX-A: 2\r\n")) == [
        ["host", "x"],
        ["connection", "close"],
        ["x-a", "1"],
        ["x-a", "2"],
        ["content-length", length],
    ]
    named = ask(provider, "sim?id=chatcmpl-7&model_echo=gpt&prompt=250000&cached=9&tokens=1").json
    assert (named["id"], named["model"], named["usage"]) == ("chatcmpl-7", "gpt", usage(250_000, 1, 9))
    assert "id" not in ask(provider, "sim?id=none").json


def test_tools_are_called_in_fragments(provider: SimulatedProvider) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("f", "g")]
    seen = ask(provider, "sim?tools=2", tools=tools, stream=True, stream_options={"include_usage": True})
    deltas = [event["choices"][0]["delta"] for event in seen.events[:-2]]
    assert deltas[0] == {"role": "assistant", "content": None}
    opened = {"index": 1, "id": "call_2", "type": "function", "function": {"name": "g", "arguments": ""}}
    assert deltas[4] == {"tool_calls": [opened]}
    assert deltas[5] == {"tool_calls": [{"index": 1, "function": {"arguments": '{"city":'}}]}
    assert seen.events[-3]["choices"][0]["finish_reason"] == "tool_calls"
    assert seen.events[-2]["usage"] == usage(6, 6)
    whole = ask(provider, "sim?tools=2", tools=tools).json["choices"][0]
    arguments = [call["function"] for call in whole["message"]["tool_calls"]]
    assert arguments == [{"name": name, "arguments": '{"city":"Oslo"}'} for name in ("f", "g")]
    assert whole["message"]["content"] is None
    talked = ask(provider, "sim?tools=2", tools=tools, tool_choice="none").json["choices"][0]
    assert talked["finish_reason"] == "stop"


def test_reasoning_is_shown_under_the_name_asked_for_and_always_billed(provider: SimulatedProvider) -> None:
    for field in ("reasoning_content", "reasoning", "hidden"):
        model = f"sim?reasoning=4&tokens=1&reasoning_field={field}"
        message = ask(provider, model).json["choices"][0]["message"]
        shown = {} if field == "hidden" else {field: "The question is read"}
        assert message == {"role": "assistant", "content": "You", **shown}
        assert ask(provider, model, stream=True).text == "You"
    assert {counts(line) for line in provider.bill()} == {(6, 0, 5, 4)}


def test_usage_goes_where_it_is_asked_to(provider: SimulatedProvider) -> None:
    def placed(where: str) -> list[Any]:
        events = ask(provider, f"sim?tokens=2&usage_at={where}", stream=True).events[:-1]
        return [event.get("usage") and event["usage"]["completion_tokens"] for event in events]

    assert placed("chunk") == [None, None, None, None]
    assert placed("always") == [None, None, None, None, 2]
    assert placed("finish") == [None, None, None, 2]
    assert placed("every") == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("lie", "reported"),
    [
        ("negative", '"completion_tokens":-5,"total_tokens":22,'),
        ("float", '"completion_tokens":16.5,"total_tokens":22,'),
        ("string", '"completion_tokens":"16","total_tokens":22,'),
        ("bool", '"completion_tokens":true,"total_tokens":22,'),
        ("nan", '"completion_tokens":NaN,"total_tokens":22,'),
        ("infinite", '"completion_tokens":1e999,"total_tokens":22,'),
        ("huge", '"completion_tokens":1' + "0" * 30 + ',"total_tokens":22,'),
        ("mismatch", '"completion_tokens":116,"total_tokens":122,'),
        ("total", '"completion_tokens":16,"total_tokens":23,'),
        ("null", '"usage":null}'),
        ("empty", '"usage":{}}'),
        ("partial", '"usage":{"total_tokens":22}}'),
        ("missing", None),
    ],
)
def test_usage_lies_and_the_bill_does_not(provider: SimulatedProvider, lie: str, reported: str | None) -> None:
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    for how in ({}, asked):
        text = ask(provider, f"sim?wrong_usage={lie}", **how).body.decode()
        line = provider.bill()[-1]
        assert counts(line) == (6, 0, 16, 0)
        if reported is None:
            assert '"usage":{' not in text and line["usage"] is None
        else:
            assert reported in text and f'"usage":{line["usage"]}' in text


def test_usage_twice_says_half_first(provider: SimulatedProvider) -> None:
    seen = ask(provider, "sim?wrong_usage=twice", stream=True, stream_options={"include_usage": True})
    assert [event["usage"] for event in seen.events[-3:-1]] == [usage(6, 8), usage(6, 16)]
    body = ask(provider, "sim?wrong_usage=twice").body
    assert body.count(b'"usage":') == 2 and json.loads(body)["usage"] == usage(6, 16)


# --- how it is said ---
@pytest.mark.parametrize(
    ("framing", "first", "end"),
    [
        ("crlf", b"data: {JSON}\r\n\r\n", b"data: [DONE]\r\n\r\n"),
        ("cr", b"data: {JSON}\r\r", b"data: [DONE]\r\r"),
        ("nospace", b"data:{JSON}\n\n", b"data:[DONE]\n\n"),
        ("comments", b": simulated\n\ndata: {JSON}\n\n", b": simulated\n\ndata: [DONE]\n\n"),
        ("ping", b"data: : keepalive\n\ndata: {JSON}\n\n", b"data: : keepalive\n\ndata: [DONE]\n\n"),
        ("named+crlf", b"event: message\r\ndata: {JSON}\r\n\r\n", b"event: message\r\ndata: [DONE]\r\n\r\n"),
        ("bom", b"\xef\xbb\xbfdata: {JSON}\n\n", b"data: [DONE]\n\n"),
    ],
)
def test_events_are_framed_as_asked(provider: SimulatedProvider, framing: str, first: bytes, end: bytes) -> None:
    chunks, complete = ask(provider, f"sim?framing={framing}&tokens=1", stream=True).chunks
    assert complete and len(chunks) == 4
    assert re.sub(rb"\{.*\}", b"{JSON}", chunks[0]) == first
    assert chunks[-1] == end


def test_multiline_events_join_to_the_same_json(provider: SimulatedProvider) -> None:
    chunks, _ = ask(provider, "sim?framing=multiline&tokens=1", stream=True).chunks
    lines = chunks[1].decode().removesuffix("\n\n").split("\n")
    assert len(lines) > 5 and all(line.startswith("data: ") for line in lines)
    payload = json.loads("\n".join(line.removeprefix("data: ") for line in lines))
    assert payload["choices"] == [{"index": 0, "delta": {"content": "You"}, "finish_reason": None}]


def test_the_form_and_the_type_can_differ_from_what_was_asked(provider: SimulatedProvider) -> None:
    assert ask(provider, "sim?as=json", stream=True).json["object"] == "chat.completion"
    assert ask(provider, "sim?as=sse").events[-1] == "[DONE]"
    assert ("content-type", "text/plain") in ask(provider, "sim?content_type=text/plain", stream=True).headers
    assert "content-type" not in dict(ask(provider, "sim?content_type=none").headers)


@pytest.mark.parametrize(
    ("options", "stream", "expected", "sent"),
    [
        ("first=1000s", True, b"", 0),
        ("pace=1000s", False, b"", 0),  # a whole answer is silent for as long as its stream would take
        ("segment=3&gap=1000s", False, b"HTT", 3),
    ],
)
def test_nothing_is_sent_before_its_time(
    provider: SimulatedProvider, options: str, stream: bool, expected: bytes, sent: int
) -> None:
    """With a pause that no test waits for, exactly what comes before it has been sent."""
    assert leave_after(provider, f"sim?{options}", expected, stream=stream)["bytes"] == sent


def test_tokens_are_paced(provider: SimulatedProvider) -> None:
    line = leave_after(provider, "sim?pace=1000s", b'"You"', stream=True)
    assert (line["events"], counts(line)) == (2, (6, 0, 1, 0))
    began = time.monotonic()
    assert ask(provider, "sim?tokens=11&pace=20ms&first=300ms", stream=True).text.count(" ") == 10
    assert ask(provider, "sim?tokens=11&pace=20ms&first=300ms").status == 200
    assert time.monotonic() - began >= 1  # twice 300 ms and ten gaps of 20 ms


def test_requests_wait_together_until_released_in_order(provider: SimulatedProvider) -> None:
    clients = [dial(provider) for _ in range(3)]
    for number, client in enumerate(clients):
        client.sendall(request(f"sim-{number}?hold"))
        provider.until(waiting=number + 1)
    state = provider.state()
    assert (state["waiting"], state["answering"], state["peak"], state["sockets"]) == (3, 3, 3, 3)
    assert provider.release(1) == 1
    assert drain(clients[0]).json["model"] == "sim-0?hold"
    clients[1].close()
    provider.until(waiting=1)
    assert provider.release() == 1
    assert drain(clients[2]).status == 200
    for client in clients:
        client.close()
    state = provider.until(sockets=0, answering=0, waiting=0)
    assert state["ended"] == {"complete": 2, "client_closed": 1}
    assert state["requests"] == {"sim-0?hold": 1, "sim-1?hold": 1, "sim-2?hold": 1}


def test_a_stream_can_be_held_after_some_events(provider: SimulatedProvider) -> None:
    with dial(provider) as client:
        client.sendall(request("sim?hold=3&tokens=4", stream=True))
        provider.until(waiting=1)
        assert provider.release() == 1
        seen = drain(client)
    assert seen.text == "You said: hello there"
    line = leave_after(provider, "sim?hold=3&tokens=4", b'" said:"', stream=True)
    assert (line["events"], line["completion_tokens"]) == (3, 2)


def test_a_client_that_leaves_is_billed_for_what_it_was_sent_with_the_time(
    provider: SimulatedProvider,
) -> None:
    with dial(provider) as client:
        client.sendall(request("sim?hold=4&tokens=9", stream=True))
        provider.until(waiting=1)
        assert provider.bill() == []
        left = time.time()
    provider.until(answering=0)
    (line,) = provider.bill()
    assert (line["ended"], line["events"], counts(line)) == ("client_closed", 4, (6, 0, 3, 0))
    assert left <= line["at"] < left + 5


def test_a_client_that_stops_sending_has_left_though_it_reads_nothing(provider: SimulatedProvider) -> None:
    """The backlog that it leaves unread keeps the connection, not the answer."""
    with dial(provider) as client:
        client.sendall(request("sim?fault=big_body&size=256M"))
        client.recv(1)
        client.shutdown(socket.SHUT_WR)
        provider.until(answering=0)
        (line,) = provider.bill()
    assert (line["ended"], counts(line)) == ("client_closed", (6, 0, 0, 0))
    assert 0 < line["bytes"] < 256 << 20


def test_connections_are_kept_alive_and_numbered(provider: SimulatedProvider) -> None:
    with dial(provider) as client:
        client.sendall(request("a", headers="") + request("b", headers="") + request("c"))
        raw = drain(client).raw
    assert re.findall(rb'"model":"(.)"', raw) == [b"a", b"b", b"c"]
    assert len({line["connection"] for line in provider.bill()}) == 1
    with dial(provider) as client:
        client.sendall(request("sim?idle=0", headers=""))
        assert drain(client).ended == "fin"
    with dial(provider) as client:
        client.sendall(request("sim?close", headers=""))
        assert ("connection", "close") in drain(client).headers


def test_the_instant_answer_is_billed_like_any_other(provider: SimulatedProvider) -> None:
    seen = ask(provider, "sim-instant", max_tokens=1)
    (line,) = provider.bill()
    assert (seen.json["id"], seen.json["usage"]) == (line["id"], usage(8, 16))
    assert len(seen.json["choices"][0]["message"]["content"].split()) == 16
    assert (counts(line), line["bytes"], line["ended"]) == ((8, 0, 16, 0), len(seen.raw), "complete")
    assert ask(provider, "sim-instant", stream=True).text == SPEECH
