"""Wishes for the route: `provider` and `model_routing_config`, in the words of a reference page and of guides."""

from typing import Any

import pytest

from gateway.protocols.openai_chat.request.routing_fields import ModelRoutingWish, RoutingWish
from gateway.wire.dialects import DIALECTS
from tests.protocols.openai_chat.requests import HI, ask, fault, read, refused, sent, take

CONFIG = "model_routing_config"


@pytest.mark.row("B140", "B141", "B143", "B147", "B149")
@pytest.mark.parametrize(
    ("provider", "wish"),
    [
        (None, None),
        ({}, RoutingWish()),
        ({"routing": None, "fallback": None}, RoutingWish()),
        ({"fallback": "acme/m-2"}, RoutingWish(fallback="acme/m-2")),
        ({"fallback": "north"}, RoutingWish(fallback="north")),
        ({"fallback": "true"}, RoutingWish(fallback=True)),
        ({"fallback": "false"}, RoutingWish(fallback=False)),
        ({"fallback": True}, RoutingWish(fallback=True)),
        ({"fallback": False}, RoutingWish(fallback=False)),
        ({"routing": {}}, RoutingWish()),
        ({"routing": {"primary_factor": "price"}}, RoutingWish("priority", "price")),
        ({"routing": {"providers": ["north"]}}, RoutingWish("priority", None, ("north",))),
        ({"routing": {"type": "round_robin"}}, RoutingWish("round_robin")),
        ({"routing": {"type": "least_latency"}}, RoutingWish("least_latency")),
        (
            {
                "routing": {"type": "priority", "primary_factor": "cost", "providers": ["north", "south"]},
                "fallback": "true",
            },
            RoutingWish("priority", "price", ("north", "south"), True),
        ),
        (
            {"routing": {"type": "order", "providers": ["north/one", "south/Two"]}, "fallback": "acme/m-2"},
            RoutingWish("order", None, ("north/one", "south/Two"), "acme/m-2"),
        ),
        (
            {"routing": {"type": "specified_providers", "providers": ["north"], "primary_factor": None}},
            RoutingWish("order", None, ("north",)),
        ),
    ],
)
def test_a_wish_for_providers(provider: Any, wish: RoutingWish | None) -> None:
    for dialect in DIALECTS:
        request = take(ask(provider=provider), dialect)
        assert request.routing == wish
        assert "provider" not in sent(request)


@pytest.mark.row("B147")
def test_six_factors_are_four() -> None:
    factors = {
        "cost": "price",
        "price": "price",
        "speed": "latency",
        "latency": "latency",
        "throughput": "throughput",
        "quality": "quality",
    }
    for said, meant in factors.items():
        routing = read(provider={"routing": {"type": "priority", "primary_factor": said}}).routing
        assert routing == RoutingWish("priority", meant)


@pytest.mark.row("B142", "B149", "B152")
@pytest.mark.parametrize(
    ("routing", "param", "message"),
    [
        ({"type": "fastest"}, "type", "Parameter type of provider.routing is not valid"),
        ({"type": ""}, "type", "Parameter type of provider.routing is not valid"),
        ({"type": ["priority"]}, "type", "Parameter type of provider.routing is not valid"),
        ({"type": "order", "providers": []}, "providers", "Parameter providers of provider.routing is not valid"),
        ({"providers": {"north": 1}}, "providers", "Parameter providers of provider.routing is not valid"),
        ({"providers": "north"}, "providers", "Parameter providers of provider.routing is not valid"),
        ({"providers": ["north", 7]}, "providers", "Parameter providers of provider.routing is not valid"),
        ({"providers": ["a\n"]}, "providers", "Parameter providers of provider.routing is not valid"),
        ({"providers": ["a"] * 65}, "providers", "Parameter providers of provider.routing is not valid"),
    ],
)
def test_a_wrong_type_or_list_is_refused_in_the_documented_words(
    routing: dict[str, Any], param: str, message: str
) -> None:
    body = ask(provider={"routing": routing})
    assert fault(body) == (f"provider.routing.{param}", "invalid_value")
    assert refused(body, "zenmux").message == message
    assert refused(body).message.startswith(message)


@pytest.mark.row("B147")
@pytest.mark.parametrize(
    ("provider", "param", "code"),
    [
        ("north", "provider", "invalid_type"),
        ({"routing": "north"}, "provider.routing", "invalid_type"),
        ({"routing": {"primary_factor": "luck"}}, "provider.routing.primary_factor", "invalid_value"),
        ({"routing": {"primary_factor": 7}}, "provider.routing.primary_factor", "invalid_type"),
        ({"fallback": 7}, "provider.fallback", "invalid_value"),
        ({"fallback": ""}, "provider.fallback", "invalid_value"),
        ({"fallback": ["north"]}, "provider.fallback", "invalid_value"),
    ],
)
def test_a_wrong_wish_for_providers_is_refused(provider: Any, param: str, code: str) -> None:
    assert fault(ask(provider=provider)) == (param, code)


@pytest.mark.row("B168", "B169", "B170", "B171", "B172", "B173", "B174")
@pytest.mark.parametrize(
    ("config", "wish"),
    [
        (None, None),
        ({}, ModelRoutingWish()),
        ({"available_models": ["acme/m-1"]}, ModelRoutingWish(("acme/m-1",))),
        ({"preference": "performance"}, ModelRoutingWish(None, "performance")),
        ({"preference": "other/m-9"}, ModelRoutingWish(None, "balanced", "other/m-9")),
        (
            {"available_models": ["acme/m-1", "other/m-2"], "preference": "other/m-2"},
            ModelRoutingWish(("acme/m-1", "other/m-2"), "balanced", "other/m-2"),
        ),
        (
            {
                "available_models": ["acme/m-1", "other/m-2"],
                "preference": "price",
                "task_info": {
                    "task_type": "haiku",
                    "complexity": "low",
                    "additional_properties": {"organization": "qa", "headers": [1]},
                },
                "additional_properties": {"endpoint": {"a": 1}},
            },
            ModelRoutingWish(
                ("acme/m-1", "other/m-2"),
                "price",
                None,
                "haiku",
                "low",
                {"endpoint": {"a": 1}},
                {"organization": "qa", "headers": [1]},
            ),
        ),
    ],
)
def test_a_wish_for_models(config: Any, wish: ModelRoutingWish | None) -> None:
    """Of any author; one is enough; whatever else the client writes into its own properties is kept and not read."""
    for dialect in DIALECTS:
        request = take(ask(model="zenmux/auto", model_routing_config=config), dialect)
        assert request.model_routing == wish
        assert CONFIG not in sent(request)


@pytest.mark.row("B169", "B171", "B172", "B173", "B174")
@pytest.mark.parametrize(
    ("config", "path", "code"),
    [
        ("auto", "", "invalid_type"),
        ({"available_models": []}, ".available_models", "invalid_value"),
        ({"available_models": "acme/m-1"}, ".available_models", "invalid_value"),
        ({"available_models": ["a", 7]}, ".available_models", "invalid_value"),
        ({"preference": 7}, ".preference", "invalid_type"),
        ({"preference": ""}, ".preference", "invalid_value"),
        ({"available_models": ["a"], "preference": "b"}, ".preference", "invalid_value"),
        ({"task_info": "chat"}, ".task_info", "invalid_type"),
        ({"task_info": {}}, ".task_info.task_type", "missing_required_parameter"),
        ({"task_info": {"task_type": 7}}, ".task_info.task_type", "invalid_type"),
        ({"task_info": {"task_type": "chat", "complexity": "huge"}}, ".task_info.complexity", "invalid_value"),
        (
            {"task_info": {"task_type": "chat", "additional_properties": []}},
            ".task_info.additional_properties",
            "invalid_type",
        ),
        ({"additional_properties": "x"}, ".additional_properties", "invalid_type"),
    ],
)
def test_a_wrong_wish_for_models_is_refused(config: Any, path: str, code: str) -> None:
    assert fault(ask(model_routing_config=config)) == (f"{CONFIG}{path}", code)


def test_what_a_wish_says_beyond_what_is_known_is_told() -> None:
    """No upstream sees these objects, so nobody else could obey it."""
    request = read(
        provider={"routing": {"type": "order", "weights": [1]}, "sort": "price", "fallback": None},
        model_routing_config={"pool": ["x"], "task_info": {"task_type": "chat", "language": "no"}},
    )
    assert request.not_understood == (
        "provider.sort",
        "provider.routing.weights",
        "model_routing_config.pool",
        "model_routing_config.task_info.language",
    )
    assert request.unknown == ()


def test_it_notes_whose_thoughts_a_conversation_carries() -> None:
    def turn(*entries: dict[str, Any]) -> dict[str, Any]:
        return {"role": "assistant", "content": "yes", "reasoning_details": list(entries)}

    signed = {"type": "reasoning.text", "text": "hm", "signature": "s", "format": "own-v1"}
    sealed = {"type": "reasoning.encrypted", "data": "x"}
    free = {"type": "reasoning.summary", "summary": "so", "format": "other-v1"}
    block = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}
    found = [read(messages=[HI, *turns, HI]).thoughts for turns in ([turn(signed), turn(sealed, free)], [block], [])]
    assert found == [{"own-v1", ""}, {"anthropic-claude-v1"}, frozenset()]
