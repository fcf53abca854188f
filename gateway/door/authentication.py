"""From the headers of a request to its caller. One answer for every key that does not open: nothing can be told apart.

A key is taken from `Authorization: Bearer`, `x-api-key`, `api-key` or `x-goog-api-key`, from any of them on any path,
never from a query string. Two that differ are refused: which one was checked must not be a matter of reading order.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from ipaddress import ip_address

from django.conf import settings

from accounts import keys
from accounts.callers import Caller
from billing.backbone.connections import DatabaseAway
from gateway.process.snapshot import Snapshots, TooManyLookups
from gateway.wire.errors import Forbidden, Unauthenticated, Unavailable

PEPPERS: list[str] = settings.KEY_PEPPERS
BARE = (b"x-api-key", b"api-key", b"x-goog-api-key")
REFUSED = "Incorrect API key provided. Keys are made in the console; send yours as 'Authorization: Bearer sk-ml-…'."
NO_KEY = "No API key provided. Send yours as 'Authorization: Bearer sk-ml-…'."
IN_QUERY = ("key", "api_key", "api-key", "access_token")

Headers = Iterable[tuple[bytes, bytes]]


def secret_from(headers: Headers) -> str:
    """The one key a request carries. Raises `Unauthenticated` for none, for two that differ, and for anything odd."""
    found: set[bytes] = set()
    for name, value in headers:
        if name == b"authorization":
            scheme, _, credential = value.strip().partition(b" ")
            if scheme.lower() != b"bearer":
                raise Unauthenticated(REFUSED)
            found.add(credential.strip())
        elif name in BARE:
            found.add(value.strip())
    if not found:
        raise Unauthenticated(NO_KEY, code="missing_api_key")
    if len(found) > 1:
        raise Unauthenticated("The request carries API keys that differ. Send one.", code="ambiguous_api_key")
    try:
        return found.pop().decode("ascii")
    except UnicodeDecodeError as error:
        raise Unauthenticated(REFUSED) from error


def client_address(headers: Headers, peer: str) -> str:
    """The address a call comes from: the socket's peer, or, behind `TRUSTED_PROXY_HOPS` proxies, what the outermost
    trusted one saw. What a client wrote itself stands further left and is never read.

    Empty when fewer hops have left their mark: the peer is then a proxy, or somebody who came around one.
    """
    hops = settings.TRUSTED_PROXY_HOPS
    if not hops:
        return peer
    seen = [
        part.strip()
        for name, value in headers
        if name == b"x-forwarded-for"
        for part in value.decode("latin-1").split(",")
    ]
    return seen[-hops] if len(seen) >= hops else ""


async def authenticate(snapshots: Snapshots, headers: list[tuple[bytes, bytes]], peer: str) -> Caller:
    """The caller of a request with these raw headers (lower-case names) from `peer`.

    Raises `Unauthenticated`, `Forbidden` for an address outside the key's list, or `Unavailable` when an unknown key
    cannot be looked up, or nothing has been read yet.
    """
    secret = secret_from(headers)
    digests = keys.digests(secret, PEPPERS)
    known = snapshots.current.keys
    caller = next(filter(None, map(known.get, digests)), None)
    if caller is None or not caller.is_alive(datetime.now(UTC)):
        if not keys.is_well_formed(secret):
            raise Unauthenticated(REFUSED)
        if not snapshots.read_at:  # a key that is looked up would find no model yet
            raise Unavailable("The gateway is starting. Try again shortly.", code="starting", retry_after=1)
        try:
            caller = await snapshots.find(digests)
        except (DatabaseAway, TooManyLookups) as error:
            raise Unavailable("The key could not be checked just now.", retry_after=1) from error
        if caller is None:
            raise Unauthenticated(REFUSED)
    if caller.allowed_networks:
        try:
            allowed = caller.may_come_from(ip_address(client_address(headers, peer)))
        except ValueError:
            allowed = False  # a socket without an address, or a proxy that wrote nonsense
        if not allowed:
            raise Forbidden("This key may not be used from this address.", code="address_not_allowed")
    return caller


def require(caller: Caller, scope: str, endpoint: str) -> None:
    """Raises `Forbidden` unless the key has `scope` and may call `endpoint` (such as chat/completions)."""
    if scope not in caller.scopes:
        raise Forbidden(f"This key lacks the scope '{scope}'.", code="missing_scope")
    if caller.allowed_endpoints and endpoint not in caller.allowed_endpoints:
        raise Forbidden(f"This key may not call '{endpoint}'.", code="endpoint_not_allowed")
