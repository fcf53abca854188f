"""Durable settlements while the database is away: fsynced lines in a local file, sent later, safely more than once.

Each process owns one file, locked while it lives (`flock` ends with the process, whatever ended it). A successor, or
any other process on the machine, drains the files whose owner is gone. A line counts once it is fsynced: a torn last
line was never acknowledged and its answer never released, so it is dropped.
"""

import asyncio
import errno
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import UUID

logger = logging.getLogger(__name__)

Line = bytes  # one settlement as JSON, no newline inside
Send = Callable[[list[Line]], Awaitable[None]]
Gone = Callable[[UUID], Awaitable[None]]

AT_ONCE = 256  # lines a `send`
BYTES_AT_ONCE = 4 << 20  # and bytes, unless a line has more: PostgreSQL reads them in well under its timeout
ROOM = 16 << 20  # free bytes below which the disk counts as full: some thousand open requests' lines
PROBE = b"\n" * 65_536  # blank lines mean nothing, should they stay


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
        # Locked before it has its name: others remove a file of that name that nobody locks.
        nameless = directory / f"{lease}.new"
        self._file = os.open(nameless, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        nameless.rename(self.path)
        _sync(directory)
        self._sent = 0  # bytes at the file's head that need not be sent again
        # Everything that touches the file runs in this one thread, so no reader sees half a batch.
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
                    self._found_full(error)
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(SpoolFull(str(error)))
                            future.exception()
                else:
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

    async def look(self) -> None:
        """Finds out whether the disk takes lines, before a settlement needs it and after it did not."""
        free = os.statvfs(self.directory)
        if free.f_bavail * free.f_frsize < ROOM:
            self._found_full(OSError(errno.ENOSPC, "less than 16 MiB are free"))
        elif self.full:
            try:
                await asyncio.get_running_loop().run_in_executor(self._thread, self._probe)
            except OSError as error:
                self._found_full(error)
            else:
                self.full = False
                logger.warning("the spool takes settlements again")

    def _probe(self) -> None:
        size = os.fstat(self._file).st_size
        try:
            self._append(PROBE)
        finally:
            os.ftruncate(self._file, size)

    def _found_full(self, error: OSError) -> None:
        if not self.full:
            logger.critical("the spool takes no more, so no paid request is taken: %s", error)
        self.full = True

    async def drain(self, send: Send, gone: Gone | None = None) -> int:
        """Sends every line of this file and of dead processes' files; empties what was sent. Returns how many.

        `gone` is told the lease of each dead process once its lines are sent. `send` and `gone` raise to leave the
        rest for later. Lines written meanwhile stay. A line may be sent more than once.
        """
        count = await self._drain_own(send)
        for lease, path in _spools(self.directory):
            if path != self.path:
                count += await self._drain_orphan(lease, path, send, gone)
        return count

    async def _drain_own(self, send: Send) -> int:
        loop = asyncio.get_running_loop()
        data = await loop.run_in_executor(self._thread, self._unsent)
        if not data:
            return 0
        lines = complete_lines(data)
        await _send_all(lines, send)
        self._sent += len(data)
        self.lines -= len(lines)
        await loop.run_in_executor(self._thread, self._cut)
        return len(lines)

    def _unsent(self) -> bytes:
        """What is behind the lines that were sent. Read in the thread: a cancelled drain may be cutting still."""
        return _contents(self._file, self._sent)

    def _cut(self) -> None:
        """Empties the file, unless lines were written behind those that were sent."""
        if os.fstat(self._file).st_size == self._sent:
            os.ftruncate(self._file, 0)
            self._sent = 0

    async def _drain_orphan(self, lease: UUID, path: Path, send: Send, gone: Gone | None) -> int:
        loop = asyncio.get_running_loop()
        file = await loop.run_in_executor(self._thread, _adopt, path)
        if file is None:
            return 0
        try:
            lines = complete_lines(await loop.run_in_executor(self._thread, _contents, file, 0))
            await _send_all(lines, send)
            if gone is not None:
                await gone(lease)
            await loop.run_in_executor(self._thread, path.unlink, True)  # missing is fine
            return len(lines)
        finally:
            os.close(file)

    def close(self, *, keep: bool = False) -> None:
        """Releases the file; an empty one is removed, unless others are to `keep` it in mind."""
        self._thread.shutdown()
        if os.fstat(self._file).st_size == 0 and not keep:
            self.path.unlink(missing_ok=True)
        os.close(self._file)


def orphans(directory: Path) -> Iterator[tuple[UUID, list[Line]]]:
    """The lease and the lines of each dead process's file, which is removed once the next one is asked for."""
    for lease, path in _spools(directory):
        file = _adopt(path)
        if file is not None:
            try:
                yield lease, complete_lines(_contents(file, 0))
                path.unlink(missing_ok=True)
            finally:
                os.close(file)


def _spools(directory: Path) -> list[tuple[UUID, Path]]:
    """The spool files, each with the lease it is named after."""
    found = []
    for path in sorted(directory.glob("*.spool")):
        with suppress(ValueError):  # not a name of ours
            found.append((UUID(path.stem), path))
    return found


def complete_lines(data: bytes) -> list[Line]:
    """The lines that end in a newline; a torn last one was never acknowledged."""
    return [line for line in data.split(b"\n")[:-1] if line]


def batches(lines: list[Line]) -> Iterator[list[Line]]:
    """The lines in order, so many at a time as one statement takes: an answer to be kept makes a long one."""
    batch: list[Line] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == AT_ONCE or size + len(line) > BYTES_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield batch


async def _send_all(lines: list[Line], send: Send) -> None:
    for batch in batches(lines):
        await send(batch)


def _contents(file: int, start: int) -> bytes:
    return os.pread(file, os.fstat(file).st_size - start, start)


def _adopt(path: Path) -> int | None:
    """The file at `path`, open and locked; None while its owner lives or another process drains it."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    if os.fstat(file).st_nlink == 0:  # drained and removed since we opened it
        os.close(file)
        return None
    return file


def _sync(directory: Path) -> None:
    """Makes a new name in `directory` outlive a power cut."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
