"""How far a long command is: a bar on a terminal, nothing where nobody looks."""

import time
from typing import TextIO

WIDTH = 40
EVERY = 0.1  # seconds between two drawings


class Progress:
    """A bar that counts up to `total` on `stream`."""

    def __init__(self, what: str, total: int, stream: TextIO) -> None:
        self.what = what
        self.total = total
        self.stream = stream
        self.done = 0
        self.drawn_at = 0.0
        self.visible = stream.isatty() and total > 0

    def step(self, count: int = 1) -> None:
        """`count` more are done."""
        if not count:
            return
        self.done += count
        last = self.done >= self.total
        if self.visible and (last or time.monotonic() - self.drawn_at > EVERY):
            self.drawn_at = time.monotonic()
            full = WIDTH * min(self.done, self.total) // self.total
            bar = "#" * full + "." * (WIDTH - full)
            self.stream.write(f"\r{self.what} [{bar}] {self.done}/{self.total}{chr(10) if last else ''}")
            self.stream.flush()
