"""What one request wishes of its route, as a policy: from its body, its headers, and a pin in the model's name.

Clients that cannot add fields to a body say the same in headers. Where both speak of a thing the body's word holds.
"""

from collections.abc import Mapping
from typing import Any

from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.routing_fields import RoutingWish, read_routing
from gateway.wire.dialects import Dialect
from gateway.wire.errors import InvalidRequest
from gateway.wire.header_fields import Fields
from routing.planning.policy import Policy, over

# A header as it arrives, as people spell it, and where a body has the same.
HEADERS = (
    (b"x-gateway-routing", "X-Gateway-Routing", "provider.routing.type"),
    (b"x-gateway-factor", "X-Gateway-Factor", "provider.routing.primary_factor"),
    (b"x-gateway-providers", "X-Gateway-Providers", "provider.routing.providers"),
    (b"x-gateway-fallback", "X-Gateway-Fallback", "provider.fallback"),
)
_NAMES = frozenset(name for name, _, _ in HEADERS)


def wish(asked: ChatRequest, fields: Fields, dialect: Dialect) -> Policy | None:
    """What a request wishes, in its body or in its header `fields`; None: nothing.

    Raises `InvalidRequest` for a header that says what is not allowed there, `param` being the header.
    """
    body = None if asked.routing is None else _policy(asked.routing)
    if fields.keys().isdisjoint(_NAMES):
        return body
    headers = _policy(
        _read({path: fields[name].decode("latin-1") for name, _, path in HEADERS if name in fields}, dialect)
    )
    return headers if body is None else over(body, headers)


def pinned(wished: Policy | None, provider: str) -> Policy:
    """A wish for this provider and, unless the request says otherwise, no other."""
    fallback = wished.fallback if wished is not None and wished.fallback is not None else False
    return Policy("order", None, (provider,), fallback=fallback, source="request")


def _policy(said: RoutingWish) -> Policy:
    return Policy(said.strategy, said.factor, said.providers, fallback=said.fallback, source="request")


def _read(said: Mapping[str, str], dialect: Dialect) -> RoutingWish:
    kind, factor, listed, fallback = (said.get(path) for _, _, path in HEADERS)
    routing: dict[str, Any] = {}
    if kind is not None:
        routing["type"] = kind.strip()
    if factor is not None:
        routing["primary_factor"] = factor.strip()
    if listed is not None:
        routing["providers"] = [slug.strip() for slug in listed.split(",")]
    provider: dict[str, Any] = {"routing": routing}
    if fallback is not None:
        provider["fallback"] = fallback.strip()
    try:
        return read_routing(provider, dialect)
    except InvalidRequest as error:
        header = next((header for _, header, path in HEADERS if path == error.param), None)
        raise InvalidRequest(
            f"Header {header}: {error.message}" if header else error.message, code=error.code, param=header
        ) from error
