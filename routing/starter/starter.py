"""The starter catalog: well-known vendors, their models, and prices from a price list, as rows.

It adds and never takes over. What the operator made or changed stays: a provider or model that exists, an
offer under another tariff, a tariff with a version that no import wrote. A changed price is a new version
from now on; one that is hard to believe is a proposal, which somebody else has to approve in the console. A price
our rates cannot say exactly gives an offer that is off and has no tariff.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import TypeVar

from django.db import models
from django.db.models import Prefetch
from genai_prices import types as listed

from billing.imports.proposals import leaps
from billing.models import PriceProposal, Rate, Tariff, TariffVersion, rate_name
from routing.models import Model, Offer, Provider
from routing.starter.price_list import Listing, Rates, Skipped, read
from routing.starter.progress import Progress
from routing.starter.vendors import VENDORS, Vendor

M = TypeVar("M", bound=models.Model)

PACKAGE = "genai-prices"
NOTE = f"{PACKAGE} {version(PACKAGE)}"
BATCH = 500
# A version this close to its date may already be on its way into the gateways' memory.
AT_HAND = timedelta(minutes=1)


class UnknownVendor(Exception):
    """There is no such vendor in the table or on the list. The message names those there are."""


LONGEST_DESCRIPTION = 1_000  # characters that are taken over
UNKNOWN_MAX_OUTPUT = 32_768  # tokens, where the price list knows no context either


@dataclass(slots=True)
class Starter:
    """What an import would do: a line a thing, and the rows to be made and changed for it."""

    now: datetime
    importer: str = ""  # who asks for it, and so cannot approve what is proposed
    note: str = NOTE  # where its prices are from
    lines: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    providers: dict[str, Provider] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    tariffs: list[Tariff] = field(default_factory=list)
    versions: list[TariffVersion] = field(default_factory=list)
    proposals: list[PriceProposal] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    offers: list[Offer] = field(default_factory=list)
    changed_offers: list[Offer] = field(default_factory=list)
    dropped_versions: list[TariffVersion] = field(default_factory=list)

    def size(self) -> int:
        """How many rows `write` makes or changes."""
        catalog = len(self.providers) + len(self.models) + len(self.offers) + len(self.changed_offers)
        prices = len(self.tariffs) + len(self.versions) + len(self.rates) + len(self.dropped_versions)
        return catalog + prices + len(self.proposals)

    def write(self, progress: Progress) -> None:
        """Makes and changes the rows. Runs in the caller's transaction."""
        for dropped in self.dropped_versions:
            dropped.delete()
            progress.step()
        _make(list(self.providers.values()), progress)
        _make(list(self.models.values()), progress)
        _make(self.tariffs, progress)
        _make(self.versions, progress)
        _make(self.rates, progress)
        _make(self.proposals, progress)
        _make(self.offers, progress)
        Offer.objects.bulk_update(self.changed_offers, ["tariff", "active"], batch_size=BATCH)
        progress.step(len(self.changed_offers))


def _make(rows: Sequence[M], progress: Progress) -> None:
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        for row in batch:
            row.clean_fields(exclude={column.name for column in row._meta.concrete_fields if column.is_relation})
        table: models.Manager[M] = type(batch[0])._default_manager
        table.bulk_create(batch)
        progress.step(len(batch))


def vendors_named(slugs: Iterable[str]) -> Sequence[Vendor]:
    """The vendors of these slugs, or all of the table when there are none. Raises `UnknownVendor`."""
    known = {vendor.slug: vendor for vendor in VENDORS}
    wanted = list(slugs)
    for slug in wanted:
        if slug not in known:
            raise UnknownVendor(f"there is no vendor {slug!r} to import; there are {', '.join(known)}")
    return [vendor for vendor in VENDORS if not wanted or vendor.slug in wanted]


def plan(
    vendors: Sequence[Vendor],
    price_list: Iterable[listed.Provider],
    now: datetime,
    importer: str = "",
    note: str = NOTE,
) -> Starter:
    """What importing these vendors from `price_list` would do to the catalog as it is. Changes nothing.

    `now` (UTC) is when new prices start, `importer` who asks, `note` where the list is from: it begins with `PACKAGE`.
    """
    starter = Starter(now.replace(microsecond=0), importer, note)
    lists = {provider.id: provider for provider in price_list}
    listings: list[Listing] = []
    for vendor in vendors:
        if vendor.slug not in lists:
            raise UnknownVendor(f"{vendor.slug!r} is not on the price list")
        found, skipped = read(vendor, lists[vendor.slug].models, starter.now)
        listings += found
        starter.skipped += skipped
    for slug in sorted(lists.keys() - {vendor.slug for vendor in (*VENDORS, *vendors)}):
        starter.skipped.append(Skipped(slug, "no OpenAI-compatible endpoint known"))
    known = _Known(starter, vendors, lists)
    for listing in listings:
        known.take(listing)
    return starter


class _Known:
    """The catalog as it is and as the import has planned it so far."""

    def __init__(self, starter: Starter, vendors: Sequence[Vendor], lists: Mapping[str, listed.Provider]) -> None:
        self.starter = starter
        self.providers = {row.slug: row for row in Provider.objects.all()}
        for vendor in vendors:
            if vendor.slug not in self.providers:
                row = Provider(
                    slug=vendor.slug,
                    name=lists[vendor.slug].name,
                    base_url=vendor.base_url,
                    **vendor.quirks,
                )
                self.providers[vendor.slug] = starter.providers[vendor.slug] = row
                starter.lines.append(f"+ provider {vendor.slug}: {vendor.base_url}")
        self.authors = {one.author: lists[one.slug].name for one in vendors}
        self.models = {row.slug: row for row in Model.objects.all()}
        self.aliases = {name: row.slug for row in self.models.values() for name in row.aliases}
        versions = Prefetch("versions", TariffVersion.objects.order_by("effective_from").prefetch_related("rates"))
        self.tariffs = {row.slug: row for row in Tariff.objects.prefetch_related(versions, "proposals")}
        self.offers = {
            (row.model.slug, row.provider.slug, row.upstream_model): row
            for row in Offer.objects.select_related("model", "provider")
        }

    def take(self, listing: Listing) -> None:
        """Plans what a listing needs."""
        where = f"{listing.vendor}: {listing.upstream_model}"
        if listing.slug in self.aliases:
            owner = self.aliases[listing.slug]
            self.starter.skipped.append(Skipped(where, f"its name is an alias of {owner}"))
            return
        model = self.models.get(listing.slug)
        if model is None:
            model = Model(
                slug=listing.slug,
                name=listing.name,
                author=self.authors.get(listing.slug.partition("/")[0], ""),
                description=listing.description[:LONGEST_DESCRIPTION],
            )
            _size(model, listing)
            self.models[listing.slug] = self.starter.models[listing.slug] = model
            self.starter.lines.append(f"+ model {listing.slug}")
        elif not model.context_length and model._state.adding:
            _size(model, listing)
        label = f"offer {listing.slug} at {listing.vendor} as {listing.upstream_model}"
        offer = self.offers.get((listing.slug, listing.vendor, listing.upstream_model))
        if listing.reason:
            self._without_price(label, listing, model, offer)
        else:
            self._with_price(label, listing, model, offer)

    def _without_price(self, label: str, listing: Listing, model: Model, offer: Offer | None) -> None:
        if offer is None:
            self._offer(listing, model, tariff=None)
            self.starter.lines.append(f"+ {label}: off, without a tariff, since {listing.reason}")
            return
        tariff = self.tariffs.get(_tariff_slug(listing))
        # Its price was imported and has become one we cannot say: better no offer than a wrong bill.
        if tariff is not None and offer.tariff_id == tariff.pk and offer.active and self._is_ours(tariff):
            offer.active = False
            self.starter.changed_offers.append(offer)
            self.starter.lines.append(f"~ {label}: active true -> false, since {listing.reason}")

    def _with_price(self, label: str, listing: Listing, model: Model, offer: Offer | None) -> None:
        slug = _tariff_slug(listing)
        tariff = self.tariffs.get(slug)
        fresh = tariff is None
        if tariff is None:
            tariff = Tariff(slug=slug, name=f"{listing.name[:150]} at {listing.vendor}")
            self.starter.tariffs.append(tariff)
            self.tariffs[slug] = tariff
            for start, rates in listing.prices:
                self._version(tariff, start, rates)
        elif offer is None or offer.tariff_id in (None, tariff.pk):
            self._reprice(tariff, listing)
        if offer is None:
            self._offer(listing, model, tariff)
            later = "".join(f"; from {start:%Y-%m-%d}: {_shown(rates)}" for start, rates in listing.prices[1:])
            self.starter.lines.append(f"+ {label}: {_shown(listing.prices[0][1])}{later if fresh else ''}")
        elif offer.tariff_id is None:
            offer.tariff = tariff
            self.starter.changed_offers.append(offer)
            self.starter.lines.append(f"~ {label}: tariff none -> {slug}{'' if offer.active else ' (it stays off)'}")

    def _reprice(self, tariff: Tariff, listing: Listing) -> None:
        """New versions where the list says other than the tariff. What is in force is never changed."""
        held = {row.effective_from: row for row in tariff.versions.all()}
        soon = self.starter.now + AT_HAND
        begun = [row for start, row in held.items() if start <= soon]
        current = _rates_of(begun[-1]) if begun else None
        (_, rates), *later = listing.prices
        if not self._is_ours(tariff):
            if current != rates:
                self.starter.skipped.append(Skipped(tariff.slug, "a tariff kept by hand, at other prices"))
            return
        if current != rates and not self._held(tariff, current, self.starter.now, rates):
            self._version(tariff, self.starter.now, rates)
            self.starter.lines.append(
                f"+ tariff version {tariff.slug} from now: {_shown(rates)}, was {_shown(current)}"
            )
        for start, rates in later:
            if start in held and (start <= soon or _rates_of(held[start]) == rates):
                continue
            if self._held(tariff, current, start, rates):
                continue
            if start in held:
                self.starter.dropped_versions.append(held[start])
            self._version(tariff, start, rates)
            self.starter.lines.append(f"+ tariff version {tariff.slug} from {start:%Y-%m-%d}: {_shown(rates)}")
        for start in held.keys() - {start for start, _ in later}:
            if start > soon:
                self.starter.dropped_versions.append(held[start])
                self.starter.lines.append(f"- tariff version {tariff.slug} from {start:%Y-%m-%d}: no longer listed")

    def _held(self, tariff: Tariff, current: Rates | None, start: datetime, rates: Rates) -> bool:
        """Whether a change has to be approved by somebody else. It is proposed once, however that was decided."""
        reason = leaps(current or {}, rates)
        if not reason:
            return False
        row = PriceProposal(
            tariff=tariff,
            effective_from=start,
            rates=[[item, above, f"{price:f}", f"{price:f}"] for (item, above), price in rates.items()],
            reason=", ".join(reason),
            note=self.starter.note,
            proposed_by=self.starter.importer,
        )
        same = [known for known in tariff.proposals.all() if (known.rates, known.reason) == (row.rates, row.reason)]
        if same:
            state = "declined" if any(known.decision for known in same) else "held for approval"
            self.starter.skipped.append(Skipped(tariff.slug, f"its price is {state}"))
        else:
            self.starter.proposals.append(row)
            self.starter.lines.append(f"? tariff version {tariff.slug} is held for approval: {row.reason}")
        return True

    def _is_ours(self, tariff: Tariff) -> bool:
        """Whether every version was written by an import: one that was not is the operator's word."""
        return all(row.note.startswith(PACKAGE) for row in tariff.versions.all())

    def _version(self, tariff: Tariff, start: datetime, rates: Rates) -> None:
        row = TariffVersion(tariff=tariff, effective_from=start, note=self.starter.note)
        self.starter.versions.append(row)
        self.starter.rates += [
            Rate(version=row, item=item, above=above, cost=price, charge=price)
            for (item, above), price in rates.items()
        ]

    def _offer(self, listing: Listing, model: Model, tariff: Tariff | None) -> None:
        row = Offer(
            model=model,
            provider=self.providers[listing.vendor],
            upstream_model=listing.upstream_model,
            tariff=tariff,
            active=tariff is not None,
        )
        self.starter.offers.append(row)


def _size(model: Model, listing: Listing) -> None:
    """The price list has no output limits: what a model writes is bounded by what it can hold, so nothing is cut."""
    model.context_length = listing.context_length
    model.max_output = listing.context_length or UNKNOWN_MAX_OUTPUT
    model.input_modalities = []  # nor does it say what a model reads


def _tariff_slug(listing: Listing) -> str:
    return f"{listing.vendor}/{listing.upstream_model}"


def _rates_of(row: TariffVersion) -> Rates | None:
    """A version's rates; None when there are some that no import writes: cost and charge differ or are unknown, or they
    are marginal, for a class of service or in another currency.
    """
    found: Rates = {}
    for rate in row.rates.all():
        if rate.cost is None or rate.cost != rate.charge or rate.service_tier or row.marginal or row.currency != "USD":
            return None
        found[rate.item, rate.above] = rate.cost
    return found


def _shown(rates: Rates | None) -> str:
    if rates is None:
        return "unknown"
    return ", ".join(f"{rate_name(*which)} {price.normalize():f}" for which, price in rates.items())
