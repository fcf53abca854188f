"""Connections of the client: kept, found stale, poisoned, cancelled, given back, and never left behind."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault
from tests.upstream.raw_upstream import (
    CHUNKED,
    PATIENCE,
    Peer,
    RawUpstream,
    Script,
    answer,
    call,
    chunk,
    client,
    on_both_loops,
)

ENDINGS = [Peer.close, Peer.reset]


def closes_when_asked_again(ending: Callable[[Peer], None], *, said: bytes = b"", patient: int = 0) -> Script:
    """A keep-alive that ends at the wrong moment: one answer, and at the next request `said` and the end.

    Connections numbered above `patient`, when that is set, serve on.
    """

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"%d" % peer.number))
        while await peer.request():
            if patient and peer.number > patient:
                await peer.send(answer(b"%d" % peer.number))
                continue
            await peer.send(said)
            await asyncio.sleep(0.2 if said else 0)  # A reset throws away what the other side has not read.
            ending(peer)
            await peer.left()

    return script


@pytest.mark.parametrize("ending", ENDINGS)
@on_both_loops
async def test_a_kept_connection_that_is_closed_as_we_send_is_told_and_nothing_is_sent_again(
    ending: Callable[[Peer], None],
) -> None:
    async with RawUpstream(closes_when_asked_again(ending)) as server, client(server) as upstream:
        assert await (await upstream.dial(call(server, body=b"first"))).read_all() == b"1"
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(call(server, body=b"second"))
        assert (caught.value.kind, caught.value.stale) == (Fault.UNREACHABLE, True)
        bodies = [request.partition(b"\r\n\r\n")[2] for request in server.requests]
        assert (bodies, server.connections) == ([b"first", b"second"], 1)
        assert await (await upstream.dial(call(server, body=b"second"))).read_all() == b"2"
        assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize("ending", ENDINGS)
@on_both_loops
async def test_the_other_kept_ones_are_not_used_any_more_and_a_fresh_dial_uses_none(
    ending: Callable[[Peer], None],
) -> None:
    together = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        if peer.number <= 4:
            if peer.number == 4:
                together.set()
            await together.wait()
        await peer.send(answer(b"%d" % peer.number))
        while await peer.request():
            ending(peer)
            await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        first = await asyncio.gather(*[upstream.dial(call(server)) for _ in range(4)])
        assert sorted([await reply.read_all() for reply in first]) == [b"1", b"2", b"3", b"4"]
        assert await (await upstream.dial(replace(call(server), fresh=True))).read_all() == b"5"
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(call(server))
        assert caught.value.stale
        assert await (await upstream.dial(call(server))).read_all() == b"6"
        assert (server.connections, len(server.requests)) == (6, 7)


@pytest.mark.parametrize("ending", ENDINGS)
@on_both_loops
async def test_on_a_new_connection_it_is_the_providers_fault(ending: Callable[[Peer], None]) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        ending(peer)
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(call(server))
        assert (caught.value.kind, caught.value.stale) == (Fault.UNREACHABLE, False)
        assert (server.connections, len(server.requests)) == (1, 1)


@pytest.mark.parametrize("ending", ENDINGS)
@on_both_loops
async def test_once_a_byte_of_an_answer_came_nothing_is_sent_again(ending: Callable[[Peer], None]) -> None:
    async with (
        RawUpstream(closes_when_asked_again(ending, said=b"HTTP/1.1 2")) as server,
        client(server) as upstream,
    ):
        assert await (await upstream.dial(call(server))).read_all() == b"1"
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(call(server))
        assert caught.value.kind is Fault.TRUNCATED
        assert (server.connections, len(server.requests)) == (1, 2)


@on_both_loops
async def test_a_connection_is_kept_for_a_while_only() -> None:
    closed: list[int] = []
    news = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(answer())
        closed.append(peer.number)
        news.set()

    async with RawUpstream(script) as server, client(server, idle_connection_seconds=0.05) as upstream:
        assert await (await upstream.dial(call(server))).read_all() == b"{}"
        async with asyncio.timeout(PATIENCE):
            await news.wait()  # The client closes it by itself.
        assert closed == [1]
        assert await (await upstream.dial(call(server))).read_all() == b"{}"
        assert (server.connections, len(server.requests)) == (2, 2)


@on_both_loops
async def test_the_connection_used_last_goes_on_and_those_not_needed_are_closed() -> None:
    everyone = asyncio.Event()
    closed: list[int] = []

    async def script(peer: Peer) -> None:
        while await peer.request():
            if peer.number == 4:
                everyone.set()
            await everyone.wait()
            await peer.send(answer(b"%d" % peer.number))
        closed.append(peer.number)

    async with RawUpstream(script) as server, client(server, idle_connection_seconds=1.0) as upstream:
        first = await asyncio.gather(*[upstream.dial(call(server)) for _ in range(4)])
        for reply in first:
            last = await reply.read_all()
        async with asyncio.timeout(PATIENCE):
            while len(closed) < 3:
                assert await (await upstream.dial(call(server))).read_all() == last
                await asyncio.sleep(0.01)
        assert (sorted([*closed, int(last)]), server.connections) == ([1, 2, 3, 4], 4)


@pytest.mark.parametrize(
    "unasked", [answer(b"planted"), answer(b"", "Connection: close", status="408 Request Timeout"), b"x"]
)
@on_both_loops
async def test_what_an_upstream_says_unasked_is_nobodys_answer(unasked: bytes) -> None:
    kept, closed = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"%d" % peer.number))
        if peer.number == 1:
            await kept.wait()
            await peer.send(unasked)
            await peer.left()
            closed.set()
        await peer.left()

    async with RawUpstream(script) as server, client(server, idle_connection_seconds=60) as upstream:
        assert await (await upstream.dial(call(server))).read_all() == b"1"
        kept.set()
        async with asyncio.timeout(PATIENCE):
            await closed.wait()
        assert await (await upstream.dial(call(server))).read_all() == b"2"


@pytest.mark.parametrize("unseen", [answer(b"planted"), b""], ids=["an answer", "the end"])
@on_both_loops
async def test_what_came_in_just_now_on_a_kept_connection_is_noticed_before_the_request_goes_out(
    unseen: bytes,
) -> None:
    peers: list[Peer] = []

    async def script(peer: Peer) -> None:
        peers.append(peer)
        while await peer.request():
            await peer.send(answer(b"%d" % peer.number))
        await peer.left()

    async with RawUpstream(script) as server, client(server) as upstream:
        assert await (await upstream.dial(call(server))).read_all() == b"1"
        peers[0].say_at_once(unseen)
        assert await (await upstream.dial(call(server))).read_all() == b"2"
        assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.parametrize("gap", [False, True])
@on_both_loops
async def test_bytes_past_the_length_end_the_connection_and_are_nobodys_answer(gap: bool) -> None:
    gone = asyncio.Queue[int]()

    async def script(peer: Peer) -> None:
        await peer.request()
        if gap:
            await peer.send(answer(b"%d" % peer.number))
            await asyncio.sleep(0.05)
            await peer.send(answer(b"planted"))
        else:
            await peer.send(answer(b"%d" % peer.number) + answer(b"planted"))
        assert await peer.left() == 0  # No second request comes this way.
        gone.put_nowait(peer.number)

    async with RawUpstream(script) as server, client(server, idle_connection_seconds=60) as upstream:
        for number in range(1, 4):
            assert await (await upstream.dial(call(server))).read_all() == b"%d" % number
            async with asyncio.timeout(PATIENCE):
                assert await gone.get() == number


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("size", [2, 30_000_000], ids=["sent", "half sent"])
@on_both_loops
async def test_a_cancelled_dial_closes_its_socket_at_once(size: int, times: int) -> None:
    gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        arrived.set()
        await asyncio.sleep(0.3)  # Nothing is read meanwhile: a large body fills every buffer on the way.
        gone.set_result(await peer.left())

    async with RawUpstream(script) as server, client(server) as upstream:
        task = asyncio.create_task(upstream.dial(call(server, body=b"x" * size)))
        await arrived.wait()
        for _ in range(times):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE):
            assert await gone <= max(2, size // 2)  # The rest was not flushed first.


@on_both_loops
async def test_a_dial_cancelled_at_any_moment_leaves_nothing_open() -> None:
    open_now = 0

    async def script(peer: Peer) -> None:
        nonlocal open_now
        open_now += 1
        try:
            while await peer.request():
                await peer.send(CHUNKED, chunk(b"data: 1\n\n"), chunk(b""))
        finally:
            open_now -= 1

    async with RawUpstream(script) as server, client(server) as upstream:
        finished = 0
        for turns in list(range(30)) * 4:
            task = asyncio.create_task(upstream.dial(call(server)))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                (await task).abort()
                finished += 1
        assert finished < 120
        async with asyncio.timeout(PATIENCE):
            while open_now:  # noqa: ASYNC110 (the other side is a socket; there is nothing to wait on)
                await asyncio.sleep(0.01)
        assert await (await upstream.dial(call(server))).read_all() == b"data: 1\n\n"


@on_both_loops
async def test_abort_closes_at_once_and_may_be_repeated() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"data: 1\n\n"))
        await peer.left()
        gone.set()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert await reply.read() == b"data: 1\n\n"
        waiting = asyncio.create_task(reply.read())
        await asyncio.sleep(0)
        reply.abort()
        reply.abort()
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
            with pytest.raises(UpstreamFault) as caught:
                await waiting  # Whoever was waiting is told.
        assert caught.value.kind is Fault.TRUNCATED
        with pytest.raises(UpstreamFault):
            await reply.read()
        await reply.release()


@on_both_loops
async def test_release_keeps_a_connection_whose_last_bytes_come_soon() -> None:
    released = asyncio.Event()

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(CHUNKED + chunk(b"data: [DONE]\n\n"))
            await released.wait()
            await peer.send(chunk(b""))

    async with RawUpstream(script) as server, client(server) as upstream:
        for _ in range(3):
            released.clear()
            reply = await upstream.dial(call(server))
            assert await reply.read() == b"data: [DONE]\n\n"
            releasing = asyncio.create_task(reply.release())
            await asyncio.sleep(0)
            released.set()
            await releasing
        assert server.connections == 1


@pytest.mark.parametrize("babble", [False, True])
@on_both_loops
async def test_release_closes_a_connection_that_does_not_come_to_its_end(babble: bool) -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"data: [DONE]\n\n"))
        if babble:
            await peer.pour(chunk(b"x" * 65536))
        await peer.left()
        gone.set()

    async with RawUpstream(script) as server, client(server) as upstream:
        reply = await upstream.dial(call(server))
        assert (await reply.read()).startswith(b"data: [DONE]\n\n")
        async with asyncio.timeout(PATIENCE):
            await reply.release()
            await gone.wait()
        assert server.sent < 16_000_000  # What fits into the buffers on the way; it is not read on and on.


@on_both_loops
async def test_many_calls_are_in_flight_at_once_and_answers_keep_to_their_calls() -> None:
    everyone = asyncio.Event()

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            if peer.number == 300:
                everyone.set()
            await everyone.wait()
            await peer.send(answer(request.partition(b"\r\n\r\n")[2]))

    async with RawUpstream(script) as server, client(server) as upstream:

        async def one(number: int) -> bytes:
            return await (await upstream.dial(call(server, body=b"%d" % number))).read_all()

        assert await asyncio.gather(*map(one, range(300))) == [b"%d" % number for number in range(300)]
        assert server.connections == 300
        assert await asyncio.gather(*map(one, range(300))) == [b"%d" % number for number in range(300)]
        assert server.connections == 300


@on_both_loops
async def test_close_ends_what_is_open() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(CHUNKED + chunk(b"data: 1\n\n"))
        await peer.left()
        gone.set()

    async with RawUpstream(script) as server:
        async with client(server) as upstream:
            reply = await upstream.dial(call(server))
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
            with pytest.raises(UpstreamFault):
                while await reply.read():
                    pass
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(call(server))
        assert caught.value.kind is Fault.UNREACHABLE
        assert server.connections == 1
