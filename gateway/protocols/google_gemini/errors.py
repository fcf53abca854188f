"""Failures in Google's form, both ways: {"error": {"code": HTTP status, "message", "status": word, "details": [...]}}.

From a provider: its status and its details say more than its HTTP status. A quota that comes back in a minute is told
by RetryInfo, and one of a day by its name; a key that is refused is a 400; so is a place or an account that it does not
serve. To a client: its SDK raises by the HTTP status, and its tools read the details.
"""

import re
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from gateway.protocols.openai_chat.faults import fault_from_response
from gateway.wire import strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.health.faults import Fault

_TYPE = "type.googleapis.com/google.rpc."
# The reason of an ErrorInfo, or else the error's status: what has happened. Others mean what their HTTP status does.
_REASONS = {
    "API_KEY_INVALID": Fault.AUTH,
    "API_KEY_SERVICE_BLOCKED": Fault.AUTH,
    "API_KEY_HTTP_REFERRER_BLOCKED": Fault.AUTH,
    "API_KEY_IP_ADDRESS_BLOCKED": Fault.AUTH,
    "ACCESS_TOKEN_EXPIRED": Fault.AUTH,
    "SERVICE_DISABLED": Fault.AUTH,
    "CONSUMER_SUSPENDED": Fault.EXHAUSTED,
    "BILLING_DISABLED": Fault.EXHAUSTED,
    "USER_PROJECT_DENIED": Fault.AUTH,
    "FAILED_PRECONDITION": Fault.AUTH,  # a place, or an account without billing, that it does not serve
    "UNAUTHENTICATED": Fault.AUTH,
    "PERMISSION_DENIED": Fault.AUTH,
    "UNAVAILABLE": Fault.OVERLOADED,
    "DEADLINE_EXCEEDED": Fault.TIMEOUT,
    "INTERNAL": Fault.SERVER_ERROR,
    "UNKNOWN": Fault.SERVER_ERROR,
    "CANCELLED": Fault.SERVER_ERROR,
    "DATA_LOSS": Fault.SERVER_ERROR,
    "UNIMPLEMENTED": Fault.SERVER_ERROR,
}
_seconds = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?s").fullmatch
_of_a_day = re.compile(r"per_?(?:day|month)", re.IGNORECASE).search

# Google's word for an HTTP status.
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "FAILED_PRECONDITION",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    415: "INVALID_ARGUMENT",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    431: "INVALID_ARGUMENT",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def fault(status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
    """The fault of an answer of a provider whose status is not 2xx. `body` may be cut short, and of any form."""
    error = _error(body)
    after = _retry_after(error)
    if after is not None and not any(name.lower() == "retry-after" for name in headers):
        headers = {**headers, "retry-after": str(after)}
    found = fault_from_response(status, headers, body)
    kind = _kind(error, status, found.kind)
    if kind is found.kind:
        return found
    return UpstreamFault(kind, found.detail, upstream_status=status, retry_after=found.retry_after)


def envelope(error: GatewayError, told: str | None = None, dialect: Dialect = STANDARD, id: str = "") -> dict[str, Any]:
    """An error for a client. `told` is the parameter's path in the client's own body; `id` is the request's."""
    inner = error.body(dialect, id)["error"]
    status = error.status_in(dialect)
    code = str(error.code or "unknown")
    info = {"@type": f"{_TYPE}ErrorInfo", "reason": code.upper(), "domain": "gateway"}
    details: list[dict[str, Any]] = [info]
    if told:
        violation = {"field": told, "description": inner["message"]}
        details.append({"@type": f"{_TYPE}BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None and dialect.rate_headers:
        details.append({"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{error.retry_after}s"})
    if id:
        details.append({"@type": f"{_TYPE}RequestInfo", "requestId": id})
    word = _STATUSES.get(status) or ("INVALID_ARGUMENT" if status < 500 else "INTERNAL")
    return {"error": {"code": status, "message": inner["message"], "status": word, "details": details}}


def _error(body: bytes) -> dict[str, Any]:
    """The error's object; empty if there is none. A stream of JSON holds it in a list."""
    try:
        value = strict_json.loads(body)
    except strict_json.BadJson:
        return {}
    if type(value) is list and value:
        value = value[0]
    error = value.get("error") if type(value) is dict else None
    return error if type(error) is dict else {}


def _details(error: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    details = error.get("details")
    for detail in details if type(details) is list else ():
        if type(detail) is dict and detail.get("@type") == f"{_TYPE}{kind}":
            yield detail


def _retry_after(error: Mapping[str, Any]) -> int | None:
    for detail in _details(error, "RetryInfo"):
        delay = detail.get("retryDelay")
        if type(delay) is str and _seconds(delay):
            return ceil(float(delay[:-1]))
    return None


def _kind(error: Mapping[str, Any], status: int, read: Fault) -> Fault:
    """What it is by Google's own words; `read`: what it is by those that all have in common."""
    reasons = [detail.get("reason") for detail in _details(error, "ErrorInfo")]
    for reason in reasons:
        if type(reason) is str and reason in _REASONS:
            return _REASONS[reason]
    word = error.get("status")
    if word == "RESOURCE_EXHAUSTED" or status == 429:
        return Fault.EXHAUSTED if _spent(error) else read
    if read is Fault.REJECTED and word != "FAILED_PRECONDITION":
        return read  # too long, for one, which Google tells by more words than one
    return _REASONS.get(word, read) if type(word) is str and read is not Fault.EXHAUSTED else read


def _spent(error: Mapping[str, Any]) -> bool:
    """Whether a quota is gone that will not come back within minutes, whatever RetryInfo says."""
    for detail in _details(error, "QuotaFailure"):
        violations = detail.get("violations")
        for violation in violations if type(violations) is list else ():
            quota = violation.get("quotaId") if type(violation) is dict else None
            if type(quota) is str and _of_a_day(quota):
                return True
    return False
