"""The tool calls of one choice, made such that a client can use them: each with id, type, name and arguments.

The first fragment of a call carries its index, id, type and name, the others only what continues it: clients
overwrite with whatever key is there, be it null, empty or a repetition, and some take a `type` for the beginning
of a call.
"""

from typing import Any

from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

_KINDS = ("function", "custom")  # An object under one of these names holds a call's name and what it is given.
_GIVEN = {"function": "arguments", "custom": "input"}


class _Call:
    __slots__ = ("held", "id", "name", "shown")

    def __init__(self, id: Any) -> None:
        self.id = id  # As the upstream sent it; None so far.
        self.name: Any = None
        self.shown = False
        self.held: dict[str, Any] = {}  # What came before the name.


class ToolCalls:
    """Gives every fragment of a call its place and form while they pass.

    Distinct indices are left alone. Some servers send no index, or 0 for every call; then a new id (or without
    ids a new name) begins the next call. A call without an id gets one that begins with `id_prefix`, since the
    client has to name it in its next turn. What comes before a call's name waits for it.
    """

    __slots__ = ("_at", "_calls", "_last", "_prefix")

    def __init__(self, id_prefix: str) -> None:
        self._prefix = id_prefix
        self._calls: dict[int, _Call] = {}  # By our index.
        self._at: dict[int, int] = {}  # Upstream's index to ours.
        self._last = -1

    def take(self, sent: Any) -> list[dict[str, Any]]:
        """The fragments of a delta as the client should see them. Raises `UpstreamFault` if they are none."""
        return [call for call in map(self._take, _array(sent)) if call]

    def held(self) -> list[dict[str, Any]]:
        """At the end: the calls that never got a name, as far as there is something in them."""
        waiting = [(own, call) for own, call in self._calls.items() if not call.shown]
        return [
            self._begin(own, call, call.held) for own, call in waiting if call.id or any(_inner(call.held)[1].values())
        ]

    def _take(self, fragment: dict[str, Any]) -> dict[str, Any] | None:
        kind, inner = _inner(fragment)
        id, name = fragment.get("id"), inner.get("name")
        own = self._place(fragment.get("index"), id, name)
        call = self._calls[own]
        call.id, call.name = call.id or id, call.name or name
        if _GIVEN[kind] in inner:
            inner[_GIVEN[kind]] = _string(inner[_GIVEN[kind]])
        if not call.shown:
            if not call.held and name:
                return self._begin(own, call, fragment)
            _continue(call.held, fragment)
            return self._begin(own, call, call.held) if name else None
        inner.pop("name", None)
        kept = {name: value for name, value in fragment.items() if name not in ("id", "type", *_KINDS)}
        kept = {"index": own} | {name: value for name, value in kept.items() if name != "index" and value is not None}
        if inner := {name: value for name, value in inner.items() if value is not None and value != ""}:
            kept[kind] = inner
        return kept if len(kept) > 1 else None

    def _begin(self, own: int, call: _Call, fragment: dict[str, Any]) -> dict[str, Any]:
        call.shown = True
        return whole(fragment, f"{self._prefix}{own}") | {"index": own}

    def _place(self, sent: Any, id: Any, name: Any) -> int:
        """Our index of the call that a fragment belongs to."""
        own = self._at.get(sent) if type(sent) is int else (self._last if self._last >= 0 else None)
        if own is not None and id and self._calls[own].id not in (None, "", id):
            own = next((index for index, known in self._calls.items() if known.id == id), None)
        elif own is not None and not id and name and (known := self._calls[own].name):
            # A server that sends indices may repeat the name with every fragment.
            own = own if type(sent) is int and name == known else None
        if own is None:
            free = max(self._calls, default=-1) + 1
            own = sent if type(sent) is int and sent >= 0 and sent not in self._calls else free
            self._calls[own] = _Call(id)
        if type(sent) is int:
            self._at[sent] = own
        self._last = own
        return own


def whole(call: dict[str, Any], id: str) -> dict[str, Any]:
    """A call with every field a client needs; `id` is for one that has none. Arguments are not repaired."""
    kind, inner = _inner(call)
    inner = {"name": ""} | inner
    inner[_GIVEN[kind]] = _string(inner.get(_GIVEN[kind]))
    made = {"id": id, "type": kind} | {name: value for name, value in call.items() if value not in (None, "")}
    return made | {kind: inner}


def whole_calls(sent: Any, id_prefix: str) -> list[dict[str, Any]]:
    """The calls of a whole message. Raises `UpstreamFault` if they are none."""
    return [whole(call, f"{id_prefix}{at}") for at, call in enumerate(_array(sent))]


def _array(sent: Any) -> list[dict[str, Any]]:
    if not sent:
        return []
    if type(sent) is not list or not all(type(call) is dict for call in sent):
        raise UpstreamFault(Fault.INVALID_RESPONSE, "tool_calls is not an array of objects")
    return sent


def _inner(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for kind in _KINDS:
        if type(inner := call.get(kind)) is dict:
            return kind, inner
    return "custom" if call.get("type") == "custom" else "function", {}


def _string(given: Any) -> str:
    """Arguments are text, which nobody here reads; a server that sends the object meant its JSON."""
    if given is None:
        return ""
    return given if type(given) is str else strict_json.dumps(given).decode()


def _continue(held: dict[str, Any], fragment: dict[str, Any]) -> None:
    kind, inner = _inner(fragment)
    held.update((name, value) for name, value in fragment.items() if name not in _KINDS and value is not None)
    if inner:
        known = held.setdefault(kind, {})
        given = known.get(_GIVEN[kind], "") + inner.get(_GIVEN[kind], "")
        known.update((name, value) for name, value in inner.items() if value)
        known[_GIVEN[kind]] = given
