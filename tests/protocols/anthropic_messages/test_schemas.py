"""Schemas as providers of the Messages protocol take them."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.anthropic_messages.forms.schemas import closed, is_exact, is_open
from gateway.protocols.json_schema import object_schema, with_items

A, B = {"type": "string"}, {"type": "integer"}


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_schema_is_that_of_no_arguments(nothing: Any) -> None:
    assert object_schema(nothing) == {"type": "object", "properties": {}}


def test_a_union_at_the_top_becomes_one_object_and_is_told_in_words() -> None:
    union = {
        "anyOf": [{"properties": {"a": A}, "required": ["a"]}, {"properties": {"a": A, "b": B}, "required": ["a", "b"]}]
    }
    before = deepcopy(union)
    made = object_schema(union)
    assert (made["type"], made["properties"], made["required"]) == ("object", {"a": A, "b": B}, ["a"])
    assert "anyOf" not in made and '"required":["a","b"]' in made["description"]
    assert union == before
    both = object_schema(
        {"type": "object", "allOf": [{"required": ["a"]}, {"required": ["b"]}], "description": "Both."}
    )
    assert both["required"] == ["a", "b"] and both["description"].startswith("Both.")


def test_a_schema_that_is_taken_is_the_same_object() -> None:
    schema = {"type": "object", "properties": {"anyOf": A}, "additionalProperties": True}
    assert object_schema(schema) is schema


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


keywords = st.sampled_from(
    [
        *("type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "additionalProperties", "$defs"),
        *("format", "minItems", "object", "description", "enum", "minimum", "a"),
    ]
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | keywords,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords, inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(keywords, anything, max_size=6))
def test_what_is_no_schema_is_nobody_s_end(schema: dict[str, Any]) -> None:
    before = deepcopy(schema)
    assert object_schema(schema)["type"] == "object" and type(closed(schema)) is dict
    assert type(with_items(schema)) is dict
    assert is_open(schema) in (True, False) and is_exact(schema) in (True, False)
    assert schema == before


EXACT = {"type": "object", "properties": {"a": A}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "is_it"),
    [
        (EXACT, True),
        ({**EXACT, "required": []}, False),
        ({**EXACT, "additionalProperties": True}, False),
        ({**EXACT, "properties": {"a": {"type": "array", "items": EXACT}}}, True),
        ({**EXACT, "properties": {"a": {"anyOf": [A, {"type": "object", "properties": {}}]}}}, False),
        ({"$ref": "#/$defs/n", "$defs": {"n": {**EXACT, "required": []}}}, False),
    ],
)
def test_what_a_strict_mode_takes(schema: dict[str, Any], is_it: bool) -> None:
    assert is_exact(schema) is is_it


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
