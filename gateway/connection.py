"""Connections to upstreams: aiohttp's connector and response protocol, guarded and made to tell more.

Only `gateway/upstream.py` uses these. Parts of aiohttp that are not documented are touched here and in
`Reply`, and nowhere else: `TCPConnector._factory`, `ResponseHandler`'s methods,
`StreamReader._read_nowait`. The tests of the client fail when a new release moves them.
"""

import asyncio
import functools
import select
import socket
import ssl
from typing import cast

from aiohttp import ClientPayloadError, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader

from gateway.egress import Egress

MAX_HEADER_LINE = 16 * 1024
MAX_HEADERS = 128
READ_BUFFER = 64 * 1024  # Twice this is buffered before the socket is no longer read.


class Line(ResponseHandler):
    """aiohttp's response protocol, and what it does not tell: whether the connection carried a request before
    (`used`), whether any byte of the answer came (`answered`), and that a body broke off.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.used = False
        self.answered = False
        self._due = False  # A request is out, and its final headers are not in.
        self._answer: StreamReader | None = None

    def begin(self) -> None:
        """Make ready for one request and its answer."""
        self.used, self.answered, self._due, self._answer = True, False, True, None
        self.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=MAX_HEADER_LINE,
            max_field_size=MAX_HEADER_LINE,
            max_headers=MAX_HEADERS,
        )

    def has_news(self) -> bool:
        """Whether bytes, or the end, have come that the loop has not read yet. For a line where none are
        due."""
        assert self.transport is not None
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def data_received(self, data: bytes) -> None:
        if data:
            if not self._due and (self._answer is None or self._answer.is_eof()):
                # Bytes where no answer is due: a server that says 408 before it closes, or one that plants
                # an answer for whoever is next. aiohttp would hand them to the next request.
                self.abort()
                return
            self.answered = True
        super().data_received(data)

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        message, body = data
        if message.code >= 200:
            self._due, self._answer = False, body
        super().feed_data(data, size)

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        super().set_exception(exc, *cause)
        # A body that stops being HTTP (a bad chunk size): the parser does not tell its reader, who would
        # wait.
        body = self._answer
        if isinstance(exc, HttpProcessingError) and body is not None and not body.is_eof():
            body.set_exception(exc)

    def connection_lost(self, exc: BaseException | None) -> None:
        body = self._answer
        unfinished = body is not None and not body.is_eof()
        super().connection_lost(exc)
        # aiohttp forgets the body of a connection that we aborted, and takes one that is delimited by the
        # close for complete even when that was a reset.
        if body is not None and unfinished and body.exception() is None and (exc or not body.is_eof()):
            body.set_exception(ClientPayloadError(f"connection lost: {exc!r}"))


class GuardedResolver(AbstractResolver):
    """Refuses the whole answer when one address in it is forbidden: public and private mixed is an attack."""

    def __init__(self, inner: AbstractResolver, egress: Egress, *, listed: bool) -> None:
        self._inner = inner
        self._egress = egress
        self._listed = listed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        answers = await self._inner.resolve(host, port, family)
        if not answers:
            raise OSError(f"{host} has no address")
        for answer in answers:
            self._egress.check_address(answer["host"], allowed_by_name=self._listed)
        return answers

    async def close(self) -> None:
        """The inner resolver is its maker's to close."""


def guarded_pool(
    egress: Egress, resolver: AbstractResolver, context: ssl.SSLContext, idle_seconds: float, *, listed: bool
) -> TCPConnector:
    """A pool of `Line`s to endpoints that are all on the operator's list, or all not."""
    pool = TCPConnector(
        limit=0,  # What is in flight is bounded where requests are admitted.
        limit_per_host=0,
        keepalive_timeout=idle_seconds,
        ssl=context,
        resolver=GuardedResolver(resolver, egress, listed=listed),
        # The resolver is not asked about literal addresses; this sees every address, just before the connect.
        socket_factory=functools.partial(guarded_socket, egress, listed),
    )
    line = functools.partial(Line, loop=asyncio.get_running_loop())
    pool._factory = cast("functools.partial[ResponseHandler]", line)
    return pool


def guarded_socket(egress: Egress, listed: bool, address: AddrInfoType) -> socket.socket:
    """An unconnected socket for `address`; raises `ForbiddenAddress` instead of making one."""
    family, kind, proto, _, sockaddr = address
    egress.check_address(str(sockaddr[0]), allowed_by_name=listed)
    sock = socket.socket(family=family, type=kind, proto=proto)
    # A reasoning model may be silent for minutes, longer than address translators remember an idle
    # connection.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 30)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
    return sock


def verified_context() -> ssl.SSLContext:
    """TLS 1.2 or later; certificate and name verified against the system's authorities; HTTP/1.1 alone
    offered.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


def drop(connection: Connection) -> None:
    """Close at once: no flush of what is unsent, no TLS farewell that the peer could make us wait for."""
    if connection.protocol is not None:
        connection.protocol.abort()
    connection.close()
