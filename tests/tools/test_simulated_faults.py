"""Each fault of the simulated provider does on the wire what its name says, and bills what was said."""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests import simulated
from tests.simulated.faults import FAULTS
from tests.simulated.oddities import GARBAGE
from tests.simulated.process import SimulatedProvider, start
from tests.simulated.raw import ask, counts, dial, drain, leave_after, read_events, request, usage

NOTHING = (0, 0, 0, 0)
ASKED = {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def process() -> Iterator[SimulatedProvider]:
    with start() as provider:
        yield provider


@pytest.fixture
def provider(process: SimulatedProvider) -> SimulatedProvider:
    process.reset()
    return process


# --- broken off ---
@pytest.mark.parametrize(
    ("fault", "ended", "framed", "contents", "line"),
    [
        ("reset_mid@3", "reset", False, ["", "You", " said:"], ("reset", 2, 3)),
        ("cut_mid@3", "fin", False, ["", "You", " said:"], ("closed", 2, 3)),
        ("cut_mid@0", "fin", False, [], ("closed", 0, 0)),
        ("fin_mid@3", "fin", True, ["", "You", " said:"], ("complete", 2, 3)),
        ("fin_mid@99", "fin", True, ["", "You", " said:", " hello"], ("complete", 3, 4)),
        ("fin_after_finish", "fin", True, ["", "You", " said:", " hello", None], ("complete", 3, 5)),
    ],
)
def test_a_stream_breaks_off(
    provider: SimulatedProvider,
    fault: str,
    ended: str,
    framed: bool,
    contents: list[Any],
    line: tuple[str, int, int],
) -> None:
    seen = ask(provider, f"sim?tokens=3&fault={fault}", **ASKED)
    assert (seen.status, seen.ended, seen.chunks[1]) == (200, ended, framed)
    assert seen.contents == contents
    (billed,) = provider.bill()
    assert (billed["ended"], billed["completion_tokens"], billed["events"]) == line
    assert billed["prompt_tokens"] == (6 if contents else 0)
    assert (billed["fault"], billed["usage"]) == (fault.partition("@")[0], None)


@pytest.mark.parametrize(
    ("fault", "ended", "billed"),
    [("reset_mid", "reset", "reset"), ("cut_mid", "fin", "closed"), ("fin_mid", "fin", "complete")],
)
def test_a_whole_answer_breaks_off_in_the_middle(
    provider: SimulatedProvider, fault: str, ended: str, billed: str
) -> None:
    good = ask(provider, "sim?model_echo=m").body
    seen = ask(provider, f"sim?model_echo=m&fault={fault}")
    assert (seen.ended, len(seen.body)) == (ended, len(good) // 2)
    assert dict(seen.headers).get("content-length") == (None if fault == "fin_mid" else str(len(good)))
    line = provider.bill()[1]
    assert (line["ended"], counts(line), line["usage"]) == (billed, (6, 0, 16, 0), None)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "ended", "status"),
    [("reset_before", "reset", None), ("close_before", "fin", None), ("reset_headers", "reset", 200)],
)
def test_it_breaks_before_the_body(
    provider: SimulatedProvider, fault: str, ended: str, status: int | None, stream: bool
) -> None:
    seen = ask(provider, f"sim?fault={fault}", stream=stream)
    assert seen.ended == ended
    if status is None:
        assert seen.raw == b""
    else:
        assert (seen.status, seen.body) == (status, b"")
    (line,) = provider.bill()
    assert (line["status"], line["bytes"], counts(line)) == (status, len(seen.raw), NOTHING)


@pytest.mark.parametrize(
    ("fault", "expected", "status", "events", "billed"),
    [
        ("hang", b"", None, 0, NOTHING),
        ("hang_headers", b"\r\n\r\n", 200, 0, NOTHING),
        ("hang_mid@2", b'"You"', 200, 2, (6, 0, 1, 0)),
        ("slow@1000s", b"", None, 0, NOTHING),
        ("drip&every=1000s", b"\r\n\r\n1\r\nd", 200, 1, (6, 0, 0, 0)),
    ],
)
def test_it_is_silent_until_the_client_leaves(
    provider: SimulatedProvider,
    fault: str,
    expected: bytes,
    status: int | None,
    events: int,
    billed: tuple[int, int, int, int],
) -> None:
    line = leave_after(provider, f"sim?fault={fault}", expected, stream=True)
    assert (line["status"], line["events"], counts(line)) == (status, events, billed)
    assert provider.until(sockets=0)["waiting"] == 0


def test_a_dripped_answer_is_the_answer(provider: SimulatedProvider) -> None:
    seen = ask(provider, "sim?fault=drip&every=0&tokens=2", **ASKED)
    assert all(len(chunk) == 1 for chunk in seen.chunks[0])
    assert (seen.text, seen.events[-2]["usage"]) == ("You said:", usage(6, 2))
    assert counts(provider.bill()[0]) == (6, 0, 2, 0)
    assert ask(provider, "sim?fault=slow@1ms&tokens=2", stream=True).text == "You said:"


# --- refused ---
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("options", "status", "kind", "code"),
    [
        ("status=400", 400, "invalid_request_error", "context_length_exceeded"),
        ("status=400&code=content_filter", 400, "invalid_request_error", "content_filter"),
        ("status=401", 401, "invalid_request_error", "invalid_api_key"),
        ("status=402", 402, "insufficient_quota", "insufficient_credit"),
        ("status=403", 403, "permission_error", "permission_denied"),
        ("status=404", 404, "invalid_request_error", "model_not_found"),
        ("status=429", 429, "rate_limit_error", "rate_limit_exceeded"),
        ("status=500", 500, "server_error", "internal_error"),
        ("status=503", 503, "server_error", "service_unavailable"),
        ("status=529", 529, "overloaded_error", "overloaded"),
        ("fault=error_in_200", 200, "rate_limit_error", 429),
        ("fault=error_in_200&status=529", 200, "overloaded_error", 529),
    ],
)
def test_it_refuses(
    provider: SimulatedProvider, options: str, status: int, kind: str, code: str | int, stream: bool
) -> None:
    seen = ask(provider, f"sim?{options}&message=so%20there", stream=stream)
    assert (seen.status, dict(seen.headers)["content-type"]) == (status, "application/json")
    assert seen.json == {"error": {"message": "so there", "type": kind, "param": None, "code": code}}
    (line,) = provider.bill()
    assert (line["ended"], line["status"], counts(line)) == ("complete", status, NOTHING)


def test_refusals_say_when_to_come_back_and_where_to_go(provider: SimulatedProvider) -> None:
    late = ask(provider, "sim?status=429&retry_after=Wed%2C%2021%20Oct%202099%2007:28:00%20GMT")
    assert ("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT") in late.headers
    moved = ask(provider, "sim?redirect=http://127.0.0.1:1/x%3Fa%3Db%26c")
    assert (moved.status, dict(moved.headers)["location"]) == (307, "http://127.0.0.1:1/x?a=b&c")
    assert ask(provider, "sim?redirect=/&status=301").status == 301
    page = ask(provider, "sim?fault=html_502")
    assert (page.status, len(page.body), page.body.count(b"SECRET-INTERNAL")) == (502, 50 * 1024, 1)
    assert ask(provider, "sim?fault=html_502&status=503").status == 503


def test_streams_carry_errors(provider: SimulatedProvider) -> None:
    error = {"message": "Rate limit reached.", "type": "rate_limit_error", "param": None, "code": 429}
    first = ask(provider, "sim?fault=error_first_event", stream=True)
    assert (first.status, first.events, first.chunks[1]) == (200, [{"error": error}], True)
    middle = ask(provider, "sim?fault=error_mid@2&status=529", stream=True)
    assert [event.get("error", {}).get("code") for event in middle.events] == [None, None, 529]
    assert [counts(line) for line in provider.bill()] == [NOTHING, (6, 0, 1, 0)]


# --- unreadable ---
@pytest.mark.parametrize("stream", [False, True])
def test_bodies_cannot_be_read(provider: SimulatedProvider, stream: bool) -> None:
    for fault, body in (("garbage", GARBAGE), ("empty_body", b""), ("br", GARBAGE)):
        seen = ask(provider, f"sim?fault={fault}", stream=stream)
        assert (seen.status, seen.body) == (200, body)
        assert dict(seen.headers).get("content-encoding") == ("br" if fault == "br" else None)
    assert {counts(line) for line in provider.bill()} == {NOTHING}


def test_one_event_is_broken_and_the_rest_is_right(provider: SimulatedProvider) -> None:
    json_half = ask(provider, "sim?tokens=2&fault=half_json@2", stream=True).chunks[0]
    assert json_half[2] == b'data: {"id":"half","choices":[{"index":0,"del\n\n'
    text_half = ask(provider, "sim?tokens=2&fault=half_utf8@1", stream=True).chunks[0]
    assert text_half[1].count(b'"content":"\xe2\x82"') == 1
    for chunks, place in ((json_half, 2), (text_half, 1)):
        events = read_events(b"".join(chunks[:place] + chunks[place + 1 :]))
        assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == "You said:"
        assert events[-1] == "[DONE]"
    assert {counts(line) for line in provider.bill()} == {(6, 0, 2, 0)}


def test_a_whole_answer_is_half_json_or_half_a_character(provider: SimulatedProvider) -> None:
    good = ask(provider, "sim?id=i&model_echo=m").body
    half = ask(provider, "sim?id=i&model_echo=m&fault=half_json")
    assert half.body == good[: len(good) // 2]
    assert ("content-length", str(len(good) // 2)) in half.headers
    broken = ask(provider, "sim?id=i&model_echo=m&fault=half_utf8").body
    assert broken == good.replace(b'"assistant"', b'"assistant\xe2\x82"')


def test_answers_are_empty(provider: SimulatedProvider) -> None:
    whole = ask(provider, "sim?fault=empty_choices").json
    assert (whole["choices"], "usage" in whole) == ([], False)
    streamed = ask(provider, "sim?fault=empty_choices", stream=True).events
    assert (streamed[0]["choices"], streamed[1:]) == ([], ["[DONE]"])
    assert ask(provider, "sim?fault=done_only", stream=True).body == b"data: [DONE]\n\n"
    assert ask(provider, "sim?fault=comments_only", stream=True).body == b": PROCESSING\n\n: PROCESSING\n\n"
    assert {counts(line) for line in provider.bill()} == {NOTHING}


# --- not right as HTTP ---
def test_the_length_is_wrong(provider: SimulatedProvider) -> None:
    good = len(ask(provider, "sim?model_echo=m").body)
    short = ask(provider, "sim?model_echo=m&fault=bad_length@short")
    assert (dict(short.headers)["content-length"], len(short.body)) == (str(good // 2), good)
    long = ask(provider, "sim?model_echo=m&fault=bad_length@long", headers="")
    assert (dict(long.headers)["content-length"], len(long.body)) == (str(good + 100), good)
    both = ask(provider, "sim?model_echo=m&fault=cl_and_te")
    assert dict(both.headers)["content-length"] == str(good)
    assert (len(both.body), both.chunks[1]) == (good, True)


def test_the_head_is_wrong(provider: SimulatedProvider) -> None:
    assert ask(provider, "sim?fault=http09").raw == b'{"choices":[]}'
    assert ask(provider, "sim?fault=bad_status_line").raw.startswith(b"SIMULATED/7 two hundred\r\n")
    interim = ask(provider, "sim?fault=flood_1xx").raw
    assert interim.startswith(b"HTTP/1.1 102 Processing\r\n\r\n" * 1000 + b"HTTP/1.1 200 OK\r\n")
    flood = ask(provider, "sim?fault=header_flood@5000")
    assert sum(name.startswith("x-flood-") for name, _ in flood.headers) == 5000
    big = ask(provider, "sim?fault=big_header&size=2M")
    assert len(dict(big.headers)["x-big"]) == 2 * 1024 * 1024
    assert flood.json["usage"] == big.json["usage"] == usage(6, 16)


def test_things_are_big(provider: SimulatedProvider) -> None:
    whole = ask(provider, "sim?fault=big_body&size=3M")
    assert len(whole.body) > 3 * 1024 * 1024
    assert ("content-length", str(len(whole.body))) in whole.headers
    assert whole.json["usage"] == usage(6, 16)
    streamed = ask(provider, "sim?fault=big_line&size=3M&tokens=2", **ASKED)
    lines = streamed.body.split(b"\n\n")
    assert len(lines[1]) == len(b"data: {}") + 3 * 1024 * 1024
    assert (streamed.text, streamed.events[-2]["usage"]) == ("You said:", usage(6, 2))


def test_an_endless_stream_stops_when_its_reader_leaves(provider: SimulatedProvider) -> None:
    line = leave_after(provider, "sim?fault=infinite", b'" fixed"', stream=True, max_tokens=1)
    assert (line["fault"], line["prompt_tokens"]) == ("infinite", 6)
    assert line["completion_tokens"] >= 13  # "fixed" is the 13th word
    assert provider.until(sockets=0)["answering"] == 0


# --- compressed ---
def test_gzip_is_the_answer_and_streams_event_by_event(provider: SimulatedProvider) -> None:
    whole = ask(provider, "sim?fault=gzip")
    assert ("content-encoding", "gzip") in whole.headers
    assert json.loads(gzip.decompress(whole.body))["usage"] == usage(6, 16)
    chunks, complete = ask(provider, "sim?fault=gzip&tokens=2", stream=True).chunks
    unpack = zlib.decompressobj(31)
    events = [read_events(unpack.decompress(chunk)) for chunk in chunks]
    assert [len(event) for event in events] == [1, 1, 1, 1, 1, 0]
    assert (events[-2], unpack.eof, complete) == (["[DONE]"], True, True)


def test_gzip_is_cut_short(provider: SimulatedProvider) -> None:
    good = ask(provider, "sim?fault=gzip&id=i&model_echo=m").body
    cut = ask(provider, "sim?fault=gzip_truncated&id=i&model_echo=m")
    assert cut.body == good[: len(good) // 2]
    assert ("content-length", str(len(cut.body))) in cut.headers


@pytest.mark.parametrize("size", [0, 5, 1 << 20, 3 * (1 << 20) + 7])
def test_a_gzip_bomb_is_whole_and_packed_a_thousandfold(provider: SimulatedProvider, size: int) -> None:
    packed = ask(provider, f"sim?fault=gzip_bomb&size={size}").body
    assert gzip.decompress(packed) == b" " * size
    assert len(packed) < 100 + size // 500
    assert counts(provider.bill()[0]) == NOTHING


# --- when ---
def test_the_next_request_on_the_connection_meets_a_reset(provider: SimulatedProvider) -> None:
    with dial(provider) as client:
        client.sendall(request("sim?fault=keepalive_race&tokens=1", headers=""))
        raw = b""
        while not raw.endswith(b"}}}"):
            raw += client.recv(1 << 16)
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n") and b"Connection: close" not in raw
        client.sendall(request("sim", headers=""))
        seen = drain(client)
    assert (seen.raw, seen.ended) == (b"", "reset")
    assert [line["model"] for line in provider.lines()] == ["sim?fault=keepalive_race&tokens=1"] * 2


def test_faults_come_as_often_as_asked(provider: SimulatedProvider) -> None:
    def statuses(model: str, times: int) -> list[int]:
        return [ask(provider, model).status for _ in range(times)]

    assert statuses("sim?status=503&fail_first=2", 4) == [503, 503, 200, 200]
    assert statuses("other?status=503&fail_first=2", 1) == [503]
    assert statuses("sim?status=503&fail_every=3", 7) == [200, 200, 503, 200, 200, 503, 200]
    assert statuses("sim?status=503&flap=1000s", 2) == [503, 503]
    assert [line["fault"] for line in provider.bill()[:4]] == ["status", "status", None, None]
    provider.reset()
    assert statuses("sim?status=503&fail_first=2", 1) == [503]


def test_a_flapping_provider_falls_and_rises(provider: SimulatedProvider) -> None:
    seen = [200]
    while seen[-3:] != [200, 503, 200]:
        assert len(seen) < 1000
        status = ask(provider, "sim?status=503&flap=50ms").status
        if status != seen[-1]:
            seen.append(status)


def test_any_path_may_play_what_needs_no_chat(provider: SimulatedProvider) -> None:
    assert ask(provider, "sim?status=529", path="/v1/messages").status == 529
    assert ask(provider, "sim?fault=reset_before", path="/v1/messages").ended == "reset"
    assert ask(provider, "sim", path="/v1/messages").status == 404
    assert ask(provider, "sim?fault=reset_mid", path="/v1/messages").status == 404
    named = ask(provider, None, path="/v1beta/models/g%3Fstatus=503:streamGenerateContent?alt=sse")
    assert named.status == 503
    assert (provider.bill()[-1]["model"], provider.bill()[-1]["stream"]) == ("g?status=503", True)


@pytest.mark.parametrize(
    "options",
    [
        *("fault=reset", "fault=reset_mid@x", "fault=slow@x", "fault=bad_length", "fault=bad_length@odd"),
        *(
            "fault=infinite",
            "fault=error_mid",
            "as=sse&fault=big_body",
            "fault=hang@1",
            "fault=redirect",
            "fault=half_json@-1",
            "fail_first=1",
            "fault=",
        ),
    ],
)
def test_a_fault_that_cannot_be_played_is_refused(provider: SimulatedProvider, options: str) -> None:
    seen = ask(provider, f"sim?{options}")
    assert (seen.status, seen.json["error"]["code"]) == (400, "bad_option")
    assert provider.bill()[0]["fault"] is None


def test_the_manual_lists_every_fault_and_no_other() -> None:
    manual = (simulated.__doc__ or "").partition("FAULTS.")[2].partition("THE BILL.")[0]
    entries = [line.split()[0].partition("@")[0] for line in manual.splitlines() if re.match(r" {4}\S", line)]
    assert sorted(entries) == sorted(FAULTS.keys() - {"status", "redirect"})
