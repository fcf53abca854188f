"""The API's own DRF view: asynchronous, answering with ready bytes, errors in the envelope of the caller's dialect.

What of DRF's `APIView` would run before a handler (content negotiation, parsers, authenticators, throttles) is done
elsewhere and earlier: the caller is known and the size checked before the body is read. So a handler is given Django's
own request, which DRF's would only wrap. The stock handler has no such steps, so the view authenticates there itself; a
parity test sends one corpus through both.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponseBase
from rest_framework.views import APIView

from accounts.callers import Caller
from billing.ids import new_hex
from gateway.door.answers import JSON, Answer, error_answer, raw, raw_name
from gateway.door.authentication import authenticate, require
from gateway.door.exchange import FIELDS
from gateway.process import process, telemetry
from gateway.process.arrivals import Arrival
from gateway.process.memory import NOBODY, Share
from gateway.protocols import CHAT
from gateway.request.planning import Call
from gateway.wire.dialects import Dialect, named
from gateway.wire.errors import (
    BodyTooLarge,
    GatewayError,
    InvalidRequest,
    MethodNotAllowed,
    UnsupportedMediaType,
    let_go,
)
from gateway.wire.header_fields import Fields, by_name

logger = logging.getLogger(__name__)

METHODS = {"get": "GET, HEAD", "post": "POST", "delete": "DELETE"}
HANDLERS = {"GET": "get", "HEAD": "get", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
HEADER_NAMES = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~, -]{1,2000}")
DEFAULT_DIALECT = named(settings.DEFAULT_DIALECT)  # for whoever is not known yet
ORIGINS = frozenset(origin.encode() for origin in settings.CORS_ALLOW_ORIGINS)
ANY_ORIGIN = b"*"


class ApiView(APIView):
    """A view of the API. `scope` and `endpoint` are what a key needs; a `public` view needs no key.

    What is `for_pages` may be read by pages of other origins in a browser (CORS).
    """

    public: ClassVar[bool] = False
    protocol: str = CHAT  # that its clients are told errors in
    for_pages: ClassVar[bool] = True
    scope: ClassVar[str] = "inference"
    endpoint: ClassVar[str] = ""
    fields: Fields
    caller: Caller
    arrival: Arrival | None = None  # how it counts until it is held for
    dialect: Dialect
    request_id: str
    call: Call | None = None  # what was asked, once that is known
    share: Share  # of the process's memory; what the view takes of it is held until its answer is out

    async def dispatch(self, request: ASGIRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:  # type: ignore[override]
        """Answers a request of Django's stock handler."""
        return (await self.answer(request, new_request_id(), *args, **kwargs)).django()

    async def answer(
        self,
        request: ASGIRequest,
        request_id: str,
        *args: Any,
        caller: Caller | None = None,
        share: Share | None = None,
        **kwargs: Any,
    ) -> Answer:
        """Runs the handler of the request's method; every failure becomes an answer in the envelope.

        `caller` is whose key it is, where that has been found out, and `share` what is held of memory for the request.
        """
        self.request = request  # type: ignore[assignment]
        self.share = share or Share(NOBODY, NOBODY)
        self.fields = fields_of(request.scope)
        self.request_id, self.dialect = request_id, DEFAULT_DIALECT
        try:
            if request.method == "OPTIONS":
                answer = self._preflight()
            else:
                handler = self._handler(request)
                if not self.public:
                    self.caller = caller or await authenticate(process.current().snapshots, *origin(request.scope))
                    self.dialect = named(self.caller.dialect)
                    self.check_rights()
                answer = await handler(request, *args, **kwargs)
        except Exception as error:
            answer = failure(error, request_id, self.dialect, self.protocol)
        page = self.fields.get(b"origin", b"") if self.for_pages else None
        return answered(answer, request_id, self.dialect, page)

    def check_rights(self) -> None:
        """Raises `Forbidden` unless the key has the scope and may call the endpoint."""
        require(self.caller, self.scope, self.endpoint)

    def _handler(self, request: ASGIRequest) -> Callable[..., Awaitable[Answer]]:
        handler: Callable[..., Awaitable[Answer]] | None = getattr(self, HANDLERS.get(request.method or "", ""), None)
        if handler is None:
            allowed = self._allowed()
            raise MethodNotAllowed(f"This endpoint takes {allowed}.", headers={"Allow": allowed})
        return handler

    def _allowed(self) -> str:
        return ", ".join([*(names for method, names in METHODS.items() if hasattr(self, method)), "OPTIONS"])

    def _preflight(self) -> Answer:
        """What a browser asks before it lets a page call another origin; it sends no key with this."""
        asked = self.fields.get(b"access-control-request-headers", b"")
        allowed = self._allowed()
        answer = Answer(b"", None, 204, {"Allow": allowed, "Access-Control-Allow-Methods": allowed})
        answer.headers |= {
            # SDKs send many headers of their own. None of them opens anything, so whatever is asked for is allowed.
            b"access-control-allow-headers": asked if HEADER_NAMES.fullmatch(asked) else b"authorization, content-type",
            b"access-control-max-age": b"7200",
        }
        return answer

    def body(self) -> bytes:
        """The JSON body as sent. Raises `UnsupportedMediaType` for another type, or a coded body."""
        media = self.fields.get(b"content-type", JSON)
        if media != JSON and media.partition(b";")[0].strip().lower() not in (b"", JSON):
            raise UnsupportedMediaType("Send the body as application/json.")
        self.check_uncoded()
        return self.request.body

    def check_uncoded(self) -> None:
        """Raises `UnsupportedMediaType` for a coded body."""
        coding = self.fields.get(b"content-encoding")
        if coding is not None and coding.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType("Send the body without a Content-Encoding.")


def fields_of(scope: Mapping[str, Any]) -> Fields:
    """A request's header fields by name, as our server has them already."""
    fields: Fields | None = scope.get(FIELDS)
    return by_name(scope["headers"]) if fields is None else fields


def origin(scope: Mapping[str, Any]) -> tuple[list[tuple[bytes, bytes]], str]:
    """The raw headers and the socket's peer of a request."""
    return scope["headers"], (scope.get("client") or ("", 0))[0]


def new_request_id() -> str:
    """32 hex digits."""
    return new_hex()


def failure(error: Exception, request_id: str, dialect: Dialect, protocol: str = CHAT) -> Answer:
    """The answer to any failure. What is not meant for the client goes to the log alone."""
    if isinstance(error, RequestDataTooBig):  # the stock handler's word; the lean one has counted before
        error = body_too_large()
    elif isinstance(error, SuspiciousOperation):
        error = InvalidRequest("The query string has too many fields.", code="invalid_query")
    elif not isinstance(error, GatewayError):
        logger.error("unexpected, request %s", request_id, exc_info=error)
        let_go(error)
        error = GatewayError("Something went wrong on our side. Tell us the x-request-id.")
    let_go(error)
    return error_answer(error, request_id, dialect, protocol)


def body_too_large(limit: int | None = None) -> BodyTooLarge:
    """The refusal of a body past `limit` bytes, by default the API's."""
    limit = settings.MAX_BODY_BYTES if limit is None else limit
    return BodyTooLarge(f"The body is larger than the limit of {limit} bytes.")


def answered(answer: Answer, request_id: str, dialect: Dialect, page: bytes | None) -> Answer:
    """`answer` as it leaves: named, counted, and open to the page that asks.

    `page` is the request's Origin, empty when it has none, None when no page may read the answer.
    """
    headers, id = answer.headers, request_id.encode()
    for name in dialect.request_id_headers:
        headers[raw_name(name)] = id
    if dialect.build_header:
        headers[raw_name(dialect.build_header)] = settings.BUILD.encode()
    if dialect.headers:
        headers.update(raw(dialect.headers))
    if page is not None:
        if ANY_ORIGIN in ORIGINS:
            page = ANY_ORIGIN
        elif ORIGINS:
            headers[b"vary"] = b"Origin"
        if page in ORIGINS:
            headers[b"access-control-allow-origin"] = page
            headers[b"access-control-expose-headers"] = b"*"
    telemetry.answers.count(answer.status)
    return answer
