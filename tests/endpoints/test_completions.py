"""POST /v1/completions through a running gateway: what goes in, what comes out, what is on the books."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import openai
import pytest
from openai import OpenAI

from accounts.models import ApiKey
from billing.models import Attempt, Budget, Hold, Limit, Usage
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import dial, head
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.stage.speech import error, events, nothing_happened

HAS = ["prompt", "suffix"]  # what an offer lists that has completions and fills gaps


def shelve(gateway: Gateway, url: str, says: str, **fields: Any) -> Model:
    """A model that has completions, at $2 a million tokens read and $4 written."""
    fields.setdefault("supported_parameters", HAS)
    model = make_model(make_provider(url), says, **fields)
    synchronize(gateway)
    return model


@pytest.fixture
def sdk(gateway: Gateway, alice: Tenant) -> Iterator[OpenAI]:
    """The official SDK, with Alice's key; it asks once."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=alice.secret, max_retries=0) as client:
        yield client


def post(gateway: Gateway, tenant: Tenant, body: dict[str, Any], path: str = "/v1/completions", **headers: str) -> Any:
    return gateway.client.post(path, json=body, headers={"Authorization": f"Bearer {tenant.secret}", **headers})


def row(tenant: Tenant) -> Usage:
    """The one row there is, once nothing is held any more."""
    mine = {"organization": tenant.organization.pk}
    until(lambda: Usage.objects.filter(**mine).exists() and not Hold.objects.filter(**mine).exists(), 20)
    return Usage.objects.get(**mine)


def test_the_official_sdk_gets_a_text_and_pays_for_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, sdk: OpenAI
) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?text=one%20two%20three&prompt=9")
    answer = sdk.completions.create(model=model.slug, prompt="zero", suffix="four", max_tokens=50, user="u-1")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("one two three", "stop")
    assert (answer.model, answer.object) == (model.slug, "text_completion")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (9, 3, 12)
    usage = row(alice)
    assert answer.id == usage.id.hex
    assert (usage.status, usage.basis, usage.stream, usage.end_user) == ("completed", "reported", False, "u-1")
    assert usage.finish_reason == "stop"
    assert (usage.charge, usage.provider_cost) == (Decimal("0.000030"), Decimal("0.000015"))


@pytest.mark.parametrize("path", ["/v1/completions", "/api/v1/completions", "/completions"])
def test_it_streams_and_settles_before_the_last_part(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, path: str
) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?text=one%20two%20three&prompt=9")
    asked = {"model": model.slug, "prompt": "zero", "stream": True, "stream_options": {"include_usage": True}}
    answer = post(gateway, alice, asked, path)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    *chunks, last, usage, done = events(answer.text)
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["one", " two", " three"]
    assert {chunk["object"] for chunk in (*chunks, last, usage)} == {"text_completion"}
    assert {chunk["id"] for chunk in (*chunks, last, usage)} == {answer.headers["x-generation-id"]}
    assert last["choices"] == [{"text": "", "logprobs": None, "index": 0, "finish_reason": "stop"}]
    assert (usage["choices"], usage["usage"]["total_tokens"], done) == ([], 12, "[DONE]")
    assert (row(alice).stream, row(alice).charge) == (True, Decimal("0.000030"))


def test_the_official_sdk_streams(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, sdk: OpenAI) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?text=one%20two%20three")
    chunks = list(sdk.completions.create(model=model.slug, prompt="zero", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == "one two three"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]


@pytest.mark.parametrize("form", ["json", "sse"])
@pytest.mark.parametrize("stream", [False, True])
def test_client_and_provider_may_each_stream_or_not(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, form: str, stream: bool
) -> None:
    model = shelve(gateway, simulated.base_url, f"c-1?text=one%20two&as={form}&usage_at=always")
    answer = post(gateway, alice, {"model": model.slug, "prompt": ["a", "b"], "n": 2, "stream": stream})
    made = events(answer.text)[:-1] if stream else [answer.json()]
    said = dict.fromkeys(range(4), "")
    for chunk in made:
        for choice in chunk["choices"]:
            said[choice["index"]] += choice["text"]
    assert said == dict.fromkeys(range(4), "one two")
    assert row(alice).completion_tokens == 8


def test_what_the_provider_is_sent(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?echo")
    asked = {"prompt": [[1, 2], [3]], "suffix": "z", "best_of": 2, "logprobs": 0, "min_p": 0.1, "stop": ["x"]}
    wish = {"provider": {"fallback": False}, "usage": {"include": True}}
    made = post(gateway, alice, {"model": model.slug, **asked, **wish}).json()
    assert json.loads(made["choices"][0]["text"]) == {"model": "c-1?echo", **asked}
    assert Decimal(str(made["usage"]["cost"])) == row(alice).charge


def test_stop_sequences_that_an_offer_does_not_take_are_looked_for(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(
        gateway, simulated.base_url, "c-1?text=one%20two%20END%20three", supported_parameters=[*HAS, "temperature"]
    )
    asked = {"model": model.slug, "prompt": "zero", "stop": "END", "top_p": 0.5}
    answer = post(gateway, alice, asked)
    assert (answer.json()["choices"][0]["text"], answer.json()["choices"][0]["finish_reason"]) == ("one two ", "stop")
    assert answer.headers["x-gateway-ignored-params"] == "top_p"


def test_an_offer_must_be_known_to_have_it(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?status=500", supported_parameters=[])
    asked = {"model": model.slug, "prompt": "zero"}
    refused = post(gateway, alice, asked, **{"X-Gateway-Explain": "1"})
    assert (refused.status_code, error(refused)["code"]) == (404, "model_not_supported")
    assert [one["reason"] for one in refused.json()["x_gateway_plan"]["candidates"]] == ["built_in"]
    assert nothing_happened(alice)
    # One that has it fills no gaps, one speaks another protocol, and one does both.
    add_offer(model, make_provider(simulated.base_url), "c-2?status=500", priority=1, supported_parameters=["prompt"])
    other = make_provider(simulated.base_url, protocol="anthropic_messages")
    add_offer(model, other, "c-3?status=500", priority=2, supported_parameters=HAS)
    add_offer(model, make_provider(simulated.base_url), "c-4?text=ok", priority=3, supported_parameters=HAS)
    synchronize(gateway)
    assert post(gateway, alice, {**asked, "suffix": "one"}).json()["choices"][0]["text"] == "ok"
    plan: Any = row(alice).plan
    assert [line[2:4] for line in plan["out"]] == [
        ["c-1?status=500", "built_in"],
        ["c-2?status=500", "built_in"],
        ["c-3?status=500", "protocol"],
    ]


def test_a_list_of_nothing_else_says_nothing_of_its_chats(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "sim-small?echo")
    answer = gateway.chat(alice.secret, model.slug, temperature=0.5)
    assert json.loads(answer.json()["choices"][0]["message"]["content"])["temperature"] == 0.5


def test_a_budget_refuses_before_the_dial_and_holds_every_text(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, sdk: OpenAI
) -> None:
    model = shelve(gateway, simulated.base_url, f"c-1?tokens=4&prompt=1&id={alice.organization.slug}")
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.000202"))
    ApiKey.objects.filter(pk=alice.key.pk).update(min_output_cap=10)
    synchronize(gateway)
    # A byte of prompt at $2 a million, and 10 tokens of each of 6 texts at $4: 242 millionths.
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.completions.create(model=model.slug, prompt="x", max_tokens=10, n=2, best_of=6)
    assert (caught.value.status_code, caught.value.code) == (402, "insufficient_credit")
    assert nothing_happened(alice)
    assert [line for line in simulated.bill() if line["model"].endswith(alice.organization.slug)] == []
    # 5 texts are 202 millionths.
    assert len(sdk.completions.create(model=model.slug, prompt="x", max_tokens=10, n=5).choices) == 5
    assert row(alice).completion_tokens == 20


def test_money_that_runs_short_lowers_the_cap(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?echo")
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.000402"))
    synchronize(gateway)
    made = post(gateway, alice, {"model": model.slug, "prompt": "x"}).json()
    assert json.loads(made["choices"][0]["text"])["max_tokens"] == 100


def test_a_limit_refuses_before_the_dial(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?status=500")
    Limit.objects.create(organization=alice.organization, measure="requests", value=1)
    synchronize(gateway)
    asked = {"model": model.slug, "prompt": "zero"}
    assert post(gateway, alice, {**asked, "prompt": []}).status_code == 400
    refused = post(gateway, alice, asked)
    assert (refused.status_code, nothing_happened(alice)) == (429, True)


def test_the_next_offer_answers_where_one_fails(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?status=503")
    add_offer(model, make_provider(simulated.base_url), "c-2?text=ok", priority=1)
    synchronize(gateway)
    answer = post(gateway, alice, {"model": model.slug, "prompt": "zero", "stream": True})
    assert [chunk["choices"][0]["text"] for chunk in events(answer.text)[:-1]] == ["ok", ""]
    attempts = Attempt.objects.filter(generation=row(alice).id).order_by("number")
    assert [(one.status, one.fault) for one in attempts] == [("failed", "overloaded"), ("completed", "")]


def test_another_model_stands_in_that_has_it(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?status=503")
    other = shelve(gateway, simulated.base_url, "c-2?text=ok")
    asked = {"model": model.slug, "prompt": "zero", "provider": {"fallback": other.slug}}
    assert post(gateway, alice, asked).json()["model"] == other.slug


def test_text_before_a_fault_is_kept_and_the_fault_is_told(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?text=12345678%2012345678&fault=error_mid@2")
    answer = post(gateway, alice, {"model": model.slug, "prompt": "zero", "stream": True})
    assert [one for one in events(answer.text) if "error" in one][-1]["error"]["type"]
    assert "[DONE]" not in answer.text
    usage = row(alice)
    assert (usage.status, usage.basis, usage.completion_tokens) == ("failed", "estimated", 2)


@pytest.mark.parametrize(
    ("on_leave", "basis", "tokens"), [("finish", "reported", (9, 3)), ("stop", "estimated", (1, 2))]
)
def test_a_client_that_leaves_pays_by_the_settlement_rule(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, on_leave: str, basis: str, tokens: tuple[int, int]
) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave=on_leave)
    says = f"c-1?text=12345678%20two%20three&prompt=9&hold=2&id={alice.organization.slug}"
    model = shelve(gateway, simulated.base_url, says)
    body = json.dumps({"model": model.slug, "prompt": "zero", "stream": True}).encode()
    with dial(gateway) as line:
        length = f"Content-Length: {len(body)}"
        line.send(head("POST /v1/completions", f"Authorization: Bearer {alice.secret}", length) + body)
        line._until(b'"text":"12345678"')
    if on_leave == "finish":
        until(lambda: "meterline_drains 1.0" in gateway.client.get("/metrics").text)
        simulated.release()
    usage = row(alice)
    assert (usage.status, usage.basis) == ("cancelled", basis)
    assert (usage.prompt_tokens, usage.completion_tokens) == tokens


def test_a_provider_that_counts_nothing_is_estimated_without_the_prompt_that_came_back(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?text=12345678abcdefgh&wrong_usage=missing")
    answer = post(gateway, alice, {"model": model.slug, "prompt": "12345678", "echo": True})
    assert answer.json()["usage"]["completion_tokens"] == 2
    usage = row(alice)
    assert (usage.basis, usage.prompt_tokens, usage.completion_tokens) == ("estimated", 2, 2)


def test_a_text_that_never_came_is_missed(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    one = {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
    for name, said, kind in (
        ("missing.json", json.dumps(one).encode(), "application/json"),
        ("missing.sse", f"data: {json.dumps(one)}\n\ndata: [DONE]\n\n".encode(), "text/event-stream"),
    ):
        model = shelve(gateway, simulated.base_url, f"c-1?{simulated.script(name, said, content_type=kind)}")
        failed = post(gateway, alice, {"model": model.slug, "prompt": ["x", "y"]})
        assert (failed.status_code, error(failed)["code"]) == (502, "upstream_truncated")


def test_what_is_wrong_is_refused_by_name(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "c-1?status=500")
    for param, body in (
        ("prompt", {}),
        ("prompt", {"prompt": ""}),
        ("best_of", {"prompt": "a", "n": 2, "best_of": 1}),
        ("best_of", {"prompt": "a", "stream": True, "best_of": 2}),
        ("logprobs", {"prompt": "a", "logprobs": True}),
        ("suffix", {"prompt": "a", "suffix": 1}),
        ("model_routing_config", {"prompt": "a", "model_routing_config": {}}),
    ):
        refused = post(gateway, alice, {"model": model.slug, **body})
        assert (refused.status_code, error(refused)["param"]) == (400, param)
    assert nothing_happened(alice)
