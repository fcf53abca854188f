"""The OpenAI chat completions protocol, both directions, without I/O.

`request` says what a client asks for (`parse`) and makes the body an upstream of the same protocol gets
(`upstream_body`). The answer is read by `AnswerReader`, failures by `fault_from_response`, and told by `error_event`.
"""

from gateway.protocols.openai_chat.answer.answer import AnswerReader
from gateway.protocols.openai_chat.faults import error_event, fault_from_response
from gateway.protocols.openai_chat.request.request import KNOWN_FIELDS, WHOLE, ChatRequest, Fit, parse, upstream_body

__all__ = [
    "KNOWN_FIELDS",
    "WHOLE",
    "AnswerReader",
    "ChatRequest",
    "Fit",
    "error_event",
    "fault_from_response",
    "parse",
    "upstream_body",
]
