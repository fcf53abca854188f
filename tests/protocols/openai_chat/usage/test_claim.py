"""What is kept of a claim: so much that a person sees what it is about, however much it was."""

from typing import Any

import pytest

from gateway.protocols.openai_chat.usage.claim import claimed
from gateway.protocols.openai_chat.usage.reported import Reported


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": -1, "completion_tokens": 2}),
        ({"prompt_tokens": 10**30}, {"prompt_tokens": "1000000000000000000000000000000"}),
        ({"prompt_tokens": 10**5000}, {"prompt_tokens": "a number without an end"}),
        ({"prompt_tokens": 1.5, "x": True, "y": None}, {"prompt_tokens": "1.5", "x": True, "y": None}),
        ({"a" * 50: "b" * 50}, {"a" * 40 + "...": "b" * 40 + "..."}),
        ({"a": {"b": {"c": 1}}, "d": [1, 2]}, {"a": {"b": "{...}"}, "d": "[...]"}),
        ("none", "none"),
        ([1], "[...]"),
    ],
)
def test_what_was_sent_is_shortened(sent: Any, said: Any) -> None:
    assert claimed(sent, {}) == {"said": said}


def test_of_many_fields_few_are_kept() -> None:
    sent = {f"f{number}": {f"g{more}": more for more in range(100)} for number in range(100)}
    said = claimed(sent, {})["said"]
    assert len(said) == 40 and all(len(inner) == 40 for inner in said.values())


def test_counts_that_contradict_each_other_are_kept_as_counts() -> None:
    reported = Reported()
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 99}}
    reported.take({"usage": dict(usage)}, None)
    assert (reported.tokens, reported.suspect) == (None, True)
    assert reported.claim == {"said": usage, "tokens": {"prompt": 10, "completion": 5, "cached": 99}}


def test_what_was_believed_is_no_claim() -> None:
    reported = Reported()
    reported.take({"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}, None)
    assert reported.claim is None
    reported.take({"usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 99}}, None)
    assert reported.claim == {"said": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 99}}


@pytest.mark.parametrize(
    "more",
    [
        {"server_tool_use": {"web_search_requests": 3}},
        {"cache_creation_input_tokens": 20_000},
        {"prompt_tokens_details": {"cached_tokens": 1}, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
    ],
)
def test_what_stands_beside_prompt_and_completion_would_be_lost(more: dict[str, Any]) -> None:
    """So there are no counts to be charged by."""
    reported = Reported()
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 9}, **more}
    reported.take({"usage": usage}, None)
    assert reported.suspect and reported.claim is not None
    assert "tokens" not in reported.claim


def test_what_cannot_be_is_no_count_whatever_comes_after() -> None:
    reported = Reported()
    usage = {"prompt_tokens": 10, "completion_tokens": 500_000, "prompt_tokens_details": {"cached_tokens": 4}}
    reported.take({"usage": dict(usage)}, None)
    reported.disbelieve()
    reported.take({"usage": {"prompt_tokens": 10, "completion_tokens": 500_001}}, None)
    assert (reported.tokens, reported.suspect, reported.nothing) == (None, True, False)
    assert reported.claim == {"said": usage, "tokens": {"prompt": 10, "completion": 500_000, "cached": 4}}


def test_what_stands_beside_the_counts_that_cannot_be_is_not_lost_either() -> None:
    reported = Reported()
    reported.take({"usage": {"prompt_tokens": 10, "completion_tokens": 500_000, "num_search_queries": 2}}, None)
    reported.disbelieve()
    assert reported.claim is not None and "tokens" not in reported.claim
