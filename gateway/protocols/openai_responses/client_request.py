"""A client's body of the Responses protocol as a chat body, and what of it the chat form cannot carry.

A body is read once, whichever offer it goes to. An offer of this protocol gets the client's own (`native`); others get
the chat form, if nothing is `only_native`. What may be left out without changing what was asked is left out, and named
(`ignored`). Fields are refused when they name what is kept in the provider's account, which all tenants share.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gateway.protocols.openai_chat.request.checks import (
    TYPE,
    UNSUPPORTED,
    Check,
    boolean,
    fields,
    integer,
    one_of,
    text,
    wrong,
)
from gateway.protocols.openai_chat.request.fields import MAX_CAP
from gateway.protocols.openai_chat.request.overrides import refuse_overrides
from gateway.protocols.openai_responses.input_items import Conversation, Item
from gateway.protocols.openai_responses.tools import Tools, chat_choice
from gateway.wire.errors import InvalidRequest

ENCRYPTED, LOGPROBS = "reasoning.encrypted_content", "message.output_text.logprobs"

# The chat form has these under the same name, and checks them.
_SAME = (
    *("model", "stream", "temperature", "top_p", "top_logprobs", "metadata", "user", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention", "service_tier", "store", "parallel_tool_calls"),
    *("provider", "model_routing_config", "usage", "include_reasoning"),
)
# Read by this module, in the order in which faults are told after them.
_READ = ("instructions", "input", "max_output_tokens", "reasoning", "text", "tools", "tool_choice", "include")
_STATE = ("previous_response_id", "stream_options", "truncation", "background")
# Kept in the provider's account.
_FOREIGN = ("conversation", "prompt")
# They change what the answer is.
_NATIVE = ("context_management", "moderation", "access_programs")
KNOWN = frozenset({*_SAME, *_READ, *_STATE, *_FOREIGN, *_NATIVE})

# Fields of the chat form by what they are called here, for faults that its checks find.
CALLED = {
    "max_completion_tokens": "max_output_tokens",
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "logprobs": "include",
    "messages": "input",
}
_TOOL = re.compile(r"tools\[(\d+)\](?:\.(?:function|custom)\b)?")
_CHOICE = re.compile(r"(tool_choice(?:\.tools\[\d+\])?)\.(?:function|custom|allowed_tools)\b")
_MESSAGE = re.compile(r"messages\[(\d+)\]")
_PARTS = (
    (re.compile(r"\.image_url\.(?:url|detail)"), ".image_url"),
    (re.compile(r"\.file\.(file_id|file_data|filename)"), r".\1"),
    (re.compile(r"(\.content\[\d+\])\.file\b"), r"\1"),
)


@dataclass(frozen=True, slots=True)
class ChatForm:
    """A client's body as a chat body.

    - `body`: what `openai_chat.parse` is given
    - `only_native`: paths of what only an offer of this protocol can be asked for
    - `ignored`: paths of what others are not sent, to be named to the client
    - `built_in`: types of tools that the provider runs; some are billed beside tokens, keep something or call out
    - `previous`: the response that is gone on from; only an offer of this protocol can
    - `places`, `tool_places`: for each message and each tool of `body` the path that it came from
    - `referred`: the items that `input` names by their ids, in order; `carries`: its answer is to carry such
    """

    body: dict[str, Any]
    only_native: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    built_in: tuple[str, ...] = ()
    previous: str | None = None
    places: tuple[str, ...] = ()
    tool_places: tuple[str, ...] = ()
    referred: tuple[Item, ...] = ()
    carries: bool = False

    def path(self, param: str) -> str:
        """A path of the chat form as the client's body has it, as far as the two correspond."""
        at = _MESSAGE.match(param)
        if at and int(at[1]) < len(self.places):
            rest = param[at.end() :]
            place = self.places[int(at[1])]
            if place in ("input", "instructions"):
                return place
            for pattern, called in _PARTS:
                rest = pattern.sub(called, rest)
            return place + (rest if rest.startswith((".content", ".role")) else "")
        named = next((name for name in CALLED if param == name or param.startswith(f"{name}.")), None)
        if named is not None:
            return CALLED[named] + param[len(named) :]
        at = _TOOL.match(param)
        if at and int(at[1]) < len(self.tool_places):
            param = self.tool_places[int(at[1])] + param[at.end() :]
        return _CHOICE.sub(r"\1", param)

    def retold(self, error: InvalidRequest) -> InvalidRequest:
        """What the checks of the chat form refuse, in this protocol's words."""
        if error.param is None or (param := self.path(error.param)) == error.param:
            return error
        message = error.message.replace(error.param, param)
        return InvalidRequest(message, param=param, code=error.code, headers=error.headers)


def chat_form(body: Any, *, carries: bool = False) -> ChatForm:
    """Check a client's body, as far as the chat form has it in another shape, and give it in that.

    `carries`: its client is one that names items by their ids. Raises `InvalidRequest`. What comes is to be checked by
    `openai_chat.parse`, whose refusals are `retold`.
    """
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    body = {name: value for name, value in body.items() if value is not None or name not in KNOWN}
    unknown = [name for name in body if name not in KNOWN]
    refuse_overrides(body, unknown)
    for name in _FOREIGN:
        if name in body:
            why = "it names what is kept in the provider's account. Send the items themselves."
            raise wrong(f"Parameter {name} is not supported: {why}", name, UNSUPPORTED)
    if body.get("background"):
        raise wrong("Parameter background is not supported: answers are not kept.", "background", UNSUPPORTED)
    for name, check in _CHECKS.items():
        if name in body:
            check(body[name])
    said = Conversation()
    if "instructions" in body:
        said.instruct(body["instructions"])
    if "model" in body:  # which is to be missed first
        said.read(body.get("input"))
    native = [name for name in _NATIVE if name in body] + said.only_native
    chat: dict[str, Any] = {name: body[name] for name in _SAME if name in body} | {"messages": said.messages}
    if not said.messages and (native or "previous_response_id" in body):
        chat["messages"] = [{"role": "user", "content": ""}]  # whoever can be asked is asked with the client's own
    ignored = unknown + said.ignored
    for read in _READERS:
        ignored += read(body, chat)
    tools = Tools(body["tools"]) if "tools" in body else None
    if tools:
        native += tools.only_native
        ignored += tools.ignored
        if tools.chat:
            chat["tools"] = tools.chat
        if tools.search is not None:
            chat["web_search_options"] = tools.search
    _choice(body, chat, native)
    previous = body.get("previous_response_id")
    return ChatForm(
        body=chat,
        only_native=(*native, *(("previous_response_id",) if previous else ())),
        ignored=tuple(ignored),
        built_in=tuple(tools.built_in) if tools else (),
        previous=previous or None,
        places=tuple(said.places),
        tool_places=tuple(tools.places) if tools else (),
        referred=tuple(said.referred),
        carries=carries and body.get("store") is not False,
    )


def _include(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    asked = body.get("include", [])
    if type(asked) is not list or not all(type(word) is str for word in asked):
        raise wrong("Parameter include must be an array of strings.", "include", TYPE)
    if LOGPROBS in asked or body.get("top_logprobs"):
        chat["logprobs"] = True
    return [f"include[{at}]" for at, word in enumerate(asked) if word not in (ENCRYPTED, LOGPROBS)]


def _cap(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    if "max_output_tokens" in body:
        chat["max_completion_tokens"] = body["max_output_tokens"]
    return []


def _stream(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    """A stream of this protocol ends with usage always."""
    if body.get("stream") is True:
        chat["stream_options"] = body.get("stream_options", {}) | {"include_usage": True}
    elif "stream_options" in body:
        chat["stream_options"] = body["stream_options"]
    return []


def _reasoning(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    """The effort. A summary is a wish to see thoughts, and those are shown."""
    wish = body.get("reasoning", {})
    if wish.get("effort") is not None:
        chat["reasoning_effort"] = wish["effort"]
    plain = {"context": (None, "auto"), "mode": (None, "standard")}
    return [f"reasoning.{name}" for name, usual in plain.items() if wish.get(name) not in usual]


def _text(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    wish = body.get("text", {})
    if wish.get("verbosity") is not None:
        chat["verbosity"] = wish["verbosity"]
    form = wish.get("format")
    if type(form) is dict and form.get("type") == "json_schema":
        schema = {name: value for name, value in form.items() if name != "type" and value is not None}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif form is not None and (type(form) is not dict or form.get("type") != "text"):
        chat["response_format"] = form
    return []


def _truncation(body: Mapping[str, Any], chat: dict[str, Any]) -> list[str]:
    return ["truncation"] if body.get("truncation", "disabled") != "disabled" else []


# Each puts what it reads into the chat body, and gives the paths of what others than this protocol's are not sent.
_READERS: tuple[Callable[[Mapping[str, Any], dict[str, Any]], list[str]], ...] = (
    *(_include, _cap, _stream, _reasoning, _text, _truncation),
)


def _choice(body: Mapping[str, Any], chat: dict[str, Any], native: list[str]) -> None:
    """The choice among tools; it says nothing where none are left to choose from."""
    if "tool_choice" not in body:
        return
    meant = chat_choice(body["tool_choice"])
    if meant is None:
        native.append("tool_choice")
    elif "tools" in chat or type(meant) is dict or (meant == "required" and not body.get("tools")):
        chat["tool_choice"] = meant


_CHECKS: Mapping[str, Check] = {
    "previous_response_id": text("previous_response_id"),
    "max_output_tokens": integer("max_output_tokens", 1, MAX_CAP),
    "stream_options": fields("stream_options", {"include_obfuscation": boolean("stream_options.include_obfuscation")}),
    "reasoning": fields(
        "reasoning",
        {
            "effort": text("reasoning.effort"),
            "summary": one_of("reasoning.summary", ("auto", "concise", "detailed", "none")),
            "generate_summary": one_of("reasoning.generate_summary", ("auto", "concise", "detailed")),
        },
    ),
    "text": fields("text", {"verbosity": text("text.verbosity")}),
    "truncation": one_of("truncation", ("auto", "disabled")),
    "background": boolean("background"),
}
