"""Providers that no HTTP server would be: nobody, the silent, those that cannot prove who they are, and a canary.

Plain sockets and threads. Each has the base URL of a provider's row, and counts those who came.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.upstream.authority import Authority


class Listener:
    """A socket on 127.0.0.1. `backlog` None: bound, but nobody listens."""

    def __init__(self, scheme: str = "http", backlog: int | None = 128) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        if backlog is not None:
            self.socket.listen(backlog)
        self.origin = f"{scheme}://127.0.0.1:{self.socket.getsockname()[1]}"

    def came(self) -> int:
        """How many connections there have been."""
        return 0

    def close(self) -> None:
        """Stops listening; what waits in the backlog is reset."""
        self.socket.close()


class Silent(Listener):
    """Never takes a connection: the kernel does, and nothing answers. They are taken when they are counted."""

    def __init__(self, scheme: str) -> None:
        super().__init__(scheme)
        self._came = 0
        self.socket.setblocking(False)

    def came(self) -> int:
        """How many connections there have been."""
        with suppress(BlockingIOError):
            while True:
                connection, _ = self.socket.accept()
                connection.close()
                self._came += 1
        return self._came


class Server(Listener):
    """Takes connections one after the other, notes what it is told, and answers nothing.

    With a context it speaks TLS; what then comes through is in `heard` as plain text. Without one, `heard` is what
    came over the wire.
    """

    def __init__(self, scheme: str, context: ssl.SSLContext | None = None) -> None:
        super().__init__(scheme)
        self.connections = 0
        self.heard = b""
        self._context = context
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection, suppress(OSError):
                connection.settimeout(5)
                self._hear(connection)

    def _hear(self, connection: socket.socket) -> None:
        if self._context is None:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            self.heard += connection.recv(1 << 16)
            return
        with self._context.wrap_socket(connection, server_side=True) as secured:
            self.heard += secured.recv(1 << 16)

    def came(self) -> int:
        """How many connections there have been."""
        return self.connections

    def close(self) -> None:
        """Ends the thread."""
        self.socket.shutdown(socket.SHUT_RDWR)
        super().close()
        self._thread.join(10)


class Upstreams:
    """All of them, by the names that rows know them under. `trust`: the file of the authority that is to be trusted."""

    def __init__(self, folder: Path) -> None:
        authority, stranger = Authority(folder), Authority(folder / "stranger")
        self.trust = folder / "authority.pem"
        self.trust.write_bytes(authority.certificate)
        self.canary = Server("http")
        self.tls = {
            "tls expired": Server("https", authority.serving("127.0.0.1", days=-1)),
            "tls of a stranger": Server("https", stranger.serving("127.0.0.1")),
            "tls of another name": Server("https", authority.serving("evil.test")),
            "tls not spoken": Server("https"),
        }
        self.listeners: dict[str, Listener] = {
            "nobody": Listener(backlog=None),
            "silent": Silent("http"),
            "silent tls": Silent("https"),
            **self.tls,
        }

    @property
    def origins(self) -> list[str]:
        """What the gateway must be allowed to dial. Also where redirects lead, so that only its own rule stops it."""
        return [self.canary.origin, self.origin("nowhere"), *(one.origin for one in self.listeners.values())]

    @property
    def counted(self) -> list[str]:
        """The names of those who know how many came."""
        return [name for name, one in self.listeners.items() if isinstance(one, Server | Silent)]

    def came(self, name: str) -> int:
        """How many connections there have been to the provider called `name`."""
        return self.listeners[name].came() if name in self.listeners else 0

    def origin(self, name: str) -> str:
        """Scheme, host and port of the provider called `name`."""
        return "http://nowhere.invalid:9" if name == "nowhere" else self.listeners[name].origin


@contextmanager
def upstreams(folder: Path) -> Iterator[Upstreams]:
    """All of them, until the block ends."""
    (folder / "stranger").mkdir(parents=True)
    made = Upstreams(folder)
    with ExitStack() as stack:
        for listener in (made.canary, *made.listeners.values()):
            stack.callback(listener.close)
        yield made
