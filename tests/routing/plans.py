"""Frozen models and offers for tests of plans, without a database."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from billing.pricing import Prices, Rate
from routing.catalog import Credential, Model, Offer, Provider, TariffVersion
from routing.health.faults import Fault
from routing.health.health import Health
from routing.planning.plan import Candidate, Plan, Wanted, plan
from routing.planning.policy import Policy
from routing.planning.prospect import prospect

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_provider(slug: str, **fields: Any) -> Provider:
    """A provider as the catalog has it."""
    usual: dict[str, Any] = {
        "protocol": "openai_chat",
        "variant": "",
        "base_url": "https://llm.example.com",
        "auth_style": "bearer",
        "stream_usage": True,
        "cap_field": "max_tokens",
        "connect_timeout": 5.0,
        "first_byte_timeout": 60.0,
        "idle_timeout": 30.0,
        "total_timeout": 300.0,
        "failure_threshold": 5,
        "cooldown": 15.0,
        "trains_on_data": False,
        "retains_data": True,
        "reasoning_format": "",
        "max_event_bytes": 32 << 20,
        "api_version": "",
        "region": "",
    }
    return Provider(slug, **(usual | fields))


def rates(**charges: str) -> tuple[TariffVersion, ...]:
    """A tariff in force since long ago, in dollars a million."""
    return (
        TariffVersion(1, LONG_AGO, Prices({name: Rate(Decimal(one), Decimal(one)) for name, one in charges.items()})),
    )


def make_offer(id: int, provider: str | Provider = "", **fields: Any) -> Offer:
    """An offer of `provider`, by default of one called p1, p2 and so on by its id, at $1 and $2 a million."""
    slug = provider or f"p{id}"
    usual: dict[str, Any] = {
        "upstream_model": "m",
        "priority": 0,
        "weight": 1,
        "context_length": 0,
        "max_output": 1000,
        "input_modalities": (),
        "supported_parameters": (),
        "quality": 50,
        "forced": "",
        "credentials": (Credential(UUID(int=id), "secret"),),
        "versions": rates(input="1", output="2"),
    }
    return Offer(id, slug if isinstance(slug, Provider) else make_provider(slug), **(usual | fields))


def make_model(*offers: Offer, id: int = 1, slug: str = "acme/m", **fields: Any) -> Model:
    """A model with these offers."""
    usual: dict[str, Any] = {
        "name": "M",
        "aliases": (),
        "input_modalities": (),
        "output_modalities": (),
        "context_length": 0,
        "max_output": 1000,
        "supported_parameters": (),
        "capabilities": (),
        "published_on": None,
        "image_token_bound": 100,
        "audio_token_bound": 100,
        "file_token_bound": 100,
        "quality": 50,
        "offers": offers,
    }
    return Model(id, slug, **(usual | fields))


def wanting(**fields: Any) -> Wanted:
    """A small request."""
    usual: dict[str, Any] = {"text_bytes": 400, "output_cap": None, "copies": 1, "max_price": None, "now": NOW}
    return Wanted(**(usual | fields))


def planned(
    models: Sequence[Model], wanted: Wanted, policy: Policy, health: Health, seed: int, others: Sequence[Policy] = ()
) -> Plan:
    """The plan of a request for the first of these models; `others` are the policies of those behind it, if not its."""
    policies = (policy, *others) if others else (policy,) * len(models)
    prospects = [prospect(model, own) for model, own in zip(models, policies, strict=True)]
    return plan(prospects, wanted, health, seed)


def measured(health: Health, offer: Offer, ttft: float, *, tokens: int = 100, seconds: float = 2.0) -> None:
    """Lets `health` see 20 calls, all before time 0, each with its first token after `ttft` seconds."""
    for call in range(20):
        start = -200.0 + call * 5
        trial = health.begin(offer, offer.credentials[0], start)
        trial.first_byte(start + ttft)
        trial.succeeded(start + ttft + seconds, tokens)


def failed(health: Health, offer: Offer, fault: Fault, *, times: int = 5, retry_after: float | None = None) -> None:
    """Lets `health` see failures a second before time 0."""
    for _ in range(times):
        health.begin(offer, offer.credentials[0], -1.0).failed(fault, -1.0, retry_after)


def ids(plan: Plan) -> list[int]:
    """The offers in the order to try."""
    return [candidate.offer.id for candidate in plan.ordered()]


def reasons(candidates: Sequence[Candidate]) -> dict[int, str]:
    """The reason of each offer."""
    return {candidate.offer.id: candidate.reason.value for candidate in candidates}
