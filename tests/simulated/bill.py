"""The provider's own bill: what it said and how each connection ended, appended to a file as it happens."""

import hashlib
import os
import tempfile
from functools import lru_cache
from pathlib import Path

import msgspec


class Credential(msgspec.Struct, frozen=True):
    """Which secret was sent: the first 16 hex digits of its SHA-256, and its last 4 characters."""

    digest: str
    last4: str


class Start(msgspec.Struct, tag_field="event", tag="start"):
    """A request was read and will be answered. `at` is in seconds since 1970."""

    id: str
    model: str | None
    path: str
    stream: bool
    attempt_id: str | None
    request_id: str | None
    credential: Credential | None
    connection: int
    at: float


class End(msgspec.Struct, tag_field="event", tag="end"):
    """The same request is over. The counts are what was said, whatever `usage` reported."""

    id: str
    model: str | None
    path: str
    stream: bool
    attempt_id: str | None
    request_id: str | None
    credential: Credential | None
    connection: int
    started: float
    at: float = 0.0
    status: int | None = None
    fault: str | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    usage: str | None = None
    events: int = 0
    bytes: int = 0
    ended: str = ""


class Bill:
    """An append-only file of JSON lines. Without a path: a nameless temporary file, gone with the process.

    A line is one write to a descriptor opened with O_APPEND, so lines never mix, and what was written
    outlives a kill -9 of this process (not a power cut).
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            with tempfile.TemporaryFile() as nameless:
                self._file = os.dup(nameless.fileno())
        else:
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._since = os.fstat(self._file).st_size
        self._encoder = msgspec.json.Encoder()

    def write(self, line: Start | End) -> None:
        """Appends one line. Raises OSError when the disk does not take all of it."""
        data = self._encoder.encode(line) + b"\n"
        if os.write(self._file, data) != len(data):
            raise OSError("the bill's file took only part of a line")

    def lines(self, after: int = 0) -> bytes:
        """The lines since the last reset, or since the start, without their first `after` bytes."""
        begin = self._since + after
        return os.pread(self._file, max(0, os.fstat(self._file).st_size - begin), begin)

    def reset(self) -> None:
        """Later calls of `lines` begin here; the file keeps everything."""
        self._since = os.fstat(self._file).st_size

    def close(self) -> None:
        """Closes the file; nothing may be written afterwards."""
        os.close(self._file)


@lru_cache(maxsize=1024)
def credential(secret: str) -> Credential:
    """What the bill keeps of a secret; of a secret shorter than 12 characters, no character at all."""
    last4 = secret[-4:] if len(secret) >= 12 else ""
    return Credential(hashlib.sha256(secret.encode()).hexdigest()[:16], last4)
