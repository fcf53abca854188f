"""An upload form, read from memory: one file and what it is for (multipart/form-data, RFC 7578).

Django's parser does the reading. It was made for pages and forgives a lot; whatever it would drop in silence is refused
here: a form without its end, a further file, a field nobody knows. Nothing touches the disk.
"""

import re
from dataclasses import dataclass
from io import BytesIO
from mimetypes import guess_type
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.http import parse_header_parameters

from gateway.wire.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType

FORM = "multipart/form-data"
PURPOSES = ("user_data", "assistants", "vision", "batch", "fine-tune", "evals")
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"
FIELDS = ("purpose", ANCHOR, SECONDS)
LIFETIME = range(3600, 30 * 24 * 3600 + 1)  # seconds a client may ask for, as OpenAI has it
MOST_PARTS = 16
LONGEST_NAME = 255  # characters
LONGEST_TYPE = 512  # characters of the Content-Type: a boundary has 70 at most (RFC 2046, 5.1.1)
UNKNOWN_TYPE = "application/octet-stream"

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}")
_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as a client sent it, with `lifetime` in seconds if it asked for one.

    `filename` is a name without a path and without control characters, `media_type` the client's word or, if that says
    nothing, what the filename's suffix stands for.
    """

    filename: str
    media_type: str
    purpose: str
    lifetime: int | None
    content: bytes


def read_upload(content_type: str, body: bytes, most_bytes: int) -> Upload:
    """The file in a form of this Content-Type, `most_bytes` long at most and not empty.

    Takes a while for a large one: call it in a thread. Raises `UnsupportedMediaType`, `BodyTooLarge` or, naming the
    field, `InvalidRequest`.
    """
    media, semicolon, parameters = content_type.partition(";")
    if media.strip().lower() != FORM:
        raise UnsupportedMediaType(f"Send the file as {FORM}.")
    content_type = FORM + semicolon + parameters
    file = _OneFile(most_bytes)
    try:
        if len(content_type) > LONGEST_TYPE:
            raise _malformed("Its Content-Type is too long.")
        boundary = parse_header_parameters(content_type)[1].get("boundary", "")
        parts = _parts(boundary.encode("ascii"), body)
        meta = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": len(body)}
        fields, _ = MultiPartParser(meta, BytesIO(body), [file], "utf-8").parse()
    # The parser looks up whatever charset a header names; UnicodeError and a bad RFC 2231 value are ValueErrors.
    except (MultiPartParserError, SuspiciousOperation, LookupError, ValueError) as error:
        raise _malformed("It could not be read.") from error
    if file.content is None:
        raise _wrong("The form has no file. Send it as the field 'file', with a filename.", "file", MISSING)
    purpose = _purpose(fields)
    lifetime = _lifetime(fields)
    if parts != 1 + len(fields):
        raise _malformed("Each part needs a Content-Disposition with a name.")
    if not file.content:
        raise _wrong("The file is empty.", "file")
    return Upload(file.filename, file.media_type, purpose, lifetime, file.content)


MISSING = "missing_required_parameter"


class _OneFile(FileUploadHandler):
    """Collects the one file in memory, and refuses a second one, another field's, and one too long."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self.filename = self.media_type = ""
        self.content: bytes | None = None  # None until the boundary after it has been read
        self._most_bytes = most_bytes
        self._left = most_bytes
        self._parts: list[bytes] = []

    def new_file(self, field_name: str, file_name: str, content_type: str, *args: Any, **kwargs: Any) -> None:
        super().new_file(field_name, file_name, content_type, *args, **kwargs)
        if field_name != "file":
            raise _unknown(field_name)
        if self.filename:
            raise _wrong("The form has more than one file. Send them one by one.", "file")
        if len(file_name) > LONGEST_NAME:
            raise _wrong(f"The filename is longer than {LONGEST_NAME} characters.", "file")
        self.filename, self.media_type = file_name, _media_type(content_type, file_name)

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._left -= len(raw_data)
        if self._left < 0:
            raise BodyTooLarge(
                f"The file is larger than the limit of {self._most_bytes} bytes.", code="file_too_large", param="file"
            )
        self._parts.append(raw_data)

    def file_complete(self, file_size: int) -> None:
        self.content = b"".join(self._parts)
        self._parts.clear()


def _parts(boundary: bytes, body: bytes) -> int:
    """How many parts a form has. Raises `InvalidRequest` unless each boundary is a line of its own, from the first byte
    to the closing one.

    Django's parser also takes one inside a line, which ends a file too early, and a body that is cut off.
    """
    delimiter = b"--" + boundary
    at = 0
    for count in range(MOST_PARTS + 1):
        found = body.find(delimiter, at)
        if found < 0 or body[max(at, found - 2) : found] != (b"\r\n" if at else b""):
            break
        at = found + len(delimiter)
        if body.startswith(b"--", at) and body[at + 2 : at + 5] in (b"", b"\r\n"):
            return count
        if not body.startswith(b"\r\n", at):
            break
    raise _malformed("Each boundary must be a line of its own, and the last one must close the form.")


def _media_type(claimed: str, filename: str) -> str:
    claimed = claimed.strip().lower()
    if claimed != UNKNOWN_TYPE and _MEDIA_TYPE.fullmatch(claimed):
        return claimed
    guessed, coding = guess_type(filename, strict=False)
    return guessed if guessed and not coding else UNKNOWN_TYPE


def _purpose(fields: Any) -> str:
    for name in fields:
        if name not in FIELDS:
            raise _unknown(name)
        if len(fields.getlist(name)) > 1:
            raise _wrong(f"The field {name} is there twice. Send it once.", name)
    purpose: str = fields.get("purpose", "")
    if not purpose:
        raise _wrong("The field purpose is required.", "purpose", MISSING)
    if purpose not in PURPOSES:
        raise _wrong(f"The field purpose must be one of {', '.join(PURPOSES)}.", "purpose")
    return purpose


def _lifetime(fields: Any) -> int | None:
    anchor, seconds = fields.get(ANCHOR), fields.get(SECONDS)
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise _wrong(f"The field {ANCHOR} must be created_at.", ANCHOR)
    if not seconds or not _SECONDS.fullmatch(seconds) or int(seconds) not in LIFETIME:
        raise _wrong(f"The field {SECONDS} must be from {LIFETIME.start} to {LIFETIME.stop - 1}.", SECONDS)
    return int(seconds)


def _wrong(message: str, param: str, code: str = "invalid_value") -> InvalidRequest:
    return InvalidRequest(message, param=param, code=code)


def _unknown(name: str) -> InvalidRequest:
    name = name[:64]
    return _wrong(f"The form has a field that nobody knows: {name!r}.", name, "unknown_parameter")


def _malformed(why: str) -> InvalidRequest:
    return InvalidRequest(f"The form is malformed. {why}", code="invalid_multipart")
