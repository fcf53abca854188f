"""A way to PostgreSQL that can be shut: nothing passes then, either way, and nobody is told. A network does that."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


class Gate:
    """Relays to the server of a URL; `url` is the way through it. What is sent while it is shut arrives afterwards."""

    def __init__(self, url: str, *, is_open: bool = True) -> None:
        self._parts = urlsplit(url)
        self._loop = asyncio.new_event_loop()
        self._opened = asyncio.Event()
        if is_open:
            self._opened.set()
        self.url = ""

    def open(self) -> None:
        """Lets everything pass."""
        self._loop.call_soon_threadsafe(self._opened.set)

    def shut(self) -> None:
        """Lets nothing pass."""
        self._loop.call_soon_threadsafe(self._opened.clear)

    def forget(self) -> None:
        """Lets nothing pass any more on the connections that there are, for ever; new ones are as they were."""
        self._loop.call_soon_threadsafe(self._forget)

    def _forget(self) -> None:
        was_open = self._opened.is_set()
        self._opened.clear()
        self._opened = asyncio.Event()
        if was_open:
            self._opened.set()

    def run(self, listening: threading.Event) -> None:
        """Relays until `stop`, in a thread of its own."""
        server = self._loop.run_until_complete(self._serve())
        listening.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.05))
        self._loop.close()

    def stop(self) -> None:
        """Ends `run`."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        user, _, _ = self._parts.netloc.rpartition("@")
        self.url = urlunsplit(self._parts._replace(netloc=f"{user}@127.0.0.1:{port}"))
        return server

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened = self._opened
        await opened.wait()
        upstream = await asyncio.open_connection(self._parts.hostname, self._parts.port or 5432)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, upstream[1], opened))
                both.create_task(self._copy(upstream[0], writer, opened))
        finally:
            writer.close()
            upstream[1].close()

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, opened: asyncio.Event) -> None:
        with suppress(ConnectionError):
            while data := await source.read(1 << 16):
                await opened.wait()
                target.write(data)
                await target.drain()
        target.close()


@contextmanager
def gate(url: str, *, is_open: bool = True) -> Iterator[Gate]:
    """A gate before `url` while the block runs."""
    made, listening = Gate(url, is_open=is_open), threading.Event()
    thread = threading.Thread(target=made.run, args=(listening,))
    thread.start()
    try:
        assert listening.wait(10)
        yield made
    finally:
        made.stop()
        thread.join()
