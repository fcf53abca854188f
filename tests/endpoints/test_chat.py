"""POST /v1/chat/completions through a running gateway: what goes in, what comes out, what is on the books."""

import json
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Attempt, Hold, LedgerEntry, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def events(text: str) -> list[Any]:
    """The payloads of an event stream, [DONE] as text."""
    payloads = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


def test_it_answers_and_accounts_for_every_token(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?tokens=7&prompt=11")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug, user="u-1", metadata={"run": "7"})
    answer = response.json()
    assert response.status_code == 200, answer
    assert answer["id"] == response.headers["x-generation-id"]
    assert answer["model"] == model.slug
    assert answer["usage"]["prompt_tokens"] == 11
    assert answer["usage"]["completion_tokens"] == 7

    usage = Usage.objects.get(id=answer["id"])
    assert (usage.organization, usage.project, usage.key) == (
        alice.organization.id,
        alice.project.id,
        alice.key.id,
    )
    assert (usage.status, usage.basis, usage.finish_reason, usage.stream) == (
        "completed",
        "reported",
        "stop",
        False,
    )
    assert (usage.prompt_tokens, usage.completion_tokens) == (11, 7)
    assert usage.upstream_id not in ("", usage.id.hex)
    assert (usage.end_user, usage.metadata) == ("u-1", {"run": "7"})
    # 11 input tokens at $2 and 7 output tokens at $4 a million; half of that is the provider's.
    assert usage.charge == Decimal("0.000050")
    assert usage.provider_cost == Decimal("0.000025")
    assert usage.arithmetic == [
        {"item": "input", "quantity": 11, "cost": "1.000000", "charge": "2.000000"},
        {"item": "output", "quantity": 7, "cost": "2.000000", "charge": "4.000000"},
    ]
    entries = LedgerEntry.objects.filter(generation=usage.id).order_by("id")
    assert [(e.kind, e.debit, e.credit, e.amount) for e in entries] == [
        ("settle", f"tenant:{alice.organization.id}", "revenue", Decimal("0.000050")),
        ("settle", "cost", f"provider:{provider.slug}", Decimal("0.000025")),
    ]
    assert len({entry.transaction for entry in entries}) == 1
    attempt = Attempt.objects.get(generation=usage.id)
    assert (attempt.number, attempt.status, attempt.provider) == (1, "completed", provider.slug)
    assert not Hold.objects.filter(id=usage.id).exists()


def test_it_streams_and_settles_before_the_last_part(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?tokens=3&prompt=5")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug, stream=True, stream_options={"include_usage": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    chunks = events(response.text)
    assert chunks[-1] == "[DONE]"
    assert len({chunk["id"] for chunk in chunks[:-1]}) == 1
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-2]] == [None, None, None, None, "stop"]
    assert chunks[-3]["choices"][0]["delta"] == {}
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"]["prompt_tokens"] == 5
    assert chunks[-2]["usage"]["completion_tokens"] == 3
    usage = Usage.objects.get(id=chunks[0]["id"])
    assert (usage.status, usage.stream, usage.prompt_tokens, usage.completion_tokens) == (
        "completed",
        True,
        5,
        3,
    )
    assert usage.ttft_ms is not None


def test_it_meters_usage_the_client_did_not_ask_for(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?tokens=3&prompt=5")
    synchronize(gateway)
    chunks = events(gateway.chat(alice.secret, model.slug, stream=True).text)
    assert all("usage" not in chunk for chunk in chunks[:-1])
    assert Usage.objects.get(id=chunks[0]["id"]).completion_tokens == 3


def test_fields_it_does_not_know_pass_through(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    tools = [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"type": "object", "x-odd": [1.5, None]}},
        }
    ]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}
    body = {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "é\u2028"}, image]}],
        "tools": tools,
        "some_new_field": {"a": [1, {"b": None}]},
        "temperature": 0.3,
    }
    answer = gateway.chat(alice.secret, model.slug, **body).json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == {**body, "model": "sim-small?echo"}


def test_the_next_offer_answers_while_nothing_was_relayed(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, provider: Any
) -> None:
    model = make_model(provider, "sim-small?status=503")
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=2", priority=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert answer.status_code == 200
    attempts = Attempt.objects.filter(generation=answer.json()["id"]).order_by("number")
    assert [(a.status, a.fault) for a in attempts] == [("failed", "overloaded"), ("completed", "")]
    assert Usage.objects.get(id=answer.json()["id"]).attempts == 2


def test_output_is_never_followed_by_a_second_provider(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, provider: Any
) -> None:
    model = make_model(provider, "sim-small?tokens=5&prompt=9&fault=reset_mid@3")
    add_offer(model, make_provider(simulated.base_url), "sim-small?tokens=2", priority=1)
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug, stream=True)
    chunks = events(response.text)
    assert response.status_code == 200
    assert chunks[-1]["error"]["code"] == "upstream_truncated"
    assert "[DONE]" not in chunks
    assert all(choice["finish_reason"] is None for chunk in chunks[:-1] for choice in chunk["choices"])
    usage = Usage.objects.get(id=chunks[0]["id"])
    assert (usage.status, usage.basis, usage.attempts) == ("failed", "estimated", 1)
    assert usage.completion_tokens > 0


def test_a_refusal_of_the_providers_is_nothing_charged(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?status=500")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "upstream_error"
    usage = Usage.objects.get(model=model.slug)
    assert (usage.status, usage.basis, usage.charge, usage.provider_cost) == (
        "failed",
        "nothing",
        Decimal(0),
        Decimal(0),
    )
    assert LedgerEntry.objects.get(generation=usage.id).kind == "void"


def test_an_unknown_model_is_refused_and_nothing_happens(
    gateway: Gateway, alice: Tenant, charlie: Tenant, provider: Any
) -> None:
    model = make_model(provider)
    synchronize(gateway)
    _, secret = make_key(alice.project, name="narrow", allowed_models=["some/other"])
    for key, name in ((alice.secret, "no/such"), (secret, model.slug)):
        response = gateway.chat(key, name)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "model_not_found"
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


def test_a_generation_is_shown_to_its_own_organization_alone(
    gateway: Gateway, alice: Tenant, charlie: Tenant, provider: Any
) -> None:
    model = make_model(provider, "sim-small?tokens=7&prompt=11")
    synchronize(gateway)
    id = gateway.chat(alice.secret, model.slug).json()["id"]
    path = f"/v1/generation?id={id}"
    mine = gateway.client.get(path, headers={"x-api-key": alice.secret})
    assert mine.status_code == 200
    assert Decimal(mine.json()["charge"]) == Decimal("0.000050")
    theirs = gateway.client.get(path, headers={"x-api-key": charlie.secret})
    missing = gateway.client.get(f"/v1/generation?id={'0' * 32}", headers={"x-api-key": charlie.secret})
    assert theirs.status_code == missing.status_code == 404
    assert theirs.json() == missing.json()


def test_a_price_changed_in_the_console_takes_effect_within_a_second(
    gateway: Gateway, alice: Tenant, provider: Any
) -> None:
    model = make_model(provider, "sim-small?tokens=1&prompt=10000")
    synchronize(gateway)
    gateway.chat(alice.secret, model.slug)
    tariff = model.offers.get().tariff
    assert tariff is not None
    tariff.versions.get().rates.filter(item="input").update(charge=Decimal("9"))

    def charged_anew() -> bool:
        id = gateway.chat(alice.secret, model.slug).json()["id"]
        return Usage.objects.get(id=id).charge == Decimal("0.090004")

    until(charged_anew, 1)


def test_a_secret_changed_in_the_console_takes_effect_within_a_second(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url, secret="sk-of-yesterday-1111")
    model = make_model(provider, "sim-small?tokens=1&prompt=79").slug
    synchronize(gateway)

    def sent() -> Any:
        assert gateway.chat(alice.secret, model).status_code == 200
        return [line for line in simulated.lines() if line["event"] == "start"][-1]["credential"]["last4"]

    assert sent() == "1111"
    credential = provider.credentials.get()
    credential.put("sk-of-today-2222")
    credential.save()
    until(lambda: sent() == "2222", 1)
