"""Tools and the choice among them: flat in the Responses protocol, one level deeper in the chat form.

Tools that a provider runs itself have no form in chat, but for the search of the web, which is `web_search_options`
there. The local shell is run by the client, as a function is; so that is what it is for a model that does not know it.
Tools in a namespace have its name before their own.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from gateway.protocols.openai_chat.request.checks import MISSING, TYPE, missing, wrong
from gateway.protocols.openai_chat.request.foreign_clients import parameters
from gateway.protocols.openai_chat.request.tools import MAX_TOOLS
from gateway.wire import strict_json

LOCAL_SHELL = "local_shell"
MAX_NAME = 64
SEARCHES = frozenset({"web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"})
_CHOICES = frozenset({"none", "auto", "required"})
_SHELL: dict[str, Any] = {
    "name": LOCAL_SHELL,
    "description": "Runs a command on the user's machine and returns what it prints.",
    "parameters": {
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}, "description": "The program and its arguments."},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["command"],
    },
}


class Tools:
    """A client's tools in the chat form.

    - `chat`: functions and custom tools; `places`: the path of each
    - `search`: `web_search_options`, if a search is among them
    - `only_native`, `ignored`: paths of those the chat form cannot carry, and of those that may be left out
    - `built_in`: types of tools that a provider runs
    - `shell`: the local shell is among them
    """

    def __init__(self, tools: Any) -> None:
        """Raises `InvalidRequest`."""
        self.chat: list[dict[str, Any]] = []
        self.places: list[str] = []
        self.search: dict[str, Any] | None = None
        self.only_native: list[str] = []
        self.ignored: list[str] = []
        self.built_in: list[str] = []
        self.shell = False
        if type(tools) is not list:
            raise wrong("Parameter tools must be an array of objects.", "tools", TYPE)
        if len(tools) > MAX_TOOLS:
            raise wrong(f"Parameter tools takes at most {MAX_TOOLS} tools. Send fewer.", "tools")
        functions = {tool.get("name") for tool in tools if type(tool) is dict and type(tool.get("name")) is str}
        for at, tool in enumerate(tools):
            self._take(tool, f"tools[{at}]", functions)

    def _take(self, tool: Any, path: str, functions: set[Any]) -> None:
        if type(tool) is not dict:
            raise wrong(f"Parameter {path} must be an object.", path, TYPE)
        kind = tool.get("type")
        if type(kind) is not str:
            raise wrong(f"Parameter {path}.type must be a string.", f"{path}.type", MISSING if kind is None else TYPE)
        if kind in ("function", "custom"):
            self._add(_nested(tool, kind), tool, path)
        elif kind == "namespace":
            for inner, its_path in inside(tool, path):
                named = inner | {"name": joined(tool["name"], inner["name"])}
                self._add(_nested(named, inner["type"]), inner, its_path)
        elif kind == LOCAL_SHELL and LOCAL_SHELL not in functions:
            self.shell = True
            self._add({"type": "function", "function": _SHELL}, tool, path)
        elif kind in SEARCHES:
            self.built_in.append(kind)
            self._search(tool, path)
        else:
            self.built_in.append(kind)
            self.only_native.append(path)

    def _add(self, chat: dict[str, Any], tool: dict[str, Any], path: str) -> None:
        """A tool that the client runs; only a provider of this protocol can call one from a program of its own."""
        callers = tool.get("allowed_callers")
        if callers and not (type(callers) is list and "direct" in callers):
            self.only_native.append(path)
        self.chat.append(chat)
        self.places.append(path)

    def _search(self, tool: dict[str, Any], path: str) -> None:
        """A search among some sites is no other search; one in what the provider has indexed may be left out."""
        if tool.get("filters") and any(tool["filters"].values() if type(tool["filters"]) is dict else (True,)):
            self.only_native.append(path)
        elif tool.get("external_web_access") is False:
            self.ignored.append(path)
        else:
            options = {name: tool.get(name) for name in ("search_context_size", "user_location")}
            self.search = {name: value for name, value in options.items() if value is not None}


def inside(namespace: dict[str, Any], path: str) -> list[tuple[dict[str, Any], str]]:
    """The tools of a namespace, each with its path. Raises `InvalidRequest`."""
    if type(namespace.get("name")) is not str:
        raise missing(f"{path}.name", "the name of the namespace")
    tools = namespace.get("tools")
    if type(tools) is not list or not all(type(tool) is dict for tool in tools):
        raise wrong(f"Parameter {path}.tools must be an array of tools.", f"{path}.tools", TYPE)
    for at, tool in enumerate(tools):
        if tool.get("type") not in ("function", "custom"):
            raise wrong(f"Parameter {path}.tools[{at}].type must be function or custom.", f"{path}.tools[{at}].type")
        if type(tool.get("name")) is not str:
            raise missing(f"{path}.tools[{at}].name", "the name of the tool")
    return [(tool, f"{path}.tools[{at}]") for at, tool in enumerate(tools)]


def joined(namespace: str, name: str) -> str:
    """A tool's name with that of its namespace, as one that a model takes."""
    whole = f"{namespace}__{name}"
    return whole if len(whole) <= MAX_NAME else whole[: MAX_NAME - 9] + "_" + sha256(whole.encode()).hexdigest()[:8]


def client_tools(tools: Any) -> dict[str, tuple[str, str, str | None]]:
    """For the names that a model knows of a client's checked tools: their type, own name and namespace."""
    known: dict[str, tuple[str, str, str | None]] = {}
    for tool in tools or ():
        if tool["type"] == "namespace":
            for inner, _ in inside(tool, ""):
                known[joined(tool["name"], inner["name"])] = (inner["type"], inner["name"], tool["name"])
        elif tool["type"] == LOCAL_SHELL:
            known.setdefault(LOCAL_SHELL, (LOCAL_SHELL, LOCAL_SHELL, None))
        elif type(tool.get("name")) is str:
            known[tool["name"]] = (tool["type"], tool["name"], None)
    return known


def chat_choice(choice: Any) -> Any:
    """A client's `tool_choice` in the chat form; None: it names a tool that the chat form cannot carry.

    Raises `InvalidRequest` for what is none.
    """
    if type(choice) is str:
        return choice
    if type(choice) is not dict:
        raise wrong("Parameter tool_choice must be none, auto, required, or an object.", "tool_choice", TYPE)
    kind = choice.get("type")
    if kind in ("function", "custom"):
        return _named(choice)
    if kind != "allowed_tools":
        return None
    listed = choice.get("tools")
    if type(listed) is not list or not all(type(tool) is dict for tool in listed):
        raise missing("tool_choice.tools", "an array of tools")
    if any(tool.get("type") not in ("function", "custom") for tool in listed):
        return None
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": [*map(_named, listed)]}}


def provider_tools(tools: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Checked tools of the chat form, flat. What is not strict says so: there it would be by default."""
    made = []
    for tool in tools:
        kind = tool["type"]
        flat = {"type": kind} | {name: value for name, value in tool[kind].items() if value is not None}
        if kind == "function":
            flat = {"parameters": {}, "strict": False} | flat
            if not flat["strict"] or not flat["parameters"]:
                flat["parameters"] = parameters(flat["parameters"])
        elif type(format := flat.get("format")) is dict and type(inner := format.get("grammar")) is dict:
            flat["format"] = {"type": "grammar"} | inner
        made.append(flat)
    return made


def provider_search(options: Mapping[str, Any]) -> dict[str, Any]:
    """`web_search_options` as the tool it is here; the place is flat."""
    made: dict[str, Any] = {"type": "web_search"}
    if options.get("search_context_size") is not None:
        made["search_context_size"] = options["search_context_size"]
    if place := options.get("user_location"):
        inner = place.get("approximate") or {name: value for name, value in place.items() if name != "type"}
        made["user_location"] = {"type": "approximate"} | inner
    return made


def provider_choice(choice: Any) -> Any:
    """A checked `tool_choice` of the chat form, flat."""
    if type(choice) is str:
        return choice
    if choice["type"] == "allowed_tools":
        allowed = choice["allowed_tools"]
        return {"type": "allowed_tools", "mode": allowed["mode"], "tools": [*map(_flat, allowed["tools"])]}
    return _flat(choice)


def shell_arguments(action: Mapping[str, Any]) -> str:
    """What a shell call does, as the arguments of the function it is in the chat form."""
    return strict_json.dumps({name: value for name, value in action.items() if name != "type"}).decode()


def shell_action(arguments: str) -> dict[str, Any]:
    """The arguments of that function as what a shell call does. Of what a model garbled a shell makes an error."""
    try:
        given = strict_json.loads(arguments.encode())
    except ValueError:
        given = None
    given = given if type(given) is dict else {"command": [arguments]}
    command = given.get("command")
    words = [str(word) for word in command] if type(command) is list else [str(command)]
    env = given.get("env")
    return given | {"type": "exec", "command": words, "env": env if type(env) is dict else {}}


def _nested(tool: dict[str, Any], kind: str) -> dict[str, Any]:
    names = ("name", "description", "parameters", "strict") if kind == "function" else ("name", "description", "format")
    inner = {name: tool[name] for name in names if tool.get(name) is not None}
    if type(format := inner.get("format")) is dict and format.get("type") == "grammar":
        grammar = {name: value for name, value in format.items() if name != "type"}
        inner["format"] = {"type": "grammar", "grammar": grammar}
    return {"type": kind, kind: inner}


def _named(choice: dict[str, Any]) -> dict[str, Any]:
    return {"type": choice["type"], choice["type"]: {"name": choice.get("name")}}


def _flat(choice: dict[str, Any]) -> dict[str, Any]:
    return {"type": choice["type"], "name": choice[choice["type"]]["name"]}
