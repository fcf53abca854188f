"""POST /v1/responses: a generation, asked for and answered as OpenAI's newer clients speak."""

from typing import Any

from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_responses import sides


class Responses(ChatCompletions):
    """POST /v1/responses."""

    protocol = sides.NAME
    endpoint = "responses"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(body, raw_length)
