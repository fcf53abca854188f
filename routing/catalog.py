"""The catalog in memory: frozen, read by every request, swapped model by model when rows change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from accounts.sealing import CannotOpen, open_sealed
from billing.pricing import Prices, Rate, by_size
from routing.models import credential_place

# A row for each active offer of each active model that a usable credential serves; offers without one come with NULLs,
# so that a plan can say why it left them out. Narrowed by appending `where`.
QUERY = """
select m.id, m.slug, m.name, m.aliases, m.input_modalities, m.output_modalities, m.context_length, m.max_output,
       m.supported_parameters, m.capabilities, m.published_on, m.image_token_bound, m.audio_token_bound,
       m.file_token_bound, o.id, o.upstream_model, o.priority, o.weight, o.context_length, o.max_output,
       p.slug, p.protocol, p.base_url, p.auth_style, p.stream_usage, p.cap_field, p.connect_timeout,
       p.first_byte_timeout, p.idle_timeout, p.total_timeout, c.id, c.sealed,
       (select jsonb_agg(jsonb_build_array(v.id, v.effective_from, (
                   select coalesce(jsonb_agg(jsonb_build_array(r.item, r.above, r.cost::text, r.charge::text)), '[]')
                     from billing_rate r where r.version_id = v.id)) order by v.effective_from)
          from billing_tariffversion v where v.tariff_id = o.tariff_id)
  from routing_model m
  left join (routing_offer o join routing_provider p on p.id = o.provider_id and p.active)
    on o.model_id = m.id and o.active
  left join lateral (
       select c.id, c.sealed from routing_credential c
        where c.provider_id = p.id and c.active and c.sealed <> '' order by c.name limit 1) c on true
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
    base_url: str
    auth_style: str
    stream_usage: bool
    cap_field: str
    connect_timeout: float
    first_byte_timeout: float
    idle_timeout: float
    total_timeout: float


@dataclass(frozen=True, slots=True)
class Offer:
    """A model at a provider. `secret` is None when no credential is usable."""

    id: int
    provider: Provider
    upstream_model: str
    priority: int
    weight: int
    context_length: int
    max_output: int
    credential: UUID | None
    secret: str | None = field(repr=False)
    versions: tuple[TariffVersion, ...]

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
    offers: tuple[Offer, ...]


class Catalog:
    """Every active model, by id and by each of its names. Never changed: `with_models` makes the next one."""

    __slots__ = ("by_id", "by_name")

    def __init__(self, by_id: Mapping[int, Model]) -> None:
        self.by_id = by_id
        self.by_name: dict[str, Model] = {}
        for model in by_id.values():
            for name in model.aliases:
                self.by_name.setdefault(name, model)
        for model in by_id.values():
            self.by_name[model.slug] = model  # a slug wins over another model's alias

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
            if any(str(offer.id) in offers or str(offer.credential) in credentials for offer in model.offers)
        } | {int(id) for id in changes.get("routing_model", ())}


def from_rows(rows: Iterable[Sequence[Any]]) -> dict[int, Model]:
    """Models by id from rows of `QUERY`."""
    heads: dict[int, Sequence[Any]] = {}
    offers: dict[int, list[Offer]] = {}
    for row in rows:
        heads[row[0]] = row[1:14]
        offers.setdefault(row[0], [])
        if row[14] is not None and row[20] is not None:
            offers[row[0]].append(_offer(row))
    return {id: _model(id, head, offers[id]) for id, head in heads.items()}


def _model(id: int, head: Sequence[Any], offers: list[Offer]) -> Model:
    slug, name, aliases, inputs, outputs, context, cap, parameters, capabilities, published, image, audio, file = head
    ordered = tuple(sorted(offers, key=lambda offer: (offer.priority, offer.id)))
    return Model(
        id, slug, name, tuple(aliases), tuple(inputs), tuple(outputs), context, cap, tuple(parameters),
        tuple(capabilities), published, image, audio, file, ordered,
    )  # fmt: skip


def _offer(row: Sequence[Any]) -> Offer:
    model_context, model_cap = row[6], row[7]
    id, upstream, priority, weight, context, cap = row[14:20]
    provider = Provider(*row[20:30])
    credential, sealed, versions = row[30:33]
    return Offer(
        id,
        provider,
        upstream,
        priority,
        weight,
        context or model_context,
        cap or model_cap,
        credential,
        _open(credential, sealed, provider.base_url),
        tuple(_version(*version) for version in versions or ()),
    )


def _open(credential: UUID | None, sealed: str | None, base_url: str) -> str | None:
    if credential is None or not sealed:
        return None
    try:
        return open_sealed(sealed, credential_place(credential, base_url))
    except CannotOpen:
        return None


def _version(id: int, effective_from: str, rates: Iterable[tuple[str, int, str | None, str | None]]) -> TariffVersion:
    return TariffVersion(
        id,
        datetime.fromisoformat(effective_from),
        by_size((item, above, Rate(_decimal(cost), _decimal(charge))) for item, above, cost, charge in rates),
    )


def _decimal(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)
