"""The catalog in memory: frozen, read by every request, swapped model by model when rows change."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from accounts.sealing import CannotOpen, open_sealed
from billing.pricing import Prices, Rate, compiled, service_word
from routing.models import FORMATS, credential_place, never_written

# A row for each active offer of each active model; an offer without a usable credential is there as well, so that a
# plan can say why it left it out. Narrowed by appending `and`.
QUERY = """
select m.id, m.slug, m.name, m.aliases, m.input_modalities, m.output_modalities, m.context_length, m.max_output,
       m.supported_parameters, m.capabilities, m.published_on, m.image_token_bound, m.audio_token_bound,
       m.file_token_bound, m.quality, o.id, o.upstream_model, o.priority, o.weight, o.context_length, o.max_output,
       o.input_modalities, o.supported_parameters, o.quality, o.forced,
       p.slug, p.protocol, p.variant, p.base_url, p.auth_style, p.stream_usage, p.cap_field, p.connect_timeout,
       p.first_byte_timeout, p.idle_timeout, p.total_timeout, p.failure_threshold, p.cooldown, p.trains_on_data,
       p.retains_data, p.reasoning_format, p.max_event_bytes, p.api_version, p.region,
       (select jsonb_agg(jsonb_build_array(c.id, c.sealed) order by c.name, c.id) from routing_credential c
         where c.provider_id = p.id and c.active and c.sealed <> ''),
       (select jsonb_agg(jsonb_build_array(v.id, v.effective_from, v.marginal, v.exchange_rate::text, (
                   select coalesce(jsonb_agg(jsonb_build_array(r.item, r.above, r.service_tier, r.cost::text,
                                                               r.charge::text)), '[]')
                     from billing_rate r where r.version_id = v.id)) order by v.effective_from)
          from billing_tariffversion v where v.tariff_id = o.tariff_id),
       o.tariff_id
  from routing_model m
  left join (routing_offer o join routing_provider p on p.id = o.provider_id and p.active)
    on o.model_id = m.id and o.active
 where m.active
"""

# Which models a set of changed rows touches. Deleted rows are looked up in the catalog that still has them.
TOUCHED = """
select distinct m.id
  from routing_model m
  left join routing_offer o on o.model_id = m.id
 where m.id = any(%(routing_model)s) or o.id = any(%(routing_offer)s) or o.provider_id = any(%(routing_provider)s)
    or o.provider_id in (select c.provider_id from routing_credential c where c.id = any(%(routing_credential)s))
    or o.tariff_id = any(%(billing_tariff)s) or o.tariff_id = any(%(billing_tariffversion)s)
    or o.tariff_id in (select v.tariff_id from billing_tariffversion v where v.id = any(%(billing_rate)s))
"""
# What protocols call the search of the web that is `web_search_options` in a chat.
SEARCHES = frozenset({"web_search", "web_search_preview", "googleSearch"})
SERVICE = "service_tier"  # the parameter that asks for a class of service
TABLES = (
    "routing_model",
    "routing_offer",
    "routing_provider",
    "routing_credential",
    "billing_tariff",
    "billing_tariffversion",
    "billing_rate",
)


@dataclass(frozen=True, slots=True)
class TariffVersion:
    """Prices from a moment (UTC, inclusive) on."""

    id: int
    effective_from: datetime
    prices: Prices


@dataclass(frozen=True, slots=True)
class Provider:
    """Where and how to dial. Timeouts are seconds."""

    slug: str
    protocol: str
    variant: str  # of the protocol, as its module knows it; empty: the plain one
    base_url: str
    auth_style: str
    stream_usage: bool
    cap_field: str
    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float
    total_timeout: float
    failure_threshold: int
    cooldown: float  # seconds
    trains_on_data: bool
    retains_data: bool
    reasoning_format: str  # of the thoughts it signs, its own or its protocol's; empty: not known
    max_event_bytes: int  # of one event, or of a whole body
    api_version: str  # that each call names; empty: none
    region: str  # that signatures are for; empty: it takes none


@dataclass(frozen=True, slots=True)
class Credential:
    """A provider's secret, opened."""

    id: UUID
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """A model at a provider, with the provider's usable credentials by name. What it does not say is the model's."""

    id: int
    provider: Provider
    upstream_model: str
    priority: int
    weight: int
    context_length: int
    max_output: int
    input_modalities: tuple[str, ...]
    supported_parameters: tuple[str, ...]
    quality: int  # 0 to 100
    forced: str  # the operator's word on its breaker: open, closed, or nothing
    credentials: tuple[Credential, ...]
    versions: tuple[TariffVersion, ...]
    tariff: int | None = None

    def opens(self, account: str) -> bool:
        """Whether it is sold from an account: a credential by its id, or its provider by slug where that takes none."""
        if not self.credentials:
            return account == self.provider.slug
        return any(one.id.hex == account for one in self.credentials)

    def tariff_at(self, now: datetime) -> TariffVersion | None:
        """The version in force at `now`, None when there is none: the price is unknown."""
        found = None
        for version in self.versions:
            if version.effective_from > now:
                break
            found = version
        return found


@dataclass(frozen=True, slots=True)
class Model:
    """A model under its public name, with its offers by priority. Sizes are tokens; 0: unknown."""

    id: int
    slug: str
    name: str
    aliases: tuple[str, ...]
    input_modalities: tuple[str, ...]
    output_modalities: tuple[str, ...]
    context_length: int
    max_output: int
    supported_parameters: tuple[str, ...]
    capabilities: tuple[str, ...]
    published_on: date | None
    image_token_bound: int
    audio_token_bound: int
    file_token_bound: int
    quality: int  # 0 to 100
    offers: tuple[Offer, ...]


class Catalog:
    """Every active model, by id and by each of its names. Never changed: `with_models` makes the next one.

    `providers` are the slugs of those that offer anything.
    """

    __slots__ = ("by_id", "by_name", "providers")

    def __init__(self, by_id: Mapping[int, Model]) -> None:
        self.by_id = by_id
        self.by_name: dict[str, Model] = {}
        for model in by_id.values():
            for name in model.aliases:
                self.by_name.setdefault(name, model)
        for model in by_id.values():
            self.by_name[model.slug] = model  # a slug wins over another model's alias
        self.providers = frozenset(offer.provider.slug for model in by_id.values() for offer in model.offers)

    def with_models(self, ids: Iterable[int], models: Mapping[int, Model]) -> "Catalog":
        """A catalog in which the models `ids` are as in `models`, or gone."""
        gone = set(ids)
        return Catalog({**{id: model for id, model in self.by_id.items() if id not in gone}, **models})

    def having(self, changes: Mapping[str, Sequence[str]]) -> set[int]:
        """The models that held the changed rows, of which some may be deleted by now."""
        offers, credentials = (
            set(changes.get("routing_offer", ())),
            set(changes.get("routing_credential", ())),
        )
        return {
            model.id
            for model in self.by_id.values()
            if any(
                str(offer.id) in offers or any(str(credential.id) in credentials for credential in offer.credentials)
                for offer in model.offers
            )
        } | {int(id) for id in changes.get("routing_model", ())}


def from_rows(rows: Iterable[Sequence[Any]]) -> dict[int, Model]:
    """Models by id from rows of `QUERY`."""
    heads: dict[int, Sequence[Any]] = {}
    offers: dict[int, list[Offer]] = {}
    for row in rows:
        heads[row[0]] = row[1:15]
        offers.setdefault(row[0], [])
        if row[15] is not None and row[25] is not None:
            offers[row[0]].append(_offer(row))
    return {id: _model(id, head, offers[id]) for id, head in heads.items()}


def _model(id: int, head: Sequence[Any], offers: list[Offer]) -> Model:
    (slug, name, aliases, inputs, outputs, context, cap, parameters, capabilities, published, image, audio, file,
     quality) = head  # fmt: skip
    ordered = tuple(sorted(offers, key=lambda offer: (offer.priority, offer.id)))
    return Model(
        id, slug, name, tuple(aliases), tuple(inputs), tuple(outputs), context, cap, tuple(parameters),
        tuple(capabilities), published, image, audio, file, quality, ordered,
    )  # fmt: skip


def _offer(row: Sequence[Any]) -> Offer:
    model_inputs, model_context, model_cap, model_parameters = row[4], row[6], row[7], row[8]
    id, upstream, priority, weight, context, cap, inputs, parameters, quality, forced = row[15:25]
    provider = Provider(*row[25:44])
    if not provider.reasoning_format and provider.protocol in FORMATS:
        provider = replace(provider, reasoning_format=FORMATS[provider.protocol])
    credentials, rows, tariff = row[44:47]
    free = never_written(row[5])
    versions = tuple(version_from_row(*version, free=free) for version in rows or ())
    return Offer(
        id,
        provider,
        upstream,
        priority,
        weight,
        context or model_context,
        cap or model_cap,
        tuple(model_inputs if inputs is None else inputs),
        _taken(model_parameters if parameters is None else parameters, versions),
        quality,
        forced,
        tuple(_opened(credentials or (), provider.base_url)),
        versions,
        tariff,
    )


def _taken(listed: Sequence[str], versions: Iterable[TariffVersion]) -> tuple[str, ...]:
    """A list of parameters; a search by a protocol's own name for it is one by any. An offer that takes a class of
    service takes those that some version of its tariff has rates for.
    """
    found = dict.fromkeys(listed)
    if not SEARCHES.isdisjoint(found):
        found["web_search_options"] = None
    if SERVICE in found:
        found |= {service_word(service): None for version in versions for service in version.prices.classes}
    return tuple(found)


def _opened(credentials: Iterable[Sequence[str]], base_url: str) -> Iterator[Credential]:
    for id, sealed in credentials:
        with suppress(CannotOpen):
            yield Credential(UUID(id), open_sealed(sealed, credential_place(UUID(id), base_url)))


RateRow = tuple[str, int, str, str | None, str | None]  # item, above, class of service, cost and charge as text


def version_from_row(
    id: int, effective_from: str, marginal: bool, exchange_rate: str, rates: Iterable[RateRow], *, free: Iterable[str]
) -> TariffVersion:
    """A tariff version as `QUERY` gives it; items that are `free` without a rate cost nothing."""
    found = (
        (item, above, service, Rate(_decimal(cost), _decimal(charge))) for item, above, service, cost, charge in rates
    )
    prices = compiled(found, free=free, marginal=marginal, exchange_rate=Decimal(exchange_rate))
    return TariffVersion(id, datetime.fromisoformat(effective_from), prices)


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
