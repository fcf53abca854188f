"""The only file that dials: one client a process, HTTP/1.1, every connection behind the egress guard.

A dial is built from three parts of aiohttp, and no more: its connector (DNS cache, happy eyeballs, TLS), its response
protocol with the parser, and `ClientRequest` as the connector's way of naming an endpoint. The session, and with it
redirects, cookies, environment proxies, netrc and automatic decompression, is not in the path: what is absent cannot be
left switched on. Connections wait for their next request in `connection.Lines`.

Measured over keep-alive loopback with 32 connections, a small POST and its answer, in microseconds of CPU a
request under uvloop (asyncio): httpx's interface over aiohttp's transport 114 (120), aiohttp's session 53
(59), this file 29 (32). httpx's interface costs 61 us more than the session, so aiohttp stands behind the
`Upstream` seam itself, without httpx. Since then, in one run: with aiohttp's pool, each head rendered anew and each
piece awaited 28 (44); with connections kept here, heads begun once and what has come read at once 18 (32).

The seams for tests are the resolver and the TLS context; the rest is real sockets.

Deadlines: the connect timeout is kept here, DNS and TLS included. First byte, idle and total are the
caller's, around `dial` and `read`; a cancelled dial closes its socket at once.
"""

import functools
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from aiohttp import ClientError
from aiohttp.abc import AbstractResolver
from aiohttp.client_exceptions import ServerDisconnectedError
from aiohttp.http import HttpProcessingError, RawResponseMessage
from aiohttp.resolver import ThreadedResolver
from msgspec import Struct
from yarl import URL

from gateway.upstream.connection import READ_BUFFER, Line, Lines, guarded_connector, verified_context
from gateway.upstream.reply import Reply, fault_of
from gateway.upstream.veil import Veil, veil_over
from gateway.wire.errors import UpstreamFault
from routing.base_url import BadUrl, BaseUrl, Endpoint, parse_base_url, request_target
from routing.egress import Egress, ForbiddenAddress
from routing.health.faults import Fault

MAX_HEADER_BYTES = 64 * 1024
MAX_INTERIM = 16  # 1xx answers before the final one
MOST_TARGETS = 1000  # known at once; rows may be edited for years, and a target is cheap to make ready again

_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
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


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Where requests of one kind go, and how they begin. Made once and used often: what it says is read but once.

    `path` begins with "/", follows `base.path` and may end in a query; `headers` are ready to send, and hold no secret;
    `connect_timeout` is in seconds, for DNS, TCP and TLS together.
    """

    method: str
    base: BaseUrl
    path: str
    headers: Sequence[tuple[str, str]]
    connect_timeout: float


class Dial(Struct, frozen=True):
    """One request to an upstream. `headers` are those that are its own, such as a secret's, ready to send; `hidden` is
    what nobody may read in the answer. `fresh`: on a new connection, whatever is kept.
    """

    target: Target
    headers: Sequence[tuple[str, str]]
    body: bytes
    hidden: tuple[str, ...] = ()
    fresh: bool = False


class Upstream:
    """The client. Made inside the event loop, one a process; `close` it before the loop ends.

    Two connectors that share nothing: one for endpoints on the operator's list, whose addresses may be private, and one
    for all others. A listed name's address therefore cannot reach another caller through the DNS cache, and neither
    guard has to know on whose behalf it is asked. Connections are kept by endpoint.
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
            guarded_connector(egress, self._resolver, context, listed=listed) for listed in (False, True)
        )
        self._idle_seconds = idle_connection_seconds
        self._ways: dict[Target, tuple[Lines, bytes]] = {}
        self._lines: dict[Endpoint, Lines] = {}

    async def dial(self, call: Dial) -> Reply:
        """Send the request; return when the answer's headers are in. The body is the `Reply`'s.

        Raises `UpstreamFault`: FORBIDDEN_ADDRESS (the guard), UNREACHABLE (DNS, refused, TLS, closed before
        a byte of the answer), TIMEOUT (connect), TRUNCATED (closed amid the headers), INVALID_RESPONSE (not
        HTTP, or past a cap); the library's words are in its `detail` alone. ValueError for a method or
        header that must not be sent.

        Nothing is ever sent twice. A kept connection may be closed by the server just as the request goes out, or after
        it was read: nobody can tell. Then the fault says that it was `stale`, and whoever dials again does so openly.
        """
        target, body = call.target, call.body
        try:
            lines, opening = self._ways.get(target) or self._way(target)
        except (BadUrl, ForbiddenAddress) as exc:
            raise UpstreamFault(Fault.FORBIDDEN_ADDRESS, str(exc)) from exc
        head = _head(target.method, opening, call.headers, body)
        line = None if call.fresh else lines.take()
        stale = line is not None
        if line is None:
            line = await _opened(lines, target.connect_timeout)
        try:
            return await _exchange(line, head, body, veil_over(call.hidden))
        except (ClientError, HttpProcessingError) as exc:
            fault = fault_of(exc, begun=line.answered)
            if stale and not line.answered:
                fault.stale = True
                lines.drop_kept()  # Others to an endpoint that has just closed one are no better.
            raise fault from exc

    async def close(self) -> None:
        """Close every connection, in use or not."""
        for lines in self._lines.values():
            lines.drop_kept()
        await self._public.close()
        await self._listed.close()

    def _way(self, target: Target) -> tuple[Lines, bytes]:
        """The lines to a target, and how its requests begin. Raises `ForbiddenAddress` or `BadUrl`, ValueError for a
        method or header.

        A target that was let through once is not checked again, only its addresses.
        """
        base = target.base
        self._egress.check_url(base)
        if parse_base_url(str(base)) != base:
            raise BadUrl("not a base URL as it is parsed")
        url = URL.build(scheme=base.scheme, host=base.host, port=base.port, path="/")
        if (url.raw_host, url.port) != (base.host, base.port):
            raise BadUrl("the host can be read in two ways")
        if len(self._ways) >= MOST_TARGETS:
            self._ways.clear()
            for lines in self._lines.values():
                lines.drop_kept()
            self._lines.clear()
        known = self._lines.get(base.endpoint)
        if known is None:
            connector = self._listed if self._egress.is_listed(base) else self._public
            known = self._lines[base.endpoint] = Lines(connector, url, self._idle_seconds)
        way = self._ways[target] = known, _opening(target)
        return way


async def _opened(lines: Lines, seconds: float) -> Line:
    try:
        return await lines.open(seconds)
    except TimeoutError as exc:
        raise _unsent(UpstreamFault(Fault.TIMEOUT, f"no connection within {seconds} s")) from exc
    except (ClientError, OSError) as exc:
        raise _unsent(fault_of(exc)) from exc


def _unsent(fault: UpstreamFault) -> UpstreamFault:
    fault.sent = False
    return fault


async def _exchange(line: Line, head: bytes, body: bytes, veil: Veil | None) -> Reply:
    """Send, and wait for the final headers. Any failure, cancellation too, closes the connection."""
    try:
        transport = line.transport
        if transport is None:  # Closed between the connect and now.
            raise ServerDisconnectedError
        line.begin()
        # Not awaited: the body is in memory anyway, and a 413 may come before an upstream has read it.
        if len(body) <= READ_BUFFER:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        for _ in range(MAX_INTERIM + 1):
            message, stream = await line.read()
            if message.code >= 200:
                _check(message)
                return Reply(line, message, stream, veil)
            if message.code == 101:
                break
        raise HttpProcessingError(message="no final answer among the interim ones")
    except BaseException:
        line.drop()
        raise


def _opening(target: Target) -> bytes:
    """Request line and the headers that are the same for every request (RFC 9112, 3 and 5). Raises `BadUrl` for the
    path, ValueError for the rest.
    """
    if target.method not in _METHODS:
        raise ValueError(f"not a method: {target.method!r}")
    line = f"{target.method} {request_target(target.base.path, target.path)} HTTP/1.1\r\n"
    ours = f"Host: {target.base.authority}\r\nAccept-Encoding: identity\r\n"
    return line.encode() + ours.encode() + _rendered(target.headers)


def _head(method: str, opening: bytes, headers: Iterable[tuple[str, str]], body: bytes) -> bytes:
    framing = b"Content-Length: %d\r\n" % len(body) if body or method in _WITH_BODY else b""
    own = _rendered_once(headers) if type(headers) is tuple else _rendered(headers)
    return b"%b%b%b\r\n" % (opening, framing, own)


def _rendered(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines. Raises ValueError for a header that must not be sent."""
    lines = ""
    for name, value in headers:
        if not (_sendable(name) and _VALUE.fullmatch(value)):
            raise ValueError(f"not a header to send: {name!r}")  # Never the value, which may be a secret.
        lines += f"{name}: {value}\r\n"
    return lines.encode("latin-1")


_rendered_once = functools.lru_cache(maxsize=1024)(_rendered)  # of a secret that is sent as it is, with each request


@functools.lru_cache(maxsize=256)
def _sendable(name: str) -> bool:
    return name.lower() not in _OURS and _NAME.fullmatch(name) is not None


def _check(message: RawResponseMessage) -> None:
    """What the lenient parser lets through and no good server sends. Raises HttpProcessingError."""
    if message.version[0] != 1 or message.code > 599:
        raise HttpProcessingError(message="not an HTTP/1 answer")
    if sum(map(len, chain.from_iterable(message.raw_headers))) > MAX_HEADER_BYTES:
        raise HttpProcessingError(message=f"more than {MAX_HEADER_BYTES} bytes of headers")
