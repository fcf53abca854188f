"""Which failures lead to the next provider of a model, what it is sent, and what the client learns of it."""

import json
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.stage.speech import error


def two_offers(simulated: SimulatedProvider, first: str, second: str, **fields: Any) -> Any:
    """A model of two providers, tried in this order; `fields` are the first provider's."""
    model = make_model(make_provider(simulated.base_url, **fields), first)
    add_offer(model, make_provider(simulated.base_url), second, priority=1)
    return model


def tries(answer: httpx.Response) -> list[tuple[str, str]]:
    """Status and fault of each attempt of a generation."""
    attempts = Attempt.objects.filter(generation=answer.headers["x-generation-id"]).order_by("number")
    return [(attempt.status, attempt.fault) for attempt in attempts]


@pytest.mark.row("B155", "B159")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("behaviour", "fault"),
    [
        ("status=500", "server_error"),
        ("status=502", "server_error"),
        ("status=503", "overloaded"),
        ("status=401", "auth"),
        ("status=403", "auth"),
        ("status=404", "not_found"),
        ("status=429", "rate_limited"),
        ("status=402", "exhausted"),
        ("fault=error_in_200", "rate_limited"),
    ],
)
def test_a_failure_of_the_provider_leads_to_the_next(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, behaviour: str, fault: str, stream: bool
) -> None:
    model = two_offers(simulated, f"sim-small?{behaviour}", "sim-small?tokens=2")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream)
    assert answer.status_code == 200
    assert tries(answer) == [("failed", fault), ("completed", "")]


@pytest.mark.row("B159")
def test_silence_leads_to_the_next(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = two_offers(simulated, "sim-small?fault=hang", "sim-small?tokens=2", first_byte_timeout=1)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert answer.status_code == 200
    assert tries(answer) == [("failed", "timeout"), ("completed", "")]


@pytest.mark.row("B159")
@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_failure_of_the_request_does_not(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, status: int
) -> None:
    unused = f"sim-small?tokens=2&prompt={5000 + status}"
    model = two_offers(simulated, f"sim-small?status={status}&code=odd_field&message=No.", unused)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert (answer.status_code, error(answer)["code"]) == (status, "odd_field")
    assert tries(answer) == [("failed", "rejected")]
    assert unused not in [line["model"] for line in simulated.lines()]


@pytest.mark.row("B155")
def test_no_other_model_stands_in(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = two_offers(simulated, "sim-small?status=503", "sim-small?status=500")
    other = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert (answer.status_code, error(answer)["code"]) == (502, "upstream_error")  # the last one's
    assert tries(answer) == [("failed", "overloaded"), ("failed", "server_error")]
    assert not Usage.objects.filter(model=other.slug).exists()


@pytest.mark.row("B156")
@pytest.mark.parametrize("fallback", [True, "true"])
def test_fallback_may_be_asked_for(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, fallback: bool | str
) -> None:
    model = two_offers(simulated, "sim-small?status=503", "sim-small?tokens=2")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, provider={"fallback": fallback})
    assert answer.status_code == 200
    assert tries(answer) == [("failed", "overloaded"), ("completed", "")]


@pytest.mark.row("B161", "B162", "B164")
def test_the_next_is_sent_the_same_and_nobody_is_told_who_it_is(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = two_offers(simulated, "sim-small?status=503", "sim-small?echo")
    synchronize(gateway)
    asked = {"temperature": 0.25, "seed": 7, "tools": [{"type": "function", "function": {"name": "f"}}]}
    answer = gateway.chat(alice.secret, model.slug, **asked)
    said = answer.json()
    assert json.loads(said["choices"][0]["message"]["content"]) == {
        **asked,
        "model": "sim-small?echo",
        "messages": [{"role": "user", "content": "hi"}],
    }
    assert said["model"] == model.slug
    found = gateway.client.get(f"/v1/management/generation?id={said['id']}", headers={"x-api-key": alice.secret})
    assert (found.json()["requestRetryTimes"], found.json()["finalRetry"]) == (1, True)
    slugs = [offer.provider.slug for offer in model.offers.all()]
    for response in (answer, found):
        told = response.text + str(response.headers)
        assert not [slug for slug in slugs if slug in told]
