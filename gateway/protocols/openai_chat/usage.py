"""The `usage` object of the OpenAI chat protocol: read into `Tokens` with suspicion, and written in full.

Providers lie: negative counts, floats, 10^30, more cached tokens than tokens. An object with one such count
is not believed at all, since nothing says which of its numbers is right; the relay then estimates and flags
the row.

Not taken for a lie: a `total_tokens` that is not the sum, since the parts are what is billed; nor an object
of zeros, which some servers put into every chunk until they know.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from billing.tokens import LARGEST, Tokens

_NOTHING: dict[str, Any] = {}
_PRIVATE = frozenset({"cost", "cost_details"})  # What the provider bills the operator is not the tenant's to see.
# Counts inside prompt and completion that nobody is billed by; shown, so they must be counts too.
_TEXT = "text_tokens"
_PREDICTED = ("accepted_prediction_tokens", "rejected_prediction_tokens")
# Fields that only some dialects have; one of them would tell others who the provider is.
_EXTRAS = frozenset(
    {
        *("usage_semantic", "usage_source"),
        *("claude_cache_creation_5_m_tokens", "claude_cache_creation_1_h_tokens"),
    }
)


_CORE = frozenset(
    {
        *("prompt_tokens", "completion_tokens", "total_tokens"),
        *("prompt_tokens_details", "completion_tokens_details"),
    }
)
_NOT_PASSED = _PRIVATE | _EXTRAS


class BadUsage(ValueError):
    """The usage object cannot be believed; the message says why, for the operator."""


def read(usage: Any) -> tuple[Tokens, dict[str, Any]] | None:
    """The counts of an upstream's usage object, and that object, for `show`.

    None for a placeholder: every count zero. Raises `BadUsage`. Which buckets are inside which:
    `billing.tokens`. A missing core count is computed from `total_tokens`. Where the three counts show that
    reasoning was left out of `completion_tokens` (prompt + completion + reasoning = total, as some servers
    do), it is put in.
    """
    if type(usage) is not dict:
        raise BadUsage("usage is not an object")
    sent = _section(usage, "prompt_tokens_details", "input_tokens_details")
    written = _section(usage, "completion_tokens_details", "output_tokens_details")
    prompt = _count((usage,), "prompt_tokens", "input_tokens")
    completion = _count((usage,), "completion_tokens", "output_tokens")
    total = _count((usage,), "total_tokens")
    if not (prompt or completion or total):
        return None
    if prompt is None and total is not None and completion is not None:
        prompt = total - completion
    if completion is None and total is not None and prompt is not None:
        completion = total - prompt
    if prompt is None or completion is None:
        raise BadUsage("usage lacks a core count")
    if not sent and not written and usage.keys() <= _CORE:  # as many servers send it: nothing more to look for
        tokens = Tokens(prompt=prompt, completion=completion)
        _believe(tokens)
        return tokens, usage
    reasoning = _count((written,), "reasoning_tokens") or 0
    if reasoning and total == prompt + completion + reasoning:
        completion += reasoning
    written_5m, written_1h = _cache_writes((sent, usage))
    tokens = Tokens(
        prompt=prompt,
        completion=completion,
        cached=_count((sent,), "cached_tokens") or _count((usage,), "cached_tokens", "prompt_cache_hit_tokens") or 0,
        cache_write_5m=written_5m,
        cache_write_1h=written_1h,
        audio_input=_count((sent,), "audio_tokens") or 0,
        image_input=_count((sent,), "image_tokens") or 0,
        reasoning=reasoning,
        audio_output=_count((written,), "audio_tokens") or 0,
        web_searches=_count((sent,), "web_search")
        or _count((_section(usage, "server_tool_use"),), "web_search_requests")
        or 0,
    )
    _believe(tokens)
    _count((sent,), _TEXT)
    for name in (_TEXT, *_PREDICTED):
        _count((written,), name)
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
    sent = _NOTHING if sent is None else sent
    reasoning = tokens.reasoning or min(thought, tokens.completion - tokens.audio_output)
    read = _section(sent, "prompt_tokens_details", "input_tokens_details")
    written = _section(sent, "completion_tokens_details", "output_tokens_details")
    made: dict[str, Any] = {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.total,
        "prompt_tokens_details": _prompt_details(tokens, read),
        "completion_tokens_details": written
        | {
            "reasoning_tokens": reasoning,
            "audio_tokens": tokens.audio_output,
            _TEXT: _text(written, tokens.completion - tokens.audio_output - reasoning, reasoning == tokens.reasoning),
        }
        | {name: written.get(name) or 0 for name in _PREDICTED},
        "input_tokens": tokens.prompt,
        "output_tokens": tokens.completion,
    }
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


def _prompt_details(tokens: Tokens, sent: dict[str, Any]) -> dict[str, Any]:
    cache_write = tokens.cache_write_5m + tokens.cache_write_1h
    return sent | {
        "cached_tokens": tokens.cached,
        "audio_tokens": tokens.audio_input,
        "image_tokens": tokens.image_input,
        _TEXT: _text(sent, tokens.prompt - tokens.audio_input - tokens.image_input),
        "cache_creation_input_tokens": cache_write,
        "cache_write_tokens": cache_write,
        "ephemeral_5m_input_tokens": tokens.cache_write_5m,
        "ephemeral_1h_input_tokens": tokens.cache_write_1h,
        "web_search": tokens.web_searches,
    }


def _text(sent: dict[str, Any], rest: int, believed: bool = True) -> int:
    """The text's count: the provider's, else what no other modality has."""
    said: int | None = sent.get(_TEXT) if believed else None
    return rest if said is None else said


def _section(usage: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        section = usage.get(name)
        if type(section) is dict:
            return section
        if section is not None:
            raise BadUsage(f"{name} is not an object")
    return _NOTHING


def _count(places: Iterable[dict[str, Any]], *names: str) -> int | None:
    """The first of `names` that is there and not null. `True` is an int to Python and a lie here."""
    for place in places:
        for name in names:
            count = place.get(name)
            if count is None:
                continue
            if type(count) is not int or not 0 <= count <= LARGEST:
                raise BadUsage(f"{name} is not a count")
            return count
    return None


def _cache_writes(places: tuple[dict[str, Any], ...]) -> tuple[int, int]:
    """Tokens written to a cache for five minutes and for an hour. What no split names lives five minutes."""
    short = _count(places, "ephemeral_5m_input_tokens", "claude_cache_creation_5_m_tokens") or 0
    long = _count(places, "ephemeral_1h_input_tokens", "claude_cache_creation_1_h_tokens") or 0
    whole = _count(places, "cache_creation_input_tokens", "cache_write_tokens") or 0
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
