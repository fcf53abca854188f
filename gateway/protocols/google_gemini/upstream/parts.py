"""Parts of a chat message as Google has them: text, and media inline or by a public address."""

from collections.abc import Mapping
from typing import Any

from gateway.protocols.openai_chat.request.checks import wrong
from gateway.protocols.openai_chat.request.parts import media_type_of
from gateway.protocols.pictures import picture_type

AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mp3",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/ogg",
    "m4a": "audio/m4a",
    "aac": "audio/aac",
    "webm": "audio/webm",
    "pcm16": "audio/pcm",
}
_RESOLUTIONS = {"low": "MEDIA_RESOLUTION_LOW", "high": "MEDIA_RESOLUTION_HIGH", "original": "MEDIA_RESOLUTION_HIGH"}
_TYPES = {"image/jpg": "image/jpeg"}
_PLAIN = str.maketrans({"-": "+", "_": "/", " ": None, "\t": None, "\r": None, "\n": None})


def part(piece: Mapping[str, Any], path: str) -> dict[str, Any] | None:
    """A part of a user's message; None for a text that says nothing, which Google refuses. Raises `InvalidRequest`."""
    kind = piece["type"]
    if kind == "text":
        return {"text": piece["text"]} if piece["text"] else None
    if kind in ("image_url", "video_url"):
        media = piece[kind]
        return by_url(media if type(media) is str else media["url"])
    if kind == "input_audio":
        sound = piece[kind]
        return {"inlineData": {"mimeType": AUDIO_TYPES[sound["format"]], "data": sound["data"].translate(_PLAIN)}}
    if kind == "file" and piece[kind].get("file_data"):
        return by_url(piece[kind]["file_data"], piece[kind].get("filename"))
    raise wrong(f"Parameter {path} can not be sent to this model: it is of type {kind}.", path, "unsupported_parameter")


def by_url(url: str, filename: str | None = None) -> dict[str, Any]:
    """The part of a data URL, or of a public address; the provider reads the latter."""
    if url[:5].lower() != "data:":
        kind = media_type_of(url, filename)
        return {"fileData": {"fileUri": url} | ({"mimeType": kind} if kind else {})}
    head, _, data = url.partition(",")
    kind = head[5:].partition(";")[0].strip().lower()
    data = data.translate(_PLAIN)
    found = picture_type(data) if kind.startswith("image/") else None
    return {"inlineData": {"mimeType": found or _TYPES.get(kind, kind), "data": data}}


def resolution(messages: list[dict[str, Any]]) -> str | None:
    """How closely pictures are to be looked at, where all of them say the same: Google has one word for them all."""
    pieces = [piece for message in messages if type(message.get("content")) is list for piece in message["content"]]
    media = [piece["image_url"] for piece in pieces if piece.get("type") == "image_url"]
    asked = {_RESOLUTIONS.get(image.get("detail") or "") if type(image) is dict else None for image in media}
    return asked.pop() if len(asked) == 1 else None
