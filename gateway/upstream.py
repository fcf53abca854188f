"""The only file that dials: one client a process, HTTP/1.1, every connection behind the egress guard.

A dial is built from three parts of aiohttp, and no more: its connector (pool, DNS cache, happy eyeballs,
TLS), its response protocol with the parser, and `ClientRequest` as the connector's way of naming a peer.
The session, and with it redirects, cookies, environment proxies, netrc and automatic decompression, is not
in the path: what is absent cannot be left switched on.

Measured over keep-alive loopback with 32 connections, a small POST and its answer, in microseconds of CPU a
request under uvloop (asyncio): httpx's interface over aiohttp's transport 114 (120), aiohttp's session 53
(59), this file 29 (32). httpx's interface costs 61 us more than the session, so aiohttp stands behind the
`Upstream` seam itself, without httpx.

The seams for tests are the resolver and the TLS context; the rest is real sockets.

Deadlines: the connect timeout is kept here, DNS and TLS included. First byte, idle and total are the
caller's, with `asyncio.timeout` around `dial` and `read`; a cancelled dial closes its socket at once.
"""

import asyncio
import contextlib
import functools
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from aiohttp import ClientError, ClientRequest, ClientTimeout, TCPConnector
from aiohttp.abc import AbstractResolver
from aiohttp.client_exceptions import ClientConnectorError, ServerDisconnectedError
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.resolver import ThreadedResolver
from aiohttp.streams import StreamReader
from yarl import URL

from gateway.connection import READ_BUFFER, Line, drop, guarded_pool, verified_context
from gateway.content_coding import Inflater, Undecodable
from gateway.egress import Egress, ForbiddenAddress
from gateway.errors import UpstreamFault
from routing.base_url import BadUrl, BaseUrl, parse_base_url, request_target
from routing.faults import Fault

MAX_BODY = 32 * 1024 * 1024
MAX_HEADER_BYTES = 64 * 1024
MAX_INTERIM = 16  # 1xx answers before the final one
RELEASE_SECONDS = 0.25  # How long a connection is worth waiting for when only its last bytes are missing.

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")  # RFC 9110, 5.6.2
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, 5.5: no CR, LF or NUL, so no header begins inside one
# Framing, routing and coding are this file's. A caller that sets one of these has forwarded a client's
# header.
_OURS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


@dataclass(frozen=True, slots=True)
class Dial:
    """One request to an upstream.

    `path` begins with "/", follows `base.path` and may end in a query; `headers` are ready to send;
    `connect_timeout` is in seconds, for DNS, TCP and TLS together.
    """

    method: str
    base: BaseUrl
    path: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    connect_timeout: float


class Reply:
    """An upstream's answer: its headers are in, its body is still to be read.

    `headers` has lower-case names; a repeated header is joined with ", ". They are the upstream's: what of
    them a client sees is chosen elsewhere, and never content-encoding or content-length, for the body is
    given decoded. Whoever holds a Reply reads it to the end, releases it or aborts it.
    """

    __slots__ = ("_body", "_coding", "_connection", "_inflater", "_parts", "_size", "headers", "status")

    def __init__(self, connection: Connection, message: RawResponseMessage, body: StreamReader) -> None:
        self.status: int = message.code
        self.headers: Mapping[str, str] = _headers(message)
        self._connection: Connection | None = connection
        self._body = body
        coding = self.headers.get("content-encoding", "").strip().lower()
        self._coding = "" if coding == "identity" else coding
        self._inflater: Inflater | None = None
        self._parts: list[bytes] = []
        self._size = 0

    async def read(self) -> bytes:
        """The next decoded bytes, as soon as there are any; b"" at the end.

        May be cancelled while it waits and called again: no byte is lost. Raises `UpstreamFault`: TRUNCATED
        when the answer broke off (what had arrived is handed out first), INVALID_RESPONSE when it is not
        HTTP or cannot be decoded. The connection is then closed.
        """
        if not self._coding:
            return await self._receive()
        try:
            if self._inflater is None:
                self._inflater = Inflater(self._coding)
            while not (piece := self._inflater.pull()):
                data = await self._receive()
                if not data:
                    self._inflater.finish()
                    return b""
                self._inflater.push(data)
            return piece
        except Undecodable as exc:
            self.abort()
            raise self._invalid(str(exc)) from exc

    async def read_all(self, limit: int = MAX_BODY) -> bytes:
        """The whole decoded body, at most `limit` bytes; may be cancelled and called again, as `read`.

        Raises what `read` raises, and INVALID_RESPONSE for a body past the limit, of which no more is read.
        """
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > limit:
            self._size = limit + 1
        while self._size <= limit:
            piece = await self.read()
            if not piece:
                return b"".join(self._parts)
            self._parts.append(piece)
            self._size += len(piece)
        self.abort()
        self._parts.clear()
        raise self._invalid(f"the body is longer than {limit} bytes")

    def abort(self) -> None:
        """Close the connection now, whatever is unsent or unread. Safe to call at any time, also twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            drop(connection)

    async def release(self) -> None:
        """Give the connection back when the body is at its end, or within a moment of it; else close it.

        For a caller that has what it wanted (`[DONE]`) before the last chunk was in; the rest is thrown away.
        """
        if self._connection is None:
            return  # given back when its last byte was read
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                left = READ_BUFFER
                while self._connection is not None and left > 0:
                    left -= len(await self._receive())
        except (TimeoutError, UpstreamFault):
            pass
        finally:
            self.abort()

    async def _receive(self) -> bytes:
        """The next bytes as they came, b"" at the end."""
        body = self._body
        if self._connection is None and not body.is_eof():
            raise UpstreamFault(Fault.TRUNCATED, "the reply was aborted", upstream_status=self.status)
        data = b""
        if body.exception() is None:
            with contextlib.suppress(ClientError, HttpProcessingError):  # Kept as body.exception().
                data = await body.readany()
        failure = body.exception()
        if failure is None:
            if body.at_eof():
                self._give_back()
            return data
        # What came before the break is the caller's; readany() would withhold it.
        data = data or body._read_nowait(-1)
        if not data:
            self.abort()
            raise _fault(failure, begun=True, status=self.status)
        return data

    def _give_back(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        transport = connection.transport
        if transport is None or transport.get_write_buffer_size():
            # Answered before it had read the whole request: the rest of that would run into the next one.
            drop(connection)
        else:
            connection.release()

    def _invalid(self, detail: str) -> UpstreamFault:
        return UpstreamFault(Fault.INVALID_RESPONSE, detail, upstream_status=self.status)


class Upstream:
    """The client. Made inside the event loop, one a process; `close` it before the loop ends.

    Two pools that share nothing: one for endpoints on the operator's list, whose addresses may be private,
    and one for all others. A listed name's address therefore cannot reach another caller through the DNS
    cache or a kept connection, and neither guard has to know on whose behalf it is asked.
    """

    def __init__(
        self,
        egress: Egress,
        *,
        resolver: AbstractResolver | None = None,
        ssl_context: ssl.SSLContext | None = None,
        idle_connection_seconds: float = 4.0,
    ) -> None:
        """`egress` must not change afterwards. `ssl_context` is for every https endpoint, by default
        `verified_context`. `idle_connection_seconds`: how long a connection is kept for reuse, less than the
        5 s after which common servers close theirs.
        """
        self._egress = egress
        self._resolver = resolver or ThreadedResolver()
        context = ssl_context or verified_context()
        self._public, self._listed = (
            guarded_pool(egress, self._resolver, context, idle_connection_seconds, listed=listed)
            for listed in (False, True)
        )
        self._peers: dict[BaseUrl, tuple[TCPConnector, ClientRequest]] = {}

    async def dial(self, call: Dial) -> Reply:
        """Send the request; return when the answer's headers are in. The body is the `Reply`'s.

        Raises `UpstreamFault`: FORBIDDEN_ADDRESS (the guard), UNREACHABLE (DNS, refused, TLS, closed before
        a byte of the answer), TIMEOUT (connect), TRUNCATED (closed amid the headers), INVALID_RESPONSE (not
        HTTP, or past a cap); the library's words are in its `detail` alone. ValueError for a method or
        header that must not be sent.

        A kept connection may be closed by the server just as the request goes out. When it was in use
        before and not a byte of an answer came, the request is sent once more on a new connection, as part
        of the same dial; after a new connection never, for there the request may have been carried out.
        """
        try:
            pool, peer = self._peer(call.base)
            head = _head(call)
        except (BadUrl, ForbiddenAddress) as exc:
            raise UpstreamFault(Fault.FORBIDDEN_ADDRESS, str(exc)) from exc
        connection = await self._connect(pool, peer, call.connect_timeout)
        line = _line(connection)
        kept = line.used
        try:
            return await self._exchange(connection, call, head)
        except (ClientError, HttpProcessingError) as exc:
            if not kept or line.answered:
                raise _fault(exc, begun=line.answered) from exc
        connection = await self._connect(pool, peer, call.connect_timeout, fresh=True)
        line = _line(connection)
        try:
            return await self._exchange(connection, call, head)
        except (ClientError, HttpProcessingError) as exc:
            raise _fault(exc, begun=line.answered) from exc

    async def close(self) -> None:
        """Close every connection, in use or not."""
        await self._public.close()
        await self._listed.close()
        await self._resolver.close()

    def _peer(self, base: BaseUrl) -> tuple[TCPConnector, ClientRequest]:
        """The pool for this endpoint, and its name in aiohttp's terms.

        Raises `ForbiddenAddress`, `BadUrl`. What was found good once is not checked again, only its
        addresses.
        """
        known = self._peers.get(base)
        if known is None:
            self._egress.check_url(base)
            if parse_base_url(str(base)) != base:
                raise BadUrl("not a base URL as it is parsed")
            url = URL.build(scheme=base.scheme, host=base.host, port=base.port, path="/")
            if (url.raw_host, url.port) != (base.host, base.port):
                raise BadUrl("the host can be read in two ways")
            if len(self._peers) > 1000:  # Rows may be edited for years; this is cheap to make again.
                self._peers.clear()
            pool = self._listed if self._egress.is_listed(base) else self._public
            known = self._peers[base] = pool, ClientRequest("POST", url, loop=asyncio.get_running_loop())
        return known

    async def _connect(
        self, pool: TCPConnector, peer: ClientRequest, seconds: float, *, fresh: bool = False
    ) -> Connection:
        if pool.closed:  # aiohttp notices only after it has connected.
            raise UpstreamFault(Fault.UNREACHABLE, "the client is closed")
        try:
            while True:
                connection = await pool.connect(peer, [], _connect_timeout(seconds))
                line = _line(connection)
                # Kept connections to a peer that has just closed one (`fresh`) are no better; and what has
                # come in on one meanwhile, its end or an answer to nothing, must not meet the next request.
                if not line.used or not (fresh or line.has_news()):
                    return connection
                drop(connection)
        except TimeoutError as exc:
            raise UpstreamFault(Fault.TIMEOUT, f"no connection within {seconds} s") from exc
        except (ClientError, OSError) as exc:
            raise _fault(exc) from exc

    async def _exchange(self, connection: Connection, call: Dial, head: bytes) -> Reply:
        """Send, and wait for the final headers. Any failure, cancellation too, closes the connection."""
        line = _line(connection)
        try:
            transport = line.transport
            if transport is None:  # Closed between the connect and now.
                raise ServerDisconnectedError
            line.begin()
            # Not awaited: the body is in memory anyway, and a 413 may come before an upstream has read it.
            if len(call.body) <= READ_BUFFER:
                transport.write(head + call.body)
            else:
                transport.write(head)
                transport.write(call.body)
            for _ in range(MAX_INTERIM + 1):
                message, body = await line.read()
                if message.code >= 200:
                    _check(message)
                    return Reply(connection, message, body)
                if message.code == 101:
                    break
            raise HttpProcessingError(message="no final answer among the interim ones")
        except BaseException:
            drop(connection)
            raise


@functools.lru_cache(maxsize=64)
def _connect_timeout(seconds: float) -> ClientTimeout:
    return ClientTimeout(connect=seconds)


def _line(connection: Connection) -> Line:
    return cast(Line, connection.protocol)


def _head(call: Dial) -> bytes:
    """Request line and headers (RFC 9112, 3 and 5). Raises `BadUrl` for the path, ValueError for the rest."""
    if call.method not in _METHODS:
        raise ValueError(f"not a method: {call.method!r}")
    lines = [
        f"{call.method} {request_target(call.base.path, call.path)} HTTP/1.1",
        f"Host: {call.base.authority}",
        "Accept-Encoding: identity",
    ]
    if call.body or call.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(call.body)}")
    for name, value in call.headers:
        if not (_sendable(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"not a header to send: {name!r}")  # Never the value, which may be a secret.
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


@functools.lru_cache(maxsize=256)
def _sendable(name: str) -> bool:
    return name.lower() not in _OURS and _NAME.fullmatch(name) is not None


def _headers(message: RawResponseMessage) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in message.raw_headers:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _check(message: RawResponseMessage) -> None:
    """What the lenient parser lets through and no good server sends. Raises HttpProcessingError."""
    if message.version[0] != 1 or message.code > 599:
        raise HttpProcessingError(message="not an HTTP/1 answer")
    if sum(len(name) + len(value) for name, value in message.raw_headers) > MAX_HEADER_BYTES:
        raise HttpProcessingError(message=f"more than {MAX_HEADER_BYTES} bytes of headers")


def _fault(exc: BaseException, *, begun: bool = False, status: int | None = None) -> UpstreamFault:
    """aiohttp's exception as ours. `begun`: a byte of the answer had come; `status`: the answer's, if
    known."""
    cause = exc.os_error if isinstance(exc, ClientConnectorError) else exc
    if isinstance(cause, ForbiddenAddress):
        kind = Fault.FORBIDDEN_ADDRESS
    elif isinstance(cause, HttpProcessingError):
        kind = Fault.INVALID_RESPONSE
    else:
        kind = Fault.TRUNCATED if begun else Fault.UNREACHABLE
    # A body that stops being HTTP is one that nobody can read.
    unreadable = kind is Fault.INVALID_RESPONSE and status is not None
    return UpstreamFault(kind, f"{type(cause).__name__}: {cause}", upstream_status=status, unreadable=unreadable)
