"""Event streams (WHATWG HTML, "Server-sent events") read from bytes as they come, and written.

Lines end at CR, LF or CRLF and nowhere else: splitting decoded text would also cut at U+2028, NEL and others
that a model may write. Bytes are joined before they are decoded, so a character cut by the network is whole
again.
"""

from typing import NamedTuple

MAX_EVENT = 32 << 20  # Bytes of one event, or of one line, by default: a picture or a sound may be in it.
MAX_LINES = 20_000  # Of one event.
DONE = b"data: [DONE]\n\n"
_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """An event passed the most bytes it may have, or `MAX_LINES`. The reader is of no more use."""


class Event(NamedTuple):
    """One event: its name (empty when it had none) and its data lines joined with LF."""

    name: bytes
    data: bytes


_new = tuple.__new__  # The named tuple's own constructor costs twice as much.


class EventReader:
    """Turns the bytes of a stream into events; how the bytes were cut makes no difference.

    Comments, unknown fields and events without data are dropped. An event whose final blank line is missing
    is given by `close`: many servers end their stream that way. One of more than `most` bytes is refused.
    """

    __slots__ = ("_after_cr", "_at_start", "_most", "_rest")

    def __init__(self, most: int = MAX_EVENT) -> None:
        self._most = most
        self._rest = bytearray()  # An event that is not whole yet; all its line ends are LF already.
        self._at_start = True
        self._after_cr = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that `data` completes, in order. Raises `EventTooLong`."""
        if self._after_cr and data:
            # That CR ended its line when it came, so an LF that follows it belongs to it.
            self._after_cr = False
            if data[0] == 0x0A:
                data = data[1:]
        if b"\r" in data:
            self._after_cr = data[-1] == 0x0D
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._at_start:
            data = self._skip_mark(data)
        rest = self._rest
        if rest:
            seen = len(rest) - 1  # The blank line may be half in what was there.
            rest += data
            if rest.find(b"\n\n", seen) < 0:
                if len(rest) > self._most + 1:
                    raise self._too_long()
                return []
            data = bytes(rest)
            rest.clear()
        blocks = data.split(b"\n\n")
        tail = blocks.pop()
        if tail:
            if len(tail) > self._most + 1:
                raise self._too_long()
            rest += tail
        events: list[Event] = []
        for block in blocks:
            if len(block) > self._most:
                raise self._too_long()
            if block.startswith(b"data: ") and b"\n" not in block:
                if len(block) > 6:
                    events.append(_new(Event, (b"", block[6:])))
            elif event := _parse(block):
                events.append(event)
        return events

    @property
    def pending(self) -> int:
        """Bytes of an event that is not whole yet."""
        return len(self._rest)

    def close(self) -> list[Event]:
        """The last event, if the stream ended without the blank line that should follow it."""
        event = _parse(bytes(self._rest))
        self._rest.clear()
        return [event] if event else []

    def _too_long(self) -> EventTooLong:
        return EventTooLong(f"an event is longer than {self._most} bytes")

    def _skip_mark(self, data: bytes) -> bytes:
        self._rest += data
        if len(self._rest) < 3 and _BOM.startswith(self._rest):
            return b""
        self._at_start = False
        data = bytes(self._rest)
        self._rest.clear()
        return data.removeprefix(_BOM)


def _parse(block: bytes) -> Event | None:
    """The event of the lines between two blank lines, or nothing if they hold no data."""
    if block.count(b"\n") >= MAX_LINES:
        raise EventTooLong(f"an event has more than {MAX_LINES} lines")
    name = b""
    lines = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value[1:] if value[:1] == b" " else value)
        elif field == b"event":
            name = value[1:] if value[:1] == b" " else value
    data = b"\n".join(lines)
    return _new(Event, (name, data)) if data else None


def encode(payload: bytes) -> bytes:
    """The frame of one event; `payload` is one line, as JSON is."""
    return b"data: " + payload + b"\n\n"


def comment(text: str) -> bytes:
    """A comment, which clients skip: keeps an idle connection open. `text` is one line of ours."""
    return b": " + text.encode() + b"\n\n"
