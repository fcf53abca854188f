"""The API's own DRF view: asynchronous, answering with ready bytes, errors in the envelope of the caller's dialect.

What of DRF's `APIView` would run before a handler (content negotiation, parsers, authenticators, throttles) is done
elsewhere and earlier: the caller is known and the size checked before the body is read. The stock handler has no such
step, so the view authenticates there itself; a parity test sends one corpus through both.
"""

import logging
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from rest_framework.request import Request
from rest_framework.views import APIView

from accounts.callers import Caller
from billing.ids import new_hex
from gateway import process, strict_json, telemetry
from gateway.authentication import authenticate, require
from gateway.dialects import Dialect, named
from gateway.errors import (
    BodyTooLarge,
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    UnsupportedMediaType,
)

logger = logging.getLogger(__name__)

METHODS = {"get": "GET, HEAD", "post": "POST", "delete": "DELETE"}
HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")
RATE_HEADERS = ("retry-after", "ratelimit-", "x-ratelimit-")


class ApiView(APIView):
    """A view of the API. `scope` and `endpoint` are what a key needs; a `public` view needs no key.

    What is `for_pages` may be read by pages of other origins in a browser (CORS).
    """

    public: ClassVar[bool] = False
    for_pages: ClassVar[bool] = True
    scope: ClassVar[str] = "inference"
    endpoint: ClassVar[str] = ""
    caller: Caller
    dialect: Dialect
    request_id: str

    async def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:  # type: ignore[override]
        """Runs the handler of the request's method; every failure becomes an answer in the envelope."""
        self.args, self.kwargs = args, kwargs
        self.request_id = getattr(request, "request_id", None) or new_request_id()
        self.dialect = default_dialect()
        response: HttpResponseBase
        try:
            if request.method == "OPTIONS":
                response = self._preflight(request)
            else:
                handler = self._handler(request)
                if not self.public:
                    caller: Caller | None = getattr(request, "caller", None)
                    self.caller = caller or await authenticate(process.current().snapshots, *origin(request))
                    self.dialect = named(self.caller.dialect)
                    self.check_rights()
                self.request = Request(request)
                # For DRF's parsers, which do not run here; it names the request itself, and such a ring a request is
                # what the garbage collector would stop everything for, 10 ms a second at a thousand requests.
                self.request.parser_context.clear()
                response = await handler(self.request, *args, **kwargs)
        except Exception as error:
            response = failure(error, self.request_id, self.dialect)
        page = request.META.get("HTTP_ORIGIN", "") if self.for_pages else None
        return answered(response, self.request_id, self.dialect, page)

    def check_rights(self) -> None:
        """Raises `Forbidden` unless the key has the scope and may call the endpoint."""
        require(self.caller, self.scope, self.endpoint)

    def _handler(self, request: HttpRequest) -> Any:
        method = (request.method or "").lower()
        handler = (
            getattr(self, "get" if method == "head" else method, None) if method in self.http_method_names else None
        )
        if handler is None or method == "trace":
            allowed = self._allowed()
            raise MethodNotAllowed(f"This endpoint takes {allowed}.", headers={"Allow": allowed})
        return handler

    def _allowed(self) -> str:
        return ", ".join([*(names for method, names in METHODS.items() if hasattr(self, method)), "OPTIONS"])

    def _preflight(self, request: HttpRequest) -> HttpResponse:
        """What a browser asks before it lets a page call another origin; it sends no key with this."""
        asked = request.META.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")
        allowed = self._allowed()
        headers = {
            "Allow": allowed,
            "Access-Control-Allow-Methods": allowed,
            # SDKs send many headers of their own. None of them opens anything, so whatever is asked for is allowed.
            "Access-Control-Allow-Headers": asked if HEADER_NAMES.fullmatch(asked) else "authorization, content-type",
            "Access-Control-Max-Age": "7200",
        }
        response = HttpResponse(status=204, headers=headers)
        del response["Content-Type"]
        return response

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
    """An event stream whose `first` part is there already; `parts` is the generator of the rest, itself, so that a
    handler can end it and its generation with it.
    """

    def __init__(self, first: bytes, parts: AsyncGenerator[bytes]) -> None:
        super().__init__(_joined(first, parts), content_type="text/event-stream; charset=utf-8")
        self.first = first
        self.parts = parts
        self["Cache-Control"] = "no-cache, no-transform"
        self["X-Accel-Buffering"] = "no"  # nginx must not wait for a full buffer


async def _joined(first: bytes, parts: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    """For the stock handler, which takes one iterator."""
    async with aclosing(parts):
        yield first
        async for part in parts:
            yield part


def origin(request: HttpRequest) -> tuple[list[tuple[bytes, bytes]], str]:
    """The raw headers and the socket's peer of a request under ASGI."""
    scope = request.scope  # type: ignore[attr-defined]
    return scope["headers"], (scope.get("client") or ("", 0))[0]


def new_request_id() -> str:
    """32 hex digits."""
    return new_hex()


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> HttpResponse:
    """`value` as JSON."""
    return HttpResponse(strict_json.dumps(value), "application/json", status, headers=headers)


def default_dialect() -> Dialect:
    """The dialect for whoever is not known yet."""
    return named(settings.DEFAULT_DIALECT)


def error_response(error: GatewayError, request_id: str, dialect: Dialect) -> HttpResponse:
    """An error as the dialect tells it."""
    status = error.status_in(dialect)
    response = json_response(error.body(dialect, request_id), status, error.headers)
    if error.retry_after is not None:
        response["Retry-After"] = str(error.retry_after)
    if status == 401:
        response["WWW-Authenticate"] = "Bearer"
    if not dialect.rate_headers:
        for name in [name for name, _ in response.items() if name.lower().startswith(RATE_HEADERS)]:
            del response[name]
    return response


def failure(error: Exception, request_id: str, dialect: Dialect) -> HttpResponse:
    """The answer to any failure. What is not meant for the client goes to the log alone."""
    if isinstance(error, RequestDataTooBig):  # the stock handler's word; the lean one has counted before
        error = body_too_large()
    elif isinstance(error, SuspiciousOperation):
        error = InvalidRequest("The query string has too many fields.", code="invalid_query")
    elif not isinstance(error, GatewayError):
        logger.error("unexpected, request %s", request_id, exc_info=error)
        error = GatewayError("Something went wrong on our side. Tell us the x-request-id.")
    return error_response(error, request_id, dialect)


def body_too_large(limit: int | None = None) -> BodyTooLarge:
    """The refusal of a body past `limit` bytes, by default the API's."""
    limit = settings.MAX_BODY_BYTES if limit is None else limit
    return BodyTooLarge(f"The body is larger than the limit of {limit} bytes.")


def answered(response: HttpResponseBase, request_id: str, dialect: Dialect, page: str | None) -> HttpResponseBase:
    """`response` as it leaves: named, counted, and open to the page that asks.

    `page` is the request's Origin, "" when it has none, None when no page may read the answer.
    """
    for name in dialect.request_id_headers:
        response[name] = request_id
    if dialect.build_header:
        response[dialect.build_header] = settings.BUILD
    for name, value in dialect.headers.items():
        response[name] = value
    if page is not None:
        _open_to(response, page)
    telemetry.answers.count(response.status_code)
    return response


def _open_to(response: HttpResponseBase, page: str) -> None:
    origins = settings.CORS_ALLOW_ORIGINS
    if "*" in origins:
        page = "*"
    elif origins:
        response["Vary"] = "Origin"
    if page in origins:
        response["Access-Control-Allow-Origin"] = page
        response["Access-Control-Expose-Headers"] = "*"


class UnknownPath(ApiView):
    """Whatever the API does not serve."""

    public = True

    async def get(self, request: Request, *path: str) -> HttpResponse:
        """404 in the envelope, in the dialect of the key when a good one came along."""
        with suppress(GatewayError):
            caller = await authenticate(process.current().snapshots, *origin(request._request))
            self.dialect = named(caller.dialect)
        raise NotFound("There is no such endpoint. The API lives under /v1.")

    post = put = patch = delete = get
