"""How an answer leaves: its head and its body's first part in one packet, framed as the head says, or not at all."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.door.exchange import Exchange
from gateway.door.server import Connection

LIMIT_SECONDS = 5
HEAD = b"HTTP/1.1 200 OK\r\nserver: us\r\ncontent-type: text/plain\r\n"


class Client:
    """The client's socket, which does not block, and whether our side says that the exchange is over."""

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.answered = False

    async def received(self) -> bytes:
        """What comes next, in one read."""
        async with asyncio.timeout(LIMIT_SECONDS):
            return await asyncio.get_running_loop().sock_recv(self.socket, 65536)

    def on_response(self) -> None:
        """The exchange is over."""
        self.answered = True


@asynccontextmanager
async def exchange(method: str = "GET", *, keep_alive: bool = True) -> AsyncIterator[tuple[Exchange, Client]]:
    """An exchange of a connection, and its client."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop, logger = asyncio.get_running_loop(), logging.getLogger("uvicorn.error")
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    line: Any = Connection(transport, loop)
    scope: Any = {"type": "http", "method": method}
    client = Client(theirs)
    try:
        yield (
            Exchange(
                scope, line, FlowControl(line), logger, logger, False, [(b"server", b"us")], asyncio.Event(), False,
                keep_alive, client.on_response,
            ),
            client,
        )  # fmt: skip
    finally:
        transport.abort()
        line.lost()
        theirs.close()


def start(*headers: tuple[bytes, bytes], status: int = 200) -> dict[str, Any]:
    """The message that begins an answer."""
    return {"type": "http.response.start", "status": status, "headers": [(b"Content-Type", b"text/plain"), *headers]}


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    """The message that goes on with it."""
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_the_head_waits_for_the_body() -> None:
    async with exchange() as (ours, client):
        await ours.send(start((b"content-length", b"9")))
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        await ours.send(part(b"hello", more=True))
        assert await client.received() == HEAD + b"content-length: 9\r\n\r\nhello"
        assert not client.answered
        await ours.send(part(b"more"))
        assert await client.received() == b"more"
        assert client.answered


async def test_a_body_of_unknown_length_is_chunked() -> None:
    async with exchange() as (ours, client):
        await ours.send(start())
        await ours.send(part(b"a" * 17, more=True))
        assert await client.received() == HEAD + b"transfer-encoding: chunked\r\n\r\n11\r\n" + b"a" * 17 + b"\r\n"
        await ours.send(part(b"", more=True))  # which would end it
        await ours.send(part(b"b"))
        assert await client.received() == b"1\r\nb\r\n0\r\n\r\n"
        assert client.answered


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("GET", 204), ("GET", 304)])
async def test_an_answer_without_a_body_is_its_head(method: str, status: int) -> None:
    async with exchange(method) as (ours, client):
        await ours.send(start(status=status))
        await ours.send(part(b""))
        head = await client.received()
        assert head.endswith(b"\r\ncontent-type: text/plain\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert client.answered


async def test_head_says_the_length_and_sends_nothing_of_it() -> None:
    async with exchange("HEAD") as (ours, client):
        await ours.send(start((b"content-length", b"5")))
        await ours.send(part(b"hello"))
        assert await client.received() == HEAD + b"content-length: 5\r\n\r\n"


@pytest.mark.parametrize(("keep_alive", "headers"), [(False, []), (True, [(b"Connection", b"close")])])
async def test_the_last_answer_of_a_connection_says_so_and_ends_it(
    keep_alive: bool, headers: list[tuple[bytes, bytes]]
) -> None:
    async with exchange(keep_alive=keep_alive) as (ours, client):
        await ours.send(start((b"content-length", b"2"), *headers))
        await ours.send(part(b"hi"))
        assert await client.received() == HEAD + b"content-length: 2\r\nconnection: close\r\n\r\nhi"
        assert await client.received() == b""


@pytest.mark.parametrize(
    "header",
    [
        (b"x", b"a\r\nset-cookie: b"), (b"x", b"a\n"), (b"x", b"\x00"), (b"x", b"\x7f"),
        (b"x: y\r\nz", b"a"), (b"x y", b"a"), (b"", b"a"), (b"x:", b"a"), ("ü".encode(), b"a"),
    ],
)  # fmt: skip
async def test_what_no_header_can_be_is_not_sent(header: tuple[bytes, bytes]) -> None:
    async with exchange() as (ours, client):
        with pytest.raises(RuntimeError, match="header"):
            await ours.send(start(header))
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)


@pytest.mark.parametrize("body", [b"1234", b"123456"])
async def test_a_body_of_another_length_than_was_said_is_not_sent(body: bytes) -> None:
    async with exchange() as (ours, client):
        await ours.send(start((b"content-length", b"5")))
        with pytest.raises(RuntimeError, match="length"):
            await ours.send(part(body))
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
        assert not client.answered


async def test_messages_out_of_place_are_refused() -> None:
    async with exchange() as (ours, _):
        with pytest.raises(RuntimeError, match="out of place"):
            await ours.send(part(b"hi"))
        await ours.send(start((b"content-length", b"2")))
        with pytest.raises(RuntimeError, match="out of place"):
            await ours.send(start())
        await ours.send(part(b"hi"))
        with pytest.raises(RuntimeError, match="out of place"):
            await ours.send(part(b""))


async def test_nothing_is_sent_to_who_has_gone() -> None:
    async with exchange() as (ours, client):
        await ours.send(start())
        ours.disconnected = True
        await ours.send(part(b"hi"))
        with pytest.raises(BlockingIOError):
            client.socket.recv(1)
