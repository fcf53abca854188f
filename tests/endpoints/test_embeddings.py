"""POST /v1/embeddings through a running gateway: what goes in, what comes out, what is on the books."""

import json
import struct
from base64 import b64encode
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
from tests.simulated.prompts import vector
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize, until
from tests.stage.raw import Line, dial, head
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff
from tests.stage.speech import error, nothing_happened

TEXTS = ["north of here", "south", "north of here"]


def shelve(gateway: Gateway, url: str, says: str, tariff: Any = None, **provider: Any) -> Model:
    """A model that makes embeddings, at $1 a million tokens to the provider and $2 to the tenant."""
    row = make_provider(url, **provider)
    rates = tariff or make_tariff(input=("1", "2"))  # none for output: nothing is written
    model = make_model(row, says, rates, output_modalities=["embeddings"])
    synchronize(gateway)
    return model


@pytest.fixture
def sdk(gateway: Gateway, alice: Tenant) -> Iterator[OpenAI]:
    """The official SDK, with Alice's key; it asks once."""
    with OpenAI(base_url=f"{gateway.url}/v1", api_key=alice.secret, max_retries=0) as client:
        yield client


def post(gateway: Gateway, tenant: Tenant, body: dict[str, Any], path: str = "/v1/embeddings", **headers: str) -> Any:
    return gateway.client.post(path, json=body, headers={"Authorization": f"Bearer {tenant.secret}", **headers})


def row(tenant: Tenant) -> Usage:
    """The one row there is, once nothing is held any more."""
    mine = {"organization": tenant.organization.pk}
    until(lambda: Usage.objects.filter(**mine).exists() and not Hold.objects.filter(**mine).exists(), 20)
    return Usage.objects.get(**mine)


def packed(numbers: list[float]) -> str:
    return b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()


@pytest.mark.row("B357", "B358")
def test_the_official_sdk_gets_a_vector_a_text_and_pays_for_what_was_read(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, sdk: OpenAI
) -> None:
    model = shelve(gateway, simulated.base_url, "e-1?prompt=15")
    answer = sdk.embeddings.create(model=model.slug, input=TEXTS, user="u-1", dimensions=5)
    assert [one.embedding for one in answer.data] == [vector(text, 5) for text in TEXTS]
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert (answer.model, answer.object) == (model.slug, "list")
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (15, 15)
    usage = row(alice)
    assert (usage.status, usage.basis, usage.stream, usage.end_user) == ("completed", "reported", False, "u-1")
    assert (usage.prompt_tokens, usage.completion_tokens) == (15, 0)
    assert (usage.charge, usage.provider_cost) == (Decimal("0.000030"), Decimal("0.000015"))
    assert usage.arithmetic == [{"item": "input", "quantity": 15, "cost": "1.000000", "charge": "2.000000"}]


@pytest.mark.row("B357")
@pytest.mark.parametrize(
    ("input", "read"),
    [
        ("north", ["north"]),
        (["north", "south"], ["north", "south"]),
        ([7, 8], ["7 8"]),
        ([[7, 8], [9]], ["7 8", "9"]),
    ],
)
@pytest.mark.parametrize("path", ["/v1/embeddings", "/api/v1/embeddings", "/embeddings"])
def test_every_form_of_input_and_both_encodings(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, path: str, input: Any, read: list[str]
) -> None:
    model = shelve(gateway, simulated.base_url, "e-1")
    expected = [vector(text, 8) for text in read]
    asked = {"model": model.slug, "input": input}
    floats = post(gateway, alice, asked, path).json()["data"]
    assert [one["embedding"] for one in floats] == expected
    # The provider has numbers alone: the gateway puts them into the other form.
    coded = post(gateway, alice, {**asked, "encoding_format": "base64"}, path).json()["data"]
    assert [one["embedding"] for one in coded] == [packed(numbers) for numbers in expected]


def test_what_the_provider_is_sent(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    answer = {"data": [{"index": 0, "embedding": "AACAPw=="}], "usage": {"prompt_tokens": 2, "total_tokens": 2}}
    says = simulated.script("sent-vectors", json.dumps(answer).encode(), content_type="application/json")
    model = shelve(gateway, simulated.base_url, f"e-1?{says}", secret="sk-provider")
    asked = {"input": [[1, 2]], "user": "u", "encoding_format": "base64", "input_type": "query", "dimensions": 1}
    wish = {"provider": {"fallback": False}, "usage": {"include": True}}
    made = post(gateway, alice, {"model": model.slug, **asked, **wish})
    assert made.json()["data"] == [{"object": "embedding", "index": 0, "embedding": "AACAPw=="}]
    assert made.json()["usage"] == {"prompt_tokens": 2, "total_tokens": 2, "cost": 0.000004}
    request = simulated.asked("sent-vectors")
    assert request["path"] == "/v1/embeddings"
    assert request["headers"]["authorization"] == "Bearer sk-provider"
    assert json.loads(request["body"]) == {"model": f"e-1?{says}", **asked}


@pytest.mark.parametrize(
    ("path", "asked", "row"),
    [
        ("/v1/embeddings", {"input": "north"}, {"output_modalities": ["embeddings"]}),
        ("/v1/completions", {"prompt": "north"}, {"supported_parameters": ["prompt"]}),
    ],
)
def test_fields_nobody_knows_are_sent_on_null_or_not(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, path: str, asked: dict[str, Any], row: dict[str, Any]
) -> None:
    says = simulated.script(name := f"unread{path.replace('/', '-')}", b"{}", content_type="application/json")
    model = make_model(make_provider(simulated.base_url), f"e-1?{says}", **row)
    synchronize(gateway)
    more = {"": None, "messages": None, "tools": None, "new": 1, "modalities": None, "audio": None}
    post(gateway, alice, {"model": model.slug, **asked, **more}, path)
    sent = json.loads(simulated.asked(name)["body"])
    assert {field: sent[field] for field in (*asked, *more)} == {**asked, **more}
    assert post(gateway, alice, {"model": model.slug, **asked, "service_tier": 7}, path).status_code in (400, 502)


def test_a_provider_of_googles_is_asked_for_a_batch(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    answer = {"embeddings": [{"values": [1, 0.5]}, {"values": [0.25, -1]}]}
    says = simulated.script("google-vectors", json.dumps(answer).encode(), content_type="application/json")
    model = shelve(gateway, simulated.base_url, f"e-1?{says}", protocol="google_gemini")
    made = post(gateway, alice, {"model": model.slug, "input": ["12345678", "1234"]})
    assert [one["embedding"] for one in made.json()["data"]] == [[1, 0.5], [0.25, -1]]
    assert made.json()["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    request = simulated.asked("google-vectors")
    assert request["path"].endswith(":batchEmbedContents")
    sent = json.loads(request["body"])["requests"]
    assert [one["content"] for one in sent] == [{"parts": [{"text": text}]} for text in ("12345678", "1234")]
    usage = row(alice)  # it counts nothing, so the texts are estimated
    assert (usage.basis, usage.prompt_tokens, usage.charge) == ("estimated", 3, Decimal("0.000006"))


def test_tokens_go_to_whoever_can_be_sent_them(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "g-1?status=500", protocol="google_gemini")
    add_offer(model, make_provider(simulated.base_url), "e-1", make_tariff(input="2"), priority=1)
    synchronize(gateway)
    made = post(gateway, alice, {"model": model.slug, "input": [7, 8]})
    assert made.json()["data"][0]["embedding"] == vector("7 8", 8)
    attempts = Attempt.objects.filter(generation=row(alice).id).order_by("number")
    assert [(one.number, one.status, one.fault) for one in attempts] == [
        (1, "failed", "rejected"),
        (2, "completed", ""),
    ]
    assert simulated.state()["requests"].get("g-1?status=500", 0) == 0  # it was not dialled


def test_an_offer_whose_protocol_has_none_is_left_out_by_name(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "a-1?status=500", protocol="anthropic_messages")
    asked = {"model": model.slug, "input": "north"}
    refused = post(gateway, alice, asked, **{"X-Gateway-Explain": "1"})
    assert (refused.status_code, error(refused)["code"]) == (404, "model_not_supported")
    assert [one["reason"] for one in refused.json()["x_gateway_plan"]["candidates"]] == ["protocol"]
    assert nothing_happened(alice)
    add_offer(model, make_provider(simulated.base_url), "e-1", make_tariff(input="2"), priority=1)
    synchronize(gateway)
    assert post(gateway, alice, asked).status_code == 200
    plan: Any = row(alice).plan
    assert [line[3] for line in plan["out"]] == ["protocol"]
    assert len(plan["offers"]) == 1


@pytest.mark.row("B075")
def test_a_model_is_asked_for_what_it_makes_alone(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    chats = make_model(make_provider(simulated.base_url), "sim-small?status=500")
    unknown = make_model(make_provider(simulated.base_url), "sim-small?status=500", output_modalities=[])
    vectors = shelve(gateway, simulated.base_url, "e-1?status=500")
    for slug, makes in ((chats.slug, "text"), (unknown.slug, "what is not known")):
        refused = post(gateway, alice, {"model": slug, "input": "north"})
        assert (refused.status_code, error(refused)["code"]) == (404, "model_not_supported")
        assert error(refused)["message"] == f"The model '{slug}' does not make embeddings: it makes {makes}."
    refused = gateway.chat(alice.secret, vectors.slug)
    assert (refused.status_code, error(refused)["code"]) == (404, "model_not_supported")
    assert error(refused)["message"] == f"The model '{vectors.slug}' does not chat: it makes embeddings."
    assert nothing_happened(alice)
    listed = gateway.client.get("/v1/models", headers={"x-api-key": alice.secret}).json()["data"]
    assert next(one["output_modalities"] for one in listed if one["id"] == vectors.slug) == ["embeddings"]


def test_another_provider_answers_and_another_model_never(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    other = shelve(gateway, simulated.base_url, "e-other")
    model = shelve(gateway, simulated.base_url, "e-1?status=503")
    asked = {"model": model.slug, "input": "north", "provider": {"fallback": other.slug}}
    refused = post(gateway, alice, asked)
    assert (refused.status_code, error(refused)["param"]) == (400, "provider.fallback")
    assert nothing_happened(alice)
    add_offer(model, make_provider(simulated.base_url), "e-2", make_tariff(input="2"), priority=1)
    synchronize(gateway)
    made = post(gateway, alice, {"model": model.slug, "input": "north"})
    assert made.json()["data"][0]["embedding"] == vector("north", 8)
    attempts = Attempt.objects.filter(generation=row(alice).id).order_by("number")
    assert [(one.upstream_model, one.status) for one in attempts] == [
        ("e-1?status=503", "failed"),
        ("e-2", "completed"),
    ]


def test_a_budget_and_limits_refuse_before_the_dial(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, sdk: OpenAI
) -> None:
    model = shelve(gateway, simulated.base_url, f"e-1?id={alice.organization.slug}")
    budget = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.000199"))
    synchronize(gateway)
    with pytest.raises(openai.APIStatusError) as caught:  # a token a byte at $2 a million
        sdk.embeddings.create(model=model.slug, input="x" * 100)
    assert (caught.value.status_code, caught.value.code) == (402, "insufficient_credit")
    assert nothing_happened(alice)
    # As tokens they are counted.
    assert len(sdk.embeddings.create(model=model.slug, input=[7] * 99).data) == 1
    budget.delete()
    Limit.objects.create(organization=alice.organization, measure="tokens", value=20)
    synchronize(gateway)
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.embeddings.create(model=model.slug, input="x" * 400)
    assert refused.value.code == "token_limit_too_low"
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 1
    assert not Hold.objects.filter(organization=alice.organization.pk).exists()
    assert len([line for line in simulated.bill() if line["model"] == f"e-1?id={alice.organization.slug}"]) == 1


def test_a_model_without_a_price_is_refused_under_a_hard_budget(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "e-1", make_tariff(output="1"))
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1))
    synchronize(gateway)
    refused = post(gateway, alice, {"model": model.slug, "input": "north"})
    assert (refused.status_code, error(refused)["code"]) == (402, "unknown_price")
    assert nothing_happened(alice)


def test_a_provider_that_counts_nothing_is_estimated(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "e-1?wrong_usage=missing")
    made = post(gateway, alice, {"model": model.slug, "input": ["x" * 40, "y" * 8]})
    assert made.json()["usage"] == {"prompt_tokens": 12, "total_tokens": 12}
    usage = row(alice)
    assert (usage.basis, usage.prompt_tokens, usage.charge) == ("estimated", 12, Decimal("0.000024"))
    counted = post(gateway, alice, {"model": model.slug, "input": [7, 8, 9]}).json()["usage"]
    assert counted == {"prompt_tokens": 3, "total_tokens": 3}


VECTOR = '{"index":0,"embedding":[1,2]}'


@pytest.mark.row("B358")
@pytest.mark.parametrize(
    "says",
    [
        "{",
        '{"data":[]}',
        f'{{"data":[{VECTOR},{VECTOR}]}}',
        f'{{"data":[{VECTOR},{{"index":1,"embedding":[1]}}]}}',
        '{"data":[{"index":0,"embedding":[1,2]},{"index":1,"embedding":[1,"a"]}]}',
        f'{{"data":[{VECTOR},{{"index":1,"embedding":[{"0," * 70_000}0]}}]}}',
    ],
    ids=["half", "none", "one twice", "of two sizes", "no number", "too large"],
)
def test_what_is_no_answer_is_never_one(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, says: str, request: pytest.FixtureRequest
) -> None:
    option = simulated.script(f"bad-{request.node.callspec.id}", says.encode(), content_type="application/json")
    model = shelve(gateway, simulated.base_url, f"e-1?{option}")
    asked = {"model": model.slug, "input": ["a", "b"]}
    failed = post(gateway, alice, asked)
    assert (failed.status_code, error(failed)["code"]) == (502, "upstream_invalid_response")
    usage = row(alice)
    assert (usage.status, usage.basis, usage.charge, usage.provider_cost) == ("failed", "unknown", Decimal(0), None)
    # Another offer answers it.
    add_offer(model, make_provider(simulated.base_url), "e-2", make_tariff(input="2"), priority=1)
    synchronize(gateway)
    assert [one["index"] for one in post(gateway, alice, asked).json()["data"]] == [0, 1]


def test_who_asks_for_more_than_an_answer_may_hold_pays_for_it_and_nobody_rests(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = shelve(gateway, simulated.base_url, "e-1", max_event_bytes=1 << 20)
    add_offer(model, make_provider(simulated.base_url), f"e-2?id={alice.organization.slug}", priority=1)
    synchronize(gateway)
    failed = post(gateway, alice, {"model": model.slug, "input": ["12345678"] * 40, "dimensions": 4096})
    assert (failed.status_code, error(failed)["code"], error(failed)["param"]) == (400, "answer_too_long", "input")
    assert error(failed)["message"] == (
        "The provider's answer is longer than 1048576 bytes. Send fewer inputs at once."
    )
    usage = row(alice)
    assert (usage.status, usage.basis, usage.prompt_tokens, usage.attempts) == ("failed", "estimated", 80, 1)
    assert usage.charge == Decimal("0.000160")
    assert post(gateway, alice, {"model": model.slug, "input": "north"}).status_code == 200


def send(secret: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return head("POST /v1/embeddings", f"Authorization: Bearer {secret}", f"Content-Length: {len(data)}") + data


@pytest.mark.parametrize(("on_leave", "basis", "prompt"), [("finish", "reported", 7), ("stop", "estimated", 1)])
def test_a_client_that_leaves_pays_by_the_settlement_rule(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, on_leave: str, basis: str, prompt: int
) -> None:
    ApiKey.objects.filter(pk=alice.key.pk).update(on_leave=on_leave)
    model = shelve(gateway, simulated.base_url, f"e-1?hold&prompt=7&id={alice.organization.slug}")
    line: Line
    with dial(gateway) as line:
        line.send(send(alice.secret, {"model": model.slug, "input": "hi"}))
        simulated.until(waiting=1)
    if on_leave == "finish":
        until(lambda: "meterline_drains 1.0" in gateway.client.get("/metrics").text)
        simulated.release()
    usage = row(alice)
    assert (usage.status, usage.error, usage.basis, usage.prompt_tokens) == ("cancelled", "client_left", basis, prompt)
    assert usage.charge == Decimal(2 * prompt) / 1_000_000


@pytest.mark.row("B357")
def test_300_thousand_tokens_in_a_body_are_taken(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "e-1?wrong_usage=missing")
    tokens = [[7] * 3_000] * 100
    assert post(gateway, alice, {"model": model.slug, "input": tokens}).json()["usage"]["prompt_tokens"] == 300_000
    refused = post(gateway, alice, {"model": model.slug, "input": [*tokens, [7]]})
    assert (refused.status_code, error(refused)["param"]) == (400, "input[100]")
    assert Usage.objects.filter(organization=alice.organization.pk).count() == 1


@pytest.mark.row("B357")
def test_what_is_wrong_is_refused_by_name(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "e-1?status=500")
    for param, body in (
        ("input", {}),
        ("input", {"input": []}),
        ("input[1]", {"input": ["a", 1]}),
        ("encoding_format", {"input": "a", "encoding_format": "int8"}),
        ("dimensions", {"input": "a", "dimensions": 0}),
        ("model_routing_config", {"input": "a", "model_routing_config": {}}),
    ):
        refused = post(gateway, alice, {"model": model.slug, **body})
        assert (refused.status_code, error(refused)["param"]) == (400, param)
    assert nothing_happened(alice)


def test_a_key_of_other_endpoints_has_none_here(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "e-1")
    _, secret = make_key(alice.project, allowed_endpoints=["chat/completions"])
    synchronize(gateway)
    headers = {"x-api-key": secret}
    refused = gateway.client.post("/v1/embeddings", json={"model": model.slug, "input": "a"}, headers=headers)
    assert (refused.status_code, nothing_happened(alice)) == (403, True)


def test_a_generation_is_looked_up_and_explained(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "e-1?prompt=4")
    made = post(gateway, alice, {"model": model.slug, "input": "north"}, **{"X-Gateway-Explain": "1"})
    assert made.json()["x_gateway_plan"]["candidates"][0]["price_at_most"] == 0.00001
    found = made.headers["x-generation-id"]
    looked = gateway.client.get(f"/v1/generation?id={found}", headers={"x-api-key": alice.secret})
    assert looked.status_code == 200
    assert looked.json()["nativeTokens"]["prompt_tokens"] == 4


def test_a_long_answer_is_read_whole(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = shelve(gateway, simulated.base_url, "e-1", max_event_bytes=64 << 20)
    asked = {"model": model.slug, "input": [f"text {n}" for n in range(500)], "dimensions": 3_072}
    made = post(gateway, alice, {**asked, "encoding_format": "base64"}).json()
    assert [made["data"][at]["embedding"] for at in (0, 499)] == [packed(vector(f"text {n}", 3_072)) for n in (0, 499)]
