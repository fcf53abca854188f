"""The parts of a JSON text, against what the standard library reads of it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.json_slices import MOST_BRACKETS, fields, items

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_an_object_is_its_fields(value: dict[str, Any], indent: Any, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii).encode("utf-8", "surrogatepass")
    found = {json.loads(name): json.loads(inner) for name, inner in fields(text)}
    assert found == value


@given(st.lists(VALUES), st.sampled_from([None, 1]))
def test_an_array_is_its_items(value: list[Any], indent: Any) -> None:
    assert [json.loads(inner) for inner in items(json.dumps(value, indent=indent).encode())] == value


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"1", b"{", b"}", b"{}}", b"{} 1", b"[]", b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}',
        b'{"a" 1}', b"{1:2}", b'{"a":[}', b'{"a":"', b'{"a":"\\"}', b'{"a":1', b'{"a:1}',
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        list(fields(text))


@pytest.mark.parametrize("text", [b"", b"{}", b"[", b"[1", b"[1,]", b"[,1]", b"[1]]", b"[1 2]", b'["a]', b"[]1"])
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        list(items(text))


def test_a_value_has_so_many_brackets_and_no_more() -> None:
    pairs = MOST_BRACKETS // 2 - 1
    assert len(list(items(b"[[" + b"[]" * pairs + b"]]"))) == 1
    with pytest.raises(ValueError, match="more than"):
        list(items(b"[[" + b"[]" * (pairs + 1) + b"]]"))


def test_what_is_in_a_string_is_no_bracket() -> None:
    assert list(items(rb'["[\"]", "\\", "}"]')) == [rb'"[\"]"', rb'"\\"', b'"}"']
