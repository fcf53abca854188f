"""Parts of a client's contents that hold media, as parts of a chat message.

What lies in an account at the provider (its Files API, its storage) is refused by name: that account is the
gateway's, shared by all tenants.
"""

import re
from typing import Any
from urllib.parse import urlsplit

from gateway.protocols.google_gemini.client.fields import named, text
from gateway.protocols.openai_chat.request.checks import missing, shown, wrong
from gateway.protocols.openai_chat.request.parts import media_type_of

AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp3": "mp3",
    "audio/mpeg": "mp3",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/ogg": "ogg",
    "audio/opus": "opus",
    "audio/mp4": "m4a",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/aac": "aac",
    "audio/webm": "webm",
    "audio/pcm": "pcm16",
    "audio/l16": "pcm16",
}
_URL_SAFE = str.maketrans("-_", "+/")
_is_type = re.compile(r"[a-z]+/[a-z0-9.+-]{1,100}").fullmatch
_WATCHED = ("youtube.com", "www.youtube.com", "m.youtube.com", "youtu.be")


def inline_data(blob: Any, path: str) -> dict[str, Any]:
    """`inlineData` as a chat part. Raises `InvalidRequest`."""
    fields = named(blob, path)
    if "data" not in fields:
        raise missing(f"{path}.data", "base64")
    data, kind = text(fields["data"], f"{path}.data"), _type(fields, path)
    if kind is None:
        raise missing(f"{path}.mimeType", "what the data is, such as image/png")
    data = data.translate(_URL_SAFE)  # one of Google's SDKs writes the alphabet for URLs
    family = kind.partition("/")[0]
    if family == "audio" and kind in AUDIO_FORMATS:
        return {"type": "input_audio", "input_audio": {"data": data, "format": AUDIO_FORMATS[kind]}}
    url = f"data:{kind};base64,{data}"
    if family in ("image", "video"):
        return {"type": f"{family}_url", f"{family}_url": {"url": url}}
    name = {"filename": text(fields["displayName"], f"{path}.displayName")} if "displayName" in fields else {}
    return {"type": "file", "file": {**name, "file_data": url}}


def file_data(file: Any, path: str) -> dict[str, Any]:
    """`fileData`, whose address is a public one, as a chat part. Raises `InvalidRequest`."""
    fields = named(file, path)
    if "fileUri" not in fields:
        raise missing(f"{path}.fileUri", "an http(s) URL")
    uri, kind = text(fields["fileUri"], f"{path}.fileUri"), _type(fields, path)
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    host = parts.hostname or ""
    if parts.scheme not in ("https", "http") or host.endswith("generativelanguage.googleapis.com"):
        raise wrong(
            f"Parameter {path}.fileUri must be a public http(s) URL: what lies in an account at a provider "
            "is not a client's to name. Or send inlineData.",
            f"{path}.fileUri",
        )
    if kind is None:
        kind = "video/mp4" if host in _WATCHED else media_type_of(uri, None) or ""
    family = kind.partition("/")[0]
    if family in ("image", "video"):
        return {"type": f"{family}_url", f"{family}_url": {"url": uri}}
    return {"type": "file", "file": {"file_data": uri}}


def _type(fields: dict[str, Any], path: str) -> str | None:
    """A media type without its parameters."""
    if "mimeType" not in fields:
        return None
    kind = text(fields["mimeType"], f"{path}.mimeType").partition(";")[0].strip().lower()
    if not _is_type(kind):
        param = f"{path}.mimeType"
        raise wrong(f"Parameter {param} can not be {shown(kind)}: it must be a media type.", param)
    return kind
