"""JSON Schemas as this protocol's providers take them. Nothing here changes the schema it is given.

- A tool's `input_schema` is an object schema without a union at its top (`json_schema.object_schema`).
- What forces an answer into a form (`output_config.format`, strict tools) takes a part of JSON Schema alone: every
  object is closed, and bounds of numbers, strings and arrays are not known. What is not known goes into the
  description, as Anthropic's own SDK has it, so that the model still reads it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.protocols.json_schema import members, required_names
from gateway.wire import strict_json

_SCHEMA, _LIST, _MAP = "schema", "list", "map"  # what a keyword holds
_KNOWN: Mapping[str, str | None] = {
    **dict.fromkeys(("type", "description", "title", "enum", "const", "default", "$ref", "required"), None),
    **dict.fromkeys(("properties", "$defs", "definitions"), _MAP),
    **dict.fromkeys(("anyOf", "allOf"), _LIST),
    "items": _SCHEMA,
}
# Keywords that are known with these values alone.
_VALUES: Mapping[str, tuple[Any, ...]] = {
    "format": ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"),
    "minItems": (0, 1),
}


def is_open(schema: Any) -> bool:
    """Whether some object of it may have any further members, or any at all, which a forced form cannot allow."""
    if type(schema) is not dict:
        return False
    if type(schema.get("additionalProperties")) is dict or schema.get("additionalProperties") is True:
        return True
    if schema.get("type") == "object" and not schema.get("properties"):
        return True
    return any(map(is_open, _parts(schema)))


def is_exact(schema: Any) -> bool:
    """Whether every object of it is closed and has all its members, as OpenAI's strict mode demands."""
    if type(schema) is not dict:
        return True
    is_object = schema.get("type") == "object" or "properties" in schema
    is_closed = schema.get("additionalProperties") is False and required_names(schema) == members(schema).keys()
    return (is_closed or not is_object) and all(map(is_exact, _parts(schema)))


def _parts(schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas inside a schema, one level down."""
    for name, kind in (*_KNOWN.items(), ("oneOf", _LIST)):
        inner = schema.get(name) if kind else None
        if kind == _MAP and type(inner) is dict:
            yield from inner.values()
        elif kind == _LIST and type(inner) is list:
            yield from inner
        elif kind == _SCHEMA:
            yield inner


def closed(schema: Any) -> Any:
    """A schema in the part of JSON Schema that forces an answer."""
    if type(schema) is not dict:
        return schema
    made: dict[str, Any] = {}
    told: dict[str, Any] = {}
    for name, value in schema.items():
        known = "anyOf" if name == "oneOf" else name
        if known in _KNOWN and known not in made:
            made[known] = _inside(value, _KNOWN[known])
        elif value in _VALUES.get(name, ()):
            made[name] = value
        elif name not in ("additionalProperties", "$schema", "$id", "strict"):
            told[name] = value
    if made.get("type") == "object" or "properties" in made:
        made["additionalProperties"] = False
    if told:
        made["description"] = _told(made, strict_json.dumps(told).decode())
    return made


def _inside(value: Any, kind: str | None) -> Any:
    if kind == _SCHEMA:
        return closed(value)
    if kind == _LIST and type(value) is list:
        return [closed(part) for part in value]
    if kind == _MAP and type(value) is dict:
        return {name: closed(part) for name, part in value.items()}
    return value


def _told(schema: dict[str, Any], words: str) -> str:
    """A schema's description with more words behind it."""
    said = schema.get("description")
    return f"{said}\n\n{words}" if said and type(said) is str else words
