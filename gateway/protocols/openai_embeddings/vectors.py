"""One vector in the two forms that it has: a JSON array of numbers, or base64 of little-endian 32-bit floats."""

import struct
from base64 import b64decode, b64encode

import msgspec

from gateway.wire import strict_json

_numbers = msgspec.json.Decoder(list[float]).decode
_text = msgspec.json.Decoder(str).decode
LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]  # of 32 bits


class NoVector(ValueError):
    """It is neither form, or holds what is no number."""


def as_base64(vector: bytes) -> bytes:
    """JSON of the vector in base64, whichever of the two came. Raises `NoVector`."""
    if vector.startswith(b'"'):
        _floats(vector)
        return vector
    try:
        numbers = _numbers(vector)
        packed = struct.pack(f"<{len(numbers)}f", *numbers)
    except (msgspec.MsgspecError, OverflowError) as error:
        raise NoVector(str(error)) from None
    if not numbers:
        raise NoVector("it is empty")
    return b'"%b"' % b64encode(packed)


def as_numbers(vector: bytes) -> bytes:
    """JSON of the vector as numbers, whichever of the two came. Raises `NoVector`."""
    if not vector.startswith(b'"'):
        try:
            if not _numbers(vector):
                raise NoVector("it is empty")
        except msgspec.MsgspecError as error:
            raise NoVector(str(error)) from None
        return vector
    return strict_json.dumps(_floats(vector))


def _floats(vector: bytes) -> tuple[float, ...]:
    try:
        packed = b64decode(_text(vector), validate=True)
    except ValueError as error:
        raise NoVector(str(error)) from None
    if not packed or len(packed) % 4:
        raise NoVector(f"{len(packed)} bytes are no 32-bit floats")
    floats = struct.unpack(f"<{len(packed) // 4}f", packed)
    if not all(-LARGEST <= number <= LARGEST for number in floats):
        raise NoVector("it holds what is no number")
    return floats
