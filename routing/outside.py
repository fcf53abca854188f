"""The one client for whatever is dialled beside inference: webhooks, bills, price lists, storage.

Every exchange has a connection of its own, HTTP/1.1, behind the egress guard of the dialler: the URL is read by the one
grammar, a name is judged by all addresses it resolves to, and one of those is what the socket is connected to, so no
second look-up can come to another. A redirect is an answer like any other. Nothing of the environment counts: neither
proxies nor netrc. TLS is verified against the system's authorities. One deadline bounds all of an exchange, from DNS to
the last byte, however the other side drips. An answer is not decompressed, and read as far as its caller asks for.

It is httpx with sockets made here; `HTTPTransport._pool`, which is not documented, is touched here and nowhere else.
Not for inference, which has a faster one: `gateway/upstream/client.py`.
"""

import functools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import httpcore
import httpx
from django.conf import settings

from routing.base_url import BadUrl, BaseUrl, parse_base_url
from routing.egress import Egress, parse_allow
from routing.egress import ForbiddenAddress as ForbiddenAddress

SECONDS = 10.0  # of an exchange
CONNECT_SECONDS = 5.0  # of them for one address
MOST_BYTES = 64 * 1024  # of an answer

# What `socket.getaddrinfo` gives: family, type, protocol, canonical name, and an address beginning with its text.
AddressInfo = tuple[Any, Any, int, str, tuple[Any, ...]]
Resolve = Callable[[str, int], Iterable[AddressInfo]]


class NoAnswer(Exception):
    """No whole answer came: not reached, too slow, not HTTP, or longer than it may be. The message says which."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `headers` by lower-case name; `body` as it was sent."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def by_the_system(host: str, port: int) -> Iterable[AddressInfo]:
    """What the system's resolver says. Raises OSError."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


class Outside:
    """The client. `egress` is the guard; the resolver and the TLS context are seams for tests."""

    def __init__(
        self, egress: Egress, *, resolve: Resolve = by_the_system, ssl_context: ssl.SSLContext | None = None
    ) -> None:
        self._egress = egress
        self._resolve = resolve
        self._context = ssl_context or _verified_context()

    def ask(
        self,
        method: str,
        url: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
        seconds: float = SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> Answer:
        """Sends a request, and gives its whole answer, whatever its status.

        Raises `BadUrl` or `ForbiddenAddress` for what is not dialled, `NoAnswer` for all else, a body of more than
        `most_bytes` among it.
        """
        with self.stream(method, url, query=query, headers=headers, content=content, seconds=seconds) as response:
            body = b"".join(_bounded(response.iter_raw(), most_bytes))
            return Answer(response.status_code, dict(response.headers), body)

    @contextmanager
    def stream(
        self,
        method: str,
        url: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        content: bytes | Iterable[bytes] = b"",
        seconds: float = SECONDS,
    ) -> Iterator[httpx.Response]:
        """As `ask`, but the body is the caller's to read (`iter_raw`), within the same `seconds`, or to leave."""
        base = parse_base_url(url)
        self._egress.check_url(base)
        path = base.path + "/" if url.endswith("/") or not base.path else base.path
        words = urlencode(list(query), quote_via=quote)
        target = httpx.URL(
            scheme=base.scheme,
            host=base.host,
            port=base.port,
            raw_path=f"{path}?{words}".encode("ascii") if words else path.encode("ascii"),
        )
        transport = httpx.HTTPTransport(verify=self._context, trust_env=False)
        transport._pool = httpcore.ConnectionPool(
            ssl_context=self._context,
            max_connections=1,
            max_keepalive_connections=0,
            network_backend=_Backend(self._egress, self._resolve, base, time.monotonic() + seconds),
        )
        ours = {"user-agent": "meterline", "accept": "*/*", "accept-encoding": "identity", "connection": "close"}
        try:
            with (
                # The sockets keep the deadline.
                httpx.Client(transport=transport, trust_env=False, follow_redirects=False, timeout=None) as client,  # noqa: S113
                client.stream(method, target, headers={**ours, **(headers or {})}, content=content) as response,
            ):
                yield response
        except httpx.TimeoutException as error:
            raise NoAnswer(f"no answer within {seconds:g} s") from error
        except httpx.HTTPError as error:
            raise NoAnswer(str(error) or type(error).__name__) from error


@functools.cache
def outside() -> Outside:
    """The client of this process, with the operator's EGRESS_ALLOW."""
    return Outside(Egress(parse_allow(settings.EGRESS_ALLOW)))


def guarded_socket(egress: Egress, listed: bool, address: AddressInfo) -> socket.socket:
    """An unconnected socket for `address`; raises `ForbiddenAddress` instead of making one."""
    family, kind, proto, _, sockaddr = address
    egress.check_address(str(sockaddr[0]), allowed_by_name=listed)
    return socket.socket(family, kind, proto)


class _Backend(httpcore.NetworkBackend):
    """Connects to one endpoint, until a deadline on the monotonic clock."""

    def __init__(self, egress: Egress, resolve: Resolve, base: BaseUrl, deadline: float) -> None:
        self._egress = egress
        self._resolve = resolve
        self._base = base
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        """A connection to the first of the host's addresses that takes it. Raises `ForbiddenAddress`."""
        if (host.strip("[]"), port) != (self._base.host, self._base.port):
            raise BadUrl("the host can be read in two ways")
        listed = self._egress.is_listed(self._base)
        addresses = self._addresses()
        for address in addresses:  # public and private mixed is an attack
            self._egress.check_address(str(address[4][0]), allowed_by_name=listed)
        failure: OSError = OSError(f"{host} has no address")
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            sock = guarded_socket(self._egress, listed, address)
            try:
                sock.settimeout(min(CONNECT_SECONDS, _left(self._deadline, httpcore.ConnectTimeout) / left))
                sock.connect(address[4])
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError as error:
                sock.close()
                failure = error
            except BaseException:
                sock.close()
                raise
            else:
                return _Line(sock, self._deadline)
        if isinstance(failure, TimeoutError):
            raise httpcore.ConnectTimeout("not connected in time") from failure
        raise httpcore.ConnectError(f"not connected: {failure.strerror or failure}") from failure

    def _addresses(self) -> list[AddressInfo]:
        """What the host resolves to; in a thread of its own, since a resolver may take longer than there is time."""
        found: Future[list[AddressInfo]] = Future()

        def look() -> None:
            try:
                found.set_result(list(self._resolve(self._base.host, self._base.port)))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=look, name="resolve", daemon=True).start()
        try:
            return found.result(_left(self._deadline, httpcore.ConnectTimeout))
        except TimeoutError:
            raise httpcore.ConnectTimeout("the name was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{self._base.host}: no such name") from error


class _Line(httpcore.NetworkStream):
    """A connection whose every wait ends at the deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _told(httpcore.ReadTimeout, httpcore.ReadError):
            self._sock.settimeout(_left(self._deadline, httpcore.ReadTimeout))
            return self._sock.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        rest = memoryview(buffer)
        with _told(httpcore.WriteTimeout, httpcore.WriteError):
            while rest:
                self._sock.settimeout(_left(self._deadline, httpcore.WriteTimeout))
                rest = rest[self._sock.send(rest) :]

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        try:
            with _told(httpcore.ConnectTimeout, httpcore.ConnectError):
                self._sock.settimeout(_left(self._deadline, httpcore.ConnectTimeout))
                # A handshake's timeout is for all of it.
                return _Line(ssl_context.wrap_socket(self._sock, server_hostname=server_hostname), self._deadline)
        except BaseException:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        return None


def _left(deadline: float, over: type[Exception]) -> float:
    """Seconds until the deadline; raises `over` past it."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise over("the time is over")
    return left


@contextmanager
def _told(late: type[Exception], broken: type[Exception]) -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from error
    except OSError as error:
        raise broken(str(error)) from error


def _bounded(parts: Iterable[bytes], most: int) -> Iterator[bytes]:
    came = 0
    for part in parts:
        came += len(part)
        if came > most:
            raise NoAnswer(f"the answer is longer than {most:,} bytes")
        yield part


@functools.cache
def _verified_context() -> ssl.SSLContext:
    """TLS 1.2 or later; certificate and name verified against the system's authorities."""
    return ssl.create_default_context()
