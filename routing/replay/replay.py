"""Replaying recorded traffic against other policies: what it would have cost and where it would have gone, how fast.

Nothing is dialled. Each completed generation of the span is planned anew by `plan`, from what its kept plan says was
wanted, with the offers that were there for it: not those that rested or cooled at that moment, or did not take
its parameters. What the request itself asked for stays. It goes to the first offer of the new plan that did not fail it
in fact; its tokens are priced under the tariff in force then. An answer that stays with its offer keeps its recorded
price and time; elsewhere its time is drawn from what that offer took in the span.

What a replay does not know: that a provider counts tokens in its own way, answers at another length, or slows down
under more load; which prompt would have been in whose cache; whether offers made since then would have answered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from django.db.models import QuerySet
from django.utils.translation import gettext_noop
from psycopg.types.json import JsonbLoader

from billing.ids import first_id
from billing.models import Attempt, Status, Usage
from billing.pricing import ZERO
from billing.tokens import Tokens
from routing import catalog
from routing.catalog import Catalog, Model, Offer
from routing.health.latency import size_class
from routing.planning import policy
from routing.planning.ordering import Reason
from routing.planning.plan import Candidate, Plan, Wanted, plan
from routing.planning.policy import Policies, Policy, falling_back
from routing.planning.prospect import prospect
from routing.replay.comparison import Comparison, Outcome
from routing.replay.foresight import Foresight

CHUNK = 500  # generations read at once, between two looks at whether to go on
OLDEST_ATTEMPT = timedelta(hours=1)  # attempts bear newer ids than their generation, clocks differ
# Why an offer could not take a request whatever the policy says; other such reasons the plan finds again.
UNABLE = frozenset(
    reason.value
    for reason in (
        *(Reason.PARAMETERS, Reason.PROTOCOL, Reason.BUILT_IN),
        *(Reason.RESTING, Reason.COOLING, Reason.REFUSED, Reason.EXHAUSTED),
    )
)
TOKENS = (
    ("prompt", "prompt_tokens"),
    ("completion", "completion_tokens"),
    ("cached", "cached_tokens"),
    ("cache_write_5m", "cache_write_5m_tokens"),
    ("cache_write_1h", "cache_write_1h_tokens"),
    ("audio_input", "audio_input_tokens"),
    ("image_input", "image_input_tokens"),
    ("video_input", "video_input_tokens"),
    ("reasoning", "reasoning_tokens"),
    ("audio_output", "audio_output_tokens"),
    ("image_output", "image_output_tokens"),
    ("web_searches", "web_searches"),
    ("images", "images"),
    ("seconds", "seconds"),
)
Faults = Mapping[tuple[str, str, str], float]  # milliseconds lost, by model, provider and upstream model


@dataclass(frozen=True, slots=True)
class Traffic:
    """Generations from `start` to `end` (aware, the first inclusive); None and empty: all. `model` was asked for."""

    start: datetime
    end: datetime
    organization: UUID | None = None
    project: UUID | None = None
    model: str = ""

    def rows(self) -> QuerySet[Usage]:
        """The generations, oldest first."""
        wanted: dict[str, Any] = {"pk__gte": first_id(self.start), "pk__lt": first_id(self.end)}
        if self.organization:
            wanted["organization"] = self.organization
        if self.project:
            wanted["project"] = self.project
        if self.model:
            wanted["plan__model"] = self.model
        return Usage.objects.filter(**wanted).order_by("pk")


@dataclass(frozen=True, slots=True)
class Routes:
    """Where traffic can go, by which policies."""

    catalog: Catalog
    policies: Policies


def routes(changed: Sequence[Any] | None = None) -> Routes:
    """Those of the database at this moment; `changed` is a row of `policy.QUERY` in place of its subject's."""
    connection.ensure_connection()
    with psycopg.Cursor[Any](connection.connection) as cursor:
        # Django's connections leave JSON as text; the gateways', which these rows are for, do not.
        cursor.adapters.register_loader("jsonb", JsonbLoader)
        models = catalog.from_rows(cursor.execute(catalog.QUERY).fetchall())
        said = cursor.execute(policy.QUERY).fetchall()
        weights = cursor.execute(policy.WEIGHTS_QUERY).fetchall()
    if changed is not None:
        said = [row for row in said if row[:4] != tuple(changed[:4])] + [tuple(changed)]
    return Routes(Catalog(models), policy.from_rows(said, weights))


def replayed(traffic: Traffic, routes: Routes, foresight: Foresight) -> Iterator[Comparison]:
    """Compares, and gives the comparison so far after each chunk of generations: one object, which grows."""
    comparison, replay = Comparison(), Replay(routes, foresight)
    rows, last = traffic.rows(), None
    while chunk := list((rows if last is None else rows.filter(pk__gt=last))[:CHUNK]):
        last = chunk[-1].pk
        faults = _faults(chunk)
        for usage in chunk:
            replay.replay(usage, faults.get(usage.pk, {}), comparison)
        yield comparison
    if last is None:
        yield comparison


def _faults(chunk: Sequence[Usage]) -> dict[UUID, dict[tuple[str, str, str], float]]:
    """By generation, the offers that failed it."""
    again = [usage for usage in chunk if usage.attempts > 1]
    found: dict[UUID, dict[tuple[str, str, str], float]] = {}
    if not again:
        return found
    span = (
        first_id(min(usage.created_at for usage in again) - OLDEST_ATTEMPT),
        first_id(max(usage.settled_at for usage in again) + OLDEST_ATTEMPT),
    )
    tries = Attempt.objects.filter(
        pk__gte=span[0], pk__lt=span[1], generation__in=[usage.pk for usage in again], status="failed"
    )
    for attempt in tries:
        place = (attempt.model, attempt.provider, attempt.upstream_model)
        found.setdefault(attempt.generation, {})[place] = float(attempt.duration_ms or 0)
    return found


@dataclass(slots=True)
class Replay:
    """One replay's state: whose turn it is, and models as they were for a request."""

    routes: Routes
    foresight: Foresight
    _turns: dict[tuple[UUID, int, tuple[str, ...] | None], int] = field(default_factory=dict)
    _models: dict[tuple[int, frozenset[int]], Model] = field(default_factory=dict)

    def replay(self, usage: Usage, faults: Faults, comparison: Comparison) -> None:
        """Compares one generation, or leaves it out."""
        record = usage.plan
        if usage.status != Status.COMPLETED:
            comparison.leave_out(gettext_noop("they did not complete"))
        elif not record:
            comparison.leave_out(gettext_noop("no plan was kept with them"))
        elif (found := self._planned(usage, record)) is None:
            comparison.leave_out(gettext_noop("their model is not in the catalog any more"))
        else:
            recorded = Outcome(usage.provider, usage.charge, usage.provider_cost, usage.duration_ms, usage.ttft_ms)
            chosen, lost = _answering(found, faults)
            stays = chosen is not None and _place(chosen) == (usage.model, usage.provider, usage.upstream_model)
            # As recorded, if what went before it is the same too.
            as_it_was = stays and lost == sum(faults.values())
            predicted = recorded if as_it_was else self._outcome(usage, chosen, lost)
            comparison.add(recorded, predicted, moved=not stays)

    def _planned(self, usage: Usage, record: Mapping[str, Any]) -> Plan | None:
        by_name = self.routes.catalog.by_name
        first = by_name.get(record["model"])
        if first is None:
            return None
        out = frozenset(line[0] for line in record.get("out", ()) if line[3] in UNABLE)
        wished = _wish(record)

        def policy_of(model: Model) -> Policy:
            return self.routes.policies.of(usage.key, usage.project, model.id, wished)

        ruling = policy_of(first)
        chosen = [by_name[slug] for slug, _ in record.get("choice", {}).get("models", ()) if slug in by_name]
        ruling, models = self._following(ruling, [first, *(model for model in chosen if model is not first)])
        wanted = _wanted(usage, record["wanted"])
        wanted.turn = self._turn(usage, first, ruling)
        rulings = [ruling, *(falling_back(policy_of(model), True) for model in models[1:])]
        ways = [prospect(self._without(model, out), own) for model, own in zip(models, rulings, strict=True)]
        return plan(ways, wanted, self.foresight.health, usage.pk.int & 0xFFFFFFFF)

    def _following(self, ruling: Policy, models: list[Model]) -> tuple[Policy, list[Model]]:
        """As a gateway does: a fallback's name is a provider's, or a model's that follows."""
        name = ruling.fallback
        if not isinstance(name, str):
            return ruling, models if name else models[:1]
        if name.partition("/")[0] in self.routes.catalog.providers and name not in self.routes.catalog.by_name:
            return ruling, models[:1]
        model = self.routes.catalog.by_name.get(name)
        if model is None:
            return falling_back(ruling, True), models
        return falling_back(ruling, True), models[:1] if model is models[0] else [models[0], model]

    def _turn(self, usage: Usage, model: Model, ruling: Policy) -> int:
        if ruling.strategy != "round_robin":
            return 0
        who = (usage.organization, model.id, ruling.providers)
        self._turns[who] = turn = self._turns.get(who, -1) + 1
        return turn

    def _without(self, model: Model, out: frozenset[int]) -> Model:
        """The model with the offers that could take the request."""
        unable = out & {offer.id for offer in model.offers}
        if not unable:
            return model
        place = (model.id, unable)
        if place not in self._models:
            offers = tuple(offer for offer in model.offers if offer.id not in unable)
            self._models[place] = replace(model, offers=offers)
        return self._models[place]

    def _outcome(self, usage: Usage, chosen: Candidate | None, lost: float) -> Outcome:
        if chosen is None:
            return Outcome(None, ZERO, ZERO, None, None)
        tokens = Tokens(**{name: getattr(usage, column) for name, column in TOKENS})
        priced = chosen.prices.of(usage.service_tier).price(tokens)
        drawn = self._drawn(chosen.offer, usage)
        ttft, duration = (None, None) if drawn is None else (lost + drawn[0], lost + drawn[1])
        return Outcome(chosen.offer.provider.slug, priced.charge, priced.cost, duration, ttft)

    def _drawn(self, offer: Offer, usage: Usage) -> tuple[float, float] | None:
        pace = self.foresight.pace(offer, size_class(usage.prompt_tokens))
        return None if pace is None else pace.draw(usage.completion_tokens)


def _wanted(usage: Usage, kept: Mapping[str, Any]) -> Wanted:
    """What was wanted, as `Wanted.said` kept it."""
    price = kept.get("max_price")
    return Wanted(
        kept["bytes"],
        kept.get("cap"),
        kept.get("copies", 1),
        None if price is None else Decimal(price),
        usage.created_at,
        images=kept.get("images", 0),
        audios=kept.get("audios", 0),
        files=kept.get("files", 0),
        file_bytes=kept.get("file_bytes", 0),
        kept_tokens=kept.get("kept_tokens", 0),
        searches=kept.get("searches", 0),
        service=kept.get("service", ""),
        modalities=frozenset(kept.get("modalities", ())),
        formats=frozenset(kept.get("formats", ())),
    )


def _wish(record: Mapping[str, Any]) -> Policy | None:
    """What the request itself asked for: kept, since it is not the policy's to change."""
    if record["by"] != "request":
        return None
    said = record.get("policy", {})
    providers = said.get("providers")
    return Policy(
        said.get("strategy", "priority"),
        said.get("factor"),
        None if providers is None else tuple(providers),
        fallback=said.get("fallback"),
        source="request",
    )


def _place(candidate: Candidate) -> tuple[str, str, str]:
    return (candidate.model.slug, candidate.offer.provider.slug, candidate.offer.upstream_model)


def _answering(found: Plan, faults: Faults) -> tuple[Candidate | None, float]:
    """The first candidate that did not fail this generation in fact, and the milliseconds lost at those before it."""
    lost = 0.0
    for candidate in found.taken:
        failed = faults.get(_place(candidate))
        if failed is None:
            return candidate, lost
        lost += failed
    return None, lost
