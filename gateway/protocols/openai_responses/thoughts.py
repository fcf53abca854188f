"""A `reasoning` item of the Responses protocol and the entries of `reasoning_details`, each made of the other.

A provider's own item is a summary in parts, perhaps text, and an encrypted block, with an id that the block is bound
to; as entries they carry that id and the format `FORMAT`. Thoughts of other kinds of providers have no place in the
item but its `encrypted_content`, which clients send back untouched: they are packed into it as they are, so that
signatures come back byte for byte. What is packed is no secret: the client has just been shown it.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.protocols.openai_chat.answer.reasoning import join
from gateway.wire import strict_json

FORMAT = "openai-responses-v1"
PACKED = "gw1."  # how an `encrypted_content` of ours begins; a dot is no character of the providers' own

Entry = dict[str, Any]


class NoThought(ValueError):
    """An `encrypted_content` that begins as ours and is not."""


def pack(entries: Iterable[Entry]) -> str:
    """Entries as an `encrypted_content`."""
    return PACKED + urlsafe_b64encode(strict_json.dumps(list(entries))).decode()


def entries_of(item: Mapping[str, Any], first: int = 0) -> list[Entry]:
    """The entries of an item, numbered from `first`. Raises `NoThought`."""
    sealed = item.get("encrypted_content") or ""
    if sealed.startswith(PACKED):
        return _unpacked(sealed)
    of_all = {"format": FORMAT} | ({"id": item["id"]} if item.get("id") else {})
    made: list[Entry] = [
        {"type": "reasoning.summary", "summary": part["text"]} | of_all for part in item.get("summary") or ()
    ]
    made += [{"type": "reasoning.text", "text": part["text"]} | of_all for part in item.get("content") or ()]
    if sealed:
        made.append({"type": "reasoning.encrypted", "data": sealed} | of_all)
    return [entry | {"index": first + at} for at, entry in enumerate(made)]


def items_of(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """The items that entries of this format make, in order; others, and summaries that nothing vouches for, are none.

    An item ends with its encrypted block, and where the id changes.
    """
    made: list[dict[str, Any]] = []
    last: dict[str, Any] | None = None
    for entry in join(list(entries)):
        format, kind, id = entry.get("format"), entry["type"], entry.get("id")
        if format not in (None, "", FORMAT) or (kind == "reasoning.text" and format != FORMAT):
            continue
        if last is None or "encrypted_content" in last or (id and last.get("id", id) != id):
            last = {"type": "reasoning", "summary": []}
            made.append(last)
        if id:
            last["id"] = id
        if kind == "reasoning.summary":
            last["summary"].append({"type": "summary_text", "text": entry["summary"]})
        elif kind == "reasoning.text" and entry.get("text"):
            last.setdefault("content", []).append({"type": "reasoning_text", "text": entry["text"]})
        elif kind == "reasoning.encrypted":
            last["encrypted_content"] = entry["data"]
    return [item for item in made if "encrypted_content" in item or "content" in item]


def is_own(entries: Iterable[Entry]) -> bool:
    """Whether entries say nothing but what an item of this protocol has a place for."""
    return all(entry.get("format") == FORMAT and not entry.get("signature") for entry in entries)


def _unpacked(sealed: str) -> list[Entry]:
    try:
        entries = strict_json.loads(urlsafe_b64decode(sealed[len(PACKED) :]))
    except ValueError:
        raise NoThought from None
    if type(entries) is not list or not all(type(entry) is dict for entry in entries):
        raise NoThought
    return entries
