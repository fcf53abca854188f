"""How much of an answer is kept in memory until its end, and when that is too much."""

from typing import Any

import msgspec

from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

MAX_HELD = 64 << 20  # Bytes, of all choices together. What goes out as it comes is not among them.
A_PIECE = 100  # Bytes that a piece of text takes besides what it says.
_A_VALUE = 64  # Bytes that a list, an object or a member of one takes besides what it says.

_encode = msgspec.json.Encoder().encode


class Held:
    """Counts what one answer keeps. Raises `UpstreamFault` past `MAX_HELD`."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0

    def add(self, value: Any) -> None:
        """Something is kept."""
        written = _encode(value)
        self.add_bytes(len(written) + _A_VALUE * (written.count(b",") + written.count(b"[") + written.count(b"{")))

    def add_bytes(self, size: int) -> None:
        """Something is kept that takes `size` bytes."""
        self.bytes += size
        if self.bytes > MAX_HELD:
            detail = f"more than {MAX_HELD} bytes would have to be kept until its end"
            raise UpstreamFault(Fault.INVALID_RESPONSE, detail, unreadable=True)
