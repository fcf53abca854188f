"""What a provider counts beyond what was sent and came back is believed as far as it can be, and no further."""

import json
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction

from billing.models import LedgerEntry, Quarantined, Usage
from billing.quarantine import judge
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff

TEXT = "forty bytes of text, not one of them more"[:40]
PICTURE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]}]
LISTED = {"supported_parameters": ["temperature", "max_tokens", "plugins"], "max_output": 50_000}
THINKS = {"supported_parameters": ["reasoning"], "max_output": 50_000}


def used(prompt: int, completion: int, reasoning: int = 0, **more: Any) -> dict[str, Any]:
    details = {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {}
    return {"prompt_tokens": prompt, "completion_tokens": completion, **details, **more}


# Usage, the model's columns, further fields of the request, and whether it is believed.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], bool]] = {
    "a little more than its text": (used(5, 40 + 1_024), LISTED, {}, True),
    "more than its text, of a model that hides nothing": (used(5, 40 + 1_025), LISTED, {}, False),
    "each of two answers has its ends": (used(5, 80 + 2 * 1_024), LISTED, {"n": 2}, True),
    "thoughts that nobody counts, of a model that thinks": (used(5, 66_384), THINKS, {}, True),
    "more than a model can think": (used(5, 66_385), THINKS, {}, False),
    "the same, said to be thoughts": (used(5, 500_000, 499_990), THINKS, {}, False),
    "two answers of a model that thinks": (used(5, 116_384), THINKS, {"n": 2}, True),
    "thoughts that its list does not have": (used(5, 30_000, 29_990), LISTED, {}, True),
    "what it makes is not known": (used(5, 20_000), {}, {}, True),
    "pictures that it makes": (used(5, 9_000), {**LISTED, "output_modalities": ["text", "image"]}, {}, True),
    "more than the client allowed": (used(5, 100 + 1_025), THINKS, {"max_tokens": 100}, False),
    "thoughts beside what the client allowed": (used(5, 20_000, 19_950), THINKS, {"max_tokens": 100}, True),
    "tools of the provider's": (used(400_000, 300_000), LISTED, {"plugins": [{"id": "web"}]}, True),
    "what a provider adds to a prompt": (used(32_768, 5), {}, {}, True),
    "more than any provider adds": (used(40_000, 5), {}, {}, False),
    "a long prompt": (used(40_000, 5), {}, {"messages": [{"role": "user", "content": "x" * 8_000}]}, True),
    "a prediction that was not taken": (
        used(5, 3_000),
        LISTED,
        {"prediction": {"type": "content", "content": "x" * 4_000}},
        True,
    ),
    "more than a prediction": (
        used(5, 9_000),
        LISTED,
        {"prediction": {"type": "content", "content": "x" * 4_000}},
        False,
    ),
    "a search that nobody asked for, of an offer that lists none": (
        used(400_000, 5) | {"num_search_queries": 1},
        {"supported_parameters": ["temperature"]},
        {},
        False,
    ),
    "a picture": (used(40_000, 5), {"context_length": 10_000}, {"messages": PICTURE}, True),
    "more than the context has room for": (used(42_769, 5), {"context_length": 10_000}, {"messages": PICTURE}, False),
}


def says(usage: dict[str, Any], number: int) -> bytes:
    """A whole answer."""
    choices = [
        {"index": index, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}
        for index in range(number)
    ]
    return json.dumps({"id": "u1", "choices": choices, "usage": usage}).encode()


def test_counts_beyond_what_can_be_are_quarantined(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider, tariff = make_provider(simulated.base_url), make_tariff(input="1", output="2")
    with transaction.atomic():
        models = dict[str, Model]()
        for name, (usage, columns, asked, _) in CASES.items():
            option = simulated.script(f"{provider.slug}-{len(models)}", says(usage, asked.get("n", 1)))
            models[name] = make_model(provider, f"sim-small?{option}", tariff, **columns)
    synchronize(gateway)
    found, estimates = {}, {}
    for name, model in models.items():
        answer = gateway.chat(alice.secret, model.slug, **CASES[name][2])
        assert answer.status_code == 200, (name, answer.text)
        row = Quarantined.objects.get(pk=answer.headers["x-generation-id"])
        counts = row.prompt_tokens, row.completion_tokens
        told = CASES[name][0]["prompt_tokens"], CASES[name][0]["completion_tokens"]
        shown = answer.json()["usage"]
        assert (shown["prompt_tokens"], shown["completion_tokens"]) == counts  # what is charged is shown
        found[name] = (
            counts == told and row.basis == "reported" and not row.suspect and "claimed" not in (row.plan or {})
        )
        if not found[name]:
            assert (row.basis, row.suspect) == ("estimated", True), name
            priced = "num_search_queries" not in CASES[name][0]  # of searches nothing is charged by a claim
            claimed = row.claimed.get("tokens", {})
            assert (claimed.get("prompt"), claimed.get("completion")) == (told if priced else (None, None))
            estimates[name] = counts[1]
    assert found == {name: believed for name, (*_, believed) in CASES.items()}
    assert set(estimates.values()) == {10}  # forty bytes
    assert books(alice.organization).problems() == []


@pytest.mark.parametrize("stream", [False, True])
def test_such_a_claim_is_judged_and_then_charged_whole(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    usage = used(5_000, 500_000, prompt_tokens_details={"cached_tokens": 1_000, "cache_write_tokens": 2_000})
    answer = says(usage, 1)
    if stream:
        chunk = {"id": "u1", "choices": [{"index": 0, "delta": {"content": TEXT}, "finish_reason": "stop"}]}
        events = (chunk, {"id": "u1", "choices": [], "usage": usage})
        answer = b"".join(f"data: {json.dumps(event)}\n\n".encode() for event in events) + b"data: [DONE]\n\n"
    option = simulated.script(f"lie-{alice.organization.slug}", answer)
    tariff = make_tariff(input="1", output="2", cached_input="0.1", cache_write_5m="1.25")
    model = make_model(make_provider(simulated.base_url), f"sim-small?{option}", tariff, **LISTED)
    synchronize(gateway)
    id = gateway.chat(alice.secret, model.slug, stream=stream).headers["x-generation-id"]
    row = Quarantined.objects.get(pk=id)
    estimate = row.charge
    assert (row.basis, row.suspect, row.completion_tokens) == ("estimated", True, 10)
    assert estimate == Decimal(row.prompt_tokens + 2 * 10) / 10**6
    assert row.claimed["tokens"] == {"prompt": 5_000, "completion": 500_000, "cached": 1_000, "cache_write_5m": 2_000}
    assert judge(row, "ann", accept=True)
    # 2,000 at $1, 1,000 at $0.10, 2,000 at $1.25 and 500,000 at $2
    whole = Decimal("1.0046")
    posted = LedgerEntry.objects.get(organization=alice.organization.pk, kind="reprice", credit="repriced-revenue")
    assert posted.amount == whole - estimate
    assert Usage.objects.get(pk=id).charge == estimate


def test_calls_of_tools_count_for_more_than_their_arguments(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    """Their names are tokens, too, and so is the form of each; so are those of an answer that a filter withheld."""
    name = "set_the_status_of_the_reported_incident_to_acknowledged"
    calls = [{"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": "{}"}} for n in range(60)]
    told = {
        "calls": ({"role": "assistant", "content": None, "tool_calls": calls}, "tool_calls"),
        "filtered": ({"role": "assistant", "content": ""}, "content_filter"),
    }
    provider, models = make_provider(simulated.base_url), dict[str, Model]()
    for kind, (message, end) in told.items():
        choices = [{"index": 0, "message": message, "finish_reason": end}]
        body = json.dumps({"id": "u1", "choices": choices, "usage": used(5, 1_500)}).encode()
        option = simulated.script(f"{provider.slug}-{kind}", body)
        columns = LISTED | {"supported_parameters": ["max_tokens", "tools"]}
        models[kind] = make_model(provider, f"sim-small?{option}", make_tariff(input="1", output="2"), **columns)
    synchronize(gateway)
    tools = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}]
    for kind, model in models.items():
        answer = gateway.chat(alice.secret, model.slug, tools=tools)
        assert answer.status_code == 200, (kind, answer.text)
        row = Usage.objects.get(pk=answer.headers["x-generation-id"])
        assert (row.completion_tokens, row.basis, row.suspect) == (1_500, "reported", False), kind
