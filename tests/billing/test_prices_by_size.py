"""Prices that depend on the size of the prompt, through a running gateway: listed, held and charged."""

import json
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Budget, Terms, Usage
from billing.pricing import Rate, by_size, compiled
from gateway.endpoints.model_lists import pricings
from gateway.wire.strict_json import number
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import LONG_AGO, make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened

LONG = [{"role": "user", "content": "word " * 40_000}]  # as many bytes as its provider counts tokens


def read(gateway: Gateway, tenant: Tenant, path: str) -> Any:
    """What a tenant is answered, with its numbers as `Decimal`."""
    answer = gateway.client.get(path, headers={"x-api-key": tenant.secret})
    assert answer.status_code == 200
    return json.loads(answer.text, parse_float=Decimal)


def price(value: Any, **bounds: Any) -> dict[str, Any]:
    """A price, with bounds for some sizes of prompt alone."""
    conditions = {"conditions": {"prompt_tokens": {"unit": "kTokens", **bounds}}} if bounds else {}
    return {"value": value, "unit": "perMTokens", "currency": "USD", **conditions}


@pytest.mark.row("B308")
def test_a_price_by_size_of_prompt_says_for_which_prompts_it_is(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    tariff = make_tariff(
        input=("1", "1.25"),
        output="10",
        cached_input="0.125",
        above={
            31_999: {"input": "2", "output": "10"},
            200_000: {"input": "2.5", "output": "15", "reasoning": "20"},
            524_288: {"input": "3"},
        },
    )
    model = make_model(make_provider(simulated.base_url), tariff=tariff)
    synchronize(gateway)
    trees = ("/v1", "/anthropic/v1", "/v1beta")
    listed = [read(gateway, alice, f"{tree}/models/{model.slug}")["pricings"] for tree in trees]
    assert listed[0] == {
        "prompt": [
            price(Decimal("1.25"), gte=0, lt=32),
            price(2, gte=32, lte=200),
            price(Decimal("2.5"), gt=200, lte=Decimal("524.288")),
            price(3, gt=Decimal("524.288")),
        ],
        "completion": [price(10, gte=0, lte=200), price(15, gt=200)],
        "input_cache_read": [price(Decimal("0.125"))],
        "internal_reasoning": [price(20, gt=200)],
    }
    assert listed[0] == listed[1] == listed[2]


def test_a_price_that_is_unknown_for_some_sizes_is_left_out_for_them() -> None:
    unknown, known = Rate(None, None), Rate(None, Decimal(2))
    assert pricings(by_size([("input", 0, unknown), ("input", 1000, known), ("input", 2000, unknown)])) == {
        "prompt": [price(number(Decimal(2)), gt=number(Decimal(1)), lte=number(Decimal(2)))]
    }


def test_margins_and_classes_of_service_are_told_with_the_price() -> None:
    one, two, half = (Rate(None, Decimal(text)) for text in ("1", "2", "0.5"))
    rows = [("input", 0, "", one), ("input", 1000, "", two), ("output", 0, "", two), ("input", 0, "flex", half)]
    dear, cheap, least = number(Decimal(2)), number(Decimal(1)), number(Decimal("0.5"))
    bounds = [{"gte": 0, "lte": cheap, "marginal": True}, {"gt": cheap, "marginal": True}]
    assert pricings(compiled(rows, marginal=True)) == {
        "prompt": [
            *(price(value, **bound) for value, bound in zip((cheap, dear), bounds, strict=True)),
            {**price(least), "conditions": {"service_tier": "flex"}},
        ],
        "completion": [price(dear)],
    }


@pytest.mark.row("B309")
def test_a_margin_is_charged_for_the_tokens_beyond_the_size_alone(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    above: Any = {100_000: {"input": "2", "output": "14"}, 200_000: {"input": "3"}}
    tariff = make_tariff(input="1", output="10", above=above, marginal=True)
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=200001", tariff)
    synchronize(gateway)
    id = gateway.chat(alice.secret, model.slug, messages=LONG).json()["id"]
    row = Usage.objects.get(id=id)
    # 100,000 at $1, 100,000 at $2, one at $3; the answer at the rate of the whole prompt's size.
    assert (row.charge, row.provider_cost) == (Decimal("0.300045"), Decimal("0.300045"))
    lines = [(line["item"], line["quantity"], line["charge"]) for line in row.arithmetic]
    assert lines == [
        *(("input", 100_000, "1.000000"), ("input", 100_000, "2.000000"), ("input", 1, "3.000000")),
        ("output", 3, "14.000000"),
    ]
    shown = read(gateway, alice, f"/v1/management/generation?id={id}")["ratingResponses"]
    assert shown["billAmount"] == sum(line["billAmount"] for line in shown["ratingDetails"]) == Decimal("0.300045")
    assert books(alice.organization).problems() == []


def test_a_price_in_another_currency_is_charged_in_dollars_at_the_version_s_rate(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    Terms.objects.create(organization=alice.organization, effective_from=LONG_AGO, markup=Decimal(10))
    tariff = make_tariff(input="0.9", output="3.1")
    tariff.versions.update(currency="EUR", exchange_rate=Decimal("1.084321987"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=3&prompt=1000", tariff)
    synchronize(gateway)
    row = Usage.objects.get(id=gateway.chat(alice.secret, model.slug).json()["id"])
    # $0.9758897883 and $3.3613981597 a million, each rounded to six decimals; a tenth more, rounded again, is charged.
    lines = [(line["cost"], line["charge"]) for line in row.arithmetic]
    assert lines == [("0.975890", "1.073479"), ("3.361398", "3.697538")]
    assert (row.provider_cost, row.charge) == (Decimal("0.000985974194"), Decimal("0.001084571614"))
    assert books(alice.organization).problems() == []


@pytest.mark.row("B309")
@pytest.mark.parametrize(
    ("prompt", "charge", "rates"), [(200_000, "0.20003", ("1", "10")), (200_001, "0.400044", ("2", "14"))]
)
def test_a_whole_request_is_priced_by_the_size_of_its_prompt(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, prompt: int, charge: str, rates: tuple[str, str]
) -> None:
    tariff = make_tariff(input="1", output="10", above={200_000: {"input": "2", "output": "14"}})
    model = make_model(make_provider(simulated.base_url), f"sim-small?tokens=3&prompt={prompt}", tariff)
    synchronize(gateway)
    id = gateway.chat(alice.secret, model.slug, messages=LONG).json()["id"]
    row = Usage.objects.get(id=id)
    assert (row.charge, row.provider_cost) == (Decimal(charge), Decimal(charge))
    lines = [(line["item"], line["quantity"], line["charge"]) for line in row.arithmetic]
    assert lines == [("input", prompt, f"{rates[0]}.000000"), ("output", 3, f"{rates[1]}.000000")]
    shown = read(gateway, alice, f"/v1/management/generation?id={id}")["ratingResponses"]
    assert shown["billAmount"] == Decimal(charge)
    assert [str(line["rate"]) for line in shown["ratingDetails"]] == list(rates)
    assert books(alice.organization).problems() == []


@pytest.mark.row("B309")
def test_a_budget_must_cover_the_dearest_size_that_a_prompt_may_be_of(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    # Some 300 bytes may be more than 100 tokens, at $1000 a million for all of them. The cheap rate would fit.
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.1"))
    tariff = make_tariff(input="1", output="0", above={100: {"input": "1000"}})
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1&prompt=40", tariff)
    synchronize(gateway)
    long = [{"role": "user", "content": "word " * 60}]
    refused = gateway.chat(alice.secret, model.slug, max_tokens=1, messages=long)
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    assert nothing_happened(alice)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=1, messages=[{"role": "user", "content": "hi"}])
    assert answer.status_code == 200
    assert Usage.objects.get(id=answer.json()["id"]).charge == Decimal("0.00004")
