"""The endpoints of uploaded files, in OpenAI's shapes: POST, GET and DELETE under /v1/files.

Another project's file, an expired one and one that never was have the same answer, here as in a chat completion.
"""

from typing import Any

from django.http import HttpRequest
from django.utils.http import content_disposition_header

from gateway.door.answers import Answer, json_answer
from gateway.door.view import ApiView
from gateway.files.store import Entry, file_id, no_such_file, parse_id
from gateway.process import process
from gateway.wire.errors import InvalidRequest

MOST_LISTED = 10_000  # OpenAI's limit, and its default too


class FileView(ApiView):
    """A view of files: for keys with their scope."""

    scope = "files"
    endpoint = "files"

    async def _entry(self, name: str) -> Entry:
        """The caller's file of this id. Raises `NotFound`."""
        id = parse_id(name)
        entry = (await process.current().files.find(self.caller.project, [id])).get(id) if id else None
        if entry is None:
            raise no_such_file("file_id")
        return entry


class FileList(FileView):
    """POST /v1/files and GET /v1/files."""

    async def post(self, request: HttpRequest) -> Answer:
        """Stores the file of a multipart/form-data body: `file`, `purpose` and, if wanted, `expires_after`."""
        self.check_uncoded()
        content_type = self.fields.get(b"content-type", b"").decode("latin-1")
        entry = await process.current().files.store(self.caller, content_type, request.body)
        return json_answer(_object(entry))

    async def get(self, request: HttpRequest) -> Answer:
        """The project's files, newest first: `limit`, `after` (a file's id), `order` (desc, asc) and `purpose`."""
        limit = _limit(request.GET.get("limit"))
        order = request.GET.get("order") or "desc"
        if order not in ("asc", "desc"):
            raise InvalidRequest("order must be asc or desc.", param="order", code="invalid_value")
        after = request.GET.get("after")
        beyond = parse_id(after) if after else None
        if after and beyond is None:
            raise InvalidRequest("after must be the id of a file.", param="after", code="invalid_value")
        entries = await process.current().files.page(
            self.caller.project,
            limit=limit + 1,
            after=beyond,
            order=order,
            purpose=request.GET.get("purpose") or None,
        )
        data = [_object(entry) for entry in entries[:limit]]
        return json_answer(
            {
                "object": "list",
                "data": data,
                "first_id": data[0]["id"] if data else None,
                "last_id": data[-1]["id"] if data else None,
                "has_more": len(entries) > limit,
            }
        )


class OneFile(FileView):
    """GET and DELETE /v1/files/{id}."""

    async def get(self, request: HttpRequest, name: str) -> Answer:
        """What is known of a file, without its content."""
        return json_answer(_object(await self._entry(name)))

    async def delete(self, request: HttpRequest, name: str) -> Answer:
        """Deletes a file, at once and for good."""
        id = parse_id(name)
        if id is None or not await process.current().files.delete(self.caller.project, id):
            raise no_such_file("file_id")
        return json_answer({"id": file_id(id), "object": "file", "deleted": True})


class FileContent(FileView):
    """GET /v1/files/{id}/content."""

    async def get(self, request: HttpRequest, name: str) -> Answer:
        """The bytes as they were uploaded.

        Whatever a client called them, they are no page of ours: a browser saves them and does not guess what they are.
        """
        entry = await self._entry(name)
        self.share.take(2 * entry.bytes)  # sealed and opened: nothing goes out of a content that is not whole
        content = await process.current().files.read(self.caller.project, entry)
        self.share.free()  # what is left of it is the answer, which counts until it has been read
        headers = {
            "Content-Disposition": content_disposition_header(True, entry.filename) or "attachment",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "private, no-store",
        }
        return Answer(content, b"application/octet-stream", headers=headers)


def _limit(text: str | None) -> int:
    if not text:
        return MOST_LISTED
    limit = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidRequest(f"limit must be from 1 to {MOST_LISTED}.", param="limit", code="invalid_value")
    return limit


def _object(entry: Entry) -> dict[str, Any]:
    """A file in OpenAI's shape; times are Unix seconds."""
    return {
        "id": file_id(entry.id),
        "object": "file",
        "bytes": entry.bytes,
        "created_at": int(entry.created_at.timestamp()),
        "filename": entry.filename,
        "purpose": entry.purpose,
        "status": "processed",
        "status_details": None,
        "expires_at": int(entry.expires_at.timestamp()) if entry.expires_at else None,
    }
