"""Pictures and documents: `source` objects in this protocol, URLs and data URLs (RFC 2397) in the chat form.

Providers refuse a picture whose type is not what its bytes say, and then all further turns of that conversation. So
the type is read from the bytes, whatever it is declared as; four types are taken.
"""

from base64 import b64decode
from typing import Any

from gateway.protocols.openai_chat.request.checks import shown, wrong
from gateway.protocols.openai_chat.request.parts import media_type_of
from gateway.protocols.pictures import picture_type

PDF = "application/pdf"
_TYPES = frozenset({"image/jpeg", "image/jpg", "image/png", "image/gif", "image/webp"})
_PLAIN = str.maketrans({"-": "+", "_": "/", **dict.fromkeys(" \t\r\n")})


def is_url(text: str) -> bool:
    """Whether it is an address, and not the thing itself."""
    return text[:8].lower().startswith(("https://", "http://"))


def data_url(media_type: str, data: str) -> str:
    """Base64 as a data URL."""
    return f"data:{media_type};base64,{data}"


def image_source(url: str, param: str) -> dict[str, Any]:
    """The source of a checked image URL. Raises `InvalidRequest` for a picture that no such provider takes."""
    if is_url(url):
        return {"type": "url", "url": url}
    declared = media_type_of(url, None) or ""
    data = _payload(url)
    found = picture_type(data)
    if found is None:
        what = f"a picture of the type {shown(declared)}" if declared not in _TYPES else "what is no picture"
        raise wrong(f"Parameter {param} can not hold {what} here: send a PNG, JPEG, GIF or WebP image.", param)
    return {"type": "base64", "media_type": found, "data": data}


def document_source(data: str, filename: str | None, param: str) -> dict[str, Any]:
    """The source of a checked file of the chat form: a PDF, text, or an address. Raises `InvalidRequest`."""
    if is_url(data):
        return {"type": "url", "url": data}
    kind = media_type_of(data, filename) or ""
    payload = _payload(data)
    if kind == PDF:
        return {"type": "base64", "media_type": PDF, "data": payload}
    if kind.startswith("text/") or kind in ("application/json", "application/xml"):
        try:
            return {"type": "text", "media_type": "text/plain", "data": b64decode(payload).decode()}
        except ValueError:
            raise wrong(f"Parameter {param} must hold text in UTF-8.", param) from None
    raise wrong(f"Parameter {param} can not hold {shown(kind) or 'this'} here: send a PDF, text or an image.", param)


def is_image(data: str, filename: str | None) -> bool:
    """Whether a file of the chat form is a picture."""
    return (media_type_of(data, filename) or "") in _TYPES


def _payload(url: str) -> str:
    """The base64 of a data URL, or bare base64, in the alphabet and with the padding that everybody takes."""
    data = url.partition(",")[2] if url[:5].lower() == "data:" else url
    data = data.translate(_PLAIN).rstrip("=") if not data.isalnum() else data
    return data + "=" * (-len(data) % 4)
