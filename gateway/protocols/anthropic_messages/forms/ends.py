"""Why an answer ended, in this protocol's words and in the chat form's.

From a provider the word goes on as it is: the reader of chat answers knows it (`openai_chat.answer.finish_words`), and
keeps it as the native one. To a client a native word is told if it is one of this protocol's.
"""

from typing import Any

from gateway.protocols.openai_chat.answer.choice import MATCHED

STOPS = frozenset(
    {
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"),
        "model_context_window_exceeded",
    }
)
_FINISHES = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
DETAILS = "stop_details"  # in the chat form, beside the finish reason: what a refusal was about


def told(choice: dict[str, Any], *, refused: bool) -> dict[str, Any]:
    """The end of a choice for a client: `stop_reason`, `stop_sequence`, and `stop_details` where there are any.

    `refused`: the answer's text is a refusal, which the chat form has no finish reason for.
    """
    finish, native, matched = choice.get("finish_reason"), choice.get("native_finish_reason"), choice.get(MATCHED)
    reason = _FINISHES.get(finish or "stop", "end_turn")
    if native in STOPS and (native != "tool_use" or reason == "tool_use"):
        reason = native
    if reason in ("end_turn", "stop_sequence"):
        reason = "stop_sequence" if type(matched) is str else "refusal" if refused else "end_turn"
    end = {"stop_reason": reason, "stop_sequence": matched if reason == "stop_sequence" else None}
    details = choice.get(DETAILS)
    return {**end, DETAILS: details} if type(details) is dict and reason == "refusal" else end
