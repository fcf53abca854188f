"""Streams of OpenAI chat upstreams, in the forms servers give them, as a streaming client sees them."""

from typing import Any

import pytest

from billing.tokens import Tokens
from tests.openai_answers import DONE, OURS, chunk, reader, relay, relay_at_every_cut, usage

ROLE = chunk({"role": "assistant", "content": ""})
OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")


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


def test_each_chunk_goes_out_with_the_bytes_that_complete_it() -> None:
    answer = reader()
    seen = []
    for piece in (ROLE, chunk({"content": "a"}) + chunk({"content": "b"}), STOP + usage(3, 1), DONE):
        seen.append((len(answer.feed(piece)), answer.meaningful, answer.complete))
    assert seen == [(1, False, False), (2, True, False), (0, True, False), (0, True, True)]


def test_an_answer_without_text_keeps_its_role() -> None:
    seen = relay_at_every_cut(ROLE + STOP + usage(5, 0) + DONE, include_usage=True)
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({}, "stop")]
    assert seen.chunks[-1] == OURS | {
        "choices": [],
        "usage": {"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5},
    }
    assert seen.known["usage"] == Tokens(prompt=5)


def test_a_lone_finish_chunk_still_gets_a_role_before_it() -> None:
    for delta in ({}, None, {"role": "assistant"}, {"content": None}, {"content": "", "tool_calls": None}):
        seen = relay_at_every_cut(chunk(delta, "stop") + DONE)
        assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({}, "stop")]


@pytest.mark.parametrize("again", [{"role": "assistant"}, {"role": ""}, {"role": None}, {"role": "user"}])
def test_the_role_comes_once(again: dict[str, Any]) -> None:
    seen = relay_at_every_cut(chunk({"content": "a"}) + chunk(again | {"content": "b"}) + chunk(again, "stop") + DONE)
    assert seen.deltas == [({"role": "assistant", "content": "a"}, None), ({"content": "b"}, None), ({}, "stop")]


def test_nulls_and_empty_deltas_do_not_reach_the_client() -> None:
    seen = relay_at_every_cut(
        ROLE
        + chunk({"content": None, "tool_calls": None, "function_call": None, "role": None})
        + chunk({"content": "a", "refusal": None})
        + chunk({"content": None, "role": None}, "stop")
        + DONE
    )
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "a"}, None), ({}, "stop")]


def test_text_and_finish_in_one_chunk_are_parted() -> None:
    seen = relay_at_every_cut(ROLE + chunk({"content": "ok"}, "length", choice={"stop_reason": 7}) + DONE)
    assert seen.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "ok"}, None), ({}, "length")]
    assert seen.chunks[-1]["choices"][0]["stop_reason"] == 7
    assert b"stop_reason" not in seen.early


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


@pytest.mark.parametrize(
    ("reasons", "shown", "native"),
    [
        (["length", "stop"], "length", "length"),
        (["stop", "length"], "length", "length"),
        (["tool_calls", "stop", "stop"], "tool_calls", "tool_calls"),
        (["content_filter"], "content_filter", "content_filter"),
        (["function_call"], "function_call", "function_call"),
        (["MAX_TOKENS"], "length", "MAX_TOKENS"),
        (["tool_use"], "tool_calls", "tool_use"),
        (["eos_token"], "stop", "eos_token"),
    ],
)
def test_the_client_sees_one_finish_reason(reasons: list[str], shown: str, native: str) -> None:
    seen = relay_at_every_cut(OK + b"".join(chunk({}, reason) for reason in reasons) + DONE)
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, shown)]
    assert (seen.known["finish_reason"], seen.known["native_finish_reason"]) == (shown, native)


def test_a_finish_reason_on_every_chunk_does_not_cut_the_answer() -> None:
    seen = relay_at_every_cut(chunk({"content": "one "}, "stop") + chunk({"content": "two"}, "stop"))
    assert seen.deltas == [
        ({"role": "assistant", "content": "one "}, None),
        ({"content": "two"}, None),
        ({}, "stop"),
    ]


def test_usage_after_the_finish_is_read_and_comes_last() -> None:
    upstream = OK + chunk({}, "length") + usage(23, 235) + DONE
    seen = relay_at_every_cut(upstream, include_usage=True)
    assert [made["choices"] for made in seen.chunks][-1] == []
    assert seen.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "length")]
    assert seen.known["usage"] == Tokens(prompt=23, completion=235)


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
        {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
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
    shown = [(made["choices"][0]["index"], *delta) for made, delta in zip(seen.chunks, seen.deltas, strict=True)]
    assert shown == [
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


def test_unknown_fields_and_odd_orders_pass_unchanged() -> None:
    late = {"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}, "extra": {"s": 1}}
    early = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "x", "input": "i"}}
    delta = {"role": "assistant", "content": "a", "reasoning_details": [{"type": "reasoning.text"}], "odd": {"k": [0]}}
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
        {"tool_calls": [late]},
        {"tool_calls": [early]},
        {"annotations": [{"type": "url_citation"}]},
        {},
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
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert b"x_extra" not in relay_at_every_cut(upstream).final


def test_continued_tool_calls_carry_only_their_arguments() -> None:
    begun = {"index": 0, "id": "call_9", "type": "function", "function": {"name": "get_w", "arguments": ""}}
    for nothing in (None, ""):
        more = {"index": 0, "id": nothing, "type": nothing, "function": {"name": nothing, "arguments": '{"city":'}}
        repeated = begun | {"function": {"name": "get_w", "arguments": '"Oslo"}'}}
        seen = relay_at_every_cut(
            chunk({"role": "assistant", "content": None, "tool_calls": [begun]})
            + chunk({"role": None, "content": None, "tool_calls": [more]})
            + chunk({"tool_calls": [repeated]})
            + chunk({}, "tool_calls")
            + DONE
        )
        assert seen.deltas == [
            ({"role": "assistant", "content": None, "tool_calls": [begun]}, None),
            ({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]}, None),
            ({"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]}, None),
            ({}, "tool_calls"),
        ]
        assert seen.known["relayed_bytes"] == len('{"city":"Oslo"}')


def test_a_continuation_that_says_nothing_is_dropped() -> None:
    begun = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    empty = {"index": 0, "id": None, "type": "function", "function": {"name": "", "arguments": None}}
    seen = relay_at_every_cut(chunk({"tool_calls": [begun]}) + chunk({"tool_calls": [empty]}, "tool_calls") + DONE)
    assert seen.deltas == [({"role": "assistant", "tool_calls": [begun]}, None), ({}, "tool_calls")]


def test_an_id_and_a_name_that_come_late_are_passed_once() -> None:
    def call(**fields: Any) -> bytes:
        return chunk({"tool_calls": [{"index": 0} | fields]})

    seen = relay_at_every_cut(
        call(function={"arguments": None})
        + call(id="c", function={"name": "f", "arguments": "{"})
        + call(id="c", function={"name": "f", "arguments": "}"}, extra=None)
        + chunk({}, "tool_calls")
        + DONE
    )
    assert [delta.get("tool_calls") for delta, _ in seen.deltas] == [
        [{"index": 0, "function": {"arguments": ""}}],
        [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}],
        [{"index": 0, "function": {"arguments": "}"}}],
        None,
    ]


@pytest.mark.parametrize("sent", [None, 0])
def test_parallel_tool_calls_without_an_index_are_kept_apart(sent: int | None) -> None:
    def call(name: str | None, id: str | None, arguments: str) -> dict[str, Any]:
        made: dict[str, Any] = {"function": {"name": name, "arguments": arguments}}
        return made | ({"id": id} if id else {}) | ({} if sent is None else {"index": sent})

    upstream = (
        chunk({"tool_calls": [call("f", "c1", "{}"), call("g", "c2", "{")]})
        + chunk({"tool_calls": [call(None, None, "}")]})
        + chunk({"tool_calls": [call("h", "c3", "{}")]}, "tool_calls")
        + DONE
    )
    calls = relay_at_every_cut(upstream, stream=False).message["tool_calls"]
    assert [(made["id"], made["function"]) for made in calls] == [
        ("c1", {"name": "f", "arguments": "{}"}),
        ("c2", {"name": "g", "arguments": "{}"}),
        ("c3", {"name": "h", "arguments": "{}"}),
    ]
    fragments = [c for delta, _ in relay_at_every_cut(upstream).deltas for c in delta.get("tool_calls", [])]
    assert [fragment["index"] for fragment in fragments] == [0, 1, 1, 2]


def test_a_lone_tool_call_without_an_index_is_continued() -> None:
    upstream = (
        chunk({"tool_calls": [{"id": "c1", "function": {"name": "f", "arguments": "{"}}]})
        + chunk({"tool_calls": [{"function": {"arguments": "}"}}]}, "tool_calls")
        + DONE
    )
    assert [delta.get("tool_calls") for delta, _ in relay_at_every_cut(upstream).deltas] == [
        [{"id": "c1", "function": {"name": "f", "arguments": "{"}, "index": 0}],
        [{"index": 0, "function": {"arguments": "}"}}],
        None,
    ]


def test_calls_with_neither_id_nor_index_are_told_apart_by_name() -> None:
    calls = [{"function": {"name": name, "arguments": "{}"}} for name in "fg"]
    seen = relay_at_every_cut(chunk({"tool_calls": calls}, "tool_calls") + DONE, stream=False)
    assert seen.message["tool_calls"] == calls


def test_an_estimate_is_shown_where_the_upstream_sent_no_usage() -> None:
    answer = reader(include_usage=True)
    answer.feed(OK + STOP)
    answer.end()
    answer.set_usage(Tokens(prompt=20, completion=1))
    assert b'"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":1,"total_tokens":21' in answer.final()
    assert answer.usage is None


def test_the_upstream_s_own_usage_is_never_replaced() -> None:
    answer = reader(include_usage=True)
    answer.feed(OK + STOP + usage(3, 1, extra=1) + DONE)
    answer.set_usage(Tokens(prompt=20, completion=1))
    assert b'"usage":{"prompt_tokens":3,"completion_tokens":1,"total_tokens":4,"extra":1}' in answer.final()
