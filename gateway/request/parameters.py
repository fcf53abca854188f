"""Which parameters of a request an offer takes: what is withheld from it and named to the client, what is refused.

The rule. A model may list the parameters it supports; an empty list says nothing, and everything is sent. Else

- a parameter this gateway knows and the list lacks is withheld, and named in the answer's header `IGNORED_HEADER`
- a parameter it does not know is sent: the upstream speaks the same protocol and may
- but one known to cost, to redirect, to keep something or to call out (`side_effects`) needs the list's word, whether
  there is a list or not; where a hard budget applies so does every one that is not known to be harmless
- a caller with strict parameters is refused either (400, naming it), before anything is held or dialled

Some are not the list's to decide. The conversation, the stream and the cap always go; so do labels such as `user` or
`metadata`, which change no answer. `stop` is never lost: what an offer does not take the gateway looks for itself. A
search may be billed otherwise and `store` keeps the conversation at the provider, so they need the list's word. A
`service_tier` that is not the ordinary one is billed otherwise: it needs the list's word and a rate of its own, which
the catalog adds to the list as a word (`service_word`).
The three spellings of reasoning are one wish: an offer that takes another is sent that one. Models that demand their
earlier thoughts back as `reasoning_content` list that word. A dialect may have an effort of its own for requests that
name none: it goes to models with the capability `BY_DEFAULT`, which would think anyway.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

from billing.pricing import service_word
from gateway.protocols.openai_chat import WHOLE, ChatRequest, Fit
from gateway.protocols.openai_chat.request.checks import UNSUPPORTED, shown
from gateway.protocols.openai_chat.request.reasoning import SPELLINGS, ReasoningWish, spell
from gateway.protocols.sides import Spoken
from gateway.request.side_effects import side_effects, strange
from gateway.wire.dialects import Dialect
from gateway.wire.errors import InvalidRequest

IGNORED_HEADER = "X-Gateway-Ignored-Params"
BY_DEFAULT = "reasoning_by_default"
MOST_STOPS = 4  # That an upstream takes unless its offer says otherwise; as OpenAI's own.

# Withheld from a model whose list lacks them.
_LISTED = frozenset(
    {
        *("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias"),
        *("logprobs", "top_logprobs", "verbosity", "prediction", "web_search_options", "response_format"),
        *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call", "user_id"),
        *("service_tier", "store", "cache_control", "reasoning", "reasoning_effort", "thinking"),
    }
)
# Without the first there is nothing for the others to say.
_FOLLOWERS = {
    "tools": ("tool_choice", "parallel_tool_calls"),
    "functions": ("function_call",),
    "logprobs": ("top_logprobs",),
}
# Withheld even from a model without a list, but for the values that ask for nothing.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "service_tier": (None, "auto", "default"),
    "store": (None, False),
    "web_search_options": (None,),
}
_AUDIO = ("audio", "modalities")
_CAREFUL = frozenset({*_HARMLESS, *_AUDIO})
# Not refused to a strict caller: the gateway acts on the first itself, and the second is a hint that changes no answer.
NEVER_STRICT = frozenset({"user_id", "cache_control"})
_DEPRECATED = frozenset({"functions", "function_call"})
# They say that an offer has completions, too; a list of nothing else says nothing of what its chats take.
_OF_COMPLETIONS = frozenset({"prompt", "suffix"})
_odd = re.compile(r"[^\w.\[\]-]", re.ASCII)


@lru_cache(maxsize=4096)
def supported_by(parameters: tuple[str, ...], capabilities: tuple[str, ...] = ()) -> frozenset[str]:
    """What a model supports, from the list in its row and its capabilities; empty: not known.

    A few words of such lists mean more than one field: `tools` the older functions too, `structured_outputs` a response
    format. A model that can reason and lists no spelling for it takes each. `BY_DEFAULT` stays among the words.
    """
    found = set(parameters)
    if found <= _OF_COMPLETIONS:
        return frozenset()
    if "tools" in found:
        found |= {"functions", "function_call"}
    if "structured_outputs" in found:
        found.add("response_format")
    by_default = BY_DEFAULT in capabilities
    if (by_default or "reasoning" in capabilities) and found.isdisjoint(SPELLINGS):
        found.update(SPELLINGS)
    if by_default:
        found.add(BY_DEFAULT)
    return frozenset(found)


def missing(request: ChatRequest, supported: frozenset[str], speaks: Collection[str] = ()) -> tuple[str, ...]:
    """The parameters a request uses and an offer does not take, in the body's order. A plan prefers offers with none.

    `supported` is from `supported_by`; `speaks` are the model's output modalities, empty if not known.
    """
    body = request.body
    if not supported and not request.unknown and _CAREFUL.isdisjoint(body):
        return ()
    if supported:
        lacking = {name for name in body.keys() & _unlisted(supported) if body[name] is not None}
        if request.n > 1 and "n" not in supported:
            lacking.add("n")
        if request.cache_control and "cache_control" not in supported:
            lacking.add("cache_control")
        if not supported.isdisjoint(SPELLINGS):
            lacking.difference_update(SPELLINGS)  # The wish is spelled otherwise, not lost.
    else:
        lacking = {name for name, harmless in _HARMLESS.items() if body.get(name) not in harmless}
    if (tier := body.get("service_tier")) not in _HARMLESS["service_tier"]:
        if service_word(tier) in supported:
            lacking.discard("service_tier")
        else:
            lacking.add("service_tier")  # nobody knows what it costs
    if request.unknown:
        lacking.update(side_effects(request.unknown, body, supported))
    for name, followers in _FOLLOWERS.items():
        if name in lacking:
            lacking.update(body.keys() & followers)
    if speaks and "audio" not in speaks and (body.get("audio") or "audio" in (body.get("modalities") or ())):
        lacking.update(body.keys() & _AUDIO)
    if not lacking:
        return ()
    return tuple(name for name in (*body, "cache_control") if name in lacking)


@lru_cache(maxsize=4096)
def _unlisted(supported: frozenset[str]) -> frozenset[str]:
    return _LISTED - supported


def fit(
    request: ChatRequest,
    supported: frozenset[str],
    dialect: Dialect,
    *,
    strict: bool = False,
    careful: bool = False,
    speaks: Collection[str] = (),
    max_stops: int = MOST_STOPS,
    thoughts: str = "",
) -> Fit:
    """How a request meets an offer that supports these parameters and takes `max_stops` stop sequences.

    `careful`: what nobody knows is withheld too. `thoughts` is the format of the thoughts that its provider signs, ""
    if that is not known; for `supported` and `speaks` see `missing`. Raises `InvalidRequest`, naming the parameter, if
    the caller is `strict` and something would have no effect or is not known.
    """
    lacking = missing(request, supported, speaks)
    if strict:
        _refuse(request, lacking, supported, dialect)
    if careful and request.unknown:
        lacking = tuple(dict.fromkeys((*lacking, *strange(request.unknown, supported))))
    if request.spoken is not None and request.spoken.unchecked:
        lacking += _beside(request.spoken, supported, strict=strict, careful=careful)
    if supported and "stop" not in supported:
        max_stops = 0
    enforced = request.stops[max_stops:]
    named = (*request.ignored, *request.not_understood, *lacking)
    respelled = supported and request.reasoning is not None and not supported.isdisjoint(SPELLINGS)
    tells = "reasoning_content" in supported
    effort = dialect.default_effort if request.reasoning is None and BY_DEFAULT in supported else None
    only = thoughts if thoughts and request.thoughts - {"", thoughts} else None
    if not named and not enforced and not respelled and not tells and not effort and only is None:
        return WHOLE
    withheld = {*request.ignored, *lacking}
    changes = _respelled(request, supported, withheld) if respelled else {}
    if effort:
        changes = _asked(ReasoningWish(True, effort, None), supported, request.output_cap)
    return Fit(named, frozenset(withheld), changes, enforced, tells, only)


def _beside(spoken: Spoken, supported: frozenset[str], *, strict: bool, careful: bool) -> tuple[str, ...]:
    """Fields of a client's own body that nobody checks, and an offer of its protocol does not get."""
    found = side_effects(spoken.unchecked, spoken.body, supported)
    if careful:
        found += [name for name in strange(spoken.unchecked, supported) if name not in found]
    if strict and found:
        raise spoken.nowhere(str(spoken.body.get("model", "")), shown(found[0]))
    return tuple(found)


def check_modalities(request: ChatRequest, reads: Collection[str]) -> None:
    """Refuse a request with a part that a model does not read. `reads` are its input modalities, empty if not known.

    Raises `InvalidRequest` naming the modality and the first such part.
    """
    if not request.modalities or not reads:
        return
    for modality, path in request.modalities.items():
        if modality not in reads:
            raise InvalidRequest(
                f"Parameter {path} holds {modality} input, which model {request.model} does not read: it reads "
                f"{', '.join(sorted(reads))}. Leave that part out, or choose another model.",
                param=path,
                code="unsupported_modality",
            )


def header_value(named: Iterable[str]) -> str:
    """Names of parameters as `IGNORED_HEADER` holds them: ASCII, separated by commas, at most some 2,000 characters."""
    return ", ".join(_odd.sub("?", name) for name in named)[:2000]


def _refuse(request: ChatRequest, lacking: tuple[str, ...], supported: frozenset[str], dialect: Dialect) -> None:
    unknown = (name for name in request.unknown if name not in supported)
    refused = {*lacking, *(_DEPRECATED & request.body.keys()), *unknown} - NEVER_STRICT
    for name in (*request.body, *request.not_understood):
        if name in refused or name in request.not_understood:
            param = shown(name)
            raise InvalidRequest(dialect.messages["not_supported"].format(param=param), param=param, code=UNSUPPORTED)


def _respelled(request: ChatRequest, supported: frozenset[str], withheld: set[str]) -> dict[str, Any]:
    """The reasoning wish in a spelling the offer takes, when the client used one that it does not."""
    used = [name for name in SPELLINGS if name in request.body]
    strange = [name for name in used if name not in supported]
    if not strange or request.reasoning is None:
        return {}
    withheld.update(strange)
    return _asked(request.reasoning, supported, request.output_cap, *used)


def _asked(wish: ReasoningWish, supported: frozenset[str], output_cap: int | None, *used: str) -> dict[str, Any]:
    """A wish in a spelling the offer takes, one of those `used` if it can be."""
    taken = next(name for name in (*used, *SPELLINGS) if name in supported)
    return {taken: spell(wish, taken, output_cap)}
