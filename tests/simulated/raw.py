"""A client on a raw socket: sends a chat request, reads every byte that comes back and how it ends."""

import json
import socket
from dataclasses import dataclass
from typing import Any

from .process import SimulatedProvider

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello there"}]  # 2 words, and 4 tokens for the message: a prompt of 6


@dataclass
class Seen:
    """What came back: every byte, and how the connection ended (`fin` or `reset`)."""

    raw: bytes
    ended: str

    @property
    def status(self) -> int:
        """The number of the status line."""
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names in lower case, in their order on the wire."""
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return [(name.lower(), value) for name, _, value in (line.partition(": ") for line in lines)]

    @property
    def chunks(self) -> tuple[list[bytes], bool]:
        """The chunks of a chunked body, strictly read, and whether the last one, of length 0, came."""
        assert ("transfer-encoding", "chunked") in self.headers
        rest = self.raw.partition(b"\r\n\r\n")[2]
        chunks: list[bytes] = []
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            assert rest[length : length + 2] == b"\r\n"
            if length == 0:
                assert rest == b"\r\n"
                return chunks, True
            chunks.append(rest[:length])
            rest = rest[length + 2 :]
        return chunks, False

    @property
    def body(self) -> bytes:
        """The body, without the framing of chunks; compressed as it came."""
        if ("transfer-encoding", "chunked") in self.headers:
            return b"".join(self.chunks[0])
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The payloads of a stream in the plain framing, `[DONE]` as text."""
        return read_events(self.body)

    @property
    def contents(self) -> list[Any]:
        """Of each event with one choice: the content it adds, None where it adds none."""
        events = [event for event in self.events if event != "[DONE]" and event.get("choices")]
        return [event["choices"][0]["delta"].get("content") for event in events]

    @property
    def text(self) -> str:
        """The stream's content, joined."""
        return "".join(filter(None, self.contents))


def read_events(body: bytes) -> list[Any]:
    """The payloads of the server-sent events in `body`, each of one data line."""
    if not body:
        return []
    assert body.endswith(b"\n\n")
    events = body.decode().removesuffix("\n\n").split("\n\n")
    assert all(event.startswith("data: ") for event in events)
    payloads = [event.removeprefix("data: ") for event in events]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def request(model: str | None, path: str = CHAT, headers: str = "Connection: close\r\n", **body: Any) -> bytes:
    """The bytes of a POST; the server closes after its answer unless `headers` say otherwise."""
    data = json.dumps({"model": model, "messages": HELLO, **body}).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data


def dial(provider: SimulatedProvider) -> socket.socket:
    """A connection to the provider; each read waits at most 20 s."""
    return socket.create_connection(("127.0.0.1", provider.port), timeout=20)


def drain(client: socket.socket) -> Seen:
    """Everything until the provider closes or resets the connection."""
    raw = bytearray()
    try:
        while data := client.recv(1 << 20):
            raw += data
    except ConnectionResetError:
        return Seen(bytes(raw), "reset")
    return Seen(bytes(raw), "fin")


def ask(provider: SimulatedProvider, model: str | None, **how: Any) -> Seen:
    """One request (`how`: see `request`) on a connection of its own, read to its end."""
    with dial(provider) as client:
        client.sendall(request(model, **how))
        return drain(client)


def leave_after(provider: SimulatedProvider, model: str, expected: bytes, **how: Any) -> dict[str, Any]:
    """On a provider it resets first: reads until `expected` has come, leaves, and gives the bill's line."""
    provider.reset()
    raw = b""
    with dial(provider) as client:
        client.sendall(request(model, **how))
        provider.until(answering=1)
        while expected not in raw:
            data = client.recv(1 << 16)
            assert data, f"closed after {raw!r}"
            raw += data
    provider.until(answering=0)
    (line,) = provider.bill()
    assert line["ended"] == "client_closed"
    return line


def counts(line: dict[str, Any]) -> tuple[int, int, int, int]:
    """A bill line's tokens: prompt, cached, completion, reasoning."""
    return line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"], line["reasoning_tokens"]


def usage(prompt: int, completion: int, cached: int = 0, reasoning: int = 0) -> dict[str, Any]:
    """The usage object that tells these counts truly."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }
