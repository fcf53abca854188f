"""Where client and provider both speak this protocol: bodies and events pass with every field they had.

What is changed of a request: the model's name, the cap and with it the budget to think in, the gateway's own fields,
and thoughts that other providers made, which this one would refuse. What is changed of an answer: its id, the model's
name, the counts, which are those that are billed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from gateway.protocols.anthropic_messages.client_request import OWN_FIELDS
from gateway.protocols.anthropic_messages.forms import usage
from gateway.protocols.anthropic_messages.forms.thoughts import THINKING, goes_on_without_thoughts, is_native
from gateway.protocols.openai_chat.request.reasoning import LEAST_BUDGET
from gateway.wire import strict_json

_COUNTED = frozenset(
    {"system", "tools", "tool_choice", "thinking", "output_config", "cache_control", "context_management"}
)
_dated = re.compile(r"_[0-9]{8}\Z")
# Tools whose form the protocol knows, and which the client runs.
_CLIENT_S = ("custom", "bash_", "text_editor_", "computer_", "memory_", "browser_")
# Of a message that goes on: what has no end yet comes as it is, the rest waits until it is settled.
_LAST = frozenset({"message_delta", "message_stop"})


class Native(NamedTuple):
    """The body, and paths of what it has no effect of."""

    body: dict[str, Any]
    ignored: tuple[str, ...]


def upstream_body(client: Mapping[str, Any], *, model: str, output_cap: int | None) -> Native:
    """A checked client's body for a provider that calls the model `model`. `output_cap`, if given, is the cap."""
    made = {name: value for name, value in client.items() if name not in OWN_FIELDS and value is not None}
    made["model"] = model
    made["messages"] = turns = list(_without_others_thoughts(client["messages"]))
    if output_cap is not None:
        made["max_tokens"] = output_cap
    thinking = made.get("thinking") or {}
    if thinking.get("type") != "enabled":
        return Native(made, ())
    cap = made["max_tokens"]
    if cap <= LEAST_BUDGET or goes_on_without_thoughts(turns):
        del made["thinking"]
        return Native(made, ("thinking",))
    if thinking.get("budget_tokens", 0) >= cap:
        made["thinking"] = {**thinking, "budget_tokens": cap - 1}
    return Native(made, ())


def count_body(client: Mapping[str, Any], *, model: str) -> dict[str, Any]:
    """The body that has a provider count the tokens of a request."""
    made = {name: value for name, value in client.items() if name in _COUNTED and value is not None}
    return {**made, "model": model, "messages": list(_without_others_thoughts(client["messages"]))}


def built_in(client: Mapping[str, Any]) -> tuple[str, ...]:
    """Tools that the provider runs itself, which it bills or has somebody called by: their types without the date."""
    types = (tool.get("type") or "custom" for tool in client.get("tools") or ())
    return tuple(dict.fromkeys(_dated.sub("", kind) for kind in types if not kind.startswith(_CLIENT_S)))


def _without_others_thoughts(messages: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The turns without thoughts and citations that other providers made."""
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant" and type(content) is list:
            kept = [_own(block) for block in content if block["type"] not in THINKING or is_native(block)]
            if kept != content:
                if kept:
                    yield {**message, "content": kept}
                continue
        yield message


def _own(block: dict[str, Any]) -> dict[str, Any]:
    cited = block.get("citations")
    if block["type"] != "text" or type(cited) is not list:
        return block
    kept = [one for one in cited if type(one) is not dict or one.get("encrypted_index") != ""]
    return block if len(kept) == len(cited) else {**block, "citations": kept or None}


class Passing:
    """Writes a provider's stream for a client of the same protocol.

    `id` and `model` are what the client is shown. Frames come at once, but for those that end the stream: they wait for
    `final`.
    """

    __slots__ = ("_begun", "_held", "_id", "_model")

    def __init__(self, *, id: str, model: str) -> None:
        self._id, self._model = id, model
        self._begun = False
        self._held: list[tuple[str, dict[str, Any]]] = []

    def event(self, name: str, data: dict[str, Any], raw: bytes) -> bytes:
        """The frame of one event, which was read from `raw`. `name` may be empty: an event says itself what it is."""
        name = data.get("type") or name
        if name in _LAST:
            self._held.append((name, data))
            return b""
        if name == "message_start":
            if self._begun:
                return b""
            self._begun = True
            return _frame(name, {**data, "message": {**data["message"], "id": self._id, "model": self._model}})
        return b"event: %b\ndata: %b\n\n" % (name.encode(), raw)

    def final(self, counts: Mapping[str, Any] | None) -> bytes:
        """What ends the stream; `counts` are a usage object as our chat answers have it."""
        out = []
        for name, data in self._held:
            if name == "message_delta" and counts:
                data = {**data, "usage": {**(data.get("usage") or {}), **usage.shown(counts)}}
            out.append(_frame(name, data))
        if not self._held or self._held[-1][0] != "message_stop":
            out.append(_frame("message_stop", {"type": "message_stop"}))
        return b"".join(out)


def whole(message: dict[str, Any], *, id: str, model: str, counts: Mapping[str, Any] | None) -> bytes:
    """A provider's message for a client of the same protocol; see `Passing`."""
    told = {**message, "id": id, "model": model}
    if counts:
        told["usage"] = {**(message.get("usage") or {}), **usage.shown(counts)}
    return strict_json.dumps(told)


def _frame(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), strict_json.dumps(data))
