"""The examples of errors and records that clients were written from, in shape, as the running gateway tells them."""

import pytest

from billing.models import Budget, Usage
from tests.protocols.openai_chat.answers import DONE, chunk, shown, usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.playing import Play, player
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import error, speak


@pytest.fixture
def play(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> Play:
    """Has an upstream say exact bytes to one request of Alice's."""
    return player(gateway, alice, simulated)


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B278", "B281", "B285", "B287", "B288", "B289", "B290", "B293")
def test_errors_with_the_status_as_code(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    speak(alice, "zenmux")
    provider = make_provider(simulated.base_url)

    def of(behaviour: str) -> str:
        return str(make_model(provider, f"sim-small?{behaviour}").slug)

    fine, refusing = of("tokens=1"), of("status=422&code=odd_tools&message=tools%5B0%5D%20is%20odd")
    long, limited = of("status=413&message=no"), of("status=429")
    away = make_model(make_provider(simulated.base_url, auth_style="bearer")).slug
    _, broke = make_key(alice.project, name="broke")
    key = alice.project.keys.get(name="broke")
    Budget.objects.create(organization=alice.organization, key=key, period="total", amount=0)
    synchronize(gateway)
    answers = [
        gateway.chat(alice.secret, fine, messages=None),
        gateway.chat(broke, fine),
        gateway.chat(alice.secret, "acme/none"),
        gateway.chat(alice.secret, long),
        gateway.chat(alice.secret, refusing),
        gateway.chat(alice.secret, limited),
        gateway.chat(alice.secret, away),
    ]
    told = [(answer.status_code, error(answer)["code"], error(answer)["type"]) for answer in answers]
    assert told == [
        (400, "400", "invalid_params"),
        (402, "402", "insufficient_credit"),
        (404, "404", "invalid_model"),
        (413, "413", "invalid_params"),
        (422, "422", "provider_unprocessable_entity_error"),
        (429, "429", "rate_limit"),
        (502, "502", "no_provider_available"),
    ]
    assert error(answers[0])["message"] == "Parameter messages is required"
    assert error(answers[2])["message"] == "Model acme/none is not valid"
    assert error(answers[3])["message"] == "Prompt is too long"
    assert error(answers[4])["message"] == "tools[0] is odd"


@pytest.mark.row("B069", "B279", "B280")
def test_errors_with_the_request_id_in_the_message(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    speak(alice, "ezrouter")
    failing = make_model(make_provider(simulated.base_url), "sim-small?status=500").slug
    key, revoked = make_key(alice.project, name="old", dialect="ezrouter")
    key.revoked_at = key.created_at
    key.save()
    synchronize(gateway)
    absent, failed = gateway.chat(alice.secret, "acme/none"), gateway.chat(alice.secret, failing)
    assert (absent.status_code, error(absent)["code"], error(absent)["type"]) == (403, "access_denied", "new_api_error")
    assert (failed.status_code, error(failed)["type"]) == (502, "upstream_error")
    for answer in (absent, failed):
        assert error(answer)["message"].endswith(f"(request id: {answer.headers['x-oneapi-request-id']})")
    # Whose key it was cannot be told, so it is told in the deployment's own dialect: standard here.
    assert gateway.chat(revoked, failing).status_code == 401


# --- records --------------------------------------------------------------------------------------------------------


@pytest.mark.row("B313", "B316", "B317", "B318", "B321")
def test_a_generations_record(gateway: Gateway, alice: Tenant, play: Play) -> None:
    heard = play(
        chunk({"role": "assistant", "content": "Yes."})
        + chunk({}, "stop")
        + usage(1000, 200, completion_tokens_details={"reasoning_tokens": 150})
        + DONE
    )
    id = heard.usage.id.hex
    path = f"/api/v1/management/generation?id={id}"
    record = gateway.client.get(path, headers={"x-api-key": alice.secret}).json()
    assert record["nativeTokens"] == shown(1000, 200, reasoning_tokens=150)
    documented = {
        "api": "chat.completions",
        "generationId": id,
        "model": heard.usage.model,
        "streamed": True,
        "finishReason": "stop",
        "usage": 0.006,  # 1000 tokens at $3 and 200 at $15 a million
        "requestRetryTimes": 0,
        "finalRetry": True,
    }
    assert {name: record[name] for name in documented} == documented
    rated = record["ratingResponses"]
    assert (rated["originAmount"], rated["discountAmount"], rated["billAmount"]) == (0.006, 0, 0.006)
    assert [(line["feeItemCode"], line["rate"], line["billAmount"]) for line in rated["ratingDetails"]] == [
        ("prompt", 3, 0.003),
        ("completion", 15, 0.003),
    ]
    assert record["latency"] >= 0 and record["generationTime"] >= 0
    assert record["createAt"].endswith("Z") and record["createAt"][10] == "T"


@pytest.mark.row("B323", "B326")
def test_a_balance(gateway: Gateway, alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount="12.5")
    _, manager = make_key(alice.project, name="manager", scopes=["management"])
    synchronize(gateway)
    body = gateway.client.get("/api/v1/management/payg/balance", headers={"x-api-key": manager}).json()
    documented = {"currency": "usd", "total_credits": 12.5, "top_up_credits": 12.5, "bonus_credits": 0}
    assert body["success"] is True
    assert {name: body["data"][name] for name in documented} == documented
    assert not Usage.objects.filter(organization=alice.organization.id).exists()
