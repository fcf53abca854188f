"""Files that clients upload: stored sealed, opened and deleted for their own project alone.

Every statement names the project, so another tenant's file, an expired one and one that never was are the same: not
there. Content is sealed for its file and its project: a row copied to another does not open.

Only requests that name a file come here. A large one costs a connection, memory and milliseconds of a core for a while,
so `AT_ONCE` of them are worked on at a time in a process, their sealing in threads of their own, and content is read in
pieces: the loop that relays streams never waits for a whole file.
"""

import asyncio
import logging
import re
import time
from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings

from accounts.callers import Caller
from accounts.sealing import CannotOpen, open_bytes, seal_bytes
from billing.backbone.connections import Asker, Connections, DatabaseAway
from billing.ids import new_id
from gateway.files.inlining import OpenFile
from gateway.files.uploads import Upload, read_upload
from gateway.wire.errors import GatewayError, InvalidRequest, NotFound, RateLimited, Unavailable

logger = logging.getLogger(__name__)

AT_ONCE = 4  # contents a process moves at a time
PATIENCE = 10.0  # seconds a request waits for its turn
PIECE = 1 << 20  # bytes of content a statement reads
MOST_FILES = 10_000  # a project's; with its bytes bounded too, counting them stays cheap
DAY = 24 * 3600

_ID = re.compile(r"file-([0-9a-f]{32})")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored file without its content: `bytes` as uploaded, times UTC, None: kept until it is deleted."""

    id: UUID
    filename: str
    purpose: str
    media_type: str
    bytes: int
    created_at: datetime
    expires_at: datetime | None


COLUMNS = "id, filename, purpose, media_type, bytes, created_at, expires_at"
OURS = "project_id = %(project)s and (expires_at is null or expires_at > now())"
STORE = "select * from gateway_store_file(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
# A call that waited for the row may come from the hour before, and counts in the newer one; one that begins later is of
# before the clock was set back.
_GOES_ON = "w.hour between excluded.hour and clock_timestamp() + interval '1 minute'"
WRITE = f"""
    insert into gateway_fileswritten as w (project, hour, bytes)
    values (%(project)s, date_trunc('hour', clock_timestamp(), 'UTC'), %(bytes)s)
    on conflict (project) do update
       set bytes = excluded.bytes + case when {_GOES_ON} then w.bytes else 0 end,
           hour = case when {_GOES_ON} then w.hour else excluded.hour end
     where not {_GOES_ON} or w.bytes + excluded.bytes <= %(most)s
    returning bytes
"""  # noqa: S608 - constants
FIND = f"select {COLUMNS} from gateway_storedfile where {OURS} and id = any(%(ids)s)"  # noqa: S608 - constants
READ = "select substring(content from %s for %s) from gateway_storedfile where id = %s and project_id = %s"
DELETE = f"delete from gateway_storedfile where {OURS} and id = %(id)s returning id"  # noqa: S608 - constants
LIST = {
    order: f"select {COLUMNS} from gateway_storedfile where {OURS}"  # noqa: S608 - constants
    " and (%(purpose)s::text is null or purpose = %(purpose)s)"
    f" and (%(after)s::uuid is null or id {beyond} %(after)s) order by id {order} limit %(limit)s"
    for order, beyond in (("asc", ">"), ("desc", "<"))
}


def file_id(id: UUID) -> str:
    """A file's id as clients see it."""
    return f"file-{id.hex}"


def parse_id(text: str) -> UUID | None:
    """The id in a client's words; None for what cannot be one."""
    match = _ID.fullmatch(text)
    return UUID(hex=match[1]) if match else None


def place(id: UUID, project: UUID) -> str:
    """What a file's content is sealed for."""
    return f"file {id} of project {project}"


def no_such_file(param: str | None = None) -> NotFound:
    """The one answer to an id that is not there, whosever it may be."""
    return NotFound("There is no such file.", code="file_not_found", param=param)


class Files:
    """A process's way to the files. Every method raises `Unavailable` when the database or a turn is not to be had."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="files")

    async def store(self, caller: Caller, content_type: str, form: bytes) -> Entry:
        """Stores the file in an upload form, for the caller's project.

        Raises what `read_upload` raises, `InvalidRequest` when the project has no room, and `RateLimited` when it has
        written too much in this hour; nothing is stored then.
        """
        id = new_id()
        async with self._turn():
            upload, sealed = await self._in_thread(_sealed, content_type, form, id, caller.project)
            await self._count(caller.project, len(upload.content))
            days = settings.FILES_RETENTION_DAYS
            lifetimes = [seconds for seconds in (days * DAY, upload.lifetime) if seconds]
            row = (id, caller.project, caller.key, upload.filename, upload.purpose, upload.media_type)
            limits = (min(lifetimes, default=None), settings.FILES_PROJECT_BYTES, MOST_FILES)
            rows = await self._call(caller.project, STORE, (*row, len(upload.content), sealed, *limits))
        verdict, created_at, expires_at = rows[0]
        if verdict != "stored":
            limit = f"{settings.FILES_PROJECT_BYTES} bytes" if verdict == "bytes" else f"{MOST_FILES} files"
            raise InvalidRequest(
                f"With this file the project would pass its limit of {limit}. Delete some first.",
                code="file_storage_full",
                param="file",
            )
        return Entry(
            id, upload.filename, upload.purpose, upload.media_type, len(upload.content), created_at, expires_at
        )

    async def _count(self, project: UUID, bytes: int) -> None:
        """Counts what is written: deleted bytes stay on the disk until the database has cleaned up."""
        most = settings.FILES_PROJECT_HOURLY_BYTES
        row = {"project": project, "bytes": bytes, "most": most}
        if most and not (bytes <= most and await self._call(project, WRITE, row)):
            raise RateLimited(
                f"A project may upload {most} bytes of files an hour.",
                code="file_uploads_exhausted",
                retry_after=3600 - int(time.time()) % 3600,
            )

    async def find(self, project: UUID, ids: Sequence[UUID]) -> dict[UUID, Entry]:
        """The project's files among `ids`."""
        rows = await self._call(project, FIND, {"project": project, "ids": list(ids)})
        return {row[0]: Entry(*row) for row in rows}

    async def page(
        self, project: UUID, *, limit: int, after: UUID | None, order: str, purpose: str | None
    ) -> list[Entry]:
        """At most `limit` of the project's files beyond `after`; `order` is desc, the newest first, or asc."""
        params = {"project": project, "limit": limit, "after": after, "purpose": purpose}
        return [Entry(*row) for row in await self._call(project, LIST[order], params)]

    async def read(self, project: UUID, entry: Entry) -> bytes:
        """The content of a file. Raises `NotFound` when it has been deleted meanwhile."""
        async with self._turn():
            sealed = await self._sealed(project, entry.id)
            return await self._in_thread(_opened, sealed, entry.id, project)

    async def open(self, project: UUID, entry: Entry) -> OpenFile:
        """A file to put into a request. Raises `NotFound` when it has been deleted meanwhile."""
        async with self._turn():
            sealed = await self._sealed(project, entry.id)
            content = await self._in_thread(lambda: b64encode(_opened(sealed, entry.id, project)).decode())
        return OpenFile(entry.filename, entry.media_type, content)

    async def delete(self, project: UUID, id: UUID) -> bool:
        """Deletes a file. False when it is not there."""
        return bool(await self._call(project, DELETE, {"project": project, "id": id}))

    async def _sealed(self, project: UUID, id: UUID) -> bytes:
        """A whole content is slow to arrive and holds up the loop while it is decoded; a piece is and does neither."""
        pieces: list[bytes] = []
        while not pieces or len(pieces[-1]) == PIECE:
            rows = await self._call(project, READ, (len(pieces) * PIECE + 1, PIECE, id, project))
            if not rows:
                raise no_such_file()
            pieces.append(rows[0][0])
        return b"".join(pieces)

    async def _call(self, project: UUID, query: str, params: Any) -> list[tuple[Any, ...]]:
        try:
            return await self._connections.call(query, params, Asker(project, project))
        except DatabaseAway as error:
            raise Unavailable("Files cannot be reached just now. Try again shortly.", retry_after=1) from error

    async def _in_thread(self, work: Callable[..., Result], *args: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(work, *args))

    @asynccontextmanager
    async def _turn(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(PATIENCE):
                await self._turns.acquire()
        except TimeoutError as error:
            raise Unavailable("Too many files are moved at once. Try again shortly.", retry_after=2) from error
        try:
            yield
        finally:
            self._turns.release()


def _sealed(content_type: str, form: bytes, id: UUID, project: UUID) -> tuple[Upload, bytes]:
    upload = read_upload(content_type, form, settings.FILES_MAX_BYTES)
    return upload, seal_bytes(upload.content, place(id, project))


def _opened(sealed: bytes, id: UUID, project: UUID) -> bytes:
    try:
        return open_bytes(sealed, place(id, project))
    except CannotOpen as error:
        logger.error("file %s of project %s does not open under any of SEALING_KEYS", id, project)
        raise GatewayError("The file cannot be read any more. Upload it again.", code="file_unreadable") from error
