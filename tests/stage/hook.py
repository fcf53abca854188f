"""A receiver of webhooks on a socket: keeps what it is sent, and answers the bytes that a test wants."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Got:
    """A request. `headers` by lower-case name."""

    line: str
    headers: dict[str, str]
    body: bytes


class Hook(socketserver.ThreadingTCPServer):
    """`got` came in, in order; `answers` gets each and where its answer is written."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.got: list[Got] = []
        self.answers: Callable[[Got, BinaryIO], object] = lambda got, out: out.write(says(200))


class _Request(socketserver.StreamRequestHandler):
    server: Hook

    def handle(self) -> None:
        try:
            line, *fields = [one.decode().strip() for one in iter(self.rfile.readline, b"\r\n")]
            headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
            got = Got(line, headers, self.rfile.read(int(headers.get("content-length", "0"))))
            self.server.got.append(got)
            self.server.answers(got, self.wfile)  # type: ignore[arg-type]  # it is one, but for its name
        except OSError:
            pass  # the client has left


def says(status: int, *headers: str, body: bytes = b"ok") -> bytes:
    """A whole answer."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


@contextmanager
def hook() -> Iterator[Hook]:
    """One that listens while the block runs."""
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
