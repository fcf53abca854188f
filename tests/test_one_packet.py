"""An answer's head and body leave in one packet, and nothing is lost or late where no body follows."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.serve import Connection

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
LIMIT_SECONDS = 5


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Connection, socket.socket]]:
    """Our end of a connection, as the server uses it, and the client's socket, which does not block."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
    try:
        yield Connection(transport, loop), theirs
    finally:
        transport.abort()
        theirs.close()


async def received(client: socket.socket) -> bytes:
    """What comes next, in one read."""
    async with asyncio.timeout(LIMIT_SECONDS):
        return await asyncio.get_running_loop().sock_recv(client, 65536)


async def test_the_head_waits_for_the_body() -> None:
    async with connected() as (line, client):
        line.write(HEAD)
        with pytest.raises(BlockingIOError):
            client.recv(1)
        line.write(b"hello")
        assert await received(client) == HEAD + b"hello"
        line.write(b"more")
        assert await received(client) == b"more"


async def test_a_head_without_a_body_goes_out_in_the_same_turn() -> None:
    async with connected() as (line, client):
        line.write(HEAD)
        assert await received(client) == HEAD


async def test_an_interim_answer_goes_first() -> None:
    async with connected() as (line, client):
        line.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        line.write(HEAD)
        line.write(b"hello")
        assert await received(client) == b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + b"hello"


@pytest.mark.parametrize("end", ["close", "part"])
async def test_a_head_is_out_before_the_connection_ends(end: str) -> None:
    async with connected() as (line, client):
        line.write(HEAD)
        getattr(line, end)()
        assert await received(client) == HEAD
        assert await received(client) == b""
        line.lost()


async def test_a_head_that_nobody_can_get_any_more_is_dropped() -> None:
    async with connected() as (line, client):
        line.write(HEAD)
        line.abort()
        assert await received(client) == b""
