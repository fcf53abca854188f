"""What embeddings and legacy completions have in common: what they read, a text, several, or either as tokens, checked,
counted and bounded; and the chat form of a request that has no messages.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from gateway.protocols.openai_chat.request.checks import (
    TYPE,
    UNSUPPORTED,
    Check,
    checked_model,
    missing,
    shown,
    wrong,
)
from gateway.protocols.openai_chat.request.fields import CHECKS, end_user
from gateway.protocols.openai_chat.request.overrides import refuse_overrides
from gateway.protocols.openai_chat.request.request import MAX_FIELDS, NO_THOUGHTS, OWN_FIELDS, ChatRequest
from gateway.protocols.openai_chat.request.routing_fields import not_understood, read_routing
from gateway.protocols.sides import Spoken
from gateway.wire.dialects import Dialect
from gateway.wire.errors import InvalidRequest

MAX_PROMPTS = 2048  # As OpenAI's.
MAX_TOKEN = 2**31 - 1
MOST_TOKENS = 300_000  # of a request, where they come as tokens; as OpenAI's
MOST_VALUES = MOST_TOKENS + 1_000 + MAX_PROMPTS  # of a body: those, and what is beside them
# Of what a provider may not know: what the gateway itself reads, or keeps with the plan.
_OWN_CHECKS = {name: CHECKS[name] for name in ("usage", "include_reasoning", "service_tier")}


class Prompts(NamedTuple):
    """What is to be read: `number` of prompts, `most_tokens` at most, their `texts`, or so many `tokens` exactly."""

    number: int
    most_tokens: int
    texts: Sequence[str] = ()
    tokens: int = 0


class Opened(NamedTuple):
    """A body, checked but for its prompts: without the known fields that are null; `unknown` are the others' names."""

    body: dict[str, Any]
    model: str
    prompts: Prompts
    unknown: tuple[str, ...]


def opened(value: Any, dialect: Dialect, *, reads: str, checks: Mapping[str, Check], also: Collection[str]) -> Opened:
    """A body whose prompts are in the field `reads`; `also` are fields that the caller checks itself.

    Fields nobody knows pass unseen. Raises `InvalidRequest`, for the model first.
    """
    if type(value) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    if len(value) > MAX_FIELDS:
        raise wrong(f"The body has more than {MAX_FIELDS} fields. Send fewer.", None)
    known = {"model", reads, *checks, *also, *OWN_FIELDS}
    body = {name: inner for name, inner in value.items() if inner is not None or name not in known}
    model = checked_model(body.get("model"), dialect)
    prompts = count(body.get(reads), reads)
    unknown = tuple(name for name in body if name not in known)
    refuse_overrides(body, unknown)
    if "model_routing_config" in body:
        raise wrong(
            "Parameter model_routing_config chooses among models that chat. Leave it out.",
            "model_routing_config",
            UNSUPPORTED,
        )
    for name, check in (*checks.items(), *_OWN_CHECKS.items()):
        if (inner := body.get(name)) is not None:
            check(inner)
    return Opened(body, model, prompts, unknown)


def chat_form(
    read: Opened,
    spoken: Spoken,
    dialect: Dialect,
    *,
    reads: str,
    changes: Mapping[str, Any],
    output_cap: int | None,
    n: int = 1,
    more: Sequence[str] = (),
    stream: bool = False,
    include_usage: bool = False,
    stops: tuple[str, ...] = (),
    echoed_bytes: int = 0,
) -> ChatRequest:
    """A checked body in the chat form: each prompt, and each of the texts in `more`, as a message. `changes` are its
    fields that mean another thing there; None: nothing. Raises `InvalidRequest` for its wish for a route.
    """
    body, prompts = read.body, read.prompts
    chat = {**{name: value for name, value in body.items() if name != reads}, **changes}
    chat = {name: value for name, value in chat.items() if value is not None or name in read.unknown}
    chat["messages"] = [{"role": "user", "content": text} for text in (*prompts.texts, *more)]
    routing = read_routing(body["provider"], dialect) if "provider" in body else None
    return ChatRequest(
        body=chat,
        model=read.model,
        stream=stream,
        include_usage=include_usage,
        output_cap=output_cap,
        n=n,
        end_user=end_user(body),
        metadata=body.get("metadata", {}),
        text_bytes=prompts.most_tokens + sum(len(text.encode()) for text in more),
        images=0,
        audios=0,
        files=0,
        modalities={},
        file_ids=(),
        tokens=prompts.tokens,
        echoed_bytes=echoed_bytes,
        stops=stops,
        reasoning=None,
        hides_reasoning=False,
        wants_cost=body.get("usage", {}).get("include") is True,
        cache_control=False,
        thoughts=NO_THOUGHTS,
        routing=routing,
        model_routing=None,
        unknown=read.unknown,
        not_understood=tuple(not_understood(body)),
        ignored=("include_reasoning",) if "include_reasoning" in body else (),
        changes={},
        spoken=spoken,
    )


def upstream_body(asked: ChatRequest, changes: Mapping[str, Any], withheld: Collection[str]) -> bytes:
    """The body for an upstream of the same protocol: the client's but for `changes`, the gateway's own fields and those
    withheld. None among the changes: the field does not go.
    """
    assert asked.spoken is not None
    gone = OWN_FIELDS.union(withheld)
    made = {**{name: value for name, value in asked.spoken.body.items() if name not in gone}, **changes}
    return asked.encoded({name: value for name, value in made.items() if value is not None or name not in changes})


def count(value: Any, param: str) -> Prompts:
    """The prompts that a value is; a text has no more tokens than bytes.

    Raises `InvalidRequest` for what is none, or is empty.
    """
    if value is None:
        raise missing(param, "a string, an array of strings, or either as tokens")
    if type(value) is str:
        return Prompts(1, _bytes(value, param), (value,))
    if type(value) is not list:
        raise _no_prompt(param)
    if not value:
        raise wrong(f"Parameter {param} can not be empty.", param)
    if type(value[0]) is int:
        tokens = _tokens(value, param, 0)
        return Prompts(1, tokens, (), tokens)
    if len(value) > MAX_PROMPTS:
        raise wrong(f"Parameter {param} takes at most {MAX_PROMPTS} prompts. Send fewer.", param)
    most, kind = 0, type(value[0])
    for at, prompt in enumerate(value):
        if type(prompt) is not kind:
            raise _no_prompt(f"{param}[{at}]")
        most += _tokens(prompt, f"{param}[{at}]", most) if kind is list else _bytes(prompt, f"{param}[{at}]")
    return Prompts(len(value), most, (), most) if kind is list else Prompts(len(value), most, value)


def told(param: str, reads: str) -> str:
    """A parameter of the chat form by the name that clients of the other know."""
    return reads if param.partition("[")[0].partition(".")[0] == "messages" else shown(param)


def _bytes(text: Any, param: str) -> int:
    if type(text) is not str:
        raise _no_prompt(param)
    if not text:
        raise wrong(f"Parameter {param} can not be empty.", param)
    return len(text) if text.isascii() else len(text.encode())


def _tokens(tokens: list[Any], param: str, before: int) -> int:
    if not tokens:
        raise wrong(f"Parameter {param} can not be empty.", param)
    if before + len(tokens) > MOST_TOKENS:
        raise wrong(f"Parameter {param} takes at most {MOST_TOKENS} tokens in all. Send fewer at once.", param)
    if set(map(type, tokens)) != {int} or min(tokens) < 0 or max(tokens) > MAX_TOKEN:
        raise wrong(f"Parameter {param} must hold tokens: whole numbers from 0 to {MAX_TOKEN}.", param, TYPE)
    return len(tokens)


def _no_prompt(param: str) -> InvalidRequest:
    return wrong(f"Parameter {param} must be a string, an array of strings, or either as tokens.", param, TYPE)
