"""GET /v1/management/generation: what one generation used and cost, told to its own organization alone."""

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.models import ApiKey
from billing.models import Budget, Hold, Usage
from billing.pricing import EACH
from gateway.endpoints.generation_lookup import rating
from gateway.endpoints.model_lists import PRICE_NAMES
from gateway.wire import strict_json
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

PATH = "/api/v1/management/generation"
OLD_PATHS = ("/v1/generation", "/api/v1/generation")


def look(gateway: Gateway, id: str, secret: str, path: str = PATH, name: str = "id") -> httpx.Response:
    """Looks a generation up."""
    return gateway.client.get(path, params={name: id}, headers={"x-api-key": secret})


def exact(text: str) -> Any:
    """JSON with its numbers as `Decimal`."""
    return json.loads(text, parse_float=Decimal)


def chat(gateway: Gateway, tenant: Tenant, model: Any, **body: Any) -> str:
    """A generation's id."""
    response = gateway.chat(tenant.secret, model.slug, **body)
    return response.headers["x-generation-id"]


@pytest.mark.row("B313", "B316", "B317", "B318", "B319")
def test_it_tells_what_was_used_and_what_it_cost(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    tariff = make_tariff(input=("1", "2.5"), output=("2", "4"), cached_input=("0.1", "0.2"), reasoning=("2", "8"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=7&prompt=11&cached=3&reasoning=2", tariff)
    synchronize(gateway)
    id = chat(gateway, alice, model, user="u-1", metadata={"run": "7"})
    row = Usage.objects.get(id=id)
    found = exact(look(gateway, id, alice.secret).text)  # at once, and not wrapped
    assert (found["api"], found["generationId"], found["id"]) == ("chat.completions", id, id)
    assert found["model"] == model.slug
    assert found["createAt"] == found["createdAt"]
    assert found["createAt"].endswith("Z")
    created = datetime.fromisoformat(found["createAt"])
    assert timedelta(0) <= row.created_at - created < timedelta(milliseconds=1)
    assert row.ttft_ms is not None
    assert row.duration_ms is not None
    assert (found["latency"], found["generationTime"]) == (row.ttft_ms, row.duration_ms - row.ttft_ms)
    tokens = found["nativeTokens"]
    assert (tokens["prompt_tokens"], tokens["completion_tokens"]) == (11, row.completion_tokens)
    assert tokens["total_tokens"] == 11 + row.completion_tokens
    assert tokens["prompt_tokens_details"]["cached_tokens"] == 3
    assert tokens["completion_tokens_details"]["reasoning_tokens"] == 2
    assert (found["streamed"], found["finishReason"]) == (False, "stop")
    assert found["nativeFinishReason"] == row.native_finish_reason
    # 8 input tokens at $2.50, 3 cached at $0.20, 2 thoughts at $8, the other output at $4, a million each.
    rest = row.completion_tokens - 2
    amounts = {
        "prompt": (Decimal("2.5"), Decimal("0.00002")),
        "input_cache_read": (Decimal("0.2"), Decimal("0.0000006")),
        "internal_reasoning": (Decimal(8), Decimal("0.000016")),
        "completion": (Decimal(4), Decimal(4) * rest / 10**6),
    }
    whole = sum(amount for _, amount in amounts.values())
    rated = found["ratingResponses"]
    assert {line["feeItemCode"]: (line["rate"], line["originAmount"]) for line in rated["ratingDetails"]} == amounts
    assert all(
        (line["billAmount"], line["discountAmount"]) == (line["originAmount"], 0) for line in rated["ratingDetails"]
    )
    assert (rated["billAmount"], rated["originAmount"], rated["discountAmount"]) == (whole, whole, 0)
    assert rated["priceVersion"] == str(tariff.versions.get().pk)
    assert found["usage"] == whole == row.charge
    assert Decimal(found["charge"]) == whole
    assert (found["requestRetryTimes"], found["finalRetry"]) == (0, True)
    assert (found["status"], found["error"], found["basis"]) == ("completed", "", "reported")
    assert (found["end_user"], found["metadata"]) == ("u-1", {"run": "7"})


@pytest.mark.row("B316", "B321")
def test_every_attempt_is_told_and_no_provider_named(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    first, second = (make_provider(simulated.base_url) for _ in range(2))
    model = make_model(first, "sim-small?status=503")
    add_offer(model, second, "sim-small?tokens=2", priority=1)
    synchronize(gateway)
    answer = look(gateway, chat(gateway, alice, model, stream=True), alice.secret)
    found = answer.json()
    assert [(a["number"], a["status"], a["fault"]) for a in found["attempts"]] == [
        (1, "failed", "overloaded"),
        (2, "completed", None),
    ]
    row = Usage.objects.get(id=found["id"])
    assert row.ttft_ms is not None
    assert row.duration_ms is not None
    assert (found["latency"], found["generationTime"]) == (row.ttft_ms, row.duration_ms - row.ttft_ms)
    assert found["attempts"][0]["ttft"] is None
    assert found["attempts"][1]["duration"] >= found["attempts"][1]["ttft"]
    assert (found["requestRetryTimes"], found["finalRetry"], found["streamed"]) == (1, True, True)
    for secret in (first.slug, second.slug, "sim-small", "cost"):
        assert secret not in answer.text


@pytest.mark.row("B316")
def test_latency_of_a_whole_answer_is_the_time_to_its_own_first_byte(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, "sim-small?fault=cut_mid")  # half a body, which nobody sees
    add_offer(model, provider, "sim-small?tokens=2&first=1s", priority=1)
    synchronize(gateway)
    found = look(gateway, chat(gateway, alice, model), alice.secret).json()
    broken, whole = found["attempts"]
    assert (broken["fault"], whole["status"]) == ("truncated", "completed")
    assert broken["ttft"] is not None
    assert found["latency"] >= whole["ttft"] >= 1000


@pytest.mark.row("B316")
def test_a_failed_generation_used_nothing_and_says_why(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?fault=garbage")
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 502
    found = look(gateway, Usage.objects.get(model=model.slug).id.hex, alice.secret).json()
    assert (found["status"], found["error"]) == ("failed", "upstream_invalid_response")
    assert (found["finishReason"], found["latency"], found["generationTime"]) == (None, None, None)
    assert found["usage"] == 0
    assert found["ratingResponses"]["ratingDetails"] == []
    assert found["nativeTokens"]["total_tokens"] == 0


@pytest.mark.row("B318")
def test_an_unknown_price_is_null_and_erases_no_known_one(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(output=("1", "4"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=5&prompt=9", tariff)
    synchronize(gateway)
    found = exact(look(gateway, chat(gateway, alice, model), alice.secret).text)
    assert (found["usage"], Decimal(found["charge"])) == (Decimal("0.00002"), Decimal("0.00002"))
    rated = found["ratingResponses"]
    assert (rated["billAmount"], rated["originAmount"], rated["discountAmount"]) == (found["usage"], found["usage"], 0)
    lines = {line["feeItemCode"]: line for line in rated["ratingDetails"]}
    assert (lines["prompt"]["rate"], lines["prompt"]["originAmount"]) == (None, None)
    assert (lines["completion"]["rate"], lines["completion"]["originAmount"]) == (4, Decimal("0.00002"))


def test_without_a_known_price_the_sum_is_null_not_nothing(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(cached_input=("1", "4"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=5&prompt=9", tariff)
    synchronize(gateway)
    found = exact(look(gateway, chat(gateway, alice, model), alice.secret).text)
    assert (found["usage"], found["charge"]) == (None, None)
    rated = found["ratingResponses"]
    assert [(line["feeItemCode"], line["billAmount"]) for line in rated["ratingDetails"]] == [
        ("prompt", None),
        ("completion", None),
    ]
    assert (rated["billAmount"], rated["originAmount"], rated["discountAmount"]) == (None, None, None)


@pytest.mark.row("B318")
@given(
    lines=st.lists(
        st.tuples(
            st.sampled_from(sorted(PRICE_NAMES)),
            st.integers(1, 10**9),
            st.decimals(min_value=0, max_value=10**6, places=6),
        ),
        max_size=11,
        unique_by=lambda line: line[0],
    ),
    share=st.integers(0, 100),
)
def test_a_rating_adds_up(lines: list[tuple[str, int, Decimal]], share: int) -> None:
    arithmetic = [{"item": item, "quantity": quantity, "charge": f"{rate:f}"} for item, quantity, rate in lines]
    whole = sum(
        (rate * quantity / (1 if item in EACH else 10**6) for item, quantity, rate in lines),
        Decimal(0),
    )
    discount = (whole * share / 100).quantize(Decimal(10) ** -12) if share < 100 else whole
    rated = exact(strict_json.dumps(rating(arithmetic, whole - discount, discount, 3)).decode())
    assert (rated["originAmount"], rated["discountAmount"]) == (whole, discount)
    assert rated["billAmount"] == whole - discount
    for name in ("originAmount", "discountAmount", "billAmount"):
        amounts = [line[name] for line in rated["ratingDetails"]]
        assert sum(amounts, Decimal(0)) == rated[name]
        assert all(amount >= 0 for amount in amounts)


@pytest.mark.row("B313")
@pytest.mark.parametrize("name", ["id", "generate_id"])
def test_both_names_of_the_id_are_taken(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, name: str
) -> None:
    model = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    id = chat(gateway, alice, model)
    assert look(gateway, id, alice.secret, name=name).json()["generationId"] == id


@pytest.mark.row("B314")
def test_the_old_path_works_and_says_that_it_is_old(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    id = chat(gateway, alice, model)
    new = look(gateway, id, alice.secret)
    assert "deprecation" not in new.headers
    for path in OLD_PATHS:
        old = look(gateway, id, alice.secret, path)
        assert old.json() == new.json()
        assert old.headers["deprecation"].startswith("@")
        assert old.headers["link"] == f'<{PATH}>; rel="successor-version"'


@pytest.mark.row("B315")
def test_either_kind_of_key_may_look_and_no_third(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    id = chat(gateway, alice, model)
    for scopes in (["inference"], ["management"], ["inference", "management"]):
        assert look(gateway, id, make_key(alice.project, scopes=scopes)[1]).status_code == 200
    _, files = make_key(alice.project, scopes=["files", "export"])
    _, elsewhere = make_key(alice.project, scopes=["management"], allowed_endpoints=["chat/completions"])
    for secret, code in ((files, "missing_scope"), (elsewhere, "endpoint_not_allowed")):
        for path in (PATH, *OLD_PATHS):
            answer = look(gateway, id, secret, path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)


@pytest.mark.row("B315", "B320")
def test_no_generation_another_s_and_a_running_one_are_alike(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url))
    slow = make_model(make_provider(simulated.base_url), "sim-small?tokens=5&hold=2")
    ApiKey.objects.filter(pk=charlie.key.pk).update(on_leave="stop")  # nobody reads on for who leaves
    synchronize(gateway)
    id = chat(gateway, alice, model)
    _, manager = make_key(charlie.project, scopes=["management"])
    url, headers = f"{gateway.url}/v1/chat/completions", {"x-api-key": charlie.secret}
    body = {"model": slow.slug, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=30) as running:
        started = running.headers["x-generation-id"]
        assert Hold.objects.filter(id=started).exists()
        answers = [
            look(gateway, wanted, secret).json() | {"status": look(gateway, wanted, secret).status_code}
            for wanted in (id, started, "0" * 32, "no-id", "chatcmpl-1")
            for secret in (charlie.secret, manager)
        ]
    assert answers[0]["status"] == 404
    assert answers[0]["error"]["code"] == "generation_not_found"
    assert all(answer == answers[0] for answer in answers)
    until(lambda: not Hold.objects.filter(id=started).exists())
    assert look(gateway, started, charlie.secret).json()["status"] == "cancelled"


@pytest.mark.row("B313")
@pytest.mark.parametrize("query", ["", "?id=", "?generate_id="])
def test_a_look_up_without_an_id_is_refused(gateway: Gateway, alice: Tenant, query: str) -> None:
    answer = gateway.client.get(f"{PATH}{query}", headers={"x-api-key": alice.secret})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "id")


def test_what_a_hard_budget_does_not_cover_is_a_discount(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.0005"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=200&prompt=1&ignore_max")
    synchronize(gateway)
    id = chat(gateway, alice, model, max_tokens=10)
    row = Usage.objects.get(id=id)
    assert (row.basis, row.charge, row.overrun) == ("capped", Decimal("0.0005"), Decimal("0.000302"))
    rated = exact(look(gateway, id, alice.secret).text)["ratingResponses"]
    assert (rated["billAmount"], rated["discountAmount"]) == (row.charge, row.overrun)
    assert rated["originAmount"] == Decimal("0.000802")
