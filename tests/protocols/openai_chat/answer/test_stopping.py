"""Ends that the upstream did not see or did not own up to: stop sequences it was not told, and the cap."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.tokens import Tokens
from tests.protocols.openai_chat.answers import DONE, chunk, reader, relay, relay_at_every_cut, usage, whole

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def streamed(*texts: str) -> bytes:
    return b"".join(chunk({"role": "assistant", "content": text}) for text in texts)


def text_of(deltas: list[tuple[dict[str, Any], str | None]]) -> str:
    return "".join(delta.get("content") or "" for delta, _ in deltas)


@pytest.mark.row("B088", "B089")
@pytest.mark.parametrize(
    ("texts", "stops", "kept"),
    [
        (["one END two"], ("END",), "one "),
        (["one E", "N", "D two"], ("END",), "one "),
        (["one EN", "d END"], ("END",), "one ENd "),
        (["EEEND"], ("EEND",), "E"),
        (["ab", "cd"], ("cd", "bc"), "a"),
        (["END"], ("END",), ""),
        (["ünï", "cødé"], ("cø", "x"), "ünï"),
    ],
)
def test_the_text_ends_before_the_first_sequence_and_reading_with_it(
    texts: list[str], stops: tuple[str, ...], kept: str
) -> None:
    upstream = streamed(*texts, "more") + chunk({}, "length") + usage(3, 9) + DONE
    seen = relay_at_every_cut(upstream, stops=stops)
    assert (text_of(seen.deltas), seen.deltas[-1]) == (kept, ({}, "stop"))
    assert seen.deltas[0][0]["role"] == "assistant"
    assert (seen.known["complete"], seen.known["usage"]) == (True, Tokens(3, 9))
    assert relay_at_every_cut(upstream, stops=stops, stream=False).message["content"] == kept
    body = whole({"content": "".join(texts) + "more"}, "length", usage={"prompt_tokens": 3, "completion_tokens": 9})
    seen = relay_at_every_cut(body, stops=stops, stream=False)
    assert (seen.message["content"], seen.body["choices"][0]["finish_reason"]) == (kept, "stop")
    assert seen.known["usage"] == Tokens(3, 9)
    assert text_of(relay_at_every_cut(body, stops=stops).deltas) == kept


def test_it_is_stopped_with_the_bytes_that_end_it_and_what_follows_is_only_counted() -> None:
    answer = reader(stops=("END",))
    assert [len(answer.feed(piece)) for piece in (streamed("a"), streamed(" E"), streamed("ND b"))] == [1, 1, 0]
    assert (answer.stopped, answer.complete, answer.relayed_bytes) == (True, False, len("a END b"))
    assert (answer.finish_reason, answer.native_finish_reason) == ("stop", None)
    assert answer.feed(streamed("c", "d")) == []
    assert answer.relayed_bytes == len("a END bcd")
    assert answer.feed(usage(3, 9)) == []
    assert (answer.usage, answer.counted) == (Tokens(3, 9), False)  # it is still writing
    assert answer.feed(chunk({}, "length")) == []
    assert (answer.counted, answer.complete) == (True, False)
    answer.end()
    assert answer.complete
    assert b"stop" in answer.final()


def test_who_does_not_wait_for_the_rest_concludes_it() -> None:
    answer = reader(stops=("END",))
    answer.feed(streamed("a END b") + usage(3, 1))
    answer.conclude()
    assert (answer.complete, answer.counted) == (True, False)
    assert b"stop" in answer.final()


@pytest.mark.row("B089")
def test_what_was_held_back_and_was_no_sequence_is_not_lost() -> None:
    upstream = streamed("one E", "N") + chunk({}, "stop") + DONE
    seen = relay_at_every_cut(upstream, stops=("END",))
    assert seen.deltas == [
        ({"role": "assistant", "content": "one "}, None),
        ({"content": "EN"}, None),
        ({}, "stop"),
    ]
    assert b"EN" not in seen.early
    assert relay_at_every_cut(upstream, stops=("END",), stream=False).message["content"] == "one EN"
    assert relay_at_every_cut(whole({"content": "one EN"}), stops=("END",), stream=False).message["content"] == "one EN"
    cut = relay_at_every_cut(streamed("one E"), stops=("END",))
    assert (cut.fault, text_of(cut.deltas)) == ("truncated", "one ")


def test_text_is_over_when_a_call_begins() -> None:
    upstream = streamed("one E") + chunk({"tool_calls": [CALL]}) + chunk({"content": "ND"}, "tool_calls") + DONE
    seen = relay_at_every_cut(upstream, stops=("END",))
    assert seen.deltas == [
        ({"role": "assistant", "content": "one "}, None),
        ({"tool_calls": [CALL], "content": "E"}, None),
        ({"content": "ND"}, None),
        ({}, "tool_calls"),
    ]


def test_calls_after_the_sequence_are_after_the_end() -> None:
    for upstream in (
        chunk({"content": "a END", "tool_calls": [CALL]}) + chunk({}, "tool_calls") + DONE,
        whole({"content": "a END", "tool_calls": [CALL]}, "tool_calls"),
    ):
        seen = relay_at_every_cut(upstream, stops=("END",), stream=False)
        assert "tool_calls" not in seen.message
        assert (seen.message["content"], seen.body["choices"][0]["finish_reason"]) == ("a ", "stop")


def test_reasoning_and_refusals_are_not_searched() -> None:
    upstream = chunk({"reasoning": "END"}) + chunk({"refusal": "END"}) + streamed("a") + chunk({}, "stop") + DONE
    message = relay_at_every_cut(upstream, stops=("END",), stream=False).message
    assert (message["reasoning"], message["refusal"], message["content"]) == ("END", "END", "a")


def test_each_choice_has_its_own_end() -> None:
    pieces = [chunk({"content": "a E"}), chunk({"content": "ND"}, index=1), chunk({"content": "ND x"})]
    rest = [
        chunk({"content": " b"}, index=1),
        chunk({"content": " END"}, index=1),
        chunk({"content": "never"}, index=1),
    ]
    answer = reader(stops=("END",), n=2)
    stopped = []
    for piece in [*pieces, *rest[:2]]:
        answer.feed(piece)
        stopped.append(answer.stopped)
    assert stopped == [False, False, False, False, True]
    seen = relay(pieces + rest, stops=("END",), n=2, stream=False)
    assert [choice["message"]["content"] for choice in seen.body["choices"]] == ["a ", "ND b "]


def test_log_probabilities_do_not_tell_the_sequence() -> None:
    tokens: list[dict[str, Any]] = [
        {"token": text, "logprob": -0.1, "bytes": None, "top_logprobs": []} for text in ("one", " END", " two")
    ]
    body = whole({"content": "one END two"}, logprobs={"content": tokens, "refusal": None})
    (choice,) = relay_at_every_cut(body, stops=(" END",), stream=False, logprobs=True).body["choices"]
    assert choice["logprobs"] == {"content": tokens[:1], "refusal": None}
    upstream = b"".join(
        chunk({"content": made["token"]}, choice={"logprobs": {"content": [made], "refusal": None}}) for made in tokens
    )
    (choice,) = relay_at_every_cut(upstream, stops=(" END",), stream=False, logprobs=True).body["choices"]
    assert choice["logprobs"] == {"content": tokens[:1], "refusal": None}


@pytest.mark.row("B089")
@given(
    st.lists(st.text("abE", max_size=4), max_size=6),
    st.lists(st.text("abE", min_size=1, max_size=3), min_size=1, max_size=3).map(tuple),
    st.booleans(),
)
def test_however_it_is_cut_the_text_ends_where_a_search_of_all_of_it_would(
    texts: list[str], stops: tuple[str, ...], stream: bool
) -> None:
    text = "".join(texts)
    found = {stop: text.find(stop) + len(stop) for stop in stops if stop in text}
    kept = text
    if found:
        first = min(found.values())
        kept = text[: first - max(len(stop) for stop, end in found.items() if end == first)]
    seen = relay([*map(streamed, texts), chunk({}, "stop"), DONE], stops=stops, stream=stream)
    assert (text_of(seen.deltas) if stream else seen.message["content"] or "") == kept
    assert seen.known["finish_reason"] == "stop"


@pytest.mark.row("B215")
@pytest.mark.parametrize(
    ("written", "cap", "said", "shown"),
    [
        (40, 40, "stop", "length"),
        (41, 40, "stop", "length"),
        (39, 40, "stop", "stop"),
        (40, None, "stop", "stop"),
        (40, 40, "end_turn", "length"),
        (40, 40, "content_filter", "content_filter"),
        (40, 40, "length", "length"),
    ],
)
def test_an_answer_that_reached_its_cap_was_cut(written: int, cap: int | None, said: str, shown: str) -> None:
    counts = {"prompt_tokens": 3, "completion_tokens": written}
    streamed_ = streamed("x") + chunk({}, said) + usage(3, written) + DONE
    for upstream in (streamed_, whole({"content": "x"}, said, usage=counts)):
        seen = relay_at_every_cut(upstream, output_cap=cap)
        assert seen.deltas[-1] == ({}, shown)
        assert (seen.known["finish_reason"], seen.known["native_finish_reason"]) == (shown, said)
        (choice,) = relay([upstream], output_cap=cap, stream=False).body["choices"]
        assert choice["finish_reason"] == shown
        assert choice.get("native_finish_reason", shown) == said


@pytest.mark.row("B215")
def test_what_nobody_counted_or_counts_for_two_says_nothing_of_the_cap() -> None:
    uncounted = relay([streamed("x") + chunk({}, "stop") + DONE], output_cap=1)
    assert uncounted.deltas[-1] == ({}, "stop")
    two = streamed("x") + chunk({"content": "y"}, "stop", index=1) + chunk({}, "stop") + usage(3, 40) + DONE
    assert [finish for _, finish in relay([two], output_cap=40, n=2).deltas][-2:] == ["stop", "stop"]
    own = streamed("x END") + DONE
    assert relay([own], output_cap=1, stops=("END",)).deltas[-1] == ({}, "stop")
