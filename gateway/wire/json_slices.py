"""The parts of a long JSON text, found without reading them: the values of its object, or of its array, as slices.

A parser keeps the interpreter's lock until it has read the whole text, for a tenth of a second where that is 32 MB of
numbers. Here no step takes longer than the search for one bracket or quote; who wants a value reads its slice, and
whether that is JSON shows only then.
"""

import re
from collections.abc import Iterator

MOST_BRACKETS = 50_000  # of one value

_blanks = re.compile(rb"[ \t\r\n]*")
_plain = re.compile(rb'[^][{}",:\s]+')
_bracket_or_quote = re.compile(rb'["\[\]{}]')
_ESCAPE = ord("\\")


def fields(text: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and values of a text that is an object; a name is a slice, too. Raises ValueError."""
    at, more = _opened(text, b"{", b"}")
    while more:
        end = _end_of_string(text, at)
        name, at = text[at:end], _behind(text, end, b":")
        end = _end(text, at)
        yield name, text[at:end]
        at, more = _next(text, end, b"}")


def items(text: bytes) -> Iterator[bytes]:
    """The values of a text that is an array. Raises ValueError."""
    at, more = _opened(text, b"[", b"]")
    while more:
        end = _end(text, at)
        yield text[at:end]
        at, more = _next(text, end, b"]")


def _opened(text: bytes, opens: bytes, closes: bytes) -> tuple[int, bool]:
    """Where the first value stands, and whether there is one."""
    at = _behind(text, 0, opens)
    return (_last(text, at + 1), False) if text[at : at + 1] == closes else (at, True)


def _next(text: bytes, at: int, closes: bytes) -> tuple[int, bool]:
    """Where the next value stands, and whether there is one."""
    at = _past_blanks(text, at)
    return (_last(text, at + 1), False) if text[at : at + 1] == closes else (_behind(text, at, b","), True)


def _behind(text: bytes, at: int, sign: bytes) -> int:
    at = _past_blanks(text, at)
    if text[at : at + 1] != sign:
        raise ValueError(f"byte {at} is no {sign.decode()}")
    return _past_blanks(text, at + 1)


def _last(text: bytes, at: int) -> int:
    if _past_blanks(text, at) != len(text):
        raise ValueError(f"something follows at byte {at}")
    return at


def _past_blanks(text: bytes, at: int) -> int:
    match = _blanks.match(text, at)
    return at if match is None else match.end()


def _end(text: bytes, at: int) -> int:
    """The end of the value that stands at a byte."""
    first = text[at : at + 1]
    if first == b'"':
        return _end_of_string(text, at)
    if first not in (b"[", b"{"):
        if (found := _plain.match(text, at)) is None:
            raise ValueError(f"no value stands at byte {at}")
        return found.end()
    level = 0
    for _ in range(MOST_BRACKETS):
        if (found := _bracket_or_quote.search(text, at)) is None:
            raise ValueError("a bracket is not closed")
        sign, at = found[0], found.end()
        if sign == b'"':
            at = _end_of_string(text, at - 1)
        else:
            level += 1 if sign in b"[{" else -1
        if not level:
            return at
    raise ValueError(f"a value has more than {MOST_BRACKETS} brackets and strings")


def _end_of_string(text: bytes, at: int) -> int:
    """The end of the string that stands at a byte."""
    if text[at : at + 1] != b'"':
        raise ValueError(f"no string stands at byte {at}")
    while (at := text.find(b'"', at + 1)) >= 0:
        escapes = at
        while text[escapes - 1] == _ESCAPE:
            escapes -= 1
        if (at - escapes) % 2 == 0:
            return at + 1
    raise ValueError("a string is not closed")
