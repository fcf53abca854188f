"""Tokens are counted by the provider that would be asked, where it speaks the client's protocol; else estimated."""

from typing import Any

import httpx
import pytest

from billing.models import Attempt, Limit
from gateway.generation.counting import SECONDS
from routing.models import Model, Offer
from routing.models import Provider as ProviderRow
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.protocols import CONTENTS, HI, Provider, post
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import nothing_happened

BASES = ["/v1", "/anthropic/v1", "/api/anthropic/v1"]
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def count(gateway: Gateway, tenant: Tenant, model: Model, base: str = "/v1", **fields: Any) -> httpx.Response:
    body: dict[str, Any] = {"model": model.slug, "messages": HI} | fields
    return post(gateway, tenant, f"{base}/messages/count_tokens", **body)


def is_estimate(answer: httpx.Response, field: str = "input_tokens") -> bool:
    told = answer.json()
    assert (answer.status_code, told.keys(), told[field] > 0) == (200, {field, "estimated"}, True)
    return bool(told["estimated"])


@pytest.mark.row("B350")
@pytest.mark.parametrize("base", BASES)
def test_a_message_is_counted_by_its_provider(
    base: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", "tools", plays={"input_tokens": 4711})
    synchronize(gateway)
    answer = count(gateway, alice, provider.model, base, system="Be brief.", tools=TOOLS, speed="fast", top_k=3)
    assert (answer.status_code, answer.json()) == (200, {"input_tokens": 4711})
    upstream = provider.model.offers.get().upstream_model
    assert provider.sent == {"model": upstream, "messages": HI, "system": "Be brief.", "tools": TOOLS}
    assert provider.path == "/v1/messages/count_tokens"
    assert provider.fields["anthropic-version"]
    assert nothing_happened(alice)
    assert not Attempt.objects.filter(provider=provider.row.slug).exists()


def test_a_long_message_is_counted_whole(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "anthropic_messages", plays={"input_tokens": 4711})
    synchronize(gateway)
    said = [{"role": "user", "content": "\u20ac" * (2 << 20)}]  # long enough to be encoded in steps, in a thread
    assert count(gateway, alice, provider.model, messages=said).json() == {"input_tokens": 4711}
    assert provider.sent["messages"] == said


def test_contents_are_counted_by_their_provider(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    provider = Provider(simulated, "google_gemini", "temperature", plays={"totalTokens": 4711, "cachedContent": 1})
    synchronize(gateway)
    path = f"/v1beta/models/{provider.model.slug}:countTokens"
    answer = post(gateway, alice, path, contents=CONTENTS)
    assert (answer.status_code, answer.json(), provider.sent) == (200, {"totalTokens": 4711}, {"contents": CONTENTS})
    assert provider.path.endswith(":countTokens")
    said = {"contents": CONTENTS, "systemInstruction": {"parts": [{"text": "Be brief."}]}}
    assert post(gateway, alice, path, generateContentRequest=said).json() == {"totalTokens": 4711}
    upstream = provider.model.offers.get().upstream_model
    assert provider.sent == {"generateContentRequest": {"model": f"models/{upstream}", **said}}
    assert nothing_happened(alice)


@pytest.mark.parametrize(
    "behaves",
    ["sim-small?status=404", "sim-small?status=429", "sim-small?fault=reset_before", "nobody"],
)
def test_a_provider_that_fails_to_count_is_not_waited_for(
    behaves: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    url = "http://127.0.0.1:9" if behaves == "nobody" else simulated.base_url
    model = make_model(make_provider(url, protocol="anthropic_messages"), behaves)
    synchronize(gateway)
    assert is_estimate(count(gateway, alice, model))
    assert nothing_happened(alice)


@pytest.mark.parametrize(
    "says",
    [{}, {"input_tokens": True}, {"input_tokens": -1}, {"input_tokens": 2**40}, {"input_tokens": "7"}, "a" * 70_000],
)
def test_a_count_that_is_none_is_not_believed(
    says: Any, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    plays = {"input_tokens": 7, "padding": says} if isinstance(says, str) else says
    provider = Provider(simulated, "anthropic_messages", plays=plays)
    synchronize(gateway)
    assert is_estimate(count(gateway, alice, provider.model))


def test_a_silent_provider_is_left(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url, protocol="anthropic_messages"), "sim-small?fault=hang")
    synchronize(gateway)
    answer = count(gateway, alice, model)
    assert is_estimate(answer)
    assert answer.elapsed.total_seconds() < SECONDS * 3


def test_who_has_no_way_to_count_is_not_asked(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    invoked = Provider(simulated, "anthropic_messages", plays={"input_tokens": 7})
    ProviderRow.objects.filter(pk=invoked.row.pk).update(variant="invoke")
    others = [Provider(simulated, name, plays={"input_tokens": 7}) for name in ("openai_responses", "google_gemini")]
    resting = Provider(simulated, "anthropic_messages", plays={"input_tokens": 7})
    Offer.objects.filter(model=resting.model).update(forced="open")
    synchronize(gateway)
    for provider in (invoked, *others, resting):
        assert is_estimate(count(gateway, alice, provider.model))
        with pytest.raises(ValueError, match="asked"):
            print(provider.sent)
    messages = Provider(simulated, "anthropic_messages", plays={"totalTokens": 7})
    synchronize(gateway)
    path = f"/v1beta/models/{messages.model.slug}:countTokens"
    assert is_estimate(post(gateway, alice, path, contents=CONTENTS), "totalTokens")


def test_a_count_is_a_request_of_its_key(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "anthropic_messages", plays={"input_tokens": 7})
    Limit.objects.create(organization=alice.organization, measure="requests", value=3)
    synchronize(gateway)
    statuses = [count(gateway, alice, provider.model).status_code for _ in range(8)]  # the minute may end once
    assert 3 <= statuses.count(200) <= 6
    assert set(statuses) == {200, 429}
    assert count(gateway, charlie, provider.model).status_code == 200
    assert not Attempt.objects.filter(provider=provider.row.slug).exists()
