"""Uploaded files put where a request names them, in the form its provider takes. No I/O: the files are given, opened.

A content part `{"type": "file", "file": {"file_id": …}}` becomes, for an upstream that speaks OpenAI's chat protocol,
a `file` part with the content as a data URL (RFC 2397), or an `image_url` part where the file is an image that such
upstreams take. No provider ever sees an id of ours, and none of its own ids passes: its account is shared by tenants.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.parts import media_type_of
from gateway.wire.errors import InvalidRequest

IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})


@dataclass(frozen=True, slots=True)
class Reference:
    """A part that names a file: where the id is (`param`, as errors say it), and the id as the client wrote it."""

    param: str
    file_id: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file to put in; `content` is base64."""

    filename: str
    media_type: str
    content: str


def references(request: ChatRequest) -> list[Reference]:
    """Every part that names a file by its id, in order. A null or empty id is none.

    Raises `InvalidRequest` for an id beside `file_data`: which of them is meant must not be the provider's choice.
    """
    found = []
    for path, file in _files(request.body["messages"]):
        if id := file.get("file_id"):
            if file.get("file_data"):
                message = f"{path} has a file_id and file_data. Send one."
                raise InvalidRequest(message, param=f"{path}.file_id", code="invalid_value")
            found.append(Reference(f"{path}.file_id", id))
    return found


def recounted(request: ChatRequest, types: Mapping[str, str], file_bytes: int = 0) -> ChatRequest:
    """The request with the files it names counted as what they are; `types` has their media types, by the client's id,
    and those that are text have `file_bytes` together.

    From here on images count as images and ask for a model that sees. No file is in it yet.
    """
    images = sum(types[reference.file_id] in IMAGES for reference in references(request))
    return replace(
        request,
        images=request.images + images,
        files=request.files - images,
        file_bytes=request.file_bytes + file_bytes,
        modalities=_modalities(request, types),
    )


def inlined(request: ChatRequest, opened: Mapping[str, OpenFile]) -> ChatRequest:
    """The request with each part that names a file replaced; `opened` has all of them, by the client's id.

    The client's body is left as it is.
    """
    messages = [
        {**message, "content": [_filled(part, opened) for part in message["content"]]} if _has_id(message) else message
        for message in request.changes.get("messages", request.body["messages"])
    ]
    return replace(request, changes={**request.changes, "messages": messages}, file_ids=())


def _modalities(request: ChatRequest, types: Mapping[str, str]) -> dict[str, str]:
    found = {name: path for name, path in request.modalities.items() if name != "file"}
    for path, file in _files(request.body["messages"]):
        data = file.get("file_data")
        kind = media_type_of(data, file.get("filename")) if data else types[file["file_id"]]
        if not data and kind in IMAGES:
            found.setdefault("image", path)
        else:
            found.setdefault("video" if (kind or "").startswith("video/") else "file", path)
    return found


def _files(messages: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files of all parts, each with its path."""
    for at, message in enumerate(messages):
        for index, part in enumerate(_parts(message)):
            if part["type"] == "file":
                yield f"messages[{at}].content[{index}].file", part["file"]


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if type(content) is list else []


def _has_id(message: Mapping[str, Any]) -> bool:
    return any(part["type"] == "file" and part["file"].get("file_id") for part in _parts(message))


def _filled(part: dict[str, Any], opened: Mapping[str, OpenFile]) -> dict[str, Any]:
    """The part with its file in it. What else the client said of the part or the file stays."""
    if part["type"] != "file" or not part["file"].get("file_id"):
        return part
    found = opened[part["file"]["file_id"]]
    url = f"data:{found.media_type};base64,{found.content}"
    file = {name: value for name, value in part["file"].items() if name not in ("file_id", "file_data")}
    if found.media_type in IMAGES:
        file.pop("filename", None)
        rest = {name: value for name, value in part.items() if name != "file"}
        return {**rest, "type": "image_url", "image_url": {"url": url, **file}}
    return {**part, "file": {**file, "filename": file.get("filename") or found.filename, "file_data": url}}
