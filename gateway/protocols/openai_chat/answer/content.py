"""Content that comes as typed parts, made the text that every client reads.

Text, what a model thought and a refusal each go where clients look for them; pictures go beside the text, as `images`,
and what nobody here knows as `content_parts`.
"""

from collections.abc import Mapping
from typing import Any

# Where the text of a part belongs, by the part's type.
_PLACES = {
    **dict.fromkeys(("text", "output_text", "input_text", "markdown"), "content"),
    **dict.fromkeys(("thinking", "reasoning", "reasoning_text", "reasoning_content", "thought"), "reasoning"),
    **dict.fromkeys(("summary_text", "reasoning_summary"), "reasoning"),
    "refusal": "refusal",
}
# Where a part keeps it, be it a string, another part or a list of them.
_HOLDERS = ("text", "thinking", "reasoning", "refusal", "content", "summary", "value")
_IMAGES = frozenset({"image_url", "image", "output_image"})


def text_of(value: Any) -> str:
    """The text in a string, a part or a list of parts, whatever the types of those."""
    if type(value) is str:
        return value
    if type(value) is list:
        return "".join(map(text_of, value))
    if type(value) is dict:
        for name in _HOLDERS:
            if text := text_of(value.get(name)):
                return text
    return ""


def spread(part: dict[str, Any]) -> None:
    """Put the typed parts that are the `content` of a delta or message where they belong. No text: no content.

    What stands there in its plain form already is not repeated.
    """
    sent = part.pop("content")
    texts: dict[str, list[str]] = {"content": [], "reasoning": [], "refusal": []}
    others: dict[str, list[Any]] = {}
    entries: list[dict[str, Any]] = []
    for piece in sent if type(sent) is list else [sent]:
        place = _place(piece)
        if place in texts:
            texts[place].append(text := text_of(piece))
            if place == "reasoning" and piece.get("signature"):
                entries.append({"type": "reasoning.text", "text": text, "signature": piece["signature"]})
        elif piece is not None:
            others.setdefault(place, []).append(piece)
    if said := "".join(texts["content"]):
        part["content"] = said
    for place, pieces in others.items():
        beside = part.get(place)
        part[place] = beside + pieces if type(beside) is list else pieces
    if texts["refusal"] and not part.get("refusal"):
        part["refusal"] = "".join(texts["refusal"])
    if texts["reasoning"] and not (part.get("reasoning") or part.get("reasoning_content")):
        part["reasoning"] = "".join(texts["reasoning"])
        if entries and not part.get("reasoning_details"):
            part["reasoning_details"] = entries


def _place(piece: Any) -> str:
    if type(piece) is str:
        return "content"
    if type(piece) is not dict:
        return "content_parts"
    if piece.get("thought") is True:
        return "reasoning"
    kind = piece.get("type")
    if kind is None:
        return "content" if type(piece.get("text")) is str else "content_parts"
    if type(kind) is not str:
        return "content_parts"
    return _PLACES.get(kind) or ("images" if kind in _IMAGES else "content_parts")


def transcript(part: Mapping[str, Any]) -> str:
    """The words of a sound in a delta or message, for clients of protocols in which a model tells none."""
    sound = part.get("audio")
    words = sound.get("transcript") if type(sound) is dict else None
    return words if type(words) is str else ""
