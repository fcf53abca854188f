"""Clients of the other protocols: what had no effect is named, refusals name what they said, their paths are served."""

import json
from decimal import Decimal
from typing import Any

import httpx
import pytest

from billing.models import Attempt, Budget, Usage
from routing.models import Model, Offer
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.protocols import CONTENTS, HI, Provider, generate, message, post, respond
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff
from tests.stage.speech import events


def ignored(answer: httpx.Response) -> str | None:
    assert answer.status_code == 200, answer.text
    named: str | None = answer.headers.get("x-gateway-ignored-params")
    return named


@pytest.fixture
def echo(simulated: SimulatedProvider) -> Model:
    """A model of a chat provider, which says the body it was sent."""
    return make_model(make_provider(simulated.base_url), "sim-small?echo")


@pytest.fixture
def messages(simulated: SimulatedProvider) -> Provider:
    return Provider(simulated, "anthropic_messages", "temperature", "top_p", "tools")


# --- what has no effect


def test_what_a_provider_of_another_protocol_is_not_asked_is_named(
    gateway: Gateway, alice: Tenant, echo: Model
) -> None:
    synchronize(gateway)
    answer = message(gateway, alice, echo, top_k=3, context_management={"edits": []}, new_field=1)
    assert set((ignored(answer) or "").split(", ")) == {"top_k", "context_management", "new_field"}
    sent = json.loads(answer.json()["content"][0]["text"])
    assert not {"top_k", "context_management", "new_field"} & sent.keys()
    answer = respond(gateway, alice, echo, truncation="auto", new_field=1)
    assert set((ignored(answer) or "").split(", ")) == {"truncation", "new_field"}
    answer = generate(gateway, alice, echo, generationConfig={"topK": 3, "temperature": 0.5})
    assert ignored(answer) == "generationConfig.topK"
    assert ignored(generate(gateway, alice, echo)) is None


def test_a_hint_goes_to_a_provider_that_lists_it(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    Model.objects.filter(id=echo.id).update(supported_parameters=["top_k"])
    synchronize(gateway)
    answer = message(gateway, alice, echo, top_k=3)
    assert ignored(answer) is None
    assert json.loads(answer.json()["content"][0]["text"])["top_k"] == 3


def test_breakpoints_go_to_a_chat_provider_that_lists_them(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    """Coding agents set them always; servers of OpenAI's protocols may refuse them, and texts in parts."""
    cached = {"cache_control": {"type": "ephemeral"}}
    texts = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", **cached}]
    tool = {"name": "f", "input_schema": {"type": "object"}, **cached}
    alice.project.strict_params = True  # it changes no answer
    alice.project.save()
    synchronize(gateway)
    answer = message(gateway, alice, echo, system=texts, tools=[tool])
    assert ignored(answer) == "cache_control"
    sent = json.loads(answer.json()["content"][0]["text"])
    assert sent["messages"][0] == {"role": "system", "content": "Be brief.\nBe kind."}
    assert "cache_control" not in sent["tools"][0]
    Model.objects.filter(id=echo.id).update(supported_parameters=["cache_control", "tools"])
    synchronize(gateway)
    answer = message(gateway, alice, echo, system=texts, tools=[tool])
    assert ignored(answer) is None
    sent = json.loads(answer.json()["content"][0]["text"])
    assert (sent["messages"][0]["content"], sent["tools"][0]["cache_control"]) == (texts, {"type": "ephemeral"})


def test_a_parameter_that_the_list_lacks_is_named_as_the_client_called_it(
    gateway: Gateway, alice: Tenant, echo: Model
) -> None:
    Model.objects.filter(id=echo.id).update(supported_parameters=["temperature"])
    synchronize(gateway)
    schema = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    assert ignored(respond(gateway, alice, echo, text={"format": schema})) == "text.format"
    assert ignored(generate(gateway, alice, echo, generationConfig={"seed": 3})) == "generationConfig.seed"


def test_a_chat_field_that_the_providers_protocol_lacks_is_withheld_and_named(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    gemini = Provider(simulated, "google_gemini")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, gemini.model.slug, verbosity="low", parallel_tool_calls=False, temperature=0.5)
    assert set((ignored(answer) or "").split(", ")) == {"verbosity", "parallel_tool_calls"}
    assert gemini.sent["generationConfig"] == {"temperature": 0.5, **_cap(gemini.sent)}


def _cap(body: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body["generationConfig"].items() if name == "maxOutputTokens"}


def test_a_strict_key_is_refused_what_would_have_no_effect(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, echo: Model
) -> None:
    gemini = Provider(simulated, "google_gemini")
    alice.project.strict_params = True
    alice.project.save()
    synchronize(gateway)
    refused = respond(gateway, alice, echo, truncation="auto")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "truncation")
    refused = gateway.chat(alice.secret, gemini.model.slug, verbosity="low")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "verbosity")
    assert Usage.objects.filter(organization=alice.organization.id, charge__gt=0).count() == 0


# --- the client's own body, where the provider speaks its protocol


def test_an_own_body_goes_on_without_what_the_offer_does_not_take(
    gateway: Gateway, alice: Tenant, messages: Provider
) -> None:
    Model.objects.filter(id=messages.model.id).update(supported_parameters=["top_p"])
    synchronize(gateway)
    answer = message(gateway, alice, messages.model, temperature=0.5, top_p=0.9, new_field=1)
    assert ignored(answer) == "temperature"
    sent = messages.sent
    assert (sent["top_p"], sent["new_field"], "temperature" in sent) == (0.9, 1, False)


def test_what_costs_more_goes_on_only_if_the_offer_lists_it(
    gateway: Gateway, alice: Tenant, messages: Provider
) -> None:
    synchronize(gateway)
    answer = message(gateway, alice, messages.model, speed="fast", new_field=1)
    assert (ignored(answer), "speed" in messages.sent, messages.sent["new_field"]) == ("speed", False, 1)
    Model.objects.filter(id=messages.model.id).update(supported_parameters=["speed"])
    synchronize(gateway)
    assert ignored(message(gateway, alice, messages.model, speed="fast")) is None
    assert messages.sent["speed"] == "fast"


def test_under_a_hard_budget_what_nobody_knows_is_withheld(gateway: Gateway, alice: Tenant, messages: Provider) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(9), hard=True)
    synchronize(gateway)
    answer = message(gateway, alice, messages.model, new_field=1)
    assert (ignored(answer), "new_field" in messages.sent) == ("new_field", False)


def test_a_search_that_the_offer_does_not_list_is_not_asked_for(
    gateway: Gateway, alice: Tenant, messages: Provider
) -> None:
    search = [{"type": "web_search_20250305", "name": "web_search"}]
    synchronize(gateway)
    assert ignored(message(gateway, alice, messages.model, tools=search)) == "web_search_options"
    assert "tools" not in messages.sent
    Model.objects.filter(id=messages.model.id).update(supported_parameters=["tools", "web_search"])
    synchronize(gateway)
    assert ignored(message(gateway, alice, messages.model, tools=search)) is None
    assert messages.sent["tools"] == search


@pytest.mark.parametrize("pages", [{}, {"allowed_domains": ["a.example"]}])
def test_searches_that_may_be_billed_are_held_for(
    pages: dict[str, Any], gateway: Gateway, alice: Tenant, messages: Provider
) -> None:
    tariff = make_tariff(input="1", output="2", web_search="1")
    Offer.objects.filter(model=messages.model).update(tariff=tariff, supported_parameters=["tools", "web_search"])
    alice.key.max_request_price = Decimal(9)  # ten searches are more
    alice.key.save()
    synchronize(gateway)
    assert message(gateway, alice, messages.model).status_code == 200
    search = {"type": "web_search_20250305", "name": "web_search", **pages}
    refused = message(gateway, alice, messages.model, tools=[search])
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "request_too_expensive")


@pytest.mark.parametrize("spelled", ["codeExecution", "code_execution"])
def test_what_only_its_protocol_has_needs_an_offer_that_lists_it(
    spelled: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, echo: Model
) -> None:
    gemini = Provider(simulated, "google_gemini")
    tools: list[dict[str, Any]] = [{spelled: {}}]
    synchronize(gateway)
    for model in (echo, gemini.model):
        refused = generate(gateway, alice, model, tools=tools)
        assert refused.status_code == 400
        (violation,) = (one for one in refused.json()["error"]["details"] if one["@type"].endswith("BadRequest"))
        assert violation["fieldViolations"][0]["field"] == "tools[0].codeExecution"
    assert not Usage.objects.filter(organization=alice.organization.id, charge__gt=0).exists()
    Model.objects.filter(id=gemini.model.id).update(supported_parameters=["codeExecution"])
    synchronize(gateway)
    answer = generate(gateway, alice, gemini.model, tools=tools, labels={"team": "a"})
    assert (answer.status_code, gemini.sent["tools"], "labels" in gemini.sent) == (200, tools, False)
    assert answer.json()["modelVersion"] == gemini.model.slug


def test_an_own_body_of_google_s_goes_on_with_what_nobody_here_knows(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    gemini = Provider(simulated, "google_gemini")
    synchronize(gateway)
    contents = [{"role": "user", "parts": [{"text": "hi", "videoMetadata": {"fps": 1}}]}]
    answer = generate(gateway, alice, gemini.model, contents=contents, generation_config={"top_k": 3})
    assert answer.status_code == 200
    assert gemini.sent["contents"] == contents
    assert gemini.sent["generation_config"]["top_k"] == 3
    (row,) = Usage.objects.filter(organization=alice.organization.id)
    shown = answer.json()["usageMetadata"]
    assert (shown["promptTokenCount"], row.basis) == (row.prompt_tokens, "reported")


def test_what_an_offer_cannot_be_asked_for_goes_to_the_next_one_and_costs_nothing(
    gateway: Gateway, alice: Tenant, messages: Provider, simulated: SimulatedProvider
) -> None:
    add_offer(messages.model, make_provider(simulated.base_url), "sim-small?text=two", priority=9)
    Model.objects.filter(id=messages.model.id).update(supported_parameters=[])
    synchronize(gateway)
    answer = gateway.chat(alice.secret, messages.model.slug, n=2)
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == ["two", "two"]
    (row,) = Usage.objects.filter(organization=alice.organization.id)
    first, second = Attempt.objects.filter(generation=row.id).order_by("number")
    assert (first.provider, second.provider) == (messages.row.slug, row.provider)
    assert (first.status, first.prompt_tokens, second.status) == ("failed", None, "completed")
    with pytest.raises(ValueError, match="asked"):
        print(messages.sent)  # it was asked nothing


@pytest.mark.parametrize("streams", [False, True])
def test_a_stop_sequence_is_looked_for_where_the_protocol_has_none(
    streams: bool, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    provider = Provider(simulated, "openai_responses", plays="text.sse" if streams else "text.json")
    synchronize(gateway)
    answer = gateway.chat(alice.secret, provider.model.slug, stop=["世界"], stream=streams)
    assert (answer.status_code, "stop" in provider.sent) == (200, False)
    told = [event["choices"][0] for event in events(answer.text)[:-1]] if streams else answer.json()["choices"]
    said = "".join(choice.get("delta", choice.get("message")).get("content") or "" for choice in told)
    assert (said, told[-1]["finish_reason"]) == ("Grüß dich, ", "stop")


# --- refusals


def test_a_refusal_names_what_the_client_said(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), input_modalities=["text"])
    synchronize(gateway)
    picture = "data:image/png;base64,iVBORw0KGgo="
    said = [{"role": "user", "content": [{"type": "input_image", "image_url": picture}]}]
    error = respond(gateway, alice, model, input=said).json()["error"]
    assert error["param"] == "input[0].content[0].image_url"
    assert "messages" not in error["message"]
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    said = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    error = message(gateway, alice, model, messages=said).json()["error"]
    assert (error["type"], error["param"].startswith("messages[0]")) == ("invalid_request_error", True)
    parts = [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}]
    error = generate(gateway, alice, model, contents=[{"role": "user", "parts": parts}]).json()["error"]
    assert error["details"][1]["fieldViolations"][0]["field"].startswith("contents[0].parts[0]")


def test_a_websocket_is_told_to_go_on_over_http(gateway: Gateway, alice: Tenant) -> None:
    headers = {"Authorization": f"Bearer {alice.secret}", "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version": "13"}
    synchronize(gateway)
    assert gateway.client.get("/v1/responses", headers=headers).status_code == 426
    plain = gateway.client.get("/v1/responses", headers={"Authorization": f"Bearer {alice.secret}"})
    assert (plain.status_code, plain.headers["allow"]) == (405, "POST, OPTIONS")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/anthropic/v1/nothing", "anthropic"),
        ("/api/anthropic/v1/messages/batches", "anthropic"),
        ("/v1beta/tunedModels/x:predict", "google"),
        ("/v1beta/models/a%0Ab:countTokens", "google"),
        ("/anthropic/%0A", "anthropic"),
        ("/api/vertex-ai/v1beta/cachedContents", "google"),
        ("/v1/responses/resp_1/cancel", "openai"),
    ],
)
def test_what_is_not_served_is_told_in_the_protocol_of_its_path(gateway: Gateway, path: str, kind: str) -> None:
    answer = gateway.client.post(path, json={})
    body = answer.json()
    assert answer.status_code == 404
    if kind == "anthropic":
        assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    elif kind == "google":
        assert (body["error"]["code"], body["error"]["status"]) == (404, "NOT_FOUND")
    else:
        assert body["error"]["code"] == "not_found"


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/responses", "/v1beta/models/a/b:generateContent"])
def test_a_page_may_ask_what_it_can_send(gateway: Gateway, alice: Tenant, path: str) -> None:
    asks = {"Origin": "https://a.example", "Access-Control-Request-Headers": "x-api-key, anthropic-version"}
    answer = gateway.client.options(path, headers=asks)
    assert (answer.status_code, answer.headers["allow"]) == (204, "POST, OPTIONS")
    assert answer.headers["access-control-allow-headers"] == "x-api-key, anthropic-version"
    synchronize(gateway)
    assert gateway.client.head(path, headers={"x-api-key": alice.secret}).status_code == 405


# --- whose paths they are


@pytest.mark.parametrize("place", ["/v1", "/v1beta", "/v1beta1", "/api/vertex-ai/v1", "/api/vertex-ai/v1beta1"])
def test_a_model_may_stand_behind_its_publisher(
    place: str, gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?text=hello")
    publisher, name = model.slug.split("/")
    synchronize(gateway)
    for before in (
        f"{place}/models/{model.slug}",
        f"{place}/publishers/{publisher}/models/{name}",
        f"{place}/projects/p/locations/eu/publishers/google/models/{model.slug}",
    ):
        answer = post(gateway, alice, f"{before}:generateContent", contents=CONTENTS)
        assert answer.json()["candidates"][0]["content"]["parts"] == [{"text": "hello"}]


def test_a_stream_without_events_is_one_array(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?text=hello")
    synchronize(gateway)
    path = f"/v1beta/models/{model.slug}:streamGenerateContent"
    headers = {"Authorization": f"Bearer {alice.secret}", "x-gateway-explain": "1"}
    answer = gateway.client.post(path, json={"contents": CONTENTS}, headers=headers)
    assert answer.headers["content-type"] == "application/json"
    events = answer.json()
    assert events[0]["candidates"][0]["content"]["parts"] == [{"text": "hello"}]
    assert "x_gateway_plan" in events[-1]
    assert post(gateway, alice, f"{path}?alt=sse", contents=CONTENTS).headers["content-type"] == (
        "text/event-stream; charset=utf-8"
    )


# --- counting


@pytest.mark.parametrize("base", ["/v1", "/anthropic/v1", "/api/anthropic/v1"])
def test_the_tokens_of_a_message_are_estimated(base: str, gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    said = [{"role": "user", "content": "word " * 400}]
    path = f"{base}/messages/count_tokens"
    counted = post(gateway, alice, path, model=echo.slug, messages=said)
    assert counted.status_code == 200
    assert counted.json()["estimated"] is True
    assert 300 < counted.json()["input_tokens"] < 1200
    assert post(gateway, alice, path, model="no/such", messages=said).json()["error"]["type"] == "not_found_error"
    refused = post(gateway, alice, path, model=echo.slug, messages=[])
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


def test_the_tokens_of_contents_are_estimated(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    path = f"/v1beta/models/{echo.slug}:countTokens"
    contents = [{"role": "user", "parts": [{"text": "word " * 400}]}]
    alone = post(gateway, alice, path, contents=contents)
    whole = post(gateway, alice, path, generateContentRequest={"contents": contents})
    assert alone.json() == whole.json()
    assert 300 < alone.json()["totalTokens"] < 1200
    assert post(gateway, alice, path).status_code == 400


# --- who may


def test_a_key_that_is_for_one_protocol_is_for_no_other(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    _, secret = make_key(alice.project, allowed_endpoints=["messages"])
    synchronize(gateway)
    keyed = Tenant(alice.organization, alice.project, alice.user, alice.key, secret)
    assert message(gateway, keyed, echo).status_code == 200
    assert post(gateway, keyed, "/v1/messages/count_tokens", model=echo.slug, messages=HI).status_code == 200
    assert respond(gateway, keyed, echo).status_code == 403
    refused = generate(gateway, keyed, echo)
    assert (refused.status_code, refused.json()["error"]["status"]) == (403, "PERMISSION_DENIED")
