"""The server's life: it listens once it can answer, and ends without losing a request.

A stop goes in three steps. For `notice` seconds `/readyz` says that the process is going and every answer ends its
connection, while new requests are still taken: whoever goes by `/readyz` sends them elsewhere by then. Then nobody is
let in any more, and what is open goes on for up to `drain` seconds. What is still open at that limit is told so, each
in its own form. uvicorn's own stop closes connections on which a request may be on its way, cuts bare, and ends by the
signal instead of with 0.
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

logger = logging.getLogger(__name__)

# How long a connection may be idle at a stop. At once would meet the request that is on its way on some.
LINGER_SECONDS = 1.0
CUT_SECONDS = 5.0  # for what is cut to say so, and to settle
BEAT_SECONDS = 1.0
CLOSE = (b"connection", b"close")


class Server(uvicorn.Server):
    """uvicorn's server with an end of its own. Seconds as told above.

    `supervisor` is a socket to whoever started this process and watches it: it is sent a byte every second, the first
    one when requests are taken, and its end is a SIGTERM without notice.
    """

    def __init__(
        self, config: uvicorn.Config, *, notice: float, drain: float, supervisor: socket.socket | None = None
    ) -> None:
        super().__init__(config)
        self._notice = notice
        self._drain = drain
        self._supervisor = supervisor
        self._beat: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A signal asks for the stop, and is no exit status."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        if self._supervisor is not None:
            loop.add_reader(self._supervisor, self._unsupervised)
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the application, then listens."""
        await super().startup(sockets)
        # The loop notes each generator that begins, to close at its end what was left half-way. Ours are closed by
        # whoever began them, and an answer has two.
        sys.set_asyncgen_hooks(firstiter=None)
        if self._supervisor is not None:
            self._beat = asyncio.get_running_loop().create_task(self._say_alive(self._supervisor))

    async def main_loop(self) -> None:
        """Serves until a stop is asked for, and for the time of notice."""
        await super().main_loop()
        self.config.loaded_app.leave()
        self.config.encoded_headers.append(CLOSE)
        await self.on_tick(0)
        for connection in self._connections:
            # A head that is out has promised to go on; the next answer ends such a connection.
            if connection.cycle is not None and not connection.cycle.response_started:
                connection.cycle.keep_alive = False
        await self._until(lambda: self.force_exit, self._notice)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Lets nobody in any more, and what is open come to its end."""
        await self._stop_listening(sockets or [])
        idle: dict[Any, float] = {}
        await self._until(lambda: self.force_exit or self._is_over(idle), self._drain)
        if open := len(self.server_state.tasks):
            logger.warning("%d requests are still open after %g s, and are cut", open, self._drain)
            self.config.loaded_app.cut(self.server_state.tasks)
            await self._until(lambda: self._is_over(idle), CUT_SECONDS)
        await self.lifespan.shutdown()
        if self._beat is not None:
            self._beat.cancel()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Closes the listeners. Whoever waits in a queue has been let in by the kernel, and would be reset with it."""
        loop = asyncio.get_running_loop()
        late = []
        for server, listener in zip(self.servers, sockets, strict=True):
            with contextlib.suppress(OSError):  # nobody waits any more
                while True:
                    late.append(listener.accept()[0])
            server.close()
        for line in late:
            line.setblocking(False)
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(self._protocol, line)

    @property
    def _connections(self) -> list[Any]:
        """Those that are open now; as `GuardedProtocol` has them, each with its running exchange as `cycle`."""
        return list(self.server_state.connections)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        return made

    def _is_over(self, idle: dict[Any, float]) -> bool:
        """Whether nothing is open. Ends connections that have been idle for long enough, `idle` since when."""
        now = asyncio.get_running_loop().time()
        for connection in self._connections:
            if connection.cycle is not None and not connection.cycle.response_complete:
                idle.pop(connection, None)
            elif now - idle.setdefault(connection, now) >= LINGER_SECONDS:
                connection.shutdown()
        return not self._connections and not self.server_state.tasks

    async def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        loop = asyncio.get_running_loop()
        end, tick = loop.time() + seconds, 0
        while not reached() and loop.time() < end:
            await asyncio.sleep(0.05)
            tick += 1
            await self.on_tick(tick)  # answers go on to have the right date

    async def _say_alive(self, supervisor: socket.socket) -> None:
        while True:
            with contextlib.suppress(OSError):  # nobody reads: its end is seen elsewhere
                supervisor.send(b".")
            await asyncio.sleep(BEAT_SECONDS)

    def _unsupervised(self) -> None:
        assert self._supervisor is not None
        asyncio.get_running_loop().remove_reader(self._supervisor)
        logger.warning("whoever started this process is gone; it stops")
        self._notice = 0
        self.handle_exit(signal.SIGTERM, None)


def bind(host: str, port: int, *, shared: bool) -> socket.socket:
    """A socket that has the address and does not listen yet: nobody gets in before somebody can answer.

    When it is `shared`, another process may have the address too, if it says the same. Raises OSError.
    """
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host, port))
    return listener
