"""Where a writer of files writes to whose bytes go out as they come."""

import io
from typing import Any


class Pieces(io.RawIOBase):
    """What was written and not taken yet."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._count = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, piece: Any, /) -> int:
        """Keeps a copy: the writer's buffer is its own."""
        self._pieces.append(bytes(piece))
        self._count += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        """How much was written in all."""
        return self._count

    def take(self) -> bytes:
        """All that was written since the last time."""
        taken, self._pieces = b"".join(self._pieces), []
        return taken
