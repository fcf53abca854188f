"""What is on offer for a reader: the models, at their prices, and which of them they may use."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
from routing.catalog import Model, from_rows
from routing.health.health import Health
from routing.planning import policy
from routing.planning.ordering import WORDS
from routing.planning.plan import Wanted, plan
from routing.planning.policy import Policies, Policy
from routing.planning.prospect import Prospect

NO_KEY = UUID(int=0)
PUBLISHED = 10  # where a row of `routing.catalog.QUERY` has the day on which its model was published
KEPT_SECONDS = 10.0  # that everybody without a name reads the same list
ANYTIME = Health()  # what there is does not change with the weather


@dataclass(frozen=True, slots=True)
class Entry:
    """A model that can be called. `prices`: of the offer that the reader's request tries first; `why`: they may not."""

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
    if reader.is_public and slugs is None:
        return _public(int(time.monotonic() / KEPT_SECONDS))
    return _entries(reader, slugs)


_kept: tuple[int, list[Entry]] = (-1, [])


def _public(moment: int) -> list[Entry]:
    """The list for everybody: whoever asks for it often costs no more than who asks once."""
    global _kept
    if _kept[0] != moment:
        _kept = moment, _entries(Reader(is_public=True), None)
    return _kept[1]


def _entries(reader: Reader, slugs: Sequence[str] | None) -> list[Entry]:
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
    rules: dict[int, Policy] = {}
    for project in projects:
        rule = policies.of(NO_KEY, project, model.id)
        rules[id(rule)] = rule
    out: list[str] = []
    for rule in rules.values():
        prospect = Prospect(model, rule)
        taken = plan([prospect], Wanted(0, None, 1, None, now), ANYTIME, 0).taken
        if taken and allowed is not None and model.slug not in allowed:
            return Entry(model, taken[0].prices, _("None of the keys lists it."))
        if taken:
            return Entry(model, taken[0].prices)
        out += [reason for _offer, reason in prospect.excluded]
    if not out:
        return None
    if not plan([Prospect(model, policy.DEFAULT)], Wanted(0, None, 1, None, now), ANYTIME, 0).taken:
        return None  # nobody could be sent there
    return Entry(model, NO_PRICES, _words(out[0]))


def _words(reason: str) -> str:
    """Why a policy leaves an offer out."""
    words = {reason.value: words for reason, words in WORDS.items()}
    return words.get(reason, reason).removeprefix("left out: ").capitalize() + "."


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
