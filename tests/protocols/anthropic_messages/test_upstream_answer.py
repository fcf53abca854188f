"""What a provider of the Messages protocol answers, read as the chat form: every recording, streamed and whole."""

import json
from typing import Any

import pytest

from gateway.protocols.anthropic_messages.upstream_answer import UpstreamAnswer
from gateway.protocols.anthropic_messages.upstream_request import Reading
from gateway.wire.errors import UpstreamFault
from gateway.wire.sse import EventReader
from routing.health.faults import Fault
from tests.protocols.anthropic_messages.messages import (
    READINGS,
    STREAMS,
    WHOLE,
    chunks,
    completion,
    meaningful,
    message,
    recorded,
    shown,
)

SIGNED = "EqQBCkYICRgCKkBpbnZlbnRlZC1zaWduYXR1cmUtMS9ub3QrcmVhbA=="
SIGNED_TOO = "EqQBCkYICRgCKkBpbnZlbnRlZC1zaWduYXR1cmUtMi9ub3QrcmVhbA=="
REDACTED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwaW52ZW50ZWQ="
CLAUDE = "anthropic-claude-v1"

Deltas = list[dict[str, Any]]


def deltas(case: str) -> Deltas:
    """The deltas that a chat client is shown, without the role's."""
    made = [
        choice["delta"] for chunk in shown(chunks(recorded(case), READINGS.get(case))) for choice in chunk["choices"]
    ]
    return [{name: value for name, value in delta.items() if name != "reasoning_content"} for delta in made[1:]]


def call(index: int, id: str, name: str) -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}


def given(index: int, arguments: str) -> dict[str, Any]:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}


EXPECTED: dict[str, Deltas] = {
    "text": [{"content": "Hel"}, {"content": "lo, "}, {"content": "wörld 🌍."}, {}],
    "tool": [
        {"content": "Checking."},
        {"tool_calls": [call(0, "toolu_01A", "get_weather")]},
        *(given(0, piece) for piece in ('{"city":', ' "Os', 'lo"}')),
        {},
    ],
    "tools_parallel": [
        {"tool_calls": [call(0, "toolu_01A", "get_weather")]},
        given(0, '{"city":"Oslo"}'),
        {"tool_calls": [call(1, "toolu_01B", "get_weather")]},
        *(given(1, piece) for piece in ('{"city":', '"Rome"}')),
        {"tool_calls": [call(2, "toolu_01C", "list_buffers")]},
        given(2, "{}"),
        {},
    ],
    "answer_tool": [{"content": '{"city":'}, {"content": '"Oslo"}'}, {}],
}
ENDS = {
    "text": ("stop", "end_turn"),
    "tool": ("tool_calls", "tool_use"),
    "tools_parallel": ("tool_calls", "tool_use"),
    "thinking_tool": ("tool_calls", "tool_use"),
    "structured": ("stop", "end_turn"),
    "answer_tool": ("stop", None),
    "refusal": ("content_filter", "refusal"),
    "length": ("length", "max_tokens"),
    "stop_sequence": ("stop", "stop_sequence"),
}


@pytest.mark.parametrize("case", EXPECTED)
def test_a_stream_becomes_these_deltas(case: str) -> None:
    assert deltas(case) == EXPECTED[case]


@pytest.mark.parametrize("case", ENDS)
def test_an_end_keeps_its_meaning_and_its_word(case: str) -> None:
    made = completion(UpstreamAnswer(READINGS.get(case, Reading())).whole(message(case)))["choices"][0]
    assert (made["finish_reason"], made.get("native_finish_reason")) == ENDS[case]
    (last,) = [
        c for chunk in shown(chunks(recorded(case), READINGS.get(case))) for c in chunk["choices"] if c["finish_reason"]
    ]
    assert (last["finish_reason"], last.get("native_finish_reason")) == ENDS[case]


@pytest.mark.parametrize("case", WHOLE)
def test_whole_and_streamed_it_is_one_answer(case: str) -> None:
    """What a client that streams puts together is what another one is sent."""
    stream = shown(chunks(recorded(case), READINGS.get(case)))
    whole = completion(UpstreamAnswer(READINGS.get(case, Reading())).whole(message(case)))
    parts = [choice["delta"] for chunk in stream for choice in chunk["choices"]]
    said = whole["choices"][0]["message"]
    assert "".join(part.get("content") or "" for part in parts) == (said["content"] or "")
    assert "".join(part.get("reasoning") or "" for part in parts) == (said.get("reasoning") or "")
    arguments: dict[int, str] = {}
    for fragment in (fragment for part in parts for fragment in part.get("tool_calls") or ()):
        at = fragment["index"]
        arguments[at] = arguments.get(at, "") + fragment.get("function", {}).get("arguments", "")
    calls = [json.loads(one["function"]["arguments"]) for one in said.get("tool_calls") or ()]
    assert [json.loads(arguments[at]) for at in sorted(arguments)] == calls
    assert stream[-1]["usage"] == whole["usage"]
    assert [note for part in parts for note in part.get("annotations") or ()] == said["annotations"]


def test_thoughts_come_as_entries_with_their_signatures_byte_for_byte() -> None:
    entries = [entry for delta in deltas("thinking_tool") for entry in delta.get("reasoning_details") or ()]
    text, proof = {"type": "reasoning.text", "format": CLAUDE}, "signature"
    assert entries == [
        {**text, "text": "The user wants ", "index": 0},
        {**text, "text": "the weather.", "index": 0},
        {**text, proof: SIGNED, "index": 0},
        {"type": "reasoning.encrypted", "data": REDACTED, "format": CLAUDE, "index": 1},
        {**text, "text": "So I ask the tool.", "index": 2},
        {**text, proof: SIGNED_TOO, "index": 2},
    ]
    made = completion(UpstreamAnswer().whole(message("thinking_tool")))["choices"][0]["message"]
    assert made["reasoning_details"] == [
        {**text, "text": "The user wants the weather.", proof: SIGNED, "index": 0},
        {"type": "reasoning.encrypted", "data": REDACTED, "format": CLAUDE, "index": 1},
        {**text, "text": "So I ask the tool.", proof: SIGNED_TOO, "index": 2},
    ]
    assert made["reasoning"] == "The user wants the weather.So I ask the tool."


def test_a_thought_without_its_text_keeps_its_signature() -> None:
    entries = [entry for delta in deltas("thinking_omitted") for entry in delta.get("reasoning_details") or ()]
    assert entries == [{"type": "reasoning.text", "signature": SIGNED, "format": CLAUDE, "index": 0}]


def test_counts_are_inclusive_and_the_beginning_s_stay() -> None:
    usage = shown(chunks(recorded("cached")))[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (50_020, 10, 50_030)
    details = usage["prompt_tokens_details"]
    assert details["cached_tokens"] == 40_000
    assert (details["ephemeral_5m_input_tokens"], details["ephemeral_1h_input_tokens"]) == (4_000, 6_000)


@pytest.mark.parametrize(
    ("sent", "five_minutes", "hour"),
    [
        ({"cache_creation_input_tokens": 10_000}, 10_000, 0),
        ({"cache_creation_input_tokens": 10_000, "cache_creation": {"ephemeral_1h_input_tokens": 6_000}}, 4_000, 6_000),
        ({"cache_creation": {"ephemeral_5m_input_tokens": 7, "ephemeral_1h_input_tokens": 3}}, 7, 3),
    ],
)
def test_what_was_written_to_the_cache_is_counted_by_its_life(sent: Any, five_minutes: int, hour: int) -> None:
    made = {**message("text"), "usage": {"input_tokens": 5, "output_tokens": 10, **sent}}
    usage = completion(UpstreamAnswer().whole(made))["usage"]
    details = usage["prompt_tokens_details"]
    assert (details["ephemeral_5m_input_tokens"], details["ephemeral_1h_input_tokens"]) == (five_minutes, hour)
    assert usage["prompt_tokens"] == 5 + five_minutes + hour


def test_a_class_of_service_is_told_where_it_is_not_the_ordinary_one() -> None:
    counted = {"input_tokens": 5, "output_tokens": 10}
    for tier, told in (("priority", "priority"), ("batch", "batch"), ("standard", None), (None, None), (1, None)):
        made = {**message("text"), "usage": {**counted, "service_tier": tier}}
        assert UpstreamAnswer().whole(made).get("service_tier") == told
    stream = recorded("text").replace(b'"usage":{', b'"usage":{"service_tier":"priority",', 1)
    assert "priority" in [chunk.get("service_tier") for chunk in chunks(stream)]


def test_a_later_zero_does_not_undo_an_earlier_count() -> None:
    stream = recorded("text").replace(
        b'"usage":{"input_tokens":11,"output_tokens":9}', b'"usage":{"input_tokens":0,"output_tokens":9}'
    )
    assert shown(chunks(stream))[-1]["usage"]["prompt_tokens"] == 11


def test_thoughts_searches_and_citations_are_told() -> None:
    assert shown(chunks(recorded("thinking_tool")))[-1]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 40
    made = shown(chunks(recorded("search")))
    assert made[-1]["usage"]["prompt_tokens_details"]["web_search"] == 1
    page = {"url": "https://weather.example/oslo", "title": "Oslo today", "content": "Sun, 5 degrees."}
    assert [c["delta"].get("annotations") for chunk in made for c in chunk["choices"] if c["finish_reason"]] == [
        [{"type": "url_citation", "url_citation": page}]
    ]


def test_the_sequence_that_was_met_and_what_a_refusal_was_about_are_kept() -> None:
    assert chunks(recorded("stop_sequence"))[-1]["choices"][0]["stop_reason"] == "END"
    assert chunks(recorded("refusal"))[-1]["choices"][0]["stop_details"]["category"] == "cyber"


@pytest.mark.parametrize("case", STREAMS)
def test_however_a_stream_is_cut_it_gives_the_same_events(case: str) -> None:
    stream = recorded(case)
    whole = EventReader().feed(stream)
    for at in range(len(stream) + 1):
        reader = EventReader()
        assert [*reader.feed(stream[:at]), *reader.feed(stream[at:]), *reader.close()] == whole


def test_an_error_before_or_after_the_start_is_the_provider_s() -> None:
    for case, before in (("error_before", 1), ("error_after", 2)):
        answer, made = UpstreamAnswer(), []
        with pytest.raises(UpstreamFault) as caught:
            for event in EventReader().feed(recorded(case)):
                made += answer.event(event.name.decode(), json.loads(event.data))
        assert caught.value.kind is Fault.OVERLOADED
        assert len(made) == before
        assert meaningful(made) is (case == "error_after")  # so before it another offer may be tried


def test_pings_and_events_that_are_newer_show_nothing() -> None:
    answer = UpstreamAnswer()
    assert answer.event("ping", {"type": "ping"}) == answer.event("", {"type": "message_rewind"}) == []
    assert answer.event("content_block_delta", {"index": 0, "delta": {"type": "glow_delta", "glow": 1}}) == []


def test_a_server_that_begins_twice_begins_once() -> None:
    first = recorded("text").partition(b"event: ping")[0]
    made = shown(chunks(first + recorded("text")))
    assert sum("role" in choice["delta"] for chunk in made for choice in chunk["choices"]) == 1


def test_input_that_came_with_the_beginning_of_a_call_is_not_lost() -> None:
    """Some servers give a call whole; an empty input beside pieces is a placeholder."""
    stream = recorded("tool").replace(b'"input":{}', b'"input":{"city":"Bergen"}')
    start, _, rest = stream.partition(b'event: content_block_delta\ndata: {"type":"content_block_delta","index":1')
    end = rest[rest.index(b'event: content_block_stop\ndata: {"type":"content_block_stop","index":1}') :]
    made = [c["delta"] for chunk in shown(chunks(start + end)) for c in chunk["choices"]]
    assert given(0, '{"city":"Bergen"}') in made


def test_a_tool_of_the_client_s_beside_the_one_for_the_answer_is_a_call() -> None:
    """The answer's tool is told from others by its name, and a clash of names was avoided when it was made."""
    made = UpstreamAnswer(Reading(answer_tool="answer_in_json")).whole(message("tool"))["choices"][0]
    assert made["finish_reason"] == "tool_use"
    assert made["message"]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city":"Oslo"}'}


def test_the_input_of_a_custom_tool_is_its_text() -> None:
    events: list[tuple[str, dict[str, Any]]] = [
        (
            "content_block_start",
            {"index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "run", "input": {}}},
        ),
        ("content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"input":"ls '}}),
        ("content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": '-l\\n"}'}}),
        ("content_block_stop", {"index": 0}),
    ]
    answer = UpstreamAnswer(Reading(custom_tools=frozenset({"run"})))
    made = [
        chunk["choices"][0]["delta"]["tool_calls"][0] for name, data in events for chunk in answer.event(name, data)
    ]
    assert made == [
        {"index": 0, "id": "t", "type": "custom", "custom": {"name": "run", "input": ""}},
        {"index": 0, "custom": {"input": "ls -l\n"}},
    ]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "message_start", "message": None},
        {"type": "content_block_start", "index": None, "content_block": {"type": "text"}},
        {"type": "content_block_start", "index": 0, "content_block": "text"},
        {"type": "content_block_delta", "index": 0, "delta": []},
        {"type": "content_block_stop"},
    ],
)
def test_what_is_no_event_is_an_unreadable_answer(event: dict[str, Any]) -> None:
    with pytest.raises(UpstreamFault) as caught:
        UpstreamAnswer().event("", event)
    assert caught.value.kind is Fault.INVALID_RESPONSE


def test_a_body_that_is_an_error_or_no_message() -> None:
    error = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
    for body, kind in ((error, Fault.RATE_LIMITED), ({"content": None}, Fault.INVALID_RESPONSE)):
        with pytest.raises(UpstreamFault) as caught:
            UpstreamAnswer().whole(body)
        assert caught.value.kind is kind
