"""What a model thought, under the three names that clients of OpenAI-like services read.

`reasoning` and `reasoning_content` are the same text; `reasoning_details` are entries that a client sends back
unchanged in its next turn: a text with the signature over it, a summary, an encrypted block. An upstream gives
one, two or all of them, a client gets all three, whichever it was written for. Entries are passed as they came,
since a signature covers every byte; only their `index` is made a number where it is a string of digits or absent:
clients put fragments together by it, and OpenAI's own SDK fails on an entry without.
"""

from typing import Any

from gateway.protocols.openai_chat.answer.content import text_of

# Other names of the same text, or of its parts; they go, once they have lent it to the three.
ALIASES = frozenset({"thinking", "thinking_content", "thinking_blocks", "reasoning_text"})
NAMES = frozenset({"reasoning", "reasoning_content", "reasoning_details"})
# The field that holds an entry's readable text, by its type.
_TEXTS = {"reasoning.text": "text", "reasoning.summary": "summary"}


class Reasoning:
    """Completes the reasoning of one choice, delta by delta, or of one whole message."""

    __slots__ = ("_at", "_made_entries", "_open")

    def __init__(self) -> None:
        self._made_entries = False
        self._at = -1  # The index of the last entry, and its field of text while more of that may come.
        self._open: str | None = None

    def spread(self, part: dict[str, Any]) -> None:
        """Give a delta or message that has some of the three names all of them. Empty ones go.

        A text that comes without entries gets one, of index 0. Entries with text but without the plain names lend
        it to them; not once an upstream has sent plain text alone, for then its entries repeat what was read.
        """
        if not ALIASES.isdisjoint(part):
            _borrow(part)
        sent = part.get("reasoning_details")
        details = self._entries(sent) if sent else []
        text, content = part.get("reasoning"), part.get("reasoning_content")
        said = text or content
        if not said and not self._made_entries:
            said = "".join(map(_text, details))
        for name in NAMES & part.keys():
            if not part[name]:
                del part[name]
        if said:
            part["reasoning"], part["reasoning_content"] = text or said, content or said
        if type(said) is str and said and not details:
            self._made_entries = True
            details = [{"type": "reasoning.text", "text": said, "index": 0}]
        if details:
            part["reasoning_details"] = details

    def _entries(self, details: Any) -> list[Any]:
        """The entries with their indices. One vendor's page calls the field a string: that is a text."""
        if type(details) is str:
            details = [{"type": "reasoning.text", "text": details}]
        if type(details) is not list:
            return []
        for place, entry in enumerate(details):
            if type(entry) is not dict:
                continue
            field, index = _field(entry), entry.get("index")
            if type(index) is str and index.isascii() and index.isdigit() and len(index) < 10:
                entry["index"] = int(index)
            elif index is None:
                continues = place == 0 and field is not None and field == self._open
                entry["index"] = self._at if continues else self._at + 1
            if type(entry["index"]) is int:
                self._at = entry["index"]
            self._open = None if entry.get("signature") else field
        return details


def _borrow(part: dict[str, Any]) -> None:
    for name in sorted(ALIASES & part.keys()):
        if type(part[name]) in (str, list, type(None)):
            lent = part.pop(name)
            if not (part.get("reasoning") or part.get("reasoning_content") or part.get("reasoning_details")):
                part["reasoning"] = text_of(lent)


def join(fragments: list[Any]) -> list[Any]:
    """The entries of a whole message from those of its chunks.

    Fragments of readable text continue the entry of their type and index, until that is signed: what follows a
    signature is not covered by it. Entries of other types, encrypted ones above all, come whole.
    """
    made: list[Any] = []
    open_: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
    written: list[tuple[dict[str, Any], str, list[str]]] = []
    for fragment in fragments:
        field = _field(fragment)
        if field is None:
            made.append(fragment)
            continue
        place = (field, str(fragment.get("index")))
        entry, texts = open_.get(place, (None, []))
        if entry is None or not _continues(entry, fragment, field):
            entry, texts = open_[place] = {**fragment}, []
            made.append(entry)
            if type(entry.get(field, "")) is str:
                written.append((entry, field, texts))
        else:
            entry.update((name, value) for name, value in fragment.items() if value is not None)
        if text := fragment.get(field):
            texts.append(text)
    for entry, field, texts in written:
        if field in entry:
            entry[field] = "".join(texts)
    return made


def _continues(entry: dict[str, Any], fragment: dict[str, Any], field: str) -> bool:
    texts = (entry.get(field), fragment.get(field))
    if any(text is not None and type(text) is not str for text in texts):
        return False
    if entry.get("id") and fragment.get("id") and entry["id"] != fragment["id"]:
        return False
    return not (entry.get("signature") and (fragment.get(field) or fragment.get("signature")))


def _field(entry: Any) -> str | None:
    kind = entry.get("type") if type(entry) is dict else None
    return _TEXTS.get(kind) if type(kind) is str else None


def _text(entry: Any) -> str:
    field = _field(entry)
    text = entry.get(field) if field else None
    return text if type(text) is str else ""
