"""What a client asks for (`read`), and the body an upstream of the same protocol gets (`upstream_body`)."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.protocols.openai_chat.request.checks import Check, boolean, integer, number, text, wrong
from gateway.protocols.openai_chat.request.fields import CHECKS, MAX_CAP, stops
from gateway.protocols.openai_chat.request.request import MAX_CHOICES, ChatRequest
from gateway.protocols.prompts import chat_form, opened, told
from gateway.protocols.prompts import upstream_body as body_of
from gateway.protocols.sides import Asking, Spoken
from gateway.wire.dialects import STANDARD, Dialect

NAME = "openai_completions"
READS = "prompt"
TEXT = frozenset({"text"})
MAX_STOPS = 4
MAX_COMPLETIONS = 128  # of all prompts together, those of `best_of` that are not shown among them
BYTES_A_TOKEN = 4  # of a prompt that came as tokens and comes back as text
_SHARED = (
    *("top_p", "frequency_penalty", "presence_penalty", "seed", "logit_bias", "user", "safety_identifier"),
    *("stream_options", "metadata", "prompt_cache_key"),
)
_CHECKS: Mapping[str, Check] = {
    **{name: CHECKS[name] for name in _SHARED},
    "suffix": text("suffix"),
    "echo": boolean("echo"),
    "stream": boolean("stream"),
    "n": integer("n", 1, MAX_CHOICES),
    "best_of": integer("best_of", 1, MAX_CHOICES),
    "logprobs": integer("logprobs", 0, 20),
    "max_tokens": integer("max_tokens", 0, MAX_CAP),
    "temperature": number("temperature", 0, 2),
}
# What a chat has no words for, or says in others.
_OTHERWISE: Mapping[str, Any] = dict.fromkeys(("suffix", "echo", "best_of"))


class Completions(Struct, frozen=True):
    """What of a request its answer must fit: `choices`, how many texts are answered, `n` for each prompt."""

    choices: int


def read(value: Any, dialect: Dialect = STANDARD) -> ChatRequest:
    """A client's parsed body, checked. Fields nobody knows pass unseen. Raises `InvalidRequest`, for the model first.

    An offer must list the word `prompt` among its parameters to be asked, and for a gap `suffix` too.
    """
    found = opened(value, dialect, reads=READS, checks=_CHECKS, also=("stop",))
    body, prompts = found.body, found.prompts
    sequences = stops(body["stop"], MAX_STOPS) if "stop" in body else ()
    n = body.get("n", 1)
    best_of = body.get("best_of", n)
    stream = body.get("stream", False)
    if best_of < n:
        raise wrong("Parameter best_of must be at least n.", "best_of")
    if stream and best_of > n:
        raise wrong("Parameter best_of can not choose among texts that are streamed. Leave it out.", "best_of")
    if prompts.number * best_of > MAX_COMPLETIONS:
        raise wrong(f"Parameter prompt asks for more than {MAX_COMPLETIONS} texts. Send fewer prompts.", READS)
    if "stream_options" in body and not stream and dialect.refuses_stray_stream_options:
        raise wrong(dialect.messages["stray_stream_options"], "stream_options")
    echo, suffix = body.get("echo", False), body.get("suffix")
    spoken = Spoken(
        protocol=NAME,
        body=body,
        form=Completions(prompts.number * n),
        told=lambda param: told(param, READS),
        only_native=(READS,),
        built_in=(READS,) if suffix is None else (READS, "suffix"),
        makes=TEXT,
    )
    echoed = prompts.most_tokens * (BYTES_A_TOKEN if prompts.tokens else 1) * n if echo else 0
    return chat_form(
        found,
        spoken,
        dialect,
        reads=READS,
        changes={**_OTHERWISE, "logprobs": True if "logprobs" in body else None},
        output_cap=body.get("max_tokens"),
        n=prompts.number * best_of,
        more=(suffix,) if suffix else (),
        stream=stream,
        include_usage=stream and bool(body.get("stream_options", {}).get("include_usage")),
        stops=() if echo else sequences,  # the gateway would find them in the prompt that comes back
        echoed_bytes=echoed,
    )


def upstream_body(asked: ChatRequest, asking: Asking) -> bytes:
    """The body for an offer: the client's but for the model's name, the cap of each text, the stop sequences that the
    gateway looks for, and the wish for usage in a stream.
    """
    assert asked.spoken is not None
    body, fit = asked.spoken.body, asking.fit
    changes: dict[str, Any] = {"model": asking.model}
    if asking.output_cap is not None:
        changes["max_tokens"] = asking.output_cap
    if fit.enforced_stops:
        changes["stop"] = [sequence for sequence in asked.stops if sequence not in fit.enforced_stops] or None
    if asked.stream and asking.ask_usage:
        changes["stream_options"] = body.get("stream_options", {}) | {"include_usage": True}
    elif "stream_options" in body:
        changes["stream_options"] = None
    return body_of(asked, changes, fit.withheld)
