"""Whatever base URL an SDK was given: its calls arrive, or a refusal says where they should go."""

import pytest

from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

HI = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1", "/api/v1"])
def test_a_base_url_may_have_its_version_or_not(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, base: str
) -> None:
    slug = make_model(make_provider(simulated.base_url), "sim-small?text=hello").slug
    synchronize(gateway)
    headers = {"Authorization": f"Bearer {alice.secret}"}
    answer = gateway.client.post(f"{base}/chat/completions", json={"model": slug, "messages": HI}, headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert slug in {model["id"] for model in gateway.client.get(f"{base}/models", headers=headers).json()["data"]}
    assert gateway.client.get(f"{base}/models/{slug}", headers=headers).json()["id"] == slug
    assert gateway.client.get(f"{base}/files", headers=headers).json()["error"]["code"] == "missing_scope"
    assert gateway.client.post(f"{base}/route", json={"model": slug, "messages": HI}, headers=headers).is_success


@pytest.mark.parametrize("base", ["", "/v1", "/v1/v1", "/api/v1"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/moderations", "Moderations are not served."),
        ("/messages/batches", "Batches are not served."),
        ("/responses/resp_1", "Chat completions are POST /v1/chat/completions"),
        ("/chat/completion", "Chat completions are POST /v1/chat/completions, models GET /v1/models."),
    ],
)
def test_what_is_not_served_is_told_with_what_to_use(gateway: Gateway, base: str, path: str, says: str) -> None:
    answer = gateway.client.post(base + path, json={"model": "x", "input": "hi"})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (404, "invalid_request_error", "not_found")
    assert error["message"].startswith(f"There is no endpoint POST {base}{path}. ")
    assert says in error["message"]


def test_a_path_is_shown_and_not_believed(gateway: Gateway) -> None:
    message = gateway.client.get("/v1/" + "%0a" + "a" * 5000).json()["error"]["message"]
    assert message.startswith("There is no endpoint GET /v1/?aaa")
    assert len(message) < 400


@pytest.mark.parametrize("nul", ["%00", "a%00b"])
@pytest.mark.parametrize("path", ["/files", "/generation", "/exports/generations", "/management/usage", "/models"])
def test_a_nul_in_a_query_is_refused_before_anything_is_looked_up(
    gateway: Gateway, alice: Tenant, path: str, nul: str
) -> None:
    """PostgreSQL's text has none, so a lookup with one would be a fault of ours."""
    headers = {"Authorization": f"Bearer {alice.secret}"}
    for name in ("purpose", "after", "id", "model", "x"):
        answer = gateway.client.get(f"/v1{path}?{name}={nul}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_query")


def test_a_nul_in_a_path_names_nothing(gateway: Gateway, alice: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alice.secret}"}
    for path in ("models/%00", "models/a%00/b", "files/%00", "files/%00/content", "%00"):
        assert gateway.client.get(f"/v1/{path}", headers=headers).status_code in (403, 404)
