"""Durable settlements while the database is away: fsynced lines in a local file, sent later, safely more than once.

Each process owns one file, locked while it lives (`flock` ends with the process, whatever ended it). A successor, or any
other process on the machine, drains the files whose owner is gone. A line counts once it is fsynced: a torn last line
was never acknowledged and its answer never released, so it is dropped.
"""

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

logger = logging.getLogger(__name__)

Line = bytes  # one settlement as JSON, no newline inside


class SpoolFull(Exception):
    """The disk took no more; the process refuses new paid work until it does again."""


class Spool:
    """This process's spool file in `directory`, made 0700 if absent. Not thread-safe: one event loop owns it."""

    def __init__(self, directory: Path, lease: UUID) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.directory = directory
        self.path = directory / f"{lease}.spool"
        self.full = False
        self.lines = 0  # waiting in the file
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._thread = ThreadPoolExecutor(1, "spool")
        self._waiting: list[tuple[Line, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    def put(self, line: Line) -> "asyncio.Future[None]":
        """Appends `line`; the future is done once it is on the disk, or fails with `SpoolFull`."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((line, future))
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
        return future

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                data = b"".join(line + b"\n" for line, _ in batch)
                try:
                    await loop.run_in_executor(self._thread, self._append, data)
                except OSError as error:
                    self.full = True
                    logger.critical("the spool took no more: %s", error)
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(SpoolFull(str(error)))
                            future.exception()
                else:
                    self.full = False
                    self.lines += len(batch)
                    for _, future in batch:
                        if not future.done():
                            future.set_result(None)
        finally:
            self._writing = None

    def _append(self, data: bytes) -> None:
        size = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, data)
            if written != len(data):
                raise OSError(errno.ENOSPC, "short write")
            os.fsync(self._file)
        except OSError:
            os.ftruncate(self._file, size)  # half a batch must not be taken for acknowledged lines
            raise

    async def drain(self, send: Callable[[list[Line]], Awaitable[None]], most: int = 256) -> int:
        """Sends every line of this file and of dead processes' files; empties what was sent. Returns how many.

        `send` raises to leave the rest for later. Lines written meanwhile stay.
        """
        count = 0
        if self.lines or self._size():
            count += await self._drain_own(send, most)
        for path in sorted(self.directory.glob("*.spool")):
            if path != self.path:
                count += await self._drain_orphan(path, send, most)
        return count

    async def _drain_own(self, send: Callable[[list[Line]], Awaitable[None]], most: int) -> int:
        lines = complete_lines(self.path.read_bytes())
        for start in range(0, len(lines), most):
            await send(lines[start : start + most])
        while self._writing is not None:
            await asyncio.wait({self._writing})
        # The loop has not run since the check above, so nothing was appended behind what we are about to cut,
        # unless more lines than we sent are there: then the file stays and they are sent again, harmlessly.
        if len(complete_lines(self.path.read_bytes())) == len(lines):
            os.ftruncate(self._file, 0)
            self.lines = 0
        return len(lines)

    async def _drain_orphan(self, path: Path, send: Callable[[list[Line]], Awaitable[None]], most: int) -> int:
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            return 0
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return 0  # its owner lives, or another process drains it
            lines = complete_lines(path.read_bytes())
            for start in range(0, len(lines), most):
                await send(lines[start : start + most])
            path.unlink(missing_ok=True)
            return len(lines)
        finally:
            os.close(file)

    def _size(self) -> int:
        return os.fstat(self._file).st_size

    def close(self) -> None:
        """Releases the file; an empty one is removed."""
        self._thread.shutdown()
        if self._size() == 0:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def complete_lines(data: bytes) -> list[Line]:
    """The lines that end in a newline; a torn last one was never acknowledged."""
    return [line for line in data.split(b"\n")[:-1] if line]
