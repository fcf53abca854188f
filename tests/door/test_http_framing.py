"""What is HTTP to the gateway and what is not: one request, one answer, and nothing hidden inside another."""

from itertools import product
from typing import Any

import pytest

from billing.models import Attempt, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.raw import CHAT, chat, dial, head, post
from tests.stage.shelf import make_model, make_provider


@pytest.fixture
def model(gateway: Gateway, simulated: SimulatedProvider) -> str:
    """A model that answers at once."""
    slug = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=5").slug
    synchronize(gateway)
    return slug


# --- requests inside requests -----------------------------------------------------------------------------------------

LENGTHS = [
    *("+2", "-2", "0x2", "2 2", "2, 2", "2,2", "2;", "2.0", "", " ", "two", "\x0b2", "9" * 25),
    *("2\r\nContent-Length: 2", "2\r\nContent-Length: 3", "2\r\ncontent-length:2"),
]
CODINGS = [
    *("xchunked", "chunkedx", "identity", "gzip, chunked", "chunked, gzip", "chunked, chunked", "x, chunked"),
    *("chunked;a=b", '"chunked"', "'chunked'", "[chunked]", ",chunked", "chunked,", "chunk ed", "CHUNKED gzip", ""),
    *("\x0bchunked", "chunked\x0b", "chunked\x00", "\r\n chunked", "chunked\r\nTransfer-Encoding: chunked"),
    *("x\r\nTransfer-Encoding: chunked", "chunked\r\nTransfer-Encoding: identity"),
]
CHUNKS = [
    *(b"2\n{}\n0\n\n", b"2\n{}\r\n0\r\n\r\n", b"2\r{}\r\n0\r\n\r\n", b"2\r\n{}\n0\r\n\r\n", b"2\r\n{}xx0\r\n\r\n"),
    *(b"-1\r\n{}\r\n0\r\n\r\n", b"0x2\r\n{}\r\n0\r\n\r\n", b"+2\r\n{}\r\n0\r\n\r\n", b"2 \r\n{}\r\n0\r\n\r\n"),
    *(b" 2\r\n{}\r\n0\r\n\r\n", b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n", b"2;a\nb\r\n{}\r\n0\r\n\r\n"),
    *(b"\r\n{}\r\n0\r\n\r\n", b"2;a\x00\r\n{}\r\n0\r\n\r\n", b"2_0\r\n{}\r\n0\r\n\r\n", b"g\r\n{}\r\n0\r\n\r\n"),
]
LINES = [
    *("GET /healthz", "GET /healthz HTTP/0.9", "GET /healthz HTTP/1.2", "GET /healthz HTTP/2.0", "PRI * HTTP/2.0"),
    *("GET /healthz HTTP/11", "GET /healthz http/1.1", "GET /healthz HTTP/1.1 x", "GET\t/healthz HTTP/1.1"),
    *("GET /healthz\tHTTP/1.1", "get /healthz HTTP/1.1", "FOO /healthz HTTP/1.1", "GET healthz HTTP/1.1"),
    *("GET /heal thz HTTP/1.1", "GET /healthz\x00 HTTP/1.1", "GET /healthz\xff HTTP/1.1", "GET /?\xff HTTP/1.1"),
    *(" GET /healthz HTTP/1.1", "GET http://a HTTP/1.1", "CONNECT a:80 HTTP/1.1"),
]
HEADERS = [
    *("X: y", "Host: a\r\nHost: a", "Host: a\r\nHost: b", "Host: a/?x=", "Host: a b", "Host: a@b", "Host: a, b"),
    *("Host: a#b", "Host: a\x01", "Host: a\\b", "Host : a", " Host: a", "Host: a\r\nabc", "Host: a\r\n: b"),
    *("Host: a\r\nA b: c", "Host: a\r\nA: b\x00c", "Host: a\r\nA: b\x01c", "Host: a\r\nA: b\rC: d"),
    *("Host: a\r\nA: b\nC: d", "Host: a\r\nA: b\r\n c", "Host: a\r\nA\x00: b", "Host: a\r\n\tA: b"),
    *("Host: a\r\nA(b): c", "Host: a\r\nContent-Length\x0b: 2"),
]
HIDDEN = b"GET /healthz HTTP/1.1\r\nHost: hidden\r\n\r\n"
POST = f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n".encode()


def corpus() -> list[bytes]:
    """Requests that two HTTP parsers may read in two ways, most with another request behind."""
    lengths = [POST + f"Content-Length: {value}\r\n\r\n".encode() + b"{}" for value in LENGTHS]
    codings = [POST + f"Transfer-Encoding: {value}\r\n\r\n".encode() + b"0\r\n\r\n" for value in CODINGS]
    chunks = [POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk for chunk in CHUNKS]
    both = [
        POST + "\r\n".join([*order, "", ""]).encode() + b"0\r\n\r\n"
        for length, coding in product(
            ["0", "5", "6", "100"], ["chunked", "Chunked", " chunked", "chunked ", "x, chunked"]
        )
        for fields in [(f"Content-Length: {length}", f"Transfer-Encoding: {coding}")]
        for order in (fields, fields[::-1], (fields[0], "X: y", fields[1]))
    ]
    spaced = [
        POST + f"{name}: {value}\r\n\r\n".encode() + b"0\r\n\r\n"
        for name, value in product(
            ["Content-Length ", "Content-Length\t", "Transfer-Encoding ", "Transfer-Encoding\t", "Content\x0bLength"],
            ["0", "5", "chunked"],
        )
    ]
    old = [POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"]
    bare = [
        (POST + b"Content-Length: 2\r\n\r\n").replace(b"\r\n", b"\n") + b"{}",
        POST + b"Content-Length: 2\n\r\n{}",
        POST + b"Content-Length: 2\r\n\n{}",
        POST + b"A: b\rContent-Length: 2\r\n\r\n{}",
        POST.replace(b"\r\n", b"\r") + b"\r{}",
    ]
    lines = [f"{line}\r\nHost: a\r\n\r\n".encode("latin-1") for line in LINES]
    headers = [f"GET /healthz HTTP/1.1\r\n{fields}\r\n\r\n".encode("latin-1") for fields in HEADERS]
    tls = [bytes.fromhex("16030100") + b"\x00" * 40]
    return [each + HIDDEN for each in lengths + codings + chunks + both + spaced + old + bare + lines + headers + tls]


def test_what_can_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_answered(gateway: Gateway) -> None:
    attempts = Attempt.objects.count()
    requests = corpus()
    assert len(requests) > 150
    for request in requests:
        with dial(gateway) as line:
            line.send(request)
            answer = line.answer()
            assert (answer.status, answer.code) == (400, "malformed_http"), request
            assert len(answer.headers["x-request-id"]) == 32
            assert answer.headers["connection"] == "close"
            line.socket.shutdown(1)
            assert line.rest() == b"", request
    assert Attempt.objects.count() == attempts


def test_odd_but_unambiguous_requests_are_answered_once(gateway: Gateway) -> None:
    for request in (
        b"GET /healthz HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n",
        b"GET http://elsewhere.test/healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz?%ff HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tCHUNKED \r\n\r\n2;ext=1\r\nab\r\n0\r\nX: y\r\n\r\n",
    ):
        with dial(gateway) as line:
            line.send(request)
            assert line.answer("GET").status == 200, request
            line.socket.shutdown(1)
            assert line.rest() == b""


def test_http_1_0_is_answered_and_closed(gateway: Gateway) -> None:
    with dial(gateway) as line:
        line.send(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert line.answer("GET").json == {"status": "ok"}
        assert line.rest() == b""


def test_a_client_that_offers_http_2_is_answered_in_http_1(gateway: Gateway, alice: Tenant, model: str) -> None:
    # As Java's client does with its first request, whose body must not be lost.
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
    with dial(gateway) as line:
        for headers in (offer, (), offer):
            request = chat(alice.secret, model, *headers)
            line.send(request[:-9])
            line.send(request[-9:])
            assert line.answer().json["usage"]["completion_tokens"] == 3
        line.send(head("GET /healthz", *offer) + head("GET /v1/nope", *offer))
        assert [line.answer().status for _ in range(2)] == [200, 404]


def test_headers_are_bounded(gateway: Gateway) -> None:
    for request in (
        head("GET /healthz", *["A: b"] * 300),
        head("GET /healthz", *["A: b"] * 10_000),
        head("GET /healthz", "A: " + "b" * 70_000),
        head("GET /healthz?" + "a" * 70_000),
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: " + b"b" * 70_000,  # and never ends
    ):
        with dial(gateway) as line:
            line.send(request)
            answer = line.answer()
            assert (answer.status, answer.code) == (431, "headers_too_large")
            line.socket.shutdown(1)
            assert line.rest() == b""
    with dial(gateway) as line:
        line.send(head("GET /healthz", "A: " + "b" * 60_000, *["A: b"] * 200))
        assert line.answer().status == 200


def test_trailers_are_bounded_and_never_headers(gateway: Gateway, alice: Tenant, model: str) -> None:
    request = chat(alice.secret, model)
    top, _, body = request.partition(b"\r\n\r\n")
    top = top.replace(f"Content-Length: {len(body)}".encode(), b"Transfer-Encoding: chunked")
    start = top + b"\r\n\r\n" + f"{len(body):x}\r\n".encode() + body + b"\r\n0\r\n"
    with dial(gateway) as line:
        line.send(start + b"Content-Encoding: br\r\nContent-Type: text/html\r\nX-Api-Key: other\r\n\r\n")
        assert line.answer().status == 200
        line.send(start + b"A: " + b"b" * 200_000)
        answer = line.answer()
        assert (answer.status, answer.code) == (431, "headers_too_large")
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


# --- one connection, several requests -------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(gateway: Gateway, alice: Tenant, model: str) -> None:
    key = f"x-api-key: {alice.secret}"
    with dial(gateway) as line:
        line.send(
            chat(alice.secret, model)
            + head("GET /v1/nope", key)
            + chat(alice.secret, model, stream=True)
            + head("GET /healthz")
        )
        first, second, third, fourth = (line.answer() for _ in range(4))
    assert first.json["object"] == "chat.completion"
    assert second.status == 404
    assert third.body.endswith(b"data: [DONE]\n\n")
    assert first.json["id"].encode() not in third.body
    assert fourth.json == {"status": "ok"}


def test_a_connection_is_used_again_after_an_error(gateway: Gateway, alice: Tenant, model: str) -> None:
    key = f"x-api-key: {alice.secret}"
    with dial(gateway) as line:
        for request, status in (
            (head("GET /v1/models"), 401),
            (head("GET /v1/nope", key), 404),
            (post(alice.secret, b"{"), 400),
            (chat(alice.secret, "no/such"), 404),
            (head("DELETE /v1/models", key), 405),
            (chat(alice.secret, model), 200),
        ):
            line.send(request)
            answer = line.answer()
            assert answer.status == status
            assert "connection" not in answer.headers


def test_what_follows_a_whole_request_and_is_no_request_ends_the_connection_after_the_answer(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    with dial(gateway) as line:
        line.send(chat(alice.secret, model) + b"garbage\r\n\r\n" + head("GET /healthz"))
        assert line.answer().json["object"] == "chat.completion"
        assert line.rest() == b""


def test_expect_100_continue_is_answered_before_the_body_only_with_a_key(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    request = chat(alice.secret, model, "Expect: 100-continue")
    top, _, body = request.partition(b"\r\n\r\n")
    with dial(gateway) as line:
        line.send(top + b"\r\n\r\n")
        assert line.answer().status == 100
        line.send(body)
        assert line.answer().status == 200
    with dial(gateway) as line:
        line.send(top.replace(alice.secret.encode(), b"sk-ml-wrong") + b"\r\n\r\n")
        assert line.answer().status == 401


def test_head_is_get_without_a_body(gateway: Gateway, alice: Tenant) -> None:
    key = f"x-api-key: {alice.secret}"
    with dial(gateway) as line:
        for path in ("/v1/models", "/v1/nope", "/healthz"):
            line.send(head(f"GET {path}", key))
            got = line.answer("GET")
            line.send(head(f"HEAD {path}", key))
            without = line.answer("HEAD")
            volatile = ("x-request-id", "date")
            assert without.status == got.status
            assert [item for item in got.headers.items() if item[0] not in volatile] == [
                item for item in without.headers.items() if item[0] not in volatile
            ]
        line.send(head("GET /healthz"))
        assert line.answer("GET").json == {"status": "ok"}


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE"])
def test_a_method_that_an_endpoint_does_not_take_is_405(
    gateway: Gateway, alice: Tenant, model: str, method: str
) -> None:
    with dial(gateway) as line:
        line.send(chat(alice.secret, model, "X-Secret: canary").replace(b"POST", method.encode(), 1))
        answer = line.answer()
    assert (answer.status, answer.code, answer.headers["allow"]) == (405, "method_not_allowed", "POST, OPTIONS")
    assert b"canary" not in answer.body
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


def test_options_with_a_body_says_what_an_endpoint_takes_and_does_nothing(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    with dial(gateway) as line:
        line.send(chat(alice.secret, model, "X-Secret: canary").replace(b"POST", b"OPTIONS", 1))
        answer = line.answer()
    assert (answer.status, answer.body, answer.headers["allow"]) == (204, b"", "POST, OPTIONS")
    assert "canary" not in str(answer.headers)
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


# --- what a client writes stays data --------------------------------------------------------------------------------


def test_nothing_a_client_writes_becomes_a_header_or_a_line_of_the_log(
    gateway: Gateway, alice: Tenant, model: str
) -> None:
    injected = "x\r\nInjected: 1\nINJECTED"
    bodies: tuple[dict[str, Any], ...] = (
        {"model": injected},
        {"user": injected},
        {"metadata": {injected: "a"}},
        {"metadata": {"a": injected}},
        {"safety_identifier": injected},
    )
    with dial(gateway) as line:
        for fields in bodies:
            line.send(chat(alice.secret, **{"model": model, **fields}))
            answer = line.answer()
            assert answer.status == 400
            assert "injected" not in answer.headers
        line.send(head("GET /v1/models/x%0d%0aInjected:%201%0aINJECTED", f"x-api-key: {alice.secret}"))
        answer = line.answer()
        assert answer.status == 404
        assert "injected" not in answer.headers
        line.send(chat(alice.secret, model, "X-Request-Id: mine\tINJECTED", "X-Generation-Id: mine"))
        answer = line.answer()
        assert answer.status == 200
        assert "mine" not in answer.headers["x-request-id"] + answer.headers["x-generation-id"]
    assert not any(row.startswith("INJECTED") for row in gateway.log.read_text().splitlines())
