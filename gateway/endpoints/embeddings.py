"""POST /v1/embeddings: vectors of texts, held, priced and accounted for as a chat is."""

from typing import Any

from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_embeddings import sides
from gateway.protocols.prompts import MOST_VALUES


class Embeddings(ChatCompletions):
    """POST /v1/embeddings."""

    endpoint = "embeddings"
    most_values = MOST_VALUES

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(body, self.dialect)
