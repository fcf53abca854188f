"""The uploaded files that a request names: counted before its hold, read at its dial."""

from collections.abc import Callable
from uuid import UUID

from django.conf import settings

from accounts.callers import Caller
from gateway.files.inlining import OpenFile, Reference, inlined, recounted, references
from gateway.files.store import Entry, Files, parse_id
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.parts import is_text
from gateway.wire.errors import InvalidRequest, NotFound

NO_ID = UUID(int=0)
COPIES = 3  # of a file's bytes on their way into a request: base64, in the request and in the body


async def look_up_files(files: Files, caller: Caller, asked: ChatRequest) -> ChatRequest:
    """The request with the uploaded files that it names counted as what they are, from what is stored about them.

    For before the hold: whoever has no money for a request cannot have its files moved. Any key of the project may name
    its files. Raises `InvalidRequest` with the param for a file that is not there, whosever it may be, and for files
    longer together than one may be; `Unavailable`.
    """
    if not asked.file_ids:
        return asked
    total = of_text = 0
    types = {}
    for reference, entry in await _named(files, caller, asked):
        types[reference.file_id] = entry.media_type
        total += entry.bytes
        of_text += entry.bytes if is_text(entry.media_type) else 0
        if total > settings.FILES_MAX_BYTES:
            raise InvalidRequest(
                f"The files of one request may be {settings.FILES_MAX_BYTES} bytes together.",
                code="files_too_large",
                param=reference.param,
            )
    return recounted(asked, types, of_text)


async def inline_files(files: Files, caller: Caller, asked: ChatRequest, take: Callable[[int], None]) -> ChatRequest:
    """The request with the content of the files that it names in it, for one dial; it itself when it names none.

    Looked up anew: the content is not kept for as long as an answer takes, and `take` counts what it keeps till then.
    Raises as `look_up_files` does for what was deleted meanwhile.
    """
    if not asked.file_ids:
        return asked
    opened: dict[str, OpenFile] = {}
    for reference, entry in await _named(files, caller, asked):
        if reference.file_id not in opened:
            take(COPIES * entry.bytes)
            try:
                opened[reference.file_id] = await files.open(caller.project, entry)
            except NotFound as error:
                raise _not_there(reference) from error
    return inlined(asked, opened)


async def _named(files: Files, caller: Caller, asked: ChatRequest) -> list[tuple[Reference, Entry]]:
    """The files that a request names, each as often as it does. Raises `InvalidRequest` for the first not there."""
    named = references(asked)
    ids = {reference.file_id: parse_id(reference.file_id) for reference in named}
    entries = await files.find(caller.project, [id for id in ids.values() if id])
    found = []
    for reference in named:
        entry = entries.get(ids[reference.file_id] or NO_ID)
        if entry is None:
            raise _not_there(reference)
        found.append((reference, entry))
    return found


def _not_there(reference: Reference) -> InvalidRequest:
    return InvalidRequest("There is no such file.", code="file_not_found", param=reference.param)
