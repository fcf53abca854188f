"""POST /v1beta/models/{model}:generateContent: a generation, asked for and answered as Google's clients speak, and the
count of its tokens.
"""

from typing import Any

from django.http import HttpRequest

from gateway.door.answers import Answer
from gateway.endpoints.chat import Chat, ChatCompletions, Count
from gateway.process import process
from gateway.protocols.google_gemini import sides
from gateway.protocols.openai_chat import ChatRequest
from gateway.request.naming import reachable


class Gemini(Chat):
    """A view of this protocol, whose paths have the model in them."""

    protocol = sides.NAME
    endpoint = "generateContent"

    def named(self, *, name: str, publisher: str = "", **more: str) -> str:
        """The model that a path names: an SDK in its Vertex mode puts a publisher before a bare name."""
        if publisher and reachable(process.current().snapshots.current, self.caller, f"{publisher}/{name}"):
            return f"{publisher}/{name}"
        return name


class GenerateContent(ChatCompletions, Gemini):
    """POST /v1beta/models/{model}:generateContent."""

    streams = False

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        events = self.request.GET.get("alt") == "sse"
        return sides.read(body, raw_length, model=self.named(**path), stream=self.streams, events=events)


class StreamGenerateContent(GenerateContent):
    """POST /v1beta/models/{model}:streamGenerateContent."""

    streams = True


class CountContent(Count, Gemini):
    """POST /v1beta/models/{model}:countTokens, for whoever may call generateContent."""

    field = "totalTokens"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, of contents or of a whole request, checked. Raises `InvalidRequest`."""
        return sides.read_counted(body, raw_length, model=self.named(**path))

    async def post(self, request: HttpRequest, **path: str) -> Answer:
        """Counts the tokens of contents."""
        return await self.counted(**path)
