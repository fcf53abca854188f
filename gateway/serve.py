"""`python -m gateway.serve`: the web server, with what its HTTP parser leaves open closed.

httptools has no cap on headers and no timeout on a request that never becomes whole, so a client could hold sockets for
ever or grow memory before any key is checked. The guard sits where the bytes come in.
"""

import argparse
import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_BYTES = 64 * 1024
HEADER_SECONDS = 10.0
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: 144\r\n\r\n"
)


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with a cap on the bytes of headers and a deadline for them."""

    _header_bytes = 0
    _in_headers = False
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Starts the clock of the first request."""
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._stop_clock()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins: headers are counted, and must be whole in time."""
        super().on_message_begin()
        self._in_headers, self._header_bytes = True, 0
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def on_headers_complete(self) -> None:
        """The headers are whole; the body has a deadline of its own."""
        self._in_headers = False
        self._stop_clock()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Parses, unless the headers alone are too much."""
        super().data_received(data)
        if self._in_headers:
            self._header_bytes += len(data)
            if self._header_bytes > HEADER_BYTES and not self.transport.is_closing():
                self.transport.write(TOO_LARGE + refusal())
                self.transport.close()

    def _too_slow(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def refusal() -> bytes:
    """The body of a 431, in the API's envelope; 144 bytes."""
    return (
        b'{"error":{"message":"The headers are larger than 65536 bytes.","type":"invalid_request_error",'
        b'"param":null,"code":"headers_too_large"}}'
    ).ljust(144)


def main() -> None:
    """Serves until SIGTERM or SIGINT, then lets open requests finish for up to `--drain` seconds."""
    parser = argparse.ArgumentParser(prog="gateway.serve", description="The web server of the gateway and console.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--drain", type=int, default=120, help="seconds open requests may take after SIGTERM")
    options = parser.parse_args()
    uvicorn.run(
        "gateway.asgi:application",
        host=options.host,
        port=options.port,
        workers=options.workers,
        loop="uvloop",
        http=GuardedProtocol,
        access_log=False,
        server_header=False,
        # Which hop to believe is `authentication`'s business; here it costs and could be spoofed.
        proxy_headers=False,
        timeout_graceful_shutdown=options.drain,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
