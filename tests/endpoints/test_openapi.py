"""The OpenAPI document: every endpoint is in it, and what it says of a chat request is what the gateway takes."""

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from django.urls import resolve

from gateway.door.unknown import UnknownPath
from gateway.door.view import ApiView
from gateway.openapi.document import Route, _operation, document, routes
from gateway.openapi.operations import OPERATIONS
from gateway.openapi.pages import Stylesheet
from gateway.protocols.openai_chat import KNOWN_FIELDS
from gateway.protocols.openai_chat.request.messages import ROLES
from gateway.protocols.openai_chat.request.parts import PARTS
from gateway.wire.dialects import STANDARD
from tests.protocols.openai_chat.requests import ask, function, refused, saying, take
from tests.stage.product import Gateway

SCHEMAS: dict[str, Any] = document()["components"]["schemas"]
REQUEST = SCHEMAS["ChatCompletionRequest"]
SHARED = (
    "chat/completions",
    "completions",
    "embeddings",
    "route",
    "models",
    "models/{name}",
    "generation",
    "management/generation",
    "management/payg/balance",
    "management/usage",
    "management/statistics/timeseries",
    "management/statistics/leaderboard",
    "management/statistics/market_share",
    "management/statistics/model_usage",
    "management/statistics/trending",
    "management/statistics/performance",
    "user/balance",
    "files",
    "files/{name}",
    "files/{name}/content",
)
# A value of each field that is right, where the schema alone does not give one.
NEEDS: dict[str, dict[str, Any]] = {
    "top_logprobs": {"logprobs": True},
    "stream_options": {"stream": True},
    "tool_choice": {"tools": [function("f")]},
}


def branches(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The alternatives of a schema, but for null, references followed."""
    for one in schema.get("anyOf", [schema]):
        if "$ref" in one:
            yield SCHEMAS[one["$ref"].rpartition("/")[2]]
        elif one.get("type") != "null":
            yield one


def tags(schema: dict[str, Any]) -> set[str]:
    """Words by which the members of a union of objects are told apart."""
    if "discriminator" in schema:
        return set(schema["discriminator"]["mapping"])
    key = next(word for word in ("type", "role") if word in schema["properties"])
    return set(schema["properties"][key]["enum"])


def accepts(body: Any) -> bool:
    """Whether the document's schema takes a chat request."""
    schema = {"$ref": "#/components/schemas/ChatCompletionRequest", "components": {"schemas": SCHEMAS}}
    return jsonschema_rs.Draft202012Validator(schema).is_valid(body)


def test_every_path_is_there() -> None:
    paths = set(document()["paths"])
    assert {f"{mount}/{path}" for mount in ("/v1", "/api/v1") for path in SHARED} <= paths
    lists = ("/anthropic/v1", "/api/anthropic/v1", "/v1beta", "/api/vertex-ai/v1beta")
    assert {f"{mount}/models{name}" for mount in lists for name in ("", "/{name}")} <= paths
    assert {"/api/usage/token", "/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"} <= paths
    for path in paths:
        view = resolve(path.replace("{name}", "x")).func.view_class  # type: ignore[attr-defined]
        assert issubclass(view, ApiView) and view is not UnknownPath


def test_every_view_is_there() -> None:
    def views(view: type[ApiView]) -> Iterator[type[ApiView]]:
        for inner in view.__subclasses__():
            yield inner
            yield from views(inner)

    served = {view for view in views(ApiView) if view.__module__.startswith("gateway.") and hasattr(view, "get")}
    served |= {view for view in views(ApiView) if view.__module__.startswith("gateway.") and hasattr(view, "post")}
    assert served - {UnknownPath, Stylesheet} == {route.view for route in routes()}
    assert {f"{route.view.__name__}.{method}" for route in routes() for method in route.methods} == set(OPERATIONS)


def test_a_new_route_must_be_described() -> None:
    with pytest.raises(KeyError, match=r"UnknownPath\.get"):
        _operation(Route("/v1/new", UnknownPath, {}), "get")


def test_the_document_is_sound() -> None:
    text = json.dumps(document())
    for reference in set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', text)):
        assert reference in SCHEMAS
    for schema in SCHEMAS.values():
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    operations = [operation for methods in document()["paths"].values() for operation in methods.values()]
    ids = [operation["operationId"] for operation in operations]
    assert len(ids) == len(set(ids)) >= 35
    assert set(document()["components"]["securitySchemes"]) == {"bearer", "x-api-key", "api-key", "x-goog-api-key"}
    for operation in operations:
        keyless = operation["tags"] == ["Service"]
        assert len(operation["security"]) == (0 if keyless else 4)
        assert keyless or {"200", "400", "401", "403", "413", "503"} <= set(operation["responses"])


def test_a_chat_completion_may_end_in_each_documented_way() -> None:
    chat = document()["paths"]["/v1/chat/completions"]["post"]["responses"]
    known = "200 400 401 402 403 404 409 413 415 422 429 431 500 502 503 504"
    assert set(known.split()) | {"520", "524"} == set(chat)
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}
    assert "`unknown_price`" in chat["402"]["description"]
    assert "Retry-After" in chat["429"]["headers"]
    assert "`idempotency_key_in_use`" in chat["409"]["description"]


def test_every_field_of_a_chat_request_is_there() -> None:
    assert set(REQUEST["properties"]) == KNOWN_FIELDS
    assert REQUEST["required"] == ["model", "messages"]
    assert REQUEST["additionalProperties"] is True


def test_roles_and_parts_are_those_that_are_taken() -> None:
    messages = REQUEST["properties"]["messages"]["items"]
    assert tuple(messages["discriminator"]["mapping"]) == ROLES
    for role, reference in messages["discriminator"]["mapping"].items():
        content = SCHEMAS[reference.rpartition("/")[2]]["properties"]["content"]
        lists = [one["items"] for one in content["anyOf"] if one.get("type") == "array"]
        parts = [SCHEMAS[lists[0]["$ref"].rpartition("/")[2]] if "$ref" in lists[0] else lists[0]]
        assert tags(parts[0]) == set(PARTS[role])


def limits(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """Values at the limits of each field and just beyond, with the path of the field; whether it may be sent."""
    for branch in branches(schema):
        step = 1 if branch.get("type") == "integer" else 0.125
        for key, beyond in (("minimum", -step), ("maximum", step)):
            if key in branch:
                yield path, branch[key], True
                yield path, branch[key] + beyond, False
        for word in branch.get("enum", ()):
            yield path, word, True
        if "enum" in branch and "array" not in str(schema):
            yield path, "no-such-word", False
        if branch.get("type") == "string" and "maxLength" in branch:
            yield path, "x" * branch["maxLength"], True
            yield path, "x" * (branch["maxLength"] + 1), False
        for name, inner in branch.get("properties", {}).items():
            others = set(branch.get("required", ())) - {name}
            if not others and "discriminator" not in schema:
                yield from limits(inner, (*path, name))


CASES = [
    (path, value, good)
    for name, schema in REQUEST["properties"].items()
    if name not in ("messages", "model", "tools", "functions", "function_call", "response_format")
    for path, value, good in limits(schema, (name,))
    if path != ("model_routing_config", "preference")
]


@pytest.mark.parametrize(("path", "value", "good"), CASES, ids=lambda value: str(value)[:40])
def test_a_limit_is_the_gateways_own(path: tuple[str, ...], value: Any, good: bool) -> None:
    for name in reversed(path[1:]):
        value = {name: value}
    body = ask(**{path[0]: value}, **NEEDS.get(path[0], {}))
    assert accepts(body) is good
    if good:
        take(body)
    else:
        assert (refused(body).param or "").startswith(path[0])


def test_there_are_limits_to_compare() -> None:
    assert len(CASES) > 100
    assert {"top_logprobs", "temperature", "n", "reasoning", "provider", "metadata"} - {"metadata"} <= {
        path[0] for path, _, _ in CASES
    }


@pytest.mark.parametrize(
    "body",
    [
        ask(stop=["x"] * 17),
        ask(stop="x" * 1025),
        ask(metadata={f"k{n}": "v" for n in range(17)}),
        ask(metadata={"k" * 65: "v"}),
        ask(metadata={"k": "v" * 513}),
        ask(logit_bias={"1": 101}),
        ask(messages=[]),
        ask(messages=[None]),
        ask(messages=[{"role": "robot", "content": "hi"}]),
        ask(model=None),
        ask(stream="yes"),
        ask(tools=[function("f")] * 129),
        ask(tools=[function("a b")]),
        ask(response_format={"type": "xml"}),
        ask(provider={"routing": {"providers": []}}),
        ask(usage={}),
        ask(web_search_options={"user_location": {"city": "Rome"}}),
        saying({"type": "image_url", "image_url": {}}),
        saying({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "midi"}}),
        saying({"type": "refusal", "refusal": "no"}),
    ],
)
def test_what_the_gateway_refuses_the_document_refuses(body: dict[str, Any]) -> None:
    refused(body)
    assert not accepts(body)


@pytest.mark.parametrize(
    "body",
    [
        ask(unheard_of={"of": 1}),
        ask(stop=["x"] * STANDARD.max_stops, temperature=None),
        ask(tools=[function("f", parameters={"type": "object"}, strict=True)], tool_choice="required"),
        ask(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}),
        ask(provider={"routing": {"type": "order", "providers": ["a/b"]}, "fallback": "c"}),
        saying({"type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}),
        saying({"type": "image_url", "image_url": "https://example.com/a.png"}),
        saying({"type": "file", "file": {"file_id": "file-1"}}),
        saying({"type": "thinking", "thinking": "hm", "signature": "s"}, role="assistant"),
        ask(messages=[{"role": "assistant", "content": None, "refusal": "no"}, {"role": "user", "content": "why"}]),
    ],
)
def test_what_the_gateway_takes_the_document_takes(body: dict[str, Any]) -> None:
    take(body)
    assert accepts(body)


def test_it_is_served_without_a_key(gateway: Gateway) -> None:
    answer = gateway.client.get("/openapi.json")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.json() == document()


def test_the_page_needs_nothing_from_elsewhere(gateway: Gateway) -> None:
    answer = gateway.client.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"].startswith("default-src 'self';")
    loaded = re.findall(r'<(?:link|script|img|iframe)[^>]*(?:href|src)="([^"]*)"', answer.text)
    assert loaded == ["/docs/docs.css"]
    assert "<script" not in answer.text and " style=" not in answer.text
    for path in document()["paths"]:
        assert f">{path}</code>" in answer.text
    for name in KNOWN_FIELDS:
        assert f"<code>{name}</code>" in answer.text
    style = gateway.client.get("/docs/docs.css")
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert style.status_code == 200 and "url(" not in style.text and "@import" not in style.text
    assert gateway.client.get("/docs/other").json()["error"]["code"] == "not_found"
