"""The API's own DRF view: asynchronous, answering with ready bytes, errors in the one envelope.

What of DRF's `APIView` would run before a handler (content negotiation, parsers, authenticators, throttles) is done
elsewhere and earlier: the caller is known and the size checked before the body is read. The stock handler has no such
step, so the view authenticates there itself; a parity test sends one corpus through both.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.callers import Caller
from gateway import process, strict_json, telemetry
from gateway.authentication import authenticate, require
from gateway.errors import GatewayError, MethodNotAllowed, NotFound, UnsupportedMediaType

logger = logging.getLogger(__name__)


class ApiView(APIView):
    """A view of the API. `scope` and `endpoint` are what a key needs; a `public` view needs no key."""

    public: ClassVar[bool] = False
    scope: ClassVar[str] = "inference"
    endpoint: ClassVar[str] = ""
    caller: Caller
    request_id: str

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:  # type: ignore[override]
        """Runs the handler of the request's method; every failure becomes an answer in the envelope."""
        self.args, self.kwargs = args, kwargs
        self.request_id = getattr(request, "request_id", None) or new_request_id()
        try:
            handler = self._handler(request)
            if not self.public:
                caller: Caller | None = getattr(request, "caller", None)
                self.caller = caller or await authenticate(process.current().snapshots, *origin(request))
                require(self.caller, self.scope, self.endpoint)
            self.request = Request(request)
            response: HttpResponseBase = await handler(self.request, *args, **kwargs)
        except GatewayError as error:
            response = error_response(error)
        except Exception:
            logger.exception("unexpected, request %s", self.request_id)
            response = error_response(GatewayError("Something went wrong on our side. Tell us the x-request-id."))
        response["x-request-id"] = self.request_id
        telemetry.answers.labels(str(response.status_code)).inc()
        return response

    def _handler(self, request: HttpRequest) -> Any:
        method = (request.method or "").lower()
        handler = (
            getattr(self, "get" if method == "head" else method, None) if method in self.http_method_names else None
        )
        if handler is None or method in ("options", "trace"):
            allowed = ", ".join(name.upper() for name in ("get", "post", "delete") if hasattr(self, name))
            raise MethodNotAllowed(f"This endpoint takes {allowed}.", headers={"Allow": allowed})
        return handler

    def body(self) -> bytes:
        """The JSON body as sent. Raises `UnsupportedMediaType` for another type, or a coded body."""
        meta = self.request.META
        media = meta.get("CONTENT_TYPE", "").partition(";")[0].strip().lower()
        if media not in ("", "application/json"):
            raise UnsupportedMediaType("Send the body as application/json.")
        if meta.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() not in ("", "identity"):
            raise UnsupportedMediaType("Send the body without a Content-Encoding.")
        body: bytes = self.request._request.body
        return body


class EventStream(StreamingHttpResponse):
    """An event stream. `parts` is the generator itself, so that a handler can end it and its generation with it."""

    def __init__(self, parts: AsyncGenerator[bytes]) -> None:
        super().__init__(parts, content_type="text/event-stream; charset=utf-8")
        self.parts = parts
        self["Cache-Control"] = "no-cache, no-transform"
        self["X-Accel-Buffering"] = "no"  # nginx must not wait for a full buffer


def origin(request: HttpRequest) -> tuple[list[tuple[bytes, bytes]], str]:
    """The raw headers and the socket's peer of a request under ASGI."""
    scope = request.scope  # type: ignore[attr-defined]
    return scope["headers"], (scope.get("client") or ("", 0))[0]


def new_request_id() -> str:
    """32 hex digits."""
    return secrets.token_hex(16)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """`value` as JSON."""
    return HttpResponse(strict_json.dumps(value), "application/json", status, headers=headers)


def error_response(error: GatewayError) -> HttpResponse:
    """An error in OpenAI's envelope."""
    response = json_response(error.body(), error.status, error.headers)
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


class UnknownPath(ApiView):
    """Whatever the API does not serve."""

    public = True

    async def get(self, request: Request, **kwargs: str) -> HttpResponse:
        """404 in the envelope."""
        raise NotFound("There is no such endpoint. The API lives under /v1.")

    post = put = patch = delete = get
