"""One `usage` object of an OpenAI chat upstream: its counts by whatever names, read with suspicion.

Providers lie: negative counts, floats, 10^30, more cached tokens than tokens. An object with one such count
is not believed at all, since nothing says which of its numbers is right; the relay then estimates and flags
the row.

Not taken for a lie: a zero or null, which many servers write until they know; a `total_tokens` below its parts,
since the parts are what is billed. A total above its parts names what they leave out: reasoning or cached tokens
that the object counts apart, else what only hidden thinking can be.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from billing.tokens import LARGEST, MOST_EACH, Tokens

Counts = dict[str, int]  # By bucket; zero where a server said zero.

_READING = ("prompt_tokens_details", "input_tokens_details")
_WRITING = ("completion_tokens_details", "output_tokens_details")
_SECTIONS = (*_READING, *_WRITING, "server_tool_use", "cache_creation")


def _in(sections: tuple[str, ...], *names: str) -> tuple[str, ...]:
    return tuple(f"{section}.{name}" for name in names for section in sections)


# Every name under which servers send a count, by bucket. Of several the first that is not zero counts.
_NAMES: dict[str, tuple[str, ...]] = {
    "prompt": ("prompt_tokens", "input_tokens", "promptTokens", "inputTokens"),
    "completion": ("completion_tokens", "output_tokens", "completionTokens", "outputTokens"),
    "total": ("total_tokens", "totalTokens"),
    "cached": (
        *_in(_READING, "cached_tokens", "cache_read_tokens", "cache_read_input_tokens", "cachedTokens"),
        *(
            "cached_tokens",
            "prompt_cache_hit_tokens",
            "cached_prompt_tokens",
            "num_cached_tokens",
            "cached_input_tokens",
        ),
        *("cache_read_tokens", "cache_read_input_tokens", "cachedTokens", "cachedInputTokens", "cacheReadInputTokens"),
    ),
    "written_5m": (
        *_in((*_READING, "cache_creation"), "ephemeral_5m_input_tokens", "claude_cache_creation_5_m_tokens"),
        *("ephemeral_5m_input_tokens", "claude_cache_creation_5_m_tokens"),
    ),
    "written_1h": (
        *_in((*_READING, "cache_creation"), "ephemeral_1h_input_tokens", "claude_cache_creation_1_h_tokens"),
        *("ephemeral_1h_input_tokens", "claude_cache_creation_1_h_tokens"),
    ),
    "written": (
        *_in(_READING, "cache_creation_input_tokens", "cache_write_tokens", "cache_creation_tokens"),
        *("cache_creation_input_tokens", "cache_write_tokens", "cache_write_input_tokens", "cacheWriteInputTokens"),
    ),
    "audio_input": _in(_READING, "audio_tokens", "audioTokens"),
    "image_input": _in(_READING, "image_tokens", "imageTokens"),
    "video_input": _in(_READING, "video_tokens", "videoTokens"),
    "reasoning": (
        *_in(_WRITING, "reasoning_tokens", "thinking_tokens", "reasoningTokens"),
        *("reasoning_tokens", "thinking_tokens", "thoughts_tokens", "reasoningTokens"),
    ),
    "audio_output": _in(_WRITING, "audio_tokens", "audioTokens"),
    "image_output": _in(_WRITING, "image_tokens", "imageTokens"),
    "seconds": ("prompt_audio_seconds",),
    "web_searches": (*_in(_READING, "web_search"), "server_tool_use.web_search_requests", "num_search_queries"),
    # Nobody is billed by these; they are shown, so they must be counts too.
    "shown": (
        *_in((*_READING, *_WRITING), "text_tokens"),
        *_in(_WRITING, "accepted_prediction_tokens", "rejected_prediction_tokens"),
    ),
}
_BUCKETS = {name: (bucket, rank) for bucket, names in _NAMES.items() for rank, name in enumerate(names)}
_INSIDE = {
    section: {name.partition(".")[2]: place for name, place in _BUCKETS.items() if name.startswith(section + ".")}
    for section in _SECTIONS
}
# Under these names one protocol counts what its `input_tokens` leave out; beside `prompt_tokens` they are inside.
_OUTSIDE = ("cache_read_input_tokens", "cache_creation_input_tokens", "cacheReadInputTokens", "cacheWriteInputTokens")
# Some servers say whose way of counting theirs is; in these the prompt leaves out what was cached.
_COUNTED_APART = ("anthropic",)


Count = Annotated[int, Meta(ge=0, le=LARGEST)] | None


class _Read(Struct, forbid_unknown_fields=True):
    cached_tokens: Count = None
    audio_tokens: Count = None


class _Written(Struct, forbid_unknown_fields=True):
    reasoning_tokens: Count = None
    audio_tokens: Count = None
    accepted_prediction_tokens: Count = None
    rejected_prediction_tokens: Count = None


class _Usual(Struct, forbid_unknown_fields=True):
    """What most servers send, with no other field in it: such an object is read at once, a tenth of name by name."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: _Read | None = None
    completion_tokens_details: _Written | None = None


_USUAL = frozenset(_Usual.__struct_fields__)


class BadUsage(ValueError):
    """The usage object cannot be believed; the message says why, for the operator."""


def read(usage: Any) -> Counts:
    """The counts of an upstream's usage object; those that are null or absent are not in it. Raises `BadUsage`."""
    if type(usage) is not dict:
        raise BadUsage("usage is not an object")
    if usage.keys() <= _USUAL and (usual := _usual(usage)) is not None:
        return usual
    counts: Counts = {}
    ranks: dict[str, int] = {}
    for name, value in usage.items():
        if value is None:
            continue
        if place := _BUCKETS.get(name):
            _note(counts, ranks, place, name, value)
        elif inside := _INSIDE.get(name):
            if type(value) is not dict:
                raise BadUsage(f"{name} is not an object")
            for inner, count in value.items():
                if count is not None and (place := inside.get(inner)):
                    _note(counts, ranks, place, inner, count)
    if "cached" in counts or "written" in counts:
        counts["outside"] = _counted_outside(usage, counts)
    return counts


def _usual(usage: dict[str, Any]) -> Counts | None:
    """The counts of an object that is a `_Usual` one; None: it is not, or some of it is no count."""
    try:
        found = convert(usage, _Usual)
    except ValidationError:
        return None
    counts: Counts = {}
    if found.prompt_tokens is not None:
        counts["prompt"] = found.prompt_tokens
    if found.completion_tokens is not None:
        counts["completion"] = found.completion_tokens
    if found.total_tokens is not None:
        counts["total"] = found.total_tokens
    if (reading := found.prompt_tokens_details) is not None:
        if reading.cached_tokens is not None:
            counts["cached"], counts["outside"] = reading.cached_tokens, 0
        if reading.audio_tokens is not None:
            counts["audio_input"] = reading.audio_tokens
    if (writing := found.completion_tokens_details) is not None:
        if writing.reasoning_tokens is not None:
            counts["reasoning"] = writing.reasoning_tokens
        if writing.audio_tokens is not None:
            counts["audio_output"] = writing.audio_tokens
        accepted, rejected = writing.accepted_prediction_tokens, writing.rejected_prediction_tokens
        if accepted is not None or rejected is not None:
            counts["shown"] = accepted or rejected or 0
    return counts


def _note(counts: Counts, ranks: dict[str, int], place: tuple[str, int], name: str, value: Any) -> None:
    if type(value) is not int or not 0 <= value <= LARGEST:  # Neither `true` nor `1.0` is one.
        raise BadUsage(f"{name} is not a count")
    bucket, rank = place
    if value and (not counts.get(bucket) or rank < ranks[bucket]):
        counts[bucket], ranks[bucket] = value, rank
    else:
        counts.setdefault(bucket, 0)


def _counted_outside(usage: Mapping[str, Any], counts: Counts) -> int:
    """1 if the prompt does not include what was cached, as far as the names say."""
    if usage.get("usage_semantic") in _COUNTED_APART:
        return 1
    if not any(map(usage.get, _OUTSIDE)):
        return 0
    inclusive = usage.get("prompt_tokens") or usage.get("promptTokens")
    return 0 if inclusive and counts.get("cached", 0) + counts.get("written", 0) <= counts["prompt"] else 1


def add(known: Counts, more: Counts) -> None:
    """Add the counts of a later object: field by field the last that is not a placeholder stands.

    A total is one of the counts it came with.
    """
    if not known:
        known.update(more)
        return
    if more.get("prompt") or more.get("completion"):
        known.pop("total", None)
    for bucket, count in more.items():
        if count or bucket not in known or bucket == "outside":
            known[bucket] = count


def tokens(counts: Counts) -> tuple[Tokens, bool]:
    """What the counts come to, and whether they do not add up. Which buckets are inside which: `billing.tokens`.

    A half that is missing, or zero though the total says otherwise, is what the total leaves; without a total it is 0,
    and whoever knows that there was something estimates it. A total above its parts holds what was counted apart from
    them: the reasoning, what was cached, both; else it is hidden thinking. Raises `BadUsage`.
    """
    prompt, completion, total = counts.get("prompt", 0), counts.get("completion", 0), counts.get("total", 0)
    core = prompt + completion
    if prompt and completion and total in (0, core) and sum(counts.values()) == core + total:
        return Tokens(prompt, completion), False  # All else is 0, as in most answers.
    reasoning, cached = counts.get("reasoning", 0), counts.get("cached", 0)
    # What no split names lives five minutes.
    written_1h = counts.get("written_1h", 0)
    written_5m = max(counts.get("written_5m", 0), counts.get("written", 0) - written_1h)
    if not (prompt or completion):
        raise BadUsage("usage lacks the core counts")
    if counts.get("outside"):
        prompt += cached + written_5m + written_1h
    if total and not prompt and ("prompt" not in counts or total > completion):
        prompt = total - completion
    elif total and not completion and ("completion" not in counts or total > prompt):
        completion = total - prompt
    left, hidden = total - prompt - completion, False
    if left > 0:
        stored = cached + written_5m + written_1h
        if left in (reasoning, reasoning + stored):
            completion += reasoning
            prompt += left - reasoning
        elif left == stored:
            prompt += stored
        else:
            hidden = True
            completion += left
            reasoning = max(reasoning, left) if reasoning > completion - left else reasoning + left
    made = Tokens(
        prompt=prompt,
        completion=completion,
        cached=cached,
        cache_write_5m=written_5m,
        cache_write_1h=written_1h,
        audio_input=counts.get("audio_input", 0),
        image_input=counts.get("image_input", 0),
        reasoning=reasoning,
        audio_output=counts.get("audio_output", 0),
        web_searches=counts.get("web_searches", 0),
        video_input=counts.get("video_input", 0),
        image_output=counts.get("image_output", 0),
        seconds=counts.get("seconds", 0),
    )
    _believe(made)
    return made, hidden


def _believe(tokens: Tokens) -> None:
    if not (0 <= tokens.prompt <= LARGEST and 0 <= tokens.completion <= LARGEST):
        raise BadUsage("the core counts contradict each other")
    if tokens.cached + tokens.cache_write_5m + tokens.cache_write_1h > tokens.prompt:
        raise BadUsage("more tokens cached than sent")
    if tokens.audio_input + tokens.image_input + tokens.video_input > tokens.prompt:
        raise BadUsage("more media tokens than tokens sent")
    if tokens.reasoning + tokens.audio_output + tokens.image_output > tokens.completion:
        raise BadUsage("more reasoning or media than tokens written")
    if max(tokens.web_searches, tokens.seconds) > MOST_EACH:
        raise BadUsage("more searches or seconds than anybody takes")
