"""The `response` object that begins and ends a stream, and is the whole answer of a client that does not stream.

It repeats what was asked, with the defaults of what was not: SDKs read these fields as always there.
"""

from collections.abc import Mapping
from typing import Any

DEFAULTS: Mapping[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "auto",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
# What an answer says of itself, not of what was asked.
_STORED = frozenset({"store", "service_tier"})
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def opened(asked: Mapping[str, Any], *, id: str, created: int, model: str) -> dict[str, Any]:
    """The object as it is while the answer to `asked`, a client's body, is under way."""
    repeated = {
        name: default if asked.get(name) is None or name in _STORED else asked[name]
        for name, default in DEFAULTS.items()
    }
    repeated["text"] = DEFAULTS["text"] | repeated["text"]
    repeated["reasoning"] = DEFAULTS["reasoning"] | repeated["reasoning"]
    state: dict[str, Any] = {
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
    }
    return {"id": id, "object": "response", "created_at": created, "model": model} | state | repeated


def ended(finish: str | None) -> dict[str, Any]:
    """Its status where an answer ended for `finish`, one of the chat form's reasons."""
    reason = _REASONS.get(finish or "")
    if reason is None:
        return {"status": "completed"}
    return {"status": "incomplete", "incomplete_details": {"reason": reason}}


def usage_of(usage: Mapping[str, Any]) -> dict[str, Any]:
    """A usage object of the chat form in this protocol's words; the counts mean the same in both."""
    reading = usage.get("prompt_tokens_details") or {}
    writing = usage.get("completion_tokens_details") or {}
    made: dict[str, Any] = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {
            "cached_tokens": reading.get("cached_tokens") or 0,
            "cache_write_tokens": reading.get("cache_write_tokens") or 0,
        },
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": writing.get("reasoning_tokens") or 0},
        "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"],
    }
    if reading.get("web_search"):
        made["input_tokens_details"]["web_search"] = reading["web_search"]
    return made | ({"cost": usage["cost"]} if "cost" in usage else {})
