"""What a client wishes of the route: `provider` and `model_routing_config`, checked and put into plain values.

Two vocabularies are in use for one thing, a vendor's reference page and its guides; both are taken. Nothing is looked
up here: whether a provider or a model exists is the plan's to say.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.protocols.openai_chat.request.checks import (
    TYPE,
    fields,
    label,
    mapping,
    one_of,
    plain,
    shown,
    text,
    wrong,
)
from gateway.wire.dialects import Dialect

STRATEGIES = {
    "priority": "priority",
    "round_robin": "round_robin",
    "least_latency": "least_latency",
    "order": "order",
    "specified_providers": "order",
}
FACTORS = {
    "cost": "price",
    "price": "price",
    "speed": "latency",
    "latency": "latency",
    "throughput": "throughput",
    "quality": "quality",
}
PREFERENCES = ("balanced", "performance", "price")
MAX_NAMES = 64

_PROVIDER = frozenset({"routing", "fallback"})
_ROUTING = frozenset({"type", "primary_factor", "providers"})
_CONFIG = frozenset({"available_models", "preference", "task_info", "additional_properties"})
_TASK = frozenset({"task_type", "complexity", "additional_properties"})


@dataclass(frozen=True, slots=True)
class RoutingWish:
    """Which offers of a model to try, and how.

    - `strategy`: `priority` (in order, by `factor` if there is one), `order` (exactly as listed), `round_robin` or
      `least_latency`; None: not said
    - `factor`: `price`, `latency`, `throughput`, `quality`, or None
    - `providers`: slugs, each `provider` or `provider/endpoint`, at least one; None: all
    - `fallback`: whether others may follow; or the slug of the provider or model to fall back to; None: not said
    """

    strategy: str | None = None
    factor: str | None = None
    providers: tuple[str, ...] | None = None
    fallback: bool | str | None = None


@dataclass(frozen=True, slots=True)
class ModelRoutingWish:
    """Which model to choose, and how.

    - `models`: names, at least one; None: all that the key may use
    - `strategy`: one of `PREFERENCES`
    - `preferred`: the name of the model to try first, one of `models` if they are given; or None
    - `complexity`: `low`, `medium`, `high`, or None
    - `additional`, `task_additional`: the client's own properties, not interpreted
    """

    models: tuple[str, ...] | None = None
    strategy: str = "balanced"
    preferred: str | None = None
    task_type: str | None = None
    complexity: str | None = None
    additional: Mapping[str, Any] = field(default_factory=dict)
    task_additional: Mapping[str, Any] = field(default_factory=dict)


def read_routing(provider: Any, dialect: Dialect) -> RoutingWish:
    """The wish in a `provider` that is not null. Raises `InvalidRequest`, for `type` and `providers` first."""
    if type(provider) is not dict:
        raise wrong("Parameter provider must be an object.", "provider", TYPE)
    routing = provider.get("routing")
    if routing is None:
        routing = {}
    elif type(routing) is not dict:
        raise wrong("Parameter provider.routing must be an object.", "provider.routing", TYPE)
    kind = routing.get("type")
    strategy: str | None
    if kind is None:
        # Whoever says something of the order and nothing of its kind means by priority; who says nothing, nothing.
        strategy = "priority" if routing else None
    elif type(kind) is str and kind in STRATEGIES:
        strategy = STRATEGIES[kind]
    else:
        raise wrong(dialect.messages["routing_type"], "provider.routing.type")
    providers = routing.get("providers")
    if providers is not None and not _is_names(providers):
        raise wrong(dialect.messages["routing_providers"], "provider.routing.providers")
    factor = routing.get("primary_factor")
    if factor is not None:
        _check_factor(factor)
    return RoutingWish(
        strategy,
        None if factor is None else FACTORS[factor],
        None if providers is None else tuple(providers),
        _fallback(provider.get("fallback")),
    )


def read_model_routing(config: Any) -> ModelRoutingWish:
    """The wish in a `model_routing_config` that is not null. Raises `InvalidRequest`."""
    _check_config(config)
    models, preference = config.get("available_models"), config.get("preference")
    path = "model_routing_config"
    if models is not None and not _is_names(models):
        param = f"{path}.available_models"
        raise wrong(f"Parameter {param} must be a non-empty array of model names.", param)
    strategy = preference if preference in PREFERENCES else "balanced"
    preferred = None if preference in PREFERENCES else preference
    if preferred is not None and (not _is_names([preferred]) or (models is not None and preferred not in models)):
        param = f"{path}.preference"
        known = ", ".join(PREFERENCES)
        raise wrong(f"Parameter {param} must be one of {known}, or one of available_models.", param)
    task = config.get("task_info") or {}
    return ModelRoutingWish(
        None if models is None else tuple(models),
        strategy,
        preferred,
        task.get("task_type"),
        task.get("complexity"),
        config.get("additional_properties") or {},
        task.get("additional_properties") or {},
    )


def not_understood(body: Mapping[str, Any]) -> list[str]:
    """Fields inside the two wishes of a checked body that the gateway has no meaning for; no upstream sees them."""
    provider, config = body.get("provider", {}), body.get("model_routing_config", {})
    levels = (
        ("provider", provider, _PROVIDER),
        ("provider.routing", provider.get("routing"), _ROUTING),
        ("model_routing_config", config, _CONFIG),
        ("model_routing_config.task_info", config.get("task_info"), _TASK),
    )
    return [f"{path}.{shown(name)}" for path, level, known in levels for name in level or () if name not in known]


def _is_names(value: Any) -> bool:
    return (
        type(value) is list
        and 0 < len(value) <= MAX_NAMES
        and all(type(name) is str and 0 < len(name) <= 256 and plain(name) for name in value)
    )


def _fallback(value: Any) -> bool | str | None:
    if value is None or type(value) is bool:
        return value
    if type(value) is not str or not _is_names([value]):
        param = "provider.fallback"
        raise wrong(f"Parameter {param} must be true, false, or the name of a provider or model.", param)
    return {"true": True, "false": False}.get(value, value)


_check_factor = one_of("provider.routing.primary_factor", FACTORS)


_check_config = fields(
    "model_routing_config",
    {
        "preference": text("model_routing_config.preference"),
        "additional_properties": mapping("model_routing_config.additional_properties"),
        "task_info": fields(
            "model_routing_config.task_info",
            {
                "task_type": label("model_routing_config.task_info.task_type"),
                "complexity": one_of("model_routing_config.task_info.complexity", ("low", "medium", "high")),
                "additional_properties": mapping("model_routing_config.task_info.additional_properties"),
            },
            required=("task_type",),
        ),
    },
)
