"""One request of a connection and its answer, between the parser and the application: ASGI's `receive` and `send`.
And what decides whether the connection is read from (`Flow`).
"""

import re
from collections.abc import Iterable, MutableMapping
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

# Names are tokens (RFC 9110, 5.6.2), and values have no control characters but tabs. How many lines there are it leaves
# open: a value could end its own and begin others.
LINES = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*")
# What a scope has besides ASGI's own: the header fields by name, and `Exchange.whole_body`.
FIELDS, WHOLE_BODY = "fields", "whole_body"


class Flow(FlowControl):
    """Reads and writes as uvicorn has it, but nothing is read while a request waits for the answer before it."""

    _held = False

    def hold(self) -> None:
        """Reads nothing until `release`, whoever would resume."""
        self._held = True
        self.pause_reading()

    def release(self) -> None:
        """Reads again."""
        self._held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        """Reads again, unless held."""
        if self.read_paused and not self._held:
            super().resume_reading()


class Exchange(RequestResponseCycle):
    """An exchange as uvicorn has it, but for how its answer goes out.

    The head waits for the body's first part, as ASGI lets it, and both leave in one packet: a packet costs us and the
    client some 10 us each. And a head is checked as a whole, not each name and each value.
    """

    _head = b""

    def whole_body(self) -> bytes | None:
        """The body, if all of it has come; then `receive` tells of the client's leaving alone. None: `receive` it."""
        if self.more_body or self.disconnected:
            return None
        body, self.body = bytes(self.body), bytearray()
        self.message_event.clear()
        self.flow.resume_reading()
        return body

    async def send(self, message: MutableMapping[str, Any]) -> None:  # type: ignore[override]
        """Takes the application's next message. Raises RuntimeError for one out of place, or that cannot be sent."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.body" and self.response_started and not self.response_complete:
            self._go_on(message.get("body", b""), message.get("more_body", False))
        elif kind == "http.response.start" and not self.response_started:
            self.response_started = True
            self.waiting_for_100_continue = False
            self._head = self._begin(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"The application sent {kind} out of place.")

    def _begin(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The head. What it says decides how the body is framed, and whether the connection goes on."""
        self.chunked_encoding = status not in (204, 304)
        fields = [*self.default_headers, *headers]
        named = dict(fields)
        if not b"".join(named).islower():  # Django's stock handler's are not
            fields = [(name.lower(), value) for name, value in fields]
            named = dict(fields)
        # What these say is ours to do.
        if (connection := named.get(b"connection")) is not None:
            self.keep_alive = self.keep_alive and connection.lower() != b"close"
            fields = [field for field in fields if field[0] != b"connection"]
        if (length := named.get(b"content-length")) is not None:
            self.expected_content_length = int(length)
            self.chunked_encoding = False
        if self.scope["method"] == "HEAD":
            self.chunked_encoding = False
            self.expected_content_length = 0
        if self.chunked_encoding:
            fields.append((b"transfer-encoding", b"chunked"))
        if not self.keep_alive:
            fields.append((b"connection", b"close"))
        head = b"\r\n".join([*map(b": ".join, fields), b""])
        if head.count(b"\n") != len(fields) or not LINES.fullmatch(head):
            raise RuntimeError("The application sent a header that no answer can have.")
        return STATUS_LINE[status] + head + b"\r\n"

    def _go_on(self, body: bytes, more: bool) -> None:
        """Sends a part of the body, with the head before the first one and the exchange's end after the last."""
        if self.chunked_encoding:
            if body:
                body = b"%x\r\n%b\r\n" % (len(body), body)
            if not more:
                body += b"0\r\n\r\n"
        elif self.scope["method"] == "HEAD":
            body = b""
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0 or (self.expected_content_length and not more):
                raise RuntimeError("The application's answer has not the length it said.")
        if self._head:
            self.transport.writelines([self._head, body])
            self._head = b""
        else:
            self.transport.write(body)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
