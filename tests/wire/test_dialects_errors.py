"""How each dialect tells what went wrong, through the running gateway."""

from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Budget, Limit, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff
from tests.stage.speech import ALL, CHAT, error, nothing_happened, speak


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


# --- limits and money ------------------------------------------------------------------------------------------------


@pytest.mark.row("B014", "B290")
@pytest.mark.parametrize(("dialect", "type"), [("standard", "rate_limit_error"), ("zenmux", "rate_limit")])
def test_a_limit_is_429_with_the_headers_that_say_when(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, type: str
) -> None:
    speak(alice, dialect)
    Limit.objects.create(organization=alice.organization, key=alice.key, measure="requests", value=0)
    model = make_model(provider)
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, error(response)["type"]) == (429, type)
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert response.headers["x-ratelimit-limit-requests"] == "0"
    assert response.headers["x-ratelimit-remaining-requests"] == "0"
    assert response.headers["x-ratelimit-reset-requests"] == f"{response.headers['retry-after']}s"
    assert "limit of 0 requests a minute" in error(response)["message"]
    assert nothing_happened(alice)


@pytest.mark.row("B014", "B290")
def test_ezrouter_waits_for_room(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    speak(alice, "ezrouter")
    limit = Limit.objects.create(organization=alice.organization, key=alice.key, measure="open", value=0)
    model = make_model(provider)
    synchronize(gateway)
    # It waits for longer than this client does, who leaves nothing behind.
    with pytest.raises(httpx.ReadTimeout):
        gateway.client.post(
            CHAT[0],
            json={"model": model.slug, "messages": [{"role": "user", "content": "hi"}]},
            headers={"x-api-key": alice.secret},
            timeout=1.5,
        )
    assert nothing_happened(alice)
    limit.value = 1
    limit.save()
    response = gateway.chat(alice.secret, model.slug)
    assert response.status_code == 200
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1


@pytest.mark.row("B014", "B290")
def test_a_busy_provider_is_told_without_a_429_and_without_rate_headers(
    gateway: Gateway, alice: Tenant, provider: Any
) -> None:
    model = make_model(provider, "sim-small?status=429&retry_after=7")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    speak(alice, "ezrouter")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, error(response)["type"]) == (503, "upstream_error")
    assert not [name for name in response.headers if "ratelimit" in name or name == "retry-after"]


@pytest.mark.row("B282", "B283")
@pytest.mark.parametrize(
    ("dialect", "status", "shown", "unpriced"),
    [
        ("standard", 402, {"type": "insufficient_credit", "code": "insufficient_credit"}, {"code": "unknown_price"}),
        ("zenmux", 402, {"type": "insufficient_credit", "code": "402"}, {"type": "reject_no_credit", "code": "402"}),
        (
            "ezrouter",
            403,
            {"type": "new_api_error", "code": "insufficient_user_quota"},
            {"type": "new_api_error", "code": "insufficient_user_quota"},
        ),
    ],
)
def test_a_budget_without_room_is_told(
    gateway: Gateway,
    alice: Tenant,
    provider: Any,
    dialect: str,
    status: int,
    shown: dict[str, str],
    unpriced: dict[str, str],
) -> None:
    speak(alice, dialect)
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.000001"), hard=True)
    priced, other = make_model(provider), make_model(provider, tariff=make_tariff(input="1"))
    synchronize(gateway)
    for model, wanted in ((priced, shown), (other, unpriced)):
        response = gateway.chat(alice.secret, model.slug)
        assert response.status_code == status
        assert wanted.items() <= error(response).items()
        assert "retry-after" not in response.headers
    assert nothing_happened(alice)


# --- what is wrong with a request ------------------------------------------------------------------------------------

ALONE = {"role": "user"}
ROUTE: dict[str, Any] = {"type": "priority", "providers": ["a"]}
ZENMUX_REFUSES: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "Parameter model is required"),
    ({"messages": None}, "Parameter messages is required"),
    ({"messages": []}, "Parameter messages can not be empty"),
    ({"messages": [None]}, "Parameter messages can not contain null elements"),
    ({"messages": [ALONE]}, "Parameter messages can not contain elements without content"),
    ({"stream_options": {}}, "Parameter stream_options is not supported while stream is false"),
    ({"n": 2}, "Parameter n grater than 1 is not supported"),
    ({"temperature": -0.1}, "Parameter temperature is not valid"),
    (
        {"stream": True, "stream_options": {"include_usage": True}, "usage": {"include": False}},
        "Parameter stream_options.include_usage conflict with usage.include",
    ),
    (
        {"include_reasoning": True, "reasoning": {"exclude": True}},
        "Parameter include_reasoning conflict with reasoning.exclude",
    ),
    ({"provider": {"routing": {**ROUTE, "type": "luck"}}}, "Parameter type of provider.routing is not valid"),
    ({"provider": {"routing": {**ROUTE, "providers": []}}}, "Parameter providers of provider.routing is not valid"),
]


@pytest.mark.row("B019", "B020", "B021", "B022", "B067", "B083", "B085", "B110", "B113", "B114", "B142", "B149", "B281")
@pytest.mark.parametrize(("body", "message"), ZENMUX_REFUSES, ids=lambda value: str(value)[:40])
def test_zenmux_refuses_a_request_in_the_documented_words(
    gateway: Gateway, alice: Tenant, provider: Any, body: dict[str, Any], message: str
) -> None:
    speak(alice, "zenmux")
    model = make_model(provider)
    synchronize(gateway)
    response = gateway.chat(alice.secret, **{"model": model.slug, **body})
    found = error(response)
    assert (response.status_code, found["code"], found["type"]) == (400, "400", "invalid_params")
    assert found["message"] == message
    assert nothing_happened(alice)


@pytest.mark.row("B083", "B085", "B088", "B110")
@pytest.mark.parametrize(
    ("body", "taken_by"),
    [
        ({"temperature": 2.5}, {"zenmux"}),
        ({"n": 2}, {"standard"}),
        ({"stop": ["a", "b", "c", "d", "e"]}, {"standard", "ezrouter"}),
        ({"stream_options": {"include_usage": True}}, {"ezrouter"}),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else " and ".join(sorted(value)),
)
def test_what_one_dialect_takes_and_another_refuses(
    gateway: Gateway, alice: Tenant, provider: Any, body: dict[str, Any], taken_by: set[str]
) -> None:
    model = make_model(provider)
    taken = set()
    for dialect in ALL:
        speak(alice, dialect)
        synchronize(gateway)
        response = gateway.chat(alice.secret, model.slug, **body)
        assert response.status_code in (200, 400), response.text
        if response.status_code == 200:
            taken.add(dialect)
        else:
            assert error(response)["param"] in body
    assert taken == taken_by
    assert Usage.objects.filter(organization=alice.organization.id).count() == len(taken)


# --- what the provider refuses, and what it is not told --------------------------------------------------------------


@pytest.mark.row("B286", "B288", "B289", "B292", "B293", "B294")
@pytest.mark.parametrize(
    ("options", "status", "type"),
    [
        ("status=400&code=invalid_value", 422, "provider_unprocessable_entity_error"),
        ("status=422&code=bad_field", 422, "provider_unprocessable_entity_error"),
        ("status=400&code=content_policy_violation", 403, "safety_check_failed"),
        ("status=400&code=context_length_exceeded", 413, "invalid_params"),
        ("status=413&code=too_big", 413, "invalid_params"),
        ("status=500", 500, "provider_api_error"),
        ("fault=garbage", 500, "provider_error"),
        ("fault=close_before", 520, "provider_internal_server_error"),
    ],
)
def test_zenmux_tells_a_providers_failure(
    gateway: Gateway, alice: Tenant, provider: Any, options: str, status: int, type: str
) -> None:
    speak(alice, "zenmux")
    model = make_model(provider, f"sim-small?{options}")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, error(response)["type"], error(response)["code"]) == (status, type, str(status))
    assert type != "invalid_params" or error(response)["message"] == "Prompt is too long"
    usage = Usage.objects.get(organization=alice.organization.id)
    assert (usage.status, usage.charge) == ("failed", Decimal(0))


@pytest.mark.row("B294")
def test_zenmux_tells_a_provider_that_is_too_slow(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    speak(alice, "zenmux")
    model = make_model(make_provider(simulated.base_url, first_byte_timeout=0.2), "sim-small?fault=hang")
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, error(response)["type"]) == (524, "provider_internal_server_error")


@pytest.mark.row("B293")
def test_zenmux_tells_that_no_provider_is_left(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    speak(alice, "zenmux")
    model = make_model(make_provider(simulated.base_url, auth_style="bearer"))  # without a credential
    synchronize(gateway)
    response = gateway.chat(alice.secret, model.slug)
    assert (response.status_code, error(response)["type"]) == (502, "no_provider_available")
    assert nothing_happened(alice)


@pytest.mark.row("B297")
@pytest.mark.parametrize("dialect", ALL)
def test_no_dialect_names_the_provider(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, dialect: str
) -> None:
    speak(alice, dialect)
    provider = make_provider(simulated.base_url, secret="sk-upstream-0123456789abcdef")
    said = "bad%20key%20sk-upstream-0123456789abcdef%20at%20https://llm.acme.example/v1%20from%2010.1.2.3"
    refused = make_model(provider, f"sim-small?status=400&message={said}")
    denied, broken = make_model(provider, "sim-small?status=401"), make_model(provider, "sim-small?fault=html_502")
    synchronize(gateway)
    for model in (refused, denied, broken):
        response = gateway.chat(alice.secret, model.slug)
        assert response.status_code >= 400
        told = response.text + str(response.headers)
        for secret in ("sk-upstream", "acme", "10.1.2.3", "SECRET-INTERNAL", provider.slug, "sim-small"):
            assert secret not in told


@pytest.mark.row("B281", "B298")
@pytest.mark.parametrize(
    ("dialect", "shown"),
    [
        ("standard", {"type": "invalid_request_error", "code": "invalid_json"}),
        ("zenmux", {"type": "invalid_params", "code": "400"}),
        ("ezrouter", {"type": "new_api_error", "code": "invalid_json"}),
    ],
)
def test_a_body_that_is_not_json_is_400(gateway: Gateway, alice: Tenant, dialect: str, shown: dict[str, str]) -> None:
    speak(alice, dialect)
    synchronize(gateway)
    response = gateway.client.post(CHAT[0], content=b'{"model":', headers={"x-api-key": alice.secret})
    assert response.status_code == 400
    assert shown.items() <= error(response).items()
    assert nothing_happened(alice)


@pytest.mark.row("B299")
@pytest.mark.parametrize(
    ("dialect", "type"),
    [("standard", "invalid_request_error"), ("zenmux", "invalid_params"), ("ezrouter", "new_api_error")],
)
def test_a_body_past_the_cap_is_413(gateway: Gateway, alice: Tenant, dialect: str, type: str) -> None:
    speak(alice, dialect)
    synchronize(gateway)
    response = gateway.client.post(CHAT[0], content=b" " * (32 * 1024 * 1024 + 1), headers={"x-api-key": alice.secret})
    assert (response.status_code, error(response)["type"]) == (413, type)
    assert "33554432 bytes" in error(response)["message"]
