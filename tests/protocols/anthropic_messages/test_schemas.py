"""Schemas as providers of the Messages protocol take them."""

from copy import deepcopy
from typing import Any

import pytest

from gateway.protocols.anthropic_messages.forms.schemas import closed, input_schema, is_open

A, B = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_schema_is_that_of_no_arguments(nothing: Any) -> None:
    assert input_schema(nothing) == {"type": "object", "properties": {}}


def test_a_union_at_the_top_becomes_one_object_and_is_told_in_words() -> None:
    union = {
        "anyOf": [{"properties": {"a": A}, "required": ["a"]}, {"properties": {"a": A, "b": B}, "required": ["a", "b"]}]
    }
    before = deepcopy(union)
    made = input_schema(union)
    assert (made["type"], made["properties"], made["required"]) == ("object", {"a": A, "b": B}, ["a"])
    assert "anyOf" not in made and '"required":["a","b"]' in made["description"]
    assert union == before
    both = input_schema({"type": "object", "allOf": [{"required": ["a"]}, {"required": ["b"]}], "description": "Both."})
    assert both["required"] == ["a", "b"] and both["description"].startswith("Both.")


def test_a_schema_that_is_taken_is_the_same_object() -> None:
    schema = {"type": "object", "properties": {"anyOf": A}, "additionalProperties": True}
    assert input_schema(schema) is schema


def test_a_forced_form_closes_every_object_and_tells_bounds_in_words() -> None:
    schema = {
        "$schema": "x",
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "minimum": 1, "maximum": 5},
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": A}},
                "minItems": 1,
                "maxItems": 3,
            },
            "one": {"oneOf": [A, {"$ref": "#/$defs/n"}]},
            "day": {"type": "string", "format": "date"},
            "odd": {"type": "string", "format": "roman", "pattern": "^[IVX]+$"},
        },
        "$defs": {"n": {"type": "object", "properties": {"b": B}, "required": ["b"]}},
    }
    before = deepcopy(schema)
    assert closed(schema) == {
        "type": "object",
        "properties": {
            "minimum": {"type": "integer", "description": '{"minimum":1,"maximum":5}'},
            "list": {
                "type": "array",
                "items": {"type": "object", "properties": {"a": A}, "additionalProperties": False},
                "minItems": 1,
                "description": '{"maxItems":3}',
            },
            "one": {"anyOf": [A, {"$ref": "#/$defs/n"}]},
            "day": {"type": "string", "format": "date"},
            "odd": {"type": "string", "description": '{"format":"roman","pattern":"^[IVX]+$"}'},
        },
        "$defs": {"n": {"type": "object", "properties": {"b": B}, "required": ["b"], "additionalProperties": False}},
        "additionalProperties": False,
    }
    assert schema == before


@pytest.mark.parametrize(
    ("schema", "is_it"),
    [
        ({"type": "object", "properties": {"a": A}}, False),
        ({"type": "object"}, True),
        ({"type": "object", "properties": {"a": {"type": "object", "additionalProperties": A}}}, True),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}}}}, True),
        ({"type": "object", "properties": {"a": {"oneOf": [A, {"type": "object"}]}}}, True),
        ({"type": "object", "properties": {"additionalProperties": A}, "additionalProperties": False}, False),
    ],
)
def test_what_no_forced_form_can_allow(schema: dict[str, Any], is_it: bool) -> None:
    assert is_open(schema) is is_it
