"""Parts of a message's content: text, and media as URL, data URL or base64; and what they amount to.

Which parts a role may have stands in `PARTS`. What cannot be carried is refused by name, never passed on unread.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from gateway.protocols.openai_chat.request.checks import MISSING, TYPE, check_cache_control, missing, shown, wrong
from gateway.wire.errors import InvalidRequest

AUDIO_FORMATS = ("wav", "mp3", "flac", "ogg", "opus", "m4a", "aac", "webm", "pcm16")
IMAGE_TYPES = frozenset({"jpeg", "jpg", "png", "gif", "webp", "heic", "heif", "avif", "bmp"})
DETAILS = ("auto", "low", "high", "original")

# What a file's name says it is: media types by extension, of documents and films that models read.
MEDIA_TYPES = {
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "xml": "application/xml",
    "rtf": "application/rtf",
    "doc": "application/msword",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "ppt": "application/vnd.ms-powerpoint",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mpeg": "video/mpeg",
    "mpg": "video/mpeg",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "avi": "video/x-msvideo",
    "mkv": "video/x-matroska",
}

_TEXTS = frozenset({"application/json", "application/xml", "application/rtf", "application/octet-stream"})
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_= \t\r\n"


class Media:
    """What the parts of a request amount to.

    - `images`, `audios`, `files`: how many; video counts as a file
    - `file_bytes`: of those files that are text
    - `base64`: characters of media among the request's text
    - `modalities`: what a model must be able to read besides text, each with the path of the first part that needs it
    - `file_ids`: files of the project that are named instead of sent
    - `to_rewrite`: some message is in a form that few upstreams of this protocol take, see `request_forms`
    - `cache_control`: some part has a cache breakpoint
    - `thoughts`: formats of the signed or encrypted thoughts in it, "" for one that names none
    """

    __slots__ = (
        "audios", "base64", "cache_control", "file_bytes", "file_ids", "files", "images", "modalities", "thoughts",
        "to_rewrite",
    )  # fmt: skip

    def __init__(self) -> None:
        self.images = self.audios = self.files = self.base64 = self.file_bytes = 0
        self.modalities: dict[str, str] = {}
        self.file_ids: list[str] = []
        self.to_rewrite = self.cache_control = False
        self.thoughts: set[str] = set()


NO_MEDIA = Media()  # Of messages that are all text; nobody writes to it.

Read: TypeAlias = Callable[[dict[str, Any], str, Media], None]


def read_parts(parts: list[Any], role: str, path: str, media: Media) -> None:
    """Check and count the parts of one message of `role`. `path` is the content's. Raises `InvalidRequest`."""
    kinds = PARTS[role]
    for at, part in enumerate(parts):
        kind = part.get("type") if type(part) is dict else None
        if kind == "text" and len(part) == 2 and type(part.get("text")) is str:
            continue
        reader = kinds.get(kind) if type(kind) is str else None
        if reader is None:
            raise _bad_part(part, kind, kinds, f"{path}[{at}]")
        reader(part, f"{path}[{at}]", media)
    if role == "assistant" and len(parts) > 1:
        _check_refusals(parts, path)


def media_type_of(data: str, filename: Any) -> str | None:
    """The media type of a file's data, from its data URL, else from an extension; None: not known."""
    source = data[:256]
    if source[:5].lower() == "data:":
        return source[5:].partition(",")[0].partition(";")[0].strip().lower() or None
    name = filename if type(filename) is str else ""
    if not name and "://" in source:
        name = source.partition("?")[0].partition("#")[0]
    return MEDIA_TYPES.get(name.rpartition(".")[2].lower())


def is_text(media_type: str | None) -> bool:
    """Whether a model may read a file byte by byte, so that its length bounds its tokens; also when nobody knows."""
    return media_type is None or media_type.startswith("text/") or media_type in _TEXTS


def _bad_part(part: Any, kind: Any, kinds: Mapping[str, Read], path: str) -> InvalidRequest:
    if type(part) is not dict:
        return wrong(f"Parameter {path} must be an object with a type.", path, TYPE)
    if kind is None:
        return missing(f"{path}.type", "what kind of part it is")
    if type(kind) is not str:
        return wrong(f"Parameter {path}.type must be a string.", f"{path}.type", TYPE)
    known = ", ".join(kinds)
    return wrong(f"Parameter {path}.type can not be {shown(kind)} here: it must be one of {known}.", f"{path}.type")


def _check_refusals(parts: list[Any], path: str) -> None:
    if any(part["type"] == "refusal" for part in parts):
        raise wrong(f"Parameter {path} must hold text parts, or exactly one refusal and nothing else.", path)


def _text(part: dict[str, Any], path: str, media: Media) -> None:
    if type(part.get("text")) is not str:
        raise _no_string(part.get("text"), f"{path}.text")
    if (cache := part.get("cache_control")) is not None:
        check_cache_control(cache, f"{path}.cache_control")
        media.cache_control = True


def _refusal(part: dict[str, Any], path: str, media: Media) -> None:
    if type(part.get("refusal")) is not str:
        raise _no_string(part.get("refusal"), f"{path}.refusal")


def _image(part: dict[str, Any], path: str, media: Media) -> None:
    image = part.get("image_url")
    path = f"{path}.image_url"
    url: Any = image
    if type(image) is str:
        media.to_rewrite = True  # Some clients send the string itself; few upstreams take it.
    elif type(image) is dict:
        url = image.get("url")
        path = f"{path}.url"
        if (detail := image.get("detail")) is not None and detail not in DETAILS:
            param = f"{path[:-4]}.detail"
            raise wrong(f"Parameter {param} must be one of {', '.join(DETAILS)}.", param)
    else:
        raise _no_string(image, path, "an object with a url")
    media.images += 1
    media.modalities.setdefault("image", path)
    kind = _read_url(url, path, media)
    if kind is not None:
        family, _, name = kind.partition("/")
        if family != "image" or name not in IMAGE_TYPES:
            raise wrong(f"Parameter {path} can not hold {shown(kind)}: send a PNG, JPEG, GIF or WebP image.", path)


def _video(part: dict[str, Any], path: str, media: Media) -> None:
    video = part.get("video_url")
    path = f"{path}.video_url"
    url: Any = video
    if type(video) is str:
        media.to_rewrite = True
    elif type(video) is dict:
        url, path = video.get("url"), f"{path}.url"
    else:
        raise _no_string(video, path, "an object with a url")
    media.files += 1
    media.modalities.setdefault("video", path)
    kind = _read_url(url, path, media)
    if kind is not None and not kind.startswith("video/"):
        raise wrong(f"Parameter {path} can not hold {shown(kind)}: send a video.", path)


def _audio(part: dict[str, Any], path: str, media: Media) -> None:
    audio = part.get("input_audio")
    path = f"{path}.input_audio"
    if type(audio) is not dict:
        raise _no_string(audio, path, "an object with data and format")
    data, form = audio.get("data"), audio.get("format")
    if type(data) is not str:
        raise _no_string(data, f"{path}.data", "the sound in base64")
    if form not in AUDIO_FORMATS:
        code = MISSING if form is None else TYPE if type(form) is not str else "invalid_value"
        known = ", ".join(AUDIO_FORMATS)
        raise wrong(f"Parameter {path}.format must be one of {known}.", f"{path}.format", code)
    _check_base64(data, f"{path}.data", "An address or a data URL does not do here.")
    media.audios += 1
    media.modalities.setdefault("audio", path)
    media.base64 += len(data)


def _file(part: dict[str, Any], path: str, media: Media) -> None:
    file = part.get("file")
    path = f"{path}.file"
    if type(file) is not dict:
        raise _no_string(file, path, "an object with file_id or file_data")
    id, data, filename = file.get("file_id"), file.get("file_data"), file.get("filename")
    for name, value in (("file_id", id), ("file_data", data), ("filename", filename)):
        if value is not None and type(value) is not str:
            raise wrong(f"Parameter {path}.{name} must be a string.", f"{path}.{name}", TYPE)
    if not id and not data:
        raise missing(path, "send file_id, or file_data with a filename")
    if id and data:  # Which of them is meant must not be the provider's choice.
        raise wrong(f"Parameter {path} has a file_id and file_data. Send one.", f"{path}.file_id")
    modality = "file"
    if data:
        before, kind = media.base64, media_type_of(data, filename)
        if kind is not None and kind.startswith("video/"):
            modality = "video"
        if ":" in data[:16]:
            _read_url(data, f"{path}.file_data", media)
        else:
            if kind is None:
                raise missing(f"{path}.filename", "with a known extension, such as .pdf, beside bare base64")
            _check_base64(data, f"{path}.file_data", "Or send a data URL, or an http(s) URL.")
            media.base64 += len(data)
            media.to_rewrite = True
        if is_text(kind):
            media.file_bytes += (media.base64 - before) * 3 // 4
    elif id:
        media.file_ids.append(id)
    media.files += 1
    media.modalities.setdefault(modality, path)


def _block(part: dict[str, Any], path: str, media: Media) -> None:
    """A block of Anthropic's protocol, as some clients put them into chat messages; it is rewritten."""
    for name, kind, what in _BLOCKS[part["type"]]:
        value = part.get(name)
        if type(value) is not kind:
            if value is None:
                raise missing(f"{path}.{name}", what)
            raise wrong(f"Parameter {path}.{name} must be {what}.", f"{path}.{name}", TYPE)
    if part["type"] in ("thinking", "redacted_thinking"):
        media.thoughts.add(CLAUDE)
    if part["type"] == "tool_result":
        content = part.get("content")
        if type(content) is list:
            read_parts(content, "tool", f"{path}.content", media)
        elif content is not None and type(content) is not str:
            raise wrong(
                f"Parameter {path}.content must be a string or an array of text parts.", f"{path}.content", TYPE
            )
    if (cache := part.get("cache_control")) is not None:
        check_cache_control(cache, f"{path}.cache_control")
        media.cache_control = True
    media.to_rewrite = True


def _read_url(url: Any, path: str, media: Media) -> str | None:
    """Check an http(s) URL or a base64 data URL (RFC 2397) and count the latter; gives the media type of a data URL."""
    if type(url) is not str:
        raise _no_string(url, path)
    head = url[:256]
    if head.startswith(("https://", "http://")):
        return None
    head, comma, _ = head.partition(",")
    head = head.lower()
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise wrong(f"Parameter {path} must be an http(s) URL or a data URL in base64.", path)
    payload = url[len(head) + 1 :]
    _check_base64(payload, path, "It is what stands after the comma of a data URL.")
    media.base64 += len(payload)
    return head[5:].partition(";")[0].strip()


def _check_base64(data: str, path: str, hint: str) -> None:
    if not data or not data.isascii() or data.encode().translate(None, _BASE64):
        raise wrong(f"Parameter {path} must hold base64 (RFC 4648). {hint}", path)


def _no_string(value: Any, path: str, what: str = "a string") -> InvalidRequest:
    if value is None:
        return missing(path, what)
    return wrong(f"Parameter {path} must be {what}.", path, TYPE)


_BLOCKS: dict[str, tuple[tuple[str, type, str], ...]] = {
    "tool_use": (("id", str, "a string"), ("name", str, "a string"), ("input", dict, "an object")),
    "tool_result": (("tool_use_id", str, "a string"),),
    "thinking": (("thinking", str, "a string"), ("signature", str, "a string")),
    "redacted_thinking": (("data", str, "a string"),),
}
CLAUDE = "anthropic-claude-v1"  # the format of thoughts that Anthropic's models sign
GEMINI = "google-gemini-v1"  # and Google's
_TEXT_ONLY: Mapping[str, Read] = {"text": _text}
PARTS: Mapping[str, Mapping[str, Read]] = {
    "developer": _TEXT_ONLY,
    "system": _TEXT_ONLY,
    "tool": _TEXT_ONLY,
    "function": _TEXT_ONLY,
    "user": {
        "text": _text,
        "image_url": _image,
        "input_audio": _audio,
        "file": _file,
        "video_url": _video,
        "tool_result": _block,
    },
    "assistant": {
        "text": _text,
        "refusal": _refusal,
        **dict.fromkeys(("tool_use", "thinking", "redacted_thinking"), _block),
    },
}
