"""The client over TLS: who cannot prove to be the name we asked for is told nothing, and nothing goes out
in plain."""

import asyncio
import ssl
from pathlib import Path

import pytest

from gateway.upstream.client import Dial, Target, Upstream
from gateway.wire.errors import UpstreamFault
from routing.base_url import BaseUrl
from routing.egress import Egress
from routing.health.faults import Fault
from tests.upstream.authority import Authority
from tests.upstream.raw_upstream import PATIENCE, Peer, RawUpstream, TableResolver, answer, on_both_loops, says


def post(server: RawUpstream, connect_timeout: float = 5.0) -> Dial:
    base = BaseUrl("https", "api.test", server.port)
    target = Target("POST", base, "/v1/chat/completions", (), connect_timeout)
    return Dial(target, [("Authorization", "Bearer sk-1")], b"{}")


def tls_client(server: RawUpstream, context: ssl.SSLContext | None) -> Upstream:
    """A client that finds the server under the name api.test, which it lists."""
    egress = Egress(frozenset({("https", "api.test", server.port)}))
    return Upstream(egress, resolver=TableResolver({"api.test": [["127.0.0.1"]]}), ssl_context=context)


@on_both_loops
async def test_https_works_and_asks_for_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    asked: list[str | None] = []
    context = authority.serving("api.test")
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    async with RawUpstream(says(answer()), context=context) as server:
        upstream = tls_client(server, authority.trusting())
        for _ in range(2):
            assert await (await upstream.dial(post(server))).read_all() == b"{}"
        assert (asked, server.connections) == (["api.test"], 1)
        await upstream.close()


@pytest.mark.parametrize("fault", ["expired", "another name", "unknown authority", "no TLS"])
@on_both_loops
async def test_a_server_that_cannot_prove_itself_is_unreachable_and_told_nothing(tmp_path: Path, fault: str) -> None:
    authority = Authority(tmp_path)
    context = {
        "expired": authority.serving("api.test", days=-1),
        "another name": authority.serving("127.0.0.1", "evil.test"),
        "unknown authority": authority.serving("api.test"),
        "no TLS": None,
    }[fault]
    heard: list[bytes] = []

    async def script(peer: Peer) -> None:
        if context is None:
            await peer.send(answer(b"plain"))
            heard.append(b"%d" % await peer.left())
        else:
            heard.append(await peer.request())

    async with RawUpstream(script, context=context) as server:
        trusted = None if fault == "unknown authority" else authority.trusting()
        upstream = tls_client(server, trusted)
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(post(server))
        assert caught.value.kind is Fault.UNREACHABLE
        await upstream.close()
        assert server.requests == [] and b"".join(heard).isdigit() is (context is None and heard != [])


@on_both_loops
async def test_a_server_that_stays_silent_in_the_handshake_is_a_timeout() -> None:
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.left()
        gone.set()

    async with RawUpstream(script) as server:
        upstream = tls_client(server, None)
        with pytest.raises(UpstreamFault) as caught:
            await upstream.dial(post(server, connect_timeout=0.2))
        assert caught.value.kind is Fault.TIMEOUT
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        await upstream.close()


@on_both_loops
async def test_a_cancelled_dial_over_tls_waits_for_no_farewell(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    arrived, gone = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        arrived.set()
        await peer.left()
        gone.set()

    async with RawUpstream(script, context=authority.serving("api.test")) as server:
        upstream = tls_client(server, authority.trusting())
        task = asyncio.create_task(upstream.dial(post(server)))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(PATIENCE):
            await gone.wait()
        await upstream.close()
