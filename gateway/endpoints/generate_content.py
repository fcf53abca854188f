"""POST /v1beta/models/{model}:generateContent: a generation, asked for and answered as Google's clients speak."""

from typing import Any

from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.google_gemini import sides
from gateway.protocols.openai_chat import ChatRequest


class GenerateContent(ChatCompletions):
    """POST /v1beta/models/{model}:generateContent and :streamGenerateContent."""

    protocol = sides.NAME
    endpoint = "generateContent"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        return sides.read(
            body,
            raw_length,
            model=path["name"],
            stream=path["method"] == "streamGenerateContent",
            events=self.request.GET.get("alt") == "sse",
        )
