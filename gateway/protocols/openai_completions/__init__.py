"""The legacy OpenAI completions protocol, both directions, without I/O: a text is gone on with, or a gap in it filled.

Editors use it. It is spoken to providers that have it, and translated to no other.
"""

from gateway.protocols.openai_chat import error_event, fault_from_response
from gateway.protocols.openai_completions.answer import AnswerReader
from gateway.protocols.openai_completions.request import CompletionRequest, parse, upstream_body

__all__ = ["AnswerReader", "CompletionRequest", "error_event", "fault_from_response", "parse", "upstream_body"]
