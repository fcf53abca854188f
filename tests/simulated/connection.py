"""One TCP connection: HTTP requests in, raw bytes out, and at once the news that the client has left."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast
from urllib.parse import parse_qs, unquote

import httptools

from .plan import Request


class Exchange(Protocol):
    """One request under way on a connection, which tells it when its client leaves."""

    def client_left(self) -> None:
        """The client closed the connection; called at once, never twice."""


class Connection(asyncio.Protocol):
    """Reads requests one by one; `begin` answers each, at once or as an exchange that ends with `free`.

    The connection never stops reading, whatever it writes: that is how a client that leaves is noticed at
    once. A client that closes its sending half has left, too.
    """

    def __init__(
        self,
        begin: Callable[["Connection", Request], Exchange | None],
        opened: Callable[["Connection"], int],
        lost: Callable[["Connection"], None],
    ) -> None:
        self._begin, self._opened, self._lost = begin, opened, lost
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        self._exchange: Exchange | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._open = False
        self._last = False  # the request's own `Connection: close`
        self.handed = 0  # bytes given to the transport
        self.poisoned = False  # the next request is reset, unread
        self.control = False  # it has asked for a control endpoint

    # --- what asyncio calls ---
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface without the class.
        self._transport = cast(asyncio.Transport, transport)
        self._open = True
        self.number = self._opened(self)

    def data_received(self, data: bytes) -> None:
        if self.poisoned:
            self.reset()
            return
        if self._idle is not None:
            self._idle.cancel()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.close()

    def eof_received(self) -> None:
        self._client_left()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client_left()
        self._lost(self)

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    # --- what the parser calls ---
    def on_message_begin(self) -> None:
        self._url = b""
        self._headers: list[tuple[str, str]] = []
        self._body: list[bytes] = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        if ("expect", "100-continue") in self._headers:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        path, _, query = self._url.decode("latin-1").partition("?")
        self._requests.append(
            Request(
                method=self._parser.get_method().decode(),
                path=unquote(path),
                query=parse_qs(query, keep_blank_values=True) if query else {},
                headers=tuple(self._headers),
                body=b"".join(self._body),
                target=self._url.decode("latin-1"),
            )
        )
        self._last = not self._parser.should_keep_alive()
        if self._exchange is None:
            self._next()

    # --- what answers call ---
    def write(self, data: bytes) -> None:
        """Hands bytes to the transport; `may_write` tells when it wants more."""
        if self._open:
            self._transport.write(data)
            self.handed += len(data)

    async def may_write(self) -> None:
        """Returns when less than the transport's high-water mark (64 KiB) waits to be sent.

        Never returns once the connection is lost: `client_left` follows, and until then a transport that
        failed to write takes everything without ever asking to pause.
        """
        if self._transport.is_closing():
            await asyncio.get_running_loop().create_future()
        await self._may_write.wait()

    async def flushed(self) -> None:
        """Returns when the kernel has everything: it looks again and again, since no event tells."""
        while self._transport.get_write_buffer_size():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    def unsent(self) -> int:
        """Bytes handed over that the kernel has not taken."""
        return self._transport.get_write_buffer_size()

    def free(self, idle: float | None = None) -> None:
        """The answer is over: the next request is read, or the connection closes `idle` seconds from now."""
        self._exchange = None
        self._answered()
        if idle is not None:
            self._idle = asyncio.get_running_loop().call_later(idle, self.close)
        self._next()

    def close(self) -> None:
        """FIN, after what was written. No exchange is told: it is this side that leaves."""
        self._open = False
        self._exchange = None
        self._transport.close()

    def reset(self) -> None:
        """RST, now; what the kernel has not sent is lost."""
        self._open = False
        self._exchange = None
        # Lingering for 0 seconds is how a socket asks for RST instead of FIN.
        raw = self._transport.get_extra_info("socket")
        if raw.fileno() != -1:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._transport.abort()

    def _next(self) -> None:
        while self._open and self._exchange is None and self._requests:
            self._exchange = self._begin(self, self._requests.popleft())
            if self._exchange is None:
                self._answered()

    def _answered(self) -> None:
        if self._last and not self._requests:
            self.close()

    def _client_left(self) -> None:
        self._open = False
        self._requests.clear()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_left()
