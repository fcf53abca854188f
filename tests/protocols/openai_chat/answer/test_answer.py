"""Streams of OpenAI chat upstreams, in the forms servers give them, as a streaming client sees them."""

import json
from typing import Any

import pytest

from billing.tokens import Tokens
from gateway.protocols.openai_chat import error_event
from gateway.wire.dialects import EZROUTER, STANDARD, ZENMUX, Dialect
from gateway.wire.errors import UpstreamFault
from tests.protocols.openai_chat.answers import (
    DONE,
    OURS,
    Seen,
    chunk,
    event,
    reader,
    relay,
    relay_at_every_cut,
    shown,
    usage,
)

ROLE = chunk({"role": "assistant", "content": ""})
OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")
KINDS = ("reasoning", "content", "tool_calls")


@pytest.mark.row("B251", "B252", "B253", "B254", "B255", "B256", "B258", "B259", "B269")
def test_it_relays_a_stream() -> None:
    seen = relay_at_every_cut(ROLE + chunk({"content": "ok"}) + STOP + DONE)
    assert seen.chunks == [
        OURS | {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
        OURS | {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": None}]},
        OURS | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    assert b'finish_reason":"' not in seen.early
    assert seen.known == {
        "meaningful": True,
        "complete": True,
        "usage": None,
        "usage_suspect": False,
        "finish_reason": "stop",
        "native_finish_reason": "stop",
        "relayed_bytes": 2,
        "skipped": 0,
    }


@pytest.mark.row("B276")
def test_each_chunk_goes_out_with_the_bytes_that_complete_it() -> None:
    answer = reader()
    seen = []
    for piece in (ROLE, chunk({"content": "a"}) + chunk({"content": "b"}), STOP + usage(3, 1), DONE):
        seen.append((len(answer.feed(piece)), answer.meaningful, answer.complete))
    assert seen == [(1, False, False), (2, True, False), (0, True, False), (0, True, True)]


@pytest.mark.row("B249", "B257")
def test_an_answer_without_text_keeps_its_role() -> None:
    seen = relay_at_every_cut(ROLE + STOP + usage(5, 0) + DONE, include_usage=True)
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({}, "stop")]
    assert seen.chunks[-1] == OURS | {"choices": [], "usage": shown(5, 0)}
    assert seen.known["usage"] == Tokens(prompt=5)


def test_a_lone_finish_chunk_still_gets_a_role_before_it() -> None:
    for delta in ({}, None, {"role": "assistant"}, {"content": None}, {"content": "", "tool_calls": None}):
        seen = relay_at_every_cut(chunk(delta, "stop") + DONE)
        assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({}, "stop")]


@pytest.mark.row("B257")
@pytest.mark.parametrize("again", [{"role": "assistant"}, {"role": ""}, {"role": None}, {"role": "user"}])
def test_the_role_comes_once(again: dict[str, Any]) -> None:
    seen = relay_at_every_cut(chunk({"content": "a"}) + chunk(again | {"content": "b"}) + chunk(again, "stop") + DONE)
    assert seen.deltas == [({"role": "assistant", "content": "a"}, None), ({"content": "b"}, None), ({}, "stop")]


@pytest.mark.row("B269")
def test_nulls_and_empty_deltas_do_not_reach_the_client() -> None:
    seen = relay_at_every_cut(
        ROLE
        + chunk({"content": None, "tool_calls": None, "function_call": None, "role": None})
        + chunk({"content": "a", "refusal": None})
        + chunk({"content": None, "role": None}, "stop")
        + DONE
    )
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "a"}, None), ({}, "stop")]


@pytest.mark.row("B269")
def test_text_and_finish_in_one_chunk_are_parted() -> None:
    seen = relay_at_every_cut(ROLE + chunk({"content": "ok"}, "length", choice={"stop_reason": 7}) + DONE)
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "ok"}, None), ({}, "length")]
    assert seen.chunks[-1]["choices"][0]["stop_reason"] == 7
    assert b"stop_reason" not in seen.early


@pytest.mark.row("B112", "B270")
def test_finish_and_usage_in_one_chunk_are_parted_too() -> None:
    upstream = OK + chunk({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}) + DONE
    seen = relay_at_every_cut(upstream)
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "stop")]
    assert b"usage" not in seen.early + seen.final
    assert seen.known["usage"] == Tokens(prompt=3, completion=1)
    assert relay_at_every_cut(upstream, include_usage=True).chunks[-1]["usage"]["prompt_tokens"] == 3


def test_an_empty_finish_reason_is_none() -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    seen = relay_at_every_cut(
        chunk({"role": "assistant", "content": ""}, "")
        + chunk({"tool_calls": [call]}, "")
        + chunk({"function_call": {"name": "", "arguments": ""}}, "tool_calls")
        + DONE
    )
    assert seen.deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"tool_calls": [call]}, None),
        ({}, "tool_calls"),
    ]


@pytest.mark.row("B211", "B212", "B213", "B214")
@pytest.mark.parametrize(
    ("reasons", "meant", "native"),
    [
        (["length", "stop"], "length", "length"),
        (["stop", "length"], "length", "length"),
        (["content_filter"], "content_filter", "content_filter"),
        *((["MAX_TOKENS"], "length", "MAX_TOKENS"), (["max_tokens"], "length", "max_tokens")),
        *(([word], "length", word) for word in ("model_context_window_exceeded", "incomplete")),
        *(([word], "stop", word) for word in ("end_turn", "stop_sequence", "pause_turn", "STOP", "completed", "eos")),
        *(([word], "content_filter", word) for word in ("refusal", "SAFETY", "RECITATION", "BLOCKLIST")),
        (["PROHIBITED_CONTENT"], "content_filter", "PROHIBITED_CONTENT"),
    ],
)
def test_the_client_sees_one_finish_reason(reasons: list[str], meant: str, native: str) -> None:
    seen = relay_at_every_cut(OK + b"".join(chunk({}, reason) for reason in reasons) + DONE)
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, meant)]
    assert (seen.known["finish_reason"], seen.known["native_finish_reason"]) == (meant, native)
    own = {} if native == meant else {"native_finish_reason": native}
    assert seen.chunks[-1]["choices"] == [{"index": 0, "delta": {}, "finish_reason": meant} | own]
    (choice,) = relay([OK + chunk({}, native) + DONE], stream=False).body["choices"]
    assert {name: choice[name] for name in choice if name.endswith("finish_reason")} == {"finish_reason": meant} | own


@pytest.mark.row("B211")
def test_a_native_reason_that_the_upstream_tells_is_passed_on() -> None:
    seen = relay_at_every_cut(OK + chunk({}, "stop", choice={"native_finish_reason": "end_turn"}) + DONE)
    assert seen.chunks[-1]["choices"][0]["native_finish_reason"] == "end_turn"


@pytest.mark.row("B214")
@pytest.mark.parametrize("word", ["error", "failed", "abort", "insufficient_system_resource"])
def test_an_end_that_was_a_failure_is_not_shown_as_one_that_was_not(word: str) -> None:
    seen = relay_at_every_cut(OK + chunk({}, word) + DONE)
    assert (seen.fault, seen.final) == ("server_error", b"")


def test_a_finish_reason_on_every_chunk_does_not_cut_the_answer() -> None:
    seen = relay_at_every_cut(chunk({"content": "one "}, "stop") + chunk({"content": "two"}, "stop"))
    assert seen.deltas == [
        ({"role": "assistant", "content": "one "}, None),
        ({"content": "two"}, None),
        ({}, "stop"),
    ]


@pytest.mark.row("B111", "B270")
def test_usage_after_the_finish_is_read_and_comes_last() -> None:
    upstream = OK + chunk({}, "length") + usage(23, 235) + DONE
    seen = relay_at_every_cut(upstream, include_usage=True)
    assert [made["choices"] for made in seen.chunks][-1] == []
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "length")]
    assert seen.known["usage"] == Tokens(prompt=23, completion=235)


@pytest.mark.row("B238", "B267", "B270")
def test_the_last_usage_counts_and_placeholders_never() -> None:
    zero = {"total_tokens": 0}
    seen = relay_at_every_cut(
        chunk({"role": "assistant", "content": "a"}, usage=zero)
        + chunk({"role": "", "content": "b"}, usage={"prompt_tokens": 7, "completion_tokens": 1})
        + chunk({"role": ""}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})
        + chunk(choices=[], usage={"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})
        + DONE,
        include_usage=True,
    )
    assert seen.known["usage"] == Tokens(prompt=7, completion=2)
    assert [made.get("usage") for made in seen.chunks] == [
        *(None, None, None),
        shown(7, 2),
    ]
    assert relay([OK + chunk({}, "stop", usage=zero)]).known["usage"] is None


def test_two_choices_end_each_with_its_own_reason() -> None:
    seen = relay_at_every_cut(
        chunk({"content": "a"}, index=1)
        + chunk({"content": "b"}, "stop")
        + chunk({"content": "c"}, "length", index=1)
        + usage(3, 3)
        + DONE
    )
    parts = [(made["choices"][0]["index"], *delta) for made, delta in zip(seen.chunks, seen.deltas, strict=True)]
    assert parts == [
        (1, {"role": "assistant", "content": "a"}, None),
        (0, {"role": "assistant", "content": "b"}, None),
        (1, {"content": "c"}, None),
        (0, {}, "stop"),
        (1, {}, "length"),
    ]
    assert seen.known["finish_reason"] == "stop"


def test_an_answer_with_an_unfinished_choice_is_truncated() -> None:
    seen = relay_at_every_cut(chunk({"content": "a"}, "stop") + chunk({"content": "b"}, index=1))
    assert seen.fault == "truncated"
    assert seen.final == b""


@pytest.mark.row("B235", "B236")
def test_unknown_fields_and_odd_orders_pass_unchanged() -> None:
    late = {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}, "extra": {"s": 1}}
    early = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "x", "input": "i"}}
    delta = {"role": "assistant", "content": "a", "audio": {"id": "a"}, "odd": {"k": [0]}}
    upstream = (
        chunk(delta, choice={"content_filter_results": {"hate": {}}}, provider="P", system_fingerprint="fp")
        + chunk({"tool_calls": [late]})
        + chunk({"tool_calls": [early]})
        + chunk({"annotations": [{"type": "url_citation"}]}, "tool_calls", service_tier="flex")
        + DONE
    )
    seen = relay_at_every_cut(upstream)
    first = seen.chunks[0]
    assert (first["provider"], first["system_fingerprint"]) == ("P", "fp")
    assert first["choices"][0]["content_filter_results"] == {"hate": {}}
    assert [delta for delta, _ in seen.deltas] == [
        delta,
        {"tool_calls": [late | {"index": 0}]},
        {"tool_calls": [early | {"index": 1}]},
        {"annotations": [{"type": "url_citation"}]},
    ]
    assert seen.chunks[-1]["service_tier"] == "flex"


def test_fields_beside_an_empty_list_of_choices_pass() -> None:
    seen = relay_at_every_cut(chunk(choices=[], prompt_filter_results=[{"prompt_index": 0}]) + OK + STOP + DONE)
    assert seen.chunks[0] == OURS | {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]}
    seen = relay_at_every_cut(chunk(choices=[], usage=None) + OK + STOP + DONE)
    assert len(seen.chunks) == 2


def test_fields_beside_the_usage_stay_with_it() -> None:
    upstream = OK + STOP + chunk(choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2}, x_extra=1) + DONE
    assert relay_at_every_cut(upstream, include_usage=True).chunks[-1] == OURS | {
        "x_extra": 1,
        "choices": [],
        "usage": shown(1, 2),
    }
    assert b"x_extra" not in relay_at_every_cut(upstream).final


@pytest.mark.row("B249")
def test_an_estimate_is_shown_where_the_upstream_sent_no_usage() -> None:
    answer = reader(include_usage=True)
    early = b"".join(answer.feed(OK + STOP))
    answer.end()
    answer.set_usage(Tokens(prompt=20, completion=1))
    assert Seen(early, answer.final(), None, {}).chunks[-1]["usage"] == shown(20, 1)
    assert answer.usage is None


@pytest.mark.parametrize(("billed", "seen"), [((3, 1), shown(3, 1) | {"extra": 1}), ((20, 1), shown(20, 1))])
def test_what_is_billed_is_shown_and_as_the_upstream_sent_it_if_it_is_that(billed: Any, seen: Any) -> None:
    answer = reader(include_usage=True)
    early = b"".join(answer.feed(OK + STOP + usage(3, 1, extra=1) + DONE))
    answer.set_usage(Tokens(*billed))
    assert Seen(early, answer.final(), None, {}).chunks[-1]["usage"] == seen
    assert answer.usage == Tokens(3, 1)


@pytest.mark.row("B112", "B267")
@pytest.mark.parametrize("dialect", [STANDARD, ZENMUX])
def test_usage_is_for_those_who_ask_and_null_until_it_comes(dialect: Dialect) -> None:
    upstream = OK + STOP + usage(3, 1) + DONE
    asked = relay_at_every_cut(upstream, include_usage=True, dialect=dialect)
    assert [made["usage"] for made in asked.chunks] == [None, None, shown(3, 1)]
    unasked = relay_at_every_cut(upstream, dialect=dialect)
    assert [made.get("usage", "absent") for made in unasked.chunks] == ["absent", "absent"]
    assert unasked.known["usage"] == asked.known["usage"] == Tokens(3, 1)


@pytest.mark.row("B112", "B236", "B258", "B267", "B268", "B270")
def test_one_dialect_reports_usage_unasked_and_writes_its_nulls() -> None:
    upstream = chunk({"role": "assistant", "content": ""}, system_fingerprint="fp") + OK + STOP + usage(3, 1) + DONE
    chunks = relay_at_every_cut(upstream, dialect=EZROUTER).chunks
    assert all(made["system_fingerprint"] is None for made in chunks)
    assert [choice["logprobs"] for made in chunks for choice in made["choices"]] == [None, None, None]
    assert [made["usage"] for made in chunks[:-1]] == [None, None, None]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 4)
    whole_ = relay([json.dumps({"choices": [{"message": {"content": "ok"}}]}).encode()], dialect=EZROUTER).chunks
    assert [choice["logprobs"] for made in whole_ for choice in made["choices"]] == [None, None, None]
    assert [made["usage"] for made in whole_] == [None, None, None]


@pytest.mark.row("B134", "B136")
def test_citations_come_with_the_end() -> None:
    cited, other = ({"type": "url_citation", "url_citation": {"title": "T", "url": f"https://x/{n}"}} for n in "ab")
    for upstream in (
        OK + chunk({"content": ".", "annotations": [cited]}) + chunk({"annotations": [other]}) + STOP + DONE,
        OK + chunk({"content": ".", "annotations": [cited, other]}, "stop") + DONE,
        OK + chunk({"content": ".", "annotations": None}) + chunk({"annotations": [cited, other]}, "stop") + DONE,
    ):
        seen = relay_at_every_cut(upstream)
        assert seen.deltas[1:] == [({"content": "."}, None), ({"annotations": [cited, other]}, "stop")]
        assert relay_at_every_cut(upstream, stream=False).message["annotations"] == [cited, other]


@pytest.mark.row("B263")
def test_a_refusal_comes_in_pieces() -> None:
    upstream = chunk({"role": "assistant", "refusal": "I "}) + chunk({"refusal": "won't"}) + STOP + usage(3, 2) + DONE
    seen = relay_at_every_cut(upstream)
    assert seen.deltas[:2] == [({"role": "assistant", "refusal": "I "}, None), ({"refusal": "won't"}, None)]


@pytest.mark.row("B209")
def test_two_pieces_of_one_choice_in_a_chunk_reach_a_client_that_reads_the_first() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    text, made = {"index": 0, "delta": {"content": "ok"}}, {"index": 0, "delta": {"tool_calls": [call]}}
    upstream = chunk(choices=[text, made]) + chunk({}, "tool_calls") + DONE
    seen = relay_at_every_cut(upstream)
    assert [len(made["choices"]) for made in seen.chunks] == [1, 1, 1]
    assert [delta for delta, _ in seen.deltas] == [{"role": "assistant", "content": "ok"}, {"tool_calls": [call]}, {}]
    message = relay_at_every_cut(upstream, stream=False).message
    assert (message["content"], [call["id"] for call in message["tool_calls"]]) == ("ok", ["c"])


@pytest.mark.row("B272", "B273")
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_piece_is_no_stream_and_after_it_ends_one(stream: bool) -> None:
    failed = event({"error": {"message": "quota exceeded", "type": "insufficient_quota", "code": 429}})
    answer = reader(stream=stream)
    with pytest.raises(UpstreamFault) as fault:
        answer.feed(failed + DONE)
    assert (fault.value.status, answer.meaningful) == (429, False)
    answer = reader(stream=True)
    sent = b"".join(answer.feed(OK + failed + DONE))
    assert answer.fault is not None
    assert sent.count(b"data: ") == 1
    told = error_event(answer.fault)
    assert told.startswith(b'data: {"error":{"message":"')
    assert b"[DONE]" not in sent + told


@pytest.mark.row("B273")
@pytest.mark.parametrize("error", [{"error": {}}, {"error": ""}, {"error": {"message": ""}}, {"error": 5}])
def test_an_error_that_says_nothing_is_still_one(error: Any) -> None:
    with pytest.raises(UpstreamFault) as fault:
        reader().feed(event(error))
    assert (fault.value.status, fault.value.message) == (502, "The provider failed.")
    assert relay([OK + event({"error": None, "choices": []}) + STOP + DONE]).fault is None


@pytest.mark.row("B277")
def test_reasoning_comes_before_text_and_text_before_calls() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    streamed = chunk({"reasoning": "r"}) + chunk({"content": "t"}) + chunk({"tool_calls": [call]}, "tool_calls")
    message = {"tool_calls": [call], "content": "t", "reasoning": "r"}
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    for upstream in (streamed + usage(3, 2) + DONE, body):
        seen = relay_at_every_cut(upstream, include_usage=True)
        names = [
            sorted(delta.keys() - {"role"} or {"role"})[0] for delta, _ in seen.deltas if delta.get("content") != ""
        ]
        assert names[-4:-1] == ["reasoning", "content", "tool_calls"]
        assert seen.deltas[-1] == ({}, "tool_calls")
