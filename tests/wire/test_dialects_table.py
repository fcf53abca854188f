"""The dialects as data: what each makes of every error, and that a further one is a row and nothing else."""

import ast
import json
from pathlib import Path
from string import Formatter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat import error_event
from gateway.wire.dialects import DIALECTS, EZROUTER, STANDARD, ZENMUX, Dialect, Envelope, ErrorRow, named
from gateway.wire.errors import (
    BodyTooLarge,
    Forbidden,
    GatewayError,
    InsufficientCredit,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    TooManyReads,
    Unauthenticated,
    Unavailable,
    UnsupportedMediaType,
    UpstreamFault,
)
from routing.health.faults import Fault

ROOT = Path(__file__).resolve().parents[2]
ALL = sorted(DIALECTS.values(), key=lambda dialect: dialect.name)
VENDORS = [ZENMUX, EZROUTER]


def every_error() -> list[GatewayError]:
    """One error of each class, and one of each way a provider can fail."""
    plain = [kind("It went wrong.") for kind in GatewayError.__subclasses__() if kind is not UpstreamFault]
    return [GatewayError("It went wrong."), *plain, *(UpstreamFault(fault) for fault in Fault)]


def told(error: GatewayError, dialect: Dialect) -> tuple[int, dict[str, object]]:
    """The status and the error's object, for a request with the id r-1."""
    return error.status_in(dialect), error.body(dialect, "r-1")["error"]


# --- OpenAI's own ---------------------------------------------------------------------------------------------------


def test_the_standard_envelope_is_openais_own() -> None:
    error = NotFound("No such model.", code="model_not_found", param="model")
    assert told(error, STANDARD) == (
        404,
        {"message": "No such model.", "type": "invalid_request_error", "param": "model", "code": "model_not_found"},
    )


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.rules[-1])
def test_the_standard_dialect_tells_an_error_as_it_was_raised(error: GatewayError) -> None:
    status, shown = told(error, STANDARD)
    assert (status, shown["type"], shown["code"], shown["message"]) == (
        error.status,
        error.type,
        error.code,
        error.message,
    )


# --- the HTTP status as the code ------------------------------------------------------------------------------------

ZENMUX_SAYS: list[tuple[GatewayError, int, str]] = [
    (InvalidRequest("m", code="invalid_json"), 400, "invalid_params"),
    (UnsupportedMediaType("m"), 400, "invalid_params"),
    (InsufficientCredit("m"), 402, "insufficient_credit"),
    (InsufficientCredit("m", code="unknown_price"), 402, "reject_no_credit"),
    (Unauthenticated("m", code="missing_api_key"), 403, "access_denied"),
    (Forbidden("m", code="missing_scope"), 403, "access_denied"),
    (NotFound("m", code="model_not_found"), 404, "invalid_model"),
    (NotFound("m", code="model_not_available"), 404, "model_not_available"),
    (NotFound("m", code="model_not_supported"), 404, "model_not_supported"),
    (MethodNotAllowed("m"), 405, "method_not_allowed"),
    (BodyTooLarge("m"), 413, "invalid_params"),
    (RateLimited("m"), 429, "rate_limit"),
    (TooManyReads("m"), 422, "rate_limit"),
    (GatewayError("m"), 500, "internal_server_error"),
    (Unavailable("m", code="billing_unavailable"), 503, "internal_server_error"),
    (UpstreamFault(Fault.REJECTED, message="m", upstream_status=400), 422, "provider_unprocessable_entity_error"),
    (UpstreamFault(Fault.REJECTED, message="m", upstream_status=413), 413, "invalid_params"),
    (UpstreamFault(Fault.REJECTED, code="context_length_exceeded", upstream_status=400), 413, "invalid_params"),
    (UpstreamFault(Fault.REJECTED, code="content_policy_violation", upstream_status=400), 403, "safety_check_failed"),
    (UpstreamFault(Fault.RATE_LIMITED), 429, "rate_limit"),
    (UpstreamFault(Fault.SERVER_ERROR), 500, "provider_api_error"),
    (UpstreamFault(Fault.TRUNCATED), 500, "provider_api_error"),
    (UpstreamFault(Fault.INVALID_RESPONSE), 500, "provider_error"),
    (UpstreamFault(Fault.UNREACHABLE, code="no_provider_available"), 502, "no_provider_available"),
    (UpstreamFault(Fault.UNREACHABLE), 520, "provider_internal_server_error"),
    (UpstreamFault(Fault.TIMEOUT), 524, "provider_internal_server_error"),
]


@pytest.mark.row("B278", "B281", "B287", "B288", "B291", "B292", "B293", "B294")
@pytest.mark.parametrize(("error", "status", "type"), ZENMUX_SAYS, ids=lambda value: str(value))
def test_zenmux_statuses_and_types(error: GatewayError, status: int, type: str) -> None:
    shown_status, shown = told(error, ZENMUX)
    assert (shown_status, shown["code"], shown["type"]) == (status, str(status), type)
    assert list(shown)[:3] == ["code", "type", "message"]


@pytest.mark.row("B278")
def test_zenmux_names_param_and_request_id_only_where_there_are_any() -> None:
    error = {"code": "400", "type": "invalid_params", "message": "m"}
    assert InvalidRequest("m").body(ZENMUX) == {"error": error}
    assert InvalidRequest("m", param="n").body(ZENMUX, "r-1") == {"error": {**error, "param": "n", "request_id": "r-1"}}


@pytest.mark.row("B019", "B020", "B021", "B022", "B067", "B083", "B085", "B110", "B113", "B114", "B142", "B149", "B281")
def test_zenmux_wording_is_kept_to_the_letter() -> None:
    assert {rule: ZENMUX.messages[rule].format(model="a/b", param="x") for rule in ZENMUX.messages} == {
        "model_required": "Parameter model is required",
        "model_invalid": "Model a/b is not valid",
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
        "auto_without_config": "Parameter model_routing_config is required when model is a/b",
        "not_supported": "Parameter x is not supported",
    }


# --- a word or nothing as the code, the request id in the message ---------------------------------------------------

EZROUTER_SAYS: list[tuple[GatewayError, int, str, str]] = [
    (Unauthenticated("m"), 401, "invalid_api_key", "authentication_error"),
    (Forbidden("m", code="missing_scope"), 403, "access_denied", "new_api_error"),
    (NotFound("m", code="model_not_found"), 403, "access_denied", "new_api_error"),
    (InsufficientCredit("m"), 403, "insufficient_user_quota", "new_api_error"),
    (InvalidRequest("m"), 400, "invalid_request", "new_api_error"),
    (RateLimited("m"), 503, "rate_limit_exceeded", "upstream_error"),
    (TooManyReads("m"), 422, "too_many_reads", "new_api_error"),
    (UpstreamFault(Fault.RATE_LIMITED), 503, "upstream_rate_limited", "upstream_error"),
    (UpstreamFault(Fault.OVERLOADED), 503, "upstream_overloaded", "upstream_error"),
    (UpstreamFault(Fault.SERVER_ERROR), 502, "upstream_error", "upstream_error"),
]


@pytest.mark.row("B279", "B280", "B285", "B290")
@pytest.mark.parametrize(("error", "status", "code", "type"), EZROUTER_SAYS, ids=lambda value: str(value))
def test_ezrouter_statuses_codes_and_types(error: GatewayError, status: int, code: str, type: str) -> None:
    message = f"{error.message} (request id: r-1)"
    assert told(error, EZROUTER) == (status, {"code": code, "message": message, "type": type})


@pytest.mark.row("B280")
def test_ezrouter_knows_three_types_of_error() -> None:
    types = {told(error, EZROUTER)[1]["type"] for error in every_error()}
    assert types == {"authentication_error", "new_api_error", "upstream_error"}


@pytest.mark.row("B014", "B290")
def test_ezrouter_never_says_429() -> None:
    assert 429 not in {told(error, EZROUTER)[0] for error in every_error()}


# --- every dialect --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda dialect: dialect.name)
def test_a_vendors_dialect_has_a_row_for_every_kind_of_error(dialect: Dialect) -> None:
    kinds = {error.rules[-1] for error in every_error()}
    assert kinds - set(dialect.errors) == set()


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda dialect: dialect.name)
def test_every_row_stands_for_something_that_is_raised(dialect: Dialect) -> None:
    kinds = {error.rules[-1] for error in every_error()}
    # Refusals of a model have words of their own; the provider's codes stand behind a slash.
    own = {"model_not_found", "model_not_available", "model_not_supported", "unknown_price"}
    assert {rule.partition("/")[0] for rule in dialect.errors} - kinds - own == set()


@pytest.mark.row("B295")
@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_client_that_goes_by_the_status_retries_what_may_pass_and_nothing_else(dialect: Dialect) -> None:
    lasting = (
        InvalidRequest,
        BodyTooLarge,
        UnsupportedMediaType,
        Unauthenticated,
        Forbidden,
        NotFound,
        MethodNotAllowed,
    )
    for error in every_error():
        status = error.status_in(dialect)
        passes = isinstance(error, (RateLimited, Unavailable)) or getattr(error, "retryable", False)
        assert not (passes and status < 429), error.rules
        assert not (isinstance(error, (*lasting, InsufficientCredit)) and status >= 429), error.rules


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_every_dialect_has_words_for_every_rule_and_fills_in_the_same_names(dialect: Dialect) -> None:
    def names(text: str) -> set[str | None]:
        return {name for _, name, _, _ in Formatter().parse(text) if name is not None}

    assert dialect.messages.keys() == STANDARD.messages.keys()
    assert {rule: names(text) for rule, text in dialect.messages.items()} == {
        rule: names(text) for rule, text in STANDARD.messages.items()
    }


@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@given(text=st.text(), id=st.text())
def test_whatever_a_message_holds_is_shown_as_it_is(dialect: Dialect, text: str, id: str) -> None:
    before, _, after = dialect.envelope.message.partition("{message}")
    shown = InvalidRequest(text).body(dialect, id)["error"]["message"]
    assert shown == before.replace("{request_id}", id) + text + after.replace("{request_id}", id)


@pytest.mark.row("B297")
@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("fault", Fault)
def test_what_the_provider_said_is_for_the_log_alone(dialect: Dialect, fault: Fault) -> None:
    error = UpstreamFault(fault, "acme at https://llm.acme.example refused sk-secret-123456789")
    shown = json.dumps(error.body(dialect, "r-1"))
    assert "acme" not in shown
    assert "secret" not in shown


def test_a_providers_code_is_not_taken_for_one_of_ours() -> None:
    error = UpstreamFault(Fault.REJECTED, code="model_not_found", message="m", upstream_status=422)
    assert told(error, ZENMUX)[1]["type"] == "provider_unprocessable_entity_error"
    assert told(error, EZROUTER)[0] == 422


@pytest.mark.row("B163", "B273")
@pytest.mark.parametrize("dialect", ALL, ids=lambda dialect: dialect.name)
def test_a_streams_error_event_is_the_answers_envelope(dialect: Dialect) -> None:
    error = UpstreamFault(Fault.TRUNCATED)
    event = error_event(error, dialect, "r-1")
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert json.loads(event[6:]) == error.body(dialect, "r-1")


def test_a_name_this_process_does_not_know_is_standard() -> None:
    assert named("of a newer release") is STANDARD


# --- a further one --------------------------------------------------------------------------------------------------

ACME = Dialect(
    "acme",
    envelope=Envelope(fields=("code", "message", "type"), message="[{request_id}] {message}"),
    errors={"not_found": ErrorRow(410, "gone", "E7"), "model_not_found": ErrorRow(status=410, message="Gone.")},
    request_id_headers=("x-request-id", "x-acme-trace"),
)


def test_a_fourth_dialect_is_a_row() -> None:
    assert told(NotFound("m"), ACME) == (410, {"code": "E7", "message": "[r-1] m", "type": "gone"})
    assert told(NotFound("m", code="model_not_found"), ACME) == (
        410,
        {"code": "model_not_found", "message": "[r-1] Gone.", "type": "invalid_request_error"},
    )
    assert told(Forbidden("m"), ACME)[0] == 403  # without a row: as the gateway says it


def test_no_vendors_name_stands_in_code_outside_the_table() -> None:
    """Comments and docstrings may explain; a string that code could compare may not be there."""
    found = []
    for path in sorted(
        path for app in ("accounts", "billing", "routing", "gateway") for path in (ROOT / app).rglob("*.py")
    ):
        if path == ROOT / "gateway" / "wire" / "dialects.py":
            continue
        source = path.read_text()
        if not any(dialect.name in source.lower() for dialect in VENDORS):
            continue
        tree = ast.parse(source)
        docstrings = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        found += [
            (path.name, node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if any(dialect.name in node.value.lower() for dialect in VENDORS)
        ]
    assert found == []
