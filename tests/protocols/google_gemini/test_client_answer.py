"""Answers as a client of the Gemini protocol is sent them."""

import json
import re
from typing import Any

import pytest

from gateway.protocols.google_gemini.client_answer import ClientAnswer
from gateway.protocols.google_gemini.client_request import chat_form
from gateway.protocols.google_gemini.signatures import unpack
from gateway.wire import sse
from gateway.wire.errors import InvalidRequest, UpstreamFault
from routing.health.faults import Fault
from tests.protocols.google_gemini.talk import STREAMS, body_of, form, opened, parts_of, shown, stream_of, written

CLAUDE = "anthropic-claude-v1"


def chunk(delta: Any, finish: Any = None, **choice: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish} | choice]}


def usage(**counts: Any) -> dict[str, Any]:
    return {"id": "x", "choices": [], "usage": counts}


def events(*chunks: Any, **fields: Any) -> Any:
    return opened(written(list(chunks), form(**fields)))


def end(*chunks: Any, **fields: Any) -> Any:
    return events(*chunks, **fields)[-1]["candidates"][0]


def test_text_goes_out_at_once_and_the_end_comes_once() -> None:
    answer = ClientAnswer(form(), id="gen-1", model="acme/m-1")
    first = answer.chunk(chunk({"role": "assistant", "content": "Hel"}))
    assert opened(first) == [
        {
            "candidates": [{"content": {"parts": [{"text": "Hel"}], "role": "model"}, "index": 0}],
            "modelVersion": "acme/m-1",
            "responseId": "gen-1",
        }
    ]
    assert answer.chunk(chunk({"role": "assistant", "content": ""})) == b""
    last = answer.final([chunk({}, "stop"), usage(prompt_tokens=3, completion_tokens=2)])
    assert opened(last) == [
        {
            "candidates": [
                {"content": {"parts": [{"text": ""}], "role": "model"}, "index": 0, "finishReason": "STOP"},
            ],
            "usageMetadata": {
                "promptTokenCount": 3,
                "candidatesTokenCount": 2,
                "totalTokenCount": 5,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 3}],
                "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 2}],
            },
            "modelVersion": "acme/m-1",
            "responseId": "gen-1",
        }
    ]
    assert b"[DONE]" not in first + last


def test_without_events_it_is_one_array() -> None:
    chunks = [chunk({"content": "a"}), chunk({"content": "b"}), chunk({}, "stop")]
    body = json.loads(written(chunks, events=False))
    assert [part["text"] for part in parts_of(body)] == ["a", "b", ""]
    assert json.loads(written([], events=False))[0]["candidates"] == []
    answer = ClientAnswer(form(), id="g", model="m", events=False)
    told = answer.chunk(chunk({"content": "a"})) + answer.error_event(UpstreamFault(Fault.TRUNCATED))
    assert [next(iter(one)) for one in json.loads(told)] == ["candidates", "error"]
    assert json.loads(ClientAnswer(form(), id="g", model="m", events=False).error_event(UpstreamFault(Fault.TIMEOUT)))


def test_nothing_that_an_sdk_takes_for_json_keeps_a_connection_alive() -> None:
    assert ClientAnswer(form(), id="g", model="m").keep_alive.strip() == b""
    assert ClientAnswer(form(), id="g", model="m", events=False).keep_alive.strip() == b""


# How the SDK in the Gemini CLI finds an event, as JavaScript reads it: a dot is no line end of Unicode's either.
JAVASCRIPT = re.compile(r"^\s*data: ([^\n\r\u2028\u2029]*)(?:\n\n|\r\r|\r\n\r\n)")


def test_the_sdk_of_the_cli_finds_every_event_and_fails_at_an_error() -> None:
    answer = ClientAnswer(form(), id="g", model="m")
    frames = (
        answer.chunk(chunk({"content": "a\u2028b\u2029\n\r c"}))
        + answer.keep_alive
        + answer.chunk(chunk({"content": "d"}))
    )
    rest, found = (frames + answer.error_event(UpstreamFault(Fault.TRUNCATED))).decode(), []
    while match := JAVASCRIPT.match(rest):
        found.append(json.loads(match[1]))
        rest = rest[match.end() :]
    assert [part["text"] for part in parts_of(found[:2])] == ["a\u2028b\u2029\n\r c", "d"]
    assert found[2] == json.loads(rest)  # It has no eyes for the first and throws for what is left, or for that alone.


def call(index: int, id: str, name: str, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def more(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


def test_calls_go_out_whole_and_in_order() -> None:
    made = events(
        chunk({"role": "assistant", "content": "I look. "}),
        chunk({"tool_calls": [call(0, "a", "get_w", '{"ci')]}),
        chunk({"tool_calls": [more(0, 'ty":"Oslo"}')]}),
        chunk({"tool_calls": [call(1, "b", "now")]}),
        chunk({"tool_calls": [call(2, "c", "get_w", "{}")]}),
        chunk({}, "tool_calls"),
    )
    assert parts_of(made) == [
        {"text": "I look. "},
        {"functionCall": {"id": "a", "name": "get_w", "args": {"city": "Oslo"}}},
        {"functionCall": {"id": "b", "name": "now", "args": {}}},
        {"functionCall": {"id": "c", "name": "get_w", "args": {}}},
    ]
    assert made[-1]["candidates"][0]["finishReason"] == "STOP"


def test_interleaved_pieces_of_calls_stay_apart() -> None:
    made = events(
        chunk({"tool_calls": [call(0, "a", "get_w", '{"city":'), call(1, "b", "now", "{")]}),
        chunk({"tool_calls": [more(0, '"A"}'), more(1, "}")]}),
        chunk({}, "tool_calls"),
    )
    calls = {
        part["functionCall"]["id"]: part["functionCall"]["args"] for part in parts_of(made) if "functionCall" in part
    }
    assert calls == {"a": {"city": "A"}, "b": {}}


@pytest.mark.parametrize("arguments", ['{"city":', "[1]", "nonsense", '{"a":NaN}', '"x"'])
def test_arguments_that_are_no_object_are_googles_malformed_call(arguments: str) -> None:
    last = end(chunk({"tool_calls": [call(0, "a", "get_w", arguments)]}), chunk({}, "tool_calls"))
    assert last["finishReason"] == "MALFORMED_FUNCTION_CALL"
    assert "get_w" in last["finishMessage"]
    assert last["content"]["parts"] == [{"text": ""}]


def test_names_come_back_as_the_client_has_them() -> None:
    asked = form(tools=[{"functionDeclarations": [{"name": "srv.get"}]}])
    name = asked.body["tools"][0]["function"]["name"]
    made = opened(written([chunk({"tool_calls": [call(0, "a", name, "{}")]}), chunk({}, "tool_calls")], asked))
    assert parts_of(made)[0]["functionCall"]["name"] == "srv.get"


def test_what_others_thought_goes_with_the_first_call() -> None:
    details = [
        {"type": "reasoning.text", "text": "Hm", "format": CLAUDE, "index": 0},
        {"type": "reasoning.text", "text": "m.", "format": CLAUDE, "index": 0},
        {"type": "reasoning.text", "signature": "U0k=", "format": CLAUDE, "index": 0},
        {"type": "reasoning.encrypted", "data": "x", "format": CLAUDE, "index": 1},
    ]
    chunks = [chunk({"reasoning": one.get("text"), "reasoning_details": [one]}) for one in details]
    made = events(
        *chunks, chunk({"tool_calls": [call(0, "a", "now", "{}"), call(1, "b", "now", "{}")]}), chunk({}, "tool_calls")
    )
    shown_parts = parts_of(made)
    assert shown_parts[:2] == [{"text": "Hm", "thought": True}, {"text": "m.", "thought": True}]
    first, second = shown_parts[2:]
    assert unpack(first["thoughtSignature"]) == [
        {"type": "reasoning.text", "text": "Hmm.", "format": CLAUDE, "index": 0, "signature": "U0k="},
        details[3],
    ]
    assert "thoughtSignature" not in second


@pytest.mark.parametrize(("detail", "goes"), [
    ({"type": "reasoning.text", "text": "Hm", "signature": "U0k=", "format": CLAUDE}, True),
    ({"type": "reasoning.text", "text": "Hm"}, False),
])  # fmt: skip
def test_behind_a_text_only_what_is_signed_goes(detail: Any, goes: bool) -> None:
    made = events(chunk({"reasoning_details": [detail]}), chunk({"content": "42"}), chunk({}, "stop"))
    last = parts_of(made)[-1]
    assert (unpack(last["thoughtSignature"]) == [detail]) if goes else ("thoughtSignature" not in last)


def test_thoughts_are_shown_to_those_alone_who_asked() -> None:
    thought = chunk({"reasoning": "Hm", "reasoning_content": "Hm"})
    assert parts_of(events(thought, chunk({"content": "x"}), chunk({}, "stop"), generationConfig={})) == [
        {"text": "x"}, {"text": ""},
    ]  # fmt: skip
    assert parts_of(events(thought, chunk({}, "stop")))[0] == {"text": "Hm", "thought": True}


@pytest.mark.parametrize("case", ["tool_one", "tools_parallel", "thoughts", "signed_text", "picture"])
def test_googles_own_signatures_stay_on_their_parts(case: str) -> None:
    """Through the chat form and back, as when the provider speaks this protocol too."""
    _, chunks = shown(case)
    sent = [part for part in parts_of(opened(written(chunks))) if part != {"text": ""}]
    recorded = [part for part in parts_of(opened(stream_of(case))) if part != {"text": ""}]
    for part in sent + recorded:
        part.get("functionCall", {}).pop("id", None)
    assert sent == recorded


@pytest.mark.parametrize(("finish", "native", "told"), [
    ("stop", "end_turn", "STOP"),
    ("length", "max_tokens", "MAX_TOKENS"),
    ("tool_calls", None, "STOP"),
    ("content_filter", "refusal", "SAFETY"),
    ("content_filter", "RECITATION", "RECITATION"),
    ("content_filter", "PROHIBITED_CONTENT", "PROHIBITED_CONTENT"),
    ("something", None, "OTHER"),
])  # fmt: skip
def test_ends(finish: str, native: str | None, told: str) -> None:
    more_said = {} if native is None else {"native_finish_reason": native}
    assert end(chunk({"content": "x"}), chunk({}, finish, **more_said))["finishReason"] == told


def test_parts_that_only_google_has_stay_what_they_are() -> None:
    code = {"executableCode": {"language": "PYTHON", "code": "1"}}
    made = parts_of(events(chunk({"content_parts": [code, {"type": "strange"}]}), chunk({}, "stop")))
    assert made == [code, {"text": ""}]


def test_a_refusal_is_what_was_said() -> None:
    told = events(chunk({"refusal": "No."}), chunk({}, "stop"))
    assert parts_of(told)[0] == {"text": "No."}
    assert told[-1]["candidates"][0]["finishReason"] == "SAFETY"


def test_counts_leave_thoughts_out_of_the_candidates() -> None:
    counts = {
        "prompt_tokens": 60,
        "completion_tokens": 412,
        "prompt_tokens_details": {"cached_tokens": 32, "audio_tokens": 12, "image_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 400},
    }
    made = events(chunk({"content": "x"}), chunk({}, "stop"), usage(**counts))[-1]["usageMetadata"]
    assert made == {
        "promptTokenCount": 60,
        "candidatesTokenCount": 12,
        "thoughtsTokenCount": 400,
        "totalTokenCount": 472,
        "cachedContentTokenCount": 32,
        "promptTokensDetails": [
            {"modality": "TEXT", "tokenCount": 40},
            {"modality": "AUDIO", "tokenCount": 12},
            {"modality": "IMAGE", "tokenCount": 8},
        ],
        "candidatesTokensDetails": [{"modality": "TEXT", "tokenCount": 12}],
    }


def test_sources_are_told_by_bytes() -> None:
    cited = {"url": "https://w.test/a", "title": "w", "start_index": 4, "end_index": 8}
    last = end(
        chunk({"content": "Ær: 7 °C"}),
        chunk({"annotations": [{"type": "url_citation", "url_citation": cited}]}, "stop"),
        tools=[{"googleSearch": {}}],
    )
    assert last["groundingMetadata"] == {
        "groundingChunks": [{"web": {"uri": "https://w.test/a", "title": "w"}}],
        "groundingSupports": [
            {"segment": {"startIndex": 5, "endIndex": 10, "text": "7 °C"}, "groundingChunkIndices": [0]}
        ],
    }


def test_log_probabilities() -> None:
    token = {"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": [{"token": "x", "logprob": -0.5}]}
    last = end(chunk({"content": "x"}, logprobs={"content": [token]}), chunk({}, "stop"))
    chosen = {"token": "x", "logProbability": -0.5}
    assert last["logprobsResult"] == {"chosenCandidates": [chosen], "topCandidates": [{"candidates": [chosen]}]}


def test_a_body_says_what_a_stream_says() -> None:
    message = {
        "role": "assistant",
        "content": "I look.",
        "reasoning": "Hm.",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "Hm.", "signature": "U0k=", "format": CLAUDE, "index": 0}
        ],
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "get_w", "arguments": '{"city":"Oslo"}'}},
            {"id": "b", "type": "function", "function": {"name": "now", "arguments": ""}},
        ],
    }
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    completion = {"choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    made = json.loads(ClientAnswer(form(), id="gen-1", model="acme/m-1").whole(completion))
    (candidate,) = made["candidates"]
    thought, said, first, second = candidate["content"]["parts"]
    assert (thought, said) == ({"text": "Hm.", "thought": True}, {"text": "I look."})
    assert first["functionCall"] == {"id": "a", "name": "get_w", "args": {"city": "Oslo"}}
    assert unpack(first["thoughtSignature"]) == message["reasoning_details"]
    assert second == {"functionCall": {"id": "b", "name": "now", "args": {}}}
    assert (candidate["finishReason"], made["usageMetadata"]["totalTokenCount"]) == ("STOP", 5)
    assert (made["responseId"], made["modelVersion"]) == ("gen-1", "acme/m-1")


def test_an_error_in_a_stream_names_the_clients_own_path() -> None:
    contents = [{"parts": [{"text": "a"}]}, {"role": "model", "parts": [{"text": "b"}]}, {"parts": [{"text": "c"}]}]
    asked = chat_form({"contents": contents}, model="m-1", stream=True)
    error = InvalidRequest("m", param="messages[2].content[0].text")
    (event,) = sse.EventReader().feed(ClientAnswer(asked, id="g", model="m").error_event(error, request_id="r"))
    told = json.loads(event.data)["error"]
    assert (event.name, told["code"], told["status"]) == (b"", 400, "INVALID_ARGUMENT")
    assert told["details"][1]["fieldViolations"][0]["field"] == "contents[2].parts[0]"


@pytest.mark.parametrize("case", STREAMS)
def test_a_providers_own_events_pass_with_every_field(case: str) -> None:
    recorded = opened(stream_of(case))
    answer = ClientAnswer(form(), id="gen-1", model="acme/m-1")
    early = [answer.native(event) for event in recorded if "error" not in event]
    sent = opened(b"".join(early) + answer.final())
    ours = {"responseId": "gen-1", "modelVersion": "acme/m-1"}
    kept = [event | ours for event in recorded if "error" not in event]
    assert sent[: len(kept)] == kept
    ends = [at for at, event in enumerate(kept) if "finishReason" in json.dumps(event) or "promptFeedback" in event]
    assert [bool(frame) for frame in early] == [at < min(ends, default=len(kept)) for at in range(len(kept))]


def test_a_providers_own_body_passes() -> None:
    body = json.loads(body_of("thoughts"))
    made = json.loads(ClientAnswer(form(), id="gen-1", model="acme/m-1").native_whole(body))
    assert made == body | {"responseId": "gen-1", "modelVersion": "acme/m-1"}
