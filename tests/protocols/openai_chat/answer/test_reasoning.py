"""What a model thought: three names for it, whichever one an upstream uses, and entries that come back as they went."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat.answer.reasoning import Reasoning, join
from tests.protocols.openai_chat.answers import DONE, chunk, reader, relay, relay_at_every_cut, usage, whole

STOP = chunk({}, "stop")
TEXT = {"type": "reasoning.text", "index": 0}
SIGNED = TEXT | {"format": "anthropic-claude-v1"}
SUMMARY = {"index": 0, "format": "openai-responses-v1", "type": "reasoning.summary", "summary": "Pick a prime."}
SECRET = {"id": "rs_0a1", "index": 0, "format": "openai-responses-v1", "type": "reasoning.encrypted", "data": "Z0FB+/="}
NAMES = ("reasoning", "reasoning_content", "reasoning_details")


def three(text: str, **entry: Any) -> dict[str, Any]:
    """A fragment of reasoning as every client can read it."""
    details = [{"type": "reasoning.text", "text": text, "index": 0} | entry]
    return {"reasoning": text, "reasoning_content": text, "reasoning_details": details}


def trio(message: dict[str, Any]) -> dict[str, Any]:
    return {name: message[name] for name in NAMES if name in message}


@pytest.mark.row("B219", "B220", "B260", "B261", "B262")
@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
def test_plain_reasoning_is_shown_under_every_name(name: str) -> None:
    upstream = (
        chunk({"role": "assistant", "content": "", name: "r1"})
        + chunk({name: "r2", "content": None})
        + chunk({"content": "ok", name: None})
        + STOP
        + usage(3, 9)
        + DONE
    )
    seen = relay_at_every_cut(upstream)
    assert seen.deltas == [
        ({"role": "assistant", "content": ""} | three("r1"), None),
        (three("r2"), None),
        ({"content": "ok"}, None),
        ({}, "stop"),
    ]
    assert seen.known["relayed_bytes"] == 6
    message = relay_at_every_cut(upstream, stream=False).message
    assert (trio(message), message["content"]) == (three("r1r2"), "ok")
    message = relay_at_every_cut(whole({"content": "ok", name: "r1r2"}), stream=False).message
    assert (trio(message), message["content"]) == (three("r1r2"), "ok")


@pytest.mark.row("B220", "B223", "B262")
def test_entries_lend_their_text_to_the_plain_names() -> None:
    entries = [SIGNED | {"text": "2+2 "}, SIGNED | {"text": "is 4."}, SIGNED | {"signature": "c2lnLTE="}]
    upstream = b"".join(chunk({"reasoning": None, "reasoning_details": [entry]}) for entry in entries)
    upstream += chunk({"content": "4"}, "stop") + DONE
    seen = relay_at_every_cut(upstream)
    assert [delta for delta, _ in seen.deltas][:3] == [
        {"role": "assistant"} | three("2+2 ", format="anthropic-claude-v1"),
        three("is 4.", format="anthropic-claude-v1"),
        {"reasoning_details": [SIGNED | {"signature": "c2lnLTE="}]},
    ]
    whole_entry = SIGNED | {"text": "2+2 is 4.", "signature": "c2lnLTE="}
    assert trio(relay_at_every_cut(upstream, stream=False).message) == {
        "reasoning": "2+2 is 4.",
        "reasoning_content": "2+2 is 4.",
        "reasoning_details": [whole_entry],
    }
    body = whole({"content": "4", "reasoning_details": [whole_entry]})
    assert trio(relay_at_every_cut(body, stream=False).message)["reasoning"] == "2+2 is 4."


@pytest.mark.row("B053", "B221", "B222")
def test_summaries_and_encrypted_entries_pass_byte_for_byte() -> None:
    for upstream in (
        whole({"content": "7", "reasoning_details": [SUMMARY, SECRET]}),
        chunk({"reasoning_details": [SUMMARY]})
        + chunk({"reasoning_details": [SECRET]})
        + chunk({"content": "7"}, "stop"),
    ):
        seen = relay_at_every_cut(upstream, stream=False)
        assert trio(seen.message) == {
            "reasoning": "Pick a prime.",
            "reasoning_content": "Pick a prime.",
            "reasoning_details": [SUMMARY, SECRET],
        }
        seen = relay_at_every_cut(upstream)
        entries = [entry for delta, _ in seen.deltas for entry in delta.get("reasoning_details", [])]
        assert entries == [SUMMARY, SECRET]
        assert json.dumps(SECRET, separators=(",", ":")).encode() in seen.early + seen.final


@pytest.mark.row("B222")
def test_an_encrypted_block_beside_plain_text_needs_no_other_entry() -> None:
    body = whole({"content": "7", "reasoning": "Hm.", "reasoning_details": [SECRET]})
    assert trio(relay_at_every_cut(body, stream=False).message) == {
        "reasoning": "Hm.",
        "reasoning_content": "Hm.",
        "reasoning_details": [SECRET],
    }


@pytest.mark.row("B057", "B223")
def test_an_index_of_digits_becomes_a_number_and_nothing_else_changes() -> None:
    for sent, index in (("0", 0), ("12", 12), (3, 3), ("x", "x"), ("", ""), ("²", "²"), (None, 0)):
        entry = SUMMARY | {"index": sent}
        body = whole({"content": "7", "reasoning_details": [entry]})
        (made,) = relay([body], stream=False).message["reasoning_details"]
        assert made == SUMMARY | {"index": index}
        assert list(made) == list(entry)


@pytest.mark.row("B223", "B262")
def test_entries_without_an_index_get_one_that_keeps_them_together_and_apart() -> None:
    text: dict[str, Any] = {"type": "reasoning.text", "format": "google-gemini-v1"}
    secret = {"type": "reasoning.encrypted", "data": "Z0FB"}
    pieces = [text | {"text": "a"}, text | {"text": "b", "signature": "s"}, text | {"text": "c"}, secret]
    upstream = b"".join(chunk({"reasoning_details": [piece]}) for piece in pieces) + chunk({"content": "7"}, "stop")
    entries = [
        entry for delta, _ in relay_at_every_cut(upstream).deltas for entry in delta.get("reasoning_details", [])
    ]
    assert entries == [piece | {"index": index} for piece, index in zip(pieces, (0, 0, 1, 2), strict=True)]
    joined = [text | {"text": "ab", "signature": "s"}, text | {"text": "c"}, secret]
    numbered = [entry | {"index": at} for at, entry in enumerate(joined)]
    assert relay_at_every_cut(upstream, stream=False).message["reasoning_details"] == numbered
    body = whole({"content": "7", "reasoning_details": joined})
    assert relay_at_every_cut(body, stream=False).message["reasoning_details"] == numbered


@pytest.mark.row("B220")
def test_details_that_are_a_string_are_a_text() -> None:
    assert trio(relay([whole({"content": "7", "reasoning_details": "Hm."})], stream=False).message) == three("Hm.")


def test_two_different_texts_are_both_kept() -> None:
    body = whole({"content": "7", "reasoning": "short", "reasoning_content": "long body"})
    message = relay_at_every_cut(body, stream=False).message
    assert (message["reasoning"], message["reasoning_content"]) == ("short", "long body")


def test_entries_that_repeat_plain_text_are_not_read_to_the_client_twice() -> None:
    upstream = chunk({"reasoning": "r1"}) + chunk({"reasoning_details": [SIGNED | {"text": "r1", "signature": "s"}]})
    seen = relay_at_every_cut(upstream + chunk({"content": "ok"}, "stop") + DONE)
    assert "".join(delta.get("reasoning", "") for delta, _ in seen.deltas) == "r1"


def test_no_reasoning_is_no_field() -> None:
    nothing: dict[str, Any] = {"reasoning": None, "reasoning_content": "", "reasoning_details": []}
    for upstream in (chunk({"content": "ok"} | nothing, "stop") + DONE, whole({"content": "ok"} | nothing)):
        seen = relay_at_every_cut(upstream)
        assert not any(name in delta for delta, _ in seen.deltas for name in NAMES)
        assert trio(relay_at_every_cut(upstream, stream=False).message) == {}


def test_text_is_not_searched_for_thinking() -> None:
    seen = relay_at_every_cut(chunk({"content": "<think>a</think>ok"}, "stop") + DONE)
    assert seen.deltas[0] == ({"role": "assistant", "content": "<think>a</think>ok"}, None)


@pytest.mark.row("B188")
@pytest.mark.parametrize("asked", [{"reasoning": {"exclude": True}}, {"include_reasoning": False}])
@pytest.mark.parametrize("name", NAMES)
def test_reasoning_that_was_not_wanted_is_counted_and_not_shown(asked: dict[str, Any], name: str) -> None:
    thought: Any = [TEXT | {"text": "secret thought"}] if name == "reasoning_details" else "secret thought"
    counts = {"prompt_tokens": 3, "completion_tokens": 9}
    streamed = (
        chunk({"role": "assistant", name: thought})
        + chunk({name: thought})
        + chunk({"content": "ok"}, "stop", usage=counts)
        + DONE
    )
    for times, upstream in ((2, streamed), (1, whole({"content": "ok", name: thought}, usage=counts))):
        for stream in (True, False):
            seen = relay_at_every_cut(upstream, stream=stream, include_usage=stream, **asked)
            assert b"thought" not in seen.early + seen.final
            assert b'"reasoning' not in (seen.early + seen.final).replace(b'"reasoning_tokens"', b"")
            text = "".join(d.get("content") or "" for d, _ in seen.deltas) if stream else seen.message["content"]
            shown = seen.chunks[-1]["usage"] if stream else seen.body["usage"]
            assert text == "ok"
            assert seen.known["relayed_bytes"] == times * len("secret thought") + len("ok")
            assert shown["completion_tokens_details"]["reasoning_tokens"] == {1: 4, 2: 7}[times]


def test_unwanted_reasoning_does_not_close_the_door_to_another_offer() -> None:
    answer = reader(reasoning={"exclude": True})
    assert len(answer.feed(chunk({"role": "assistant", "reasoning": "r"}))) == 1
    assert answer.feed(chunk({"reasoning": "r"})) == []
    assert not answer.meaningful


@pytest.mark.row("B241")
@pytest.mark.parametrize("counted", [{}, {"completion_tokens_details": {"reasoning_tokens": 0}}])
def test_reasoning_that_nobody_counted_is_estimated_from_its_text(counted: dict[str, Any]) -> None:
    for upstream in (
        chunk({"reasoning": "x" * 30}) + chunk({"content": "ok"}, "stop") + usage(5, 20, **counted) + DONE,
        whole({"content": "ok", "reasoning": "x" * 30}, usage={"prompt_tokens": 5, "completion_tokens": 20} | counted),
    ):
        seen = relay_at_every_cut(upstream, stream=False)
        assert seen.body["usage"]["completion_tokens"] == 20
        details = seen.body["usage"]["completion_tokens_details"]
        assert (details["reasoning_tokens"], details["text_tokens"]) == (8, 12)
        assert seen.known["usage"].reasoning == 0  # What is billed is what was counted.


@pytest.mark.row("B241")
def test_the_estimate_never_passes_the_completion_and_never_replaces_a_count() -> None:
    long = chunk({"reasoning": "x" * 300}) + chunk({"content": "ok"}, "stop")
    shown = relay_at_every_cut(long + usage(5, 20) + DONE, stream=False).body["usage"]
    assert shown["completion_tokens_details"]["reasoning_tokens"] == 20
    counted = usage(5, 20, completion_tokens_details={"reasoning_tokens": 3})
    shown = relay_at_every_cut(long + counted + DONE, stream=False).body["usage"]
    assert shown["completion_tokens_details"]["reasoning_tokens"] == 3


def test_fragments_become_one_entry_until_it_is_signed() -> None:
    def text(said: str, index: int = 0, **more: str) -> dict[str, Any]:
        return {"type": "reasoning.text", "text": said, "index": index} | more

    signed = {"type": "reasoning.text", "index": 0, "signature": "s1"}
    assert join([text("a"), text("b"), signed, text("c"), text("d", signature="s2")]) == [
        text("ab", signature="s1"),
        text("cd", signature="s2"),
    ]
    assert join([text("a"), text("x", 1), text("b"), text("y", 1)]) == [text("ab"), text("xy", 1)]
    assert join([text("a"), SUMMARY, text("b"), SUMMARY | {"id": "1"}, SUMMARY | {"id": "2"}]) == [
        text("ab"),
        SUMMARY | {"summary": "Pick a prime.Pick a prime.", "id": "1"},
        SUMMARY | {"id": "2"},
    ]
    odd = [
        SECRET,
        SECRET,
        {"type": "reasoning.new"},
        {},
        "x",
        {"type": "reasoning.text", "text": 5, "index": 0},
        text("a"),
    ]
    assert join(odd) == odd


texts = st.sampled_from(["reasoning.text", "reasoning.summary", "reasoning.encrypted", "odd", None])
entries = st.fixed_dictionaries(
    {},
    optional={
        "type": texts,
        "text": st.none() | st.text(max_size=3) | st.integers(),
        "summary": st.none() | st.text(max_size=3),
        "signature": st.none() | st.text(max_size=3),
        "data": st.text(max_size=3),
        "index": st.none() | st.integers(0, 2) | st.sampled_from(["0", "1", "x"]),
        "id": st.none() | st.sampled_from(["a", "b"]),
    },
)
thoughts = st.fixed_dictionaries(
    {},
    optional={
        "reasoning": st.none() | st.text(max_size=3) | st.just({"k": 1}),
        "reasoning_content": st.none() | st.text(max_size=3),
        "reasoning_details": st.none() | st.lists(entries | st.just("x"), max_size=3) | st.text(max_size=3),
    },
)


@given(st.lists(thoughts, max_size=5))
def test_no_signature_and_no_encrypted_byte_is_ever_lost_or_changed(parts: list[dict[str, Any]]) -> None:
    reasoning, passed = Reasoning(), []
    sent = [entry for part in parts for entry in part.get("reasoning_details") or [] if type(entry) is dict]
    kept = [(entry.get("signature"), entry.get("data")) for entry in sent]
    for part in parts:
        part = dict(part)
        reasoning.spread(part)
        assert ("reasoning" in part) == ("reasoning_content" in part)
        passed += part.get("reasoning_details", [])
    ours = [e for e in passed if type(e) is dict and (e.get("signature"), e.get("data")) != (None, None)]
    assert [(e.get("signature"), e.get("data")) for e in ours] == [pair for pair in kept if pair != (None, None)]
    joined = [entry for entry in join(passed) if type(entry) is dict]
    signatures = [entry["signature"] for entry in joined if entry.get("signature")]
    # Entries stand in the order in which they began, which need not be that of their signatures.
    assert sorted(signatures) == sorted(signature for signature, _ in kept if signature)
