"""What a model thought: entries of `reasoning_details` in the chat form, blocks of thinking in this protocol.

Anthropic signs the text of a thinking block, and hides others in `redacted_thinking`; both come back in the next turn
byte for byte, or the provider refuses them. In the chat form they are `reasoning.text` and `reasoning.encrypted`
entries of the format `CLAUDE`.

Other providers have signatures, ids and encrypted items of their own, for which a block has no fields. A client of this
protocol keeps a block's `signature` or `data` as it came, so the rest of such an entry goes there, sealed: a mark that
no signature of Anthropic's begins with, and the entry as JSON in base64. A thought that nobody signed has an empty
signature.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Any

from gateway.protocols.openai_chat.request.parts import CLAUDE
from gateway.wire import strict_json

THINKING = frozenset({"thinking", "redacted_thinking"})

_SEAL = "sealed:"  # a colon is not in base64
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}  # where an entry's readable matter is
_PLAIN = frozenset({"type", "text", "index"})


class Unreadable(ValueError):
    """A seal of ours that was changed."""


def text_field(entry: dict[str, Any]) -> str | None:
    """The field that holds an entry's readable text, if its type has any."""
    kind = entry.get("type")
    return _TEXTS.get(kind) if type(kind) is str else None


def to_block(entry: dict[str, Any]) -> dict[str, Any]:
    """A whole entry as a block."""
    field = text_field(entry)
    if field is None:
        own = entry.get("format") == CLAUDE and type(entry.get("data")) is str
        return {"type": "redacted_thinking", "data": entry["data"] if own else _sealed(entry)}
    return {"type": "thinking", "thinking": entry.get(field) or "", "signature": signature(entry)}


def signature(entry: dict[str, Any]) -> str:
    """What stands as the signature of a readable entry's block."""
    if entry.get("format") == CLAUDE and entry.get("type") == "reasoning.text":
        return entry.get("signature") or ""
    field = text_field(entry)
    rest = {name: value for name, value in entry.items() if name != field and value is not None}
    return "" if rest.keys() <= _PLAIN and field == "text" else _sealed(rest)


def to_entry(block: dict[str, Any], index: int) -> dict[str, Any]:
    """A client's block as an entry; `index` is its place among its turn's thoughts. Raises `Unreadable`."""
    if block["type"] == "redacted_thinking":
        data = block["data"]
        if data.startswith(_SEAL):
            return _unsealed(data)
        return {"type": "reasoning.encrypted", "data": data, "format": CLAUDE, "index": index}
    text, signed = block["thinking"], block.get("signature") or ""
    if signed.startswith(_SEAL):
        entry = _unsealed(signed)
        return {**entry, text_field(entry) or "text": text}
    if not signed:
        return {"type": "reasoning.text", "text": text, "index": index}
    return {"type": "reasoning.text", "text": text, "signature": signed, "format": CLAUDE, "index": index}


def is_native(block: dict[str, Any]) -> bool:
    """Whether a block of thinking is one that a provider of this protocol made, so that it takes it back."""
    proof = block.get("signature" if block.get("type") == "thinking" else "data")
    return type(proof) is str and bool(proof) and not proof.startswith(_SEAL)


def provider_block(entry: dict[str, Any]) -> dict[str, Any] | None:
    """An entry as a provider of this protocol takes it back; None for one that it did not make.

    An entry that names no format is taken for its own if it is signed or encrypted as its own are.
    """
    if entry.get("format") not in (None, "", CLAUDE):
        return None
    if entry.get("type") == "reasoning.encrypted" and entry.get("data"):
        return {"type": "redacted_thinking", "data": entry["data"]}
    if entry.get("type") == "reasoning.text" and entry.get("signature"):
        return {"type": "thinking", "thinking": entry.get("text") or "", "signature": entry["signature"]}
    return None


def goes_on_without_thoughts(turns: Sequence[dict[str, Any]]) -> bool:
    """Whether turns of this protocol end in results of calls that no thought of such a provider's came before.

    A model that thinks within a budget does not go on from there: somebody else made the call, or its thoughts were not
    kept, and providers refuse the request. It goes on where it is not to think.
    """
    if len(turns) < 2 or turns[-1]["role"] != "user" or turns[-2]["role"] != "assistant":
        return False
    results, before = turns[-1]["content"], turns[-2]["content"]
    if type(results) is not list or type(before) is not list or not before:
        return False
    return any(block["type"] == "tool_result" for block in results) and before[0]["type"] not in THINKING


def _sealed(entry: dict[str, Any]) -> str:
    return _SEAL + urlsafe_b64encode(strict_json.dumps(entry)).decode()


def _unsealed(text: str) -> dict[str, Any]:
    try:
        entry = strict_json.loads(b64decode(text.removeprefix(_SEAL), b"-_", validate=True))
    except ValueError:  # of base64, ASCII or JSON
        raise Unreadable from None
    if type(entry) is not dict:
        raise Unreadable
    return entry
