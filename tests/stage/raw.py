"""A client of the gateway on a raw socket: any bytes go out, every byte that comes back is seen, and how it ends."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.stage.product import Gateway

CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer. Header names are in lower case; a name that comes twice has its last value."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> Any:
        """The error's code."""
        return self.json["error"]["code"]


class Line:
    """One connection. Each read waits at most 20 s."""

    def __init__(self, gateway: Gateway) -> None:
        self.socket = socket.create_connection(("127.0.0.1", gateway.port), timeout=20)
        self.buffer = b""  # what has come and was not asked for yet

    def send(self, data: bytes) -> None:
        """Sends all of `data`."""
        self.socket.sendall(data)

    def answer(self, method: str = "POST") -> Answer:
        """Reads one answer, by its own framing. Raises EOFError when the connection ends before or within it."""
        head = self._until(b"\r\n\r\n").decode("latin-1")
        status, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        number = int(status.split(" ")[1])
        if method == "HEAD" or number < 200:
            return Answer(number, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Answer(number, headers, self._chunks())
        return Answer(number, headers, self._exactly(int(headers["content-length"])))

    def begun(self) -> int:
        """The status of the next answer once it has begun; `answer` still reads it. Raises EOFError."""
        while b"\r\n" not in self.buffer:
            self._receive()
        return int(self.buffer.split(b" ")[1])

    def rest(self) -> bytes:
        """What comes until the gateway ends the connection; a reset ends it, too."""
        try:
            while data := self.socket.recv(1 << 16):
                self.buffer += data
        except ConnectionResetError:
            pass
        rest, self.buffer = self.buffer, b""
        return rest

    def ends_within(self, seconds: float) -> bool:
        """Whether the gateway ends the connection in time, without another byte."""
        self.socket.settimeout(seconds)
        started = time.monotonic()
        return self.rest() == b"" and time.monotonic() - started < seconds

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.buffer:
            self._receive()
        found, _, self.buffer = self.buffer.partition(mark)
        return found + mark

    def _exactly(self, size: int) -> bytes:
        while len(self.buffer) < size:
            self._receive()
        found, self.buffer = self.buffer[:size], self.buffer[size:]
        return found

    def _chunks(self) -> bytes:
        parts = []
        while size := int(self._until(b"\r\n"), 16):
            parts.append(self._exactly(size))
            assert self._exactly(2) == b"\r\n"
        assert self._exactly(2) == b"\r\n"
        return b"".join(parts)

    def _receive(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise EOFError(f"the connection ended after {self.buffer[:200]!r}")
        self.buffer += data


@contextmanager
def dial(gateway: Gateway) -> Iterator[Line]:
    """A connection to the gateway, closed at the end."""
    line = Line(gateway)
    try:
        yield line
    finally:
        line.socket.close()


def head(line: str, *headers: str) -> bytes:
    """A request's head with a Host: `head("GET /healthz", "X-A: b")`."""
    return "\r\n".join([f"{line} HTTP/1.1", "Host: gateway.test", *headers, "", ""]).encode("latin-1")


def chat(secret: str, model: str, *headers: str, **body: Any) -> bytes:
    """A whole chat request, with further headers and fields."""
    data = json.dumps({"model": model, "messages": HI, **body}).encode()
    return post(secret, data, *headers)


def post(secret: str, data: bytes, *headers: str) -> bytes:
    """A whole POST of `data` to the chat endpoint."""
    authorized = f"Authorization: Bearer {secret}"
    return head(f"POST {CHAT}", authorized, f"Content-Length: {len(data)}", *headers) + data
