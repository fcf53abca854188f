"""Failures, as a provider of the Gemini protocol tells them and as a client of it is told."""

import json
from typing import Any

import pytest

from gateway.protocols.google_gemini.errors import envelope, fault
from gateway.wire.errors import InvalidRequest, RateLimited, Unauthenticated, UpstreamFault
from routing.health.faults import Fault
from tests.protocols.google_gemini.talk import body_of


@pytest.mark.parametrize(("case", "status", "kind", "retry_after"), [
    ("error_quota_minute", 429, Fault.RATE_LIMITED, 37),
    ("error_quota_day", 429, Fault.EXHAUSTED, 36),
    ("error_key", 400, Fault.AUTH, None),
    ("error_too_long", 400, Fault.REJECTED, None),
])  # fmt: skip
def test_what_a_provider_says(case: str, status: int, kind: Fault, retry_after: int | None) -> None:
    found = fault(status, {}, body_of(case))
    assert (found.kind, found.retry_after, found.upstream_status) == (kind, retry_after, status)


def test_too_long_has_the_code_that_clients_know() -> None:
    assert fault(400, {}, body_of("error_too_long")).code == "context_length_exceeded"


def test_a_header_wins_over_details_and_a_list_of_one_is_read() -> None:
    body = b"[" + body_of("error_quota_minute") + b"]"
    assert fault(429, {"Retry-After": "5"}, body).retry_after == 5
    assert fault(429, {}, body).retry_after == 37


@pytest.mark.parametrize(("status", "word", "message", "kind"), [
    (400, "FAILED_PRECONDITION", "User location is not supported for the API use.", Fault.AUTH),
    (400, "INVALID_ARGUMENT", "Cannot fetch content from the provided URL", Fault.REJECTED),
    (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", Fault.AUTH),
    (403, "PERMISSION_DENIED", "The caller does not have permission", Fault.AUTH),
    (404, "NOT_FOUND", "models/nope is not found for API version v1beta", Fault.NOT_FOUND),
    (429, "RESOURCE_EXHAUSTED", "Resource exhausted. Please try again later.", Fault.RATE_LIMITED),
    (499, "CANCELLED", "The operation was cancelled.", Fault.SERVER_ERROR),
    (500, "INTERNAL", "An internal error has occurred.", Fault.SERVER_ERROR),
    (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", Fault.OVERLOADED),
    (504, "DEADLINE_EXCEEDED", "Deadline expired before operation could complete.", Fault.TIMEOUT),
])  # fmt: skip
def test_every_status(status: int, word: str, message: str, kind: Fault) -> None:
    body = json.dumps({"error": {"code": status, "message": message, "status": word}}).encode()
    found = fault(status, {}, body)
    assert found.kind is kind
    if kind is Fault.REJECTED:
        assert (found.status, found.message) == (400, message)
    else:
        assert message not in found.message


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b'{"error": 7}', b'{"error": {"details": [7, {}]}}'])
def test_what_is_no_error_is_judged_by_its_status(body: bytes) -> None:
    assert fault(500, {}, body).kind is Fault.SERVER_ERROR


def test_a_delay_that_is_none_is_not_read() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "soon"}
    body = json.dumps({"error": {"status": "RESOURCE_EXHAUSTED", "details": [detail]}}).encode()
    assert fault(429, {}, body).retry_after is None


@pytest.mark.parametrize(("error", "status", "word"), [
    (InvalidRequest("m", param="messages[0].content"), 400, "INVALID_ARGUMENT"),
    (Unauthenticated("m"), 401, "UNAUTHENTICATED"),
    (RateLimited("m", retry_after=7), 429, "RESOURCE_EXHAUSTED"),
    (UpstreamFault(Fault.OVERLOADED), 503, "UNAVAILABLE"),
    (UpstreamFault(Fault.TIMEOUT), 504, "DEADLINE_EXCEEDED"),
    (UpstreamFault(Fault.TRUNCATED), 502, "UNAVAILABLE"),
])  # fmt: skip
def test_what_a_client_is_told(error: Any, status: int, word: str) -> None:
    told = envelope(error, "contents[0]", id="req-1")["error"]
    assert (told["code"], told["status"]) == (status, word)
    kinds = {detail["@type"].rpartition(".")[2]: detail for detail in told["details"]}
    assert kinds["ErrorInfo"]["reason"] == error.code.upper()
    assert kinds["BadRequest"]["fieldViolations"][0]["field"] == "contents[0]"
    assert kinds["RequestInfo"]["requestId"] == "req-1"
    assert kinds.get("RetryInfo", {}).get("retryDelay") == ("7s" if status == 429 else None)
