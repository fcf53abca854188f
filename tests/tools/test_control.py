"""The simulated provider's recordings, keys, models and control endpoints, and what survives its death."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import simulated
from tests.simulated import models
from tests.simulated.process import SimulatedProvider, start
from tests.simulated.raw import ask, counts, dial, drain, request, usage


@pytest.fixture(scope="module")
def process() -> Iterator[SimulatedProvider]:
    with start() as provider:
        yield provider


@pytest.fixture
def provider(process: SimulatedProvider) -> SimulatedProvider:
    process.reset()
    return process


# --- recordings ---
RECORDED = 'data: {"a": "\N{CRAB}"}\r\n\r\ndata: [DONE]\n\n'.encode()


def test_a_recording_is_served_byte_for_byte(provider: SimulatedProvider) -> None:
    model = "sim?" + provider.script("deep/one.sse", RECORDED, prompt=5, completion=7)
    seen = ask(provider, model, stream=True)
    assert seen.headers == [
        ("content-type", "text/event-stream; charset=utf-8"),
        ("transfer-encoding", "chunked"),
    ]
    assert seen.chunks == ([RECORDED], True)
    assert counts(provider.bill()[0]) == (5, 0, 7, 0)
    for length in (1, 5):
        chunks, complete = ask(provider, "sim?" + provider.script("cut", RECORDED, chunk=length)).chunks
        assert chunks == [RECORDED[at : at + length] for at in range(0, len(RECORDED), length)]
        assert complete


def test_a_recording_says_how_it_is_delivered(provider: SimulatedProvider) -> None:
    headers = ["X-A: 1", "X-A: 2"]
    option = provider.script("s", b"{}", status=418, content_type="none", header=headers, transfer="length")
    seen = ask(provider, f"sim?{option}")
    assert (seen.status, seen.body) == (418, b"{}")
    assert seen.headers == [("x-a", "1"), ("x-a", "2"), ("content-length", "2")]
    raw = ask(provider, "sim?" + provider.script("s", b"HTTP/1.1 200\r\n\r\nx", transfer="raw"))
    assert (raw.raw, raw.ended) == (b"HTTP/1.1 200\r\n\r\nx", "fin")
    for end, ended, complete in (("cut", "fin", False), ("reset", "reset", False), ("complete", "fin", True)):
        seen = ask(provider, "sim?" + provider.script("s", RECORDED, end=end))
        assert (seen.ended, seen.chunks) == (ended, ([RECORDED], complete))
    hung = provider.script("s", b"abcdef", pauses="2:0,4:1000s", transfer="close")
    with dial(provider) as client:
        client.sendall(request(f"sim?{hung}"))
        raw_bytes = b""
        while not raw_bytes.endswith(b"abcd"):
            raw_bytes += client.recv(1 << 16)
    provider.until(answering=0)
    assert (provider.bill()[-1]["events"], provider.bill()[-1]["ended"]) == (2, "client_closed")


def test_recordings_are_read_from_a_folder_and_never_outside_it(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "one.json").write_bytes(b'{"one": 1}')
    (tmp_path / "out.json").write_bytes(b"secret")
    with start(recordings=tmp_path / "in") as provider:
        seen = ask(provider, "sim?script=deep%2Fone.json", path="/v1/messages")
        assert (seen.body, dict(seen.headers)["content-type"]) == (b'{"one": 1}', "application/json")
        for name in ("..%2Fout.json", "deep", "none"):
            seen = ask(provider, f"sim?script={name}")
            assert (seen.status, seen.json["error"]["code"]) == (400, "bad_option")


# --- keys, models, control ---
def test_only_its_keys_are_taken_and_no_secret_is_kept(tmp_path: Path) -> None:
    with start(keys=["sk-simulated-good", "second-good-key"], bill=tmp_path / "bill") as provider:
        for headers, status in (
            ("Authorization: Bearer sk-simulated-good\r\n", 200),
            ("x-api-key: second-good-key\r\n", 200),
            ("x-goog-api-key: sk-simulated-bad\r\n", 401),
            ("Authorization: Bearer short\r\n", 401),
            ("", 401),
        ):
            assert ask(provider, "sim", headers=f"Connection: close\r\n{headers}").status == status
        kept = [line["credential"] and line["credential"]["last4"] for line in provider.bill()]
        assert kept == ["good", "-key", "-bad", "", None]
        assert [counts(line)[2] for line in provider.bill()] == [16, 16, 0, 0, 0]
    assert b"sk-simulated" not in (tmp_path / "bill").read_bytes()


def test_models_are_listed_and_change_what_they_do(provider: SimulatedProvider) -> None:
    def listed() -> list[str]:
        with dial(provider) as client:
            client.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return [model["id"] for model in drain(client).json["data"]]

    assert listed() == list(models.PRESETS)
    provider.behave("sim-small", "status=503")
    provider.behave("mine", "tokens=3&pace=0")
    assert listed() == [*models.PRESETS, "mine"]
    assert ask(provider, "sim-small").status == 503
    assert ask(provider, "mine?reasoning=1").json["usage"] == usage(6, 4, reasoning=1)
    assert ask(provider, "mine?tokens=1").json["usage"] == usage(6, 1)
    with pytest.raises(ValueError, match="unknown option 'tokns'"):
        provider.behave("mine", "tokns=3")
    provider.reset()
    assert listed() == list(models.PRESETS)
    assert ask(provider, "sim-small").json["usage"] == usage(6, 24)


@pytest.mark.parametrize(
    ("model", "code"),
    [
        *((f"sim?{options}", "bad_option") for options in ("tokns=3", "tokens=-1", "tokens=x", "pace=1h", "n=2")),
        *((f"sim?{options}", "bad_option") for options in ("framing=odd", "framing=cr+crlf", "echo=1", "segment=0")),
        *((f"sim?{options}", "bad_option") for options in ("wrong_usage=no", "status=99", "text=%ff", "script=no")),
        ("sim?echo&echo_headers", "bad_option"),
        ("sim?instant&tokens=3", "bad_option"),
        (None, "invalid_request"),
    ],
)
def test_what_it_does_not_know_it_refuses(provider: SimulatedProvider, model: str | None, code: str) -> None:
    seen = ask(provider, model)
    assert (seen.status, seen.json["error"]["code"]) == (400, code)
    (line,) = provider.bill()
    assert (line["status"], counts(line), line["usage"]) == (400, (0, 0, 0, 0), None)


@pytest.mark.parametrize("wrong", [{"messages": "hi"}, {"messages": ["hi"]}, {"n": 0}, {"max_tokens": "9"}])
def test_what_is_no_chat_request_is_refused(provider: SimulatedProvider, wrong: dict[str, Any]) -> None:
    seen = ask(provider, "sim", **wrong)
    assert (seen.status, seen.json["error"]["code"]) == (400, "invalid_request")


def test_the_manual_lists_every_option_and_no_other() -> None:
    manual = (simulated.__doc__ or "").partition("What is said")[2].partition("FAULTS.")[0]
    entries = [line[4:24] for line in manual.splitlines() if re.match(r" {4}\S", line)]
    # An entry is one or more of `key`, `key=` and `key=example`, between spaces or commas.
    named = {key.partition("=")[0] for entry in entries for key in re.split(r"[ ,]+", entry.strip())}
    named -= {"NAME@K"}
    assert named == set(models.READERS)


def test_a_reset_aborts_and_forgets(provider: SimulatedProvider) -> None:
    provider.script("s", b"x")
    with dial(provider) as client:
        client.sendall(request("sim?hold=1", stream=True))
        provider.until(waiting=1)
        provider.reset()
        assert drain(client).ended == "reset"
    state = provider.until(sockets=0)
    assert state == {"waiting": 0, "sockets": 0, "answering": 0, "peak": 0, "requests": {}, "ended": {}}
    assert provider.lines() == []
    assert ask(provider, "sim?script=s").status == 400


def test_the_file_keeps_the_bill_through_resets_and_deaths(tmp_path: Path) -> None:
    bill = tmp_path / "bill.jsonl"

    def lines() -> list[tuple[str, str | None]]:
        read = [json.loads(line) for line in bill.read_bytes().splitlines()]
        return [(line["event"], line.get("ended")) for line in read]

    with start(bill=bill) as provider:
        ask(provider, "sim")
        provider.reset()
        with dial(provider) as client:
            client.sendall(request("sim?hold"))
            provider.until(waiting=1)
            provider.kill()
    assert lines() == [("start", None), ("end", "complete"), ("start", None)]
    with start(bill=bill, port=provider.port) as again, dial(again) as client:
        assert (again.url, again.lines()) == (provider.url, [])
        client.sendall(request("sim?hold"))
        again.until(waiting=1)
        again.stop()
        assert drain(client).raw == b""
    assert lines()[3:] == [("start", None), ("end", "aborted")]
