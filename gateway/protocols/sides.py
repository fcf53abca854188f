"""The two sides on which a wire protocol meets the chat form, which is what lies between every client and every
upstream: a `Source` reads an upstream's answer into it, a `Writer` tells it to a client. Both work without I/O.
"""

from collections.abc import Sequence
from typing import Any, Protocol


class Source(Protocol):
    """Reads one answer of an upstream that speaks another protocol, as chunks or a completion of the chat form.

    A failure is told as the chat form tells it, as an object with `error`.
    """

    complete: bool  # The upstream has said that it is done.

    def event(self, name: bytes, event: dict[str, Any]) -> Sequence[dict[str, Any]]:
        """What one event of its stream says. Raises `UpstreamFault` for one that cannot be."""

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What its whole body says. Raises `UpstreamFault`."""


class Writer(Protocol):
    """Tells one answer to a client, as `openai_chat.AnswerReader` shows it: normalised, with the gateway's own id."""

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The events that a chunk of a stream becomes; maybe none."""

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """An event of an upstream of the chat protocol that is no chunk."""

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The events that end a stream, of its closing chunks: one a choice, with its finish reason, then usage."""

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body for a client that does not stream."""
