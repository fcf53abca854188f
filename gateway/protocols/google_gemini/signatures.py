"""How thoughts and their signatures pass through the chat form, in both directions.

Google signs parts: a `thoughtSignature` on a thought, a text, a picture or a function call, of parallel calls on the
first alone. Each must come back on the very part it was on. In the chat form it is an entry of `reasoning_details` of
the format `FORMAT`:

    {"type": "reasoning.text", "text": ..., "signature": ...}         a thought, signed or not
    {"type": "reasoning.encrypted", "data": ..., "id": call's id}     the signature on a function call
    {"type": "reasoning.encrypted", "data": ..., "span": [from, to]}  on a text: these characters of the content
    {"type": "reasoning.encrypted", "data": ..., "image": n}          on the nth of the answer's pictures

and that of a call stands on the tool call itself too (`extra_content`), where Google's own chat endpoint has it, since
more clients send back a call whole than a message.

The other way round, a client of this protocol has room for a signature alone and some clients throw thoughts away. So
what other providers thought (their entries, signed or not) is packed into the signature of the next function call, or
else of the answer's end, and unpacked when it comes back.
"""

import binascii
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from gateway.protocols.openai_chat.request.parts import GEMINI
from gateway.wire import strict_json

FORMAT = GEMINI
# What Google takes for the signature of a call that it did not make, or whose signature was lost.
NO_SIGNATURE = "skip_thought_signature_validator"
_NO_SIGNATURES = frozenset({NO_SIGNATURE, "context_engineering_is_the_way_to_go"})
_MARK = b"\x00meterline thoughts 1\x00"
_HEAD = b64encode(_MARK[:21]).decode()  # 21 bytes are 28 characters, whatever follows


def pack(entries: list[Any]) -> str:
    """Entries of `reasoning_details` as the signature of a part: base64, as every signature is."""
    return b64encode(_MARK + strict_json.dumps(entries)).decode()


def unpack(signature: str) -> list[dict[str, Any]] | None:
    """The entries that `pack` made a signature of; None: it is another one. SDKs may have changed its alphabet."""
    if not signature.replace("-", "+").replace("_", "/").startswith(_HEAD):
        return None
    try:
        raw = urlsafe_b64decode(signature.replace("+", "-").replace("/", "_") + "=" * (-len(signature) % 4))
        entries = strict_json.loads(raw.removeprefix(_MARK))
    except (binascii.Error, ValueError):
        return None
    return entries if type(entries) is list and all(type(entry) is dict for entry in entries) else None


def is_real(signature: Any) -> TypeGuard[str]:
    """Whether it signs something: neither absent nor one of the words for none."""
    return type(signature) is str and bool(signature) and signature not in _NO_SIGNATURES


def encrypted(signature: str, index: int, **place: Any) -> dict[str, Any]:
    """The entry of a signature alone; `place` is its `id`, `span` or `image`."""
    return {"type": "reasoning.encrypted", "data": signature, "format": FORMAT, "index": index, **place}


def thought(text: str, index: int, signature: Any = None) -> dict[str, Any]:
    """The entry of a thought."""
    entry = {"type": "reasoning.text", "text": text, "format": FORMAT, "index": index}
    return {**entry, "signature": signature} if is_real(signature) else entry


def of_call(call: dict[str, Any]) -> str | None:
    """The signature that stands on a tool call itself."""
    extra = call.get("extra_content")
    google = extra.get("google") if type(extra) is dict else None
    signature = google.get("thought_signature") if type(google) is dict else None
    return signature if is_real(signature) else None


def on_call(signature: str) -> dict[str, Any]:
    """The fields of a tool call that has a signature."""
    return {"extra_content": {"google": {"thought_signature": signature}}}


def ours(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of a message or delta that are of this protocol's format."""
    return [entry for entry in message.get("reasoning_details") or () if entry.get("format") == FORMAT]


def sealed(entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are a signature alone."""
    return [entry for entry in entries if entry.get("type") == "reasoning.encrypted" and entry.get("data")]


def signed(part: dict[str, Any], signature: Any) -> dict[str, Any]:
    """A part with its signature, if it has one."""
    return {**part, "thoughtSignature": signature} if signature else part


def text_parts(said: str, entries: Sequence[dict[str, Any]], before: int = 0) -> list[dict[str, Any]]:
    """A text cut into the parts that were signed and what lies between; places that no longer fit are its end.

    `before`: characters that were said before this text.
    """
    parts: list[dict[str, Any]] = []
    done = 0
    for entry in entries:
        start, end = _span(entry.get("span"), before, done, len(said))
        if start > done:
            parts.append({"text": said[done:start]})
        parts.append({"text": said[start:end], "thoughtSignature": entry["data"]})
        done = end
    if done < len(said):
        parts.append({"text": said[done:]})
    return parts


def _span(span: Any, before: int, done: int, length: int) -> tuple[int, int]:
    if type(span) is list and len(span) == 2 and all(type(at) is int for at in span):
        start, end = span[0] - before, span[1] - before
        if done <= start <= end <= length:
            return start, end
    return done, length
