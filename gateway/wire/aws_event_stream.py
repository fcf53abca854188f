"""AWS's event streams (`application/vnd.amazon.eventstream`), read from bytes as they come.

A frame, all numbers big-endian:

    total length 4 | length of the headers 4 | CRC of these eight bytes 4 | headers | payload | CRC of all before it 4

A header is a name (its length in one byte), a type and a value. Both sums are CRC-32 (IEEE), and a frame whose sum is
wrong is never given on.
"""

from collections.abc import Mapping
from struct import Struct, unpack_from
from typing import NamedTuple, TypeAlias
from zlib import crc32

MAX_PAYLOAD = 24 << 20  # as AWS's own library has it
MAX_HEADERS = 128 << 10

_PRELUDE = Struct(">III")
_SUM = 4
_LEAST = _PRELUDE.size + _SUM
_STRING, _BYTES = 7, 6
# Types of a fixed size, by their number: how the value is read, or what it is without being there.
_FIXED: Mapping[int, str] = {2: ">b", 3: ">h", 4: ">i", 5: ">q", 8: ">q", 9: "16s"}
_FLAGS = {0: True, 1: False}

Value: TypeAlias = str | bytes | int


class BadFrame(ValueError):
    """The bytes are no frame, or were changed on their way. The reader is of no more use."""


class Frame(NamedTuple):
    """One message: its headers by name, a time in milliseconds, a UUID as sixteen bytes; and its payload."""

    headers: dict[str, Value]
    payload: bytes


class FrameReader:
    """Turns the bytes of a stream into frames; how the bytes were cut makes no difference.

    What is no frame is told when the frames before it have been given.
    """

    __slots__ = ("_bad", "_due", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._bad = ""  # what is wrong
        self._due = _PRELUDE.size  # bytes without which there is nothing to read

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes, in order. Raises `BadFrame`."""
        frames: list[Frame] = []
        if not self._bad:
            self._rest += data
            try:
                self._read(frames)
            except BadFrame as error:
                self.refuse(str(error))
        if self._bad and not frames:
            raise BadFrame(self._bad)
        return frames

    def refuse(self, why: str) -> None:
        """Nothing that follows is read: for a caller to whom a frame that it was given is none."""
        self._rest.clear()
        self._bad = why

    def _read(self, frames: list[Frame]) -> None:
        rest, start = self._rest, 0
        while len(rest) - start >= self._due:
            total, length, told = _PRELUDE.unpack_from(rest, start)
            if self._due == _PRELUDE.size:
                _check_prelude(rest, start, total, length, told)
                self._due = total
                continue
            frames.append(_frame(bytes(rest[start : start + total]), length))
            start += total
            self._due = _PRELUDE.size
        if start:
            del rest[:start]

    @property
    def pending(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)

    def close(self) -> None:
        """The stream ended. Raises `BadFrame` if that was inside a frame, or behind what is none."""
        if self._bad:
            raise BadFrame(self._bad)
        if self._rest:
            raise BadFrame("the stream ended inside a frame")


def _check_prelude(rest: bytearray, start: int, total: int, length: int, told: int) -> None:
    if crc32(rest[start : start + 8]) != told:
        raise BadFrame("the sum of a prelude is wrong")
    if length > MAX_HEADERS or not 0 <= total - length - _LEAST <= MAX_PAYLOAD:
        raise BadFrame("a frame has a length that none has")


def _frame(frame: bytes, length: int) -> Frame:
    end = len(frame) - _SUM
    if crc32(frame[:end]) != int.from_bytes(frame[end:]):
        raise BadFrame("the sum of a frame is wrong")
    payload = _PRELUDE.size + length
    return Frame(_headers(frame[_PRELUDE.size : payload]), frame[payload:end])


def _headers(data: bytes) -> dict[str, Value]:
    headers: dict[str, Value] = {}
    at = 0
    try:
        while at < len(data):
            name, at = _sized(data, at, 1)
            kind = data[at]
            value, at = _value(data, at + 1, kind)
            if (known := name.decode()) in headers:
                raise ValueError
            headers[known] = value
    except (IndexError, ValueError):  # cut short, of no known type, no UTF-8, or there twice
        raise BadFrame("the headers of a frame cannot be read") from None
    return headers


def _value(data: bytes, at: int, kind: int) -> tuple[Value, int]:
    if kind in (_STRING, _BYTES):
        value, at = _sized(data, at, 2)
        return (value.decode() if kind == _STRING else value), at
    if kind in _FLAGS:
        return _FLAGS[kind], at
    form = Struct(_FIXED[kind]) if kind in _FIXED else None
    if form is None or at + form.size > len(data):
        raise ValueError
    (read,) = unpack_from(form.format, data, at)
    return read, at + form.size


def _sized(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """A text behind its length, which takes `width` bytes; and where it ends."""
    start = at + width
    end = start + int.from_bytes(data[at:start])
    if start > len(data) or end > len(data):
        raise ValueError
    return data[start:end], end
