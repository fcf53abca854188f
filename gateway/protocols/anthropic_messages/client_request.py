"""What a client of this protocol asks for, as a request of the chat form.

    chat_form(body)  ->  ChatForm

Every field has one of four fates, by the tables below: it is carried over; it is `ignored`, as it shapes nothing that
another protocol could be asked for (the client is told by name); it is `only_native`, as without it the answer would be
another one, so that only an offer of this protocol will do; or it is refused. Where an offer speaks this protocol, the
client's own body goes on instead (`native`), with what nobody here knows.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.protocols.anthropic_messages.client_content import Conversation, breakpoint_of
from gateway.protocols.anthropic_messages.forms import efforts
from gateway.protocols.anthropic_messages.forms.names import MAX_NAME, fitted
from gateway.protocols.anthropic_messages.forms.schemas import is_exact
from gateway.protocols.openai_chat.request.checks import (
    MISSING,
    TYPE,
    boolean,
    check_cache_control,
    fields,
    integer,
    label,
    mapping,
    missing,
    number,
    one_of,
    shown,
    wrong,
)
from gateway.protocols.openai_chat.request.fields import MAX_CAP, MAX_STOP
from gateway.protocols.openai_chat.request.overrides import refuse_overrides

MAX_MESSAGES = 100_000
MAX_TOOL_NAME = 128
OWN_FIELDS = frozenset({"provider", "model_routing_config"})  # the gateway's; no provider sees them

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_TIERS = {"auto": "auto", "standard_only": "default"}
_SAME = ("model", "stream", "temperature", "top_p", "top_k", *sorted(OWN_FIELDS))

_check_format = fields(
    "output_config.format",
    {"type": one_of("output_config.format.type", ("json_schema",)), "schema": mapping("output_config.format.schema")},
    required=("type", "schema"),
)
# `model`, `temperature` and `top_p` are checked with the chat form, which has them under the same names.
_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "max_tokens": integer("max_tokens", 0, MAX_CAP),
    "stream": boolean("stream"),
    "temperature": number("temperature", 0, 1),
    "top_k": integer("top_k", 0, MAX_CAP),
    "metadata": fields("metadata", {"user_id": label("metadata.user_id")}),
    "thinking": fields(
        "thinking", {"budget_tokens": integer("thinking.budget_tokens", 1024, MAX_CAP)}, required=("type",)
    ),
    "output_config": fields(
        "output_config", {"effort": one_of("output_config.effort", efforts.EFFORTS), "format": _check_format}
    ),
    "output_format": _check_format,
    "service_tier": one_of("service_tier", tuple(_TIERS)),
    "speed": one_of("speed", ("standard", "fast")),
    "tool_choice": fields(
        "tool_choice",
        {"disable_parallel_tool_use": boolean("tool_choice.disable_parallel_tool_use")},
        required=("type",),
    ),
    "cache_control": lambda value: check_cache_control(value, "cache_control"),
}
_CARRIED = _CHECKS.keys() | {*_SAME, "messages", "system", "stop_sequences", "tools"}
# Where it is computed, by which other models, with what kept or run on the provider's side: nothing to leave out.
_ONLY_NATIVE = frozenset(
    {
        *("container", "mcp_servers", "inference_geo", "thread", "compaction", "fallbacks", "fallback_credit_token"),
        *("user_profile_id", "workspace_id"),
    }
)
_TOOL_FIELDS = frozenset({"name", "description", "input_schema", "type", "cache_control", "strict"})
# Of a tool: how its schema is loaded, streamed or tried out. The model may call it all the same.
_TOOL_HINTS = frozenset({"eager_input_streaming", "defer_loading", "input_examples"})

# A search of the web by the provider, as far as the chat form has a field for it; which pages it may read it has none.
_SEARCH = "web_search_"
_SEARCH_FIELDS = frozenset({"type", "name", "max_uses", "user_location", "cache_control"})

# Parameters of the chat form, as this protocol calls them.
_PARAMS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "stop": "stop_sequences",
    "user": "metadata.user_id",
    "response_format": "output_config.format",
    "reasoning": "thinking",
    "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
}
_INNER = (
    (".function.parameters", ".input_schema"),
    (".function", ""),
    (".json_schema.schema", ".schema"),
    (".json_schema", ""),
    (".max_tokens", ".budget_tokens"),
    (".effort", ".effort"),
)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """A client's body, checked, as `openai_chat.parse` takes it.

    - `body`: the chat body
    - `only_native`: paths of what only an offer of this protocol can be asked
    - `ignored`: paths of what has no effect at an offer of another one
    - `names`: the client's names of tools, by those that the chat form has for them, where they differ
    - `places`: for each message of the chat body, the path of what it was made of
    - `names_files`: it names files of the gateway, so the body as it came is no provider's to see
    """

    body: dict[str, Any]
    only_native: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    places: tuple[str, ...] = ()
    names_files: bool = False

    def param(self, path: str | None) -> str | None:
        """A path of the chat body as the client knows it; as near as is cheap to say."""
        if path is None:
            return None
        if path.startswith("messages["):
            at = path[9 : path.index("]")]
            return self.places[int(at)] if at.isdigit() and int(at) < len(self.places) else "messages"
        name = path.partition(".")[0].partition("[")[0]
        path = _PARAMS.get(name, name) + path[len(name) :]
        return next((path.replace(theirs, ours, 1) for theirs, ours in _INNER if theirs in path), path)


def chat_form(body: Any) -> ChatForm:
    """Check a parsed body and put it into the chat form. Raises `InvalidRequest`, with the path as the client knows it.

    What the chat form checks itself under the same name (the model, `top_p`, routing wishes) is left to it.
    """
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    body = {name: value for name, value in body.items() if value is not None}
    unknown = body.keys() - _CARRIED - _ONLY_NATIVE
    refuse_overrides(body, [name for name in body if name in unknown])
    if "max_tokens" not in body:
        raise missing("max_tokens", "how many tokens the answer may take")
    for name, check in _CHECKS.items():
        if name in body:
            check(body[name])
    tools = _Tools(body.get("tools"))
    conversation = Conversation(tools.short)
    if "system" in body:
        conversation.system(body["system"], "system")
    _messages(body.get("messages"), conversation)
    if body.get("cache_control"):
        conversation.cache_last(body["cache_control"])
    made = {name: body[name] for name in _SAME if name in body}
    made |= {"messages": conversation.messages, "max_tokens": max(1, body["max_tokens"])}
    made |= dict(_changed(body))
    if tools.chat:
        made["tools"] = tools.chat
    if tools.search is not None:
        made["web_search_options"] = tools.search
    made |= dict(_choice(body.get("tool_choice"), tools))
    only_native = [*(name for name in body if name in _ONLY_NATIVE), *tools.only_native, *conversation.only_native]
    if body["max_tokens"] == 0:  # It fills the provider's cache and answers nothing.
        only_native.append("max_tokens")
    if (thinking := body.get("thinking")) and thinking["type"] not in ("enabled", "adaptive", "disabled"):
        only_native.append("thinking.type")
    return ChatForm(
        body=made,
        only_native=tuple(dict.fromkeys(only_native)),
        ignored=(*_ignored(body, unknown), *tools.ignored),
        names={short: name for name, short in tools.short.items() if short != name},
        places=tuple(conversation.places),
        names_files=conversation.names_files,
    )


def _messages(messages: Any, conversation: Conversation) -> None:
    if messages is None:
        raise missing("messages", "an array of at least one message")
    if type(messages) is not list:
        raise wrong("Parameter messages must be an array.", "messages", TYPE)
    if not messages:
        raise wrong("Parameter messages can not be empty. Send at least one message.", "messages")
    if len(messages) > MAX_MESSAGES:
        raise wrong(f"Parameter messages takes at most {MAX_MESSAGES} messages.", "messages")
    for at, message in enumerate(messages):
        conversation.take(message, f"messages[{at}]")


def _changed(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The fields that the chat form has under another name or in another shape."""
    if sequences := _sequences(body.get("stop_sequences")):
        yield "stop", sequences
    if user := (body.get("metadata") or {}).get("user_id"):
        yield "user", user
    if "service_tier" in body:
        yield "service_tier", _TIERS[body["service_tier"]]
    config = body.get("output_config") or {}
    if (reasoning := efforts.wish(body.get("thinking"), config.get("effort"))) is not None:
        yield "reasoning", reasoning
    if (form := config.get("format") or body.get("output_format")) is not None:
        # Others force an answer into a schema only where it leaves nothing open.
        schema = {"name": "answer", "schema": form["schema"], "strict": is_exact(form["schema"])}
        yield "response_format", {"type": "json_schema", "json_schema": schema}


def _sequences(value: Any) -> list[str] | None:
    if value is None:
        return None
    if type(value) is not list or not all(type(sequence) is str for sequence in value):
        raise wrong("Parameter stop_sequences must be an array of strings.", "stop_sequences", TYPE)
    if not all(0 < len(sequence) <= MAX_STOP for sequence in value):
        raise wrong(f"Parameter stop_sequences must hold sequences of 1 to {MAX_STOP} characters.", "stop_sequences")
    return value


def _ignored(body: Mapping[str, Any], unknown: set[str]) -> Iterator[str]:
    yield from (name for name in body if name in unknown)
    if body.get("speed") == "fast":
        yield "speed"
    thinking, config = body.get("thinking") or {}, body.get("output_config") or {}
    if thinking.get("type") == "disabled" and config.get("effort"):
        yield "output_config.effort"
    yield from (f"thinking.{name}" for name in thinking if name not in ("type", "budget_tokens"))
    yield from (f"output_config.{name}" for name in config if name not in ("effort", "format"))
    yield from (f"metadata.{name}" for name in body.get("metadata") or () if name != "user_id")


class _Tools:
    """The client's tools.

    - `chat`: those that the client runs, as the chat form has them
    - `short`: names as the chat form takes them, by the client's
    - `search`: the chat form's wish for searches of the web; None: there is none
    - `theirs`: names of tools that the provider runs, or whose form only it knows
    - `only_native`, `ignored`: as of `ChatForm`
    """

    def __init__(self, tools: Any) -> None:
        self.chat: list[dict[str, Any]] = []
        self.short: dict[str, str] = {}
        self.search: dict[str, Any] | None = None
        self.theirs: set[Any] = set()
        self.only_native: list[str] = []
        self.ignored: list[str] = []
        if tools is None:
            return
        if type(tools) is not list:
            raise wrong("Parameter tools must be an array of objects.", "tools", TYPE)
        for at, tool in enumerate(tools):
            self._take(tool, f"tools[{at}]")

    def _take(self, tool: Any, path: str) -> None:
        if type(tool) is not dict:
            raise wrong(f"Parameter {path} must be an object.", path, TYPE)
        tool = {name: value for name, value in tool.items() if value is not None}
        kind = tool.get("type", "custom")
        if type(kind) is not str:
            raise wrong(f"Parameter {path}.type must be a string.", f"{path}.type", TYPE)
        if kind != "custom":
            self.theirs.add(str(tool.get("name")))
            if kind.startswith(_SEARCH) and tool.keys() <= _SEARCH_FIELDS:
                self._search(tool, path)
            else:
                self.only_native.append(f"{path}.type")
            return
        self._custom(tool, path)

    def _search(self, tool: dict[str, Any], path: str) -> None:
        self.search = {}
        if (place := tool.get("user_location")) is not None:
            self.search["user_location"] = _place(place, f"{path}.user_location")
        if "max_uses" in tool:
            self.ignored.append(f"{path}.max_uses")

    def _custom(self, tool: dict[str, Any], path: str) -> None:
        name = tool.get("name")
        if type(name) is not str or not 0 < len(name) <= MAX_TOOL_NAME or fitted(name) != name:
            code = MISSING if name is None else TYPE if type(name) is not str else "invalid_value"
            rule = f"1 to {MAX_TOOL_NAME} letters, digits, underscores and dashes"
            raise wrong(f"Parameter {path}.name must be {rule}.", f"{path}.name", code)
        self.short[name] = fitted(name, MAX_NAME)
        function: dict[str, Any] = {"name": self.short[name]}
        for field_, shape, what in (("description", str, "a string"), ("strict", bool, "true or false")):
            if field_ in tool:
                if type(tool[field_]) is not shape:
                    raise wrong(f"Parameter {path}.{field_} must be {what}.", f"{path}.{field_}", TYPE)
                function[field_] = tool[field_]
        if type(tool.get("input_schema")) is not dict:
            if "input_schema" not in tool:
                raise missing(f"{path}.input_schema", "a JSON Schema")
            raise wrong(f"Parameter {path}.input_schema must be an object.", f"{path}.input_schema", TYPE)
        function["parameters"] = tool["input_schema"]
        if function.get("strict") and not is_exact(tool["input_schema"]):  # others refuse that
            del function["strict"]
            self.ignored.append(f"{path}.strict")
        made: dict[str, Any] = {"type": "function", "function": function}
        if "cache_control" in tool:
            check_cache_control(tool["cache_control"], f"{path}.cache_control")
            made["cache_control"] = breakpoint_of(tool["cache_control"])
        self.chat.append(made)
        for field_ in tool.keys() - _TOOL_FIELDS:
            direct = field_ == "allowed_callers" and tool[field_] == ["direct"]
            (self.ignored if field_ in _TOOL_HINTS or direct else self.only_native).append(f"{path}.{field_}")


def _place(place: Any, path: str) -> dict[str, Any]:
    if type(place) is not dict or place.get("type") != "approximate":
        raise wrong(f"Parameter {path} must be an object of the type approximate.", path)
    return {"type": "approximate", "approximate": {name: place[name] for name in place if name != "type"}}


def _choice(choice: Mapping[str, Any] | None, tools: _Tools) -> Iterator[tuple[str, Any]]:
    if choice is None:
        return
    kind = choice["type"]
    if not tools.chat and tools.theirs and kind != "auto":
        tools.only_native.append("tool_choice.type")
        return
    if tools.chat and choice.get("disable_parallel_tool_use") is not None:
        yield "parallel_tool_calls", not choice["disable_parallel_tool_use"]
    if kind == "tool":
        name = choice.get("name")
        if type(name) is not str:
            raise missing("tool_choice.name", "the name of one of tools")
        if name in tools.short:
            yield "tool_choice", {"type": "function", "function": {"name": tools.short[name]}}
        elif name in tools.theirs:
            tools.only_native.append("tool_choice.name")
        else:
            raise wrong(f"Parameter tool_choice.name names none of tools: {shown(name)}.", "tool_choice.name")
    elif type(kind) is str and kind in _CHOICES:
        if tools.chat or kind == "any":  # which without tools is refused by the chat form
            yield "tool_choice", _CHOICES[kind]
    else:
        raise wrong("Parameter tool_choice.type must be auto, any, tool or none.", "tool_choice.type")
