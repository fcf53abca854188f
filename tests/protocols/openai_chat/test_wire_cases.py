"""Streams and answers that broke other gateways, byte for byte through this one: what comes out, what is billed."""

import json
from decimal import Decimal

import pytest

from tests.protocols.openai_chat.answers import DONE, chunk, shown, usage, whole
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.playing import Play, player
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

ROLE = chunk({"role": "assistant", "content": ""})
OK = chunk({"role": "assistant", "content": "ok"})
STOP = chunk({}, "stop")
SSE = "text/event-stream; charset=utf-8"
TOOL = {"type": "function", "function": {"name": "get_w", "parameters": {"type": "object"}}}


@pytest.fixture
def play(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Play:
    """Has an upstream say exact bytes to one request of Alice's."""
    return player(gateway, alice, simulated)


# --- shapes of a stream ---------------------------------------------------------------------------------------------

WITH_USAGE = {"stream_options": {"include_usage": True}}


def test_an_answer_without_a_word_has_its_role_its_end_and_its_usage(play: Play) -> None:
    heard = play(ROLE + STOP + usage(5, 0) + DONE, body=WITH_USAGE)
    assert heard.deltas == [({"role": "assistant", "content": ""}, None), ({}, "stop")]
    assert heard.payloads[-2]["choices"] == []
    assert heard.reported == [shown(5, 0)]
    assert heard.billed == (5, 0, "reported")


def test_the_finish_carries_no_nulls(play: Play) -> None:
    heard = play(ROLE + chunk({"content": "ok"}) + chunk({"content": None, "role": None}, "stop") + DONE)
    assert heard.deltas == [({"role": "assistant", "content": ""}, None), ({"content": "ok"}, None), ({}, "stop")]


def test_placeholders_of_roles_and_usage_are_dropped(play: Play) -> None:
    zero = {"total_tokens": 0}
    upstream = (
        chunk({"role": "assistant", "content": "a"}, usage=zero)
        + chunk({"role": "", "content": "b"}, usage=zero)
        + chunk({"role": ""}, "stop", usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9})
        + DONE
    )
    heard = play(upstream, body=WITH_USAGE)
    assert heard.deltas == [({"role": "assistant", "content": "a"}, None), ({"content": "b"}, None), ({}, "stop")]
    assert heard.reported == [shown(7, 2)]
    assert heard.payloads[-2]["choices"] == []
    assert heard.billed == (7, 2, "reported")


def test_usage_on_the_finish_is_metered_and_the_finish_kept(play: Play) -> None:
    heard = play(OK + chunk({}, "stop", usage={"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}) + DONE)
    assert heard.deltas == [({"role": "assistant", "content": "ok"}, None), ({}, "stop")]
    assert "usage" not in heard.response.text
    assert heard.billed == (3, 1, "reported")


def test_usage_after_the_finish_is_billed_to_the_digit(play: Play) -> None:
    heard = play(OK + chunk({}, "length") + usage(23, 235) + DONE, body=WITH_USAGE)
    assert [(made["choices"] or [{}])[0].get("finish_reason") for made in heard.payloads[:-1]] == [None, "length", None]
    assert heard.billed == (23, 235, "reported")
    assert heard.usage.charge == Decimal("0.003594")  # 23 x $3 and 235 x $15 a million


def test_a_finish_twice_is_told_once_and_both_choices_are_read_to_their_end(play: Play) -> None:
    heard = play(OK + chunk({}, "stop") + chunk({}, "stop") + DONE)
    assert [finish for _, finish in heard.deltas] == [None, "stop"]
    heard = play(
        OK + STOP + chunk({"role": "assistant", "content": "2"}, index=1) + chunk({}, "length", index=1) + DONE,
        body={"n": 2},
    )
    chunks = [made["choices"][0] for made in heard.payloads[:-1]]
    assert sorted((made["index"], made["finish_reason"]) for made in chunks if made["finish_reason"]) == [
        (0, "stop"),
        (1, "length"),
    ]
    assert next(made["delta"].get("content") for made in chunks if made["index"] == 1) == "2"


def test_an_empty_finish_reason_is_none_and_an_empty_call_is_not_passed_on(play: Play) -> None:
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_w", "arguments": "{}"}}
    upstream = (
        chunk({"role": "assistant", "content": ""}, "")
        + chunk({"tool_calls": [call]}, "")
        + chunk({"function_call": {"name": "", "arguments": ""}}, "tool_calls")
        + DONE
    )
    heard = play(upstream, body={"tools": [TOOL]})
    assert heard.deltas == [
        ({"role": "assistant", "content": ""}, None),
        ({"tool_calls": [call]}, None),
        ({}, "tool_calls"),
    ]


@pytest.mark.parametrize("blank", [None, ""])
def test_a_tool_call_goes_on_without_its_name_being_wiped(play: Play, blank: str | None) -> None:
    begun = {"index": 0, "id": "call_9", "type": "function", "function": {"name": "get_w", "arguments": ""}}
    goes_on = {"index": 0, "id": blank, "type": blank, "function": {"name": blank, "arguments": '{"city":"Oslo"}'}}
    upstream = (
        chunk({"role": "assistant", "content": None, "tool_calls": [begun]})
        + chunk({"role": None, "content": "", "tool_calls": [goes_on]})
        + chunk({}, "tool_calls")
        + DONE
    )
    calls = [
        delta["tool_calls"][0] for delta, _ in play(upstream, body={"tools": [TOOL]}).deltas if "tool_calls" in delta
    ]
    assert calls == [begun, {"index": 0, "function": {"arguments": '{"city":"Oslo"}'}}]
    message = play(upstream, body={"tools": [TOOL], "stream": False}).response.json()["choices"][0]["message"]
    assert message["tool_calls"] == [
        {"id": "call_9", "type": "function", "function": {"name": "get_w", "arguments": '{"city":"Oslo"}'}}
    ]


# --- server-sent events on the wire ---------------------------------------------------------------------------------

SIMPLE = [({"role": "assistant", "content": "ok"}, None), ({}, "stop")]
PARTED = [({"role": "assistant", "content": ""}, None), ({"content": "ok"}, None), ({}, "stop")]


@pytest.mark.parametrize(
    "upstream",
    [
        b": OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n" + OK + STOP + DONE,
        b"data: : keepalive\n\ndata: : keepalive\n\n" + OK + STOP + DONE,
        b"event: ping\ndata: \n\n" + OK + b"data:\n\n" + STOP + DONE,
        (OK + STOP + DONE).replace(b"\n", b"\r\n"),
        (OK + STOP + DONE).replace(b"\n", b"\r"),
        OK.replace(b"\n", b"\r") + STOP.replace(b"\n", b"\r\n") + DONE,
        (OK + STOP + DONE).replace(b"data: ", b"data:"),
        OK.replace(b'"choices"', b'\ndata: "choices"') + STOP + DONE,
        b"\xef\xbb\xbf" + OK + STOP + DONE,
        b"id: 7\nretry: 5\nfoo: bar\n" + OK + STOP + DONE,
    ],
)
def test_every_valid_framing_gives_the_same_stream(play: Play, upstream: bytes) -> None:
    for delivery in ({}, {"chunk": 1}):
        heard = play(upstream, **delivery)
        assert heard.deltas == SIMPLE
        assert heard.response.headers["content-type"] == SSE
        assert heard.billed[2] == "estimated"


def test_keep_alives_in_data_are_counted(gateway: Gateway, play: Play) -> None:
    heard = play(b"data: : keepalive\n\n" * 3 + OK + STOP + DONE)
    assert heard.deltas == SIMPLE
    metric = f'meterline_upstream_events_skipped_total{{provider="{heard.usage.provider}"}} 3.0'
    assert metric in gateway.client.get("/metrics").text


def test_of_two_spaces_after_the_colon_one_is_text(play: Play) -> None:
    upstream = b'data:{"choices":[{"index":0,"delta":{"content":\ndata:  " ok"}}]}\n\ndata:[DONE]\n\n'
    assert play(upstream).deltas == [({"role": "assistant", "content": " ok"}, None), ({}, "stop")]


@pytest.mark.parametrize("text", ["a\u2028b\u0085c\u2029d", "done ✅", "你好🦀", "a\x0bb\x0cc\x1cd\x1de\x1ef"])
@pytest.mark.parametrize("content_type", ["text/event-stream", "text/event-stream; charset=iso-8859-1"])
def test_text_comes_through_byte_for_byte(play: Play, text: str, content_type: str) -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": json.dumps({"t": text})}}
    spoken = chunk({"role": "assistant", "content": text}) + chunk({"tool_calls": [call]}) + STOP + usage(3, 4) + DONE
    heard = play(spoken, content_type=content_type, chunk=1)
    assert heard.deltas[0][0]["content"] == text
    assert heard.deltas[1][0]["tool_calls"] == [call]
    assert "\ufffd" not in heard.response.text
    assert heard.billed == (3, 4, "reported")


def test_bytes_that_are_not_text_are_an_error_and_no_crash(play: Play) -> None:
    broken = b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n'
    assert play(broken + STOP + DONE).error == (502, "upstream_invalid_response")
    heard = play(OK + broken + STOP + DONE)
    assert heard.payloads[-1]["error"]["code"] == "upstream_invalid_response"
    assert heard.usage.basis == "estimated"


def test_an_error_spread_over_lines_before_the_first_word_is_a_real_error(play: Play) -> None:
    heard = play(b'event: error\ndata: {"error":\ndata: {"message":"quota","code":429}}\n\n')
    assert heard.error == (429, "upstream_rate_limited")
    assert (heard.usage.charge, heard.usage.basis) == (Decimal(0), "nothing")


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_the_first_event_is_not_kept_for_the_last(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, newline: bytes
) -> None:
    upstream = (OK + STOP + DONE).replace(b"\n", newline)
    first = len(OK.replace(b"\n", newline))
    # The line end is parted, and what comes after it lets the client wait.
    pauses = f"{first - 1}:50ms,{first}:2s"
    option = simulated.script(f"slow-{len(newline)}", upstream, pauses=pauses)
    model = make_model(make_provider(simulated.base_url), f"sim-small?{option}").slug
    synchronize(gateway)
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with gateway.client.stream(
        "POST", "/v1/chat/completions", json=body, headers={"x-api-key": alice.secret}
    ) as response:
        lines = response.iter_lines()
        assert '"content":"ok"' in next(lines)
        assert simulated.state()["answering"] == 1
        assert list(lines)[-2] == "data: [DONE]"


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "none", SSE])
def test_what_an_answer_is_is_told_by_its_bytes_not_by_its_type(play: Play, content_type: str) -> None:
    streamed = b": ping\n\n" + OK + STOP + usage(3, 1) + DONE
    complete = whole({"role": "assistant", "content": "ok"}, usage={"prompt_tokens": 3, "completion_tokens": 1})
    broken = json.dumps({"error": {"message": "slow down", "code": 429}}).encode()
    for upstream, deltas in ((streamed, SIMPLE), (complete, PARTED)):
        for delivery in ({}, {"chunk": 7}):
            heard = play(upstream, content_type=content_type, **delivery)
            assert heard.deltas == deltas
            assert heard.billed == (3, 1, "reported")
            heard = play(upstream, content_type=content_type, body={"stream": False}, **delivery)
            assert heard.response.headers["content-type"] == "application/json"
            assert heard.response.json()["choices"][0]["message"]["content"] == "ok"
            assert heard.billed == (3, 1, "reported")
    for stream in (True, False):
        assert play(broken, content_type=content_type, body={"stream": stream}).error == (429, "upstream_rate_limited")
