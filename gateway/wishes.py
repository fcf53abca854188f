"""What one request wishes of its route, as a policy: from its body, its headers, and a pin in the model's name.

Clients that cannot add fields to a body say the same in headers. Where both speak of a thing the body's word holds.
"""

from collections.abc import Mapping
from typing import Any

from gateway.dialects import Dialect
from gateway.errors import InvalidRequest
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request_routing import RoutingWish, read_routing
from routing.policy import Policy, over

# As WSGI spells a header, as people do, and where a body has the same.
HEADERS = (
    ("HTTP_X_GATEWAY_ROUTING", "X-Gateway-Routing", "provider.routing.type"),
    ("HTTP_X_GATEWAY_FACTOR", "X-Gateway-Factor", "provider.routing.primary_factor"),
    ("HTTP_X_GATEWAY_PROVIDERS", "X-Gateway-Providers", "provider.routing.providers"),
    ("HTTP_X_GATEWAY_FALLBACK", "X-Gateway-Fallback", "provider.fallback"),
)
NO_HEADERS: Mapping[str, Any] = {}
_NAMES = frozenset(name for name, _, _ in HEADERS)


def wish(asked: ChatRequest, meta: Mapping[str, Any], dialect: Dialect) -> Policy | None:
    """What a request wishes; None: nothing. `meta` are its headers as WSGI spells them.

    Raises `InvalidRequest` for a header that says what is not allowed there, `param` being the header.
    """
    body = None if asked.routing is None else _policy(asked.routing)
    if meta.keys().isdisjoint(_NAMES):
        return body
    headers = _policy(_read({path: meta[name] for name, _, path in HEADERS if name in meta}, dialect))
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
