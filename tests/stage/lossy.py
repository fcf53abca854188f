"""A relay between the product and PostgreSQL that swallows one reply and cuts the connection: the commit is done, and
nobody is told.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

READY = ord("Z")  # ReadyForQuery: a reply is whole, and what it answers is committed


class Lossy:
    """Counts replies over all its connections; the `swallow`-th is not passed on. `url` is the way through it."""

    def __init__(self, url: str, swallow: int) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 5432
        self._parts = parts
        self._left = swallow
        self.url = url
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def swallowed(self) -> bool:
        """Whether the reply has been met."""
        return self._left <= 0

    async def serve(self) -> asyncio.Server:
        """Starts to listen, and sets `url`."""
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, _, _ = self._parts.netloc.rpartition("@")
        joint = "&" if self._parts.query else ""
        # Encryption would hide where a reply ends.
        query = f"{self._parts.query}{joint}sslmode=disable&gssencmode=disable"
        self.url = urlunsplit(self._parts._replace(netloc=f"{user}@127.0.0.1:{port}", query=query))
        return server

    async def stop(self) -> None:
        """Ends what is still connected."""
        tasks = list(self._open)
        for upward in self._open.values():
            upward.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, upward = await asyncio.open_connection(self._host, self._port)
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = upward
        asking = asyncio.create_task(_copy(reader, upward))
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer(upstream, writer)
        asking.cancel()
        upward.close()
        writer.close()
        del self._open[task]

    async def _answer(self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on whole replies, message by message (PostgreSQL's protocol: a type, then a length of four bytes)."""
        reply = b""
        while True:
            head = await upstream.readexactly(5)
            reply += head + await upstream.readexactly(int.from_bytes(head[1:], "big") - 4)
            if head[0] == ord("R"):  # while it authenticates, the client must answer before the reply is whole
                writer.write(reply)
                reply = b""
            if head[0] == READY:
                self._left -= 1
                if self._left == 0:
                    return
                writer.write(reply)
                await writer.drain()
                reply = b""


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


@asynccontextmanager
async def lossy(url: str, swallow: int) -> AsyncIterator[Lossy]:
    """A relay to the database at `url`, listening."""
    relay = Lossy(url, swallow)
    server = await relay.serve()
    try:
        yield relay
    finally:
        server.close()
        await relay.stop()
        await server.wait_closed()
