"""A relay between the product and PostgreSQL whose answers take their time, in a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit, urlunsplit


@contextmanager
def slow(url: str, seconds: float) -> Iterator[str]:
    """The way to the database at `url` through a relay that keeps each piece of an answer for `seconds`."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    parts = urlsplit(url)
    there = parts.hostname or "127.0.0.1", parts.port or 5432
    server = asyncio.run_coroutine_threadsafe(_serve(*there, seconds), loop).result()
    user, _, _ = parts.netloc.rpartition("@")
    port = server.sockets[0].getsockname()[1]
    try:
        yield urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{port}"))
    finally:
        asyncio.run_coroutine_threadsafe(_end(server), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _serve(host: str, port: int, seconds: float) -> asyncio.Server:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream, upward = await asyncio.open_connection(host, port)
        asking = asyncio.create_task(_copy(reader, upward, 0))
        try:
            await _copy(upstream, writer, seconds)
        finally:
            asking.cancel()
            upward.close()
            writer.close()

    return await asyncio.start_server(relay, "127.0.0.1", 0)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            if seconds:
                await asyncio.sleep(seconds)
            writer.write(data)
            await writer.drain()
    writer.close()


async def _end(server: asyncio.Server) -> None:
    server.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
