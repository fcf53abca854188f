"""What a provider of this protocol is sent for a checked chat body.

    body(chat, model=…, output_cap=…, takes=…)  ->  Sent

Content that no such provider can be sent is refused by name (`InvalidRequest`, the path as the chat form has it).
A parameter that this protocol has nothing for is left out and `ignored`, so that the client is told, as are one that
thinking rules out and one that was brought into bounds.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.protocols.anthropic_messages.forms import efforts, schemas
from gateway.protocols.anthropic_messages.forms.names import fitted, free
from gateway.protocols.anthropic_messages.forms.takes import PLAIN, Takes
from gateway.protocols.anthropic_messages.forms.thoughts import goes_on_without_thoughts
from gateway.protocols.anthropic_messages.upstream_content import MAX_TOOL_NAME, turns
from gateway.protocols.json_schema import object_schema
from gateway.protocols.openai_chat.request.checks import TYPE, UNSUPPORTED, wrong
from gateway.protocols.openai_chat.request.foreign_forms import with_json_wish
from gateway.protocols.openai_chat.request.reasoning import read_wish
from gateway.protocols.openai_chat.request.request import MOST_SEARCHES

MAX_USER = 256  # characters of `metadata.user_id`
DEFAULT_CAP = 4096  # as vendors' converters have it; a cap must be named
ANSWER_TOOL = "answer_in_json"
SEARCH_TOOL = "web_search_20250305"

_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_TIERS = {"auto": "auto", "default": "standard_only"}
_CARRIED = frozenset(
    {
        *(
            "model",
            "messages",
            "stream",
            "max_tokens",
            "max_completion_tokens",
            "temperature",
            "top_p",
            "top_k",
            "stop",
        ),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "response_format"),
        *("reasoning", "reasoning_effort", "thinking", "web_search_options", "service_tier"),
        *("user", "user_id", "safety_identifier", "n", "modalities", "prompt_cache_key", "prompt_cache_retention"),
        # the gateway's own, or of a stream that always has it
        *("provider", "model_routing_config", "usage", "include_reasoning", "stream_options", "metadata"),
    }
)
# Values that ask for what is so anyway.
_NOTHING: Mapping[str, Any] = {"store": False, "logit_bias": {}}


@dataclass(frozen=True, slots=True)
class Reading:
    """What must be known of a request to read its answer.

    - `answer_tool`: the tool whose input is the answer's text; None: there is none
    - `custom_tools`: tools whose input is a text
    """

    answer_tool: str | None = None
    custom_tools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Sent:
    """The body, paths of what it has no effect of, and how its answer is to be read."""

    body: dict[str, Any]
    ignored: tuple[str, ...]
    reading: Reading


def body(chat: Mapping[str, Any], *, model: str, output_cap: int | None, stream: bool, takes: Takes = PLAIN) -> Sent:
    """The body for a provider that calls the model `model`; how it names it is the variant's matter (`variants`).

    `chat` is what a provider of the chat form would be sent: without the fields that its offer does not take.
    `output_cap`, if given, stands instead of the client's. Raises `InvalidRequest`.
    """
    _refuse(chat)
    cap = output_cap or chat.get("max_completion_tokens") or chat.get("max_tokens") or DEFAULT_CAP
    wish = read_wish(chat, {})[0]
    thinking, effort = efforts.asked(wish, cap, takes)
    thinks = thinking is not None and thinking["type"] != "disabled"
    form = chat.get("response_format") or {"type": "text"}
    said = chat["messages"]
    if form["type"] == "json_object" and thinks:  # which forbids the other way, see `_answer_form`
        form, said = {"type": "text"}, with_json_wish(said)
    system, messages = turns(said, takes)
    if thinks and not takes.adaptive and goes_on_without_thoughts(messages):
        thinking, thinks = None, False
    made: dict[str, Any] = {"model": model, "max_tokens": cap, "messages": messages}
    if system:
        made["system"] = system
    if stream:
        made["stream"] = True
    ignored = [name for name in chat if name not in _CARRIED and chat[name] != _NOTHING.get(name, chat)]
    if chat.get("service_tier") not in (None, *_TIERS):
        ignored.append("service_tier")
    if wish is not None and thinking is None:
        ignored.append("reasoning")
    if not all(map(takes_stop, _listed(chat.get("stop") or ()))):
        ignored.append("stop")
    if thinking is not None:
        made["thinking"] = thinking
    tools = _Tools(chat, takes, ignored)
    _answer_form(form, made, tools, takes)
    if effort is not None:
        made["output_config"] = {**made.get("output_config", {}), "effort": effort}
    tools.choose(made, thinks)
    _sample(chat, made, thinks, ignored)
    made |= dict(_others(chat))
    return Sent(made, tuple(ignored), Reading(tools.answer_tool, frozenset(tools.custom)))


def takes_stop(sequence: str) -> bool:
    """Whether a provider of this protocol looks for a stop sequence; else the gateway must."""
    return bool(sequence.strip())


def _listed(stop: Any) -> list[str]:
    return [stop] if type(stop) is str else list(stop)


def _refuse(chat: Mapping[str, Any]) -> None:
    if chat.get("n", 1) > 1:
        raise wrong("Parameter n can not be greater than 1 for this model. Send one request for each choice.", "n")
    if set(chat.get("modalities") or ()) - {"text"}:
        raise wrong("Parameter modalities can only be text for this model.", "modalities", UNSUPPORTED)


def _others(chat: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if sequences := [sequence for sequence in _listed(chat.get("stop") or ()) if takes_stop(sequence)]:
        yield "stop_sequences", sequences
    if user := chat.get("user") or chat.get("user_id") or chat.get("safety_identifier"):
        yield "metadata", {"user_id": user if len(user) <= MAX_USER else fitted(user, MAX_USER)}
    if (tier := _TIERS.get(chat.get("service_tier", ""))) is not None:
        yield "service_tier", tier


def _sample(chat: Mapping[str, Any], made: dict[str, Any], thinks: bool, ignored: list[str]) -> None:
    """Temperatures end at 1, do not go beside `top_p`, and thinking leaves none of them but a `top_p` near 1."""
    temperature, top_p, top_k = (chat.get(name) for name in ("temperature", "top_p", "top_k"))
    if temperature is not None:
        if thinks and temperature != 1:
            ignored.append("temperature")
        elif not thinks:
            made["temperature"] = min(temperature, 1)
            if temperature > 1:
                ignored.append("temperature")
    if top_p is not None:
        if "temperature" in made or (thinks and top_p < 0.95):
            ignored.append("top_p")
        else:
            made["top_p"] = top_p
    if top_k is not None:
        if thinks:
            ignored.append("top_k")
        else:
            made["top_k"] = top_k


def _answer_form(form: Mapping[str, Any], made: dict[str, Any], tools: "_Tools", takes: Takes) -> None:
    """A structured answer: by the provider's own means, else as what a tool of ours is given."""
    if form["type"] == "text":
        return
    wanted = form.get("json_schema") or {}
    schema = wanted.get("schema") or {"type": "object"}
    if takes.formats and not schemas.is_open(schema):
        made["output_config"] = {"format": {"type": "json_schema", "schema": schemas.closed(schema)}}
        return
    if schema.get("type", "object") != "object":
        param = "response_format.json_schema.schema.type"
        raise wrong(f"Parameter {param} must be object for this model.", param)
    tools.answer_by(schema, wanted.get("description"))


class _Tools:
    """The tools of a request, and how the model is to choose.

    - `custom`: names of those whose input is a text
    - `answer_tool`: the name of the one that stands for a structured answer
    """

    def __init__(self, chat: Mapping[str, Any], takes: Takes, ignored: list[str]) -> None:
        self.custom: set[str] = set()
        self.answer_tool: str | None = None
        self._tools: list[dict[str, Any]] = []
        self._chat = chat
        self._takes = takes
        for at, tool in enumerate(chat.get("tools") or ()):
            self._take(tool, f"tools[{at}]", ignored)
        for at, function in enumerate(chat.get("functions") or ()):
            if type(function.get("parameters") or {}) is not dict:
                param = f"functions[{at}].parameters"
                raise wrong(f"Parameter {param} must be an object.", param, TYPE)
            self._tools.append(self._function(function))
        if (search := chat.get("web_search_options")) is not None:
            self._search(search, ignored)

    def answer_by(self, schema: dict[str, Any], description: str | None) -> None:
        """The answer is what this tool is given."""
        self.answer_tool = free(ANSWER_TOOL, (tool["name"] for tool in self._tools))
        said = f"Gives the final answer. {description or ''}".rstrip()
        self._tools.append({"name": self.answer_tool, "description": said, "input_schema": object_schema(schema)})

    def choose(self, made: dict[str, Any], thinks: bool) -> None:
        """Puts tools and choice into a body. Raises `InvalidRequest` where a choice and thinking exclude each other."""
        if not self._tools:
            return
        made["tools"] = self._tools
        choice = self._choice()
        if self.answer_tool is not None:
            choice = self._or_answer(choice)
        if self._chat.get("parallel_tool_calls") is False and (choice is None or choice["type"] != "none"):
            choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
        if choice is None:
            return
        if thinks and choice["type"] in ("any", "tool"):
            param = "tool_choice" if self.answer_tool is None else "response_format"
            raise wrong(
                f"Parameter {param} can not be used together with reasoning for this model: it does not think before a "
                "call that it is forced to make. Send one of them.",
                param,
            )
        made["tool_choice"] = choice

    def _or_answer(self, choice: dict[str, Any] | None) -> dict[str, Any]:
        """A choice such that the model calls one tool of the client's, if it may, or gives the answer."""
        if choice is not None and choice["type"] == "tool":
            return choice
        if len(self._tools) == 1 or (choice is not None and choice["type"] == "none"):
            return {"type": "tool", "name": self.answer_tool}
        return {"type": "any", "disable_parallel_tool_use": True}

    def _take(self, tool: Mapping[str, Any], path: str, ignored: list[str]) -> None:
        kind = tool["type"]
        if kind == "custom":
            made = self._custom(tool["custom"], f"{path}.custom")
        else:
            made = self._function(tool["function"])
            if tool["function"].get("strict") and "strict" not in made:
                ignored.append(f"{path}.function.strict")
        if cache := tool.get("cache_control"):
            made["cache_control"] = cache
        self._tools.append(made)

    def _function(self, function: Mapping[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = {"name": fitted(function["name"], MAX_TOOL_NAME)}
        if function.get("description"):
            made["description"] = function["description"]
        schema = function.get("parameters")
        made["input_schema"] = object_schema(schema)
        if function.get("strict") and self._takes.formats and not schemas.is_open(schema):
            made |= {"strict": True, "input_schema": object_schema(schemas.closed(made["input_schema"]))}
        return made

    def _custom(self, custom: Mapping[str, Any], path: str) -> dict[str, Any]:
        form = custom.get("format") or {}
        if form.get("type", "text") != "text":
            raise wrong(f"Parameter {path}.format can only be text for this model.", f"{path}.format")
        name = fitted(custom["name"], MAX_TOOL_NAME)
        self.custom.add(name)
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        said = {"description": custom["description"]} if custom.get("description") else {}
        return {"name": name, **said, "input_schema": schema}

    def _search(self, search: Mapping[str, Any], ignored: list[str]) -> None:
        name = free("web_search", (tool["name"] for tool in self._tools))
        made: dict[str, Any] = {"type": SEARCH_TOOL, "name": name, "max_uses": MOST_SEARCHES}
        if place := (search.get("user_location") or {}).get("approximate"):
            made["user_location"] = {"type": "approximate", **place}
        ignored += [f"web_search_options.{name}" for name in search if name != "user_location"]
        self._tools.append(made)

    def _choice(self) -> dict[str, Any] | None:
        choice = self._chat.get("tool_choice")
        if choice is None and (older := self._chat.get("function_call")) is not None:
            choice = older if type(older) is str else {"type": "function", "function": older}
        if choice is None:
            return None
        if type(choice) is str:
            return {"type": _CHOICES[choice]}
        if choice["type"] == "allowed_tools":
            allowed = choice["allowed_tools"]
            names = {fitted(tool[tool["type"]]["name"], MAX_TOOL_NAME) for tool in allowed["tools"]}
            self._tools[:] = [tool for tool in self._tools if tool["name"] in names or tool["name"] == self.answer_tool]
            return {"type": _CHOICES[allowed["mode"]]}
        return {"type": "tool", "name": fitted(choice[choice["type"]]["name"], MAX_TOOL_NAME)}
