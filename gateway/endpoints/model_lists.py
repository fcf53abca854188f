"""The list of models in three shapes: OpenAI's with everything both vendors add, Anthropic's, and Google's. Pure.

A price is what the tenant pays under the tariff version in force at the offer that is tried first. Prices are exact:
JSON numbers with every digit, never through a float. An item without a price of its own is billed as what it is part
of (cached input as input, reasoning as output), so it is left out, as is a price that is not known; 0 is free. An empty
list of modalities or parameters says that they are not known.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from billing.pricing import PARTS_OF_INPUT, Prices
from gateway.wire.strict_json import number
from routing.catalog import Model
from routing.health.health import Health
from routing.planning.plan import Wanted, plan
from routing.planning.policy import DEFAULT
from routing.planning.prospect import prospect

# How clients know a tariff's items, and what is counted. Some are no vendor's words: they have no such price.
PRICE_NAMES: Mapping[str, tuple[str, str]] = {
    "input": ("prompt", "perMTokens"),
    "output": ("completion", "perMTokens"),
    "cached_input": ("input_cache_read", "perMTokens"),
    "cache_write_5m": ("input_cache_write_5_min", "perMTokens"),
    "cache_write_1h": ("input_cache_write_1_h", "perMTokens"),
    "reasoning": ("internal_reasoning", "perMTokens"),
    "image_input": ("image", "perMTokens"),
    "audio_input": ("audio", "perMTokens"),
    "video_input": ("video", "perMTokens"),
    "audio_output": ("audio_output", "perMTokens"),
    "image_output": ("image_output", "perMTokens"),
    "web_search": ("web_search", "perCount"),
    "request": ("request", "perCount"),
    "image": ("image_generation", "perCount"),
    "second": ("duration", "perSecond"),
}
READ = frozenset({"input", *PARTS_OF_INPUT})  # items of the prompt: the sizes of a marginal version split these alone
ENDPOINT_TYPES = ("openai",)  # The surfaces that serve a model.
UNKNOWN_DATE = date(1970, 1, 1)
NEVER = datetime.max.replace(tzinfo=UTC)
ANYTIME = Health()  # a list does not change with the weather


@dataclass(frozen=True, slots=True)
class Listed:
    """A model that can be called now, with the prices of the offer that is tried first."""

    model: Model
    prices: Prices


def usable(models: Iterable[Model], allowed: frozenset[str], now: datetime) -> list[Listed]:
    """Those of `models` that a key may use at `now` (aware), by slug. `allowed` are slugs; empty: all of them.

    A model none of whose offers can be dialled is left out.
    """
    found = [_listed(model, now) for model in models if not allowed or model.slug in allowed]
    return sorted((entry for entry in found if entry), key=lambda entry: entry.model.slug)


def next_change(models: Iterable[Model], now: datetime) -> datetime:
    """When the next tariff version takes effect after `now` (aware); the end of time if none is coming."""
    coming = (
        version.effective_from
        for model in models
        for offer in model.offers
        for version in offer.versions
        if version.effective_from > now
    )
    return min(coming, default=NEVER)


def pricings(prices: Prices) -> dict[str, list[dict[str, Any]]]:
    """Price items by name, each a list: of one price, or of several, each with the sizes of prompt it is for; after
    them those of other classes of service, where they are others.
    """
    found = {name: _by_class(item, unit, prices) for item, (name, unit) in PRICE_NAMES.items()}
    return {name: items for name, items in found.items() if items}


def _by_class(item: str, unit: str, prices: Prices) -> list[dict[str, Any]]:
    ordinary = _by_size(item, unit, prices)
    found = list(ordinary)
    for service, others in prices.classes.items():
        if (priced := _by_size(item, unit, others)) != ordinary:
            found += [
                {**price, "conditions": {**price.get("conditions", {}), "service_tier": service}} for price in priced
            ]
    return found


def _by_size(item: str, unit: str, prices: Prices) -> list[dict[str, Any]]:
    changes: list[tuple[int, Decimal | None]] = []  # from a size of prompt on, exclusive
    for above, rates in ((0, prices.rates), *((step.above, step.rates) for step in prices.steps)):
        charge = rates[item].charge if item in rates else None
        if not changes or charge != changes[-1][1]:
            changes.append((above, charge))
    ends = [above for above, _ in changes[1:]]
    marginal = {"marginal": True} if prices.marginal.charge and item in READ else {}
    return [
        {"value": number(charge), "unit": unit, "currency": "USD"}
        | ({"conditions": {"prompt_tokens": _range(above, end) | marginal}} if ends else {})
        for (above, charge), end in zip_longest(changes, ends)
        if charge is not None
    ]


def _range(above: int, end: int | None) -> dict[str, Any]:
    """Prompts of more than `above` tokens and at most `end`, None: of any size; in thousands, as vendors say it."""
    bounds: dict[str, Any] = {"unit": "kTokens"}
    if above:
        bounds |= _bound("gt", "gte", above)
    else:
        bounds["gte"] = 0
    return bounds if end is None else bounds | _bound("lte", "lt", end)


def _bound(past: str, at: str, size: int) -> dict[str, Any]:
    """The border between `size` tokens and one more, by whichever of the two is round: lt 200, not lte 199.999."""
    name, border = (at, size + 1) if (size + 1) % 1000 == 0 else (past, size)
    return {name: number(Decimal(border).scaleb(-3))}


def openai_entry(listed: Listed) -> dict[str, Any]:
    """A model in OpenAI's shape. `created` is the day of its publication, in Unix seconds, 0 when that is not known."""
    model = listed.model
    return {
        "id": model.slug,
        "object": "model",
        "created": int(_published(model).timestamp()),
        "owned_by": model.slug.partition("/")[0],
        **_facts(listed),
    }


def anthropic_entry(listed: Listed) -> dict[str, Any]:
    """A model in Anthropic's shape. `created_at` is RFC 3339; the epoch stands for a date that is not known."""
    model = listed.model
    return {
        "id": model.slug,
        "type": "model",
        "created_at": f"{_published(model):%Y-%m-%dT%H:%M:%SZ}",
        **_facts(listed),
    }


def google_entry(listed: Listed) -> dict[str, Any]:
    """A model in Google's shape. Limits are tokens, null when not known."""
    model = listed.model
    return {
        "name": model.slug,
        "displayName": model.name,
        "description": "",
        "inputTokenLimit": model.context_length or None,
        "outputTokenLimit": model.max_output or None,
        "thinking": "reasoning" in model.capabilities,
        "inputModalities": model.input_modalities,
        "outputModalities": model.output_modalities,
        "supportedParameters": model.supported_parameters,
        "pricings": pricings(listed.prices),
    }


def openai_list(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """OpenAI's list."""
    return {"object": "list", "data": entries}


def anthropic_list(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Anthropic's list, always one page."""
    return {
        "data": entries,
        "has_more": False,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
    }


def google_list(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Google's list, always one page."""
    return {"models": entries, "nextPageToken": None}


@dataclass(frozen=True, slots=True)
class Shape:
    """How a model and the list of them are written; `takes_extras`: beside the list stand the dialect's own fields."""

    entry: Callable[[Listed], dict[str, Any]]
    whole: Callable[[list[dict[str, Any]]], dict[str, Any]]
    takes_extras: bool = False


OPENAI = Shape(openai_entry, openai_list, takes_extras=True)
ANTHROPIC = Shape(anthropic_entry, anthropic_list)
GOOGLE = Shape(google_entry, google_list)


def _listed(model: Model, now: datetime) -> Listed | None:
    taken = plan([prospect(model, DEFAULT)], Wanted(0, None, 1, None, now), ANYTIME, 0).taken
    return Listed(model, taken[0].prices) if taken else None


def _facts(listed: Listed) -> dict[str, Any]:
    model = listed.model
    return {
        "display_name": model.name,
        "aliases": model.aliases,
        "input_modalities": model.input_modalities,
        "output_modalities": model.output_modalities,
        "capabilities": {"reasoning": False} | dict.fromkeys(model.capabilities, True),
        "context_length": model.context_length or None,
        "max_output": model.max_output or None,
        "max_completion_tokens": model.max_output or None,
        "supported_parameters": model.supported_parameters,
        "supported_endpoint_types": ENDPOINT_TYPES,
        "pricings": pricings(listed.prices),
    }


def _published(model: Model) -> datetime:
    return datetime.combine(model.published_on or UNKNOWN_DATE, time(), UTC)
