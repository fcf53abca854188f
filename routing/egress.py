"""Where the gateway may dial: the one table of addresses.

`Egress` answers two questions about an address that `routing.base_url` has read. `check_url`: may this scheme, host and
port be dialled at all? `check_address`: may this address, which a name has just been resolved to, be connected to? By
default only https, only on the listed ports, only to globally routable unicast addresses. The operator's list of exact
(scheme, host, port) entries lifts all three for those entries; it is empty unless set, and loopback gets no special
favour. `objection` tells whoever saves an address.

No I/O here, and no framework: settings are passed in.
"""

import ipaddress
from collections.abc import Iterable

from routing.base_url import BadUrl, BaseUrl, Endpoint, parse_base_url

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

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


class ForbiddenAddress(PermissionError):
    """The guard refuses this endpoint or address.

    An OSError, because that is what the connection code of `aiohappyeyeballs` collects and hands on when a
    socket factory refuses one of several addresses.
    """


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
        if base.is_address:
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


def objection(text: str, entries: Iterable[str]) -> str | None:
    """Why the base URL `text` would not be dialled with `entries` as EGRESS_ALLOW, and what opens it; None: it would.

    For whoever saves an address: a call that fails later tells its caller only that the provider is out of reach.
    Raises `BadUrl`.
    """
    base = parse_base_url(text)
    guard = Egress(parse_allow(entries))
    try:
        guard.check_url(base)
        if base.is_address:
            guard.check_address(base.host, allowed_by_name=guard.is_listed(base))
    except ForbiddenAddress as error:
        host = f"[{base.host}]" if ":" in base.host else base.host
        entry = f"{base.scheme}://{host}:{base.port}"
        opened = (
            "" if guard.is_listed(base) else f" To allow it, add {entry} to EGRESS_ALLOW and start the gateway anew."
        )
        return f"{base} will not be dialled: {error}.{opened}"
    return None
