"""Bodies: how large, how odd, how wrong they may be, and that a refused one costs nothing."""

import json
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.models import Attempt, Hold, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.raw import CHAT, HI, Line, chat, dial, head, post
from tests.stage.shelf import make_model, make_provider

LIMIT = 32 * 1024 * 1024
MiB = 1024 * 1024
FUZZED = int(os.environ.get("FUZZED_BODIES", "1000"))


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that answers at once."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    return slug


@contextmanager
def nothing_happens(tenant: Tenant, simulated: SimulatedProvider) -> Iterator[None]:
    """Nothing is dialled, held or billed for the tenant meanwhile."""
    before = simulated.state()["requests"], Attempt.objects.count()
    yield
    assert (simulated.state()["requests"], Attempt.objects.count()) == before
    assert not Hold.objects.filter(key=tenant.key.id).exists()
    assert not Usage.objects.filter(organization=tenant.organization.id).exists()


def resident(gateway: Gateway) -> int:
    """Bytes of memory the gateway uses."""
    pages = int(Path(f"/proc/{gateway.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def files(gateway: Gateway) -> set[str]:
    """Files that the gateway has open, deleted ones too; no sockets or pipes."""
    found = set()
    for descriptor in Path(f"/proc/{gateway.process.pid}/fd").iterdir():
        try:
            found.add(str(descriptor.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return {name for name in found if name.startswith("/") and not name.startswith("/dev/")}


# --- large ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/nope", "/nope", "/api"])
@pytest.mark.parametrize("key", ["", "Authorization: Bearer sk-ml-wrong"])
def test_a_large_body_without_a_key_is_refused_unread_and_the_refusal_can_be_read(
    gateway: Gateway, path: str, key: str
) -> None:
    expected = 401 if path in (CHAT, "/v1/models") else 404
    request = head(f"POST {path}", f"Content-Length: {100 * MiB}", *filter(None, [key]))
    with dial(gateway) as line:
        line.send(request)  # and no byte of the body
        assert line.answer().status == expected
    memory, opened = resident(gateway), files(gateway)
    with dial(gateway) as line:
        line.send(request)
        for _ in range(100):
            line.send(bytes(MiB))
        assert resident(gateway) - memory < 4 * MiB
        assert files(gateway) == opened
        answer = line.answer()
        assert (answer.status, answer.headers["connection"]) == (expected, "close")
        line.socket.shutdown(1)
        assert line.rest() == b""


def test_an_endless_body_without_a_key_is_ended(gateway: Gateway) -> None:
    memory = resident(gateway)
    chunk = b"100000\r\n" + bytes(MiB) + b"\r\n"
    with dial(gateway) as line:
        line.send(head(f"POST {CHAT}", "Transfer-Encoding: chunked"))
        sent = 0
        while not select.select([line.socket], [], [], 0)[0]:
            line.send(chunk)
            sent += 1
            assert sent < 50
        assert line.answer().code == "missing_api_key"
        with pytest.raises(ConnectionError):  # what it goes on sending is thrown away for a while
            for _ in range(1000):
                line.send(chunk)
    assert resident(gateway) - memory < 4 * MiB


def sized(model: str, size: int) -> bytes:
    """A body of exactly `size` bytes: a picture, most of it."""
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,@"}}
    body = {"model": model, "messages": [{"role": "user", "content": [{"type": "text", "text": "?"}, picture]}]}
    before, after = json.dumps(body).encode().split(b"@")
    return before + b"A" * (size - len(before) - len(after)) + after


def chunked(secret: str, data: bytes) -> Iterator[bytes]:
    """A chat request without Content-Length."""
    yield head(f"POST {CHAT}", f"Authorization: Bearer {secret}", "Transfer-Encoding: chunked")
    for at in range(0, len(data), 200_000):
        part = data[at : at + 200_000]
        yield f"{len(part):x}\r\n".encode() + part + b"\r\n"
    yield b"0\r\n\r\n"


@pytest.mark.parametrize("size", [3 * MiB // 2, 20 * MiB, LIMIT])
def test_a_large_body_within_the_limit_is_answered(gateway: Gateway, alice: Tenant, model: str, size: int) -> None:
    data = sized(model, size)
    with dial(gateway) as line:
        line.send(post(alice.secret, data))
        assert line.answer().status == 200
        for part in chunked(alice.secret, data):
            line.send(part)
        assert line.answer().status == 200


@pytest.mark.parametrize("size", [LIMIT + 1, 100 * MiB])
def test_a_body_past_the_limit_is_refused_with_the_limit_named(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, model: str, size: int
) -> None:
    data = sized(model, size)
    with nothing_happens(alice, simulated):
        with dial(gateway) as line:
            line.send(post(alice.secret, data))
            announced = line.answer()
        with dial(gateway) as line:
            for part in chunked(alice.secret, data):
                line.send(part)
            counted = line.answer()
    for answer in (announced, counted):
        assert (answer.status, answer.code) == (413, "request_too_large")
        assert f" {LIMIT} bytes" in answer.json["error"]["message"]
        assert answer.headers["connection"] == "close"


def test_bytes_past_an_understated_length_are_not_part_of_the_body(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, model: str
) -> None:
    request = chat(alice.secret, model)
    _, _, body = request.partition(b"\r\n\r\n")
    with nothing_happens(alice, simulated), dial(gateway) as line:
        line.send(request.replace(f"Content-Length: {len(body)}".encode(), b"Content-Length: 5"))
        answer = line.answer()
        assert (answer.status, answer.code) == (400, "invalid_json")
        assert line.rest() == b""


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("Content-Type: text/plain", 415),
        ("Content-Type: multipart/form-data; boundary=x", 415),
        ("Content-Type: application/x-www-form-urlencoded", 415),
        ("Content-Encoding: gzip", 415),
        ("Content-Type: Application/JSON; charset=utf-8", 200),
        ("Content-Encoding: identity", 200),
    ],
)
def test_only_json_is_taken(gateway: Gateway, alice: Tenant, model: str, header: str, status: int) -> None:
    with dial(gateway) as line:
        line.send(chat(alice.secret, model, header))
        assert line.answer().status == status


# --- odd ------------------------------------------------------------------------------------------------------------

GOOD = b'{"model":"%s","max_tokens":5,"stream":false,"messages":[{"role":"user","content":"hi"}]}'
ODD = {
    "nothing": b"",
    "blanks": b" \n",
    "half": GOOD[:-9],
    "two": GOOD + GOOD,
    "deep arrays": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "deep and whole": GOOD[:-1] + b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "a long integer": GOOD.replace(b":5", b":" + b"9" * 5000),
    "a long fraction": GOOD.replace(b":5", b":0." + b"9" * 5000),
    "NaN": GOOD.replace(b":5", b":NaN"),
    "infinity": GOOD.replace(b":5", b":-Infinity"),
    "1e999": GOOD.replace(b":5", b":1e999"),
    "model twice": GOOD[:-1] + b',"model":"other"}',
    "model twice, escaped": GOOD[:-1] + b',"mod\\u0065l":"other"}',
    "max_tokens twice": GOOD[:-1] + b',"max_tokens":1}',
    "stream twice": GOOD[:-1] + b',"stream":true}',
    "messages twice": GOOD[:-1] + b',"messages":[]}',
    "role twice": GOOD.replace(b'"content"', b'"role":"system","content"'),
    "a lone surrogate": GOOD.replace(b"hi", b"\\ud800"),
    "a lone surrogate as key": GOOD[:-1] + b',"\\udfff":1}',
    "an encoded surrogate": GOOD.replace(b"hi", b"\xed\xa0\x80"),
    "bad UTF-8": GOOD.replace(b"hi", b"\xff"),
    "overlong UTF-8": GOOD.replace(b"hi", b"\xc0\xaf"),
    "half a character": GOOD.replace(b"hi", b"\xe4\xbd"),
    "UTF-16": GOOD.decode().encode("utf-16"),
    "UTF-16 without a mark": GOOD.decode().encode("utf-16-le"),
    "UTF-32": GOOD.decode().encode("utf-32"),
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "NUL in text": GOOD.replace(b"hi", b"\x00"),
    "NUL behind": GOOD + b"\x00",
    "a control character": GOOD.replace(b"hi", b"\x1f"),
    "single quotes": GOOD.replace(b'"', b"'"),
    "a comment": b"// \n" + GOOD,
    "a form": b"model=x&messages=y",
    "a page": b"<!DOCTYPE html><html></html>",
}


def many_keys() -> bytes:
    """Made when it is sent: it is large."""
    return b"{" + b",".join(b'"k%d":1' % at for at in range(1_000_000)) + b"}"


@pytest.mark.parametrize("name", [*ODD, "many keys"])
def test_a_body_that_is_not_strictly_json_is_refused(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, model: str, name: str
) -> None:
    body = ODD[name].replace(b"%s", model.encode()) if name in ODD else many_keys()
    with nothing_happens(alice, simulated), dial(gateway) as line:
        line.send(post(alice.secret, body))
        answer = line.answer()
        assert (answer.status, answer.code) == (400, "invalid_json")
        assert answer.json["error"]["type"] == "invalid_request_error"
        assert len(answer.body) < 500
        if " twice" in name:
            key = name.partition(" ")[0]
            assert answer.json["error"]["param"] == key
            assert f"'{key}'" in answer.json["error"]["message"]
        line.send(chat(alice.secret, "no/such"))
        assert line.answer().status == 404


PIECES = [
    *(b"", b"\x00", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"null", b"true", b"-1"),
    *(b"1e9", b"1e999", b"NaN", b'"model":"x",', b"\xed\xa0\x80", b"\\ud800", b"[" * 70, b"9" * 400, b'{"a":1}'),
]


def mutated(models: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Real bodies with a few bytes cut, doubled, swapped or replaced."""
    whole: list[dict[str, Any]] = [
        {"messages": HI, "max_tokens": 5, "temperature": 0.5, "user": "u"},
        {"messages": HI, "stream": True, "stream_options": {"include_usage": True}, "n": 2},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "é\u2028"}]}], "stop": ["a", "b"]},
        {"messages": HI, "tools": [{"type": "function", "function": {"name": "f"}}], "metadata": {"a": "b"}},
    ]
    bodies = st.builds(
        lambda model, rest: json.dumps({"model": model, **rest}).encode(), models, st.sampled_from(whole)
    )
    pieces = st.sampled_from(PIECES) | st.binary(max_size=3)

    def edited(body: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
        for at, width, piece in edits:
            place = at % (len(body) + 1)
            body = body[:place] + piece + body[place + width :]
        return body

    edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 12), pieces), min_size=1, max_size=4)
    return st.builds(edited, bodies, edits) | st.binary(max_size=40)


@pytest.mark.timeout(max(300, FUZZED // 100))
def test_no_body_is_ever_an_error_of_ours(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, model: str
) -> None:
    line, asked = Line(gateway), count(1)
    answered: list[str] = []

    @settings(max_examples=FUZZED, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(mutated(st.just(model)))
    def refuse_or_answer(body: bytes) -> None:
        line.send(post(alice.secret, body))
        answer = line.answer()
        next(asked)
        if "x-generation-id" in answer.headers:
            answered.append(answer.headers["x-generation-id"])
        else:
            assert 400 <= answer.status < 500, answer
            assert answer.code

    try:
        refuse_or_answer()
    finally:
        line.socket.close()
    # Only those that were answered were dialled.
    usages = Usage.objects.filter(organization=alice.organization.id)
    assert {usage.id.hex for usage in usages if usage.status == "completed"} == set(answered)
    assert next(asked) > FUZZED
    assert not Hold.objects.filter(key=alice.key.id).exists()
