"""The `usage` object of the OpenAI chat protocol: read into `Tokens` with suspicion, and written in full.

Providers lie: negative counts, floats, 10^30, more cached tokens than tokens. An object with one such count
is not believed at all, since nothing says which of its numbers is right; the relay then estimates and flags
the row.

Not taken for a lie: a `total_tokens` that is not the sum, since the parts are what is billed; nor an object
of zeros, which some servers put into every chunk until they know.
"""

from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from billing.tokens import LARGEST, Tokens

Count = Annotated[int, Meta(ge=0, le=LARGEST)] | None  # Neither `true` nor `1.0` is one.

_NOTHING: dict[str, Any] = {}
_PRIVATE = frozenset({"cost", "cost_details"})  # What the provider bills the operator is not the tenant's to see.
# Fields that only some dialects have; one of them would tell others who the provider is.
_EXTRAS = frozenset(
    {
        *("usage_semantic", "usage_source"),
        *("claude_cache_creation_5_m_tokens", "claude_cache_creation_1_h_tokens"),
    }
)
_NOT_PASSED = _PRIVATE | _EXTRAS


class BadUsage(ValueError):
    """The usage object cannot be believed; the message says why, for the operator."""


class _CacheWrites(Struct):
    """Tokens written to a cache, by how long they live; some servers count them in the details, some beside them."""

    ephemeral_5m_input_tokens: Count = None
    claude_cache_creation_5_m_tokens: Count = None
    ephemeral_1h_input_tokens: Count = None
    claude_cache_creation_1_h_tokens: Count = None
    cache_creation_input_tokens: Count = None
    cache_write_tokens: Count = None


class _PromptDetails(_CacheWrites):
    cached_tokens: Count = None
    audio_tokens: Count = None
    image_tokens: Count = None
    text_tokens: Count = None
    web_search: Count = None


class _CompletionDetails(Struct):
    reasoning_tokens: Count = None
    audio_tokens: Count = None
    # Nobody is billed by these; they are shown, so they must be counts too.
    text_tokens: Count = None
    accepted_prediction_tokens: Count = None
    rejected_prediction_tokens: Count = None


class _ServerToolUse(Struct):
    web_search_requests: Count = None


class _Usage(_CacheWrites):
    """Every name under which servers send a count. Null is as good as absent; so is zero, but for the core counts."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    input_tokens: Count = None
    output_tokens: Count = None
    input_tokens_details: _PromptDetails | None = None
    output_tokens_details: _CompletionDetails | None = None
    cached_tokens: Count = None
    prompt_cache_hit_tokens: Count = None
    server_tool_use: _ServerToolUse | None = None


_NO_PROMPT_DETAILS = _PromptDetails()
_NO_COMPLETION_DETAILS = _CompletionDetails()
_NO_TOOLS = _ServerToolUse()


def read(usage: Any) -> tuple[Tokens, dict[str, Any]] | None:
    """The counts of an upstream's usage object, and that object, for `show`.

    None for a placeholder: every count zero. Raises `BadUsage`. Which buckets are inside which:
    `billing.tokens`. A missing core count is computed from `total_tokens`. Where the three counts show that
    reasoning was left out of `completion_tokens` (prompt + completion + reasoning = total, as some servers
    do), it is put in.
    """
    try:
        sent = msgspec.convert(usage, _Usage)
    except msgspec.ValidationError as error:
        raise BadUsage(str(error)) from None
    prompt = sent.input_tokens if sent.prompt_tokens is None else sent.prompt_tokens
    completion = sent.output_tokens if sent.completion_tokens is None else sent.completion_tokens
    total = sent.total_tokens
    if not (prompt or completion or total):
        return None
    if prompt is None and total is not None and completion is not None:
        prompt = total - completion
    if completion is None and total is not None and prompt is not None:
        completion = total - prompt
    if prompt is None or completion is None:
        raise BadUsage("usage lacks a core count")
    reading = sent.prompt_tokens_details or sent.input_tokens_details or _NO_PROMPT_DETAILS
    writing = sent.completion_tokens_details or sent.output_tokens_details or _NO_COMPLETION_DETAILS
    tools = sent.server_tool_use or _NO_TOOLS
    reasoning = writing.reasoning_tokens or 0
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning
    written_5m, written_1h = _cache_writes(reading, sent)
    tokens = Tokens(
        prompt=prompt,
        completion=completion,
        cached=reading.cached_tokens or sent.cached_tokens or sent.prompt_cache_hit_tokens or 0,
        cache_write_5m=written_5m,
        cache_write_1h=written_1h,
        audio_input=reading.audio_tokens or 0,
        image_input=reading.image_tokens or 0,
        reasoning=reasoning,
        audio_output=writing.audio_tokens or 0,
        web_searches=reading.web_search or tools.web_search_requests or 0,
    )
    _believe(tokens)
    return tokens, usage


def show(
    tokens: Tokens,
    sent: dict[str, Any] | None = None,
    *,
    extras: frozenset[str] = frozenset(),
    thought: int = 0,
    cost: Decimal | None = None,
) -> dict[str, Any]:
    """Counts as a usage object with every bucket, zeros among them, and `input_tokens` and `output_tokens` as
    other names of the prompt's and the completion's.

    - `sent`: the object the provider sent, as `read` gave it; fields of it that nobody here knows stay
    - `extras`: the fields of the client's dialect that others do not have
    - `thought`: an estimate of the reasoning tokens, shown where the provider counted none; never more than the
      completion has room for, and never billed: the counts of the core are what is billed
    - `cost`: dollars charged to the tenant; None: not shown
    """
    sent = sent or _NOTHING
    prompt, completion = tokens.prompt, tokens.completion
    reading = sent.get("prompt_tokens_details") or sent.get("input_tokens_details") or _NOTHING
    writing = sent.get("completion_tokens_details") or sent.get("output_tokens_details") or _NOTHING
    cache_write = tokens.cache_write_5m + tokens.cache_write_1h
    # The text's count is the provider's, else what no other modality has.
    text_read = reading.get("text_tokens")
    if text_read is None:
        text_read = prompt - tokens.audio_input - tokens.image_input
    reasoning = tokens.reasoning
    if thought and not reasoning:
        reasoning = min(thought, completion - tokens.audio_output)
    text_written = writing.get("text_tokens") if reasoning == tokens.reasoning else None
    if text_written is None:
        text_written = completion - tokens.audio_output - reasoning
    made: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            **reading,
            "cached_tokens": tokens.cached,
            "audio_tokens": tokens.audio_input,
            "image_tokens": tokens.image_input,
            "text_tokens": text_read,
            "cache_creation_input_tokens": cache_write,
            "cache_write_tokens": cache_write,
            "ephemeral_5m_input_tokens": tokens.cache_write_5m,
            "ephemeral_1h_input_tokens": tokens.cache_write_1h,
            "web_search": tokens.web_searches,
        },
        "completion_tokens_details": {
            **writing,
            "reasoning_tokens": reasoning,
            "audio_tokens": tokens.audio_output,
            "text_tokens": text_written,
            "accepted_prediction_tokens": writing.get("accepted_prediction_tokens") or 0,
            "rejected_prediction_tokens": writing.get("rejected_prediction_tokens") or 0,
        },
        "input_tokens": prompt,
        "output_tokens": completion,
    }
    if not sent.keys() <= made.keys():
        made |= {name: value for name, value in sent.items() if name not in made and name not in _NOT_PASSED}
    if extras:
        known = {
            "usage_semantic": "openai",  # Cached tokens are inside the prompt's.
            "usage_source": sent.get("usage_source") or "openai",
            "claude_cache_creation_5_m_tokens": tokens.cache_write_5m,
            "claude_cache_creation_1_h_tokens": tokens.cache_write_1h,
        }
        made |= {name: value for name, value in known.items() if name in extras}
    if cost is not None:
        made["cost"] = msgspec.Raw(f"{cost.normalize():f}".encode())  # A number, all its digits and no exponent.
    return made


def _cache_writes(*places: _CacheWrites) -> tuple[int, int]:
    """Tokens written to a cache for five minutes and for an hour. What no split names lives five minutes."""
    short = long = whole = 0
    for sent in places:
        short = short or sent.ephemeral_5m_input_tokens or sent.claude_cache_creation_5_m_tokens or 0
        long = long or sent.ephemeral_1h_input_tokens or sent.claude_cache_creation_1_h_tokens or 0
        whole = whole or sent.cache_creation_input_tokens or sent.cache_write_tokens or 0
    return max(short, whole - long), long


def _believe(tokens: Tokens) -> None:
    if not (0 <= tokens.prompt <= LARGEST and 0 <= tokens.completion <= LARGEST):
        raise BadUsage("the core counts contradict each other")
    if tokens.cached + tokens.cache_write_5m + tokens.cache_write_1h > tokens.prompt:
        raise BadUsage("more tokens cached than sent")
    if tokens.audio_input + tokens.image_input > tokens.prompt:
        raise BadUsage("more media tokens than tokens sent")
    if tokens.reasoning + tokens.audio_output > tokens.completion:
        raise BadUsage("more reasoning or audio than tokens written")
