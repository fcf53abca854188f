"""What a provider of the Gemini protocol says, as chat clients see it."""

import json
from typing import Any

import pytest

from gateway.protocols.google_gemini.upstream_answer import UpstreamAnswer
from gateway.protocols.openai_chat.answer.finish_words import meaning
from gateway.protocols.openai_chat.usage.counts import BadUsage, read
from gateway.wire.errors import UpstreamFault
from tests.protocols.google_gemini.talk import ASKED, STREAMS, chunks_of, message_of, shown, stream_of, whole


@pytest.mark.parametrize("case", STREAMS)
def test_a_stream_is_the_same_however_it_is_cut(case: str) -> None:
    stream = stream_of(case)
    seen = chunks_of([stream])
    for at in range(1, len(stream)):
        assert chunks_of([stream[:at], stream[at:]]) == seen
    assert chunks_of([stream[at : at + 1] for at in range(len(stream))]) == seen


@pytest.mark.parametrize("case", ["text", "tools_parallel", "thoughts"])
def test_a_stream_and_a_body_say_the_same(case: str) -> None:
    _, streamed = shown(case)
    body = whole(case)
    assert message_of(streamed) == body["choices"][0]["message"]
    assert streamed[-1]["usage"] == body["usage"]


def test_text_is_shown_piece_by_piece() -> None:
    read, chunks = shown("text")
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert [delta.get("content") for delta in deltas] == ["Ø", "slo is\u2028 cold", ".", None]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert (read.finish_reason, read.native_finish_reason, read.upstream_id) == ("stop", "STOP", "r-0001")
    assert (chunks[-1]["usage"]["prompt_tokens"], chunks[-1]["usage"]["completion_tokens"]) == (7, 6)


def test_parallel_calls_of_one_function_stay_three() -> None:
    _, chunks = shown("tools_parallel")
    calls = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert [(call["index"], call["id"], call["function"]["arguments"]) for call in calls] == [
        (0, "call_gen-1_0", '{"city":"A"}'),
        (1, "call_gen-1_1", '{"city":"B"}'),
        (2, "call_gen-1_2", '{"city":"C"}'),
    ]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"


def test_a_signature_stands_on_its_call_and_among_the_details() -> None:
    message = message_of(shown("thoughts")[1])
    assert message["content"] == "I look it up. "
    assert message["reasoning"] == "Let me see."
    assert message["reasoning_details"] == [
        {"type": "reasoning.text", "text": "Let me see.", "format": "google-gemini-v1", "index": 0},
        {
            "type": "reasoning.encrypted",
            "data": "c2lnL+8=",
            "format": "google-gemini-v1",
            "index": 1,
            "id": "call_gen-1_0",
        },
    ]
    first, second = message["tool_calls"]
    assert first["extra_content"] == {"google": {"thought_signature": "c2lnL+8="}}
    assert "extra_content" not in second
    assert second["function"] == {"name": "now", "arguments": "{}"}


def test_an_id_of_the_providers_is_kept() -> None:
    (call,) = message_of(shown("tool_one")[1])["tool_calls"]
    assert call["id"] == "fc-1"


def test_signed_texts_tell_which_part_it_was() -> None:
    message = message_of(shown("signed_text")[1])
    assert message["content"] == "42"
    assert [(entry["data"], entry["span"]) for entry in message["reasoning_details"]] == [
        ("VGV4dA==", [1, 2]),
        ("RW5k", [2, 2]),
    ]


def test_pictures_stand_beside_the_text() -> None:
    message = message_of(shown("picture")[1])
    assert message["content"] == "Here: "
    assert message["images"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    assert message["reasoning_details"][0]["image"] == 0


def test_running_totals_are_not_added_up_and_thoughts_are_of_the_completion() -> None:
    read, chunks = shown("cached")
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (60, 412, 472)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 32
    assert usage["prompt_tokens_details"]["audio_tokens"] == 12
    assert usage["prompt_tokens_details"]["image_tokens"] == 8
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 400
    assert not read.usage_suspect


def test_counts_of_a_stream_that_broke_off_are_not_lost() -> None:
    answer = UpstreamAnswer(ASKED, call_prefix="c")
    counts = {"promptTokenCount": 50, "candidatesTokenCount": 4, "totalTokenCount": 54}
    candidate = {"content": {"parts": [{"text": "x"}]}}
    (chunk,) = answer.event("", {"candidates": [candidate], "usageMetadata": counts})
    assert "usage" not in chunk
    (rest,) = answer.rest()
    assert (rest["usage"]["prompt_tokens"], rest["usage"]["completion_tokens"]) == (50, 4)
    assert answer.rest() == []
    body = UpstreamAnswer(ASKED, call_prefix="c").whole({"candidates": [candidate], "usageMetadata": counts})
    assert body["usage"]["prompt_tokens"] == 50
    assert body["choices"][0]["message"]["content"] == "x"


@pytest.mark.parametrize(("case", "finish", "native"), [
    ("length", "length", "MAX_TOKENS"),
    ("refusal_answer", "content_filter", "RECITATION"),
    ("refusal_prompt", "content_filter", "PROHIBITED_CONTENT"),
    ("tools_none", "stop", "STOP"),
])  # fmt: skip
def test_ends(case: str, finish: str, native: str) -> None:
    read, chunks = shown(case)
    assert (read.finish_reason, read.native_finish_reason) == (finish, native)
    assert read.usage is not None and read.usage.prompt > 0
    assert chunks[-2]["choices"][0]["finish_reason"] == finish


@pytest.mark.parametrize("word", ["LANGUAGE", "ESCALATION", "SPII", "BLOCKLIST", "IMAGE_SAFETY", "MODEL_ARMOR"])
def test_filters_in_googles_words(word: str) -> None:
    chunk = UpstreamAnswer(ASKED, call_prefix="c").event(
        "", {"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": word}]}
    )[0]
    assert meaning(chunk["choices"][0]["finish_reason"]) == "content_filter"


def test_a_blocked_prompt_tells_why() -> None:
    assert message_of(shown("refusal_prompt")[1])["refusal"] == "The prompt was blocked."


@pytest.mark.parametrize("reason", ["OTHER", "JAILBREAK", "SOMETHING_NEW"])
def test_any_block_is_a_filter(reason: str) -> None:
    chunk = UpstreamAnswer(ASKED, call_prefix="c").event("", {"promptFeedback": {"blockReason": reason}})[0]
    assert chunk["choices"] == [{"index": 0, "delta": {}, "finish_reason": "content_filter"}]


@pytest.mark.parametrize(("case", "kind"), [("malformed", "server_error"), ("error_after", "overloaded")])
def test_failures_in_a_stream(case: str, kind: str) -> None:
    with pytest.raises(UpstreamFault) as caught:
        shown(case)
    assert caught.value.kind.value == kind


def test_structured_output_loses_nothing() -> None:
    assert json.loads(message_of(shown("structured")[1])["content"]) == {"a": 1}


def test_sources_are_annotations_by_characters() -> None:
    read, chunks = shown("grounded", web_search_options={})
    cited = [note["url_citation"] for note in chunks[-2]["choices"][0]["delta"]["annotations"]]
    assert cited == [
        {"url": "https://w.test/a", "title": "w.test", "start_index": 4, "end_index": 8},
        {"url": "https://w.test/b", "title": "b", "start_index": 0, "end_index": 0},
    ]
    assert read.usage is not None and read.usage.web_searches == 2


def test_candidates_are_choices() -> None:
    _, chunks = shown("two_candidates", n=2)
    said = {0: "", 1: ""}
    for chunk in chunks:
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["delta"].get("content", "")
    assert said == {0: "aA", 1: "bB"}


def test_log_probabilities() -> None:
    chosen = {"token": "Ø", "tokenId": 7, "logProbability": -0.5}
    candidate = {
        "content": {"parts": [{"text": "Ø"}]},
        "logprobsResult": {"chosenCandidates": [chosen], "topCandidates": [{"candidates": [chosen]}]},
    }
    chunk = UpstreamAnswer(ASKED, call_prefix="c").event("", {"candidates": [candidate]})[0]
    token = {"token": "Ø", "logprob": -0.5, "bytes": [195, 152]}
    assert chunk["choices"][0]["logprobs"] == {"content": [{**token, "top_logprobs": [token]}], "refusal": None}


def test_a_custom_tool_is_called_with_its_text() -> None:
    asked: Any = {**ASKED, "tools": [{"type": "custom", "custom": {"name": "sh"}}]}
    answer = UpstreamAnswer(asked, call_prefix="c")
    call = {"functionCall": {"name": "sh", "args": {"input": "ls -la"}}}
    (choice,) = answer.event("", {"candidates": [{"content": {"parts": [call]}}]})[0]["choices"]
    assert choice["delta"]["tool_calls"][0]["custom"] == {"name": "sh", "input": "ls -la"}


@pytest.mark.parametrize("data", [
    7,
    [],
    {"candidates": 7},
    {"candidates": [7]},
    {"candidates": [{"index": "x"}]},
    {"candidates": [{"content": 7}]},
    {"candidates": [{"content": {"parts": 7}}]},
    {"candidates": [{"content": {"parts": [7]}}]},
    {"candidates": [{"content": {"parts": [{"functionCall": {"args": {}}}]}}]},
    {"candidates": [{"content": {"parts": [{"thought": True, "text": 7}]}}]},
])  # fmt: skip
def test_what_is_no_answer_is_a_fault(data: Any) -> None:
    with pytest.raises(UpstreamFault) as caught:
        UpstreamAnswer(ASKED, call_prefix="c").event("", data)
    assert caught.value.kind.value == "invalid_response"


@pytest.mark.parametrize("counts", [{"promptTokenCount": -1}, {"promptTokenCount": 1.5}, {"candidatesTokenCount": "7"}])
def test_counts_that_are_none_are_not_believed(counts: Any) -> None:
    chunk = UpstreamAnswer(ASKED, call_prefix="c").event("", {"usageMetadata": {"promptTokenCount": 5} | counts})[0]
    with pytest.raises(BadUsage):
        read(chunk["usage"])
