"""Whose secrets are whose: nothing of the provider's reaches a client, nothing of a client's reaches the provider."""

import json
from typing import Any

import pytest

from tests.protocols.openai_chat.answers import whole
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.playing import Play, player
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider


@pytest.fixture
def play(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Play:
    """Has an upstream say exact bytes to one request of Alice's."""
    return player(gateway, alice, simulated)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        {"status": 502, "content_type": "text/html"},
        {"status": 200, "content_type": "text/html"},
        {"status": 404, "content_type": "text/html"},
        {"status": 400, "content_type": "text/html"},
        {"status": 200, "content_type": "application/json"},
    ],
)
def test_a_page_of_the_provider_is_never_shown(
    gateway: Gateway, play: Play, stream: bool, answer: dict[str, Any]
) -> None:
    page = b"<!DOCTYPE html><html><body><h1>SECRET-INTERNAL</h1><p>" + b"x" * 50_000 + b"SECRET-END</p></body></html>"
    heard = play(page, body={"stream": stream}, **answer)
    assert heard.response.status_code in (502, answer["status"])
    assert heard.response.status_code >= 400
    assert heard.response.json()["error"]["type"] in ("upstream_error", "invalid_request_error")
    assert "SECRET" not in heard.response.text
    assert "html" not in heard.response.text
    assert "SECRET-END" not in gateway.log.read_text()
    assert heard.usage.charge == 0


def test_the_operator_can_read_why_a_provider_failed(gateway: Gateway, play: Play) -> None:
    heard = play(b'{"error":{"message":"the pool\nis dry, key sk-abcdef1234567890abcdef"}}', status=500)
    assert heard.error == (502, "upstream_error")
    lines = [row for row in gateway.log.read_text().splitlines() if heard.usage.id.hex in row]
    (line,) = (row for row in lines if heard.usage.provider in row)  # beside the one of the access
    assert "is dry" in line
    assert "sk-abcdef" not in "".join(lines)


def test_a_clients_headers_stay_here_and_the_providers_stay_there(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url, secret="sk-upstream-0123456789")
    model = make_model(provider, "sim-small?echo_headers").slug
    option = simulated.script(
        "talkative",
        whole({"role": "assistant", "content": "ok"}),
        header=[
            *("Set-Cookie: CANARY=1", "Server: CANARY", "openai-organization: CANARY", "Location: http://CANARY/"),
            *("x-ratelimit-limit-requests: 77", "x-request-id: CANARY", "Strict-Transport-Security: CANARY"),
        ],
    )
    talkative = make_model(provider, f"sim-small?{option}").slug
    synchronize(gateway)
    body = {"messages": [{"role": "user", "content": "hi"}]}
    headers = {
        "Authorization": f"Bearer {alice.secret}",
        "Cookie": "sid=CANARY",
        "x-internal-secret": "CANARY",
        "X-Forwarded-For": "10.9.9.9",
        "X-Real-IP": "10.9.9.9",
        "Forwarded": "for=10.9.9.9",
        "Proxy-Authorization": "CANARY",
        "OpenAI-Organization": "CANARY",
        "User-Agent": "CANARY/1",
        "Referer": "http://CANARY/",
    }
    answer = gateway.client.post("/v1/chat/completions", json={**body, "model": model}, headers=headers).json()
    sent = {name.lower(): value for name, value in json.loads(answer["choices"][0]["message"]["content"])}
    assert sent.keys() == {
        *("host", "accept", "accept-encoding", "content-type", "content-length", "authorization", "user-agent"),
    }
    assert sent["authorization"] == "Bearer [key]"  # it was sent, and is not told
    assert "CANARY" not in str(sent)
    response = gateway.client.post("/v1/chat/completions", json={**body, "model": talkative}, headers=headers)
    assert response.status_code == 200
    assert response.headers.keys() == {
        *("date", "content-type", "content-length", "x-generation-id", "x-request-id"),
        *("access-control-allow-origin", "access-control-expose-headers"),
    }
    assert "CANARY" not in str(response.headers)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
def test_objects_at_the_provider_cannot_be_reached_by_their_ids(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, method: str, prefix: str
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?id=chatcmpl-raw-1").slug
    secrets = [make_key(tenant.project, scopes=["inference", "files"])[1] for tenant in (alice, charlie)]
    synchronize(gateway)
    ours = gateway.chat(alice.secret, model).json()["id"]
    requests = simulated.state()["requests"]
    # The gateway has files of its own, whose paths take no POST.
    files = (405, "method_not_allowed") if method == "POST" else (404, "file_not_found")
    for noun in ("responses", "files", "batches", "threads", "assistants", "fine_tuning/jobs", "chat/completions"):
        for id in ("chatcmpl-raw-1", ours):
            for secret in secrets:
                answer = gateway.client.request(method, f"{prefix}/{noun}/{id}", headers={"x-api-key": secret})
                expected = files if noun == "files" else (404, "not_found")
                assert (answer.status_code, answer.json()["error"]["code"]) == expected
    for id, status in (("chatcmpl-raw-1", 404), ("raw", 404), ("", 400)):
        answer = gateway.client.get(f"{prefix}/generation?id={id}", headers={"x-api-key": charlie.secret})
        assert answer.status_code == status
    assert simulated.state()["requests"] == requests


def test_a_refused_key_is_nowhere_in_the_answer_or_the_log(gateway: Gateway) -> None:
    canary = "sk-ml-" + "CANARY7" * 5 + "Z"
    response = gateway.chat(canary, "any/model")
    assert response.status_code == 401
    assert response.json()["error"]["param"] is None
    for text in (response.text, str(response.headers), gateway.log.read_text()):
        assert "CANARY7" not in text
    for word in ("sha", "digest", "accounts_", "postgres", "django", "Traceback"):
        assert word not in response.text
