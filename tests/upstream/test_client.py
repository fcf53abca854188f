"""The client over real sockets: what is sent, what comes back, and how each fault of an upstream is
called.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable

import pytest

from gateway.upstream.client import Dial, Upstream
from gateway.upstream.reply import Reply
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from tests.upstream.raw_upstream import CHUNKED, Peer, RawUpstream, answer, call, chunk, client, on_both_loops, says


async def read_until_fault(reply: Reply) -> tuple[bytes, UpstreamFault]:
    """All that can be read, and the fault at its end."""
    read = b""
    try:
        while piece := await reply.read():
            read += piece
    except UpstreamFault as fault:
        return read, fault
    raise AssertionError(f"no fault after {read!r}")


async def fault_of(upstream: Upstream, server: RawUpstream) -> UpstreamFault:
    with pytest.raises(UpstreamFault) as caught:
        await upstream.dial(call(server))
    return caught.value


@on_both_loops
async def test_it_works() -> None:
    async with (
        RawUpstream(says(answer(b'{"id":"x"}', "Content-Type: application/json", "X-A: 1", "x-a: 2"))) as server,
        client(server) as upstream,
    ):
        reply = await upstream.dial(call(server))
        assert reply.status == 200
        assert reply.headers == {"content-length": "10", "content-type": "application/json", "x-a": "1, 2"}
        assert await reply.read() == b'{"id":"x"}'
        assert await reply.read() == b""
        assert await reply.read() == b""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Accept-Encoding: identity\r\nContent-Length: 13\r\nAuthorization: Bearer sk-1\r\n\r\n"
        )
        assert server.requests == [head.encode() + b'{"model":"m"}']


@on_both_loops
async def test_one_connection_serves_one_call_after_another_and_keeps_no_cookie() -> None:
    async with RawUpstream(says(answer(b"{}", "Set-Cookie: sid=1"))) as server, client(server) as upstream:
        for _ in range(3):
            assert await (await upstream.dial(call(server))).read_all() == b"{}"
        assert server.connections == 1
        assert len(set(server.requests)) == 1 and b"ookie" not in server.requests[0]


@on_both_loops
async def test_calls_to_one_target_differ_in_their_own_headers_and_body_alone() -> None:
    async with RawUpstream(says(answer())) as server, client(server) as upstream:
        target = call(server, always=(("Accept", "application/json"),)).target
        for dial in (Dial(target, [("api-key", "sk-1")], b"one"), Dial(target, [("api-key", "sk-23")], b"three")):
            assert await (await upstream.dial(dial)).read_all() == b"{}"
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n"
            "Accept-Encoding: identity\r\nAccept: application/json\r\n"
        ).encode()
        assert server.requests == [
            head + b"Content-Length: 3\r\napi-key: sk-1\r\n\r\none",
            head + b"Content-Length: 5\r\napi-key: sk-23\r\n\r\nthree",
        ]
        assert server.connections == 1


@on_both_loops
async def test_other_methods_have_their_own_framing() -> None:
    async with RawUpstream(says(answer(b"ok"))) as server, client(server) as upstream:
        for method in ("GET", "DELETE", "POST", "PUT"):
            reply = await upstream.dial(call(server, "/v1/models", b"", method, ()))
            assert await reply.read_all() == b"ok"
        ends = [request.split(b"identity\r\n")[1] for request in server.requests]
        assert ends == [b"\r\n", b"\r\n", b"Content-Length: 0\r\n\r\n", b"Content-Length: 0\r\n\r\n"]
        assert server.connections == 1


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
@on_both_loops
async def test_an_answer_without_a_body_ends_at_its_headers(status: str) -> None:
    said = f"HTTP/1.1 {status}\r\nServer: x\r\n\r\n".encode()
    async with RawUpstream(says(said)) as server, client(server) as upstream:
        for _ in range(2):
            assert await (await upstream.dial(call(server))).read_all() == b""
        assert server.connections == 1


@on_both_loops
async def test_a_large_body_goes_out_whole() -> None:
    body = bytes(range(256)) * 80_000  # 20 MB
    async with RawUpstream(says(answer())) as server, client(server) as upstream:
        assert await (await upstream.dial(call(server, body=body))).read_all() == b"{}"
        assert server.requests[0].partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize(
    "headers",
    [
        (("Host", "evil"),),
        (("content-length", "1"),),
        (("Transfer-Encoding", "chunked"),),
        (("Accept-Encoding", "gzip"),),
        (("Connection", "close"),),
        (("X-A", "1\r\nX-B: 2"),),
        (("X-A", "1\n"),),
        (("X-A", "\0"),),
        (("X-A", "\u20ac"),),
        (("X A", "1"),),
        (("X-A:", "1"),),
        (("", "1"),),
        (("X-\u00e9", "1"),),
    ],
)
@on_both_loops
async def test_a_header_that_must_not_be_sent_reaches_nobody(headers: tuple[tuple[str, str], ...]) -> None:
    async with RawUpstream(says(answer())) as server, client(server) as upstream:
        with pytest.raises(ValueError, match="not a header to send") as caught:
            await upstream.dial(call(server, headers=(("Authorization", "Bearer sk-1"), *headers)))
        assert "sk-1" not in str(caught.value) and "evil" not in str(caught.value)
        with pytest.raises(ValueError, match="not a header to send"):
            await upstream.dial(call(server, always=headers))
        with pytest.raises(ValueError, match="not a method"):
            await upstream.dial(call(server, method="GET / HTTP/1.1\r\n"))
        assert server.connections == 0


@on_both_loops
async def test_events_arrive_one_by_one() -> None:
    more = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"data: 1\n\n"))
        await more.wait()
        await peer.send(chunk(b"data: 2\n\n") + chunk(b""))
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert await reply.read() == b"data: 1\n\n"
        more.set()  # The second event does not exist before the first was read.
        assert await reply.read() == b"data: 2\n\n"
        assert await reply.read() == b""


@on_both_loops
async def test_a_cancelled_read_loses_no_byte() -> None:
    pieces = [b"%04d;" % number for number in range(300)]

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED)
            for number, piece in enumerate(pieces):
                await peer.send(chunk(piece))
                if number % 10 == 0:
                    await asyncio.sleep(0.002)
            await peer.send(chunk(b""))

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        read, cancelled = [b""], 0
        while read[-1] or len(read) == 1:
            try:
                async with asyncio.timeout(0.0005):
                    read.append(await reply.read())
            except TimeoutError:
                cancelled += 1
        assert b"".join(read) == b"".join(pieces)
        assert cancelled > 0
        # The same for a whole body.
        reply = await upstream.dial(call(server))
        whole = None
        while whole is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.0005):
                    whole = await reply.read_all()
        assert whole == b"".join(pieces)
        assert server.connections == 1


@on_both_loops
async def test_interim_answers_are_skipped() -> None:
    interim = b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + b"HTTP/1.1 100 Continue\r\n\r\n" * 3
    async with RawUpstream(says(interim + answer(b"final"))) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert (reply.status, await reply.read_all()) == (200, b"final")
        assert "link" not in reply.headers


MANY_HEADERS = b"".join(b"X-%d: %b\r\n" % (number, b"y" * 1000) for number in range(100))


@pytest.mark.parametrize(
    "said",
    {
        "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/0.9": b"<html>hello</html>\r\n",
        "a version of another kind": b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/0.9 with a status": b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        "no such status": b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n",
        "two framings": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + CHUNKED[17:] + chunk(b""),
        "two framings, turned": CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n" + chunk(b""),
        "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        "a length that is none": b"HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\nhello",
        "a header of 1 MB": b"HTTP/1.1 200 OK\r\nX-A: " + b"y" * 1_000_000,
        "a status line of 1 MB": b"HTTP/1.1 200 " + b"y" * 1_000_000,
        "headers without end": b"HTTP/1.1 200 OK\r\n" + b"X-A: 1\r\n" * 100_000,
        "100 kB of headers": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + MANY_HEADERS + b"\r\n",
        "a NUL in a header": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-A: \0\r\n\r\n",
        "a header without a name": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n: x\r\n\r\n",
        "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        "another protocol": b"HTTP/1.1 101 Switch\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    }.items(),
    ids=lambda item: item[0] if isinstance(item, tuple) else None,
)
@on_both_loops
async def test_what_is_not_an_http_answer_is_an_invalid_response(said: tuple[str, bytes]) -> None:
    async with RawUpstream(says(said[1])) as server, client(server) as upstream:
        fault = await fault_of(upstream, server)
        assert fault.kind is Fault.INVALID_RESPONSE
        assert fault.message == "The provider's answer could not be understood." and len(fault.detail) <= 500
        assert "b'" not in fault.detail and "y" * 20 not in fault.detail  # what was received is not quoted
        # The connection is not used again, and nothing was tried twice.
        await fault_of(upstream, server)
        assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.parametrize("ending", [Peer.close, Peer.reset])
@on_both_loops
async def test_a_new_connection_closed_without_an_answer_is_unreachable(
    ending: Callable[[Peer], None],
) -> None:
    async with RawUpstream(says(then=ending)) as server, client(server) as upstream:
        assert (await fault_of(upstream, server)).kind is Fault.UNREACHABLE
        assert (server.connections, len(server.requests)) == (
            1,
            1,
        )  # It may have been carried out: once only.


@pytest.mark.parametrize("ending", [Peer.close, Peer.reset])
@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"])
@on_both_loops
async def test_an_answer_that_breaks_off_amid_its_headers_is_truncated(
    said: bytes, ending: Callable[[Peer], None]
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(said)
        await asyncio.sleep(0.2)  # A reset throws away what the other side has not read yet.
        ending(peer)

    async with RawUpstream(script) as server, client(server) as upstream:
        assert (await fault_of(upstream, server)).kind is Fault.TRUNCATED
        assert len(server.requests) == 1


@pytest.mark.parametrize("ending", [Peer.close, Peer.reset])
@pytest.mark.parametrize(
    "head",
    [CHUNKED + b"8\r\n", CHUNKED + b"5\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"],
    ids=["amid a chunk", "between chunks", "before its length"],
)
@on_both_loops
async def test_a_body_that_breaks_off_is_truncated_after_what_had_come(
    head: bytes, ending: Callable[[Peer], None]
) -> None:
    enough = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(head + b"hello")
        await enough.wait()
        ending(peer)

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert await reply.read() == b"hello"
        enough.set()
        read, fault = await read_until_fault(reply)
        assert (read, fault.kind, fault.upstream_status) == (b"", Fault.TRUNCATED, 200)
        # A slow reader gets the same: both the bytes and the break are there before it reads.
        enough.clear()
        reply = await upstream.dial(call(server))
        enough.set()
        await asyncio.sleep(0.1)
        read, fault = await read_until_fault(reply)
        assert (read, fault.kind) == (b"hello", Fault.TRUNCATED)
        with pytest.raises(UpstreamFault):
            await reply.read()


@on_both_loops
async def test_a_body_without_a_length_ends_with_the_connection_unless_that_is_reset() -> None:
    enough = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await enough.wait()
        if peer.number == 1:
            peer.close()
            await peer.left()
        else:
            peer.reset()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        enough.set()
        assert await reply.read_all() == b"hello"
        enough.clear()
        reply = await upstream.dial(call(server))
        assert await reply.read() == b"hello"
        enough.set()
        read, fault = await read_until_fault(reply)
        assert (read, fault.kind) == (b"", Fault.TRUNCATED)


@on_both_loops
async def test_a_body_that_stops_being_http_is_an_invalid_response() -> None:
    enough = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"data: 1\n\n"))
        await enough.wait()
        await peer.send(b"zz\r\nnot a chunk\r\n")
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        enough.set()
        read, fault = await read_until_fault(reply)
        assert (read, fault.kind) == (b"data: 1\n\n", Fault.INVALID_RESPONSE)


@on_both_loops
async def test_nobody_listens() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = RawUpstream(says())
        server.port = free.getsockname()[1]
        async with client(server) as upstream:
            fault = await fault_of(upstream, server)
            assert fault.kind is Fault.UNREACHABLE
            assert "127.0.0.1" not in fault.message and fault.upstream_status is None
