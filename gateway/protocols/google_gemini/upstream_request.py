"""What a provider of this protocol is sent for a checked chat body.

What the protocol has no place for raises `InvalidRequest` with the field's name; `CARRIED` are the fields it has one
for, so that a request can be fitted before (withheld and named). Labels that change no answer are left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from gateway.protocols import json_schema
from gateway.protocols.google_gemini.client.fields import camel
from gateway.protocols.google_gemini.names import Names, is_ours
from gateway.protocols.google_gemini.upstream.contents import Contents
from gateway.protocols.google_gemini.upstream.parts import resolution
from gateway.protocols.openai_chat.request.checks import UNSUPPORTED, shown, wrong
from gateway.protocols.openai_chat.request.reasoning import ReasoningWish, budget_of, effort_of, read_wish
from gateway.protocols.schema_dialects import GEMINI, GEMINI_OPENAPI

MAX_SEED = 2**31


@dataclass(frozen=True, slots=True)
class Ability:
    """What a model behind this protocol takes, as its maker's page has it.

    - `levels`: of thinking, the least first; empty: it takes a budget in tokens
    - `least`, `most`: of that budget; `stops`: it can do without thinking
    - `signs`: the calls of the current turn must be signed
    - `ids`: its server takes ids of calls
    - `json_schemas`: its server takes JSON Schema; else a piece of OpenAPI
    """

    levels: tuple[str, ...] = ()
    least: int = 128
    most: int = 24_576
    stops: bool = True
    signs: bool = False
    ids: bool = True
    json_schemas: bool = True


ORDINARY = Ability()

_SAME = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
}
_CHOICES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
# Whom and what a request is for: nothing in the answer depends on it. Or the gateway's own.
_SILENT = frozenset(
    {
        *("user", "user_id", "safety_identifier", "metadata", "prompt_cache_key", "prompt_cache_retention"),
        *("model", "stream", "stream_options", "provider", "model_routing_config", "usage", "include_reasoning"),
    }
)
# Values that ask for what is so anyway.
NOTHING: Mapping[str, tuple[Any, ...]] = {
    "parallel_tool_calls": (True,),
    "store": (False,),
    "service_tier": ("auto", "default"),
    "modalities": (["text"],),
    "logit_bias": ({},),
}
CARRIED = frozenset(
    {
        *_SAME,
        *_SILENT,
        *("messages", "max_tokens", "max_completion_tokens", "n", "stop", "seed", "logprobs", "top_logprobs"),
        *("tools", "tool_choice", "functions", "function_call", "response_format", "web_search_options"),
        *("reasoning", "reasoning_effort", "thinking", "modalities", "safety_settings"),
    }
)


def path(model: str, stream: bool) -> str:
    """The path below a base URL, which ends before `/models`, and its query. A stream is one of events."""
    name = quote(model.removeprefix("models/"), safe="@.")
    return f"/models/{name}:streamGenerateContent?alt=sse" if stream else f"/models/{name}:generateContent"


def native_body(sent: Mapping[str, Any], *, output_cap: int | None = None) -> dict[str, Any]:
    """A client's own body for a provider of the same protocol, with every field it had but for the cap.

    It has been read by `client_request.chat_form`, so no name is there in two spellings.
    """
    made = {name: value for name, value in sent.items() if name != "model"}
    if output_cap is None:
        return made
    name = next((name for name in made if camel(name) == "generationConfig"), "generationConfig")
    config = {field: value for field, value in (made.get(name) or {}).items() if camel(field) != "maxOutputTokens"}
    return {**made, name: {**_thinking_within(config, output_cap), "maxOutputTokens": output_cap}}


def _thinking_within(config: dict[str, Any], cap: int) -> dict[str, Any]:
    """A client's own configuration, its budget to think in below the cap, of which it is a part."""
    name = next((name for name in config if camel(name) == "thinkingConfig"), "")
    thinking = config.get(name) or {}
    budget = next((field for field in thinking if camel(field) == "thinkingBudget"), "")
    if cap > ORDINARY.least and (thinking.get(budget) or 0) >= cap:
        return {**config, name: {**thinking, budget: cap - 1}}
    return config


def upstream_names(chat: Mapping[str, Any]) -> Names:
    """Names of the request's tools where this side takes others; the answer's calls come back by them."""
    return Names(is_ours, (tool[tool["type"]]["name"] for tool in _tools(chat)))


def custom_tools(chat: Mapping[str, Any]) -> frozenset[str]:
    """Tools that take a text instead of arguments: here functions of one parameter, and back in the answer."""
    return frozenset(tool["custom"]["name"] for tool in _tools(chat) if tool["type"] == "custom")


def body(chat: Mapping[str, Any], *, output_cap: int | None = None, ability: Ability = ORDINARY) -> dict[str, Any]:
    """The body for a checked chat body, whose caps `output_cap` replaces if given. Raises `InvalidRequest`."""
    for name, value in chat.items():
        if name not in CARRIED and value is not None and value not in NOTHING.get(name, ()):
            param = shown(name)
            raise wrong(f"Parameter {param} is not supported by this model.", param, UNSUPPORTED)
    names, schemas = upstream_names(chat), _Schemas(ability)
    talk = Contents(names, ids=ability.ids, signs=ability.signs)
    talk.take(chat["messages"])
    cap = output_cap or chat.get("max_completion_tokens") or chat.get("max_tokens")
    made: dict[str, Any] = {"contents": talk.contents}
    if talk.system:
        made["systemInstruction"] = {"parts": talk.system}
    tools, choice = _offered(chat, names, schemas)
    if chat.get("web_search_options") is not None:
        tools.append(_search(chat["web_search_options"]))
    if tools:
        made["tools"] = tools
    if choice:
        made["toolConfig"] = {"functionCallingConfig": choice}
    config = _config(chat, cap, ability) | schemas.format(chat.get("response_format"))
    if config:
        made["generationConfig"] = config
    if chat.get("safety_settings"):
        made["safetySettings"] = chat["safety_settings"]
    return made


def _config(chat: Mapping[str, Any], cap: int | None, ability: Ability) -> dict[str, Any]:
    made = {name: chat[field] for field, name in _SAME.items() if chat.get(field) is not None}
    if cap is not None:
        made["maxOutputTokens"] = cap
    if (stop := chat.get("stop")) is not None:
        made["stopSequences"] = [stop] if type(stop) is str else stop
    if (n := chat.get("n")) is not None and n > 1:
        made["candidateCount"] = n
    if (seed := chat.get("seed")) is not None:
        if not -MAX_SEED <= seed < MAX_SEED:
            raise wrong(f"Parameter seed must be from {-MAX_SEED} to {MAX_SEED - 1} for this model.", "seed")
        made["seed"] = seed
    if chat.get("logprobs") is True:
        made["responseLogprobs"] = True
        if chat.get("top_logprobs"):
            made["logprobs"] = chat["top_logprobs"]
    modalities = chat.get("modalities")
    if modalities and modalities != ["text"]:
        made["responseModalities"] = [modality.upper() for modality in modalities]
    if (closely := resolution(chat["messages"])) is not None:
        made["mediaResolution"] = closely
    return made | _thinking(chat, cap, ability)


def _thinking(chat: Mapping[str, Any], cap: int | None, ability: Ability) -> dict[str, Any]:
    wish, _ = read_wish(chat, {})
    asked = chat.get("reasoning") or {}
    shows = chat.get("include_reasoning")
    if type(shows) is not bool:
        shows = wish is not None and wish.enabled and asked.get("exclude") is not True
    made: dict[str, Any] = {"includeThoughts": True} if shows else {}
    if wish is not None:
        made |= _level(wish, cap, ability) if ability.levels else _budget(wish, cap, ability)
    return {"thinkingConfig": made} if made else {}


def _level(wish: ReasoningWish, cap: int | None, ability: Ability) -> dict[str, Any]:
    """The level nearest to a wish, of those that the model has; the least stands for none."""
    if wish.enabled and wish.effort is None and wish.max_tokens is None:
        return {}
    order = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
    meant = order.index(effort_of(wish, cap))
    known = [level for level in ability.levels if order.index(level) <= meant]
    return {"thinkingLevel": (known[-1] if known else ability.levels[0]).upper()}


def _budget(wish: ReasoningWish, cap: int | None, ability: Ability) -> dict[str, Any]:
    """Tokens to think in, within the model's bounds and below the cap, of which they are a part."""
    wanted = wish.max_tokens if wish.enabled and wish.max_tokens is not None else budget_of(wish, cap)
    if wanted is None:
        return {"thinkingBudget": -1}
    budget = min(wanted, ability.most)
    if wanted:
        budget = max(budget, ability.least)
    if cap is not None and budget >= cap:
        budget = cap - 1 if cap > ability.least else 0
    if not budget and not ability.stops:
        budget = ability.least
    return {"thinkingBudget": budget}


def _tools(chat: Mapping[str, Any]) -> list[dict[str, Any]]:
    older = [{"type": "function", "function": function} for function in chat.get("functions") or ()]
    return [*(chat.get("tools") or ()), *older]


def _offered(
    chat: Mapping[str, Any], names: Names, schemas: "_Schemas"
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Tools and the choice among them. Where the model may choose among some of them alone, the others do not go."""
    tools = _tools(chat)
    if not tools:
        return [], None
    choice = chat.get("tool_choice", chat.get("function_call"))
    config: dict[str, Any] | None = None
    if type(choice) is str:
        config = {"mode": _CHOICES[choice]} if choice != "auto" else None
    elif choice is not None:
        kind = choice.get("type")
        inner = choice.get(kind) if kind in ("function", "custom", "allowed_tools") else choice  # a function's name
        chosen = [tool[tool["type"]] for tool in inner["tools"]] if kind == "allowed_tools" else [inner]
        allowed = {one["name"] for one in chosen}
        if kind == "allowed_tools" and inner["mode"] == "auto":
            tools = [tool for tool in tools if tool[tool["type"]]["name"] in allowed]
        else:
            config = {"mode": "ANY", "allowedFunctionNames": [names.there(name) for name in sorted(allowed)]}
    declared = [schemas.declared(tool, f"tools[{at}]", names) for at, tool in enumerate(tools)]
    return [{"functionDeclarations": declared}], config


class _Schemas:
    """Puts the schemas of one request into the words of its provider."""

    def __init__(self, ability: Ability) -> None:
        self._dialect = GEMINI if ability.json_schemas else GEMINI_OPENAPI
        self._kind = "JsonSchema" if ability.json_schemas else ""
        self._budget = json_schema.Budget()

    def format(self, asked: Mapping[str, Any] | None) -> dict[str, Any]:
        """Structured output is native: a media type, and a schema where there is one."""
        if asked is None or asked["type"] == "text":
            return {}
        made: dict[str, Any] = {"responseMimeType": "application/json"}
        if asked["type"] == "json_schema" and (schema := asked["json_schema"].get("schema")):
            told = asked["json_schema"].get("description")
            if told and "description" not in schema:
                schema = {**schema, "description": told}
            name = f"response{self._kind or 'Schema'}"
            made[name] = self._adapted(schema, "response_format.json_schema.schema")
        return made

    def declared(self, tool: Mapping[str, Any], path: str, names: Names) -> dict[str, Any]:
        """A tool's declaration; one that takes nothing goes without parameters."""
        kind = tool["type"]
        inner = tool[kind]
        made: dict[str, Any] = {"name": names.there(inner["name"])}
        if inner.get("description"):
            made["description"] = inner["description"]
        schema = _custom_schema(inner) if kind == "custom" else inner.get("parameters")
        if not json_schema.takes_nothing(schema):
            made[f"parameters{self._kind}"] = self._adapted(schema, f"{path}.{kind}.parameters")
        return made

    def _adapted(self, schema: Any, path: str) -> dict[str, Any]:
        try:
            return json_schema.adapt(schema, self._dialect, self._budget)
        except json_schema.BadSchema as error:
            raise wrong(f"Parameter {path} {error}.", path) from None


def _custom_schema(custom: Mapping[str, Any]) -> dict[str, Any]:
    """A custom tool's one parameter, its grammar in words."""
    form = custom.get("format") or {}
    grammar = form.get("grammar") if form.get("type") == "grammar" else None
    told = f"Written in this {grammar.get('syntax')} grammar:\n{grammar.get('definition')}" if grammar else "A text."
    properties = {"input": {"type": "string", "description": told}}
    return {"type": "object", "properties": properties, "required": ["input"]}


def _search(options: Mapping[str, Any]) -> dict[str, Any]:
    if options.get("user_location") is not None:
        param = "web_search_options.user_location"
        raise wrong(f"Parameter {param} is not supported by this model. Leave it out.", param, UNSUPPORTED)
    return {"googleSearch": {}}
