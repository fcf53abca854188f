"""The strict parser: what it takes comes back the same, what it refuses it names, and neither takes long."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.strict_json import MAX_DEPTH, MAX_VALUES, BadJson, dumps, dumps_long, loads, loads_answer

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


def test_it_parses() -> None:
    body = b'{"model": "m", "n": 1, "t": 0.5, "s": ["\xe2\x80\xa8\xc2\x85", "\\u00e9", null, true]}\n'
    assert loads(body) == {"model": "m", "n": 1, "t": 0.5, "s": ["\u2028\x85", "é", None, True]}


def test_blanks_stand_around_it() -> None:
    assert loads(b' \t\r\n{"a": 1}\n\r\t ') == {"a": 1}
    assert loads(b"7") == loads(b" 7 ") == 7


def test_it_writes_compact_utf8() -> None:
    assert dumps({"a": ["é", 1, -9999.0, None]}) == b'{"a":["\xc3\xa9",1,-9999.0,null]}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b" \n", "line 2, column 1"),
        (b"{", "line 1, column 2"),
        (b'{"a":1}{"a":1}', "Extra data"),
        (b'\n {"a":1}\r\n\t x', "Extra data, line 3, column 3"),
        (b'\n {"a":}', "line 2, column 7"),
        (b'{"a":1}\xc2\xa0', "Extra data, line 1, column 8"),
        (b'\x0b{"a":1}', "line 1, column 1"),
        (b'{"a":1,}', "not valid JSON"),
        (b"{'a':1}", "not valid JSON"),
        (b'{"a":01}', "not valid JSON"),
        (b'"\\x41"', "not valid JSON"),
        (b'\xef\xbb\xbf{"a":1}', "byte order mark"),
        ('{"a":1}'.encode("utf-16"), "not UTF-8"),
        ('{"a":1}'.encode("utf-16-le"), "NUL"),
        ('{"a":1}'.encode("utf-32-be"), "NUL"),
        (b'{"a":"\x00"}', "NUL"),
        (b'{"a":"\n"}', "control character"),
        (b'{"a":"\x1f"}', "control character"),
        (b'{"a":"\xff"}', "byte 6"),
        (b'{"a":"\xc0\x80"}', "not UTF-8"),
        (b'{"a":"\xed\xa0\x80"}', "not UTF-8"),
        (b'{"a":"\xe4\xbd"}', "not UTF-8"),
        (b"NaN", "NaN"),
        (b"[Infinity]", "Infinity"),
        (b"[-Infinity]", "Infinity"),
        (b'{"a":1e999}', "too large"),
        (b'{"a":-1e999}', "too large"),
        (b'{"a":1' + b"0" * 400 + b".0}", "too large"),
        (b"0." + b"1" * 5000, "too large"),
        (b"1" * 4301, "4300 digits"),
        (b'"\\ud800"', "surrogate"),
        (b'"\\uDFFFx"', "surrogate"),
        (b'"\\ude00\\ud83d"', "surrogate"),
        (b'{"\\ud800":1}', "surrogate"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "64 levels"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "64 levels"),
        (b"[" * 100_000, "64 levels"),
        (b'{"a":' * 50_000, "64 levels"),
        (b'{"a":[' * 500 + b"]}" * 500, "64 levels"),
    ],
)
def test_it_refuses_and_says_why(body: bytes, words: str) -> None:
    with pytest.raises(BadJson) as refused:
        loads(body)
    assert words in refused.value.message
    assert str(refused.value) == refused.value.message
    assert refused.value.param is None


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b'{"model":"allowed","mod\\u0065l":"blocked","messages":[]}', "model"),
        (b'{"stream":true,"stream":false}', "stream"),
        (b'{"stream":true,"stream":true}', "stream"),
        (b'{"max_tokens":1,"n":1,"max_tokens":2}', "max_tokens"),
        (b'{"messages":[{"role":"user","content":"x","role":"system"}]}', "role"),
        (b'{"a":[[{"b":{"c":1,"\\u0063":2}}]]}', "c"),
        (b'{"":1,"":2}', ""),
        (b'{"\xc3\xa9":1,"\\u00e9":2}', "é"),
    ],
)
def test_it_names_a_key_sent_twice(body: bytes, key: str) -> None:
    with pytest.raises(BadJson) as refused:
        loads(body)
    assert refused.value.param == key
    assert repr(key) in refused.value.message


def test_it_shows_little_of_a_long_key() -> None:
    key = b"k" * 10_000
    with pytest.raises(BadJson) as refused:
        loads(b'{"' + key + b'":1,"' + key + b'":2}')
    assert refused.value.param == "k" * 64
    assert len(refused.value.message) < 200


def test_a_key_half_of_a_surrogate_pair_twice_is_still_a_plain_refusal() -> None:
    with pytest.raises(BadJson) as refused:
        loads(b'{"\\ud800":1,"\\ud800":2}')
    refused.value.message.encode()


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, MAX_DEPTH),
        (b'"\\ud83d\\ude00 \\\\ud800"', "😀 \\ud800"),
        (b'"\\u0000"', "\x00"),
        (b"18446744073709551616", 2**64),
        (b"-9223372036854775809", -(2**63) - 1),
        (b"9" * 4300, int("9" * 4300)),
        (b"[1,[2,[3]]]", [1, [2, [3]]]),
        (b'{"a":{"x":1},"b":{"x":2}}', {"a": {"x": 1}, "b": {"x": 2}}),
        (b"1e308", 1e308),
    ],
)
def test_it_takes_the_last_that_is_allowed_and_can_write_it(body: bytes, value: Any) -> None:
    parsed = loads(body)
    if value == MAX_DEPTH:
        depth = 1
        while parsed:
            (parsed,) = parsed
            depth += 1
        assert depth == MAX_DEPTH
    else:
        assert parsed == value
        assert loads(dumps(parsed)) == value


def test_it_limits_the_values_of_a_long_body() -> None:
    pairs = b",".join(b'"k%d":0' % i for i in range(MAX_VALUES))
    assert len(loads(b"{" + pairs + b"}")) == MAX_VALUES
    for body in (
        b"{" + pairs + b',"last":0}',
        b"{" + b",".join(b'"key %07d":0' % i for i in range(600_000)) + b"}",
        b"[" + b",".join([b"0"] * 1_000_000) + b"]",
        b"[" + b",".join([b"{}"] * 1_000_000) + b"]",
        b"[" + b",".join([b'"\\\\"'] * 1_000_000) + b"]",
    ):
        with pytest.raises(BadJson, match="more than 50000 values"):
            loads(body)
    assert len(loads(b"[" + b",".join([b"0"] * 200_000) + b"]", most_values=200_000)) == 200_000


def test_commas_and_brackets_inside_text_are_no_values() -> None:
    text = 'a, [b], {c}, \\"d\\", \\\\' * 100_000
    assert loads(f'["{text}", "{text}"]'.encode()) == [json.loads(f'"{text}"')] * 2


def test_hostile_bodies_are_refused_fast() -> None:
    size = 8 << 20
    started = time.process_time()
    for body in (
        b"[" * size,
        b'{"a":' * (size // 5),
        b'"' * size,
        b'\\"' * (size // 2),
        b'["' + b'\\"' * (size // 2),
        b'","' * (size // 3),
        b"[" + b"1" * size + b"]",
        b"[0." + b"1" * size + b"]",
        b"[1e" + b"9" * size + b"]",
        b" " * size,
        b"\xff" * size,
    ):
        with pytest.raises(BadJson):
            loads(body)
    assert time.process_time() - started < 5


@given(values)
def test_what_it_takes_it_gives_back(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_bytes_are_json_or_refused(body: bytes) -> None:
    try:
        value = loads(body)
    except BadJson as refused:
        refused.message.encode()
    else:
        assert value == json.loads(body)
        assert loads(dumps(value)) == value


@pytest.mark.parametrize("parse", [loads, loads_answer])
@given(value=values, data=st.data())
def test_a_real_body_with_a_flaw_is_refused_or_means_the_same(
    parse: Callable[[bytes], Any], value: Any, data: st.DataObject
) -> None:
    body = bytearray(json.dumps({"model": "m", "x": value}, ensure_ascii=data.draw(st.booleans())).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"\\", b'"', b"\xff", b"\\ud800", b"NaN", b"[", b"}", b"\x00", b"1e999"])
        )
    try:
        value = parse(bytes(body))
    except BadJson:
        return
    meant = json.loads(bytes(body), object_pairs_hook=_each_once)
    assert repr(value) == repr(_in_whole_characters(meant) if parse is loads_answer else meant)


def _in_whole_characters(value: Any) -> Any:
    """Half of a surrogate pair is U+FFFD, as in an answer that is read."""
    if type(value) is dict:
        return {_in_whole_characters(name): _in_whole_characters(inner) for name, inner in value.items()}
    if type(value) is list:
        return [_in_whole_characters(inner) for inner in value]
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace") if type(value) is str else value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


@pytest.mark.parametrize("parse", [loads, loads_answer])
@given(members=st.dictionaries(texts, scalars, min_size=1, max_size=5), data=st.data())
def test_no_key_gets_in_twice(parse: Callable[[bytes], Any], members: dict[str, Any], data: st.DataObject) -> None:
    twice = data.draw(st.sampled_from(sorted(members)))
    pairs = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in members.items()]
    spelling = "".join(
        f"\\u{unit:04x}" for unit in memoryview(twice.encode("utf-16-le")).cast("H")
    )  # Wholly escaped, as a client might to hide it.
    pairs.insert(data.draw(st.integers(0, len(pairs))), f'"{spelling}":0')
    with pytest.raises(BadJson) as refused:
        parse(("{" + ",".join(pairs) + "}").encode())
    assert refused.value.param == twice


@pytest.mark.parametrize("quotes", [b'\\"\\"', b"\\u0022\\u0022", b"\\u0022\\\\u0022", b"\\\\u0022"])
def test_quotes_in_a_text_hide_no_second_key_of_an_answer(quotes: bytes) -> None:
    text = b'{"choices":[{"text":"%b"}]}' % quotes
    assert loads_answer(text) == json.loads(text)
    with pytest.raises(BadJson) as refused:
        loads_answer(b'{"choices":1,' + text[1:])
    assert refused.value.param == "choices"


def test_of_two_usages_in_an_answer_the_last_one_stands() -> None:
    assert loads_answer(b'{"usage":{"a":1},"x":["\\u0022"],"usage":{"a":2}}') == {"usage": {"a": 2}, "x": ['"']}


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b"[18446744073709551616,-9223372036854775809]", [2**64, -(2**63) - 1]),
        (b"[%b]" % (b"9" * 4300), [int("9" * 4300)]),
        (b"[0.1,1e-7,-0.0,12345678901234567.0]", [0.1, 1e-7, -0.0, 12345678901234568.0]),
        (b"[1e999,-Infinity,NaN]", [float("inf"), float("-inf"), float("nan")]),
        (b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, None),
    ],
)
def test_numbers_of_an_answer_pass_as_they_are(body: bytes, read: Any) -> None:
    assert repr(loads_answer(body)) == (repr(read) if read else body.decode())


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (rb'{"messages":[{"role":"user","content":"ok"},{"role":"user","content":"\ud800"}]}', "messages[1].content"),
        (rb'{"messages":[{"content":[{"type":"text","text":"a"},{"text":"\udc00x"}]}]}', "messages[0].content[1].text"),
        (rb'{"user":"\ud83d"}', "user"),
        (rb'{"metadata":{"\ud800":"x"}}', "metadata"),
        (rb'"\ud800"', None),
    ],
)
def test_half_of_a_pair_is_told_with_its_place(body: bytes, place: str | None) -> None:
    with pytest.raises(BadJson) as refused:
        loads(body)
    assert refused.value.param == place
    assert "half of a surrogate pair" in refused.value.message


def test_what_is_written_in_pieces_is_the_same() -> None:
    value = {"a": 'é"\\\n😀' * 300_000, "b": [{"c": "x" * 2_500_000}, 1.5, None, True]}
    assert dumps_long(value) == dumps(value)
