"""Token counts written as a `usage` object of the OpenAI chat protocol, in full."""

from decimal import Decimal
from typing import Any

import msgspec

from billing.tokens import Tokens

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

    - `sent`: the object the provider sent; fields of it that nobody here knows stay
    - `extras`: the fields of the client's dialect that others do not have
    - `thought`: an estimate of the reasoning tokens, shown where the provider counted none; never more than the
      completion has room for, and never billed: the counts of the core are what is billed
    - `cost`: dollars charged to the tenant; None: not shown
    """
    sent = sent or _NOTHING
    prompt, completion = tokens.prompt, tokens.completion
    reading, writing = sent.get("prompt_tokens_details"), sent.get("completion_tokens_details")
    if type(reading) is not dict or not reading:
        reading = _section(sent, "input_tokens_details")
    if type(writing) is not dict or not writing:
        writing = _section(sent, "output_tokens_details")
    cache_write = tokens.cache_write_5m + tokens.cache_write_1h
    # The text's count is the provider's, else what no other modality has.
    text_read = reading.get("text_tokens")
    if text_read is None:
        text_read = prompt - tokens.audio_input - tokens.image_input - tokens.video_input
    reasoning = tokens.reasoning
    if thought and not reasoning:
        reasoning = min(thought, completion - tokens.audio_output - tokens.image_output)
    text_written = writing.get("text_tokens") if reasoning == tokens.reasoning else None
    if text_written is None:
        text_written = completion - tokens.audio_output - tokens.image_output - reasoning
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
    if tokens.video_input:
        made["prompt_tokens_details"]["video_tokens"] = tokens.video_input
    if tokens.image_output:
        made["completion_tokens_details"]["image_tokens"] = tokens.image_output
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


def _section(sent: dict[str, Any], name: str) -> dict[str, Any]:
    section = sent.get(name)
    return section if type(section) is dict else _NOTHING
