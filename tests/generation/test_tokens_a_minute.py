"""Limits of tokens: what they hold, what they learn from, and what can never fit them."""

import json
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Counter, Hold, Limit, Usage
from routing.models import Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def limit(tenant: Tenant, value: int) -> None:
    """So many tokens a minute for the key."""
    Limit.objects.create(
        organization=tenant.organization, project=tenant.project, key=tenant.key, measure="tokens", value=value
    )


def test_requests_behind_each_other_go_through_at_what_they_really_use(
    gateway: Gateway, provider: Provider, alice: Tenant
) -> None:
    """800 tokens each against 10,000 a minute: 12 fit, though at worst each could be of 4,000 and more."""
    model = make_model(provider, "sim-small?tokens=700&prompt=100")
    asked = [{"role": "user", "content": "word " * 100}]
    for _ in range(3):  # again, should a minute have ended meanwhile
        key, secret = make_key(alice.project, name="fresh")
        Limit.objects.create(
            organization=alice.organization, project=alice.project, key=key, measure="tokens", value=10_000
        )
        synchronize(gateway)
        answers = [gateway.chat(secret, model.slug, messages=asked).status_code for _ in range(14)]
        windows = Counter.objects.filter(subject=key.pk, measure="tokens")
        if len(windows) == 1:
            break
    assert answers == [200] * 12 + [429] * 2
    assert [(counter.used, counter.held) for counter in windows] == [(Decimal(9600), Decimal(0))]


def held_while_it_waits(gateway: Gateway, simulated: SimulatedProvider, tenant: Tenant, model: str) -> int:
    """The tokens that a request of 500 tokens at most holds while its provider is silent."""
    waiting = simulated.state()["waiting"]
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(gateway.chat, tenant.secret, model, max_tokens=500)
        simulated.until(waiting=waiting + 1)
        tokens = Hold.objects.get(key=tenant.key.pk).tokens
        simulated.release()
        assert asking.result().status_code == 200
    return tokens


def test_a_key_that_is_not_known_yet_is_held_at_its_worst(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, alice: Tenant
) -> None:
    model = make_model(provider, f"held-{provider.slug}?hold=0&tokens=5&prompt=5")
    limit(alice, 10_000)
    synchronize(gateway)
    body = {"model": model.slug, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 500}
    length = len(json.dumps(body, separators=(",", ":")))
    assert held_while_it_waits(gateway, simulated, alice, model.slug) == length + 500
    assert held_while_it_waits(gateway, simulated, alice, model.slug) == 5 + 5  # as the one before it


def test_what_one_key_uses_says_nothing_of_another_s(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, alice: Tenant, charlie: Tenant
) -> None:
    model = make_model(provider, f"other-{provider.slug}?hold=0&tokens=5&prompt=5")
    synchronize(gateway)
    held_while_it_waits(gateway, simulated, alice, model.slug)
    assert held_while_it_waits(gateway, simulated, charlie, model.slug) > 500


def test_a_cap_that_can_never_fit_is_lowered(gateway: Gateway, provider: Provider, alice: Tenant) -> None:
    model = make_model(provider, "sim-small?echo")
    limit(alice, 4000)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug)
    assert answer.status_code == 200
    said: dict[str, Any] = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert 3900 < said["max_tokens"] < 4000


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_can_never_fit_is_told_so(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, alice: Tenant, stream: bool
) -> None:
    model = make_model(provider, f"never-{provider.slug}")
    limit(alice, 1000)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, stream=stream, messages=[{"role": "user", "content": "x" * 8000}])
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (400, "invalid_request_error", "token_limit_too_low")
    assert "the key's limit of 1000 tokens a minute" in error["message"]
    assert "Retry-After" not in answer.headers
    assert not [line for line in simulated.lines() if line["model"] == f"never-{provider.slug}"]
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert not Hold.objects.filter(organization=alice.organization.pk).exists()
    assert Counter.objects.get(subject=alice.key.pk).held == 0


def test_the_key_s_least_cap_counts(gateway: Gateway, provider: Provider, alice: Tenant) -> None:
    model = make_model(provider)
    alice.key.min_output_cap = 1000
    alice.key.save()
    limit(alice, 1000)
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).json()["error"]["code"] == "token_limit_too_low"
    assert gateway.chat(alice.secret, model.slug, max_tokens=50).status_code == 200
