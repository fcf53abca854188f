"""Applying a configuration file's catalog: tariffs with rates, providers, credentials, models and offers."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from django.conf import settings
from django.core.exceptions import ValidationError

from accounts.sealing import CannotOpen
from billing.models import Rate, Tariff, TariffVersion, rate_name
from gateway.configuration.rows import Difference, Wanted, by_slug, shown, write
from gateway.configuration.schema import CREDENTIAL, MODEL, OFFER, PROVIDER, TARIFF, VERSION, Entry
from routing.egress import objection
from routing.models import AuthStyle, Credential, Model, Offer, Provider
from routing.models.prices import WITHOUT_A_PRICE, lacks

# A version this close to its date may already be on its way into the gateways' memory.
AT_HAND = timedelta(minutes=1)
DETAILS = ("note", "marginal", "currency", "exchange_rate")  # of a version, besides its rates
MOST_NOTED = 20  # offers without a price

Pair = tuple[Decimal | None, Decimal | None]  # cost and charge, None: unknown
# By item, the size of prompt above which they hold, and the class of service, "" for the ordinary one.
Rates = dict[tuple[str, int, str], Pair]


def apply_catalog(
    sections: Mapping[str, Sequence[Entry]], difference: Difference, now: datetime
) -> list[Wanted[Model]]:
    """Brings the catalog to what the file says, and gives its models. `now` is the database's."""
    _apply_tariffs(sections["tariffs"], difference, now)
    _apply_providers(sections["providers"], difference)
    return _apply_models(sections["models"], difference)


def _apply_tariffs(entries: Sequence[Entry], difference: Difference, now: datetime) -> None:
    tariffs = by_slug(Tariff, TARIFF, entries)
    write(tariffs, difference)
    held: dict[int, dict[datetime, TariffVersion]] = {}
    rows = [tariff.row for tariff in tariffs]
    for version in TariffVersion.objects.filter(tariff__in=rows).prefetch_related("rates"):
        held.setdefault(version.tariff_id, {})[version.effective_from] = version
    fresh: list[tuple[Wanted[TariffVersion], Rates]] = []
    for tariff in tariffs:
        fresh += _apply_versions(tariff, held.get(tariff.row.pk, {}), difference, now + AT_HAND)
    write([version for version, _ in fresh], difference)
    Rate.objects.bulk_create(
        [rate for version, rates in fresh for rate in _rate_rows(version.row, rates)], batch_size=1000
    )


def _apply_versions(
    tariff: Wanted[Tariff], held: Mapping[datetime, TariffVersion], difference: Difference, soon: datetime
) -> list[tuple[Wanted[TariffVersion], Rates]]:
    """Changes the versions that are still to come; gives those to be made. What was ever in force stays."""
    fresh: list[tuple[Wanted[TariffVersion], Rates]] = []
    for entry in tariff.entry.inner["versions"]:
        start: datetime = entry.values["effective_from"]
        rates = _rates(entry)
        if not rates:
            raise entry.wrong("rates", "a version without rates prices nothing")
        label = f"tariff version {tariff.entry.name} from {shown(start)}"
        version = held.get(start)
        if version is None:
            if start <= soon and any(moment <= soon for moment in held):
                raise entry.wrong(
                    "effective_from",
                    "the tariff is in force, and its past is not rewritten: set a later start than now",
                )
            row = TariffVersion(tariff=tariff.row, **entry.column_values(VERSION))
            wanted = Wanted(entry, label, row, True, {}, rates_shown(rates))
            wanted.validate_whole()
            fresh.append((wanted, rates))
            continue
        texts = _version_differences(version, entry, rates)
        if not texts:
            continue
        if start <= soon:
            raise entry.at.wrong(
                f"this version is in force and is never changed ({', '.join(texts)}): "
                "add a version with a new effective_from"
            )
        for name in DETAILS:
            setattr(version, name, entry.values.get(name, getattr(version, name)))
        changed = Wanted(entry, label, version, False, {})
        changed.validate_fields()
        changed.validate_whole()
        version.save(update_fields=DETAILS)
        version.rates.all().delete()
        Rate.objects.bulk_create(_rate_rows(version, rates))
        difference.changed(label, texts)
    return fresh


def _rates(entry: Entry) -> Rates:
    classes = {"": entry.values, **entry.values.get("service_tiers", {})}
    return {
        (item, above, service): pair
        for service, given in classes.items()
        for above, rates in {0: given.get("rates", {}), **given.get("rates_above", {})}.items()
        for item, pair in rates.items()
    }


def _version_differences(version: TariffVersion, entry: Entry, rates: Rates) -> list[str]:
    before: Rates = {
        (rate.item, rate.above, rate.service_tier): (rate.cost, rate.charge) for rate in version.rates.all()
    }
    texts = []
    for name in DETAILS:
        held = getattr(version, name)
        if (given := entry.values.get(name, held)) != held:
            texts.append(f"{name} {shown(held)} -> {shown(given)}")
    for which in {**before, **rates}:
        if before.get(which) != rates.get(which):
            texts.append(f"{rate_name(*which)} {_pair_shown(before.get(which))} -> {_pair_shown(rates.get(which))}")
    return texts


def rates_shown(rates: Rates) -> str:
    """Rates in one line, in dollars per million tokens: what is charged, and the cost where it is another."""
    return ", ".join(f"{rate_name(*which)} {_pair_shown(pair)}" for which, pair in rates.items())


def _pair_shown(pair: Pair | None) -> str:
    if pair is None:
        return "none"
    cost, charge = ("unknown" if price is None else shown(price) for price in pair)
    return charge if cost == charge else f"{charge} (cost {cost})"


def _rate_rows(version: TariffVersion, rates: Rates) -> list[Rate]:
    return [
        Rate(version=version, item=item, above=above, service_tier=service, cost=cost, charge=charge)
        for (item, above, service), (cost, charge) in rates.items()
    ]


def _apply_providers(entries: Sequence[Entry], difference: Difference) -> None:
    providers = by_slug(Provider, PROVIDER, entries)
    known = [provider.row for provider in providers if not provider.fresh]
    addresses = {row.slug: row.base_url for row in known}
    sealed_before = list(Credential.objects.filter(provider__in=known).exclude(sealed="").select_related("provider"))
    for provider in providers:
        provider.detail = provider.entry.values.get("base_url", "")
    write(providers, difference)
    moved = [provider for provider in providers if addresses.get(provider.entry.name) != provider.row.base_url]
    _note_addresses(moved, sealed_before, difference)
    _apply_credentials(providers, difference)


def _note_addresses(
    moved: Sequence[Wanted[Provider]], sealed_before: Sequence[Credential], difference: Difference
) -> None:
    """Says what follows from new addresses: some are not dialled, and saving them emptied credentials."""
    for provider in moved:
        if wrong := objection(provider.row.base_url, settings.EGRESS_ALLOW):
            difference.notes.append(f"{provider.label}: {wrong}")
        given = {entry.name for entry in provider.entry.inner["credentials"] if "secret" in entry.values}
        for credential in sealed_before:
            if credential.provider_id == provider.row.pk and credential.name not in given:
                difference.changed(f"credential {credential}", ["secret removed, since the address changed"])


def _apply_credentials(providers: Sequence[Wanted[Provider]], difference: Difference) -> None:
    rows = [provider.row for provider in providers]
    found = {(row.provider_id, row.name): row for row in Credential.objects.filter(provider__in=rows)}
    wanted = []
    for provider in providers:
        for entry in provider.entry.inner["credentials"]:
            row = found.get((provider.row.pk, entry.name))
            wanted.append(
                _with_secret(
                    Wanted(
                        entry,
                        f"credential {provider.entry.name}/{entry.name}",
                        row=row or Credential(provider=provider.row, name=entry.name),
                        fresh=row is None,
                        columns=entry.column_values(CREDENTIAL),
                    ),
                    provider.row,
                )
            )
    write(wanted, difference)
    silent = [provider for provider in providers if provider.row.auth_style == AuthStyle.NONE]
    for row in Credential.objects.filter(provider__in=[p.row for p in silent], active=True).exclude(sealed=""):
        owner = next(provider for provider in silent if provider.row.pk == row.provider_id)
        raise owner.entry.wrong("auth_style", f"none sends no secret, but credential {row.name} has one")
    _check_secrets(providers, difference)


def _check_secrets(providers: Sequence[Wanted[Provider]], difference: Difference) -> None:
    """Raises `ConfigurationError` for a stored secret that is none of its provider's auth style, as it may have become;
    says which token endpoints are not dialled.
    """
    owners = {provider.row.pk: provider for provider in providers}
    stored = Credential.objects.filter(provider__in=owners, active=True).exclude(sealed="").select_related("provider")
    for row in stored:
        owner = owners[row.provider_id]
        try:
            if misfit := row.misfit():
                raise owner.entry.wrong("auth_style", f"credential {row.name} does not go with it: {misfit}")
            address = row.token_address()
        except CannotOpen:
            continue
        if address is not None and (wrong := objection(address, settings.EGRESS_ALLOW)):
            difference.notes.append(f"credential {row}: {wrong}")


def _with_secret(wanted: Wanted[Credential], provider: Provider) -> Wanted[Credential]:
    """Seals the file's secret unless it is the one that is sealed already."""
    given = wanted.entry.values.get("secret")
    credential = wanted.row
    credential.provider = provider
    if given is None or _opened(credential) == given:
        return wanted
    before = credential.sealed
    try:
        credential.put(given)
    except ValidationError as error:
        raise wanted.entry.wrong("secret", error.messages[0]) from None
    wanted.detail = f"secret …{credential.hint.removeprefix('…')}"
    wanted.set_fields = ("sealed", "hint")
    wanted.set_text = (f"secret {'replaced' if before else 'set'}",)
    return wanted


def _opened(credential: Credential) -> str | None:
    try:
        return credential.secret() if credential.sealed else None
    except CannotOpen:
        return None


def _apply_models(entries: Sequence[Entry], difference: Difference) -> list[Wanted[Model]]:
    models = by_slug(Model, MODEL, entries)
    write(models, difference)
    providers = {row.slug: row for row in Provider.objects.all()}
    tariffs = {row.slug: row for row in Tariff.objects.all()}
    held = {
        (row.model_id, row.provider_id, row.upstream_model): row
        for row in Offer.objects.filter(model__in=[model.row for model in models]).select_related("tariff")
    }
    offers = [
        _offer(model, entry, held, providers, tariffs) for model in models for entry in model.entry.inner["offers"]
    ]
    write(offers, difference)
    _note_prices(offers, difference)
    return models


def _note_prices(offers: Sequence[Wanted[Offer]], difference: Difference) -> None:
    """Says which offers of the file are used without a price."""
    active = {item.row.pk: item for item in offers if item.row.active}
    lacking = list(lacks(item.row for item in active.values()).items())
    for pk, lack in lacking[:MOST_NOTED]:
        difference.notes.append(f"{active[pk].label} has {lack}: {WITHOUT_A_PRICE}")
    if len(lacking) > MOST_NOTED:
        difference.notes.append(f"and {len(lacking) - MOST_NOTED} more offers without a price")


def _offer(
    model: Wanted[Model],
    entry: Entry,
    held: Mapping[tuple[int, int, str], Offer],
    providers: Mapping[str, Provider],
    tariffs: Mapping[str, Tariff],
) -> Wanted[Offer]:
    slug, upstream_model = entry.values["provider"], entry.values["upstream_model"]
    if slug not in providers:
        raise entry.wrong("provider", f"there is no provider {slug!r} in the file or the database")
    columns = entry.column_values(OFFER)
    if "tariff" in entry.values:
        tariff = entry.values["tariff"]
        if tariff is not None and tariff not in tariffs:
            raise entry.wrong("tariff", f"there is no tariff {tariff!r} in the file or the database")
        columns["tariff"] = None if tariff is None else tariffs[tariff]
    provider = providers[slug]
    row = held.get((model.row.pk, provider.pk, upstream_model))
    return Wanted(
        entry,
        f"offer {model.entry.name} at {slug} as {upstream_model}",
        row=row or Offer(model=model.row, provider=provider, upstream_model=upstream_model),
        fresh=row is None,
        columns=columns,
        detail=f"tariff {entry.values.get('tariff') or 'none'}",
    )
