"""What went wrong at the provider, read from its status and error body, and what of it a client may see.

Only a rejected request keeps the provider's words, since they tell the client what to change; they are
cleaned of whatever would name the provider or its credential. Everything else is for the operator's log.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from math import ceil
from typing import Any

from gateway.protocols.openai_chat.prompt_too_long import is_overflow
from gateway.wire import sse, strict_json
from gateway.wire.dialects import STANDARD, Dialect
from gateway.wire.errors import GatewayError, UpstreamFault
from routing.health.faults import Fault

MAX_RETRY_AFTER = 60
MAX_MESSAGE = 500
MAX_LOGGED = 200  # characters of a rejection's words, which may be a tenant's
NOT_FOUND = "The provider does not know something that the request names."

# Words in an error's `code` and `type`, tried in this order. They say more than a status: one provider sends
# 429 for an empty account, another 403 for a prompt it will not answer.
_WORDS: tuple[tuple[Fault, tuple[str, ...]], ...] = (
    (
        Fault.EXHAUSTED,
        (
            *("insufficient_quota", "insufficient_credit", "insufficient_user_quota", "insufficient_balance"),
            *("billing", "payment", "reject_no_credit", "quote_exceeded", "spend_limit"),
        ),
    ),
    (Fault.OVERLOADED, ("overloaded", "service_unavailable", "engine_overloaded")),
    (Fault.RATE_LIMITED, ("rate_limit", "ratelimit", "too_many_requests", "resource_exhausted", "throttl")),
    (Fault.REJECTED, ("content_policy", "content_filter", "moderation", "safety")),
    (Fault.AUTH, ("authentication", "invalid_api_key", "unauthorized", "permission", "access_denied")),
    (Fault.REJECTED, ("invalid_request", "invalid_param", "badrequest", "bad_request", "unprocessable")),
)
_STATUSES = {401: Fault.AUTH, 402: Fault.EXHAUSTED, 403: Fault.AUTH, 429: Fault.RATE_LIMITED} | {
    400: Fault.REJECTED,
    413: Fault.REJECTED,
    422: Fault.REJECTED,
    503: Fault.OVERLOADED,
    529: Fault.OVERLOADED,
}
# An account out of credit or a refused key is sometimes told by a 400 and prose alone.
_NO_CREDIT = re.compile(
    r"credit balance|insufficient (?:balance|credits?|funds|quota)|out of credits|exceeded your current quota"
    r"|billing (?:hard limit|details|account|has|is)|account (?:is )?(?:suspended|deactivated|in arrears)"
    r"|please (?:top up|recharge)|spend(?:ing)? limit",
    re.IGNORECASE,
)
_SPENT = re.compile(r"credit balance|spend(?:ing)? limit", re.IGNORECASE)
_BAD_KEY = re.compile(
    r"(?:invalid|incorrect|expired|missing|no) api[ _-]?key"
    r"|api[ _-]?key (?:is )?(?:not valid|invalid|expired|not found)",
    re.IGNORECASE,
)
# A 404 that is the gateway's own affair: the provider has no such model (any more), or nothing at this address. Any
# other one is about something that the request names.
_NO_MODEL = re.compile(
    r"model_?(?:is_)?not_?(?:found|available|exist)|deployment_?not_?found|(?:unknown|invalid)_?model"
    r"|\b(?:models?|deployment|engine)\b.{0,200}?(?:not (?:be )?found|(?:does not|doesn't|not) exist"
    r"|not (?:available|deployed|supported|served|loaded)|no longer|decommissioned|retired|deprecated)"
    r"|\b(?:no|unknown|invalid) (?:such )?(?:model|deployment)\b|no endpoints? found for|\Amodel: ?\S",
    re.IGNORECASE,
)
_NO_ADDRESS = re.compile(
    r"(?:(?:http )?404:? *)?(?:(?:page|route|path|resource|endpoint|url)s? )?not found\.?|.*/chat/completions.*"
    r"|.*\b(?:invalid|unknown|unrecogni[sz]ed) (?:request )?(?:url|path|route|endpoint)\b.*"
    r"|.*\bno route\b.*|cannot post .*",
    re.IGNORECASE | re.DOTALL,
)
# What a rejection was for, where the provider gave it no code that clients know. Some act on it.
_UNSAFE = ("content_policy", "content_filter", "moderation", "safety")
_ANY_REJECTION = re.compile(
    r"invalid_?(?:request|param|argument|input)|bad_?request|validation|error$|unprocessable|exceed|limit",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"(?<!\w)'[^']*'(?!\w)|\"[^\"]*\"|`[^`]*`")
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

# Repeats are bounded: a provider's message must not be able to make a search slow.
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,9}://[^\s\"'<>)\]}]+", re.IGNORECASE)
_MAILBOX = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?!\.?\w)")
_IPV6 = re.compile(r"(?<![\w:])\[?([0-9a-f]{0,4}:[0-9a-f:]{0,39}:[0-9a-f:.]{0,39})(?:\](?::\d{1,5})?)?", re.IGNORECASE)
_HOST = re.compile(
    r"\b(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,8}"
    r"(?:com|net|org|io|ai|dev|app|cloud|co|cn|eu|us|internal|local|localdomain|svc)\b(?::\d{1,5})?"
    r"|\blocalhost(?::\d{1,5})?\b",
    re.IGNORECASE,
)
_KEYS = (
    re.compile(r"\bBearer\s+[^\s\"',;]+", re.IGNORECASE),
    re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|key|org|proj)[-_](?=[\w*.-]{0,200}[\d*])[\w*.-]{8,200}"),
    re.compile(r"\b(?:AIza|AKIA|ASIA|eyJ)[\w.-]{12,}"),
    re.compile(r"(?<![\w-])(?=[\w-]{0,200}\d)(?=[\w-]{0,200}[A-Za-z])[\w-]{32,}"),
)
_PAGE = re.compile(r"<!doctype|<html|<body|traceback \(most recent", re.IGNORECASE)


def fault_from_response(status: int, headers: Mapping[str, str], body: bytes) -> UpstreamFault:
    """The fault of an answer whose status is not 2xx. `body` may be cut short, and of any form."""
    retry_after = read_retry_after(next((headers[n] for n in headers if n.lower() == "retry-after"), None))
    try:
        value = strict_json.loads(body)
    except strict_json.BadJson:
        value = None
    if type(value) is list and value:  # One vendor's compatible endpoint wraps its errors in an array.
        value = value[0]
    error = value if type(value) is dict else {}
    for name in ("error", "message", "errors", "detail"):
        if error.get(name):
            error = error if name == "message" else error[name]
            break
    said = body[:2000].decode("utf-8", "replace")
    fault = _fault(error, status, f"status {status}: {said}", retry_after)
    if value is None and (status == 403 or (fault.kind is Fault.OVERLOADED and _PAGE.search(said))):
        # Not the provider's word on our credential, or that it is busy, but that of what stands before it: a firewall
        # that dislikes the request, a proxy that finds nobody there.
        return UpstreamFault(Fault.SERVER_ERROR, fault.detail, upstream_status=status, retry_after=retry_after)
    return fault


def fault_in_answer(error: Any, raw: bytes) -> UpstreamFault:
    """The fault of an error object (or string) that came in the body of a 200, whole or as an event."""
    return _fault(error, None, f"in a 200: {raw[:2000].decode('utf-8', 'replace')}", None)


def error_event(error: GatewayError, dialect: Dialect = STANDARD, request_id: str = "") -> bytes:
    """The event that ends a stream which failed after it began. No finish reason and no `[DONE]` follow it."""
    return sse.encode(strict_json.dumps(error.body(dialect, request_id)))


def read_retry_after(value: str | None, now: datetime | None = None) -> int | None:
    """Whole seconds from 1 to `MAX_RETRY_AFTER` of a Retry-After header (RFC 9110: seconds or an HTTP date).

    None when it is absent or nonsense. `now` is the aware time a date counts from, by default the clock's.
    """
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,20}(?:\.[0-9]{1,20})?", value):
        seconds = float(value)
    else:
        try:
            at = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        seconds = (at.replace(tzinfo=at.tzinfo or UTC) - (now or datetime.now(UTC))).total_seconds()
    return max(1, min(MAX_RETRY_AFTER, ceil(seconds)))


def clean(message: str) -> str:
    """A provider's message as a line of `MAX_MESSAGE` characters, no URLs, hosts, addresses, keys.

    Empty if it is no message but a page or a traceback.
    """
    message = message[: 8 * MAX_MESSAGE]
    if _PAGE.search(message):
        return ""
    message = _one_line(message)
    message = _mask_keys(_URL.sub("[url]", message))
    message = _IPV4.sub("[address]", _MAILBOX.sub("[address]", message))
    message = _HOST.sub("[host]", _IPV6.sub(_mask_address, message))
    return message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 1] + "…"


def _fault(error: Any, status: int | None, detail: str, retry_after: int | None) -> UpstreamFault:
    """Classify by what the error calls itself, then by the answer's status or, in a 200, the error's own."""
    if type(error) is list:
        error = error[0] if error else {}
    fields: dict[str, Any] = error if type(error) is dict else {"message": error}
    if type(fields.get("error")) is dict:  # One more wrapping, as in {"type": "error", "error": {...}}.
        fields = fields["error"]
    message = fields.get("message") or fields.get("msg") or ""
    message = message if type(message) is str else ""
    code = fields.get("code")
    words = " ".join(w.lower() for w in (code, fields.get("type"), fields.get("status")) if type(w) is str)
    own_status = status if status is not None else _own_status(fields)
    # A tenant can have its own words quoted back at it: those say nothing about our account.
    said = _QUOTED.sub("", message)
    too_long = is_overflow(own_status, words, said + _passed_on(fields))
    if too_long:
        kind = Fault.REJECTED
    elif own_status == 404:
        kind = _kind_of_404(words, said)
    else:
        kind = _kind(own_status, words, "" if fields.get("param") else said, retry_after)
    if kind is not Fault.REJECTED:
        return UpstreamFault(kind, _logged(detail), upstream_status=own_status, retry_after=retry_after)
    param = fields.get("param")
    if own_status == 404:
        told, code = NOT_FOUND, None  # its own words may name its model
    else:
        told, code = clean(message), _code(code, words, too_long)
    return UpstreamFault(
        kind,
        _logged(f"status {own_status}: {clean(said)[:MAX_LOGGED]}"),
        upstream_status=own_status,
        message=told or None,
        code=code,
        param=clean(param)[:128] or None if type(param) is str else None,
    )


def _code(code: Any, words: str, too_long: bool) -> str | None:
    """The provider's own code, if it is one; OpenAI's where that says no more than that it is a rejection."""
    own = code if type(code) is str and _CODE.fullmatch(code) else None
    if too_long and (own is None or _ANY_REJECTION.search(own)):
        return "context_length_exceeded"
    return own or ("content_filter" if any(word in words for word in _UNSAFE) else None)


def _passed_on(fields: dict[str, Any]) -> str:
    """What another provider said to the one that tells us."""
    metadata = fields.get("metadata")
    raw = metadata.get("raw") if type(metadata) is dict else None
    return f"\n{raw[:2000]}" if type(raw) is str else ""


def _own_status(fields: dict[str, Any]) -> int | None:
    metadata = fields.get("metadata")
    inner = metadata if type(metadata) is dict else {}
    for value in (fields.get("code"), fields.get("status"), fields.get("status_code"), inner.get("code")):
        if type(value) is str and re.fullmatch(r"[1-5][0-9]{2}", value):
            value = int(value)
        if type(value) is int and 100 <= value <= 599:
            return value
    return None


def _kind(status: int | None, words: str, prose: str, retry_after: int | None) -> Fault:
    by_words = next((kind for kind, known in _WORDS if any(word in words for word in known)), None)
    if status == 429:
        if retry_after is not None:  # It says when to come back, so the account is not empty.
            return Fault.RATE_LIMITED
        if by_words in (Fault.EXHAUSTED, Fault.OVERLOADED):
            return by_words
        return Fault.EXHAUSTED if _SPENT.search(prose) else Fault.RATE_LIMITED
    if by_words in (Fault.EXHAUSTED, Fault.OVERLOADED):
        return by_words
    if status in (None, 400, 403) and _NO_CREDIT.search(prose):
        return Fault.EXHAUSTED
    if status == 400 and (by_words is Fault.AUTH or _BAD_KEY.search(prose)):
        return Fault.AUTH
    if status is None or (status == 403 and by_words is Fault.REJECTED):
        return by_words or Fault.SERVER_ERROR
    return _STATUSES.get(status, Fault.SERVER_ERROR)


def _kind_of_404(words: str, prose: str) -> Fault:
    prose = prose.strip()
    ours = not prose or _NO_ADDRESS.fullmatch(prose) or _NO_MODEL.search(words) or _NO_MODEL.search(prose)
    return Fault.NOT_FOUND if ours else Fault.REJECTED


def _logged(detail: str) -> str:
    """For the operator's log: one line, and no keys, since a provider may echo the credential it refuses."""
    return _mask_keys(_one_line(detail))


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _mask_keys(text: str) -> str:
    for pattern in _KEYS:
        text = pattern.sub("[key]", text)
    return text


def _mask_address(match: re.Match[str]) -> str:
    try:
        ip_address(match[1].rstrip(".:") if not match[1].endswith("::") else match[1])
    except ValueError:
        return match[0]
    return "[address]"
