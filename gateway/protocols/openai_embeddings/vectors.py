"""One vector in the two forms that it has: a JSON array of numbers, or base64 of little-endian 32-bit floats."""

import struct
from base64 import b64decode, b64encode

import msgspec

from gateway.wire import strict_json

MOST_NUMBERS = 65_536
MOST_BYTES = 32 * MOST_NUMBERS  # of its text
_numbers = msgspec.json.Decoder(list[float]).decode
_text = msgspec.json.Decoder(str).decode
LARGEST = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]  # of 32 bits


class NoVector(ValueError):
    """It is neither form, or holds what is no number."""


def read(vector: bytes, *, base64: bool) -> tuple[bytes, int]:
    """JSON of a vector in the one form or the other, whichever came, and of how many numbers it is.

    What is in that form already stays byte for byte. Raises `NoVector`.
    """
    if len(vector) > MOST_BYTES:
        raise NoVector(f"it is longer than {MOST_BYTES} bytes")
    if vector.startswith(b'"'):
        floats = _floats(vector)
        return vector if base64 else strict_json.dumps(floats), len(floats)
    try:
        numbers = _numbers(vector)
        packed = struct.pack(f"<{len(numbers)}f", *numbers) if base64 else b""
    except (msgspec.MsgspecError, UnicodeError, OverflowError) as error:
        raise NoVector(str(error)) from None
    if not 0 < len(numbers) <= MOST_NUMBERS:
        raise NoVector(f"it has {len(numbers)} numbers")
    return b'"%b"' % b64encode(packed) if base64 else vector, len(numbers)


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
