"""The dialects of the API: what a client of another vendor expects to differ. Each is a row of data.

A dialect changes how errors are told, which headers an answer carries, when it is a stream, and a few limits of the
request; never who may call, what is dialled or what it costs. An operator chooses one for a project or a key. A
further one is a further row of `DIALECTS`; no other code compares a dialect's name.

- `standard`: OpenAI's own statuses and envelope, and JSON unless `stream` is true. The default everywhere.
- `zenmux`: the HTTP status as the error's `code`, 403 for a bad key, four stop sequences.
- `ezrouter`: always a stream, usage always in it, the request id in each error's message, no rate-limit headers ever.

An `ErrorRow` is found by what went wrong in the gateway's own words (`GatewayError.rules`): by the error's own code,
then by the code of its kind; a provider's fault by its code, a slash and the provider's own code or status, then by its
code. Where a dialect has no row the gateway's own status, type and code stand.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """How a dialect tells one error. None: as the gateway does."""

    status: int | None = None
    type: str | None = None
    code: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """The form of an error's object.

    - `fields`: its names in order, of message, type, param, code and request_id
    - `optional`: those of them that are left out when there is nothing to say; the others are null then
    - `status_as_code`: `code` is the HTTP status, as text
    - `message`: how the message is put, from {message} and {request_id}
    """

    fields: tuple[str, ...] = ("message", "type", "param", "code")
    optional: frozenset[str] = frozenset()
    status_as_code: bool = False
    message: str = "{message}"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One row. The defaults are the standard dialect's.

    What is asked:
    - `max_stops`: stop sequences a request may have
    - `max_temperature`: inclusive; None: no bound
    - `refuses_stray_stream_options`: 400 for `stream_options` without `stream`; else they are ignored
    - `ignores_penalties`: the two penalties are accepted and not sent on
    - `efforts`: a reasoning effort that is sent on as another; those not named here go as they came
    - `default_effort`: asked of a model that reasons by default when the request says nothing; None: nothing is asked
    - `only_one_choice`: 400 for `n` above 1
    - `auto_models`: the names of the model that stands for the gateway's choice; no model of the catalog has them
    - `messages`: the wording of a refusal by its rule; what stands in braces is filled in

    What is answered:
    - `always_streams`: an event stream whatever `stream` says
    - `always_reports_usage`: a stream ends with its usage though nobody asked
    - `null_usage`: every other chunk says `usage: null`; in any dialect they do when usage was asked for
    - `null_logprobs`: chunks without log probabilities say `logprobs: null`
    - `hides_fingerprint`: `system_fingerprint` is null
    - `echoes_requested_model`: `model` is the name the client used, be it an alias
    - `usage_extras`: fields of `usage` that only this dialect shows
    - `models_envelope`: fields of a model list beside `object` and `data`

    Errors and headers:
    - `envelope`, `errors`: see `Envelope` and `ErrorRow`
    - `request_id_headers`: the names under which every answer carries its request id
    - `build_header`: the name under which every answer carries the gateway's build; None: it does not
    - `headers`: further headers of every answer
    - `rate_headers`: Retry-After and x-ratelimit-* are sent; else none of them, ever
    - `queue_seconds`: how long a request that meets a limit waits for room before it is refused
    """

    name: str
    max_stops: int = 16
    max_temperature: float | None = 2.0
    refuses_stray_stream_options: bool = True
    ignores_penalties: bool = False
    efforts: Mapping[str, str] = field(default_factory=dict)
    default_effort: str | None = None
    only_one_choice: bool = False
    auto_models: frozenset[str] = frozenset({"auto", "meterline/auto", "zenmux/auto"})
    messages: Mapping[str, str] = field(default_factory=lambda: MESSAGES)
    always_streams: bool = False
    always_reports_usage: bool = False
    null_usage: bool = False
    null_logprobs: bool = False
    hides_fingerprint: bool = False
    echoes_requested_model: bool = False
    usage_extras: frozenset[str] = frozenset()
    models_envelope: Mapping[str, Any] = field(default_factory=lambda: {"success": True})
    envelope: Envelope = Envelope()
    errors: Mapping[str, ErrorRow] = field(default_factory=dict)
    request_id_headers: tuple[str, ...] = ("x-request-id",)
    build_header: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_headers: bool = True
    queue_seconds: float = 0.0


# The rules a request can break. Clients of the vendors match on the wording, so theirs is kept to the letter.
MESSAGES: Mapping[str, str] = {
    "model_required": "Parameter model is required. GET /v1/models lists those this key may use.",
    "model_invalid": "The model '{model}' does not exist, or this key may not use it. "
    "GET /v1/models lists those it may.",
    "messages_required": "Parameter messages is required: an array of at least one message.",
    "messages_empty": "Parameter messages can not be empty. Send at least one message.",
    "messages_null": "Parameter messages can not contain null elements.",
    "message_without_content": "Parameter messages can not contain elements without content.",
    "stray_stream_options": "Parameter stream_options is not supported while stream is false. "
    "Send 'stream': true with it, or leave it out.",
    "n": "Parameter n greater than 1 is not supported. Send one request for each choice.",
    "temperature": "Parameter temperature is not valid: a number from 0 to 2.",
    "usage_conflict": "Parameter stream_options.include_usage conflicts with usage.include. Send one of them.",
    "reasoning_conflict": "Parameter include_reasoning conflicts with reasoning.exclude. Send one of them.",
    "routing_type": "Parameter type of provider.routing is not valid.",
    "routing_providers": "Parameter providers of provider.routing is not valid: a non-empty array of provider slugs.",
    "auto_without_config": "Parameter model_routing_config is required when model is {model}.",
    "not_supported": "Parameter {param} is not supported.",
}

STANDARD = Dialect("standard")

ZENMUX = Dialect(
    "zenmux",
    max_stops=4,
    max_temperature=None,
    default_effort="medium",
    only_one_choice=True,
    models_envelope={},
    request_id_headers=("x-request-id", "X-ZenMux-RequestId"),
    messages={
        **MESSAGES,
        "model_required": "Parameter model is required",
        "model_invalid": "Model {model} is not valid",
        "messages_required": "Parameter messages is required",
        "messages_empty": "Parameter messages can not be empty",
        "messages_null": "Parameter messages can not contain null elements",
        "message_without_content": "Parameter messages can not contain elements without content",
        "stray_stream_options": "Parameter stream_options is not supported while stream is false",
        "n": "Parameter n grater than 1 is not supported",
        "temperature": "Parameter temperature is not valid",
        "usage_conflict": "Parameter stream_options.include_usage conflict with usage.include",
        "reasoning_conflict": "Parameter include_reasoning conflict with reasoning.exclude",
        "routing_type": "Parameter type of provider.routing is not valid",
        "routing_providers": "Parameter providers of provider.routing is not valid",
        "auto_without_config": "Parameter model_routing_config is required when model is {model}",
        "not_supported": "Parameter {param} is not supported",
    },
    envelope=Envelope(
        fields=("code", "type", "message", "param", "request_id"),
        optional=frozenset({"param", "request_id"}),
        status_as_code=True,
    ),
    errors={
        "invalid_request": ErrorRow(400, "invalid_params"),
        "unsupported_media_type": ErrorRow(400, "invalid_params"),
        "websocket_not_supported": ErrorRow(426, "invalid_params"),
        "request_too_large": ErrorRow(413, "invalid_params"),
        "headers_too_large": ErrorRow(431, "invalid_params"),
        "invalid_api_key": ErrorRow(403, "access_denied", message="You have no permission to access this resource"),
        "permission_denied": ErrorRow(403, "access_denied"),
        "not_found": ErrorRow(404, "not_found"),
        "model_not_found": ErrorRow(404, "invalid_model"),
        "model_not_available": ErrorRow(404, "model_not_available"),
        "model_not_supported": ErrorRow(404, "model_not_supported"),
        "method_not_allowed": ErrorRow(405, "method_not_allowed"),
        "conflict": ErrorRow(409, "invalid_params"),
        "insufficient_credit": ErrorRow(402, "insufficient_credit"),
        "unknown_price": ErrorRow(402, "reject_no_credit"),
        "rate_limit_exceeded": ErrorRow(429, "rate_limit"),
        "too_many_reads": ErrorRow(422, "rate_limit"),
        "service_unavailable": ErrorRow(503, "internal_server_error"),
        "internal_server_error": ErrorRow(500, "internal_server_error"),
        "upstream_unreachable": ErrorRow(520, "provider_internal_server_error"),
        "upstream_unreachable/no_provider_available": ErrorRow(502, "no_provider_available"),
        "upstream_timeout": ErrorRow(524, "provider_internal_server_error"),
        "upstream_truncated": ErrorRow(500, "provider_api_error"),
        "upstream_invalid_response": ErrorRow(500, "provider_error"),
        "upstream_auth": ErrorRow(500, "provider_error"),
        "upstream_rate_limited": ErrorRow(429, "rate_limit"),
        "upstream_exhausted": ErrorRow(429, "rate_limit"),
        "upstream_overloaded": ErrorRow(502, "no_provider_available"),
        "upstream_error": ErrorRow(500, "provider_api_error"),
        "upstream_not_found": ErrorRow(502, "no_provider_available"),
        "upstream_rejected": ErrorRow(422, "provider_unprocessable_entity_error"),
        "upstream_rejected/413": ErrorRow(413, "invalid_params", message="Prompt is too long"),
        "upstream_rejected/context_length_exceeded": ErrorRow(413, "invalid_params", message="Prompt is too long"),
        "upstream_rejected/content_filter": ErrorRow(403, "safety_check_failed"),
        "upstream_rejected/content_policy_violation": ErrorRow(403, "safety_check_failed"),
    },
)

EZROUTER = Dialect(
    "ezrouter",
    refuses_stray_stream_options=False,
    ignores_penalties=True,
    efforts={"low": "high", "medium": "high", "xhigh": "max"},
    default_effort="high",
    only_one_choice=True,
    always_streams=True,
    always_reports_usage=True,
    null_usage=True,
    null_logprobs=True,
    hides_fingerprint=True,
    echoes_requested_model=True,
    request_id_headers=("x-request-id", "x-oneapi-request-id"),
    build_header="x-new-api-version",
    rate_headers=False,
    queue_seconds=30.0,
    usage_extras=frozenset(
        {
            "usage_semantic",
            "usage_source",
            "claude_cache_creation_5_m_tokens",
            "claude_cache_creation_1_h_tokens",
        }
    ),
    envelope=Envelope(
        fields=("code", "message", "type", "param"),
        optional=frozenset({"param"}),
        message="{message} (request id: {request_id})",
    ),
    errors={
        "invalid_request": ErrorRow(type="new_api_error"),
        "unsupported_media_type": ErrorRow(type="new_api_error"),
        "websocket_not_supported": ErrorRow(type="new_api_error"),
        "request_too_large": ErrorRow(type="new_api_error"),
        "headers_too_large": ErrorRow(type="new_api_error"),
        "invalid_api_key": ErrorRow(401, "authentication_error"),
        "permission_denied": ErrorRow(403, "new_api_error", "access_denied"),
        "not_found": ErrorRow(type="new_api_error"),
        "model_not_found": ErrorRow(403, "new_api_error", "access_denied"),
        "method_not_allowed": ErrorRow(type="new_api_error"),
        "conflict": ErrorRow(type="new_api_error"),
        "insufficient_credit": ErrorRow(403, "new_api_error", "insufficient_user_quota"),
        "rate_limit_exceeded": ErrorRow(503, "upstream_error"),
        "too_many_reads": ErrorRow(type="new_api_error"),
        "service_unavailable": ErrorRow(type="new_api_error"),
        "internal_server_error": ErrorRow(type="new_api_error"),
        "upstream_unreachable": ErrorRow(type="upstream_error"),
        "upstream_timeout": ErrorRow(type="upstream_error"),
        "upstream_truncated": ErrorRow(type="upstream_error"),
        "upstream_invalid_response": ErrorRow(type="upstream_error"),
        "upstream_auth": ErrorRow(type="upstream_error"),
        "upstream_rate_limited": ErrorRow(503, "upstream_error"),
        "upstream_exhausted": ErrorRow(503, "upstream_error"),
        "upstream_overloaded": ErrorRow(503, "upstream_error"),
        "upstream_error": ErrorRow(type="upstream_error"),
        "upstream_not_found": ErrorRow(type="upstream_error"),
        "upstream_rejected": ErrorRow(type="upstream_error"),
    },
)

DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (STANDARD, ZENMUX, EZROUTER)}


def named(name: str) -> Dialect:
    """The dialect of this name. One that a newer process has written and this one does not know is the standard one."""
    return DIALECTS.get(name, STANDARD)
