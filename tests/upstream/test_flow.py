"""The client where more comes than is read: what is not read on, what holds the sender back, what still comes whole."""

import asyncio

import pytest

from gateway.upstream.connection import READ_BUFFER
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from tests.upstream.raw_upstream import (
    CHUNKED,
    PATIENCE,
    Peer,
    RawUpstream,
    answer,
    call,
    chunk,
    client,
    on_both_loops,
    says,
)


@on_both_loops
async def test_a_body_past_the_limit_is_not_read_on() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await peer.pour(chunk(b"x" * 65536))

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        with pytest.raises(UpstreamFault) as caught:
            await reply.read_all(limit=1_000_000)
        assert caught.value.kind is Fault.INVALID_RESPONSE
        await asyncio.sleep(0.2)
        # One limit, our buffer and the system's: not what the upstream would have liked to send.
        assert server.sent < 16_000_000


@on_both_loops
async def test_a_body_of_declared_size_past_the_limit_is_not_read_at_all() -> None:
    async with (
        RawUpstream(says(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000001\r\n\r\nxx")) as server,
        client(server) as upstream,
    ):
        reply = await upstream.dial(call(server))
        async with asyncio.timeout(5):
            with pytest.raises(UpstreamFault) as caught:
                await reply.read_all()
        assert caught.value.kind is Fault.INVALID_RESPONSE


@on_both_loops
async def test_an_unread_answer_holds_the_sender_back() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED)
        await peer.pour(chunk(b"x" * 65536))

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        last = -1
        while server.sent != last:  # Until the buffers on the way are full.
            last = server.sent
            await asyncio.sleep(0.2)
        assert server.sent < 16_000_000
        reply.abort()


@on_both_loops
async def test_an_upstream_may_answer_before_it_has_read_the_request() -> None:
    async def script(peer: Peer) -> None:
        if peer.number == 1:
            await peer.head()
            await peer.send(answer(b"too large", status="413 Content Too Large"))
            await asyncio.sleep(60)
        await says(answer(b"ok"))(peer)

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server, body=b"x" * 20_000_000))
        assert (reply.status, await reply.read_all()) == (413, b"too large")
        # The rest of that request is not prepended to the next.
        assert await (await upstream.dial(call(server))).read_all() == b"ok"
        assert server.connections == 2


@pytest.mark.parametrize("more", [0, 1, 2000])
@on_both_loops
async def test_an_answer_in_very_many_pieces_that_is_read_late_comes_whole(more: int) -> None:
    sent, unread = asyncio.Event(), asyncio.Event()
    # So many unread pieces, however small, stop the reading; the first to be too many may be the last to have come.
    pieces = [b"%d," % number for number in range(READ_BUFFER // 16 + more)]
    said = b"".join(map(chunk, pieces))

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + said)
        sent.set()
        await unread.wait()
        await peer.send(said + chunk(b""))
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        await sent.wait()
        await asyncio.sleep(0.05)  # for our side to have it all, unread
        read = await reply.read()
        while data := reply.take():
            read += data
        unread.set()
        async with asyncio.timeout(PATIENCE):
            assert read + await reply.read_all() == b"".join(pieces) * 2
