"""What a provider of the Responses protocol is sent for a checked chat body.

The conversation goes whole, and nothing is to be kept there (`store`). Thoughts are asked for in encrypted form, since
nothing else brings them back in the next turn. What the protocol has no place for is refused by name; `not_carried`
tells it beforehand, for whoever may leave it out.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gateway.protocols.call_ids import within
from gateway.protocols.openai_chat.request.checks import UNSUPPORTED, wrong
from gateway.protocols.openai_chat.request.foreign_clients import NO_RESULT, result_of_no_call
from gateway.protocols.openai_chat.request.reasoning import effort_of, read_wish
from gateway.protocols.openai_responses.content import input_parts, output_parts
from gateway.protocols.openai_responses.thoughts import items_of
from gateway.protocols.openai_responses.tools import provider_choice, provider_search, provider_tools

PATH = "/responses"
LONGEST_CALL_ID = 64
LEAST_CAP = 16  # The provider refuses a cap below.
ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"

# Fields that mean the same in both.
_SAME = (
    *("temperature", "top_p", "top_logprobs", "metadata", "user", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "service_tier", "parallel_tool_calls", "store"),
)
# Fields that are read here and have another form.
_READ = (
    *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "response_format"),
    *("verbosity", "reasoning", "reasoning_effort", "thinking", "tools", "tool_choice", "functions", "function_call"),
    *("web_search_options", "logprobs"),
)
CARRIED = frozenset({*_SAME, *_READ})
# Values with which a field that is not carried asks for nothing.
_NOTHING: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "stop": ([],),
}
# The provider's names for what it faults, as the chat form calls it.
_CALLED = {
    "max_output_tokens": "max_completion_tokens",
    "text.format": "response_format",
    "text.verbosity": "verbosity",
    "reasoning.effort": "reasoning_effort",
    "input": "messages",
    "include": "logprobs",
}


def not_carried(chat: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a chat body that the protocol has no place for and that ask for something."""
    return tuple(
        name
        for name, value in chat.items()
        if name not in CARRIED and value is not None and value not in _NOTHING.get(name, ())
    )


def body(
    chat: Mapping[str, Any],
    *,
    model: str,
    output_cap: int | None,
    stream: bool,
    reasons: bool,
    summary: str | None = "auto",
) -> dict[str, Any]:
    """The body for a provider.

    `reasons`: the model thinks, so its thoughts are asked for; others refuse that. `summary`: in what form they are to
    be told, if at all. Raises `InvalidRequest`, with the chat form's path.
    """
    for name in not_carried(chat):
        raise wrong(f"Parameter {name} is not supported: the provider has no such setting.", name, UNSUPPORTED)
    made: dict[str, Any] = {"model": model, "input": _input(chat["messages"]), "stream": stream, "store": False}
    made |= {name: chat[name] for name in _SAME if chat.get(name) is not None}
    if output_cap is not None:
        made["max_output_tokens"] = max(output_cap, LEAST_CAP)
    include = [ENCRYPTED] if reasons else []
    if chat.get("logprobs"):
        include.append(LOGPROBS)
    if include:
        made["include"] = include
    if wish := _reasoning(chat, output_cap, summary if reasons else None):
        made["reasoning"] = wish
    if text := _text(chat):
        made["text"] = text
    return made | _tools(chat)


def chat_path(param: str) -> str:
    """A path that a provider faults, as the chat form calls it, as far as that is known."""
    head = param.partition("[")[0]
    named = next((name for name in _CALLED if head == name or head.startswith(f"{name}.")), None)
    return param if named is None else _CALLED[named]


def _reasoning(chat: Mapping[str, Any], output_cap: int | None, summary: str | None) -> dict[str, Any]:
    """The three spellings of the chat form's wish as the provider's effort; nothing of an amount is its default."""
    wish, _ = read_wish(chat, {})
    own = chat.get("reasoning") or {}
    made: dict[str, Any] = {}
    if wish and (not wish.enabled or wish.effort or wish.max_tokens):
        made["effort"] = effort_of(wish, output_cap)
    if made.get("effort") != "none" and not own.get("exclude") and (told := own.get("summary") or summary):
        made["summary"] = told
    return made


def _text(chat: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    form = chat.get("response_format")
    if form and form["type"] == "json_schema":
        schema = {name: value for name, value in form["json_schema"].items() if value is not None}
        made["format"] = {"type": "json_schema", "schema": {"type": "object"}} | schema
    elif form:
        made["format"] = {"type": form["type"]}
    if chat.get("verbosity") is not None:
        made["verbosity"] = chat["verbosity"]
    return made


def _tools(chat: Mapping[str, Any]) -> dict[str, Any]:
    """The tools, those of the older form among them, and the choice."""
    older = [{"type": "function", "function": function} for function in chat.get("functions") or ()]
    tools = provider_tools([*(chat.get("tools") or ()), *older])
    if chat.get("web_search_options") is not None:
        tools.append(provider_search(chat["web_search_options"]))
    made: dict[str, Any] = {"tools": tools} if tools else {}
    choice = chat.get("tool_choice")
    if choice is None and (named := chat.get("function_call")) is not None:
        choice = named if type(named) is str else {"type": "function", "function": named}
    if choice is not None and tools:
        made["tool_choice"] = provider_choice(choice)
    return made


def _input(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    custom: set[str] = set()  # calls whose results are told apart
    older = ""  # the id of the last call of the older form, which has none
    waiting = Counter[str]()  # calls that have no result yet, without which they are refused
    for at, message in enumerate(messages):
        path, role = f"messages[{at}]", message["role"]
        if role == "tool":
            id, content = message["tool_call_id"], message.get("content")
            if waiting[id] > 0:
                waiting[id] -= 1
                items.append(_output(id, input_parts(content, f"{path}.content"), custom))
            else:
                told = input_parts([*result_of_no_call(message)], f"{path}.content")
                items.append({"type": "message", "role": "user", "content": told})
            continue
        if role == "function":
            items.append({"type": "function_call_output", "call_id": older, "output": message.get("content") or ""})
            continue
        items += [_output(id, NO_RESULT, custom) for id in waiting.elements()]
        waiting = Counter(call["id"] for call in message.get("tool_calls") or ())
        if role == "assistant":
            if message.get("function_call"):
                older = f"call_of_message_{at}"
            items += _of_assistant(message, path, older, custom)
        else:
            content = input_parts(message.get("content"), f"{path}.content")
            items.append({"type": "message", "role": role, "content": content})
    return items + [_output(id, NO_RESULT, custom) for id in waiting.elements()]


def _output(id: str, output: Any, custom: set[str]) -> dict[str, Any]:
    kind = "custom_tool_call_output" if id in custom else "function_call_output"
    return {"type": kind, "call_id": within(id, LONGEST_CALL_ID), "output": output}


def _of_assistant(message: dict[str, Any], path: str, older: str, custom: set[str]) -> list[dict[str, Any]]:
    """What an assistant did in one turn: thoughts, words, calls, in that order."""
    if message.get("audio"):
        param = f"{path}.audio"
        raise wrong(f"Parameter {param} is not supported: the provider keeps no such answer.", param, UNSUPPORTED)
    if message.get("images"):
        param = f"{path}.images"
        raise wrong(
            f"Parameter {param} is not supported: the provider takes pictures of users alone.", param, UNSUPPORTED
        )
    items = items_of(message.get("reasoning_details") or ())
    content = output_parts(message.get("content"), f"{path}.content")
    if message.get("refusal"):
        content.append({"type": "refusal", "refusal": message["refusal"]})
    if content:
        items.append({"type": "message", "role": "assistant", "content": content})
    for call in message.get("tool_calls") or ():
        if call["type"] == "custom":
            custom.add(call["id"])
        items.append(_ITEMS[call["type"]](call))
    if call := message.get("function_call"):
        items.append({"type": "function_call", "call_id": older} | {k: call[k] for k in ("name", "arguments")})
    return items


def _function_call(call: dict[str, Any]) -> dict[str, Any]:
    # No arguments at all are an empty object, which is what the provider would have written.
    given = {"name": call["function"]["name"], "arguments": call["function"]["arguments"] or "{}"}
    return {"type": "function_call", "call_id": within(call["id"], LONGEST_CALL_ID)} | given


def _custom_call(call: dict[str, Any]) -> dict[str, Any]:
    given = {"name": call["custom"]["name"], "input": call["custom"]["input"]}
    return {"type": "custom_tool_call", "call_id": within(call["id"], LONGEST_CALL_ID)} | given


_ITEMS: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "function": _function_call,
    "custom": _custom_call,
}
