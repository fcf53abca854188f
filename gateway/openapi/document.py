"""The OpenAPI 3.1 document of the API, made from the code when it is first asked for.

From the URLconf come the paths, from the views their methods, scopes, endpoints and docstrings, from the table of
errors and the dialects the statuses of refusals, from types beside the protocol the bodies. msgspec writes those as
JSON Schema 2020-12, which is what OpenAPI 3.1 takes. `openapi_operations` adds what a view does not say of itself.

There is no drf-spectacular here: it reads serializers, authentication classes and renderers, and these views have none
of them. All that it would be left with is the list of URLs.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from inspect import cleandoc
from typing import Any

import msgspec
from django.urls import URLPattern, URLResolver, get_resolver
from django.urls.resolvers import RoutePattern

from gateway.door.authentication import BARE
from gateway.door.unknown import is_lax
from gateway.door.view import ApiView
from gateway.endpoints import generate_content, messages
from gateway.endpoints.generations import EitherScope
from gateway.openapi import answers
from gateway.openapi.operations import KEYED, OPERATIONS, TAGS, Operation, Parameter
from gateway.openapi.protocols import GoogleError, MessagesError
from gateway.protocols import CHAT, PROTOCOLS
from gateway.wire.dialects import DIALECTS, STANDARD
from gateway.wire.errors import GatewayError

# A failure, by the protocol of whoever asked.
ERRORS: Mapping[str, type] = dict.fromkeys(PROTOCOLS, answers.Error) | {
    messages.Messages.protocol: MessagesError,
    generate_content.Gemini.protocol: GoogleError,
}
PLAIN: Mapping[type, dict[str, Any]] = {
    dict: {"type": "object"},
    list: {"type": "array", "items": {"type": "object"}},
}
METHODS = ("get", "post", "put", "patch", "delete")
UNDOCUMENTED = frozenset({"UnknownPath", "Stylesheet"})
REF = "#/components/schemas/{name}"
WAITS = (409, 429, 503)  # Statuses with Retry-After in dialects that send it.
REQUEST_ID = {"description": "Name it when you ask about this call.", "required": True, "schema": {"type": "string"}}
RETRY_AFTER = {"description": "Seconds.", "schema": {"type": "integer", "minimum": 0}}

_variable = re.compile(r"<(?:\w+:)?(\w+)>")
_sentence = re.compile(r"(.+?\.)(?:\s|$)")


@dataclass(frozen=True, slots=True)
class Route:
    """One path of the API, `{name}` its variables, with the view that serves it and what `as_view` was given."""

    path: str
    view: type[ApiView]
    options: Mapping[str, Any]

    @property
    def methods(self) -> list[str]:
        """Those its view has, HEAD and OPTIONS aside."""
        return [method for method in METHODS if hasattr(self.view, method)]


def routes() -> list[Route]:
    """All that the URLconf sends to a view of the API, each under the path that we would rather see; but for the
    catch-all and the page's stylesheet.
    """
    found = _walk(get_resolver().url_patterns, "/")
    return [route for route in found if route.view.__name__ not in UNDOCUMENTED and not is_lax(route.path)]


@cache
def document() -> dict[str, Any]:
    """The document, as plain values. It is shared: do not change it. Raises KeyError for a route without a row."""
    types = {type for operation in OPERATIONS.values() for type in _types(operation)}
    ordered = sorted({*ERRORS.values(), *types} - {dict, list}, key=lambda type: type.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=REF)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes():
        paths[route.path] = {method: _operation(route, method) for method in route.methods}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Meterline",
            "version": "1",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            "description": "One API for the models of many providers. Send your key in one of four headers; errors "
            "have one envelope everywhere. A key or its project may speak another vendor's dialect, which changes "
            "how errors are told.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {name: _tidied(schema) for name, schema in schemas.items()},
            "securitySchemes": _schemes(),
        },
    }


def _walk(patterns: Iterable[URLPattern | URLResolver], prefix: str) -> Iterator[Route]:
    for pattern in patterns:
        path = prefix + _path_of(pattern)
        if isinstance(pattern, URLResolver):
            yield from _walk(pattern.url_patterns, path)
            continue
        view = getattr(pattern.callback, "view_class", None)
        if isinstance(view, type) and issubclass(view, ApiView):
            yield Route(path, view, getattr(pattern.callback, "view_initkwargs", {}))


def _path_of(pattern: URLPattern | URLResolver) -> str:
    text = str(pattern.pattern)
    if isinstance(pattern.pattern, RoutePattern):
        return _variable.sub(r"{\1}", text)
    return text.removeprefix("^").removesuffix("$").removesuffix("/?")


def _types(operation: Operation) -> Iterator[type]:
    yield from operation.answers
    for types in operation.by_shape.values():
        yield from types
    yield from (type for _, type in operation.statuses.values() if type)
    yield from (type for type in (operation.body, operation.stream) if type)


def _schemes() -> dict[str, Any]:
    bare = {name.decode(): {"type": "apiKey", "in": "header", "name": name.decode()} for name in BARE}
    return {"bearer": {"type": "http", "scheme": "bearer"}, **bare}


def _operation(route: Route, method: str) -> dict[str, Any]:
    row = OPERATIONS[f"{route.view.__name__}.{method}"]
    said = " ".join(cleandoc(getattr(route.view, method).__doc__ or "").partition("\n\n")[0].split())
    said = " ".join(sentence for sentence in _sentence.findall(said) if not sentence.startswith("Raises "))
    parameters = [_path_parameter(name, row) for name in re.findall(r"{(\w+)}", route.path)]
    parameters += [_parameter(parameter) for parameter in row.parameters if _applies(parameter, route)]
    shown: dict[str, Any] = {
        "tags": [row.tag],
        "operationId": method + re.sub(r"\W+(\w)", lambda match: match[1].upper(), route.path).strip("{}/"),
        "summary": row.title,
        "description": "\n\n".join(text for text in (said, row.about, _needs(route.view)) if text),
        "parameters": parameters,
        "security": [] if route.view.public else [{name: []} for name in _schemes()],
        "responses": _responses(route, row),
        "x-codeSamples": [{"lang": "Shell", "label": "curl", "source": _curl(route, method, row)}],
    }
    if route.options.get("deprecated"):
        shown["deprecated"] = True
    if row.body is not None:
        content: dict[str, Any] = {"schema": {"$ref": REF.format(name=row.body.__name__)}}
        if row.body_media == "application/json":
            content["example"] = row.sample
        shown["requestBody"] = {"required": True, "content": {row.body_media: content}}
    return shown


def _applies(parameter: Parameter, route: Route) -> bool:
    """A header that chooses the shape says nothing where the route has one."""
    return parameter.name != "anthropic-version" or "shape" not in route.options


def _needs(view: type[ApiView]) -> str:
    if view.public:
        return "No key is needed."
    scope = "inference or management" if issubclass(view, EitherScope) else view.scope
    return f"Needs a key with the scope {scope}, and with `{view.endpoint}` if its endpoints are limited."


def _path_parameter(name: str, row: Operation) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
        "description": f"Such as {row.names[name]}",
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": parameter.schema,
        "description": parameter.description,
    }


def _responses(route: Route, row: Operation) -> dict[str, Any]:
    """By status: the answer, and every error that may come in some dialect."""
    types = row.by_shape.get(route.options.get("shape"), row.answers)  # type: ignore[arg-type]
    content = {media: {"schema": _one_of(types)} for media in (row.media, *row.media_too)}
    answer: dict[str, Any] = {"description": "The answer.", "content": content}
    if row.stream:
        answer["content"]["text/event-stream"] = {"schema": _event(row.stream, route.view.protocol)}
    names = dict(row.headers)
    if route.options.get("deprecated"):
        names |= {"Deprecation": "Since when, as RFC 9745 has it.", "Link": "What to call instead."}
    answer["headers"] = {name.removesuffix("?"): _header(name, text) for name, text in names.items()}
    responses: dict[int, dict[str, Any]] = {200: answer}
    for status, (text, type) in row.statuses.items():
        responses[status] = {"description": text}
        if type:
            responses[status]["content"] = {"application/json": {"schema": _one_of((type,))}}
    errors = () if route.view.public else (*KEYED, *row.errors)
    for status, text in _told(errors, route.view.protocol).items():
        responses[status] = {
            "description": text,
            "content": {"application/json": {"schema": _one_of((ERRORS[route.view.protocol],))}},
        }
        if status in WAITS:
            responses[status]["headers"] = {"Retry-After": RETRY_AFTER}
    for response in responses.values():
        response["headers"] = {"x-request-id": REQUEST_ID, **response.get("headers", {})}
    return {str(status): responses[status] for status in sorted(responses)}


def _event(type: type, protocol: str) -> dict[str, Any]:
    """One server-sent event, as OpenAPI 3.2 has it. Its data is JSON, but for a chat's last event's, `[DONE]`."""
    said = _one_of((type, ERRORS[protocol]))
    data: dict[str, Any] = {"type": "string", "contentMediaType": "application/json", "contentSchema": said}
    about = "One event. Many follow each other"
    if protocol == CHAT:
        data, about = {"anyOf": [{"const": "[DONE]"}, data]}, f"{about}; the data of the last one is [DONE]"
    return {"type": "object", "description": f"{about}.", "required": ["data"], "properties": {"data": data}}


def _told(errors: Iterable[GatewayError], protocol: str) -> dict[int, str]:
    """The statuses of these errors in all dialects, each with what it means: codes, or types in other dialects."""
    found: dict[int, dict[str, set[str]]] = {}
    for error in errors:
        for dialect in DIALECTS.values():
            said = error.body(dialect)["error"]
            word = said["code"] if dialect is STANDARD else said["type"]
            status = PROTOCOLS[protocol].client.status(error, dialect)
            found.setdefault(status, {}).setdefault(dialect.name, set()).add(word)
    return {
        status: "; ".join(f"{name}: {', '.join(f'`{word}`' for word in sorted(words))}" for name, words in told.items())
        for status, told in found.items()
    }


def _header(name: str, text: str) -> dict[str, Any]:
    return {"description": text, "required": not name.endswith("?"), "schema": {"type": "string"}}


def _one_of(types: tuple[type, ...]) -> dict[str, Any]:
    schemas = [PLAIN.get(type) or {"$ref": REF.format(name=type.__name__)} for type in types] or [{"type": "string"}]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _tidied(schema: Any) -> Any:
    """Without `default: null`, which says nothing, and open wherever fields are listed: further ones pass."""
    if isinstance(schema, list):
        return [_tidied(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {name: _tidied(inner) for name, inner in schema.items() if name != "default" or inner is not None}
    if tidied.get("type") == "object" and "properties" in tidied:
        tidied.setdefault("additionalProperties", True)
    return tidied


def _curl(route: Route, method: str, row: Operation) -> str:
    """A command line for the path, with $METERLINE as the gateway's address and $KEY as a key."""
    path = re.sub(r"{(\w+)}", lambda match: row.names[match[1]], route.path)
    query = "&".join(f"{one.name}={one.sample}" for one in row.parameters if one.sample)
    target = f'"$METERLINE{path}{"?" if query else ""}{query}"'
    lines = [f"curl {target}" if method in ("get", "post") else f"curl -X {method.upper()} {target}"]
    if not route.view.public:
        lines.append('-H "Authorization: Bearer $KEY"')
    if row.sample is not None and row.body_media == "application/json":
        lines += ['-H "Content-Type: application/json"', f"-d '{json.dumps(row.sample)}'"]
    elif row.sample is not None:
        lines += [f"-F {name}={value}" for name, value in row.sample.items()]
    return " \\\n  ".join(lines)
