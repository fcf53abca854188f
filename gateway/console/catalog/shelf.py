"""What is on offer for a reader: the models, at their prices, and which of them they may use."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection
from django.utils.translation import gettext as _

from billing.pricing import NO_PRICES, Prices
from gateway.console.catalog.reader import Reader
from routing import terms
from routing.catalog import Model, Offer, from_rows
from routing.models import AuthStyle, Forced
from routing.planning import policy
from routing.planning.ordering import WORDS
from routing.planning.policy import Policies, Policy
from routing.planning.prospect import why_excluded

NO_KEY = UUID(int=0)
PUBLISHED = 10  # where a row of `routing.catalog.QUERY` has the day on which its model was published


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that can be called, with the offers that can.

    `prices`: of the offer that comes first for the reader; `why` they may not use it, empty: they may.
    """

    model: Model
    prices: Prices
    why: str = ""

    @property
    def author(self) -> str:
        """As its slug begins."""
        return self.model.slug.partition("/")[0]


def entries(reader: Reader, slugs: Sequence[str] | None = None) -> list[Entry]:
    """The models that can be called now, by slug; those that the reader may not use say why. `slugs`: of these alone.

    A model that nobody could be sent to is left out, as it is in the API's list. One query.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "select routing_sold(%s, %s)::text", [reader.organization, None if slugs is None else list(slugs)]
        )
        said = msgspec.json.decode(cursor.fetchone()[0])
    now = datetime.now(UTC)
    models: Iterable[Model] = from_rows(_rows(said["models"])).values()
    if agreed := terms.from_rows(_terms(said["terms"])):
        own = agreed[next(iter(agreed))]
        models = [terms.repriced(model, own) for model in models]
    policies = policy.from_rows([_policy(row) for row in said["policies"]])
    projects = [UUID(one) for one in said["projects"]] or [NO_KEY]
    allowed = None if said["allowed"] is None else {slug for names in said["allowed"] for slug in names}
    found = (_entry(model, policies, projects, allowed, now) for model in models)
    return sorted((one for one in found if one), key=lambda one: one.model.slug)


def _entry(
    model: Model, policies: Policies, projects: Sequence[UUID], allowed: set[str] | None, now: datetime
) -> Entry | None:
    offers = [offer for offer in model.offers if _is_there(offer)]
    if not offers:
        return None
    model = replace(model, offers=tuple(offers))
    rules = {id(rule): rule for project in projects for rule in (policies.of(NO_KEY, project, model.id),)}
    open_to = next((found for rule in rules.values() if (found := _first(offers, rule))), None)
    if open_to is None:
        return Entry(model, _prices(offers[0], now), _words(why_excluded(offers[0], next(iter(rules.values()))) or ""))
    listed = allowed is None or model.slug in allowed
    return Entry(model, _prices(open_to, now), "" if listed else _("None of the keys lists it."))


def _is_there(offer: Offer) -> bool:
    """Whether it can be called at all: its provider takes no secret, or has one, and nobody has closed it."""
    return offer.forced != Forced.OPEN and offer.provider.auth_style == AuthStyle.NONE  # as `routing_sold` says it


def _first(offers: Iterable[Offer], rule: Policy) -> Offer | None:
    """The one by priority that a policy allows."""
    return next((offer for offer in offers if why_excluded(offer, rule) is None), None)


def _prices(offer: Offer, now: datetime) -> Prices:
    version = offer.tariff_at(now)
    return version.prices if version else NO_PRICES


def _words(reason: str) -> str:
    """Why a policy leaves an offer out."""
    words = {reason.value: words for reason, words in WORDS.items()}
    return _(words.get(reason, reason)).removeprefix("left out: ").capitalize() + "."


def _rows(models: dict[str, list[list[Any]]]) -> Iterable[list[Any]]:
    for offers in models.values():
        for row in offers:
            if row[PUBLISHED] is not None:
                row[PUBLISHED] = date.fromisoformat(row[PUBLISHED])
            yield row


def _terms(rows: Iterable[Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    for organization, tariff, begins, markup, listed, versions in rows:
        exact = None if markup is None else Decimal(markup)
        yield UUID(organization), tariff, datetime.fromisoformat(begins), exact, listed, versions


def _policy(row: Sequence[Any]) -> tuple[Any, ...]:
    level, key, project, *said = row
    return (level, key, None if project is None else UUID(project), *said)
