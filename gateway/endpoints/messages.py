"""POST /v1/messages: a generation, asked for and answered as Anthropic's clients speak, and the count of its tokens."""

from typing import Any

from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.anthropic_messages import sides
from gateway.protocols.openai_chat import ChatRequest


class Messages(ChatCompletions):
    """POST /v1/messages."""

    protocol = sides.NAME
    endpoint = "messages"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(body, raw_length, self.fields)
