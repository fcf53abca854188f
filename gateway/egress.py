"""Where the gateway may dial: the one grammar of base URLs, and the one table of addresses.

A provider's base URL, a webhook or an export target is text that somebody typed. It is parsed by
`parse_base_url` when it is saved and again when it is dialled, and nothing else ever parses it: a guard
that reads a URL one way and a client that reads it another way is how such guards are passed. What is not
plainly a URL is refused, not repaired.

`Egress` then answers two questions. `check_url`: may this scheme, host and port be dialled at all?
`check_address`: may this address, which a name has just been resolved to, be connected to? By default only
https, only on the listed ports, only to globally routable unicast addresses. The operator's list of exact
(scheme, host, port) entries lifts all three for those entries; it is empty unless set, and loopback gets no
special favour.

No I/O here, and no framework: settings are passed in.
"""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Endpoint = tuple[str, str, int]  # scheme, host as `BaseUrl.host` writes it, port

MAX_URL = 2048
MAX_HOST = 253  # RFC 1035, 2.3.4, less the root label
MAX_SEGMENT = 256
DEFAULT_PORTS = {"http": 80, "https": 443}

# RFC 3986 `pchar`, less percent-encoding, quotes, parentheses, `&`, `*` and `;`: a segment is sent as it is
# written, so no server can decode one thing where the guard saw another (`%2e%2e`, `..;`).
_PCHAR = r"[A-Za-z0-9._~:@$+=,-]"
_SEGMENT = rf"(?!\.+(?:[/?]|\Z)){_PCHAR}+"  # A segment of dots alone is a step up, in somebody's parser.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_BASE = re.compile(
    rf"(?P<scheme>https?)://(?:\[(?P<v6>[0-9A-Fa-f:.]{{2,45}})\]|(?P<name>{_LABEL}(?:\.{_LABEL})*))"
    rf"(?::(?P<port>[1-9][0-9]{{0,4}}))?(?P<path>(?:/{_SEGMENT})*)/?"
)
_ONE_SEGMENT = re.compile(_SEGMENT)
_TARGET = re.compile(rf"(?:/{_SEGMENT})+(?:\?[A-Za-z0-9._~:@$+=,&-]*)?")
# A host whose last label is a number, in any base, is an IPv4 address to some parser ("127.1", "0x7f.1",
# "0177.1").
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9A-Fa-f]*)")
_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})")

# Refused IPv4 space, from the IANA IPv4 special-purpose address registry. Written out, since what
# `is_global` says has changed between patch releases of Python.
_CLOSED_V4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux connects it to itself
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT; also a cloud's metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # not in the registry: a cloud's host agent behind a public-looking address
        "169.254.0.0/16",  # link-local; the usual metadata address
        "172.16.0.0/12",
        "192.0.0.0/24",  # IETF protocol assignments
        "192.0.2.0/24",  # documentation
        "192.52.193.0/24",  # multicast relays
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and limited broadcast
    )
)
# IPv6 the other way round: IANA has given out global unicast addresses in 2000::/3 alone. What lies outside
# it, the unspecified and loopback addresses, IPv4-mapped, NAT64, unique local, link-local, site-local and
# multicast ones among it, is refused without being named.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # IETF protocol assignments; Teredo, which carries an IPv4 address, is 2001::/32
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which carries an IPv4 address
        "3fff::/20",  # documentation
    )
)


class BadUrl(ValueError):
    """The text is not a base URL, path or path segment of the grammar above."""


class ForbiddenAddress(PermissionError):
    """The guard refuses this endpoint or address.

    An OSError, because that is what the connection code of `aiohappyeyeballs` collects and hands on when a
    socket factory refuses one of several addresses.
    """


@dataclass(frozen=True, slots=True)
class BaseUrl:
    """A parsed base URL. `host` is lower case, IPv6 compressed and without brackets; `path` is "" or
    "/a/b".
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def endpoint(self) -> Endpoint:
        """What the operator's list names, and what a connection is made to."""
        return self.scheme, self.host, self.port

    @property
    def authority(self) -> str:
        """Host and, unless it is the scheme's own, port: the value of the Host header (RFC 9110, 7.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_base_url(text: str) -> BaseUrl:
    """The one reading of a base URL; a trailing slash is dropped.

    Raises `BadUrl` for all else: another scheme, userinfo, query, fragment, percent-encoding, backslash,
    white space, a non-ASCII letter, a dot segment, an empty segment, a trailing dot on the host, or an IPv4
    address in any form but four plain decimals. Names are not resolved and addresses not judged here: that
    is `Egress`.
    """
    found = _BASE.fullmatch(text) if len(text) <= MAX_URL else None
    if found is None:
        raise BadUrl("not a base URL: expected https://host[:port][/path] in plain ASCII")
    port = int(found["port"] or DEFAULT_PORTS[found["scheme"]])
    if port > 65535:
        raise BadUrl("not a port number")
    host = _v6(found["v6"]) if found["v6"] else _name_or_v4(found["name"])
    return BaseUrl(found["scheme"], host, port, found["path"])


def _v6(text: str) -> str:
    try:
        return ipaddress.IPv6Address(text).compressed
    except ValueError:
        raise BadUrl("not an IPv6 address") from None


def _name_or_v4(text: str) -> str:
    if len(text) > MAX_HOST:
        raise BadUrl("the host name is too long")
    if _ENDS_IN_NUMBER.fullmatch(text) and not (
        _QUAD.fullmatch(text) and all(int(part) < 256 for part in text.split("."))
    ):
        raise BadUrl("not an IPv4 address: four decimals without leading zeros")
    return text.lower()


def parse_allow(entries: Iterable[str]) -> frozenset[Endpoint]:
    """The operator's list: `scheme://host:port` each, the port written out, no path.

    Raises `BadUrl` naming the entry. Blank entries are skipped, so that an empty variable is an empty list.
    """
    endpoints = set()
    for entry in filter(None, (text.strip() for text in entries)):
        try:
            base = parse_base_url(entry)
        except BadUrl as exc:
            raise BadUrl(f"{entry!r}: {exc}") from None
        if base.path or not entry.endswith(f":{base.port}"):
            raise BadUrl(f"{entry!r}: expected scheme://host:port, with the port and without a path")
        endpoints.add(base.endpoint)
    return frozenset(endpoints)


def safe_segment(text: str) -> str:
    """`text` itself, fit to stand as one segment of an upstream path; raises `BadUrl` when it is not.

    For ids that arrive from outside, such as an upstream's name of a model. Nothing is encoded: a slash, a
    percent sign or a dot segment in an id would address something else, so it is refused.
    """
    if len(text) > MAX_SEGMENT or not _ONE_SEGMENT.fullmatch(text):
        raise BadUrl("not a path segment")
    return text


@lru_cache(maxsize=1024)
def request_target(prefix: str, path: str) -> str:
    """The request target of a dial: `prefix` (a `BaseUrl.path`) and `path`, which may end in a query.

    Raises `BadUrl` unless every segment is one that `parse_base_url` would take.
    """
    target = prefix + path
    if len(target) > MAX_URL or not path.startswith("/") or not _TARGET.fullmatch(target):
        raise BadUrl("not a request path")
    return target


class Egress:
    """The guard. `allow`: endpoints the operator listed; `ports`: where https may go besides those."""

    def __init__(
        self, allow: frozenset[Endpoint] = frozenset(), ports: frozenset[int] = frozenset({443, 8443})
    ) -> None:
        self.allow = allow
        self.ports = ports

    def is_listed(self, base: BaseUrl) -> bool:
        """Whether exactly this scheme, host and port is on the operator's list."""
        return base.endpoint in self.allow

    def check_url(self, base: BaseUrl) -> None:
        """Raises `ForbiddenAddress` unless `base` is listed, or https on an allowed port to no address we
        refuse.

        Resolves nothing, so that it can be asked while a form is saved; a name is judged again, by its
        addresses, at every connection.
        """
        if self.is_listed(base):
            return
        if base.scheme != "https":
            raise ForbiddenAddress("only https is dialled, unless the endpoint is listed")
        if base.port not in self.ports:
            raise ForbiddenAddress(f"port {base.port} is not dialled, unless the endpoint is listed")
        if base.host == "localhost" or base.host.endswith(".localhost"):  # RFC 6761, 6.3
            raise ForbiddenAddress("localhost is not dialled, unless the endpoint is listed")
        if ":" in base.host or _QUAD.fullmatch(base.host):
            self.check_address(base.host)

    def check_address(self, address: str | Address, *, allowed_by_name: bool = False) -> None:
        """Raises `ForbiddenAddress` unless `address` is one to connect to.

        `allowed_by_name` is for addresses of a listed endpoint: those may be private or loopback, but never
        the unspecified address (which reaches the machine itself), multicast or broadcast. A zone id is
        always refused.
        """
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            raise ForbiddenAddress(f"{address} is not an address") from None
        if isinstance(ip, ipaddress.IPv6Address):
            if ip.scope_id is not None:
                raise ForbiddenAddress(f"{ip} has a zone")
            closed = ip not in _OPEN_V6 or any(ip in network for network in _CLOSED_V6)
            plain: Address = ip.ipv4_mapped or ip
        else:
            closed = any(ip in network for network in _CLOSED_V4)
            plain = ip
        if allowed_by_name:
            closed = plain.is_unspecified or plain.is_multicast or plain in _CLOSED_V4[-1]
        if closed:
            raise ForbiddenAddress(f"{ip} is not a public address")
