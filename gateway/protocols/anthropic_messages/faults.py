"""How a provider of this protocol fails, and how a client of it is told.

    {"type": "error", "error": {"type": "overloaded_error", "message": "…"}, "request_id": "…"}

As an HTTP body, and as the event that ends a stream. What an error of a provider means is read where those of all
providers are (`openai_chat.faults`); here are only the words that are this protocol's own.
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.protocols.openai_chat import faults
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.health.faults import Fault

OVERLOADED = 529  # its own status, which official SDKs know

# How a client is told, by the HTTP status; any other one is an `api_error`, or the request's fault below 500.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    OVERLOADED: "overloaded_error",
}
# The exceptions of AWS's event streams (Bedrock's InvokeModelWithResponseStream), which come with a name and a message.
_EXCEPTIONS = {
    "throttlingException": "rate_limit_error",
    "serviceUnavailableException": "overloaded_error",
    "modelTimeoutException": "timeout_error",
    "validationException": "invalid_request_error",
}
# Those that an AWS service answers with instead of a stream, by the name in a header, where its status says less.
_NAMED = {
    "AccessDeniedException": Fault.AUTH,
    "ExpiredTokenException": Fault.AUTH,
    "IncompleteSignatureException": Fault.AUTH,
    "InvalidSignatureException": Fault.AUTH,
    "MissingAuthenticationTokenException": Fault.AUTH,
    "UnrecognizedClientException": Fault.AUTH,
    "ModelNotReadyException": Fault.OVERLOADED,
    "ModelTimeoutException": Fault.TIMEOUT,
    "ServiceQuotaExceededException": Fault.EXHAUSTED,
    "ThrottlingException": Fault.RATE_LIMITED,
}
# A model that is not there, or not to be had under this name: 400, and nothing that the client could change.
_no_model = re.compile(rb"model identifier is invalid|on-demand throughput is(?:n.t| not) supported").search


def fault(status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
    """The fault of an answer whose status is not 2xx."""
    found = faults.fault_from_response(status, headers, body)
    name = next((headers[name] for name in headers if name.lower() == "x-amzn-errortype"), "").partition(":")[0]
    kind = _NAMED.get(name, found.kind)
    if name == "ValidationException" and _no_model(body):
        kind = Fault.NOT_FOUND
    if kind is found.kind:
        return found
    return UpstreamFault(kind, found.detail, upstream_status=status, retry_after=found.retry_after)


def fault_in_answer(event: dict[str, Any]) -> UpstreamFault:
    """The fault of an error that came in a 200, as an event or as the whole body."""
    error = event.get("error") or event
    if type(error) is dict and error.get("type") == "timeout_error":
        return UpstreamFault(Fault.TIMEOUT, "in a 200: timeout_error")
    return faults.fault_in_answer(error, strict_json.dumps(event))


def exception_event(name: str, payload: bytes) -> dict[str, Any]:
    """An exception of an AWS event stream as the event `error` that this protocol has for it."""
    try:
        said = strict_json.loads(payload)
    except strict_json.BadJson:
        said = None
    message = (said.get("message") or said.get("Message")) if type(said) is dict else None
    kind = _EXCEPTIONS.get(name[:1].lower() + name[1:], "api_error")
    return {"type": "error", "error": {"type": kind, "message": message if type(message) is str else name}}


def status_of(error: GatewayError) -> int:
    """The HTTP status that a client of this protocol is told an error by."""
    overloaded = isinstance(error, UpstreamFault) and error.kind is Fault.OVERLOADED
    return OVERLOADED if overloaded else error.status


def envelope(error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> dict[str, Any]:
    """The error as a client of this protocol is told it; `param` and `code` are ours, beside what its SDK reads."""
    status = status_of(error)
    told = error.body(dialect, request_id)
    kind = _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    inner = {"type": kind, "message": told["error"]["message"]}
    more = {name: value for name, value in (("param", error.param), ("code", error.code)) if value is not None}
    beside = {name: value for name, value in told.items() if name != "error"}
    return {"type": "error", "error": inner | more, **({"request_id": request_id} if request_id else {}), **beside}


def error_event(error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> bytes:
    """The event that ends a stream which failed after it began. No `message_stop` follows it."""
    return b"event: error\ndata: " + strict_json.dumps(envelope(error, dialect, request_id)) + b"\n\n"
