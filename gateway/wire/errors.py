"""Every way a request can fail, and the one table from an exception to what the client sees.

    GatewayError                      what the client is told
    ├── InvalidRequest                400  the body is not what the API takes
    ├── BodyTooLarge                  413
    ├── UnsupportedMediaType          415
    ├── Unauthenticated               401  one body for unknown, malformed, revoked and expired keys
    ├── Forbidden                     403  the key is good but may not do this
    ├── NotFound                      404  also another tenant's object
    ├── MethodNotAllowed              405
    ├── Conflict                      409  what an Idempotency-Key stands for is on its way, or is something else
    ├── InsufficientCredit            402  a budget has no room; SDKs do not retry it
    ├── RateLimited                   429  with Retry-After
    ├── TooManyReads                  422  of the management endpoints, as their documents have it; with Retry-After
    ├── UpgradeRequired               426  a WebSocket
    ├── HeadersTooLarge               431
    ├── Unavailable                   503  we cannot take paid work just now; with Retry-After
    └── UpstreamFault                 the provider failed; `kind` says how, the table below says what is shown

The leaves raise; `gateway/relay.py` decides; the caller's dialect says how it is told (`gateway/wire/dialects.py`), and
`GatewayError.body` renders it, for an answer and for a stream's last event. No message ever holds an upstream's body,
host or credential, nor more of a client's key than its last four characters.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gateway.wire.dialects import STANDARD, Dialect, ErrorRow
from routing.health.faults import Fault

AS_IT_IS = ErrorRow()
MEASURES = {"requests": "requests a minute", "tokens": "tokens a minute", "open": "open requests"}


def let_go(error: BaseException | None) -> None:
    """Frees what an error has come through, once it has been told.

    Its traceback holds the frames, and with them the request, its reader and its body; those hold the error. Only the
    collector would find such a circle, and it comes late. So would it one of errors: what is kept and raised anew while
    that is handled which it has caused has its own consequence for a context.
    """
    while error is not None:
        error.__traceback__ = None
        before = error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        error = before


class GatewayError(Exception):
    """What the client is told: HTTP status, OpenAI `type` and `code`, the offending `param`, and a message.

    These are the standard dialect's. `rules` are what other dialects know the error by, the most exact first.
    """

    status = 500
    type = "internal_server_error"
    code: str | None = "internal_server_error"
    plan: Any = None  # the `routing.planning.plan.Plan` that led nowhere, if that is why
    told = False  # `param` is a path in the client's own words, whichever protocol it speaks

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after  # whole seconds
        self.headers = headers or {}
        self.more: dict[str, Any] = {}  # what stands beside the error in its envelope
        if code is not None:
            self.code = code

    @property
    def rules(self) -> tuple[str, ...]:
        """Its own code and that of its kind."""
        return (self.code or "", type(self).code or "")

    def status_in(self, dialect: Dialect) -> int:
        """The HTTP status it has in a dialect."""
        return self._row(dialect).status or self.status

    def body(self, dialect: Dialect = STANDARD, request_id: str = "") -> dict[str, Any]:
        """The error in a dialect's envelope."""
        row, envelope = self._row(dialect), dialect.envelope
        said = {
            "message": envelope.message.format(message=row.message or self.message, request_id=request_id),
            "type": row.type or self.type,
            "param": self.param,
            "code": str(row.status or self.status) if envelope.status_as_code else row.code or self.code,
            "request_id": request_id or None,
        }
        fields = [name for name in envelope.fields if said[name] is not None or name not in envelope.optional]
        return {"error": {name: said[name] for name in fields}, **self.more}

    def _row(self, dialect: Dialect) -> ErrorRow:
        return next((dialect.errors[rule] for rule in self.rules if rule in dialect.errors), AS_IT_IS)


class InvalidRequest(GatewayError):
    status, type, code = 400, "invalid_request_error", "invalid_request"


class BodyTooLarge(GatewayError):
    status, type, code = 413, "invalid_request_error", "request_too_large"


class UnsupportedMediaType(GatewayError):
    status, type, code = 415, "invalid_request_error", "unsupported_media_type"


class Unauthenticated(GatewayError):
    status, type, code = 401, "authentication_error", "invalid_api_key"


class Forbidden(GatewayError):
    status, type, code = 403, "permission_error", "permission_denied"


class NotFound(GatewayError):
    status, type, code = 404, "invalid_request_error", "not_found"


class MethodNotAllowed(GatewayError):
    status, type, code = 405, "invalid_request_error", "method_not_allowed"


class Conflict(GatewayError):
    status, type, code = 409, "invalid_request_error", "conflict"


class InsufficientCredit(GatewayError):
    status, type, code = 402, "insufficient_credit", "insufficient_credit"


class RateLimited(GatewayError):
    status, type, code = 429, "rate_limit_error", "rate_limit_exceeded"

    @classmethod
    def reached(cls, whose: str, measure: str, limit: str, retry_after: int | None) -> "RateLimited":
        """`whose` (key, project, organization) limit of requests, tokens or open requests has no room."""
        return cls(
            f"The {whose}'s limit of {limit} {MEASURES[measure]} is reached.",
            retry_after=retry_after,
            headers={
                f"x-ratelimit-limit-{measure}": limit,
                f"x-ratelimit-remaining-{measure}": "0",
                f"x-ratelimit-reset-{measure}": f"{retry_after}s",
            },
        )


class TooManyReads(GatewayError):
    status, type, code = 422, "rate_limit_error", "too_many_reads"


class UpgradeRequired(GatewayError):
    """A WebSocket, which is not spoken here: OpenAI's clients go on over HTTP when they are told so."""

    status, type, code = 426, "invalid_request_error", "websocket_not_supported"


class HeadersTooLarge(GatewayError):
    status, type, code = 431, "invalid_request_error", "headers_too_large"


class Unavailable(GatewayError):
    status, type, code = 503, "service_unavailable", "service_unavailable"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the client sees for a fault: HTTP status, type, code, message; whether another offer may be tried."""

    status: int
    type: str
    code: str
    message: str
    retryable: bool = True


SHOWN: dict[Fault, Shown] = {
    Fault.UNREACHABLE: Shown(502, "upstream_error", "upstream_unreachable", "The provider could not be reached."),
    Fault.TIMEOUT: Shown(504, "upstream_error", "upstream_timeout", "The provider did not answer in time."),
    Fault.TRUNCATED: Shown(502, "upstream_error", "upstream_truncated", "The provider's answer broke off."),
    Fault.INVALID_RESPONSE: Shown(
        502, "upstream_error", "upstream_invalid_response", "The provider's answer could not be understood."
    ),
    Fault.AUTH: Shown(502, "upstream_error", "upstream_auth", "The provider refused the gateway's credential."),
    Fault.RATE_LIMITED: Shown(429, "rate_limit_error", "upstream_rate_limited", "The provider is rate limiting."),
    Fault.EXHAUSTED: Shown(
        429, "rate_limit_error", "upstream_exhausted", "The gateway's account at the provider is exhausted."
    ),
    Fault.OVERLOADED: Shown(503, "upstream_error", "upstream_overloaded", "The provider is overloaded."),
    Fault.SERVER_ERROR: Shown(502, "upstream_error", "upstream_error", "The provider failed."),
    Fault.NOT_FOUND: Shown(
        502, "upstream_error", "upstream_not_found", "The provider does not know what the gateway asked it for."
    ),
    Fault.REJECTED: Shown(
        400,
        "invalid_request_error",
        "upstream_rejected",
        "The provider rejected the request.",
        retryable=False,
    ),
    Fault.FORBIDDEN_ADDRESS: Shown(502, "upstream_error", "upstream_unreachable", "The provider could not be reached."),
}


class UpstreamFault(GatewayError):
    """A provider failed. `detail` is for the operator's log alone; the client sees `SHOWN[kind]`.

    `status` follows the table, but a REJECTED fault keeps the provider's own 400, 413 or 422 and, where that sent an
    OpenAI error object, its cleaned `message` and `code`, since they tell the client what to change.
    """

    def __init__(
        self,
        kind: Fault,
        detail: str = "",
        *,
        upstream_status: int | None = None,
        retry_after: int | None = None,
        message: str | None = None,
        code: str | None = None,
        param: str | None = None,
        unreadable: bool = False,
    ) -> None:
        shown = SHOWN[kind]
        super().__init__(message or shown.message, code=code or shown.code, param=param, retry_after=retry_after)
        self.kind = kind
        self.detail = detail[:500]
        self.upstream_status = upstream_status
        self.unreadable = unreadable  # an answer came, and nobody knows what it said
        self.sent = True  # the provider was sent the request, or may have been
        self.made = False  # it answered, and it is the request that made that too much: the answer is paid for
        self.stale = False  # on a kept connection that ended: the provider may not have seen it
        self.type = shown.type
        self.status = shown.status
        if kind is Fault.REJECTED and upstream_status in (400, 413, 422):
            self.status = upstream_status

    @property
    def rules(self) -> tuple[str, ...]:
        """The fault's code with its own code or the provider's status behind a slash, then alone.

        A rejected request has the provider's code, which must not be taken for one of ours.
        """
        shown = SHOWN[self.kind].code
        return (f"{shown}/{self.code}", f"{shown}/{self.upstream_status}", shown)

    @property
    def retryable(self) -> bool:
        """Whether another offer may be tried, as long as nothing meaningful has been relayed."""
        return SHOWN[self.kind].retryable or not self.sent

    def rename(self, over: Callable[[str], str]) -> None:
        """Puts names out of the words that a client is told; the operator's `detail` keeps them."""
        self.message = over(self.message)
        self.args = (self.message,)
        if self.param is not None:
            self.param = over(self.param)

    def hide(self, over: Callable[[str], str]) -> None:
        """Puts the upstream's words under a veil (`gateway.upstream.veil`)."""
        self.detail, self.message = over(self.detail), over(self.message)
        self.args = (self.message,)
        if self.param is not None:
            self.param = over(self.param)
        if self.code is not None and over(self.code) != self.code:
            self.code = SHOWN[self.kind].code


def not_carried(refusal: InvalidRequest) -> UpstreamFault:
    """What an offer cannot be asked for in its protocol: it is not dialled, and another one may be."""
    fault = UpstreamFault(
        Fault.REJECTED,
        refusal.message,
        upstream_status=refusal.status,
        message=refusal.message,
        code=refusal.code,
        param=refusal.param,
    )
    fault.sent, fault.told = False, refusal.told
    return fault
