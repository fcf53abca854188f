"""POST /v1/responses: a generation, asked for and answered as OpenAI's newer clients speak."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from django.core.handlers.asgi import ASGIRequest

from gateway.door.answers import Answer
from gateway.endpoints.chat import ChatCompletions
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_responses import carried, sides
from gateway.request import sealed_ids
from gateway.wire.errors import UpgradeRequired


class Responses(ChatCompletions):
    """POST /v1/responses."""

    protocol = sides.NAME
    endpoint = "responses"

    def read(self, body: Any, raw_length: int, **path: str) -> ChatRequest:
        """A parsed body, checked. Raises `InvalidRequest`."""
        opened = partial(sealed_ids.opened, organization=self.caller.organization)
        return sides.read(body, raw_length, opened, carries=carried.needed(self.fields.get(b"user-agent", b"")))

    def _handler(self, request: ASGIRequest) -> Callable[..., Awaitable[Answer]]:
        if request.method == "GET" and b"sec-websocket-key" in self.fields:  # the server has let `Upgrade` go
            raise UpgradeRequired("There are no WebSockets here. Use POST /v1/responses, with stream: true.")
        return super()._handler(request)
