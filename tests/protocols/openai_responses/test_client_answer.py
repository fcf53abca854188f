"""What a client of the Responses protocol is sent, held against the official SDK."""

import json
from typing import Any

import pytest
from openai import APIError
from openai.types.responses import Response

from gateway.protocols.openai_chat.answer.message import Draft
from gateway.protocols.openai_responses.thoughts import FORMAT, entries_of
from gateway.wire.errors import InvalidRequest, RateLimited, UpstreamFault
from routing.health.faults import Fault
from tests.protocols.openai_responses.answers import (
    CASES,
    chunks_of,
    deltas,
    drawn,
    events,
    recorded,
    recorded_whole,
    sdk,
    shown,
    types,
    writer,
    written,
)

CLAUDE = "anthropic-claude-v1"
SIGNED = [
    {"reasoning_details": [{"type": "reasoning.text", "text": "Let me ", "format": CLAUDE, "index": 0}]},
    {"reasoning_details": [{"type": "reasoning.text", "text": "see.", "format": CLAUDE, "index": 0}]},
    {"reasoning_details": [{"type": "reasoning.text", "signature": "Sig+/é==", "format": CLAUDE, "index": 0}]},
    {"reasoning_details": [{"type": "reasoning.encrypted", "data": "EmwK/+==", "format": CLAUDE, "index": 1}]},
]
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 30,
    "total_tokens": 130,
    "prompt_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
    "completion_tokens_details": {"reasoning_tokens": 12},
}


def call(index: int, id: str, name: str, *pieces: str, kind: str = "function") -> list[dict[str, Any]]:
    """The deltas of a call."""
    field = "arguments" if kind == "function" else "input"
    first = {"index": index, "id": id, "type": kind, kind: {"name": name, field: ""}}
    return [{"tool_calls": [first]}, *({"tool_calls": [{"index": index, kind: {field: piece}}]} for piece in pieces)]


def test_text_is_told_in_the_order_the_sdk_expects() -> None:
    stream = written(deltas({"role": "assistant", "content": ""}, {"content": "Hel"}, {"content": "lo"}, usage=USAGE))
    made = events(stream)
    assert [event["type"] for event in made] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    answer = drawn(stream)
    assert (answer.id, answer.model, answer.created_at, answer.status) == ("g1", "acme/m-1", 1700000000, "completed")
    assert answer.output_text == "Hello"
    assert answer.usage is not None
    assert answer.usage.model_dump(exclude_none=True) == {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 20},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 12},
        "total_tokens": 130,
    }


def test_the_first_words_go_out_with_their_chunk() -> None:
    out = writer()
    frames = out.chunk({"choices": [{"index": 0, "delta": {"role": "assistant", "content": "H"}}]})
    assert types(events(frames))[-1] == "output_text.delta"


def test_a_response_is_created_once() -> None:
    stream = written(deltas({"role": "assistant"}, {"role": "assistant", "content": "a"}, {"content": "b"}))
    assert [event["type"] for event in events(stream)].count("response.created") == 1


@pytest.mark.parametrize("case", CASES)
def test_a_recording_comes_back_as_it_was(case: str) -> None:
    """Through the chat form and back: every item, but for what only its provider's form has."""
    answer = drawn(written(shown(chunks_of([recorded(case)]))))
    expected = Response.model_validate(recorded_whole(case))
    assert (answer.status, answer.incomplete_details) == (expected.status, expected.incomplete_details)
    assert answer.output_text == expected.output_text
    skipped = {"id", "status", "action"}
    said = [item.model_dump(exclude=skipped, exclude_none=True) for item in answer.output]
    assert said == [
        item.model_dump(exclude=skipped | {"output_format"}, exclude_none=True)
        for item in expected.output
        if item.type != "web_search_call"
    ]
    assert answer.usage is not None and expected.usage is not None
    assert answer.usage.input_tokens == expected.usage.input_tokens
    assert answer.usage.output_tokens_details == expected.usage.output_tokens_details


@pytest.mark.parametrize("case", CASES)
def test_a_stream_and_a_body_are_one_answer(case: str) -> None:
    chunks = shown(chunks_of([recorded(case)]))
    streamed = events(written(chunks))[-1]["response"]
    usage = finish = None
    draft = Draft()
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            draft.add(choice["delta"], None)
            finish = choice["finish_reason"] or finish
    tier = next((chunk["service_tier"] for chunk in reversed(chunks) if chunk.get("service_tier")), None)
    completion = {"choices": [{"index": 0, "message": draft.message(), "finish_reason": finish}], "usage": usage}
    whole = json.loads(writer().whole(completion | {"service_tier": tier}))
    assert whole == streamed
    body = json.dumps(whole).encode()
    assert (
        sdk(body, "application/json").responses.create(model="m", input="hi").output_text
        == drawn(written(chunks)).output_text
    )


def test_parallel_calls_keep_their_place_although_their_fragments_alternate() -> None:
    a, b = call(0, "call_a", "f", '{"x":', "1}"), call(1, "call_b", "g", "{", "}")
    stream = written(deltas({"content": "Both."}, a[0], b[0], a[1], b[1], b[2], a[2], finish="tool_calls"))
    answer = drawn(stream)
    assert [(item.type, getattr(item, "call_id", ""), getattr(item, "arguments", "")) for item in answer.output] == [
        ("message", "", ""),
        ("function_call", "call_a", '{"x":1}'),
        ("function_call", "call_b", "{}"),
    ]
    given = [event for event in events(stream) if event["type"] == "response.function_call_arguments.delta"]
    assert [(event["output_index"], event["delta"]) for event in given] == [
        *((1, '{"x":'), (2, "{"), (2, "}")),
        (1, "1}"),
    ]


def test_a_call_without_arguments_is_one() -> None:
    (item,) = drawn(written(deltas(*call(0, "c", "f"), finish="tool_calls"))).output
    assert (item.type, item.arguments, item.status) == ("function_call", "", "completed")  # type: ignore[union-attr]


def test_arguments_that_are_no_json_pass() -> None:
    (item,) = drawn(written(deltas(*call(0, "c", "f", '{"a":'), finish="tool_calls"))).output
    assert item.arguments == '{"a":'  # type: ignore[union-attr]


CUSTOM = [{"type": "custom", "name": "patch"}]


def test_a_custom_tool_is_called_as_one() -> None:
    stream = written(deltas(*call(0, "c", "patch", "+a", "\n+b", kind="custom"), finish="tool_calls"), tools=CUSTOM)
    (item,) = drawn(stream).output
    assert (item.type, item.call_id, item.input) == ("custom_tool_call", "c", "+a\n+b")  # type: ignore[union-attr]
    assert types(events(stream))[3:6] == [
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
    ]


@pytest.mark.parametrize(("given", "input"), (('{"input": "+a"}', "+a"), ("+a", "+a"), ('{"b":1}', '{"b":1}')))
def test_a_provider_that_knows_functions_alone_calls_a_custom_tool(given: str, input: str) -> None:
    stream = written(deltas(*call(0, "c", "patch", given[:2], given[2:]), finish="tool_calls"), tools=CUSTOM)
    (item,) = drawn(stream).output
    assert (item.type, item.input) == ("custom_tool_call", input)  # type: ignore[union-attr]


def test_a_tool_of_a_namespace_is_called_by_both_names() -> None:
    tools = [{"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "close"}]}]
    (item,) = drawn(written(deltas(*call(0, "c", "agents__close", "{}"), finish="tool_calls"), tools=tools)).output
    assert item.type == "function_call"
    assert (item.name, item.namespace, item.arguments) == ("close", "agents", "{}")


def test_the_local_shell_is_called_as_one() -> None:
    given = '{"command":["ls","-l"],"timeout_ms":500}'
    stream = written(deltas(*call(0, "c", "local_shell", given), finish="tool_calls"), tools=[{"type": "local_shell"}])
    (item,) = drawn(stream).output
    assert item.type == "local_shell_call"
    assert item.action.model_dump(exclude_none=True) == {
        "type": "exec",
        "command": ["ls", "-l"],
        "env": {},
        "timeout_ms": 500,
    }
    plain = drawn(written(deltas(*call(0, "c", "local_shell", given), finish="tool_calls")))
    assert plain.output[0].type == "function_call"


def test_signed_thoughts_come_with_what_brings_them_back_byte_for_byte() -> None:
    stream = written(deltas(*SIGNED, {"content": "42"}))
    assert types(events(stream))[2:8] == [
        *("output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done"),
        *("content_part.done", "output_item.done"),
    ]
    thought = drawn(stream).output[0].model_dump(exclude_none=True)
    assert [part["text"] for part in thought["content"]] == ["Let me see."]
    # Coding agents send back no more of it than this.
    kept = {name: thought[name] for name in ("type", "summary", "encrypted_content")}
    assert entries_of(kept) == [
        {"type": "reasoning.text", "text": "Let me see.", "signature": "Sig+/é==", "format": CLAUDE, "index": 0},
        {"type": "reasoning.encrypted", "data": "EmwK/+==", "format": CLAUDE, "index": 1},
    ]


def test_who_asks_for_a_summary_is_told_thoughts_as_one() -> None:
    stream = written(deltas(*SIGNED, {"content": "42"}), reasoning={"summary": "auto"})
    assert types(events(stream))[2:8] == [
        *("output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"),
        *("reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"),
    ]
    thought = drawn(stream).output[0].model_dump(exclude_none=True)
    assert thought["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    assert "content" not in thought
    assert [entry["type"] for entry in entries_of(thought)] == ["reasoning.text", "reasoning.encrypted"]
    assert entries_of(thought)[0]["signature"] == "Sig+/é=="


def test_a_providers_text_that_is_told_as_a_summary_comes_back_as_text() -> None:
    entry = {"type": "reasoning.text", "text": "hm", "format": FORMAT, "id": "rs_1", "index": 0}
    for wish, packed in ((None, False), ({"summary": "auto"}, True)):
        item = (
            drawn(written(deltas({"reasoning_details": [entry]}), reasoning=wish))
            .output[0]
            .model_dump(exclude_none=True)
        )
        assert ("encrypted_content" in item) is packed
        assert entries_of(item) == [entry]


def test_thoughts_nobody_signed_come_back_too() -> None:
    thought = drawn(written(deltas({"reasoning_content": "hm"}, {"content": "1"}))).output[0].model_dump()
    assert entries_of(thought) == [{"type": "reasoning.text", "text": "hm", "index": 0}]


def test_a_providers_own_block_stays_as_it_is_with_the_id_it_is_bound_to() -> None:
    of_all = {"format": FORMAT, "id": "rs_7"}
    entries = [
        {"type": "reasoning.summary", "summary": "s1", "index": 0} | of_all,
        {"type": "reasoning.summary", "summary": "s2", "index": 1} | of_all,
        {"type": "reasoning.encrypted", "data": "gAAA+/=", "index": 2} | of_all,
    ]
    stream = written(deltas(*({"reasoning_details": [entry]} for entry in entries), {"content": "1"}))
    assert [event["type"] for event in events(stream)].count("response.reasoning_summary_part.added") == 2
    item = drawn(stream).output[0].model_dump(exclude_none=True)
    assert (item["id"], item["encrypted_content"]) == ("rs_7", "gAAA+/=")
    assert [part["text"] for part in item["summary"]] == ["s1", "s2"]


def test_thoughts_of_two_items_are_two() -> None:
    blocks = [
        {"type": "reasoning.encrypted", "data": f"d{at}", "index": at, "format": FORMAT, "id": f"rs_{at}"}
        for at in range(2)
    ]
    items = drawn(written(deltas({"reasoning_details": blocks}))).output
    assert [(item.id, item.encrypted_content) for item in items] == [  # type: ignore[union-attr]
        ("rs_0", "d0"),
        ("rs_1", "d1"),
    ]


def test_thoughts_between_words_are_items_of_their_own() -> None:
    stream = written(deltas({"reasoning": "a"}, {"content": "b"}, {"reasoning": "c"}, {"content": "d"}))
    assert [item.type for item in drawn(stream).output] == ["reasoning", "message", "reasoning", "message"]


def test_a_refusal_is_one() -> None:
    stream = written(deltas({"refusal": "I "}, {"refusal": "won't."}))
    assert types(events(stream))[4:6] == ["refusal.delta", "refusal.done"]
    (item,) = drawn(stream).output
    assert item.model_dump()["content"][0]["refusal"] == "I won't."


def test_citations_that_come_last_are_told_of_the_words_they_belong_to() -> None:
    cited = {"type": "url_citation", "url_citation": {"url": "https://x.example", "title": "T", "start_index": 0}}
    cited["url_citation"] |= {"end_index": 4}  # type: ignore[operator]
    chunks = deltas({"content": "Snow"}, *call(0, "c", "f", "{}"), {"annotations": [cited]}, finish="tool_calls")
    stream = written(chunks)
    (told,) = (event for event in events(stream) if event["type"] == "response.output_text.annotation.added")
    assert (told["output_index"], told["content_index"], told["annotation_index"]) == (0, 0, 0)
    message = drawn(stream).output[0].model_dump(exclude_none=True)
    assert message["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "https://x.example", "title": "T", "start_index": 0, "end_index": 4}
    ]


def test_pictures_are_shown() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    first, second = drawn(written(deltas({"images": [picture]}, {"content": "There."}))).output
    assert (first.type, getattr(first, "result", "")) == ("image_generation_call", "iVBORw0KGgo=")
    assert second.type == "message"


def test_log_probabilities_stand_beside_their_words() -> None:
    sent = {"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": [{"token": "b", "logprob": -1.5}]}
    token = sent | {"bytes": [], "top_logprobs": [sent["top_logprobs"][0] | {"bytes": []}]}  # type: ignore[index]
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [sent]}}
    stream = written([{"choices": [choice]}, *deltas()])
    (told,) = (event for event in events(stream) if event["type"] == "response.output_text.delta")
    assert told["logprobs"] == [token]
    assert drawn(stream).output[0].model_dump()["content"][0]["logprobs"] == [token]


@pytest.mark.parametrize(
    ("finish", "status", "reason"),
    (
        ("stop", "completed", None),
        ("tool_calls", "completed", None),
        ("length", "incomplete", "max_output_tokens"),
        ("content_filter", "incomplete", "content_filter"),
    ),
)
def test_why_it_ended(finish: str, status: str, reason: str | None) -> None:
    last = events(written(deltas({"content": "x"}, finish=finish)))[-1]
    assert (last["type"], last["response"]["status"]) == (f"response.{status}", status)
    assert (last["response"]["incomplete_details"] or {}).get("reason") == reason
    assert last["response"]["output"][0]["status"] == status


def test_an_empty_answer_is_one() -> None:
    assert drawn(written(deltas({"role": "assistant", "content": ""}))).output == []


def test_what_was_asked_is_repeated() -> None:
    asked = {"tools": CUSTOM, "temperature": 0, "text": {"verbosity": "low"}, "metadata": {"a": "b"}, "store": True}
    response = events(written(deltas({"content": "x"}), **asked))[-1]["response"]
    expected = {"tools": CUSTOM, "temperature": 0, "metadata": {"a": "b"}, "top_p": 1.0, "tool_choice": "auto"}
    expected |= {"store": False, "text": {"format": {"type": "text"}, "verbosity": "low"}}
    assert {name: response[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("error", "code"),
    (
        (UpstreamFault(Fault.TRUNCATED, "broke off"), "server_error"),
        (UpstreamFault(Fault.OVERLOADED), "server_is_overloaded"),
        (RateLimited("No room.", retry_after=2), "rate_limit_exceeded"),
        (InvalidRequest("Too long.", code="context_length_exceeded", param="input"), "context_length_exceeded"),
    ),
)
def test_a_failure_midway_is_one_to_every_client(error: Any, code: str) -> None:
    out = writer()
    stream = b"".join(map(out.chunk, deltas({"content": "Half"})[:-1])) + out.error_event(error)
    first, last = events(stream)[-2:]
    assert (first["type"], first["code"], first["message"]) == ("error", code, error.message)
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": code, "message": error.message}
    assert last["response"]["output"][0]["status"] == "incomplete"
    with pytest.raises(APIError):  # the official SDK raises
        list(sdk(stream).responses.create(model="m", input="hi", stream=True))


def test_a_failure_before_any_word_is_a_stream_that_failed() -> None:
    made = events(writer().error_event(UpstreamFault(Fault.TIMEOUT)))
    assert types(made) == ["created", "in_progress", "error", "failed"]
