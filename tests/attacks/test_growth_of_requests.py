"""A caller enlarges one structure of its request; checking it and writing it for a provider costs as its bytes do."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.protocols.openai_chat import Fit, parse, upstream_body
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD
from gateway.wire.errors import InvalidRequest
from tests.attacks.growth import Work, check_linear

USER = {"role": "user", "content": "hi"}


def many(size: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(at) for at in range(size)]


def tool(at: int) -> dict[str, Any]:
    return {"type": "function", "function": {"name": f"f{at}", "parameters": {"type": "object"}}}


def call(at: int) -> dict[str, Any]:
    return {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": "{}"}}


BODIES: dict[str, Callable[[int], dict[str, Any]]] = {
    "messages": lambda n: {"messages": many(n, lambda at: USER)},
    "parts": lambda n: {"messages": [{"role": "user", "content": many(n, lambda at: {"type": "text", "text": "x"})}]},
    "pictures": lambda n: {
        "messages": [
            {
                "role": "user",
                "content": many(n, lambda at: {"type": "image_url", "image_url": {"url": "https://a.b/c"}}),
            }
        ]
    },
    "files": lambda n: {
        "messages": [
            {"role": "user", "content": many(n, lambda at: {"type": "file", "file": {"file_id": f"file-{at}"}})}
        ]
    },
    "calls": lambda n: {"messages": [USER, {"role": "assistant", "tool_calls": many(n, call)}]},
    "turns of calls": lambda n: {
        "messages": [
            turn
            for at in range(n // 2)
            for turn in (
                {"role": "assistant", "tool_calls": [call(at)]},
                {"role": "tool", "tool_call_id": f"c{at}", "content": "x"},
            )
        ]
    },
    "tools": lambda n: {"tools": many(n, tool)},
    "functions": lambda n: {"functions": many(n, lambda at: {"name": f"f{at}"})},
    "fields": lambda n: {f"f{at}": at for at in range(n)},
    "fields of a message": lambda n: {"messages": [USER | {f"f{at}": at for at in range(n)}]},
    "nulls": lambda n: {f"f{at}": None for at in range(n)},
    "stops": lambda n: {"stop": many(n, str)},
    "a long stop": lambda n: {"stop": ["x" * n]},
    "metadata": lambda n: {"metadata": {f"f{at}": "x" for at in range(n)}},
    "logit_bias": lambda n: {"logit_bias": {str(at): 1 for at in range(n)}},
    "models": lambda n: {"models": many(n, lambda at: f"a/m{at}")},
    "a schema": lambda n: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"properties": {f"f{at}": {"type": "string"} for at in range(n)}}},
        }
    },
    "a text": lambda n: {"messages": [{"role": "user", "content": "x" * 100 * n}]},
    "a name": lambda n: {"model": "x" * 100 * n},
}


@pytest.mark.parametrize("name", BODIES)
def test_a_request(name: str) -> None:
    def prepare(size: int) -> tuple[Work, int]:
        body = json.dumps({"model": "m", "messages": [USER]} | BODIES[name](size)).encode()
        return lambda: check_and_write(body), len(body)

    check_linear(prepare)


def check_and_write(body: bytes) -> None:
    """What is done for a body before the dial. Whether it is refused is another test's."""
    try:
        asked = parse(strict_json.loads(body), len(body), STANDARD)
    except (InvalidRequest, strict_json.BadJson):
        return
    upstream_body(asked, model="u", output_cap=9, cap_field="max_tokens", ask_usage=True, fit=Fit())
