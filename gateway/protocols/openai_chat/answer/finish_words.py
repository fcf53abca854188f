"""Why an answer ended: the words of many servers and protocols, in OpenAI's five."""

import re

from routing.health.faults import Fault

FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
MAX_WORD = 64  # Characters kept of an upstream's word.

# Compared without case and without what is no letter: `MAX_TOKENS`, `maxTokens` and `max-tokens` are one word.
_WORDS: dict[str, tuple[str, ...]] = {
    "stop": (
        *("stop", "end_turn", "stop_sequence", "stop_token", "stop_str", "pause_turn", "eos", "eos_token", "eot"),
        *("end_of_text", "end_of_turn", "end", "complete", "completed", "finish", "finished", "done", "success"),
    ),
    "length": (
        *("length", "max_tokens", "max_output_tokens", "max_new_tokens", "max_length", "model_length", "incomplete"),
        *("model_context_window_exceeded", "context_length", "context_window_exceeded", "token_limit", "length_limit"),
    ),
    "tool_calls": ("tool_calls", "tool_call", "tool_use", "function_calls"),
    "function_call": ("function_call",),
    "content_filter": (
        *("content_filter", "content_filtered", "content_filtering", "content_blocked", "content_policy", "filtered"),
        *("content_policy_violation", "safety", "unsafe", "refusal", "recitation", "blocked", "blocklist", "spii"),
        *("prohibited_content", "image_safety", "image_prohibited_content", "image_recitation", "moderation"),
        *("error_toxic", "toxic", "guardrail", "guardrails", "guardrail_intervened", "model_armor", "sensitive"),
        *("prompt_blocked", "risk_control"),
    ),
}
# Ends that are none. Shown as `stop` they would pass for an answer.
_FAILURES: dict[Fault, tuple[str, ...]] = {
    Fault.SERVER_ERROR: (
        *("error", "failed", "failure", "abort", "aborted", "cancelled", "canceled", "user_cancel", "internal_error"),
        *("server_error", "network_error", "unknown_error", "error_limit", "malformed_function_call", "no_image"),
        *("malformed_response", "malformed_model_output", "malformed_tool_use", "unexpected_tool_call"),
        *("too_many_tool_calls", "missing_thought_signature", "image_other"),
        "insufficient_system_resource",
    ),
    Fault.TIMEOUT: ("timeout", "timed_out", "deadline_exceeded", "time_limit"),
    Fault.OVERLOADED: ("overloaded", "service_unavailable", "resource_exhausted"),
    Fault.RATE_LIMITED: ("rate_limit", "rate_limited", "rate_limit_exceeded"),
}


def _letters(word: str) -> str:
    return re.sub("[^a-z]", "", word.lower()).removeprefix("finishreason")


_MEANINGS: dict[str, str | Fault] = {
    _letters(word): meaning for table in (_WORDS, _FAILURES) for meaning, words in table.items() for word in words
}


def meaning(word: str) -> str | Fault | None:
    """An upstream's word as one of `FINISHES`, or the fault it stands for; None: nobody knows it."""
    return word if word in FINISHES else _MEANINGS.get(_letters(word[: 2 * MAX_WORD]))


def native(word: str) -> str:
    """An upstream's word as it is shown and stored."""
    return word[:MAX_WORD].replace("\0", "")
