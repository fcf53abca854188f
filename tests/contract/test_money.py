"""What is counted and billed: definitions of tools, a cache, answers nobody waited for, sums."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from accounts.models import ApiKey
from billing.credit.prepaid import grant
from billing.models import Budget, CreditKind, Usage
from tests.protocols.openai_chat.answers import whole
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened

# The documented names of what an amount is made of; those of a cache without a lifetime are told as five minutes'.
FEE_ITEMS = {
    "prompt", "completion", "input_cache_read", "input_cache_write_5_min", "input_cache_write_1_h",
    "internal_reasoning", "image", "audio", "web_search", "request",
}  # fmt: skip


def looked_up(gateway: Gateway, tenant: Tenant, id: str) -> Any:
    """A generation's record, with its numbers as `Decimal`."""
    answer = gateway.client.get(f"/v1/management/generation?id={id}", headers={"x-api-key": tenant.secret})
    assert answer.status_code == 200
    return json.loads(answer.text, parse_float=Decimal)


@pytest.mark.row("B121")
def test_definitions_of_tools_count_as_prompt(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    # At $2 a million the tools alone, some 10,000 bytes, may cost two cents; there is half a cent.
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.005"))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1&prompt=40")
    synchronize(gateway)
    tool = {"type": "function", "function": {"name": "f", "description": "x" * 10_000}}
    refused = gateway.chat(alice.secret, model.slug, max_tokens=1, tools=[tool])
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    assert nothing_happened(alice)
    tool["function"] = {"name": "f"}
    answer = gateway.chat(alice.secret, model.slug, max_tokens=1, tools=[tool], tool_choice="none")
    assert answer.status_code == 200
    assert Usage.objects.get(id=answer.json()["id"]).prompt_tokens == 40  # as the provider counted them


@pytest.mark.row("B250", "B238")
@pytest.mark.parametrize("stream", [False, True])
def test_what_came_from_a_cache_has_its_own_price(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    tariff = make_tariff(input="10", cached_input="1", output="0")
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=1&prompt=5000&cached=4096", tariff)
    synchronize(gateway)
    answer = gateway.chat(
        alice.secret, model.slug, stream=stream, stream_options={"include_usage": True} if stream else None
    )
    usage = json.loads(answer.text.split("\n\n")[-3].removeprefix("data: ") if stream else answer.text)["usage"]
    assert (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]) == (5000, 4096)
    # 904 fresh tokens at $10 and 4096 cached ones at $1 a million.
    assert Usage.objects.get(id=answer.headers["x-generation-id"]).charge == Decimal("0.013136")


@pytest.mark.row("B274", "B275", "B276")
def test_a_client_that_leaves_stops_the_work_and_pays_for_what_it_got(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave="stop")
    name = f"sim-small?tokens=50&prompt=9&hold=4&id={alice.organization.slug}"
    model = make_model(make_provider(simulated.base_url), name)
    synchronize(gateway)
    body = {"model": model.slug, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    headers = {"x-api-key": alice.secret}
    with httpx.stream("POST", f"{gateway.url}/v1/chat/completions", json=body, headers=headers, timeout=30) as answer:
        id = answer.headers["x-generation-id"]
        heard = ""
        for part in answer.iter_text():
            heard += part
            if heard.count("data: ") >= 4:  # the role and three words, while the provider holds back the rest
                break
    until(lambda: [line["ended"] for line in simulated.bill() if line["model"] == name] == ["client_closed"])
    until(lambda: Usage.objects.filter(id=id).exists())
    usage = Usage.objects.get(id=id)
    assert (usage.status, usage.basis) == ("cancelled", "estimated")
    assert 0 < usage.completion_tokens < 50
    assert usage.charge == (usage.prompt_tokens * Decimal(2) + usage.completion_tokens * Decimal(4)) / 10**6
    assert looked_up(gateway, alice, id)["status"] == "cancelled"


@pytest.mark.row("B135", "B318", "B364", "B369", "B370")
def test_an_amount_is_the_sum_of_its_items(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    tariff = make_tariff(
        input="1", output="2", cached_input="3", cache_write_5m="4", cache_write_1h="5", reasoning="6",
        image_input="7", audio_input="8", web_search="0.01", request="0.001",
    )  # fmt: skip
    usage = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "total_tokens": 1100,
        "prompt_tokens_details": {
            "cached_tokens": 300, "ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 70,
            "image_tokens": 20, "audio_tokens": 10, "web_search": 2,
        },
        "completion_tokens_details": {"reasoning_tokens": 40},
    }  # fmt: skip
    said = whole({"role": "assistant", "content": "Yes."}, usage=usage)
    script = simulated.script(f"items-{alice.organization.slug}", said, content_type="application/json")
    model = make_model(make_provider(simulated.base_url), f"sim-small?{script}", tariff)
    synchronize(gateway)
    rated = looked_up(gateway, alice, gateway.chat(alice.secret, model.slug).json()["id"])["ratingResponses"]
    lines = {
        line["feeItemCode"]: (line["quantity"], line["rate"], line["originAmount"]) for line in rated["ratingDetails"]
    }
    million = Decimal(10**6)
    assert lines == {
        "prompt": (550, 1, 550 * 1 / million),
        "input_cache_read": (300, 3, 300 * 3 / million),
        "input_cache_write_5_min": (50, 4, 50 * 4 / million),
        "input_cache_write_1_h": (70, 5, 70 * 5 / million),
        "image": (20, 7, 20 * 7 / million),
        "audio": (10, 8, 10 * 8 / million),
        "completion": (60, 2, 60 * 2 / million),
        "internal_reasoning": (40, 6, 40 * 6 / million),
        "web_search": (2, Decimal("0.01"), Decimal("0.02")),
        "request": (1, Decimal("0.001"), Decimal("0.001")),
    }
    assert lines.keys() == FEE_ITEMS
    assert rated["originAmount"] == rated["billAmount"] == sum(amount for _, _, amount in lines.values())
    assert rated["discountAmount"] == 0


@pytest.mark.row("B326", "B282", "B368")
def test_a_prepaid_balance_is_told_by_kind_and_once_used_up_nothing_is_dialled(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    for kind, amount in ((CreditKind.TOP_UP, "0.003"), (CreditKind.BONUS, "0.002")):
        grant(alice.organization, kind, Decimal(amount), kind, "finance", begin=True)
    tariff = make_tariff(input="0", output="10")
    provider = make_provider(simulated.base_url)
    long, short = (make_model(provider, f"sim-small?tokens={tokens}&prompt=1", tariff) for tokens in (400, 100))
    # An operator's budget in total is another thing, and neither hides the other.
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(5))
    managers = [make_key(tenant.project, name="manager", scopes=["management"])[1] for tenant in (alice, charlie)]
    synchronize(gateway)

    def told(secret: str) -> tuple[Any, ...]:
        answer = gateway.client.get("/v1/management/payg/balance", headers={"x-api-key": secret})
        data = json.loads(answer.text, parse_float=Decimal)["data"]
        return tuple(data[f"{name}_credits"] for name in ("total", "top_up", "bonus", "held"))

    assert told(managers[0]) == (Decimal("0.005"), Decimal("0.003"), Decimal("0.002"), 0)
    answer = gateway.chat(alice.secret, long.slug, max_tokens=400)
    assert (answer.status_code, answer.headers["x-gateway-budget-remaining"]) == (200, "0.005")
    assert told(managers[0]) == (Decimal("0.001"), Decimal("0.001"), 0, 0)
    assert gateway.chat(alice.secret, short.slug, max_tokens=100).status_code == 200
    assert told(managers[0]) == (0, 0, 0, 0)
    refused = gateway.chat(alice.secret, short.slug, max_tokens=100)
    assert (refused.status_code, error(refused)["code"]) == (402, "insufficient_credit")
    says = "The organization's prepaid balance is used up. Top it up, or ask for fewer output tokens."
    assert error(refused)["message"] == says
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 2
    assert told(managers[1]) == (None, None, None, None)  # Charlie is postpaid
