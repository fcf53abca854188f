"""POST /v1/completions: a text gone on with, or a gap in it filled, as OpenAI's older clients and editors ask."""

from typing import Any

from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_completions import sides
from gateway.protocols.prompts import MOST_VALUES


class Completions(ChatCompletions):
    """POST /v1/completions."""

    endpoint = "completions"
    most_values = MOST_VALUES

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(body, self.dialect)
