"""Chat requests for tests: how they are made, read, refused, and what an upstream gets of them."""

import json
from typing import Any

import pytest

from gateway.protocols.openai_chat import ChatRequest, parse, upstream_body
from gateway.wire import strict_json
from gateway.wire.dialects import DIALECTS
from gateway.wire.errors import InvalidRequest

HI: dict[str, Any] = {"role": "user", "content": "hi"}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def ask(**fields: Any) -> dict[str, Any]:
    """The smallest body, with these fields."""
    return {"model": "m-1", "messages": [HI]} | fields


def saying(*parts: Any, role: str = "user") -> dict[str, Any]:
    """A body with one message of these parts."""
    return ask(messages=[{"role": role, "content": list(parts)}])


def function(name: str, **fields: Any) -> dict[str, Any]:
    """A tool."""
    return {"type": "function", "function": {"name": name} | fields}


def called(id: str, name: str, arguments: str) -> dict[str, Any]:
    """A call as an assistant's turn holds it."""
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def take(body: Any, dialect: str = "standard") -> ChatRequest:
    """A body that is taken."""
    return parse(body, len(strict_json.dumps(body)), DIALECTS[dialect])


def read(**fields: Any) -> ChatRequest:
    """The smallest request, with these fields."""
    return take(ask(**fields))


def refused(body: Any, dialect: str = "standard") -> InvalidRequest:
    """What the client of a refused body is told. A message says something and can stand in a header or a log."""
    with pytest.raises(InvalidRequest) as caught:
        parse(body, 100, DIALECTS[dialect])
    assert caught.value.status == 400
    assert caught.value.type == "invalid_request_error"
    assert min(caught.value.message) >= " "
    return caught.value


def fault(body: Any, dialect: str = "standard") -> tuple[str | None, str | None]:
    """The parameter and the code of a refusal."""
    error = refused(body, dialect)
    return error.param, error.code


def sent(request: ChatRequest, **changes: Any) -> Any:
    """The body an upstream gets."""
    settings: dict[str, Any] = {"model": "up-1", "output_cap": None, "cap_field": "max_tokens", "ask_usage": True}
    return json.loads(upstream_body(request, **settings | changes))
