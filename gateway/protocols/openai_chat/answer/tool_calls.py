"""The tool calls of one choice, made such that a client can use them: each with id, type, name and arguments.

The first fragment of a call carries its index, id, type and name, the others only what continues it: clients
overwrite with whatever key is there, be it null, empty or a repetition, and some take a `type` for the beginning
of a call.
"""

from collections.abc import Collection
from typing import Any

from gateway.protocols.openai_chat.answer.held import Held
from gateway.wire import strict_json
from gateway.wire.errors import UpstreamFault
from routing.health.faults import Fault

MAX_CALLS = 1024  # In one choice.

_KINDS = ("function", "custom")  # An object under one of these names holds a call's name and what it is given.
_GIVEN = {"function": "arguments", "custom": "input"}
_SAID_ONCE = frozenset({"index", "id", "type", *_KINDS})
_NO_IDS = frozenset({"null", "None", "undefined"})


class _Call:
    """- `id`, `name`: as the upstream sent them, empty so far; `index`: ours, -1 while it is not shown
    - `kind`, `fields`, `inner`, `given`: what came before it could be shown; `given` are its arguments, in pieces
    """

    __slots__ = ("fields", "given", "id", "index", "inner", "kind", "name")

    def __init__(self) -> None:
        self.id = self.name = ""
        self.index = -1
        self.kind = "function"
        self.fields: dict[str, Any] = {}
        self.inner: dict[str, Any] = {}
        self.given: list[str] = []


class ToolCalls:
    """Gives every fragment of a call its place and form while they pass.

    - Calls are numbered from 0 in the order in which they begin: clients keep them in arrays, and a server that
      begins with 1 or leaves out a number would leave a hole there
    - A new id or, without ids, a new name begins the next call where a server sends no index, or one for all of them.
      An id without a name begins none: some servers change it while a call goes on
    - A call without an id gets one that begins with `id_prefix`, since the client has to name it in its next turn
    - What comes before a call's name waits for it, and so does a name that is only the beginning of one of the
      client's `names`

    `waiting` counts the bytes of text that wait.
    """

    __slots__ = ("_at", "_calls", "_held", "_ids", "_last", "_names", "_prefix", "_shown", "waiting")

    def __init__(self, id_prefix: str, names: Collection[str], held: Held) -> None:
        self.waiting = 0
        self._prefix = id_prefix
        self._names = names
        self._held = held
        self._calls: list[_Call] = []
        self._at: dict[int, _Call] = {}  # By the upstream's index.
        self._ids: dict[str, _Call] = {}
        self._last: _Call | None = None
        self._shown = 0

    def take(self, sent: Any) -> list[dict[str, Any]]:
        """The fragments of a delta as the client should see them. Raises `UpstreamFault` if they are none."""
        made: list[dict[str, Any]] = []
        for fragment in _array(sent):
            self._take(fragment, made)
        return made

    def left(self) -> list[dict[str, Any]]:
        """At the end: the calls that never got a whole name, as far as there is something in them."""
        waiting = [call for call in self._calls if call.index < 0]
        return [self._begin(call) for call in waiting if call.id or call.name or call.given]

    def _take(self, fragment: dict[str, Any], made: list[dict[str, Any]]) -> None:
        kind, inner = _inner(fragment)
        id, name = _id(fragment.get("id")), inner.get("name")
        if type(name) is not str:
            name = ""
        sent, last = fragment.get("index"), self._last
        call = self._place(sent if type(sent) is int else None, id, name)
        if last is not None and call is not last and last.index < 0 and last.name in self._names:
            made.append(self._begin(last))  # That was all of its name.
        if id and not call.id:
            call.id = id
            self._ids[id] = call
        given = _GIVEN[kind]
        if given in inner:
            inner[given] = string_of(inner[given])
        if call.index < 0:
            if inner:
                call.kind = kind
            if self._waits(call, fragment, inner, name):
                self._held.add(fragment)
            else:
                made.append(self._begin(call))
            return
        kept: dict[str, Any] = {"index": call.index}
        for key, value in fragment.items():
            if value is not None and key not in _SAID_ONCE:
                kept[key] = value
        if inner := {key: value for key, value in inner.items() if key != "name" and value is not None and value != ""}:
            kept[kind] = inner
        if len(kept) > 1:
            made.append(kept)

    def _waits(self, call: _Call, fragment: dict[str, Any], inner: dict[str, Any], name: str) -> bool:
        """Put a fragment to what is held of its call; whether that has to wait for more."""
        for key, value in fragment.items():
            if value is not None and key not in _SAID_ONCE:
                call.fields[key] = value
        for key, value in inner.items():
            if value and key != "name" and key != _GIVEN[call.kind]:
                call.inner[key] = value
        call.name = name if name.startswith(call.name) else call.name + name
        if piece := inner.get(_GIVEN[call.kind]):
            call.given.append(piece)
            self.waiting += _size(piece)
        return not call.name or (not piece and self._unfinished(call.name))

    def _begin(self, call: _Call) -> dict[str, Any]:
        arguments = "".join(call.given)
        self.waiting -= _size(arguments)
        call.index = self._shown
        self._shown += 1
        begun = {"index": call.index, "id": call.id or f"{self._prefix}{call.index}", "type": call.kind}
        begun |= call.fields
        begun[call.kind] = call.inner | {"name": call.name, _GIVEN[call.kind]: arguments}
        call.fields, call.inner, call.given = {}, {}, []
        return begun

    def _unfinished(self, name: str, *, or_whole: bool = False) -> bool:
        """Whether it may yet become another name that the client knows, `or_whole`: is one."""
        return any(known.startswith(name) and (or_whole or known != name) for known in self._names)

    def _place(self, index: int | None, id: str, name: str) -> _Call:
        """The call that a fragment belongs to."""
        call = self._last if index is None else self._at.get(index)
        if call is None:
            call = self._ids.get(id) if index is None else None
        elif id and call.id != id and (call.id or self._is_another(call, name, index)):
            call = self._ids.get(id) or (None if name else call)
        elif not id and self._is_another(call, name, index):
            call = None
        if call is None:
            if len(self._calls) >= MAX_CALLS:
                raise UpstreamFault(Fault.INVALID_RESPONSE, f"more than {MAX_CALLS} tool calls", unreadable=True)
            self._calls.append(call := _Call())
        if index is not None:
            self._at[index] = call
        self._last = call
        return call

    def _is_another(self, call: _Call, name: str, index: int | None) -> bool:
        """Whether a name is not that of this call: neither repeated, as some servers do, nor the rest of it."""
        if not name or not call.name or (name == call.name and index is not None):
            return False
        if call.index >= 0 or call.given:
            return True
        if index is not None and name.startswith(call.name):  # It says all that it has, again.
            return False
        return not self._unfinished(call.name + name, or_whole=True)


def names_of(tools: Any) -> list[str]:
    """The names of the tools that a client declared."""
    declared = [_inner(tool)[1].get("name") for tool in tools or () if type(tool) is dict]
    return [name for name in declared if type(name) is str]


def whole(call: dict[str, Any], id: str) -> dict[str, Any]:
    """A call with every field a client needs; `id` is for one that has none. Arguments are not repaired."""
    kind, inner = _inner(call)
    inner = {"name": ""} | inner
    inner[_GIVEN[kind]] = string_of(inner.get(_GIVEN[kind]))
    made = {"id": id, "type": kind} | {name: value for name, value in call.items() if value not in (None, "")}
    made["id"] = _id(call.get("id")) or id
    return made | {kind: inner}


def whole_calls(sent: Any, id_prefix: str) -> list[dict[str, Any]]:
    """The calls of a whole message. Raises `UpstreamFault` if they are none."""
    calls = _array(sent)
    if len(calls) > MAX_CALLS:
        raise UpstreamFault(Fault.INVALID_RESPONSE, f"more than {MAX_CALLS} tool calls", unreadable=True)
    for call in calls:
        call.pop("index", None)
    return [whole(call, f"{id_prefix}{at}") for at, call in enumerate(calls)]


def _array(sent: Any) -> list[dict[str, Any]]:
    if not sent:
        return []
    if type(sent) is not list or not all(type(call) is dict for call in sent):
        raise UpstreamFault(Fault.INVALID_RESPONSE, "tool_calls is not an array of objects")
    return sent


def _id(sent: Any) -> str:
    """An id; empty if it is none."""
    if type(sent) is int:
        return str(sent)
    return "" if type(sent) is not str or sent in _NO_IDS else sent


def _inner(call: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    for kind in _KINDS:
        if type(inner := call.get(kind)) is dict:
            return kind, inner
    return "custom" if call.get("type") == "custom" else "function", {}


def string_of(arguments: Any) -> str:
    """Arguments are text, which nobody here reads; a server that sends the object meant its JSON."""
    if arguments is None:
        return ""
    return arguments if type(arguments) is str else strict_json.dumps(arguments).decode()


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
