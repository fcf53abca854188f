"""How much text a request has, as a model reads it: what is said, not how JSON writes it. For estimates."""

from collections.abc import Mapping
from typing import Any

from gateway.wire import strict_json

# Of messages: what is no text, or is counted by the piece (images, sound, files).
_NOT_TEXT = frozenset(
    {
        *("type", "role", "id", "tool_call_id", "tool_use_id", "index", "format", "detail", "filename", "file_id"),
        *("image_url", "video_url", "input_audio", "file_data", "cache_control", "signature", "data"),
    }
)
# A schema's own signs are read by the model, too.
_SCHEMAS = ("tools", "functions", "response_format")


def said_bytes(body: Mapping[str, Any]) -> int:
    """UTF-8 bytes of text in the messages, tools and schemas of a checked body."""
    schemas = sum(len(strict_json.dumps(body[name])) for name in _SCHEMAS if body.get(name))
    return _text(body["messages"]) + schemas


def _text(value: Any) -> int:
    if type(value) is str:
        return len(value) if value.isascii() else len(value.encode("utf-8", "replace"))
    if type(value) is list:
        return sum(map(_text, value))
    if type(value) is dict:
        return sum(_text(inner) for name, inner in value.items() if name not in _NOT_TEXT)
    return 0
