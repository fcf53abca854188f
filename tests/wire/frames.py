"""Frames of AWS's event streams, written."""

import json
from base64 import b64encode
from struct import pack
from zlib import crc32

from gateway.wire.sse import EventReader

Header = tuple[str, int, bytes]


def frame(payload: bytes = b"", headers: tuple[Header, ...] = ()) -> bytes:
    """A frame; a header is its name, the number of its type, and its value as it is written."""
    block = b"".join(
        bytes([len(name.encode())]) + name.encode() + bytes([kind]) + value for name, kind, value in headers
    )
    return sealed(16 + len(block) + len(payload), len(block), block + payload)


def sealed(total: int, length: int, rest: bytes) -> bytes:
    """What stands behind these lengths, with sums that are right."""
    prelude = pack(">II", total, length)
    made = prelude + pack(">I", crc32(prelude)) + rest
    return made + pack(">I", crc32(made))


def sized(value: bytes) -> bytes:
    return pack(">H", len(value)) + value


def text(name: str, value: str) -> Header:
    return name, 7, sized(value.encode())


EVENT = (text(":message-type", "event"), text(":event-type", "chunk"), text(":content-type", "application/json"))


def framed(stream: bytes) -> list[bytes]:
    """An event stream of the web as AWS frames it: each event's data in base64."""
    events = EventReader().feed(stream)
    return [frame(json.dumps({"bytes": b64encode(e.data).decode(), "p": "abc"}).encode(), EVENT) for e in events]
