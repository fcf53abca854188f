"""Connections to upstreams: made by aiohttp's connector, guarded, made to tell more, and kept for the next request.

Only `client` and `reply` use these. Parts of aiohttp that are not documented are touched here
and in `Reply`, and nowhere else: `TCPConnector._factory`, `ResponseHandler`'s methods, `StreamReader._buffer`,
`_read_nowait` and `_wait`. The tests of the client fail when a new release moves them.
"""

import asyncio
import functools
import select
import socket
import ssl
from collections import deque
from typing import cast

from aiohttp import ClientConnectionError, ClientPayloadError, ClientRequest, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import AddrInfoType, Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.streams import StreamReader
from yarl import URL

from routing.egress import Egress

MAX_HEADER_LINE = 16 * 1024
MAX_HEADERS = 128
READ_BUFFER = 64 * 1024  # Twice this is buffered before the socket is no longer read.


class Line(ResponseHandler):
    """aiohttp's response protocol, and what it does not tell: whether any byte of the answer came (`answered`), and
    that a body broke off.

    `lines` it belongs to; `kept_at`: since when it waits there, on the loop's clock; `opened_in`: the seconds that its
    opening took, until it carries a second request.
    """

    lines: "Lines"
    connection: Connection  # aiohttp's word for its having lent us this
    kept_at: float
    opened_in = 0.0

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.answered = False
        self._due = False  # A request is out, and its final headers are not in.
        self._held = False  # The answer came faster than it was read.
        self._answer: StreamReader | None = None
        self._poll = select.poll()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def begin(self) -> None:
        """Make ready for one request and its answer."""
        self.answered, self._due, self._held, self._answer = False, True, False, None
        self.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=MAX_HEADER_LINE,
            max_field_size=MAX_HEADER_LINE,
            max_headers=MAX_HEADERS,
        )

    def is_quiet(self) -> bool:
        """Whether it is open and nothing has come, neither bytes nor the end, also of what the loop has not read yet.

        For a line where nothing is due.
        """
        return self.is_connected() and not self._poll.poll(0)

    def drop(self) -> None:
        """Close at once: no flush of what is unsent, no TLS farewell that the peer could make us wait for."""
        self.abort()
        self.connection.close()

    def pause_reading(self) -> None:
        self._held = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        # aiohttp resumes after every piece that is read. Before the first pause of an answer nothing can be held back;
        # after it the parser may hold something even while the socket is read.
        if self._held:
            super().resume_reading(resume_parser)

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
            body.set_exception(ClientPayloadError(f"connection lost: {exc}"))
        # The body finds the way here, to resume the reading; the way back would close a circle, and the trace of the
        # body's exception leads through here.
        self._answer = body = None


class Lines:
    """The connections to one endpoint: the ones that wait for another request, and the way to a new one."""

    __slots__ = ("_connector", "_idle_seconds", "_kept", "_loop", "_request", "_timer")

    def __init__(self, connector: TCPConnector, url: URL, idle_seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._connector = connector
        self._request = ClientRequest("POST", url, loop=self._loop)  # names the endpoint to the connector
        self._idle_seconds = idle_seconds
        self._kept: deque[Line] = deque()  # the one used last on the right
        self._timer: asyncio.TimerHandle | None = None

    def take(self) -> Line | None:
        """A connection that has carried a request before; None: there is none, `open` one.

        What has come in on one meanwhile, its end or an answer to nothing, must not meet the next request.
        """
        since = self._loop.time() - self._idle_seconds
        while self._kept:
            line = self._kept.pop()
            if line.kept_at >= since and line.is_quiet():
                return line
            line.drop()
        return None

    async def open(self, seconds: float) -> Line:
        """A new connection, within `seconds`, DNS and TLS included.

        Raises TimeoutError, `aiohttp.ClientError`, OSError (`ForbiddenAddress` among them).
        """
        if self._connector.closed:  # aiohttp notices only after it has connected.
            raise ClientConnectionError("the client is closed")
        began = self._loop.time()
        connection = await self._connector.connect(self._request, [], _connect_timeout(seconds))
        line = cast(Line, connection.protocol)
        line.lines, line.connection, line.opened_in = self, connection, self._loop.time() - began
        return line

    def keep(self, line: Line) -> None:
        """Take back a connection whose answer was read to its end. One that can carry no other request is closed."""
        transport = line.transport
        # Answered before it had read the whole request: the rest of that would run into the next one.
        if transport is None or line.should_close or transport.get_write_buffer_size():
            line.drop()
            return
        line.kept_at, line.opened_in = self._loop.time(), 0.0
        self._kept.append(line)
        if self._timer is None:
            self._timer = self._loop.call_later(self._idle_seconds, self._sweep)

    def drop_kept(self) -> None:
        """Close those that wait: the endpoint has just closed one, or nobody will ask again."""
        while self._kept:
            self._kept.pop().drop()

    def _sweep(self) -> None:
        self._timer = None
        since = self._loop.time() - self._idle_seconds
        while self._kept and (self._kept[0].kept_at <= since or not self._kept[0].is_connected()):
            self._kept.popleft().drop()
        if self._kept:
            self._timer = self._loop.call_at(self._kept[0].kept_at + self._idle_seconds, self._sweep)


@functools.lru_cache(maxsize=64)
def _connect_timeout(seconds: float) -> ClientTimeout:
    return ClientTimeout(connect=seconds)


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


def guarded_connector(
    egress: Egress, resolver: AbstractResolver, context: ssl.SSLContext, *, listed: bool
) -> TCPConnector:
    """Makes `Line`s to endpoints that are all on the operator's list, or all not."""
    connector = TCPConnector(
        limit=0,  # What is in flight is bounded where requests are admitted.
        force_close=True,  # `Lines` keep what can be used again.
        ssl=context,
        resolver=GuardedResolver(resolver, egress, listed=listed),
        # The resolver is not asked about literal addresses; this sees every address, just before the connect.
        socket_factory=functools.partial(guarded_socket, egress, listed),
    )
    line = functools.partial(Line, loop=asyncio.get_running_loop())
    connector._factory = cast("functools.partial[ResponseHandler]", line)
    return connector


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
