"""The one JSON parser for what others send us: a client's body, a provider's whole answer.

`json.loads` keeps the last of two equal keys, takes `NaN`, turns `1e999` into infinity and lets half a
surrogate pair through; a policy could then check one `model` while another is run. Here each of these is an
error, and what was parsed is what is sent on (`dumps`), never the bytes that came in.

What is in order is read by msgspec, which is the fastest. What it refuses, and what has a key twice, is looked at again
by the standard library's C scanner, given hooks: it can be told about duplicate keys, and says what is wrong.
Depth and surrogates are looked for in what it made, which costs less than a search of the bytes.
"""

import json
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any

import msgspec

MAX_DEPTH = 64
MAX_VALUES = 50_000  # In a long body. About 15 ms of parsing; ten thousand messages make thirty thousand.
LONG_STRING = 1 << 20  # Characters that are encoded in one go, see `dumps_long`.
MAX_NUMBER = 4300  # Digits; Python's own limit for integers, here for every number.


class BadJson(ValueError):
    """The bytes are not JSON as we take it. The message may be shown; `param` is the key at fault, if any."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                name = key[:64].encode("utf-8", "replace").decode()
                raise BadJson(f"The key {name!r} appears twice in one object. Send it once.", name)
            seen.add(key)
    return made


def _float(digits: str) -> float:
    number = float(digits) if len(digits) <= MAX_NUMBER else float("inf")
    if not isfinite(number):
        raise BadJson("A number is too large. Send numbers that fit into 64 bits.")
    return number


def _constant(name: str) -> Any:
    raise BadJson(f"{name} is not JSON. Send a number or null.")


def _object_of_an_answer(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    # Of two usages the last one stands, as in a stream.
    return made if len(made) == len(pairs) else _object([pair for pair in pairs if pair[0] != "usage"]) | made


_strict = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_lenient = json.JSONDecoder(object_pairs_hook=_object_of_an_answer, parse_float=float, parse_constant=float)
_decode_plainly = msgspec.json.Decoder().decode  # The fastest. Refuses what `loads` does but for keys sent twice.
_decode_strictly = msgspec.json.Decoder(float_hook=_float).decode
_ODD = object()
_BLANKS = " \t\n\r"
_TOO_DEEP = f"The body nests deeper than {MAX_DEPTH} levels. Flatten it."


def loads(body: bytes, *, most_values: int = MAX_VALUES) -> Any:
    """Parse `body`, one JSON value in UTF-8, wholly and strictly (RFC 8259; for names I-JSON, RFC 7493).

    Raises `BadJson` on: an empty body, a byte order mark, UTF-16, invalid UTF-8, raw control characters, a
    key twice in one object (however it is spelled), `NaN` and infinities, numbers out of range, more than
    `MAX_DEPTH` levels or `most_values` values, a lone surrogate, anything after the value. An escaped
    `\\u0000` inside a string is JSON and passes: whoever stores or forwards that string as something else
    than JSON checks it.
    """
    value = _plain(body, _decode_strictly, most_values)
    return _loads(body, _strict, most_values) if value is _ODD else value


def loads_answer(body: bytes, *, most_values: int = MAX_VALUES) -> Any:
    """Parse a provider's answer: as `loads`, but numbers that are none are not the end of it.

    `NaN`, infinities and numbers out of range are floats that are not finite, so that whoever needs a count sees that
    it is none; `dumps` writes them as null. Of a `usage` that is there twice the last one stands. Half of a surrogate
    pair, escaped or in bytes, is U+FFFD.
    """
    value = _plain(body, _decode_plainly, most_values)
    return _loads(body, _lenient, most_values) if value is _ODD else value


def _plain(body: bytes, decode: Callable[[bytes], Any], most_values: int) -> Any:
    """What nearly all bodies hold, in half the time; `_ODD`: what is wrong with it, if anything, is for `_loads` to
    say.
    """
    brackets = body.count(b"[") + body.count(b"{")
    if brackets > MAX_DEPTH or (len(body) > 8 * most_values and brackets + body.count(b",") > most_values):
        return _ODD
    try:
        value = decode(body)
    except ValueError:
        return _ODD
    # Of a key that is there twice one is gone, and with it two of the quotes.
    return value if dumps(value).count(b'"') == body.count(b'"') and body.find(b"\\u0022") < 0 else _ODD


def _loads(body: bytes, decoder: json.JSONDecoder, most_values: int) -> Any:
    if not body:
        raise BadJson("The body is empty. Send a JSON object.")
    if len(body) > 8 * most_values:  # A shorter one is parsed in the same time, whatever it holds.
        _limit_values(body, most_values)
    lenient = decoder is _lenient
    try:
        text = body.decode("utf-8", "surrogatepass" if lenient else "strict")
    except UnicodeDecodeError as error:
        raise BadJson(f"The body is not UTF-8: byte {error.start} is invalid. Send JSON in UTF-8.") from None
    try:
        value, end = decoder.raw_decode(text, len(text) - len(text.lstrip(_BLANKS)))
        if more := text[end:].lstrip(_BLANKS):
            raise json.JSONDecodeError("Extra data", text, len(text) - len(more))
    except json.JSONDecodeError as error:
        if body.startswith(b"\xef\xbb\xbf"):
            raise BadJson("The body begins with a byte order mark. Send JSON without one.") from None
        if b"\x00" in body:
            raise BadJson("The body contains NUL bytes. Send JSON in UTF-8.") from None
        where = f"line {error.lineno}, column {error.colno}"
        raise BadJson(f"The body is not valid JSON ({error.msg.rstrip(': ')}, {where}).") from None
    except RecursionError:
        raise BadJson(_TOO_DEEP) from None
    except BadJson:
        raise
    except ValueError:  # int() has its own limit on digits.
        raise BadJson(f"A number has more than {MAX_NUMBER} digits. Send a smaller one.") from None
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:  # fewer cannot nest deeper
        _limit_depth(value)
    if not lenient and body.find(b"\\u") < 0:  # bytes that are UTF-8 hold no halves, only escapes can
        return value
    try:
        dumps(value)
    except UnicodeEncodeError:
        if lenient:
            return _whole_characters(value)
        place = _place_of_half(value)
        where = f"The string at {place}" if place else "A string"
        raise BadJson(f"{where} holds half of a surrogate pair. Send whole characters.", place) from None
    return value


def dumps_long(value: Any) -> bytes:
    """As `dumps`, in steps that are each short whatever a long string holds, so that a thread may take them."""
    return dumps(_in_pieces(value))


def _in_pieces(value: Any) -> Any:
    if type(value) is str and len(value) > LONG_STRING:
        pieces = (dumps(value[at : at + LONG_STRING])[1:-1] for at in range(0, len(value), LONG_STRING))
        return msgspec.Raw(b'"%b"' % b"".join(pieces))
    if type(value) is dict:
        return {name: _in_pieces(inner) for name, inner in value.items()}
    return [_in_pieces(inner) for inner in value] if type(value) is list else value


# Compact UTF-8 JSON of what `loads` gave, or of what we made. Characters are written as themselves.
dumps: Callable[[Any], bytes] = msgspec.json.Encoder().encode


def _limit_values(body: bytes, most: int) -> None:
    """Refuse a body of more than `most` values before any of them is made.

    Every value but the outermost follows a comma or an opening bracket, so their count is a bound, and most
    bodies pass by it. In a body full of text that has commas, strings are cut out first. Without its escapes
    a string ends at the next quote; the second check keeps the cutting itself short.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > most:
        strings = (body.count(b'"') - body.count(b'\\"')) // 2
        if strings <= most:
            bare = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
            if bare.count(b",") + bare.count(b"[") + bare.count(b"{") <= most:
                return
        raise BadJson(f"The body holds more than {most} values. Send fewer.")


def _place_of_half(value: Any) -> str | None:
    """The path of the first string that no encoder takes, such as messages[0].content; None where that is the whole."""
    places: list[tuple[str, Any]] = [("", value)]
    while places:
        place, value = places.pop()
        if type(value) is str:
            if not _is_whole(value):
                return place or None
        elif type(value) is list:
            places += reversed([(f"{place}[{at}]", inner) for at, inner in enumerate(value)])
        elif type(value) is dict:
            dot = "." if place else ""
            if not all(map(_is_whole, value)):
                return place or None
            places += reversed([(f"{place}{dot}{name[:64]}", inner) for name, inner in value.items()])
    return None


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _limit_depth(value: Any) -> None:
    level: list[Any] = [[value]]
    for _ in range(MAX_DEPTH + 1):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) is dict or type(inner) is list
        ]
        if not level:
            return
    raise BadJson(_TOO_DEEP)


def _whole_characters(value: Any) -> Any:
    """The same with U+FFFD for each half of a surrogate pair; two that meet are the character they mean."""
    if type(value) is str:
        return value if value.isascii() else value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if type(value) is list:
        return [_whole_characters(inner) for inner in value]
    if type(value) is dict:
        return {_whole_characters(name): _whole_characters(inner) for name, inner in value.items()}
    return value


def number(amount: Decimal) -> msgspec.Raw:
    """An amount as a JSON number with all its digits, without exponent or needless zeros."""
    return msgspec.Raw(f"{amount.normalize():f}".encode())
