"""Responses that a provider keeps: who may go on from them, at whose account, and what of it is held for."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Budget, Usage
from routing.models import Credential, Model, Offer, Policy
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.protocols import RECORDINGS, Provider, post, respond
from tests.stage.shelf import add_offer, make_model, make_provider
from tests.stage.speech import nothing_happened

THEIRS = "resp_68a10001"  # the provider's own id in the recordings


def put(provider: Provider, name: str, secret: str) -> Credential:
    """A credential of a provider, among which the first by name is used."""
    credential = Credential(provider=provider.row, name=name)
    credential.put(secret)
    credential.save()
    provider.row.auth_style = "bearer"
    provider.row.save()
    return credential


@pytest.fixture
def keeps(simulated: SimulatedProvider) -> Provider:
    """A provider that keeps what its clients do not forbid it to keep."""
    return Provider(simulated, "openai_responses", "store")


def told(answer: httpx.Response) -> list[dict[str, Any]]:
    """The responses that a stream tells of."""
    assert answer.status_code == 200, answer.text
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    return [event["response"] for event in events if "response" in event]


def id_of(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    id: str = answer.json()["id"]
    return id


def is_refused(answer: httpx.Response) -> bool:
    """Whether it is the one refusal of an id that cannot be gone on from."""
    error = answer.json()["error"]
    said = "Parameter previous_response_id names no response that can be gone on from. Send the conversation in input."
    assert (answer.status_code, error["param"], error["message"]) == (400, "previous_response_id", said)
    return True


# --- what is kept


def test_an_id_of_what_is_kept_is_sealed(gateway: Gateway, alice: Tenant, keeps: Provider) -> None:
    synchronize(gateway)
    for said in ({}, {"store": True}):
        answer = respond(gateway, alice, keeps.model, **said)
        assert "x-gateway-ignored-params" not in answer.headers
        assert keeps.sent["store"] is True
        assert THEIRS not in answer.text
        assert len(id_of(answer)) > 100


@pytest.mark.parametrize("recording", ["text.sse", "reasoning_tools.sse"])
def test_every_event_tells_the_same_id(
    recording: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "openai_responses", "store", plays=recording)
    synchronize(gateway)
    answer = respond(gateway, alice, provider.model, stream=True)
    (id,) = {response["id"] for response in told(answer)}
    assert len(id) > 100
    theirs = json.loads(
        next(
            line[6:]
            for line in (RECORDINGS / "openai_responses" / recording).read_text().splitlines()
            if "data: " in line
        )
    )["response"]["id"]
    assert theirs not in answer.text
    again = respond(gateway, alice, provider.model, previous_response_id=id, stream=True)
    assert {response["previous_response_id"] for response in told(again)} == {id}
    assert provider.sent["previous_response_id"] == theirs


def test_nothing_is_kept_where_client_offer_or_policy_do_not_want_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, keeps: Provider
) -> None:
    other = Provider(simulated, "openai_responses")
    type(keeps.row).objects.filter(pk=keeps.row.pk).update(retains_data=False)
    synchronize(gateway)
    for provider, said, named in (
        (keeps, {"store": False}, None),
        (other, {}, None),
        (other, {"store": True}, "store"),
    ):
        answer = respond(gateway, alice, provider.model, **said)
        assert provider.sent["store"] is False
        assert id_of(answer) == f"resp_{answer.headers['x-generation-id']}"
        assert answer.headers.get("x-gateway-ignored-params") == named
    kept = id_of(respond(gateway, alice, keeps.model))
    Policy.objects.create(level="project", project=alice.project, refuses_retention=True)
    synchronize(gateway)
    for said, named in (({}, None), ({"store": True}, "store")):
        answer = respond(gateway, alice, keeps.model, **said)
        assert keeps.sent["store"] is False
        assert id_of(answer) == f"resp_{answer.headers['x-generation-id']}"
        assert answer.headers.get("x-gateway-ignored-params") == named
    chat = gateway.chat(alice.secret, keeps.model.slug, store=True)
    assert (chat.headers["x-gateway-ignored-params"], keeps.sent["store"]) == ("store", False)
    assert is_refused(respond(gateway, alice, keeps.model, previous_response_id=kept))
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    strict = respond(gateway, alice, keeps.model, store=True)
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "store")


# --- going on


def test_who_goes_on_is_served_by_the_same_account(gateway: Gateway, alice: Tenant, keeps: Provider) -> None:
    put(keeps, "m", "secret-of-m-4711")
    synchronize(gateway)
    id = id_of(respond(gateway, alice, keeps.model))
    put(keeps, "a", "secret-of-a-4711")  # is used first from now on
    synchronize(gateway)
    assert respond(gateway, alice, keeps.model).status_code == 200
    assert keeps.fields["authorization"] == "Bearer secret-of-a-4711"
    results = [{"type": "function_call_output", "call_id": "call_1", "output": "7"}]
    answer = respond(gateway, alice, keeps.model, previous_response_id=id, input=results)
    assert (keeps.fields["authorization"], keeps.sent["previous_response_id"]) == ("Bearer secret-of-m-4711", THEIRS)
    assert keeps.sent["input"] == results
    assert answer.json()["previous_response_id"] == id
    assert id_of(answer) != id
    # Another model that is sold from this account goes on as well, and this one again where a choice is the gateway's.
    other = make_model(keeps.row, keeps.model.offers.get().upstream_model, supported_parameters=["store"])
    synchronize(gateway)
    assert respond(gateway, alice, other, previous_response_id=id).status_code == 200
    assert keeps.fields["authorization"] == "Bearer secret-of-m-4711"


def test_no_other_account_is_asked_when_that_one_is_exhausted(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, keeps: Provider
) -> None:
    put(keeps, "m", "secret-of-m-4711")
    synchronize(gateway)
    id = id_of(respond(gateway, alice, keeps.model))
    put(keeps, "a", "secret-of-a-4711")
    add_offer(keeps.model, make_provider(simulated.base_url), "sim-small?text=no", priority=9)
    Offer.objects.filter(model=keeps.model, provider=keeps.row).update(upstream_model="sim-small?status=429")
    synchronize(gateway)
    answer = respond(gateway, alice, keeps.model, previous_response_id=id)
    assert (answer.status_code, int(answer.headers["retry-after"]) > 0) == (429, True)
    (attempt,) = Attempt.objects.filter(generation=answer.headers["x-generation-id"])
    assert attempt.provider == keeps.row.slug
    # It rests now, so the next one is told at once; without a name from before, another account is asked.
    again = respond(gateway, alice, keeps.model, previous_response_id=id)
    assert (again.status_code, "x-generation-id" in again.headers) == (429, False)


def test_an_account_without_a_credential_is_one_too(gateway: Gateway, alice: Tenant, keeps: Provider) -> None:
    synchronize(gateway)
    id = id_of(respond(gateway, alice, keeps.model))
    assert respond(gateway, alice, keeps.model, previous_response_id=id).status_code == 200
    assert keeps.sent["previous_response_id"] == THEIRS
    put(keeps, "a", "secret-of-a-4711")
    synchronize(gateway)
    assert is_refused(respond(gateway, alice, keeps.model, previous_response_id=id))


def test_what_cannot_be_gone_on_from_is_refused_before_anything_happens(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, keeps: Provider
) -> None:
    credential = put(keeps, "m", "secret-of-m-4711")
    elsewhere = Provider(simulated, "openai_responses", "store")
    chat = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    of_charlie = id_of(respond(gateway, charlie, keeps.model))
    assert respond(gateway, charlie, keeps.model, previous_response_id=of_charlie).status_code == 200
    for model, id in (
        (keeps.model, of_charlie),  # another organization's
        (keeps.model, THEIRS),
        (keeps.model, of_charlie[:-1]),
        (keeps.model, of_charlie + "A" * 100),
        (keeps.model, "resp_" + "A" * 100_000),
        (keeps.model, "resp_"),
        (chat, "resp_1"),
    ):
        assert is_refused(respond(gateway, alice, model, previous_response_id=id))
    assert nothing_happened(alice)
    own = id_of(respond(gateway, alice, keeps.model))
    for model in (elsewhere.model, chat):  # no offer of it is sold from that account
        assert is_refused(respond(gateway, alice, model, previous_response_id=own))
    Model.objects.filter(pk=keeps.model.pk).update(supported_parameters=["temperature"])
    synchronize(gateway)
    assert is_refused(respond(gateway, alice, keeps.model, previous_response_id=own))
    Model.objects.filter(pk=keeps.model.pk).update(supported_parameters=["store"])
    put(keeps, "n", "secret-of-n-4711")
    credential.delete()
    synchronize(gateway)
    assert is_refused(respond(gateway, alice, keeps.model, previous_response_id=own))
    assert Usage.objects.filter(organization=alice.organization.id).count() == 1
    with pytest.raises(ValueError, match="asked"):
        print(elsewhere.sent)  # it was asked nothing


# --- what it costs


def test_what_is_gone_on_from_is_held_for(gateway: Gateway, alice: Tenant, keeps: Provider) -> None:
    """The provider reads and bills all of it again: who has no money for that is not dialled for."""
    Model.objects.filter(pk=keeps.model.pk).update(max_output=100)
    synchronize(gateway)
    id = id_of(respond(gateway, alice, keeps.model, input="word " * 20_000))
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.15"), hard=True)
    synchronize(gateway)
    assert respond(gateway, alice, keeps.model, input="and?").status_code == 200
    refused = respond(gateway, alice, keeps.model, input="and?", previous_response_id=id)
    assert (refused.status_code, refused.json()["error"]["code"]) == (402, "insufficient_credit")
    assert Usage.objects.filter(organization=alice.organization.id).count() == 2


def test_what_is_gone_on_from_is_in_an_estimate(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    answer = json.loads((RECORDINGS / "openai_responses" / "text.json").read_bytes())
    provider = Provider(simulated, "openai_responses", "store", plays=answer | {"usage": None}, max_output=100)
    synchronize(gateway)
    id = id_of(respond(gateway, alice, provider.model, input="word " * 2_000))
    assert respond(gateway, alice, provider.model, input="and?", previous_response_id=id).status_code == 200
    first, second = Usage.objects.filter(organization=alice.organization.id).order_by("id")
    assert (first.basis, second.basis) == ("estimated", "estimated")
    assert second.prompt_tokens > first.prompt_tokens


# --- what is not kept here


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"background": True}, "background"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].id"),
    ],
)
def test_what_names_something_kept_is_refused_by_name(
    fields: dict[str, Any], param: str, gateway: Gateway, alice: Tenant, keeps: Provider
) -> None:
    synchronize(gateway)
    refused = respond(gateway, alice, keeps.model, **fields)
    error = refused.json()["error"]
    assert (refused.status_code, error["type"], error["param"], error["code"]) == (
        *(400, "invalid_request_error", param, "unsupported_parameter"),
    )
    assert nothing_happened(alice)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("POST", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/conversations"),
        ("GET", "/v1/conversations/conv_1/items"),
    ],
)
def test_paths_of_what_is_kept_are_not_there(method: str, path: str, gateway: Gateway, alice: Tenant) -> None:
    synchronize(gateway)
    answer = gateway.client.request(method, path, headers={"Authorization": f"Bearer {alice.secret}"})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (404, "invalid_request_error", "not_found")
    assert post(gateway, alice, "/v1/responses").status_code == 400  # this one is


# --- items that are named by their ids

SDK = {"User-Agent": "ai/6.0.1 ai-sdk/provider-utils/4.0.1 runtime/node.js/24"}


def as_sdk(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> httpx.Response:
    """A request of a client that names what was said by ids, and takes it that answers are kept."""
    headers = {"Authorization": f"Bearer {tenant.secret}", **SDK}
    return gateway.client.post("/v1/responses", json={"model": model.slug, "input": "hi", **fields}, headers=headers)


@pytest.mark.parametrize("stream", [False, True])
def test_what_is_named_by_its_id_is_carried_in_another_one(
    stream: bool, gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?text=Once%20upon%20a%20time&reasoning=3")
    echo = make_model(make_provider(simulated.base_url), "sim-small?echo")
    synchronize(gateway)
    answer = as_sdk(gateway, alice, model, stream=stream)
    output = (told(answer)[-1] if stream else answer.json())["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "reasoning"]
    named = [{"type": "item_reference", "id": item["id"]} for item in output]
    again = as_sdk(
        gateway, alice, echo, input=[{"role": "user", "content": "hi"}, *named, {"role": "user", "content": "go on"}]
    )
    assert again.status_code == 200, again.text
    sent = json.loads(again.json()["output"][0]["content"][0]["text"])["messages"]
    assert [(turn["role"], turn["content"]) for turn in sent] == [
        ("user", "hi"),
        ("assistant", "Once upon a time"),
        ("user", "go on"),
    ]
    # Without what carries them the others name nothing; nobody but the client ever had it.
    refused = as_sdk(gateway, alice, echo, input=named[:2])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].id")
    twice = as_sdk(gateway, alice, echo, input=[*named, named[1]])
    assert (twice.status_code, twice.json()["error"]["param"]) == (400, "input[3].id")


def test_only_who_needs_it_gets_it(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?text=Once")
    synchronize(gateway)
    for answer in (as_sdk(gateway, alice, model, store=False), respond(gateway, alice, model)):
        assert [item["type"] for item in answer.json()["output"]] == ["message"]
    assert [item["type"] for item in as_sdk(gateway, alice, model).json()["output"]] == ["message", "reasoning"]


@pytest.mark.parametrize("recording", ["reasoning_tools.json", "reasoning_tools.sse"])
def test_it_goes_on_to_a_provider_of_the_same_protocol_in_full(
    recording: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "openai_responses", plays=recording)
    synchronize(gateway)
    stream = recording.endswith("sse")
    answer = as_sdk(gateway, alice, provider.model, stream=stream)
    *output, carrier = (told(answer)[-1] if stream else answer.json())["output"]
    named = [{"type": "item_reference", "id": item["id"]} for item in (*output, carrier)]
    results = [
        {"type": "function_call_output", "call_id": item["call_id"], "output": "7"}
        for item in output
        if item["type"] == "function_call"
    ]
    assert as_sdk(gateway, alice, provider.model, input=[*named, *results], stream=stream).status_code == 200
    by_reference = provider.sent["input"]
    assert respond(gateway, alice, provider.model, input=[*output, *results], stream=stream).status_code == 200
    assert by_reference == provider.sent["input"]
    assert [item["type"] for item in by_reference] == [item["type"] for item in (*output, *results)]
