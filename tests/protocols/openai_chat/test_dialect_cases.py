"""Providers' dialects through the gateway, byte for byte: what a client sees, and what is billed for it."""

from decimal import Decimal
from typing import Any

import pytest

from tests.protocols.openai_chat.answers import DONE, chunk, usage, whole
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.playing import Heard, Play, player
from tests.stage.product import Gateway

OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")
WITH_USAGE = {"stream_options": {"include_usage": True}}
TOOL = {"type": "function", "function": {"name": "get_w", "parameters": {"type": "object"}}}


@pytest.fixture
def play(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Play:
    """Has an upstream say exact bytes to one request of Alice's."""
    return player(gateway, alice, simulated)


def content(heard: Heard) -> str:
    return "".join(delta.get("content") or "" for delta, _ in heard.deltas)


def test_typed_parts_are_text(play: Play) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Two plus two."}]}
    text = {"type": "text", "text": "Four."}
    counted = {"prompt_tokens": 9, "completion_tokens": 8, "total_tokens": 17}
    streamed = chunk({"content": [thinking]}) + chunk({"content": [text]}) + STOP + usage(9, 8) + DONE
    for upstream in (streamed, whole({"role": "assistant", "content": [thinking, text]}, usage=counted)):
        heard = play(upstream, body=WITH_USAGE)
        assert content(heard) == "Four."
        assert "".join(delta.get("reasoning_content") or "" for delta, _ in heard.deltas) == "Two plus two."
        message = (said := play(upstream, body={"stream": False})).response.json()["choices"][0]["message"]
        assert (message["content"], message["reasoning_content"]) == ("Four.", "Two plus two.")
        for one in (heard, said):
            assert (one.billed, one.usage.charge) == ((9, 8, "reported"), Decimal("0.000147"))


def test_calls_with_changing_ids_and_odd_indices_are_whole(play: Play) -> None:
    def call(index: int, id: str, arguments: str, **inner: str) -> bytes:
        return chunk({"tool_calls": [{"index": index, "id": id, "function": inner | {"arguments": arguments}}]})

    upstream = (
        call(1, "a", "", name="get_w")
        + call(4, "b", "", name="get_w")
        + call(1, "x-0", '{"city":"Oslo"}')
        + call(4, "x-0", "{}")
        + chunk({}, "tool_calls")
        + usage(20, 14)
        + DONE
    )
    heard = play(upstream, body={"tools": [TOOL]})
    assert [(call["index"], call.get("id")) for delta, _ in heard.deltas for call in delta.get("tool_calls", [])] == [
        *((0, "a"), (1, "b"), (0, None), (1, None)),
    ]
    message = play(upstream, body={"tools": [TOOL], "stream": False}).response.json()["choices"][0]["message"]
    assert [(made["id"], made["function"]["arguments"]) for made in message["tool_calls"]] == [
        ("a", '{"city":"Oslo"}'),
        ("b", "{}"),
    ]
    assert heard.billed == (20, 14, "reported")


@pytest.mark.parametrize("stream", [True, False])
def test_hidden_thinking_is_billed_as_completion(play: Play, stream: bool) -> None:
    counted = {"prompt_tokens": 31, "completion_tokens": 27, "total_tokens": 458}
    for upstream in (OK + chunk({}, "stop", usage=counted) + DONE, whole({"content": "Oslo."}, usage=counted)):
        heard = play(upstream, body={"stream": stream} | (WITH_USAGE if stream else {}))
        assert (heard.billed, heard.usage.reasoning_tokens) == ((31, 427, "reported"), 400)
        assert (heard.usage.charge, heard.usage.suspect) == (Decimal("0.006498"), True)
        shown = heard.reported[0] if stream else heard.response.json()["usage"]
        assert (shown["prompt_tokens"], shown["completion_tokens"], shown["total_tokens"]) == (31, 427, 458)


LONG = {"messages": [{"role": "user", "content": "x " * 500}]}


def test_usage_in_halves_is_put_together(play: Play) -> None:
    first, last = ({"prompt_tokens": 250, "completion_tokens": 0}, {"prompt_tokens": 0, "completion_tokens": 12})
    text = chunk({"content": "twelve tokens of text, more or less, are here"})
    heard = play(chunk({"role": "assistant"}, usage=first) + text + chunk({}, "stop", usage=last) + DONE, body=LONG)
    assert (heard.billed, heard.usage.charge) == ((250, 12, "reported"), Decimal("0.00093"))


def test_a_half_that_nobody_counted_is_estimated_and_shown_as_it_is_billed(play: Play) -> None:
    text = chunk({"content": "twelve tokens of text, more or less, are here"})
    heard = play(
        text + chunk({}, "stop", usage={"prompt_tokens": 0, "completion_tokens": 12}) + DONE, body=LONG | WITH_USAGE
    )
    assert heard.billed[1:] == (12, "estimated")
    assert 250 <= heard.usage.prompt_tokens <= 400
    assert heard.reported[0]["prompt_tokens"] == heard.usage.prompt_tokens
    heard = play(text + chunk({}, "stop", usage={"prompt_tokens": 250, "completion_tokens": 0}) + DONE, body=LONG)
    assert heard.billed == (250, 12, "estimated")  # 45 bytes of text
    heard = play(
        chunk({"role": "assistant", "content": ""}) + chunk({}, "content_filter") + usage(250, 0) + DONE, body=LONG
    )
    assert heard.billed == (250, 0, "reported")


@pytest.mark.parametrize("stream", [True, False])
def test_what_is_counted_as_nothing_is_free_where_nothing_was_said(play: Play, stream: bool) -> None:
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "get_w", "arguments": ""}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    for upstream in (
        chunk({"role": "assistant", "content": ""}) + chunk({}, "content_filter") + usage(0, 0) + DONE,
        whole({"role": "assistant", "content": ""}, "content_filter", usage=zeros),
    ):
        heard = play(upstream, body=LONG | {"stream": stream} | (WITH_USAGE if stream else {}))
        assert heard.billed == (0, 0, "reported")
        assert (heard.usage.charge, heard.usage.provider_cost) == (Decimal(0), Decimal(0))
        assert heard.usage.suspect is False
        shown = heard.reported[0] if stream else heard.response.json()["usage"]
        assert (shown["prompt_tokens"], shown["completion_tokens"]) == (0, 0)
    for said in ({"content": "ok"}, {"tool_calls": [call]}, {"images": [picture]}):
        for counted in ((0, 0), (250, 0)):
            heard = play(chunk(said) + STOP + usage(*counted) + DONE, body=LONG | {"stream": stream, "tools": [TOOL]})
            assert heard.usage.basis == "estimated"
            assert heard.usage.prompt_tokens >= 250


def test_usage_in_an_object_of_the_vendor_s_is_billed_and_shown_once(play: Play) -> None:
    counted = {"prompt_tokens": 1200, "completion_tokens": 300, "prompt_tokens_details": {"cached_tokens": 1000}}
    upstream = OK + chunk({}, "stop", x_groq={"id": "r1", "usage": counted}) + DONE
    asked = play(upstream, body=WITH_USAGE)
    assert len(asked.reported) == 1
    unasked = play(upstream)
    assert "prompt_tokens" not in unasked.response.text
    body = whole({"role": "assistant", "content": "ok"}, x_groq={"id": "r1", "usage": counted})
    told = (said := play(body, body={"stream": False})).response.json()
    assert (told["usage"]["prompt_tokens"], told["usage"]["completion_tokens"]) == (1200, 300)
    assert said.response.text.count('"prompt_tokens"') == 1
    for heard in (asked, unasked, said):
        assert (heard.billed, heard.usage.cached_tokens) == ((1200, 300, "reported"), 1000)
        assert heard.usage.charge == Decimal("0.0054")


@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_for_an_end_is_told_as_one(play: Play, stream: bool) -> None:
    heard = play(chunk({}, "TIMEOUT") + DONE, body={"stream": stream})
    assert heard.error == (504, "upstream_timeout")
    assert heard.usage.charge == 0
    heard = play(OK + chunk({}, "TIMEOUT") + DONE)
    assert heard.payloads[-1]["error"]["code"] == "upstream_timeout"
    assert heard.usage.basis == "estimated"
    heard = play(chunk({"role": "assistant", "content": ""}) + chunk({}, "weird") + DONE, body={"stream": stream})
    assert heard.error == (502, "upstream_invalid_response")
    assert (heard.usage.charge, heard.usage.completion_tokens) == (Decimal(0), 0)


def test_half_a_character_costs_neither_the_answer_nor_its_usage(play: Play) -> None:
    half = OK.replace(b'"ok"', b'"a\\ud83d b"')
    for upstream in (half + STOP + usage(3, 2) + DONE, half.replace(b"\n", b"\r\n") + STOP + usage(3, 2) + DONE):
        for delivery in ({}, {"chunk": 1}):
            heard = play(upstream, **delivery)
            assert (content(heard), heard.billed) == ("a\ufffd b", (3, 2, "reported"))


def test_a_picture_of_some_megabytes_passes_in_a_stream_and_whole(play: Play) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (3 << 20)}}
    counted = {"prompt_tokens": 3, "completion_tokens": 2}
    for upstream in (
        chunk({"content": "See", "images": [picture]}) + STOP + usage(3, 2) + DONE,
        whole({"content": "See", "images": [picture]}, usage=counted),
    ):
        heard = play(upstream)
        assert [delta["images"] for delta, _ in heard.deltas if "images" in delta] == [[picture]]
        assert (content(heard), heard.billed) == ("See", (3, 2, "reported"))
        assert play(upstream, body={"stream": False}).response.json()["choices"][0]["message"]["images"] == [picture]


@pytest.mark.parametrize("stream", [True, False])
def test_a_text_past_its_bound_is_refused_streamed_or_whole(play: Play, stream: bool) -> None:
    bound = 10 * 64 + 65_536
    rule = f"The provider's answer is longer than {bound} bytes: 64 for each token that it may have and 65536 more."
    for upstream, code in (
        (whole({"content": "x" * (bound + 1)}), 502),
        (chunk({"content": "x" * (bound + 1)}) + STOP, 502),
    ):
        heard = play(upstream, body={"max_tokens": 10, "stream": stream})
        error: Any = heard.payloads[-1]["error"] if stream and upstream[:1] == b"d" else heard.response.json()["error"]
        assert (error["code"], error["message"]) == ("upstream_invalid_response", rule)
        assert heard.response.status_code == (200 if stream and upstream[:1] == b"d" else code)
    heard = play(whole({"content": "x" * bound}), body={"max_tokens": 10, "stream": stream})
    assert heard.usage.status == "completed"
