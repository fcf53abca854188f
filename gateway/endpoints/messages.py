"""POST /v1/messages: a generation, asked for and answered as Anthropic's clients speak, and the count of its tokens."""

from typing import Any

from django.http import HttpRequest

from gateway.door.answers import Answer
from gateway.endpoints.chat import ChatCompletions, Count
from gateway.protocols.anthropic_messages import sides
from gateway.protocols.openai_chat import ChatRequest


class Messages(ChatCompletions):
    """POST /v1/messages."""

    protocol = sides.NAME
    endpoint = "messages"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(body, raw_length, self.fields)


class CountTokens(Count):
    """POST /v1/messages/count_tokens, for whoever may call /v1/messages."""

    protocol = sides.NAME
    endpoint = "messages"
    field = "input_tokens"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, which has no cap, checked. Raises `InvalidRequest`."""
        return sides.read({**body, "max_tokens": 1} if type(body) is dict else body, raw_length, self.fields)

    async def post(self, request: HttpRequest) -> Answer:
        """Counts the tokens of a message."""
        return await self.counted()
