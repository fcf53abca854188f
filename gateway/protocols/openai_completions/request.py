"""What a client asks for (`parse`), and the body an upstream of the same protocol gets (`upstream_body`)."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct

from gateway.protocols.openai_chat.request.checks import (
    TYPE,
    Check,
    boolean,
    checked_model,
    integer,
    number,
    text,
    wrong,
)
from gateway.protocols.openai_chat.request.fields import CHECKS, MAX_CAP, stops
from gateway.protocols.openai_chat.request.overrides import refuse_overrides
from gateway.protocols.openai_chat.request.request import MAX_CHOICES, MAX_FIELDS, OWN_FIELDS
from gateway.protocols.prompts import count
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect

MAX_STOPS = 4  # Every upstream takes as many, so that none has to be looked for here, where `echo` repeats the prompt.
MAX_COMPLETIONS = 128  # of all prompts together, those of `best_of` that are not shown among them
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
KNOWN_FIELDS = frozenset({"model", "prompt", "stop", *_CHECKS, *OWN_FIELDS})


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """A request, checked.

    - `body`: the client's, without the known fields that are null
    - `choices`: how many texts are answered: `n` for each prompt
    - `written`: how many are written for them, with those that `best_of` has thrown away
    - `most_tokens`: what the prompts and the suffix come to at most, for the hold
    - `output_cap`: tokens the client allows for each text
    - `echoed_bytes`: of the text that comes back in front of what is written, if `echo` asks for it
    - `stream`, `include_usage`: whether the answer is a stream, and whether that ends with a usage chunk
    - `end_user`: who the client acts for
    - `unknown`: fields this gateway has no meaning for; they pass
    """

    body: dict[str, Any]
    model: str
    choices: int
    written: int
    most_tokens: int
    output_cap: int | None
    echoed_bytes: int
    stream: bool
    include_usage: bool
    end_user: str | None
    metadata: dict[str, str]
    unknown: tuple[str, ...]


def parse(body: Any, raw_length: int, dialect: Dialect = STANDARD) -> CompletionRequest:
    """Check a parsed body. Fields nobody knows pass unseen. Raises `InvalidRequest`, for the model first."""
    if type(body) is not dict:
        raise wrong("The body must be a JSON object.", None, TYPE)
    if len(body) > MAX_FIELDS:
        raise wrong(f"The body has more than {MAX_FIELDS} fields. Send fewer.", None)
    body = {name: value for name, value in body.items() if value is not None or name not in KNOWN_FIELDS}
    model = checked_model(body.get("model"), dialect)
    prompts, most_tokens = count(body.get("prompt"), "prompt")
    unknown = tuple(name for name in body if name not in KNOWN_FIELDS)
    refuse_overrides(body, unknown)
    for name, check in _CHECKS.items():
        if name in body:
            check(body[name])
    if "stop" in body:
        stops(body["stop"], MAX_STOPS)
    n = body.get("n", 1)
    best_of = body.get("best_of", n)
    stream = body.get("stream", False)
    if best_of < n:
        raise wrong("Parameter best_of must be at least n.", "best_of")
    if stream and best_of > n:
        raise wrong("Parameter best_of can not choose among texts that are streamed. Leave it out.", "best_of")
    if prompts * best_of > MAX_COMPLETIONS:
        raise wrong(f"Parameter prompt asks for more than {MAX_COMPLETIONS} texts. Send fewer prompts.", "prompt")
    if "stream_options" in body and not stream and dialect.refuses_stray_stream_options:
        raise wrong(dialect.messages["stray_stream_options"], "stream_options")
    return CompletionRequest(
        body=body,
        model=model,
        choices=prompts * n,
        written=prompts * best_of,
        most_tokens=most_tokens + len(body.get("suffix", "").encode()),
        output_cap=body.get("max_tokens"),
        echoed_bytes=most_tokens * n if body.get("echo") else 0,
        stream=stream,
        include_usage=bool(body.get("stream_options", {}).get("include_usage")),
        end_user=body.get("user") or body.get("safety_identifier") or None,
        metadata=body.get("metadata", {}),
        unknown=unknown,
    )


def upstream_body(
    request: CompletionRequest,
    *,
    model: str,
    output_cap: int | None,
    ask_usage: bool,
    withheld: Collection[str] = (),
) -> bytes:
    """The body for an upstream: the client's but for the model's name, the cap of each text, the wish for usage in a
    stream, the gateway's own fields and those withheld.
    """
    gone = {*OWN_FIELDS, *withheld, "stream_options"}
    made = {name: value for name, value in request.body.items() if name not in gone} | {"model": model}
    if output_cap is not None:
        made["max_tokens"] = output_cap
    if request.stream and ask_usage:
        made["stream_options"] = request.body.get("stream_options", {}) | {"include_usage": True}
    return strict_json.dumps_long(made)
