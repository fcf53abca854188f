"""One choice's message in its two forms: chunks of deltas, and whole.

`ToolCalls` gives every fragment of a tool call its place, `Draft` makes one message of many deltas, `deltas`
makes deltas of one message.
"""

from typing import Any

_FRAGMENTS = frozenset({"arguments", "input"})  # The strings of a tool call that come in pieces.


class ToolCalls:
    """The tool calls of one choice while their fragments pass.

    The first fragment of a call carries its id, type and name, the others only what continues it: clients
    overwrite with whatever key is there, be it null, empty or a repetition. Distinct indices are left alone.
    Some servers send no index, or 0 for every call; then a new id (or without ids a new name) begins the next
    call.
    """

    __slots__ = ("_at", "_ids", "_last", "_named")

    def __init__(self) -> None:
        self._ids: dict[int, Any] = {}  # By our index, the id it was begun with, or None so far.
        self._named: set[int] = set()
        self._at: dict[int, int] = {}  # Upstream's index to ours.
        self._last = -1

    def normalise(self, call: dict[str, Any]) -> dict[str, Any] | None:
        """The fragment as a client should see it, or None if nothing is left to see."""
        function = call.get("function")
        inner: dict[str, Any] = function if type(function) is dict else {}
        own, new = self._place(call.get("index"), call.get("id"), inner.get("name"))
        if new:
            if inner.get("name"):
                self._named.add(own)
            if "arguments" in inner and inner["arguments"] is None:
                inner["arguments"] = ""
            return call | {"index": own}
        kept: dict[str, Any] = {"index": own}
        if call.get("id") and not self._ids[own]:
            self._ids[own] = kept["id"] = call["id"]
        if inner.get("name") and own not in self._named:
            self._named.add(own)
        else:
            inner.pop("name", None)
        if inner.get("arguments", "") is None:
            del inner["arguments"]
        if inner:
            kept["function"] = inner
        for name, value in call.items():
            if name not in ("index", "id", "type", "function") and value is not None:
                kept[name] = value
        return kept if len(kept) > 1 else None

    def _place(self, sent: Any, id: Any, name: Any) -> tuple[int, bool]:
        """Our index of the call that a fragment belongs to, and whether it begins it."""
        own = self._at.get(sent) if type(sent) is int else (self._last if self._last >= 0 else None)
        if own is not None and id and self._ids[own] not in (None, "", id):
            own = next((index for index, known in self._ids.items() if known == id), None)
        elif own is not None and not id and type(sent) is not int and name and own in self._named:
            own = None
        new = own is None
        if own is None:
            free = max(self._ids, default=-1) + 1
            own = sent if type(sent) is int and sent >= 0 and sent not in self._ids else free
            self._ids[own] = id
        if type(sent) is int:
            self._at[sent] = own
        self._last = own
        return own, new


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
                    _merge(begun, {k: v for k, v in call.items() if k != "index"})
            elif name == "role" or value is None:
                continue
            elif type(value) is str:
                self._parts.setdefault(name, []).append(value)
            elif type(value) is list:
                self._lists.setdefault(name, []).extend(value)
            elif type(value) is dict:
                if type(self._other.get(name)) is not dict:
                    self._other[name] = {}
                _merge(self._other[name], value)
            else:
                self._other[name] = value
        if type(logprobs) is dict:
            self._logprobs = self._logprobs or {}
            for name, value in logprobs.items():
                if type(value) is list:
                    known = self._logprobs.get(name)
                    if type(known) is list:
                        known.extend(value)
                    else:
                        self._logprobs[name] = [*value]
                else:
                    self._logprobs.setdefault(name, value)

    def message(self) -> dict[str, Any]:
        """The message so far. `content` is null if there was no text but something else."""
        texts: dict[str, Any] = {name: "".join(parts) for name, parts in self._parts.items()}
        calls = [_written(self._calls[index]) for index in sorted(self._calls)]
        rest = self._lists | {name: _written(value) for name, value in self._other.items()}
        parts = rest.pop("content", None)
        content = texts.pop("content", "") or parts
        refusal = texts.pop("refusal", "") or None
        if not (content or calls or refusal or "function_call" in rest or "audio" in rest):
            content = ""
        message = {"role": "assistant", "content": content, "refusal": refusal} | texts | rest
        if calls:
            message["tool_calls"] = calls
        return message

    def logprobs(self) -> dict[str, Any] | None:
        """The log probabilities of all tokens, or None if none came."""
        return self._logprobs


def deltas(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A whole message as the deltas a stream would have: role, reasoning and others, content, tool calls."""
    made: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    last = ("content", "tool_calls", "function_call")
    others = {k: v for k, v in message.items() if k != "role" and k not in last and v not in (None, "", [])}
    if others:
        made.append(others)
    if message.get("content"):
        made.append({"content": message["content"]})
    calls = message.get("tool_calls")
    if type(calls) is list and calls:
        indexed = [{"index": i} | call for i, call in enumerate(calls) if type(call) is dict]
        made.append({"tool_calls": indexed})
    if message.get("function_call"):
        made.append({"function_call": message["function_call"]})
    return made


def text_bytes(delta: dict[str, Any]) -> int:
    """UTF-8 bytes that a model wrote in a delta or message: content, reasoning, refusal, arguments.

    Reasoning sent under two names is one text.
    """
    size = _size(delta.get("content")) + _size(delta.get("refusal"))
    size += max(_size(delta.get("reasoning")), _size(delta.get("reasoning_content")))
    calls = delta.get("tool_calls")
    for call in calls if type(calls) is list else ():
        for part in (call.get("function"), call.get("custom")) if type(call) is dict else ():
            if type(part) is dict:
                size += _size(part.get("arguments")) + _size(part.get("input"))
    call = delta.get("function_call")
    if type(call) is dict:
        size += _size(call.get("arguments"))
    return size


def _size(text: Any) -> int:
    if type(text) is str:
        return len(text) if text.isascii() else len(text.encode())
    if type(text) is list:  # Content of several parts.
        return sum(_size(part.get("text")) for part in text if type(part) is dict)
    return 0


def _merge(known: dict[str, Any], fragment: dict[str, Any]) -> None:
    """Continue a tool call, a function call or audio. Pieces of strings wait in a list until `_written`."""
    for name, value in fragment.items():
        if type(value) is dict:
            inner = known.get(name)
            known[name] = inner if type(inner) is dict else {}
            _merge(known[name], value)
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
