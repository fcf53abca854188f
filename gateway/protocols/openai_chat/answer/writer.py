"""How an answer is told to a client of this protocol."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gateway.protocols.openai_chat import faults
from gateway.wire import sse
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError

_encode = msgspec.json.Encoder().encode


class ChatWriter:
    """Writes chunks as events, and a completion as a body. It keeps nothing, so one serves all answers."""

    __slots__ = ()
    keep_alive = sse.comment("keep-alive")

    def chunk(self, chunk: dict[str, Any]) -> bytes:
        """The event of a chunk."""
        return b"data: " + _encode(chunk) + b"\n\n"

    def foreign(self, name: bytes, event: dict[str, Any]) -> bytes:
        """An event of the upstream's that is no chunk passes as it is."""
        return (b"event: " + name + b"\n" if name else b"") + sse.encode(_encode(event))

    def ending(self, chunks: Sequence[dict[str, Any]]) -> bytes:
        """The closing chunks of a stream: those with finish reasons, then usage if it was asked for."""
        return b"".join(map(self.chunk, chunks)) + sse.DONE

    def whole(self, answer: dict[str, Any]) -> bytes:
        """The body of a completion."""
        return _encode(answer)

    def error_event(self, error: GatewayError, dialect: Dialect, request_id: str) -> bytes:
        """The event that ends a stream which failed after it began."""
        return faults.error_event(error, dialect, request_id)


CHAT = ChatWriter()
