"""What single organizations pay: the models of the catalog as they are priced for one of them.

An organization with terms of its own (`billing.models.Terms`) plans with copies of the models, of which only the prices
differ. So holds, highest prices, routing by price, lists of models and bills all know one price, and a request looks
nothing up. Copies are made when a model is first asked for, and kept as long as it and the terms are the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from billing.pricing import NO_PRICES, Prices, charged_as, marked_up
from routing.catalog import Model, Offer, RateRow, TariffVersion, version_from_row
from routing.models import never_written

QUERY = """
select t.organization_id, t.tariff_id, t.effective_from, t.markup, t.price_list_id is not null,
       (select jsonb_agg(jsonb_build_array(v.id, v.effective_from, v.marginal, v.exchange_rate::text, (
                   select coalesce(jsonb_agg(jsonb_build_array(r.item, r.above, r.service_tier, r.cost::text,
                                                               r.charge::text)), '[]')
                     from billing_rate r where r.version_id = v.id)) order by v.effective_from)
          from billing_tariffversion v where v.tariff_id = t.price_list_id)
  from billing_terms t
 order by t.organization_id, t.effective_from
"""
TABLE = "billing_terms"
PRICES = frozenset({"billing_tariff", "billing_tariffversion", "billing_rate"})  # price lists are tariffs
MOST_KEPT = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One row of terms. `price_list`: its versions as rows; None: it names none."""

    tariff: int | None
    effective_from: datetime
    markup: Decimal | None
    price_list: Sequence[tuple[int, str, bool, str, Sequence[RateRow]]] | None


# By organization, by date. One with other terms has another tuple, so that they are told apart by identity.
Terms = Mapping[UUID, tuple[Term, ...]]


def from_rows(rows: Iterable[Sequence[Any]]) -> Terms:
    """The terms of all organizations that have any, from rows of `QUERY`."""
    found: dict[UUID, list[Term]] = {}
    for organization, tariff, effective_from, markup, listed, versions in rows:
        price_list = versions or () if listed else None
        found.setdefault(organization, []).append(Term(tariff, effective_from, markup, price_list))
    return {organization: tuple(terms) for organization, terms in found.items()}


Dated = TypeVar("Dated", Term, TariffVersion)

_kept: dict[tuple[int, int], tuple[Model, tuple[Term, ...], Model]] = {}


def priced(model: Model, terms: tuple[Term, ...]) -> Model:
    """A model at the prices of these terms: the same one each time, while model and terms are the same objects."""
    place = id(model), id(terms)
    found = _kept.get(place)
    # It holds on to both, so neither id can be another's while it is kept.
    if found is None:
        made = repriced(model, terms)
        if len(_kept) >= MOST_KEPT:
            _kept.clear()
        found = _kept[place] = model, terms, made
    return found[2]


def repriced(model: Model, terms: Sequence[Term]) -> Model:
    """The same, made for this one time: of a model that is kept nowhere."""
    free = never_written(model.output_modalities)
    return replace(model, offers=tuple(_offer(offer, terms, free) for offer in model.offers))


def _offer(offer: Offer, terms: Sequence[Term], free: Sequence[str]) -> Offer:
    every = [term for term in terms if term.tariff is None]
    own = [term for term in terms if term.tariff is not None and term.tariff == offer.tariff]
    if not (every or own):
        return offer
    lists = {
        id(term): [version_from_row(*row, free=free) for row in term.price_list]
        for term in (*every, *own)
        if term.price_list is not None
    }
    begins = {version.effective_from for version in offer.versions}
    begins |= {term.effective_from for term in (*every, *own)}
    begins |= {version.effective_from for versions in lists.values() for version in versions}
    made = []
    for begin in sorted(begins):
        version = offer.tariff_at(begin)
        if version is not None:
            term = _newest(own, begin) or _newest(every, begin)
            made.append(TariffVersion(version.id, begin, _prices(version.prices, term, lists, begin)))
    return replace(offer, versions=tuple(made))


def _prices(own: Prices, term: Term | None, lists: Mapping[int, Sequence[TariffVersion]], begin: datetime) -> Prices:
    if term is None:
        return own
    if term.markup is not None:
        return marked_up(own, term.markup)
    if term.price_list is None:
        return own
    listed = _newest(lists[id(term)], begin)
    return charged_as(own, listed.prices if listed else NO_PRICES)


def _newest(rows: Sequence[Dated], now: datetime) -> Dated | None:
    """Of rows by date the one in force at `now`."""
    return next((row for row in reversed(rows) if row.effective_from <= now), None)
