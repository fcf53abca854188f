"""Paths, methods, bodies, keys and headers in every dialect, through the running gateway."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from accounts.models import Scope
from billing.models import Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, running, synchronize, until
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import ALL, CHAT, error, events, nothing_happened, speak

ID = re.compile(r"[0-9a-f]{32}")


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture(scope="module")
def deployments(
    database: None, simulated: SimulatedProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Gateway]]:
    """A gateway for each vendor's dialect, which speaks it before it knows who calls; pages of one origin may read."""
    folder = tmp_path_factory.mktemp("deployments")
    env: Any = {"EGRESS_ALLOW": simulated.url, "CORS_ALLOW_ORIGINS": "https://app.example", "BUILD": "20260102-030405"}
    with (
        running(folder / "zenmux", DEFAULT_DIALECT="zenmux", **env) as (zenmux,),
        running(folder / "ezrouter", DEFAULT_DIALECT="ezrouter", **env) as (ezrouter,),
    ):
        yield {"zenmux": zenmux, "ezrouter": ezrouter}


def bare(message: str) -> str:
    """A message without the request id that a dialect puts into it."""
    return re.sub(r" \(request id: [0-9a-f]{32}\)\Z", "", message)


# --- paths, methods, bodies ------------------------------------------------------------------------------------------


@pytest.mark.row("B001")
@pytest.mark.parametrize("path", CHAT)
def test_both_trees_lead_to_the_same_place(gateway: Gateway, alice: Tenant, provider: Any, path: str) -> None:
    model = make_model(provider, "sim-small?text=hello")
    synchronize(gateway)
    body = {"model": model.slug, "messages": [{"role": "user", "content": "hi"}]}
    answer = gateway.client.post(path, json=body, headers={"Authorization": f"Bearer {alice.secret}"}).json()
    assert answer["choices"][0]["message"]["content"] == "hello"


@pytest.mark.row("B002")
@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "TRACE"])
@pytest.mark.parametrize("path", CHAT)
def test_another_method_is_405_and_told_which_there_are(
    gateway: Gateway, alice: Tenant, method: str, path: str
) -> None:
    response = gateway.client.request(method, path, headers={"Authorization": f"Bearer {alice.secret}"})
    assert (response.status_code, response.headers["allow"]) == (405, "POST, OPTIONS")
    assert error(response)["code"] == "method_not_allowed"


@pytest.mark.row("B003", "B004")
@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "x-goog-api-key"])
@pytest.mark.parametrize("dialect", ALL)
def test_a_key_is_taken_from_each_header_in_each_dialect(
    gateway: Gateway, alice: Tenant, dialect: str, name: str
) -> None:
    speak(alice, dialect)
    value = f"Bearer {alice.secret}" if name == "Authorization" else alice.secret
    assert gateway.client.get("/v1/models", headers={name: value}).status_code == 200


@pytest.mark.row("B005")
@pytest.mark.parametrize(("dialect", "status"), [("standard", 415), ("zenmux", 400), ("ezrouter", 415)])
def test_no_content_type_is_json_and_another_one_is_refused(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, status: int
) -> None:
    speak(alice, dialect)
    model = make_model(provider)
    synchronize(gateway)
    content = json.dumps({"model": model.slug, "messages": [{"role": "user", "content": "hi"}]})
    headers = {"Authorization": f"Bearer {alice.secret}"}
    assert gateway.client.post(CHAT[0], content=content, headers=headers).status_code == 200
    refused = gateway.client.post(CHAT[0], content=content, headers={**headers, "Content-Type": "text/plain"})
    assert refused.status_code == status
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


@pytest.mark.row("B018")
@pytest.mark.parametrize(
    ("headers", "app"),
    [
        ({"HTTP-Referer": "https://app.example/chat?user=7#top", "X-Title": "App"}, "App"),
        ({"HTTP-Referer": "https://app.example/chat?user=7#top"}, "https://app.example/chat"),
        ({"X-Title": "Schön \u65e5".encode()}, "Schön \u65e5"),
        ({"X-Title": b"Sch\xf6n"}, "Schön"),
        ({"X-Title": "\u0085".encode(), "HTTP-Referer": "?x"}, None),
        ({}, None),
    ],
)
def test_a_client_may_say_which_application_it_is(
    gateway: Gateway, alice: Tenant, provider: Any, headers: dict[str, Any], app: str | None
) -> None:
    model = make_model(provider, "sim-small?echo_headers")
    synchronize(gateway)
    response = gateway.client.post(
        CHAT[0],
        json={"model": model.slug, "messages": [{"role": "user", "content": "hi"}]},
        headers={"Authorization": f"Bearer {alice.secret}", **headers},
    )
    assert response.status_code == 200
    sent = {name.lower() for name, _ in json.loads(response.json()["choices"][0]["message"]["content"])}
    assert sent.isdisjoint({"http-referer", "x-title"}), "the provider's other customers are none of its business"
    assert Usage.objects.get(organization=alice.organization.id).app == app
    path = f"/v1/management/generation?id={response.headers['x-generation-id']}"
    assert gateway.client.get(path, headers={"x-api-key": alice.secret}).json()["app"] == app


# --- who calls -------------------------------------------------------------------------------------------------------


@pytest.mark.row("B006", "B285")
@pytest.mark.parametrize(
    ("dialect", "status", "shown"),
    [
        (
            "zenmux",
            403,
            {"code": "403", "type": "access_denied", "message": "You have no permission to access this resource"},
        ),
        ("ezrouter", 401, {"code": "invalid_api_key", "type": "authentication_error"}),
    ],
)
def test_a_bad_key_is_told_in_the_deployments_dialect_and_no_two_are_told_apart(
    deployments: dict[str, Gateway], alice: Tenant, dialect: str, status: int, shown: dict[str, str]
) -> None:
    gateway = deployments[dialect]
    alice.key.revoked_at = alice.key.created_at
    alice.key.save()
    synchronize(gateway)
    said = []
    for secret in (alice.secret, "sk-ai-v1-0123456789abcdef", "sk-0123"):
        response = gateway.chat(secret, "no/such")
        found = error(response)
        assert response.status_code == status
        assert shown.items() <= found.items()
        said.append((bare(found.pop("message")), found.pop("request_id", None) is None, found))
    assert said[0] == said[1] == said[2]
    assert nothing_happened(alice)


@pytest.mark.row("B007")
@pytest.mark.parametrize(
    ("dialect", "code"), [("standard", "missing_scope"), ("zenmux", "403"), ("ezrouter", "access_denied")]
)
def test_a_management_key_calls_no_model(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, code: str
) -> None:
    speak(alice, dialect)
    model = make_model(provider)
    _, secret = make_key(alice.project, name="management", scopes=[Scope.MANAGEMENT])
    synchronize(gateway)
    response = gateway.chat(secret, model.slug)
    assert (response.status_code, error(response)["code"]) == (403, code)
    assert nothing_happened(alice)


@pytest.mark.row("B008")
def test_a_key_is_compared_whole(gateway: Gateway, alice: Tenant) -> None:
    for secret in (alice.secret.removeprefix("sk-"), f"{alice.secret}-1", alice.secret.rpartition("-")[2]):
        response = gateway.client.get("/v1/models", headers={"Authorization": f"Bearer {secret}"})
        assert response.status_code == 401


@pytest.mark.row("B015")
def test_a_keys_dialect_wins_over_its_projects_and_a_change_takes_effect_within_a_second(
    gateway: Gateway, alice: Tenant
) -> None:
    speak(alice, "ezrouter")
    key, secret = make_key(alice.project, name="other", dialect="zenmux")
    synchronize(gateway)
    assert error(gateway.chat(alice.secret, "no/such"))["code"] == "access_denied"
    assert error(gateway.chat(secret, "no/such"))["type"] == "invalid_model"
    key.dialect = ""
    key.save()
    until(lambda: error(gateway.chat(secret, "no/such"))["code"] == "access_denied", 1)


# --- headers ---------------------------------------------------------------------------------------------------------


def names_of_request_id(response: httpx.Response) -> set[str]:
    """The headers that carry the request id."""
    id = response.headers["x-request-id"]
    assert ID.fullmatch(id)
    return {name for name, value in response.headers.items() if value == id}


@pytest.mark.row("B009", "B010", "B011", "B012")
@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("standard", {"x-request-id"}),
        ("zenmux", {"x-request-id", "x-zenmux-requestid"}),
        ("ezrouter", {"x-request-id", "x-oneapi-request-id"}),
    ],
)
def test_every_answer_carries_its_ids(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, names: set[str]
) -> None:
    speak(alice, dialect)
    model, broken = make_model(provider), make_model(provider, "sim-small?status=500")
    synchronize(gateway)
    answer, refusal = gateway.chat(alice.secret, model.slug, stream=True), gateway.chat(alice.secret, "no/such")
    failure, listed = (
        gateway.chat(alice.secret, broken.slug),
        gateway.client.get("/v1/models", headers={"x-api-key": alice.secret}),
    )
    for response in (answer, refusal, failure, listed):
        assert names_of_request_id(response) == names
        build = response.headers.get("x-new-api-version")
        assert bool(re.fullmatch(r"\d{8}-\d{6}", build or "")) is (dialect == "ezrouter")
    assert answer.headers["x-generation-id"] == events(answer.text)[0]["id"]
    # A generation that failed has an id too, and its row; a refused request has neither.
    assert Usage.objects.get(id=failure.headers["x-generation-id"]).status == "failed"
    assert "x-generation-id" not in refusal.headers
    assert len({response.headers["x-request-id"] for response in (answer, refusal, failure, listed)}) == 4


@pytest.mark.row("B009", "B010", "B011")
@pytest.mark.parametrize(("dialect", "header"), [("zenmux", "x-zenmux-requestid"), ("ezrouter", "x-oneapi-request-id")])
def test_an_answer_to_nobody_carries_them_too(deployments: dict[str, Gateway], dialect: str, header: str) -> None:
    gateway = deployments[dialect]
    for response in (
        gateway.chat("sk-none", "no/such"),
        gateway.client.get("/v1/nothing"),
        gateway.client.put(CHAT[0]),
    ):
        assert response.status_code >= 400
        assert response.headers[header] == response.headers["x-request-id"]
        assert response.headers.get("x-new-api-version") == ("20260102-030405" if dialect == "ezrouter" else None)
        assert (
            header.startswith("x-zenmux") or f"(request id: {response.headers[header]})" in error(response)["message"]
        )


@pytest.mark.row("B013")
def test_a_page_of_any_origin_may_call_the_api(gateway: Gateway, alice: Tenant) -> None:
    asked = "authorization, content-type, x-stainless-lang"
    preflight = gateway.client.options(
        CHAT[0],
        headers={
            "Origin": "https://page.example",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": asked,
        },
    )
    assert (preflight.status_code, preflight.content) == (204, b"")
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert preflight.headers["access-control-allow-methods"] == preflight.headers["allow"] == "POST, OPTIONS"
    assert preflight.headers["access-control-allow-headers"] == asked
    for secret, status in ((alice.secret, 404), ("sk-none", 401)):
        response = gateway.client.post(
            CHAT[0],
            json={"model": "no/such", "messages": [{"role": "user", "content": "hi"}]},
            headers={"Authorization": f"Bearer {secret}", "Origin": "https://page.example"},
        )
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == "*"
        assert response.headers["access-control-expose-headers"] == "*"
    for path in ("/healthz", "/metrics", "/readyz"):
        assert "access-control-allow-origin" not in gateway.client.get(path).headers


@pytest.mark.row("B013")
def test_a_deployment_may_name_the_origins(deployments: dict[str, Gateway]) -> None:
    client = deployments["zenmux"].client
    for origin, allowed in (("https://app.example", True), ("https://app.example.evil", False), ("null", False)):
        for response in (
            client.options("/v1/models", headers={"Origin": origin}),
            client.get("/v1/models", headers={"Origin": origin}),
        ):
            assert response.headers.get("access-control-allow-origin") == (origin if allowed else None)
            assert response.headers["vary"] == "Origin"


def test_what_no_header_may_hold_is_not_sent_back_in_one(gateway: Gateway) -> None:
    headers = {"Origin": "https://page.example", "Access-Control-Request-Headers": 'a"; b\x80'}
    preflight = gateway.client.options(
        "/v1/models", headers=[(n.encode(), v.encode("latin-1")) for n, v in headers.items()]
    )
    assert preflight.headers["access-control-allow-headers"] == "authorization, content-type"
    assert preflight.headers["allow"] == "GET, HEAD, OPTIONS"
