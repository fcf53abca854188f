"""Errors of OpenAI chat upstreams: which fault they are, what the client may read, when to come back."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocols.openai_chat import error_event, fault_from_response
from gateway.protocols.openai_chat.faults import clean, fault_in_answer, read_retry_after
from gateway.wire.errors import InvalidRequest, UpstreamFault
from routing.health.faults import Fault

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def answered(status: int, body: Any = b"", **headers: str) -> UpstreamFault:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fault_from_response(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


def error(message: str = "x", **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message} | fields}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (301, b"", Fault.SERVER_ERROR),
        (307, b"", Fault.SERVER_ERROR),
        (400, error(), Fault.REJECTED),
        (401, error(code="invalid_api_key"), Fault.AUTH),
        (402, error(), Fault.EXHAUSTED),
        (403, error(), Fault.AUTH),
        (404, error(code="model_not_found"), Fault.NOT_FOUND),
        (405, b"", Fault.SERVER_ERROR),
        (408, b"", Fault.SERVER_ERROR),
        (413, error(), Fault.REJECTED),
        (422, error(), Fault.REJECTED),
        (429, error(type="rate_limit_error"), Fault.RATE_LIMITED),
        (429, b"", Fault.RATE_LIMITED),
        (500, error(), Fault.SERVER_ERROR),
        (502, b"<html>bad gateway</html>", Fault.SERVER_ERROR),
        (503, b"<html>busy</html>", Fault.SERVER_ERROR),
        (504, b"", Fault.SERVER_ERROR),
        (524, b"", Fault.SERVER_ERROR),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Fault.OVERLOADED),
        (500, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, Fault.OVERLOADED),
        (429, error(type="engine_overloaded_error"), Fault.OVERLOADED),
        (429, error("You exceeded your current quota", code="insufficient_quota"), Fault.EXHAUSTED),
        (429, error(code="billing_hard_limit_reached"), Fault.EXHAUSTED),
        (429, error("This request would exceed your account's spend limit"), Fault.EXHAUSTED),
        (400, error("Your credit balance is too low to access the API"), Fault.EXHAUSTED),
        (400, error(code="billing_not_active"), Fault.EXHAUSTED),
        (403, error(code="insufficient_user_quota"), Fault.EXHAUSTED),
        (400, error("Incorrect API key provided: sk-abc"), Fault.AUTH),
        (400, error("API key not valid. Please pass a valid API key."), Fault.AUTH),
        (403, error(type="safety_check_failed"), Fault.REJECTED),
        (403, error(code="content_policy_violation"), Fault.REJECTED),
        (400, error(code="context_length_exceeded"), Fault.REJECTED),
        (400, error("Invalid value: 'your credit balance is too low'"), Fault.REJECTED),
        (400, error('Invalid schema for function "incorrect api key"'), Fault.REJECTED),
        (400, error("credit balance must be a number", param="tools"), Fault.REJECTED),
        (400, error("You've used billing in 'x'"), Fault.REJECTED),
    ],
)
def test_it_tells_the_faults_apart(status: int, body: Any, kind: Fault) -> None:
    fault = answered(status, body)
    assert (fault.kind, fault.upstream_status) == (kind, status)


@pytest.mark.parametrize(
    "body",
    [
        error("The model `acme-9` does not exist or you do not have access to it.", code="model_not_found"),
        error("models/acme-9 is not found for API version v1beta, or is not supported for generateContent."),
        error("The API deployment for this resource does not exist.", code="DeploymentNotFound"),
        error("model 'acme-9' not found, try pulling it first"),
        error("Model not found, inaccessible, and/or not deployed", code="NOT_FOUND"),
        error("Publisher Model `projects/p/models/acme-9` was not found or your project does not have access to it."),
        error("No endpoints found for acme/nine."),
        error("Unable to access it.", code="model_not_available"),
        {"type": "error", "error": {"type": "not_found_error", "message": "model: acme-9"}},
        {"object": "error", "message": "The model `acme-9` does not exist.", "type": "NotFoundError", "code": 404},
        {"detail": "Not Found"},
        {"message": "no Route matched with those values"},
        error("Invalid URL (POST /v1/chat/completions/chat/completions)"),
        error("No POST /chat/completions here."),
        error("Resource not found", code="404"),
        error(""),
        b"<html><h1>404 Not Found</h1></html>",
        b"404 page not found",
        b"",
    ],
)
def test_a_404_of_the_model_or_the_address_is_the_gateways_affair(body: Any) -> None:
    fault = answered(404, body)
    assert (fault.kind, fault.status, fault.code, fault.retryable) == (
        Fault.NOT_FOUND,
        502,
        "upstream_not_found",
        True,
    )
    assert fault.message == "The provider does not know what the gateway asked it for."


@pytest.mark.parametrize(
    "body",
    [
        error("No file found with id file-acme-9"),
        error("Item 'rs_acme-9' not found", type="invalid_request_error", param="input", code="item_not_found"),
        error("Vector store acme-9 was deleted."),
        error("No endpoints found that support image input"),
        {"detail": "The cached content acme-9 could not be found"},
    ],
)
def test_any_other_404_is_the_requests_own_and_told_in_our_words(body: Any) -> None:
    fault = answered(404, body)
    assert (fault.kind, fault.status, fault.code, fault.retryable) == (
        Fault.REJECTED,
        400,
        "upstream_rejected",
        False,
    )
    assert fault.message == "The provider does not know something that the request names."


@pytest.mark.parametrize("body", [b"<html><body>Sorry, you have been blocked</body></html>", b"error code: 1020", b""])
def test_a_403_that_is_no_word_of_the_provider_is_not_about_our_credential(body: bytes) -> None:
    assert answered(403, body).kind is Fault.SERVER_ERROR


def test_what_is_logged_of_a_rejection_is_short_and_quotes_nobody() -> None:
    fault = answered(400, error("Invalid value: 'my darkest secret' " + "x" * 900))
    assert fault.detail.startswith("status 400: Invalid value: xxx")
    assert len(fault.detail) < 220


def test_a_limit_that_says_when_to_come_back_is_no_empty_account() -> None:
    fault = answered(429, error(code="insufficient_quota"), Retry_After="7")
    assert (fault.kind, fault.retry_after) == (Fault.RATE_LIMITED, 7)


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ({"message": "x", "code": 429}, Fault.RATE_LIMITED),
        ({"message": "x", "code": "429"}, Fault.RATE_LIMITED),
        ({"message": "x", "metadata": {"code": 429}}, Fault.RATE_LIMITED),
        ({"message": "x", "status": 401}, Fault.AUTH),
        ({"message": "x", "code": 403}, Fault.AUTH),
        ({"message": "x", "code": 402}, Fault.EXHAUSTED),
        ({"message": "quota exceeded", "type": "insufficient_quota", "code": 429}, Fault.EXHAUSTED),
        ({"message": "x", "code": 503}, Fault.OVERLOADED),
        ({"message": "x", "code": 529}, Fault.OVERLOADED),
        ({"message": "x", "type": "overloaded_error"}, Fault.OVERLOADED),
        ({"message": "x", "type": "rate_limit_error"}, Fault.RATE_LIMITED),
        ({"message": "x", "code": "context_length_exceeded"}, Fault.REJECTED),
        ({"message": "x", "type": "invalid_request_error"}, Fault.REJECTED),
        ({"message": "x", "code": 400}, Fault.REJECTED),
        ({"message": "x", "code": "500", "type": "provider_api_error"}, Fault.SERVER_ERROR),
        ({"message": "x"}, Fault.SERVER_ERROR),
        ({"code": 1302}, Fault.SERVER_ERROR),
        ("something broke", Fault.SERVER_ERROR),
        ([], Fault.SERVER_ERROR),
        (5, Fault.SERVER_ERROR),
        ({}, Fault.SERVER_ERROR),
    ],
)
def test_an_error_inside_a_200_is_read_by_what_it_says(inner: Any, kind: Fault) -> None:
    fault = fault_in_answer(inner, json.dumps(inner).encode())
    assert fault.kind is kind
    assert fault.message
    assert fault.status in (400, 429, 502, 503)


def test_a_rejection_keeps_what_helps_the_client() -> None:
    fault = answered(
        400,
        error("Maximum context is 8192 tokens,\nyou sent 9000.", code="context_length_exceeded", param="messages"),
    )
    assert fault.status == 400
    assert fault.body() == {
        "error": {
            "message": "Maximum context is 8192 tokens, you sent 9000.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
    assert not fault.retryable
    assert answered(413, error("Prompt is too long")).status == 413
    assert answered(403, error("flagged", type="safety_check_failed")).status == 400


@pytest.mark.parametrize(
    "body",
    [
        {"error": "no such tool"},
        {"object": "error", "message": "no such tool", "code": 422},
        {"message": "no such tool", "detail": {"x": 1}},
        {"detail": "no such tool"},
        {"detail": [{"loc": ["body"], "msg": "no such tool"}]},
        {"errors": [{"message": "no such tool"}]},
    ],
)
def test_other_shapes_of_errors_are_read(body: Any) -> None:
    fault = answered(422, body)
    assert (fault.kind, fault.message, fault.status) == (Fault.REJECTED, "no such tool", 422)


@pytest.mark.parametrize(
    "body",
    [
        b"<html><body>secret 10.0.0.7</body></html>" * 1000,
        error("<!DOCTYPE html><html>secret"),
        error("Traceback (most recent call last): secret"),
        b"secret: not json",
        b'{"error":{"message":"secret"},"error":{"message":"secret"}}',
        b"[" * 5000,
        b"\xff\xfe",
        {"error": {"message": {"deep": "secret"}}},
        None,
    ],
)
@pytest.mark.parametrize("status", [302, 400, 404, 429, 500, 502])
def test_no_page_and_no_odd_body_reaches_the_client(status: int, body: Any) -> None:
    fault = answered(status, body)
    assert "secret" not in json.dumps(fault.body())
    assert "<" not in fault.message
    assert len(fault.detail) <= 500


@pytest.mark.row("B297")
@pytest.mark.parametrize("status", [401, 402, 403, 429, 500, 503])
def test_only_a_rejection_shows_the_provider_s_words(status: int) -> None:
    assert "words" not in answered(status, error("words", code="words", param="words")).body()["error"]["message"]


@pytest.mark.row("B297")
@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("see https://platform.vendor.com/docs?x=1 (docs)", "see [url] (docs)"),
        ("dial tcp 10.1.2.3:8080: refused", "dial tcp [address]: refused"),
        ("from fe80::1ff:fe23 and [2001:db8::1]:443", "from [address] and [address]"),
        ("fe80:: refused, ::1: refused, at ::1.", "[address] refused, [address] refused, at [address]"),
        ("host api.vendor.ai:443, svc.cluster.local, localhost:9", "host [host], [host], [host]"),
        ("mail help@vendor.com now", "mail [address] now"),
        ("key sk-proj-abc123def456 and AIzaSyA1234567890abc", "key [key] and [key]"),
        ("Bearer abc.def, org-a1b2c3d4e5f6", "[key], [key]"),
        ("request 0123456789abcdef0123456789abcdef failed", "request [key] failed"),
        ("a\r\n\tb\x00\x1b[31m  c\u2028d", "a b [31m c d"),
        ("max_tokens: 4096 at 12:30:45 in v1.2.3, std::vector, skill-based, key-value", None),
        ("x" * 500, None),
        ("word " * 200, ("word " * 200)[:499] + "…"),
    ],
)
def test_messages_are_cleaned(message: str, shown: str | None) -> None:
    assert clean(message) == (message if shown is None else shown)


def test_the_operator_s_detail_has_no_keys_and_one_line() -> None:
    fault = answered(401, b"Incorrect key\nsk-live-12345678abcdef")
    assert fault.detail == "status 401: Incorrect key [key]"


def test_codes_that_are_no_words_are_not_shown() -> None:
    for code in ("400", 400, "a b", "x" * 65, "<b>", None):
        assert answered(400, error(code=code)).code == "upstream_rejected"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (error("This model's maximum context length is 8192 tokens.", code=400), "context_length_exceeded"),
        (error("prompt is too long: 212345 tokens > 200000 maximum"), "context_length_exceeded"),
        (error("The input token count (9) exceeds the maximum", status="INVALID_ARGUMENT"), "context_length_exceeded"),
        (error("x", type="context_length_exceeded"), "context_length_exceeded"),
        (error("flagged", type="safety_check_failed"), "content_filter"),
        (error("x", type="invalid_request_error"), "upstream_rejected"),
        (error("maximum context length", code="string_too_long"), "string_too_long"),
        (error("No tool named 'context window'"), "upstream_rejected"),
    ],
)
def test_what_clients_act_on_has_its_code_whoever_says_it(body: Any, code: str) -> None:
    fault = answered(400, body)
    assert (fault.kind, fault.code) == (Fault.REJECTED, code)


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_picture_that_the_provider_cannot_fetch_is_the_client_s_to_change(wrapped: bool) -> None:
    body: Any = error("Cannot fetch content from the provided URL", code=400, status="INVALID_ARGUMENT")
    fault = answered(400, [body] if wrapped else body)
    assert (fault.kind, fault.status, fault.type) == (Fault.REJECTED, 400, "invalid_request_error")
    assert fault.message == "Cannot fetch content from the provided URL"
    assert not fault.retryable


def test_an_overloaded_provider_keeps_its_identity_and_its_retry_after() -> None:
    body = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    fault = answered(529, body, Retry_After="12")
    assert (fault.kind, fault.status, fault.code) == (Fault.OVERLOADED, 503, "upstream_overloaded")
    assert (fault.retry_after, fault.retryable) == (12, True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7),
        (" 7 ", 7),
        ("0", 1),
        ("1.2", 2),
        ("60", 60),
        ("1000000000", 60),
        ("9" * 20, 60),
        ("-5", None),
        ("+5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("1e3", None),
        ("Sun, 01 Mar 2026 12:00:09 GMT", 9),
        ("Sun, 01 Mar 2026 12:00:09", 9),
        ("Sunday, 01-Mar-26 12:00:09 GMT", 9),
        ("Sun, 01 Mar 2026 13:00:09 +0100", 9),
        ("Sun, 01 Mar 2026 13:00:09 GMT", 60),
        ("Sun, 01 Mar 2020 12:00:00 GMT", 1),
        ("Sun, 99 Mar 2026 12:00:09 GMT", None),
    ],
)
def test_retry_after_is_sane_or_nothing(value: str | None, seconds: int | None) -> None:
    assert read_retry_after(value, NOW) == seconds


@pytest.mark.row("B273")
def test_retry_after_is_found_however_the_header_is_spelled() -> None:
    assert answered(503, b"", RETRY_AFTER="30").retry_after == 30
    assert answered(429, b"", retry_after="1000000000").retry_after == 60
    assert answered(429, b"").retry_after is None


def test_a_failed_stream_ends_in_one_error_event() -> None:
    frame = error_event(InvalidRequest("no\u2028", param="n", code="bad"))
    told = '{"error":{"message":"no\u2028","type":"invalid_request_error","param":"n","code":"bad"}}'
    assert frame == f"data: {told}\n\n".encode()


@given(st.text(max_size=60) | st.text("0123456789:.-+,; GMTSunMar", max_size=40))
def test_any_retry_after_is_bounded(value: str) -> None:
    seconds = read_retry_after(value, NOW)
    assert seconds is None or 1 <= seconds <= 60


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "status", "param", "detail"]), inner)
    ),
    max_leaves=8,
)


@given(st.integers(100, 999), anything)
def test_any_error_is_a_fault_that_can_be_shown(status: int, body: Any) -> None:
    for fault in (answered(status, body), fault_in_answer(body, b"x")):
        assert isinstance(fault, UpstreamFault)
        assert 1 <= len(fault.message) <= 500
        assert fault.message.isprintable()
        assert 400 <= fault.status <= 503
        assert error_event(fault).startswith(b"data: {")
