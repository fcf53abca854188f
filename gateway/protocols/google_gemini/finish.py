"""Why an answer ended, or a prompt was not answered: Google's words and a chat's, one table each way.

A provider's word goes on as it is where `finish_words` knows it, so that a client sees it as `native_finish_reason`.
"""

from typing import Any

from gateway.protocols.openai_chat.answer import finish_words

# A chat's word for a client of this protocol.
_OURS = {
    "stop": "STOP",
    "tool_calls": "STOP",
    "function_call": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
}
# Google's own, in which a client of this protocol is told what another provider said less exactly.
_EXACT = frozenset(
    {
        *("SAFETY", "RECITATION", "LANGUAGE", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
        *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_OTHER"),
    }
)
MALFORMED_CALL = "MALFORMED_FUNCTION_CALL"
_NONE = frozenset({"FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED", "BLOCKED_REASON_UNSPECIFIED"})
_FILTERED = "content_filter"
REFUSED = _FILTERED  # A chat's refusal ends with `stop`; here nothing but the reason tells it from an answer.
# Why a candidate ended that `finish_words` does not know.
_CHATS = {"LANGUAGE": _FILTERED, "ESCALATION": _FILTERED, "PUP_LIMITED_DISABLED": _FILTERED, "CONTINUATION": "length"}


def chat_finish(reason: Any) -> Any:
    """The `finish_reason` of a chat for a candidate's; None: it has not ended. What is no word is handed on."""
    if type(reason) is not str:
        return reason
    return None if not reason or reason in _NONE else _CHATS.get(reason, reason)


def chat_block(reason: Any) -> str | None:
    """The `finish_reason` of a chat for a prompt's `blockReason`: always that of a filter; None: it was not blocked."""
    if type(reason) is not str or not reason or reason in _NONE:
        return None
    return reason if finish_words.meaning(reason) == _FILTERED else _FILTERED


def gemini_finish(reason: str | None, native: str | None) -> str:
    """The `finishReason` for a chat's, or for the provider's own word, if that is one of Google's and says more."""
    if reason == _FILTERED and native in _EXACT:
        return native
    return _OURS.get(reason or "stop", "OTHER")
