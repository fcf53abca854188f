"""Parameters that cost, redirect, keep or call out: none reaches a provider that its operator did not say it of."""

import json
from decimal import Decimal
from typing import Any

import pytest

from billing.models import Budget, Hold, Usage
from gateway.protocols.openai_chat import WHOLE
from gateway.request.parameters import fit, missing, supported_by
from gateway.wire.dialects import STANDARD
from gateway.wire.errors import InvalidRequest
from routing.models import Model
from tests.protocols.openai_chat.requests import ask, read, sent
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

NOBODY_KNOWS = supported_by(())
SEEN: dict[str, Any] = {
    "models": ["other/model"],
    "route": "fallback",
    "plugins": [{"id": "web"}],
    "search_parameters": {"mode": "on"},
    "enable_search": True,
    "speed": "fast",
    "best_of": 5,
    "serviceTier": "priority",
    "max_output_tokens": 100_000,
    "background": True,
    "callback_url": "http://192.0.2.1/",
    "webhook": "http://192.0.2.1/",
    "previous_response_id": "resp_1",
    "conversation": "conv_1",
    "assistant_id": "asst_1",
    "thread_id": "thread_1",
    "web_search_options": {},
}
NEIGHBOURS: dict[str, Any] = {
    "Service-Tier": "priority",
    "MAX_TOKENS": 100_000,
    "maxCompletionTokens": 100_000,
    "max_new_tokens": 100_000,
    "n_predict": -1,
    "num_predict": 0,
    "bestOf": 2,
    "candidateCount": 4,
    "searchParameters": {"mode": "on"},
    "search_recency_filter": "day",
    "webSearchOptions": {"search_context_size": "high"},
    "webhook_url": "http://192.0.2.1/",
    "callbacks": ["somebody"],
    "session_id": "s",
    "conversationId": "c",
    "threadId": "t",
    "mcp_servers": [{"url": "http://192.0.2.1/"}],
    "data_sources": [{"type": "search"}],
    "kv_transfer_params": {"remote_host": "192.0.2.1"},
    "fallbacks": ["other/model"],
    "transforms": ["middle-out"],
    "extra_body": {"plugins": [{"id": "web"}]},
    "extraBody": {"google": {"cached_content": "c"}},
    "generationConfig": {"candidateCount": 4},
    "chat_template": "{{ messages }}",
}


@pytest.mark.parametrize(("name", "value"), [*SEEN.items(), *NEIGHBOURS.items()])
def test_it_is_withheld_and_named_unless_the_offer_lists_it(name: str, value: Any) -> None:
    request = read(**{name: value})
    for supported in (NOBODY_KNOWS, supported_by(("temperature",))):
        fitting = fit(request, supported, STANDARD)
        assert fitting.named == missing(request, supported) == (name,)
        assert sent(request, fit=fitting) == ask(model="up-1")
        with pytest.raises(InvalidRequest) as caught:
            fit(request, supported, STANDARD, strict=True)
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", name)
    listed = fit(request, supported_by((name,)), STANDARD, strict=True, careful=True)
    assert listed is WHOLE
    assert sent(request, fit=listed) == ask(model="up-1", **{name: value})


@pytest.mark.parametrize("value", [None, False, "", [], {}])
def test_what_asks_for_nothing_is_sent(value: Any) -> None:
    """It may switch off what a vendor does by itself."""
    request = read(enable_search=value)
    assert fit(request, NOBODY_KNOWS, STANDARD) is WHOLE
    assert sent(request) == ask(model="up-1", enable_search=value)


@pytest.mark.parametrize(
    "tool",
    [
        *({"type": kind} for kind in ("web_search", "web_search_preview", "code_interpreter", "file_search", "mcp")),
        {"type": "builtin_function", "function": {"name": "$web_search"}},
        {"google_search": {}},
        {"type": "computer_use_preview", "function": {"name": "f"}},
    ],
)
def test_a_tool_that_the_vendor_would_run_is_refused(tool: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(tools=[tool])
    assert caught.value.param == "tools[0].type"


def test_where_money_is_bounded_only_what_is_known_to_be_harmless_is_sent() -> None:
    request = read(top_k=5, minP=0.1, brand_new=1, temperature=1)
    assert fit(request, NOBODY_KNOWS, STANDARD) is WHOLE
    careful = fit(request, NOBODY_KNOWS, STANDARD, careful=True)
    assert careful.named == ("brand_new",)
    assert sent(request, fit=careful) == ask(model="up-1", top_k=5, minP=0.1, temperature=1)
    assert fit(request, supported_by(("brand_new", "temperature")), STANDARD, careful=True) is WHOLE


def test_none_is_named_twice() -> None:
    request = read(plugins=[1], brand_new=1)
    assert fit(request, NOBODY_KNOWS, STANDARD, careful=True).named == ("plugins", "brand_new")


# --- through the gateway


@pytest.fixture
def echo(gateway: Gateway, simulated: SimulatedProvider) -> Model:
    """A model that says the body it got."""
    return make_model(make_provider(simulated.base_url), "sim-small?echo", max_output=100)


def asked(gateway: Gateway, tenant: Tenant, model: Model, **fields: Any) -> tuple[dict[str, Any], str | None]:
    """What the provider got, without the usual, and the parameters that the answer names."""
    answer = gateway.chat(tenant.secret, model.slug, **fields)
    assert answer.status_code == 200, answer.text
    said = json.loads(answer.json()["choices"][0]["message"]["content"])
    usual = {"model", "messages", "max_tokens"}
    return {name: said[name] for name in said if name not in usual}, answer.headers.get("X-Gateway-Ignored-Params")


def budget(tenant: Tenant, hard: bool) -> None:
    """Money enough."""
    Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(9), hard=hard)


def test_none_reaches_a_provider(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    synchronize(gateway)
    got, named = asked(gateway, alice, echo, **SEEN, **NEIGHBOURS)
    assert got == {}
    assert named == ", ".join([*SEEN, *NEIGHBOURS])


def test_a_hard_budget_withholds_what_nobody_knows(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    budget(alice, hard=True)
    synchronize(gateway)
    assert asked(gateway, alice, echo, brand_new={"a": 1}, top_k=3) == ({"top_k": 3}, "brand_new")


def test_a_soft_one_does_not(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    budget(alice, hard=False)
    synchronize(gateway)
    assert asked(gateway, alice, echo, brand_new={"a": 1}) == ({"brand_new": {"a": 1}}, None)


def test_a_project_may_let_them_pass(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    """But not those that are known to do more."""
    budget(alice, hard=True)
    alice.project.sends_unknown_params = True
    alice.project.save()
    synchronize(gateway)
    assert asked(gateway, alice, echo, brand_new=1, plugins=[1]) == ({"brand_new": 1}, "plugins")


def test_an_offer_s_list_lets_them_pass(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    budget(alice, hard=True)
    echo.supported_parameters = ["brand_new", "plugins"]
    echo.save()
    synchronize(gateway)
    assert asked(gateway, alice, echo, brand_new=1, plugins=[1]) == ({"brand_new": 1, "plugins": [1]}, None)


def test_a_strict_caller_is_told_and_nothing_happens(gateway: Gateway, alice: Tenant, echo: Model) -> None:
    alice.project.strict_params = alice.project.sends_unknown_params = True
    alice.project.save()
    synchronize(gateway)
    for name in ("plugins", "serviceTier", "brand_new"):
        answer = gateway.chat(alice.secret, echo.slug, **{name: "x"})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", name)
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert not Hold.objects.filter(organization=alice.organization.pk).exists()
