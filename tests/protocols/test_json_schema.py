"""Schemas put into what each side takes."""

import json
from typing import Any

import pytest

from gateway.protocols.json_schema import (
    MAX_SCHEMAS,
    BadSchema,
    adapt,
    from_openapi,
    object_schema,
    takes_nothing,
)
from gateway.protocols.schema_dialects import ANTHROPIC_STRICT, GEMINI, GEMINI_OPENAPI, OPENAI_STRICT, SchemaDialect

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
TREE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/T"}, "v": {"type": "string"}}}
ALL = (GEMINI, GEMINI_OPENAPI, OPENAI_STRICT, ANTHROPIC_STRICT)


def of(schema: Any, dialect: SchemaDialect = GEMINI) -> Any:
    """How one property is put."""
    return adapt({"type": "object", "properties": {"p": schema}}, dialect)["properties"]["p"]


@pytest.mark.parametrize(("schema", "gemini", "openapi"), [
    ({"const": "a"}, {"enum": ["a"]}, {"type": "STRING", "enum": ["a"]}),
    ({"const": 3}, {"enum": [3]}, {"description": "enum: [3]"}),
    ({"type": ["string", "null"]}, {"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
    ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]},
     {"type": "STRING", "nullable": True}),
    ({"anyOf": [{"type": ["string", "null"]}, {"type": "integer"}]},
     {"anyOf": [{"type": ["string", "null"]}, {"type": "integer"}]},
     {"anyOf": [{"type": "STRING", "nullable": True}, {"type": "INTEGER"}]}),
    ({"type": "string", "nullable": True}, {"type": ["string", "null"]}, {"type": "STRING", "nullable": True}),
    ({"type": "null"}, {"type": "null"}, {"type": "STRING", "nullable": True}),
    ({"type": ["string", "integer"]}, {"type": ["string", "integer"]},
     {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}),
    ({"enum": ["a", None]}, {"enum": ["a", None]}, {"type": "STRING", "enum": ["a"], "nullable": True}),
    ({"oneOf": [POINT, {"type": "string"}]}, {"anyOf": [POINT, {"type": "string"}]},
     {"anyOf": [{"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}}, "required": ["x"]}, {"type": "STRING"}]}),
    ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}, {"type": "INTEGER", "minimum": 1}),
    ({"type": "integer", "exclusiveMaximum": 2.5}, {"type": "integer", "maximum": 2},
     {"type": "INTEGER", "maximum": 2}),
    ({"type": "number", "exclusiveMaximum": 2.5},
     {"type": "number", "maximum": 2.5, "description": "exclusiveMaximum: 2.5"},
     {"type": "NUMBER", "maximum": 2.5, "description": "exclusiveMaximum: 2.5"}),
    ({"type": "string", "pattern": "^a", "description": "An a."},
     {"type": "string", "description": 'An a. (pattern: "^a")'},
     {"type": "STRING", "pattern": "^a", "description": "An a."}),
    ({"type": "string", "format": "uri"}, {"type": "string", "format": "uri"},
     {"type": "STRING", "description": 'format: "uri"'}),
    ({"type": "string", "default": "a"}, {"type": "string", "description": 'default: "a"'},
     {"type": "STRING", "default": "a"}),
    ({"type": "array"}, {"type": "array"}, {"type": "ARRAY", "items": {"type": "STRING"}}),
    ({"type": "array", "items": [{"type": "string"}]}, {"type": "array", "prefixItems": [{"type": "string"}]},
     {"type": "ARRAY", "items": {"type": "STRING"}, "description": 'prefixItems: [{"type":"string"}]'}),
    ({"type": "object", "additionalProperties": False}, {"type": "object", "additionalProperties": False},
     {"type": "OBJECT"}),
    ({"type": "object", "additionalProperties": {"type": "string"}},
     {"type": "object", "additionalProperties": {"type": "string"}},
     {"type": "OBJECT", "description": 'additionalProperties: {"type":"string"}'}),
    ({"allOf": [POINT, {"properties": {"y": {"type": "string"}}, "required": ["y"]}]},
     {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}, "required": ["x", "y"]},
     {"type": "OBJECT", "properties": {"x": {"type": "INTEGER"}, "y": {"type": "STRING"}}, "required": ["x", "y"]}),
    ({"not": {"type": "string"}}, {"description": 'not: {"type":"string"}'}, {"description": 'not: {"type":"string"}'}),
    (True, {}, {}),
])  # fmt: skip
def test_googles_two_kinds(schema: Any, gemini: Any, openapi: Any) -> None:
    assert of(schema) == gemini
    assert of(schema, GEMINI_OPENAPI) == openapi


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"type": "object", "properties": {"pattern": {"type": "string"}, "$ref": {"type": "integer"}}}
    assert adapt(schema, GEMINI) == schema


@pytest.mark.parametrize("dialect", ALL)
def test_what_is_referred_to_stands_in_place(dialect: SchemaDialect) -> None:
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/P", "description": "Here."}, "q": {"$ref": "#/definitions/P"}},
        "required": ["p", "q"],
        "$defs": {"P": POINT},
        "definitions": {"P": POINT},
    }
    made = adapt(schema, dialect)
    assert "$ref" not in json.dumps(made) and "$defs" not in made
    assert made["properties"]["p"]["description"] == "Here."
    assert list(made["properties"]["q"]["properties"]) == ["x"]


def test_what_refers_to_itself() -> None:
    schema = {"$ref": "#/$defs/T", "$defs": {"T": TREE}}
    assert adapt(schema, GEMINI) == {**TREE, "$defs": {"T": TREE}}
    ended = adapt(schema, GEMINI_OPENAPI)["properties"]["next"]
    assert ended == {"type": "OBJECT", "description": "Another T, of the same form."}
    root = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    made = adapt(root, GEMINI)
    assert made["properties"]["child"] == root | {"properties": {"child": {"$ref": "#/$defs/root"}}}


@pytest.mark.parametrize("ref", ["#/$defs/None", "https://json-schema.org/x", "other.json#/a", "#/type"])
def test_references_that_lead_nowhere_or_elsewhere(ref: str) -> None:
    with pytest.raises(BadSchema):
        of({"$ref": ref})


@pytest.mark.parametrize("dialect", ALL)
def test_references_that_multiply_are_bounded(dialect: SchemaDialect) -> None:
    twice = {f"a{n}": {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2}} for n in range(40)}
    with pytest.raises(BadSchema, match=str(MAX_SCHEMAS)):
        adapt({"$ref": "#/$defs/a0", "$defs": {**twice, "a40": {"type": "string"}}}, dialect)


LONG = {"type": "string", "pattern": "a" * 100_000}
MANY = {"allOf": [{"required": [str(at)], "properties": {str(at): {}}} for at in range(4000)]}


@pytest.mark.parametrize("schema", [
    {"type": "object", "properties": {str(at): {"$ref": "#/$defs/L"} for at in range(9000)}, "$defs": {"L": LONG}},
    {"$ref": "#/$defs/0", "$defs": {f"{at}": {"items": {"$ref": f"#/$defs/{at + 1}"}} for at in range(300)}},
    {"type": "object", "properties": {str(at): {"$ref": "#/$defs/M"} for at in range(9)}, "$defs": {"M": MANY}},
])  # fmt: skip
def test_work_is_bounded_by_what_is_written(schema: Any) -> None:
    with pytest.raises(BadSchema):
        adapt(schema, GEMINI)


def test_all_of_many_is_linear() -> None:
    assert len(of(MANY)["required"]) == len(of(MANY)["properties"]) == 4000


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("member", [{"$ref": "#/$defs/A"}, {"allOf": [{"$ref": "#/$defs/A"}]}])
def test_a_circle_of_nothing_but_references_ends(dialect: SchemaDialect, member: Any) -> None:
    adapt({"$ref": "#/$defs/A", "$defs": {"A": member}}, dialect)
    adapt({"allOf": [member], "$defs": {"A": {"allOf": [member, member]}}}, dialect)


def test_all_of_all_is_kept_and_bounded() -> None:
    name = {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}]}
    also = {"allOf": [{"type": "object", "properties": {"b": {"type": "string"}}}]}
    assert of({"allOf": [name, also]})["properties"] == {"b": {"type": "string"}, "a": {"type": "string"}}
    twice = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(40)}
    with pytest.raises(BadSchema):
        adapt({"allOf": [{"allOf": [{"allOf": [{}] * 9000}]}] * 2, "$defs": {**twice, "a40": POINT}}, GEMINI)


def test_openais_strict_mode_requires_all_and_closes() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": POINT}, "required": ["b"]}
    assert adapt(schema, OPENAI_STRICT) == {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": POINT | {"additionalProperties": False}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }


def test_anthropics_strict_mode_tells_bounds() -> None:
    assert of({"type": "integer", "minimum": 1}, ANTHROPIC_STRICT) == {"type": "integer", "description": "minimum: 1"}
    assert of({"type": "object"}, ANTHROPIC_STRICT) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }


@pytest.mark.parametrize("dialect", ALL)
def test_the_clients_own_schema_is_not_changed(dialect: SchemaDialect) -> None:
    schema: Any = {"type": "object", "properties": {"p": {"allOf": [{"$ref": "#/$defs/T"}]}}, "$defs": {"T": TREE}}
    before = json.dumps(schema)
    adapt(schema, dialect)
    assert json.dumps(schema) == before


def test_openapi_as_json_schema() -> None:
    schema = {
        "type": "OBJECT",
        "properties": {
            "type": {"type": "STRING", "nullable": True, "min_length": "3", "format": "enum", "enum": ["a"]},
            "list": {"type": "ARRAY", "items": {"type": "TYPE_UNSPECIFIED"}, "maxItems": "2"},
            "any": {"any_of": [{"type": "INTEGER"}, {"type": "BOOLEAN"}], "nullable": True, "example": 7},
        },
        "property_ordering": ["any", "type"],
    }
    made = from_openapi(schema)
    assert list(made["properties"]) == ["any", "type", "list"]
    assert made == {
        "type": "object",
        "properties": {
            "type": {"type": ["string", "null"], "minLength": 3, "enum": ["a", None]},
            "list": {"type": "array", "items": {}, "maxItems": 2},
            "any": {"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "null"}], "examples": [7]},
        },
    }
    assert from_openapi(made) == made


def test_openapi_is_read_to_a_depth() -> None:
    deep: Any = {"type": "STRING"}
    for _ in range(300):
        deep = {"type": "ARRAY", "items": deep}
    with pytest.raises(BadSchema):
        from_openapi(deep)


@pytest.mark.parametrize(("schema", "nothing"), [
    (None, True), ({}, True), ({"type": "object"}, True), ({"type": "object", "properties": {}}, True),
    ({"type": "object", "properties": {}, "additionalProperties": False}, True),
    ({"type": "object", "additionalProperties": True}, False), (POINT, False), ({"$ref": "#/$defs/P"}, False),
])  # fmt: skip
def test_tools_without_parameters(schema: Any, nothing: bool) -> None:
    assert takes_nothing(schema) is nothing
    made = object_schema(schema)
    assert made["type"] == "object" and type(made["properties"]) is dict
