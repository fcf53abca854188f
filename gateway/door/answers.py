"""What the API's views answer: ready bytes under ready headers, which nobody turns, checks and copies on their way.

Django's own responses do all of that, for each header. Its stock handler is given one all the same (`django`).
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import Any

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

from gateway.protocols import CHAT, PROTOCOLS
from gateway.wire import strict_json
from gateway.wire.dialects import Dialect
from gateway.wire.errors import GatewayError

JSON = b"application/json"
RATE_HEADERS = (b"retry-after", b"ratelimit-", b"x-ratelimit-")
STREAM_HEADERS = {
    b"content-type": b"text/event-stream; charset=utf-8",
    b"cache-control": b"no-cache, no-transform",
    b"x-accel-buffering": b"no",  # nginx must not wait for a full buffer
}
NO_HEADERS: Mapping[str, str] = {}


class Answer:
    """A whole answer: its status, its headers by their names in lower case, as ASGI has them, and its body.

    One without a body, such as 204 and 304, has no `media_type`. `error` is what a refusal tells.
    """

    __slots__ = ("body", "error", "headers", "status")

    def __init__(
        self, body: bytes, media_type: bytes | None, status: int = 200, headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        self.status = status
        self.body = body
        self.error: GatewayError | None = None
        self.headers: dict[bytes, bytes] = {} if media_type is None else {b"content-type": media_type}
        if headers:
            self.headers.update(raw(headers))

    def django(self) -> HttpResponseBase:
        """The same as Django's own response."""
        return _with_headers(HttpResponse(self.body, status=self.status), self.headers)


class Streamed(Answer):
    """An answer whose `body` is its first part, there already; `parts` is the generator of the rest, itself, so that a
    handler can end it and its generation with it. A generator that raises leaves an answer that is not whole.
    """

    __slots__ = ("parts",)

    def __init__(self, first: bytes, parts: AsyncGenerator[bytes], media_type: bytes | None) -> None:
        super().__init__(first, media_type)
        self.parts = parts

    def django(self) -> HttpResponseBase:
        """The same as Django's own response, of one iterator."""
        return _with_headers(StreamingHttpResponse(self._joined(), status=self.status), self.headers)

    async def _joined(self) -> AsyncGenerator[bytes]:
        async with aclosing(self.parts):
            yield self.body
            async for part in self.parts:
                yield part


class EventStream(Streamed):
    """An event stream."""

    __slots__ = ()

    def __init__(self, first: bytes, parts: AsyncGenerator[bytes]) -> None:
        super().__init__(first, parts, None)
        self.headers |= STREAM_HEADERS


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] = NO_HEADERS) -> Answer:
    """`value` as JSON."""
    return Answer(strict_json.dumps(value), JSON, status, headers)


def error_answer(error: GatewayError, request_id: str, dialect: Dialect, protocol: str = CHAT) -> Answer:
    """An error as the protocol's clients and their dialect tell it."""
    client = PROTOCOLS[protocol].client
    status = client.status(error, dialect)
    answer = json_answer(client.error(error, dialect, request_id), status, error.headers)
    answer.error = error
    if error.retry_after is not None:
        answer.headers[b"retry-after"] = b"%d" % error.retry_after
    if status == 401:
        answer.headers[b"www-authenticate"] = b"Bearer"
    if not dialect.rate_headers:
        for name in [name for name in answer.headers if name.startswith(RATE_HEADERS)]:
            del answer.headers[name]
    return answer


def raw(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Headers as they go out."""
    return {raw_name(name): value.encode("latin-1") for name, value in headers.items()}


@lru_cache(maxsize=256)
def raw_name(name: str) -> bytes:
    """A header's name as it goes out: HTTP/2 and ASGI know lower case alone."""
    return name.lower().encode("ascii")


def _with_headers(response: HttpResponseBase, headers: Mapping[bytes, bytes]) -> HttpResponseBase:
    del response["Content-Type"]
    for name, value in headers.items():
        response[name.decode("ascii")] = value.decode("latin-1")
    return response
