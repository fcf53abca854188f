"""Why an answer ended, in vendors' words: filters, failures, and words that nobody knows."""

from typing import Any

import pytest

from tests.protocols.openai_chat.answers import DONE, chunk, relay, relay_at_every_cut, usage, whole

OK = chunk({"role": "assistant", "content": "ok"})
FILTERS = (
    "ERROR_TOXIC",
    "guardrail_intervened",
    "content_filtered",
    "IMAGE_SAFETY",
    "PROHIBITED_CONTENT",
    "MODEL_ARMOR",
)


@pytest.mark.parametrize("word", FILTERS)
def test_a_filter_is_one_in_any_spelling(word: str) -> None:
    camel = "".join(part.capitalize() for part in word.lower().split("_"))
    for said in (word, word.lower(), word.upper(), camel, word.replace("_", "-"), f"FINISH_REASON_{word.upper()}"):
        for upstream in (OK + chunk({}, said) + DONE, whole({"content": "ok"}, said), chunk({}, said) + DONE):
            seen = relay_at_every_cut(upstream)
            assert seen.fault is None
            assert seen.deltas[-1] == ({}, "content_filter")
            assert seen.chunks[-1]["choices"][0]["native_finish_reason"] == said
            assert (seen.known["finish_reason"], seen.known["native_finish_reason"]) == ("content_filter", said)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        *(("maxTokens", "length"), ("MAX_OUTPUT_TOKENS", "length"), ("FinishReason.MAX_TOKENS", "length")),
        *(("toolUse", "tool_calls"), ("tool-calls", "tool_calls"), ("COMPLETE", "stop"), ("endTurn", "stop")),
    ],
)
def test_other_spellings_mean_the_same(word: str, meant: str) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    delta = {"tool_calls": [call]} if meant == "tool_calls" else {"content": "ok"}
    assert relay_at_every_cut(chunk(delta, word) + DONE).deltas[-1] == ({}, meant)


@pytest.mark.parametrize(
    ("word", "fault"),
    [
        *(("TIMEOUT", "timeout"), ("timed_out", "timeout"), ("ERROR", "server_error"), ("aborted", "server_error")),
        *(("MALFORMED_FUNCTION_CALL", "server_error"), ("USER_CANCEL", "server_error"), ("overloaded", "overloaded")),
        ("rate-limit", "rate_limited"),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_is_one_before_and_after_text(word: str, fault: str, stream: bool) -> None:
    for upstream in (chunk({}, word) + DONE, whole({"content": ""}, word), whole({"content": "ok"}, word)):
        seen = relay_at_every_cut(upstream, stream=stream)
        assert (seen.fault, seen.early, seen.final, seen.known["meaningful"]) == (fault, b"", b"", False)
    seen = relay_at_every_cut(OK + chunk({}, word) + DONE)
    assert (seen.fault, seen.final) == (fault, b"")
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None)]


def test_an_error_beside_the_word_says_more_than_it() -> None:
    for error in ({"code": 429, "message": "slow down"}, {"type": "rate_limit_error"}):
        assert relay_at_every_cut(chunk({}, "error", choice={"error": error}) + DONE).fault == "rate_limited"


CALL = {"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
Said = dict[str, Any]


@pytest.mark.parametrize(
    ("said", "meant"), [({"content": "ok"}, "stop"), (CALL, "tool_calls"), ({"reasoning": "r"}, "stop")]
)
@pytest.mark.parametrize("word", ["weird", "OTHER", "FINISH_REASON_UNSPECIFIED", "✓"])
def test_a_word_that_nobody_knows_ends_what_was_said(word: str, said: Said, meant: str) -> None:
    message = {"content": None} | said
    for upstream in (chunk(said) + chunk({}, word) + DONE, chunk(said, word), whole(message, word)):
        seen = relay_at_every_cut(upstream)
        assert seen.deltas[-1] == ({}, meant)
        assert seen.chunks[-1]["choices"][0]["native_finish_reason"] == word


@pytest.mark.parametrize("stream", [True, False])
def test_alone_it_is_an_empty_answer(stream: bool) -> None:
    role = chunk({"role": "assistant", "content": ""})
    for upstream in (role + chunk({}, "weird") + usage(5, 0) + DONE, whole({"content": ""}, "weird")):
        seen = relay_at_every_cut(upstream, stream=stream)
        assert (seen.fault, seen.early, seen.final) == ("invalid_response", b"", b"")
        assert (seen.known["meaningful"], seen.known["relayed_bytes"]) == (False, 0)
    # A word that everybody knows needs no text: the model had nothing to say.
    assert relay_at_every_cut(role + chunk({}, "end_turn") + DONE).deltas[-1] == ({}, "stop")


def test_a_word_is_kept_in_bounds() -> None:
    seen = relay([OK + chunk({}, "w" * 100_000 + "\0") + DONE])
    assert seen.known["native_finish_reason"] == "w" * 64
    assert relay([OK + chunk({}, "a\0b") + DONE]).known["native_finish_reason"] == "ab"
