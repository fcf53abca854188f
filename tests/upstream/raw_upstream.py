"""An upstream that says exactly the bytes a test wants, on real sockets, and notes what it was sent.

For tests of the client: what a provider's HTTP library would never send (half a header, two framings, a
reset) has to be written by hand. Also canaries, listeners that nobody may reach, and a resolver that answers
from a table.
"""

import asyncio
import functools
import inspect
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import pytest
import uvloop
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.upstream.client import Dial, Target, Upstream
from routing.base_url import parse_base_url
from routing.egress import Egress

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
PATIENCE = 10.0  # seconds; a test that waits so long has failed

Test = Callable[..., Coroutine[Any, Any, None]]


def on_both_loops(test: Test) -> Callable[..., None]:
    """Run an async test under asyncio's loop and under uvloop; no task may be left at its end.

    The gateway runs under one and the worker's tasks under the other, and their transports differ in just
    what these tests are about: closing, aborting, half-closed connections.
    """

    @functools.wraps(test)
    def run(loop_name: str, **arguments: object) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(3 * PATIENCE):
                await test(**arguments)
            if left := asyncio.all_tasks() - {asyncio.current_task()}:
                _, left = await asyncio.wait(left, timeout=1)  # The servers' own take a turn or two to end.
                assert not left, f"tasks left behind: {left}"

        with asyncio.Runner(loop_factory=LOOPS[loop_name]) as runner:
            runner.run(bounded())

    signature = inspect.signature(test)
    first = inspect.Parameter("loop_name", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [first, *signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop_name", LOOPS)(run)


def answer(body: bytes = b"{}", *headers: str, status: str = "200 OK") -> bytes:
    """A whole answer with a Content-Length."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1") + body


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; an empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n"


class Peer:
    """One accepted connection, as the upstream sees it; `number` counts from 1."""

    def __init__(self, upstream: "RawUpstream", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = upstream.connections
        self._upstream = upstream
        self._reader = reader
        self._writer = writer

    async def request(self) -> bytes:
        """The next whole request as it came, b"" when the client has closed; also noted in `requests`."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")]
            request = head + await self._reader.readexactly(sum(lengths))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        self._upstream.requests.append(request)
        return request

    async def head(self) -> None:
        """Read a request's headers and leave its body where it is; the next 64 kB of that may be read with
        them.
        """
        await self._reader.readuntil(b"\r\n\r\n")

    async def send(self, *pieces: bytes) -> None:
        """Send the pieces one by one, each when the system has taken the one before."""
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(0)

    async def pour(self, piece: bytes) -> None:
        """Send `piece` for ever, until the client closes; `sent` counts the bytes."""
        try:
            while True:
                await self.send(piece)
                self._upstream.sent += len(piece)
        except ConnectionError:
            pass

    def say_at_once(self, data: bytes) -> None:
        """Hand `data`, or for b"" the end, to the system before this returns: no loop has seen it yet."""
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as sock:
            if data:
                sock.sendall(data)
            else:
                sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the connection in good order (FIN)."""
        self._writer.close()

    def reset(self) -> None:
        """Break the connection (RST)."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def left(self) -> int:
        """Wait until the client has closed; how many bytes came before that."""
        count = 0
        try:
            while data := await self._reader.read(1 << 20):
                count += len(data)
        except ConnectionError:
            pass
        return count


Script = Callable[[Peer], Awaitable[None]]


class RawUpstream(AbstractAsyncContextManager["RawUpstream"]):
    """A server on a port of its own. `script` runs for each connection, which is broken off when it
    returns.
    """

    def __init__(self, script: Script, *, host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> None:
        self._script = script
        self._host = host
        self._context = context
        self._failures: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.requests: list[bytes] = []
        self.sent = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0, ssl=self._context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failures and kind is None:
            raise self._failures[0]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            await self._script(Peer(self, reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        except BaseException as exc:
            self._failures.append(exc)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


def says(*pieces: bytes, then: Callable[[Peer], object] | None = None) -> Script:
    """A script: for each request send `pieces`, then (`Peer.close`, `Peer.reset`) end it, or wait for the
    next.
    """

    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(*pieces)
            if then is not None:
                then(peer)
                await peer.left()
                return

    return script


class Canaries(AbstractAsyncContextManager["Canaries"]):
    """Listeners on 127.0.0.1, ::1 and 127.0.0.2, on one port, that must stay untouched."""

    async def __aenter__(self) -> Self:
        self.touched: dict[int, str] = {}  # the port it came from, and the host it came to
        self._news = asyncio.Event()
        hosts = ["127.0.0.1", "127.0.0.2"] + (["::1"] if has_ipv6() else [])
        sockets = [socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) for host in hosts]
        sockets[0].bind((hosts[0], 0))
        self.port: int = sockets[0].getsockname()[1]
        for sock, host in zip(sockets[1:], hosts[1:], strict=True):
            sock.bind((host, self.port))
        self._servers = [
            await asyncio.start_server(functools.partial(self._touch, host), sock=sock)
            for sock, host in zip(sockets, hosts, strict=True)
        ]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        # One connection of our own to each: when that has been seen, so has whatever came before it.
        for server in self._servers:
            _, writer = await asyncio.open_connection(server.sockets[0].getsockname()[0], self.port)
            ours = writer.get_extra_info("sockname")[1]
            async with asyncio.timeout(PATIENCE):
                while self.touched.pop(ours, None) is None:
                    self._news.clear()
                    await self._news.wait()
            writer.close()
            server.close()
        if kind is None:
            assert self.touched == {}, "a canary was reached"

    async def _touch(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.touched[writer.get_extra_info("peername")[1]] = host
        self._news.set()
        writer.close()


def has_ipv6() -> bool:
    """Whether this machine has ::1."""
    with socket.socket(socket.AF_INET6) as sock:
        try:
            sock.bind(("::1", 0))
        except OSError:
            return False
    return True


class TableResolver(AbstractResolver):
    """Answers from `table`: for each name a list of answers, one used up a question, the last for ever."""

    def __init__(self, table: dict[str, list[list[str]]]) -> None:
        self._table = {name: list(answers) for name, answers in table.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The next answer for `host`; an unknown name is an OSError, as from the system."""
        self.asked.append(host)
        answers = self._table.get(host)
        if answers is None:
            raise OSError(None, f"{host}: no such name")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


def call(
    server: RawUpstream,
    path: str = "/v1/chat/completions",
    body: bytes = b'{"model":"m"}',
    method: str = "POST",
    headers: tuple[tuple[str, str], ...] = (("Authorization", "Bearer sk-1"),),
    always: tuple[tuple[str, str], ...] = (),
) -> Dial:
    """A call to `server`, by address; `always` are the headers of all calls to its target."""
    target = Target(method, parse_base_url(f"http://127.0.0.1:{server.port}"), path, always, 5.0)
    return Dial(target, headers, body)


@asynccontextmanager
async def client(*servers: RawUpstream, idle_connection_seconds: float = 4.0) -> AsyncIterator[Upstream]:
    """A client that may dial these servers and nothing else."""
    allow = frozenset(("http", "127.0.0.1", server.port) for server in servers)
    upstream = Upstream(Egress(allow), idle_connection_seconds=idle_connection_seconds)
    try:
        yield upstream
    finally:
        await upstream.close()
