"""What the API does not serve, and what it says of models, keys and fields that few tests speak of."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.models import Budget, Counter, Limit
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider
from tests.stage.speech import ALL, error, events, nothing_happened, speak

NOT_SERVED = [
    "rerank", "audio/speech", "audio/transcriptions", "audio/translations", "images/generations", "images/edits",
    "images/variations", "videos", "interactions", "management/flow_rate", "management/subscription/detail",
    "management/insurance", "insurance", "subscription", "redeem", "oauth/token", "oauth/authorize",
]  # fmt: skip


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Any:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def sent(answer: Any) -> Any:
    """The body that a provider got, from the answer of one that says it back."""
    return json.loads(answer.json()["choices"][0]["message"]["content"])


# --- what is not served ---------------------------------------------------------------------------------------------


@pytest.mark.row("B016", "B325", "B327", "B328", "B329", "B359", "B360", "B361", "B362")
@pytest.mark.row("B373", "B374", "B375", "B376", "B386", "B387")
@pytest.mark.parametrize("dialect", ALL)
def test_what_is_out_of_scope_is_not_found(gateway: Gateway, alice: Tenant, dialect: str) -> None:
    speak(alice, dialect)
    _, manager = make_key(alice.project, name="manager", scopes=["inference", "management"])
    synchronize(gateway)
    types = {"standard": "invalid_request_error", "zenmux": "not_found", "ezrouter": "new_api_error"}
    for prefix in ("/v1", "/api/v1"):
        for path in NOT_SERVED:
            for method in ("GET", "POST"):
                answer = gateway.client.request(method, f"{prefix}/{path}", headers={"x-api-key": manager}, json={})
                assert (answer.status_code, error(answer)["type"]) == (404, types[dialect]), (method, prefix, path)
                assert answer.headers["x-request-id"]
    assert nothing_happened(alice)


@pytest.mark.row("B016")
def test_an_access_token_of_an_application_is_no_key(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider)
    synchronize(gateway)
    answer = gateway.chat("eyJhbGciOiJIUzI1NiJ9.eyJzY29wZSI6ImluZmVyZW5jZTppbnZva2UifQ.c2lnbmF0dXJl", model.slug)
    assert (answer.status_code, error(answer)["code"]) == (401, "invalid_api_key")


# --- models ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B075", "B287")
@pytest.mark.parametrize(
    ("dialect", "type", "code"),
    [
        ("standard", "invalid_request_error", "model_not_supported"),
        ("zenmux", "model_not_supported", "404"),
        ("ezrouter", "new_api_error", "model_not_supported"),
    ],
)
def test_a_model_that_does_not_chat_says_so(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, type: str, code: str
) -> None:
    speak(alice, dialect)
    films = make_model(provider, output_modalities=["video"])
    speaks = make_model(provider, output_modalities=["audio"])
    unknown = make_model(provider, output_modalities=[])
    synchronize(gateway)
    answer = gateway.chat(alice.secret, films.slug)
    assert (answer.status_code, error(answer)["type"], error(answer)["code"]) == (404, type, code)
    assert f"The model '{films.slug}' does not chat: it makes video." in error(answer)["message"]
    assert nothing_happened(alice)
    assert [gateway.chat(alice.secret, model.slug).status_code for model in (speaks, unknown)] == [200, 200]


@pytest.mark.row("B392", "B393", "B394", "B395")
def test_what_a_models_page_tells_is_in_its_entry(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    taken = ["max_completion_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop"]
    model = make_model(
        provider, context_length=65_536, max_output=32_768, supported_parameters=taken, output_modalities=["text"]
    )
    synchronize(gateway)
    entry = gateway.client.get(f"/v1/models/{model.slug}", headers={"x-api-key": alice.secret}).json()
    assert (entry["context_length"], entry["max_output"]) == (65_536, 32_768)
    assert entry["supported_parameters"] == taken
    assert entry["supported_endpoint_types"] == ["openai"]
    # What has no price is not there, neither as nothing nor as null.
    assert entry["pricings"].keys() == {"prompt", "completion"}


@pytest.mark.row("B394", "B108", "B192")
def test_what_is_not_listed_is_withheld_and_named(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?echo", supported_parameters=["temperature", "seed"])
    synchronize(gateway)
    answer = gateway.chat(
        alice.secret, model.slug, temperature=0.5, seed=3, reasoning_effort="high", logit_bias={"5": 1}
    )
    assert answer.status_code == 200
    assert answer.headers["x-gateway-ignored-params"] == "reasoning_effort, logit_bias"
    body = sent(answer)
    assert (body["temperature"], body["seed"]) == (0.5, 3)
    assert body.keys().isdisjoint({"reasoning_effort", "logit_bias"})


# --- fields ---------------------------------------------------------------------------------------------------------


@pytest.mark.row("B178")
@pytest.mark.parametrize(("dialect", "effort"), [("standard", None), ("zenmux", "medium")])
def test_without_a_wish_a_models_own_default_holds_unless_the_dialect_has_one(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, effort: str | None
) -> None:
    speak(alice, dialect)
    able, thinks = (
        make_model(provider, "sim-small?echo", supported_parameters=["reasoning_effort"], capabilities=capabilities)
        for capabilities in (["reasoning"], ["reasoning", "reasoning_by_default"])
    )
    synchronize(gateway)
    assert sent(gateway.chat(alice.secret, able.slug)).keys() == {"model", "messages"}
    assert sent(gateway.chat(alice.secret, thinks.slug)).get("reasoning_effort") == effort
    assert sent(gateway.chat(alice.secret, thinks.slug, reasoning_effort="low"))["reasoning_effort"] == "low"


@pytest.mark.row("B150", "B167", "B170")
@pytest.mark.parametrize(
    "wishes",
    [
        {},
        {"provider": {"routing": {"type": "priority", "providers": ["PROVIDER", "PROVIDER/eu-west"]}}},
        {"model_routing_config": {"available_models": ["MODEL"]}},
    ],
)
def test_wishes_for_routing_may_be_absent_and_never_reach_a_provider(
    gateway: Gateway, alice: Tenant, provider: Any, wishes: dict[str, Any]
) -> None:
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    said = json.dumps(wishes).replace("PROVIDER", provider.slug).replace("MODEL", model.slug)
    answer = gateway.chat(alice.secret, model.slug, **json.loads(said))
    assert answer.status_code == 200
    assert sent(answer).keys().isdisjoint({"provider", "model_routing_config"})


@pytest.mark.row("B195")
@pytest.mark.parametrize("dialect", ["standard", "zenmux"])
def test_a_json_object_is_asked_for_in_the_clients_words_or_else_in_ours(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str
) -> None:
    speak(alice, dialect)
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    asked = {"response_format": {"type": "json_object"}}
    wish = {"role": "system", "content": "Answer with a JSON object."}
    for words, before in (("List three colours as Json.", []), ("List three colours.", [wish])):
        messages = [{"role": "user", "content": words}]
        body = sent(gateway.chat(alice.secret, model.slug, messages=messages, **asked))
        assert body == {**asked, "model": "sim-small?echo", "messages": before + messages}


@pytest.mark.row("B029", "B030")
def test_nothing_of_an_earlier_call_is_remembered(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    begun = [{"role": "user", "content": "Count to three."}, {"role": "assistant", "content": "One, two,"}]
    for messages in (begun, [{"role": "user", "content": "And now?"}]):
        body = sent(gateway.chat(alice.secret, model.slug, messages=messages, user="u-1"))
        assert body == {"model": "sim-small?echo", "messages": messages, "user": "u-1"}


@pytest.mark.row("B029", "B365")
def test_what_a_provider_may_have_cached_is_sent_again_to_the_letter(
    gateway: Gateway, alice: Tenant, provider: Any
) -> None:
    """Tools, then messages: a turn more, another cap or user changes nothing of what came before it."""
    model = make_model(provider, "sim-small?echo")
    synchronize(gateway)
    cache = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    tools = [{"type": "function", "function": {"name": "rate", "parameters": {"z": 1.50, "a": {"é": []}}}, **cache}]
    begun: list[dict[str, Any]] = [
        {"role": "system", "content": [{"type": "text", "text": "Be \u2028brief.", **cache}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": "https://pictures.example/1.png"}]},
    ]
    more = [*begun, {"role": "assistant", "content": "A cat."}, {"role": "user", "content": "Which?"}]
    said = []
    for fields in (
        {"messages": begun, "user": "u-1", "response_format": {"type": "json_object"}},
        {"messages": more, "user": "u-2", "response_format": {"type": "json_object"}, "max_tokens": 9, "stream": None},
    ):
        answer = gateway.chat(alice.secret, model.slug, tools=tools, tool_choice="none", **fields)
        said.append(answer.json()["choices"][0]["message"]["content"])
    for first, second in zip(*(parts_of(body) for body in said), strict=True):
        assert second.startswith(first)


def parts_of(body: str) -> tuple[str, str]:
    """The tools and the messages of a body, each as it stands there without its end."""
    tools = body.partition('"tools":[')[2].partition('],"tool_choice"')[0]
    messages = body.partition('"messages":[')[2].partition('],"')[0]
    assert '"cache_control"' in tools
    assert '"role":"user"' in messages
    return tools, messages


@pytest.mark.row("B104", "B105", "B106", "B108")
@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize(
    ("field", "value"),
    [("logit_bias", {"5": 1}), ("brand_new", 1), ("store", True), ("functions", [{"name": "f", "parameters": {}}])],
)
def test_a_strict_project_is_refused_what_would_have_no_effect(
    gateway: Gateway, alice: Tenant, provider: Any, dialect: str, field: str, value: Any
) -> None:
    alice.project.strict_params = True
    speak(alice, dialect)
    model = make_model(provider, supported_parameters=["temperature"])
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, **{field: value})
    assert answer.status_code == 400
    assert error(answer)["message"].startswith(f"Parameter {field} is not supported")
    assert nothing_happened(alice)


@pytest.mark.row("B088", "B089")
@pytest.mark.parametrize("stream", [False, True])
def test_stops_past_what_a_provider_takes_are_enforced(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, stream: bool
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, "sim-small?text=one%20two%20three%20four%20five")
    synchronize(gateway)
    stops = [f"none-{number}" for number in range(15)]
    answer = gateway.chat(alice.secret, model.slug, stream=stream, stop=[*stops, "ree fo"])
    said = events(answer.text)[:-1] if stream else [answer.json()]
    parts = [choice["delta" if stream else "message"] for chunk in said for choice in chunk["choices"]]
    assert "".join(part.get("content", "") for part in parts) == "one two th"
    assert [chunk["choices"][0]["finish_reason"] for chunk in said if chunk["choices"]][-1] == "stop"
    refused = gateway.chat(alice.secret, model.slug, stop=[*stops, "a", "b"])
    assert (refused.status_code, error(refused)["param"]) == (400, "stop")


# --- keys and organizations -----------------------------------------------------------------------------------------


@pytest.mark.row("B367")
def test_each_bound_of_a_key_has_its_own_refusal(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider)
    keys = {name: make_key(alice.project, name=name) for name in ("money", "requests", "tokens")}
    _, narrow = make_key(alice.project, name="narrow", allowed_models=["other/model"])
    of = {"organization": alice.organization}
    Budget.objects.create(**of, key=keys["money"][0], period="total", amount=0)
    for measure, value in (("requests", 0), ("tokens", 1000)):
        Limit.objects.create(**of, key=keys[measure][0], measure=measure, value=value)
    synchronize(gateway)
    for minutes in (0, 1):  # all used, should the next minute begin meanwhile
        Counter.objects.create(
            organization=alice.organization.pk,
            subject=keys["tokens"][0].pk,
            measure="tokens",
            period="minute",
            period_start=datetime.now(UTC).replace(second=0, microsecond=0) + timedelta(minutes=minutes),
            used=1000,
        )
    told = {name: gateway.chat(secret, model.slug) for name, (_, secret) in keys.items()}
    told["narrow"] = gateway.chat(narrow, model.slug)
    assert {name: (answer.status_code, error(answer)["code"]) for name, answer in told.items()} == {
        "money": (402, "insufficient_credit"),
        "requests": (429, "rate_limit_exceeded"),
        "tokens": (429, "rate_limit_exceeded"),
        "narrow": (404, "model_not_found"),
    }
    assert nothing_happened(alice)
    assert gateway.chat(alice.secret, model.slug).status_code == 200


@pytest.mark.row("B366", "B015")
def test_a_key_has_a_name_and_can_be_switched_off(gateway: Gateway, alice: Tenant, provider: Any) -> None:
    model = make_model(provider)
    key, secret = make_key(alice.project, name="build server")
    synchronize(gateway)
    assert gateway.chat(secret, model.slug).status_code == 200
    told = gateway.client.get("/api/usage/token", headers={"x-api-key": secret}).json()
    assert told["data"]["name"] == "build server"
    key.revoked_at = key.created_at
    key.save()
    synchronize(gateway)
    assert gateway.chat(secret, model.slug).status_code == 401
    assert gateway.chat(alice.secret, model.slug).status_code == 200


@pytest.mark.row("B377", "B320")
def test_organizations_share_nothing(gateway: Gateway, alice: Tenant, charlie: Tenant, provider: Any) -> None:
    model = make_model(provider, "sim-small?tokens=7&prompt=11")
    Budget.objects.create(organization=alice.organization, period="total", amount=5)
    _, hers = make_key(alice.project, name="manager", scopes=["management"])
    _, his = make_key(charlie.project, name="manager", scopes=["management"])
    synchronize(gateway)
    id = gateway.chat(alice.secret, model.slug).json()["id"]

    def seen(path: str, secret: str) -> Any:
        return gateway.client.get(f"/v1/management/{path}", headers={"x-api-key": secret})

    assert [seen(f"generation?id={id}", secret).status_code for secret in (hers, his)] == [200, 404]
    balances = [seen("payg/balance", secret).json()["data"]["total_credits"] for secret in (hers, his)]
    assert balances == [4.99995, None]
