"""A client's `input`, a flat list of items, as the messages of the chat form.

What an assistant did in one go, thoughts, words and calls, are items here and one message there, since the results of
its calls must follow at once. A picture that a tool gave has no place in a tool's message; it follows in one of the
user's, behind the results.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.openai_chat.request.checks import MISSING, TYPE, UNSUPPORTED, missing, wrong
from gateway.protocols.openai_responses import carried
from gateway.protocols.openai_responses.content import chat_parts
from gateway.protocols.openai_responses.thoughts import NoThought, entries_of
from gateway.protocols.openai_responses.tools import LOCAL_SHELL, joined, shell_arguments

ROLES = ("user", "assistant", "system", "developer")
MAX_ITEMS = 100_000
SHOWN_BELOW = "What the tool gave besides text is in the next message."

Item = dict[str, Any]


class Conversation:
    """Messages as items come.

    - `messages`: the chat form's
    - `places`: for each of them the path of the item that it begins with
    - `only_native`, `ignored`: paths of items that the chat form cannot carry, and of those that may be left out
    - `referred`: the items that were named by their ids, in the order of that
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.places: list[str] = []
        self.only_native: list[str] = []
        self.ignored: list[str] = []
        self.referred: list[Item] = []
        self._turn: dict[str, Any] | None = None  # the assistant's, while it may go on
        self._shown: list[dict[str, Any]] = []  # parts that tools gave, until all results are there

    def instruct(self, instructions: Any) -> None:
        """What stands above the conversation. Raises `InvalidRequest`."""
        if type(instructions) is not str:
            raise wrong("Parameter instructions must be a string.", "instructions", TYPE)
        if instructions:
            self._add({"role": "system", "content": instructions}, "instructions")

    def read(self, input: Any) -> None:
        """All of `input`. Raises `InvalidRequest`."""
        if input is None:
            raise missing("input", "a string, or an array of items")
        if type(input) is str:
            self._add({"role": "user", "content": input}, "input")
            return
        if type(input) is not list:
            raise wrong("Parameter input must be a string or an array of items.", "input", TYPE)
        if not input:
            raise wrong("Parameter input can not be empty. Send at least one item.", "input")
        if len(input) > MAX_ITEMS:
            raise wrong(f"Parameter input takes at most {MAX_ITEMS} items.", "input")
        try:
            there = carried.unpacked(input)
        except carried.Unreadable as error:
            param = f"input[{error.at}].id"
            why = "is not as it was given, or holds more than is read. Send the items themselves, as with store: false."
            raise wrong(f"Parameter {param} {why}", param) from None
        for at, item in enumerate(input):
            self._take(item, f"input[{at}]", there)
        self._show()

    def _take(self, item: Any, path: str, there: dict[str, list[Item]]) -> None:
        if type(item) is not dict:
            raise wrong(f"Parameter {path} must be an object.", path, TYPE)
        if carried.carries(item):
            return
        kind = item.get("type", "message" if "role" in item else None)
        if type(kind) is not str:
            raise wrong(f"Parameter {path}.type must be a string.", f"{path}.type", MISSING if kind is None else TYPE)
        if kind == "item_reference":
            named = item.get("id")
            if type(named) is not str or not there.get(named):
                why = "it names what is not kept here, or twice. Send the item itself, as with store: false."
                raise wrong(f"Parameter {path}.id is not supported: {why}", f"{path}.id", UNSUPPORTED)
            # Once: a name is shorter than what it stands for, and what is held goes by what was sent.
            item = there[named].pop(0)
            kind = item["type"]
            self.referred.append(item)
        take = _ITEMS.get(kind)
        if take:
            take(self, item, path)
        elif kind in _RECORDS:
            self.ignored.append(path)
        else:
            self.only_native.append(path)

    def _message(self, item: Item, path: str) -> None:
        role, content = item.get("role"), item.get("content")
        if type(role) is not str or role not in ROLES:
            code = MISSING if role is None else "invalid_value" if type(role) is str else TYPE
            raise wrong(f"Parameter {path}.role must be one of {', '.join(ROLES)}.", f"{path}.role", code)
        if type(content) is list:
            content = chat_parts(content, f"{path}.content")
        elif type(content) is not str:
            said = f"Parameter {path}.content must be a string or an array of parts."
            raise wrong(said, f"{path}.content", MISSING if content is None else TYPE)
        if role != "assistant":
            self._add({"role": role, "content": content}, path)
            return
        refusals = []
        if type(content) is list:
            refusals = [part["refusal"] for part in content if part["type"] == "refusal"]
            content = [part for part in content if part["type"] != "refusal"]
        turn = self._going_on(path, ends=("content", "refusal"))
        if content:
            turn["content"] = _parts(turn["content"]) + _parts(content) if turn["content"] else content
        if refusals:
            turn["refusal"] = "".join(map(str, (turn.get("refusal") or "", *refusals)))
        if not content and not refusals and "tool_calls" not in turn:
            turn["content"] = ""

    def _reasoning(self, item: Item, path: str) -> None:
        for name in ("summary", "content"):
            parts = item.get(name) or []
            if type(parts) is not list or not all(type(p) is dict and type(p.get("text")) is str for p in parts):
                raise wrong(f"Parameter {path}.{name} must be an array of texts.", f"{path}.{name}", TYPE)
        for name in ("id", "encrypted_content"):
            if item.get(name) is not None and type(item[name]) is not str:
                raise wrong(f"Parameter {path}.{name} must be a string.", f"{path}.{name}", TYPE)
        turn = self._going_on(path, ends=("content", "refusal"))
        known = turn.get("reasoning_details", [])
        try:
            entries = entries_of(item, len(known))
        except NoThought:
            param = f"{path}.encrypted_content"
            raise wrong(f"Parameter {param} is not as it was given. Send it back unchanged.", param) from None
        if entries:
            turn["reasoning_details"] = known + entries

    def _function_call(self, item: Item, path: str) -> None:
        inner = {"name": _name(item, path), "arguments": _string(item, path, "arguments")}
        self._call({"id": _id(item, path), "type": "function", "function": inner}, path)

    def _custom_call(self, item: Item, path: str) -> None:
        inner = {"name": _name(item, path), "input": _string(item, path, "input")}
        self._call({"id": _id(item, path), "type": "custom", "custom": inner}, path)

    def _shell_call(self, item: Item, path: str) -> None:
        action = item.get("action")
        if type(action) is not dict:
            raise missing(f"{path}.action", "an object with the command")
        inner = {"name": LOCAL_SHELL, "arguments": shell_arguments(action)}
        self._call({"id": _id(item, path), "type": "function", "function": inner}, path)

    def _call(self, call: dict[str, Any], path: str) -> None:
        turn = self._going_on(path, ends=())
        turn["tool_calls"] = [*turn.get("tool_calls", ()), call]
        turn["content"] = turn["content"] or None

    def _output(self, item: Item, path: str) -> None:
        self._result(_id(item, path), item.get("output"), f"{path}.output", path)

    def _shell_output(self, item: Item, path: str) -> None:
        name = "call_id" if item.get("call_id") else "id"
        self._result(_id(item, path, name), item.get("output"), f"{path}.output", path)

    def _result(self, id: str, output: Any, param: str, path: str) -> None:
        if type(output) is list:
            parts = chat_parts(output, param)
            output = [part for part in parts if part["type"] == "text"]
            if beside := [part for part in parts if part["type"] != "text"]:
                self._shown += beside
                output.append({"type": "text", "text": SHOWN_BELOW})
        elif type(output) is not str:
            raise wrong(f"Parameter {param} must be a string or an array of parts.", param, TYPE)
        self._turn = None
        self.messages.append({"role": "tool", "tool_call_id": id, "content": output or ""})
        self.places.append(path)

    def _going_on(self, path: str, ends: tuple[str, ...]) -> dict[str, Any]:
        """The assistant's open turn; a new one where that has said all it may before something of this kind.

        Calls are not over before their results are there, whatever comes between.
        """
        turn = self._turn
        if turn is None or ("tool_calls" not in turn and any(turn.get(name) for name in ends)):
            turn = {"role": "assistant", "content": ""}
            self._add(turn, path)
            self._turn = turn
        return turn

    def _add(self, message: dict[str, Any], path: str) -> None:
        self._show()
        self._turn = None
        self.messages.append(message)
        self.places.append(path)

    def _show(self) -> None:
        if self._shown:
            shown, self._shown = self._shown, []
            self.messages.append({"role": "user", "content": shown})
            self.places.append(self.places[-1])


def _parts(content: Any) -> list[dict[str, Any]]:
    return content if type(content) is list else [{"type": "text", "text": content}]


def _string(item: Item, path: str, name: str) -> str:
    value = item.get(name)
    if type(value) is not str:
        if value is None:
            raise missing(f"{path}.{name}", "a string")
        raise wrong(f"Parameter {path}.{name} must be a string.", f"{path}.{name}", TYPE)
    return value


def _name(item: Item, path: str) -> str:
    name = _string(item, path, "name")
    return joined(_string(item, path, "namespace"), name) if item.get("namespace") is not None else name


def _id(item: Item, path: str, name: str = "call_id") -> str:
    if not (value := _string(item, path, name)):
        raise missing(f"{path}.{name}", "the id of the call")
    return value


_ITEMS: Mapping[str, Callable[[Conversation, Item, str], None]] = {
    "message": Conversation._message,
    "reasoning": Conversation._reasoning,
    "function_call": Conversation._function_call,
    "custom_tool_call": Conversation._custom_call,
    "local_shell_call": Conversation._shell_call,
    "function_call_output": Conversation._output,
    "custom_tool_call_output": Conversation._output,
    "local_shell_call_output": Conversation._shell_output,
}
# What a provider did and an answer tells of. The answer is in the messages; to another model they say nothing more.
_RECORDS = frozenset({"web_search_call"})
