"""One choice's message in its two forms: chunks of deltas, and whole.

`Draft` makes one message of many deltas, `deltas` makes deltas of one message, `merge` makes one of two.
"""

from typing import Any

import msgspec

from gateway.protocols.openai_chat.answer.reasoning import join

_encode = msgspec.json.Encoder().encode


class Draft:
    """One choice of a whole answer, written as its chunks come (already normalised)."""

    __slots__ = ("_calls", "_lists", "_logprobs", "_other", "_parts")

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._other: dict[str, Any] = {}
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: dict[str, Any] | None = None

    def add(self, delta: dict[str, Any], logprobs: Any) -> None:
        """Take one delta: strings and lists continue what came before, other values replace it."""
        for name, value in delta.items():
            if name == "tool_calls":
                for call in value:
                    begun = self._calls.setdefault(call["index"], {})
                    _continue(begun, {k: v for k, v in call.items() if k != "index"})
            elif name == "role" or value is None:
                continue
            elif type(value) is str:
                self._parts.setdefault(name, []).append(value)
            elif type(value) is list:
                self._lists.setdefault(name, []).extend(value)
            elif type(value) is dict:
                if type(self._other.get(name)) is not dict:
                    self._other[name] = {}
                _continue(self._other[name], value)
            else:
                self._other[name] = value
        if type(logprobs) is dict:
            self._logprobs = self._logprobs or {}
            for name, value in logprobs.items():
                if type(value) is list:
                    known = self._logprobs.get(name)
                    if type(known) is not list:
                        known = self._logprobs[name] = []
                    if value:
                        known.append(_encode(value)[1:-1])
                else:
                    self._logprobs.setdefault(name, value)

    def message(self) -> dict[str, Any]:
        """The message so far. `content` is null if there was no text but something else."""
        texts: dict[str, Any] = {name: "".join(parts) for name, parts in self._parts.items()}
        calls = [_written(self._calls[index]) for index in sorted(self._calls)]
        rest = self._lists | {name: _written(value) for name, value in self._other.items()}
        content = texts.pop("content", "") or None
        refusal = texts.pop("refusal", "") or None
        if not (content or calls or refusal or "function_call" in rest or "audio" in rest):
            content = ""
        message = {"role": "assistant", "content": content, "refusal": refusal}
        message["annotations"] = rest.pop("annotations", [])
        if "reasoning_details" in self._lists:
            rest["reasoning_details"] = join(self._lists["reasoning_details"])
        message |= texts | rest
        if calls:
            message["tool_calls"] = calls
        return message

    def logprobs(self) -> dict[str, Any] | None:
        """The log probabilities of all tokens, or None if none came. They are kept as they are written: a tenth."""
        if self._logprobs is None:
            return None
        return {
            name: msgspec.Raw(b"[" + b",".join(value) + b"]") if type(value) is list else value
            for name, value in self._logprobs.items()
        }


def deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole message as the deltas a stream would have: role, reasoning and others, content, tool calls.

    Annotations are left out: they belong to the chunk with the finish reason.
    """
    made: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    last = ("content", "tool_calls", "function_call", "annotations")
    others = {k: v for k, v in message.items() if k != "role" and k not in last and v not in (None, "", [])}
    if others:
        made.append(others)
    if message.get("content"):
        made.append({"content": message["content"]})
    if calls := message.get("tool_calls"):
        made.append({"tool_calls": [call | {"index": at} for at, call in enumerate(calls)]})
    if message.get("function_call"):
        made.append({"function_call": message["function_call"]})
    return made


def merge(message: dict[str, Any], more: dict[str, Any]) -> None:
    """Add to a whole message what another one of the same choice says."""
    for name, value in more.items():
        known = message.get(name)
        if not known:
            message[name] = value
        elif name != "role" and type(value) is type(known) and type(value) in (str, list):
            message[name] = known + value


def text_bytes(part: dict[str, Any]) -> int:
    """UTF-8 bytes that a model wrote in a delta or message, but for reasoning: content, refusal, arguments."""
    size = 0
    if content := part.get("content"):
        size = _size(content)
    if refusal := part.get("refusal"):
        size += _size(refusal)
    calls = part.get("tool_calls")
    for call in calls if type(calls) is list else ():
        for inner in (call.get("function"), call.get("custom")) if type(call) is dict else ():
            if type(inner) is dict:
                size += _size(inner.get("arguments")) + _size(inner.get("input"))
    if not calls and type(call := part.get("function_call")) is dict:  # Beside tool calls it only repeats one.
        size += _size(call.get("arguments"))
    return size


def reasoning_bytes(part: dict[str, Any]) -> int:
    """UTF-8 bytes of reasoning in it. Under two names it is one text."""
    text, copy = part.get("reasoning"), part.get("reasoning_content")
    return _size(text) if copy is text else max(_size(text), _size(copy))


def _size(text: Any) -> int:
    if type(text) is str:
        return len(text) if text.isascii() else len(text.encode())
    return 0


def _continue(known: dict[str, Any], fragment: dict[str, Any]) -> None:
    """Continue a tool call, a function call or audio. Pieces of strings wait in a list until `_written`."""
    for name, value in fragment.items():
        if type(value) is dict:
            inner = known.get(name)
            known[name] = inner if type(inner) is dict else {}
            _continue(known[name], value)
        elif type(value) is str and name in ("arguments", "input", "data", "transcript"):
            parts = known.setdefault(name, _Parts())
            if type(parts) is _Parts:
                parts.append(value)
        elif value is not None:
            known[name] = value


class _Parts(list[str]):
    """Pieces of one string, apart from a list that the provider sent."""


def _written(value: Any) -> Any:
    if type(value) is dict:
        return {name: _written(inner) for name, inner in value.items()}
    return "".join(value) if type(value) is _Parts else value
