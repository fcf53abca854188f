"""What a provider of the Responses protocol answers, as chunks of the chat form."""

import json
from typing import Any

import pytest

from billing.tokens import Tokens
from gateway.protocols.openai_chat import AnswerReader as ChatReader
from gateway.protocols.openai_chat import parse
from gateway.protocols.openai_responses.thoughts import FORMAT
from gateway.protocols.openai_responses.upstream_answer import AnswerReader, fault, whole
from gateway.wire import sse, strict_json
from gateway.wire.errors import UpstreamFault
from tests.protocols.openai_responses.answers import CASES, RECORDINGS, chunks_of, recorded, recorded_whole, shown

Message = dict[str, Any]


def reader(**asked: Any) -> ChatReader:
    body = {"model": "m-1", "messages": [{"role": "user", "content": "hi"}]} | asked
    return ChatReader(parse(body, 99), id="g1", created=1700000000, model="acme/m-1")


def message_of(case: str, *, streamed: bool) -> tuple[Message, str, Tokens | None]:
    """Message, finish reason and usage, as a chat client that does not stream gets them."""
    chat = reader()
    if streamed:
        for chunk in chunks_of([recorded(case)]):
            chat.feed(sse.encode(strict_json.dumps(chunk)))
        chat.feed(sse.DONE)
    else:
        chat.feed(strict_json.dumps(whole(recorded_whole(case))))
    chat.end()
    (choice,) = json.loads(chat.final())["choices"]
    return choice["message"], choice["finish_reason"], chat.usage


def thought(kind: str, index: int, text: str, id: str) -> dict[str, Any]:
    field = "data" if kind == "encrypted" else kind
    return {"type": f"reasoning.{kind}", field: text, "format": FORMAT, "index": index, "id": id}


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


SUMMARY = "**Weighing**\n\nThe city is known."
ASKING = "**Calling**\n\nAsk for Oslo."
CITED = {"start_index": 6, "end_index": 14, "title": "Weather", "url": "https://weather.example/oslo"}
# The message's fields that say something, the finish reason, and six counts: prompt, completion, cached, written,
# reasoning, searches.
EXPECTED: dict[str, tuple[Message, str, tuple[int, ...]]] = {
    "text": ({"content": "Grüß dich, 世界! 🌍"}, "stop", (11, 9, 0, 0, 0, 0)),
    "tool_one": (
        {"tool_calls": [call("call_Oslo1", "get_weather", '{"city":"Oslo"}')]},
        "tool_calls",
        (57, 18, 0, 0, 0, 0),
    ),
    "tools_parallel": (
        {
            "content": "Looking both up.",
            "tool_calls": [
                call("call_a", "get_weather", '{"city":"Oslo"}'),
                call("call_b", "get_weather", '{"city":"Rome","unit":"C"}'),
            ],
        },
        "tool_calls",
        (60, 41, 0, 0, 0, 0),
    ),
    "tool_no_arguments": ({"tool_calls": [call("call_n", "list_buffers", "{}")]}, "tool_calls", (30, 5, 0, 0, 0, 0)),
    "tool_custom": (
        {
            "tool_calls": [
                {
                    "id": "call_c",
                    "type": "custom",
                    "custom": {
                        "name": "apply_patch",
                        "input": "*** Begin Patch\n*** Add File: a.txt\n+hi\n*** End Patch",
                    },
                }
            ]
        },
        "tool_calls",
        (200, 33, 0, 0, 0, 0),
    ),
    "reasoning_tools": (
        {
            "reasoning": f"{SUMMARY}\n\n{ASKING}",
            "reasoning_content": f"{SUMMARY}\n\n{ASKING}",
            "reasoning_details": [
                thought("summary", 0, SUMMARY, "rs_0061"),
                thought("summary", 1, ASKING, "rs_0061"),
                thought("encrypted", 2, "gAAAAABo-é+/=Zw==", "rs_0061"),
            ],
            "tool_calls": [call("call_r", "get_weather", '{"city":"Oslo"}')],
        },
        "tool_calls",
        (75, 230, 0, 0, 192, 0),
    ),
    "reasoning_text": (
        {
            "content": "42",
            "reasoning": "Six by seven.",
            "reasoning_content": "Six by seven.",
            "reasoning_details": [thought("text", 0, "Six by seven.", "rs_0071")],
        },
        "stop",
        (14, 20, 0, 0, 8, 0),
    ),
    "structured": ({"content": '{"city":"Oslo","degrees":-3}'}, "stop", (88, 12, 0, 0, 0, 0)),
    "refusal": ({"refusal": "I can't help with that."}, "stop", (20, 8, 0, 0, 0, 0)),
    "length": ({"content": "One, two, thr"}, "length", (12, 16, 0, 0, 0, 0)),
    "filtered": ({"content": "The first"}, "content_filter", (12, 4, 0, 0, 0, 0)),
    "cached": ({"content": "Yes."}, "stop", (4100, 3, 4096, 2, 0, 0)),
    "search": (
        {
            "content": "Snow. [Weather]",
            "annotations": [{"type": "url_citation", "url_citation": CITED}],
        },
        "stop",
        (900, 40, 0, 0, 0, 1),
    ),
    "image": (
        {
            "content": "Here it is.",
            "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}],
        },
        "stop",
        (50, 70, 0, 0, 0, 0),
    ),
}


@pytest.mark.parametrize("streamed", (True, False), ids=("stream", "whole"))
@pytest.mark.parametrize("case", CASES)
def test_every_recording_is_one_chat_message(case: str, streamed: bool) -> None:
    said, finish, usage = message_of(case, streamed=streamed)
    expected, why, counts = EXPECTED[case]
    assert {name: value for name, value in said.items() if value and name != "role"} == expected
    assert finish == why
    assert usage is not None
    known = (usage.prompt, usage.completion, usage.cached, usage.cache_write_5m, usage.reasoning, usage.web_searches)
    assert known == counts


def test_every_recording_is_expected() -> None:
    assert sorted(EXPECTED) == CASES


@pytest.mark.parametrize("case", [*CASES, "error_midway", "error_at_once"])
def test_where_the_bytes_are_cut_makes_no_difference(case: str) -> None:
    stream = recorded(case)
    expected = sse.EventReader().feed(stream)
    for at in range(1, len(stream)):
        reader = sse.EventReader()
        assert reader.feed(stream[:at]) + reader.feed(stream[at:]) == expected
    assert chunks_of(stream[at : at + 1] for at in range(len(stream))) == chunks_of([stream])


def test_the_first_words_are_there_with_their_event() -> None:
    head, _, _ = recorded("text").partition(b"event: response.output_text.done")
    words = [chunk["choices"][0]["delta"].get("content") for chunk in chunks_of([head])]
    assert "".join(filter(None, words)) == "Grüß dich, 世界! 🌍"


def test_calls_are_numbered_from_0_whatever_stands_before_them() -> None:
    made = shown(chunks_of([recorded("tools_parallel")]))
    calls = [call for chunk in made for c in chunk["choices"] for call in c["delta"].get("tool_calls", ())]
    assert [(call["index"], call["id"]) for call in calls if "id" in call] == [(0, "call_a"), (1, "call_b")]
    assert {call["index"] for call in calls} == {0, 1}


def test_alternating_fragments_of_two_calls_stay_apart() -> None:
    def item(at: int, **more: Any) -> dict[str, Any]:
        return {"output_index": at, "item": {"type": "function_call", "call_id": f"c{at}", "name": "f"} | more}

    reader = AnswerReader()
    made = [
        *reader.event("response.output_item.added", item(0, arguments="")),
        *reader.event("response.output_item.added", item(1, arguments="")),
        *reader.event("response.function_call_arguments.delta", {"output_index": 0, "delta": '{"a'}),
        *reader.event("response.function_call_arguments.delta", {"output_index": 1, "delta": "{"}),
        *reader.event("response.function_call_arguments.delta", {"output_index": 0, "delta": '":1}'}),
        *reader.event("response.function_call_arguments.delta", {"output_index": 1, "delta": "}"}),
    ]
    given = {0: "", 1: ""}
    for chunk in made:
        for call_ in chunk["choices"][0]["delta"]["tool_calls"]:
            given[call_["index"]] += call_["function"]["arguments"]
    assert given == {0: '{"a":1}', 1: "{}"}


def test_a_call_whose_arguments_come_at_its_end_alone_has_them() -> None:
    reader = AnswerReader()
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}
    reader.event("response.output_item.added", {"output_index": 0, "item": item})
    (chunk,) = reader.event("response.output_item.done", {"output_index": 0, "item": item | {"arguments": "{}"}})
    assert chunk["choices"][0]["delta"] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}


def test_places_of_citations_count_from_the_beginning_of_all_text() -> None:
    cited = {"type": "url_citation", "start_index": 0, "end_index": 1, "title": "T", "url": "https://x.example"}
    part = {"type": "output_text", "text": "four", "annotations": [cited]}
    output = [{"type": "message", "content": [part]}, {"type": "message", "content": [part]}]
    message = whole({"status": "completed", "output": output})["choices"][0]["message"]
    places = [annotation["url_citation"]["start_index"] for annotation in message["annotations"]]
    assert (message["content"], places) == ("fourfour", [0, 4])


def failing(case: str) -> UpstreamFault:
    chat = reader(stream=True)
    with pytest.raises(UpstreamFault) as caught:
        for chunk in chunks_of([recorded(case)]):
            chat.feed(sse.encode(strict_json.dumps(chunk)))
        raise chat.fault or AssertionError
    return caught.value


def test_a_failure_after_the_start_is_one() -> None:
    error = failing("error_midway")
    assert (error.kind.value, error.status, error.retryable) == ("server_error", 502, True)


def test_a_failure_at_once_keeps_its_meaning() -> None:
    error = failing("error_at_once")
    assert (error.kind.value, error.status, error.code) == ("rejected", 400, "context_length_exceeded")


@pytest.mark.parametrize("status", ("cancelled", "queued", "in_progress", 7))
def test_a_whole_answer_that_is_not_done_is_none(status: Any) -> None:
    assert "error" in whole(recorded_whole("text") | {"status": status})


@pytest.mark.parametrize(
    ("code", "kind"),
    (
        ("rate_limit_exceeded", "rate_limited"),
        ("server_error", "server_error"),
        ("invalid_prompt", "rejected"),
        ("image_too_large", "rejected"),
        ("server_is_overloaded", "overloaded"),
        ("insufficient_quota", "exhausted"),
    ),
)
@pytest.mark.parametrize("streamed", (True, False))
def test_a_failed_response_is_never_an_answer(code: str, kind: str, streamed: bool) -> None:
    response = {"status": "failed", "error": {"code": code, "message": "It went wrong."}, "output": []}
    told = AnswerReader().event("response.failed", {"response": response})[0] if streamed else whole(response)
    chat = reader(stream=streamed)
    with pytest.raises(UpstreamFault) as caught:
        chat.feed(sse.encode(strict_json.dumps(told)) if streamed else strict_json.dumps(told))
        chat.end()
    assert caught.value.kind.value == kind


def test_a_refusal_by_status_keeps_its_meaning_and_its_advice() -> None:
    busy = fault(429, {"Retry-After": "2"}, (RECORDINGS / "error_429.json").read_bytes())
    assert (busy.kind.value, busy.retry_after) == ("rate_limited", 2)
    wrong = fault(400, {}, (RECORDINGS / "error_400.json").read_bytes())
    assert (wrong.kind.value, wrong.code, wrong.param) == (
        *("rejected", "invalid_function_parameters"),
        "tools[0].parameters",
    )


def test_a_stream_that_breaks_off_is_not_whole() -> None:
    chat = reader(stream=True)
    head, _, _ = recorded("text").partition(b"event: response.completed")
    for chunk in chunks_of([head]):
        chat.feed(sse.encode(strict_json.dumps(chunk)))
    with pytest.raises(UpstreamFault) as caught:
        chat.end()
    assert caught.value.kind.value == "truncated"


@pytest.mark.parametrize(
    "counts", ({"input_tokens": -1, "output_tokens": 1}, {"input_tokens": 1.5, "output_tokens": 1})
)
def test_counts_that_lie_are_not_believed(counts: dict[str, Any]) -> None:
    chat = reader(stream=True)
    response = {"status": "completed", "usage": counts}
    for chunk in AnswerReader().event("response.completed", {"response": response}):
        chat.feed(sse.encode(strict_json.dumps(chunk)))
    assert (chat.usage, chat.usage_suspect) == (None, True)


def test_searches_are_those_that_are_billed_where_the_provider_says_so() -> None:
    response = recorded_whole("search") | {"tool_usage": {"web_search": {"num_requests": 3}}}
    assert whole(response)["usage"]["prompt_tokens_details"]["web_search"] == 3


@pytest.mark.parametrize(
    "event", ({}, {"type": 7}, {"type": "response.output_text.delta"}, {"type": "response.created"})
)
def test_events_that_are_not_whole_are_no_crash(event: dict[str, Any]) -> None:
    chat = reader(stream=True)
    for chunk in AnswerReader().event("", event):
        chat.feed(sse.encode(strict_json.dumps(chunk)))
    assert not chat.meaningful
