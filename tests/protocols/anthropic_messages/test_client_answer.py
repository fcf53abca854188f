"""How a client of the Messages protocol is answered, whoever answered: events that its official SDK puts together."""

import json
from typing import Any

import pytest

from gateway.protocols.anthropic_messages import client_answer, faults
from gateway.protocols.anthropic_messages.client_answer import PING, ClientAnswer
from gateway.protocols.anthropic_messages.upstream_answer import UpstreamAnswer
from gateway.protocols.anthropic_messages.upstream_request import Reading
from gateway.wire.dialects import EZROUTER
from gateway.wire.errors import InsufficientCredit, InvalidRequest, RateLimited, Unauthenticated, UpstreamFault
from routing.health.faults import Fault
from tests.protocols.anthropic_messages.messages import (
    READINGS,
    WHOLE,
    chunks,
    completion,
    events,
    message,
    recorded,
    shown,
    told,
)

Blocks = list[dict[str, Any]]


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def read(stream: bytes) -> dict[str, Any]:
    """What a client puts together, strictly: each event where it may be, blocks one after the other."""
    found = events(stream)
    names = [name for name, _ in found]
    assert names[0] == "message_start" and names.count("message_start") == 1
    assert names[-2:] == ["message_delta", "message_stop"]
    assert all(name == data["type"] for name, data in found)
    made: dict[str, Any] = found[0][1]["message"]
    blocks: Blocks = made["content"]
    open_ = False
    for name, data in found[1:-2]:
        if name == "content_block_start":
            assert not open_ and data["index"] == len(blocks)
            blocks.append(data["content_block"])
            open_ = True
        else:
            assert open_ and data["index"] == len(blocks) - 1
            open_ = name != "content_block_stop"
            if open_:
                _continue(blocks[-1], data["delta"])
    assert not open_
    for block in blocks:
        if type(block.get("input")) is str:
            block["input"] = json.loads(block["input"])
    made |= found[-2][1]["delta"]
    return made | {"usage": found[-2][1]["usage"]}


def _continue(block: dict[str, Any], delta: dict[str, Any]) -> None:
    kind = delta["type"]
    if kind == "citations_delta":
        block.setdefault("citations", []).append(delta["citation"])
    elif kind == "input_json_delta":
        block["input"] = (block["input"] or "") + delta["partial_json"]
    else:
        field = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}[kind]
        block[field] += delta[field]


def as_shown(case: str) -> dict[str, Any]:
    """A recorded message, as a client is shown it that did not ask a provider of this protocol itself."""
    made = {**message(case), "id": "gen-1", "model": "acme/m-1"}
    if case == "answer_tool":
        return made | {"content": [{"type": "text", "text": '{"city":"Oslo"}'}], "stop_reason": "end_turn"}
    if case == "search":
        made["content"] = [made["content"][2]]
        made["content"][0]["citations"][0]["encrypted_index"] = ""
    return made


@pytest.mark.row("B346", "B347", "B348")
@pytest.mark.parametrize("case", WHOLE)
def test_what_a_provider_of_this_protocol_said_comes_back_as_it_was(case: str) -> None:
    """Through the chat form and back, streamed and whole: blocks, signatures, the end, the counts."""
    expected = as_shown(case)
    counts = expected.pop("usage")
    streamed = read(told(shown(chunks(recorded(case), READINGS.get(case)))))
    answer = UpstreamAnswer(READINGS.get(case, Reading())).whole(message(case))
    whole = json.loads(client_answer.whole(completion(answer)))
    for made in (streamed, whole):
        usage = made.pop("usage")
        assert made == expected
        assert {name: usage[name] for name in counts if name != "server_tool_use"} == {
            name: value for name, value in counts.items() if name != "server_tool_use"
        }
        assert usage.get("server_tool_use", {}).get("web_search_requests") == (1 if case == "search" else None)


def test_the_first_words_are_sent_as_soon_as_they_are_there() -> None:
    made = ClientAnswer().chunk(chunk({"role": "assistant", "content": "Hel"}))
    assert [name for name, _ in events(made)] == ["message_start", "content_block_start", "content_block_delta"]


@pytest.mark.row("B349")
def test_thoughts_that_nobody_signed_are_a_block_with_an_empty_signature() -> None:
    """As many servers of open models send them: `reasoning_content`, then `content`."""
    sent = [
        chunk({"role": "assistant"}),
        *(chunk({"reasoning_content": piece}) for piece in ("let me ", "see")),
        chunk({"content": "42"}),
        chunk({}, "stop"),
    ]
    made = read(told(shown(sent)))
    blocks = [{"type": "thinking", "thinking": "let me see", "signature": ""}, {"type": "text", "text": "42"}]
    assert made["content"] == blocks
    said = {"role": "assistant", "content": "42", "reasoning_content": "let me see"}
    whole = {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}
    assert json.loads(client_answer.whole(completion(whole)))["content"] == blocks


def call(index: int, arguments: str, **first: str) -> dict[str, Any]:
    inner = {"name": first["name"], "arguments": arguments} if first else {"arguments": arguments}
    begun = {"id": first["id"], "type": "function"} if first else {}
    return {"index": index, **begun, "function": inner}


def test_two_calls_in_one_chunk_are_two_blocks() -> None:
    calls = [call(0, "{}", id="c1", name="f"), call(1, "{}", id="c2", name="g")]
    made = read(told([chunk({"role": "assistant", "tool_calls": calls}), chunk({}, "tool_calls")]))
    assert made["content"] == [
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ]
    assert made["stop_reason"] == "tool_use"


def test_calls_whose_pieces_are_mixed_are_told_one_after_the_other() -> None:
    """Braces and quotes inside strings, cut anywhere, end nothing."""
    pieces = ['{"a":"}{\\', '"x', '"}']
    sent: list[dict[str, Any]] = [
        {"tool_calls": [call(0, "", id="c0", name="f"), call(1, "", id="c1", name="g"), call(2, "", id="c2", name="h")]}
    ]
    for piece in pieces:
        sent += [{"tool_calls": [call(1, piece)]}, {"tool_calls": [call(0, piece)]}]
    sent.append({"content": "Done."})
    made = read(told([*map(chunk, sent), chunk({}, "tool_calls")]))
    given = {"a": '}{"x'}
    assert [(block["id"], block["input"]) for block in made["content"][:3]] == [
        ("c0", given),
        ("c1", given),
        ("c2", {}),
    ]
    assert made["content"][3] == {"type": "text", "text": "Done."}


def test_a_call_is_relayed_while_it_comes_and_waits_for_no_other() -> None:
    writer = ClientAnswer()
    writer.chunk(chunk({"tool_calls": [call(0, '{"a":', id="c0", name="f")]}))
    assert b"partial_json" in writer.chunk(chunk({"tool_calls": [call(0, "1}")]}))
    made = writer.chunk(chunk({"tool_calls": [call(1, '{"b":', id="c1", name="g")]}))
    assert [name for name, _ in events(made)] == ["content_block_stop", "content_block_start", "content_block_delta"]


def test_arguments_that_are_no_json_are_told_as_they_are() -> None:
    said = {"role": "assistant", "content": None, "tool_calls": [call(0, '{"city": Oslo', id="c", name="f")]}
    made = json.loads(client_answer.whole({"choices": [{"index": 0, "message": said, "finish_reason": "tool_calls"}]}))
    assert made["content"][0]["input"] == {"_raw": '{"city": Oslo'}


def test_names_that_were_made_fit_are_the_client_s_again() -> None:
    made = read(
        told([chunk({"tool_calls": [call(0, "{}", id="c", name="short")]}), chunk({}, "tool_calls")], {"short": "long"})
    )
    assert made["content"][0]["name"] == "long"


def test_a_refusal_is_text_and_its_end_says_so() -> None:
    made = read(told(shown([chunk({"role": "assistant"}), chunk({"refusal": "I can not."}), chunk({}, "stop")])))
    assert made["content"] == [{"type": "text", "text": "I can not."}]
    assert (made["stop_reason"], made["stop_sequence"]) == ("refusal", None)


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("content_filter", "refusal"),
        ("function_call", "tool_use"),
    ],
)
def test_ends_in_this_protocol_s_words(finish: str, reason: str) -> None:
    made = read(told([chunk({"content": "a"}), chunk({}, finish)]))
    assert (made["stop_reason"], made["stop_sequence"]) == (reason, None)


def test_a_picture_in_an_answer_is_told_by_its_address() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    made = read(told([chunk({"images": [image]}), chunk({}, "stop")]))
    assert made["content"] == [{"type": "text", "text": "![image](https://pictures.example/1.png)"}]


def test_what_another_provider_hid_is_sealed_into_a_block_and_the_end_of_it() -> None:
    """An encrypted item and a summary, as OpenAI's Responses have them."""
    summary = {"type": "reasoning.summary", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    hidden = {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 0}
    sent = [
        chunk({"reasoning": "Think", "reasoning_details": [{**summary, "summary": "Think"}]}),
        chunk({"reasoning": "ing.", "reasoning_details": [{**summary, "summary": "ing."}]}),
        chunk({"reasoning_details": [hidden]}),
        chunk({"content": "ok"}),
        chunk({}, "stop"),
    ]
    blocks = read(told(shown(sent)))["content"]
    assert [block["type"] for block in blocks] == ["thinking", "redacted_thinking", "text"]
    assert blocks[0]["thinking"] == "Thinking."
    assert blocks[0]["signature"].startswith("sealed:") and blocks[1]["data"].startswith("sealed:")


def test_a_ping_is_these_bytes() -> None:
    assert PING == b'event: ping\ndata: {"type": "ping"}\n\n'


@pytest.mark.row("B296")
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequest("Wrong.", param="max_tokens"), 400, "invalid_request_error"),
        (Unauthenticated("Who?"), 401, "authentication_error"),
        (InsufficientCredit("No room."), 402, "billing_error"),
        (RateLimited("Slower.", retry_after=3), 429, "rate_limit_error"),
        (UpstreamFault(Fault.OVERLOADED), 529, "overloaded_error"),
        (UpstreamFault(Fault.TIMEOUT), 504, "timeout_error"),
        (UpstreamFault(Fault.SERVER_ERROR), 502, "api_error"),
        (UpstreamFault(Fault.REJECTED, upstream_status=413), 413, "request_too_large"),
        (UpstreamFault(Fault.REJECTED, upstream_status=422), 422, "invalid_request_error"),
    ],
)
def test_errors_in_this_protocol_s_shape(error: Any, status: int, kind: str) -> None:
    assert faults.status_of(error) == status
    made = faults.envelope(error, request_id="req-1")
    assert made["type"] == "error" and made["request_id"] == "req-1"
    assert (made["error"]["type"], made["error"]["message"]) == (kind, error.message)
    assert made["error"].get("param") == error.param
    ((name, data),) = events(faults.error_event(error, request_id="req-1"))
    assert (name, data) == ("error", made)


def test_a_dialect_s_wording_is_kept() -> None:
    made = faults.envelope(InvalidRequest("Wrong."), EZROUTER, "req-1")
    assert made["error"]["message"] == "Wrong. (request id: req-1)"


def test_the_official_sdk_puts_every_stream_together() -> None:
    streaming = pytest.importorskip("anthropic.lib.streaming._messages")
    types = pytest.importorskip("anthropic.types")
    for case in WHOLE:
        snapshot: Any = None
        buffers: dict[int, bytes] = {}
        for name, data in events(told(shown(chunks(recorded(case), READINGS.get(case))))):
            made = getattr(types, "Raw" + "".join(map(str.title, name.split("_"))) + "Event").model_validate(data)
            snapshot = streaming.accumulate_event(event=made, current_snapshot=snapshot, json_bufs=buffers)
        types.Message.model_validate(snapshot.to_dict())
        expected = as_shown(case)
        assert snapshot.stop_reason == expected["stop_reason"] and snapshot.stop_sequence == expected["stop_sequence"]
        kept = [block.to_dict(exclude_none=True) for block in snapshot.content]
        assert kept == expected["content"]
        assert snapshot.usage.output_tokens == message(case)["usage"]["output_tokens"]
