"""Which offers have no price at this moment, and what they lack."""

from collections.abc import Iterable

from django.db.models import Min
from django.db.models.functions import Now

from billing.models import TariffVersion, rate_name
from billing.pricing import Prices, Rate, compiled
from routing.models.model import Model, Offer, never_written

# What follows, for whoever may mend it.
WITHOUT_A_PRICE = "under a hard budget its calls are refused, under none nobody knows what they cost"


def lacks(offers: Iterable[Offer]) -> dict[int, str]:
    """What each of `offers` lacks to have a price now, by its key; with one it is left out. Four queries at most."""
    given = list(offers)
    tariffs = {offer.tariff_id for offer in given if offer.tariff_id is not None}
    begun = TariffVersion.objects.filter(tariff__in=tariffs, effective_from__lte=Now())
    newest = begun.order_by("tariff", "-effective_from").distinct("tariff").prefetch_related("rates")
    prices = {version.tariff_id: _prices(version) for version in newest}
    to_come = TariffVersion.objects.filter(tariff__in=tariffs - prices.keys()).values("tariff")
    starts = dict(to_come.annotate(first=Min("effective_from")).values_list("tariff", "first"))
    missing = {tariff: named for tariff, version in prices.items() if (named := version.lacking())}
    needless = _needless(offer.model_id for offer in given if offer.tariff_id in missing)
    found = {}
    for offer in given:
        if offer.tariff_id is None:
            found[offer.pk] = "no tariff"
        elif offer.tariff_id in starts:
            found[offer.pk] = f"no price before {starts[offer.tariff_id]:%Y-%m-%d %H:%M} UTC"
        elif offer.tariff_id not in prices:
            found[offer.pk] = "a tariff without a version"
        elif offer.tariff_id in missing:
            free = needless.get(offer.model_id, ())
            needed = dict.fromkeys(which for which in missing[offer.tariff_id] if which[0] not in free)
            if needed:
                found[offer.pk] = f"a tariff without a rate for {', '.join(rate_name(*which) for which in needed)}"
    return found


def _needless(models: Iterable[int]) -> dict[int, tuple[str, ...]]:
    """Items that these models have no use for."""
    asked = set(models)
    makes = Model.objects.filter(pk__in=asked).values_list("pk", "output_modalities") if asked else ()
    return {pk: free for pk, modalities in makes if (free := never_written(modalities))}


def warnings(offers: Iterable[Offer]) -> list[str]:
    """A sentence for each of `offers` that is active and has no price."""
    active = [offer for offer in offers if offer.active]
    lacking = lacks(active)
    return [f"{offer} has {lacking[offer.pk]}: {WITHOUT_A_PRICE}." for offer in active if offer.pk in lacking]


def _prices(version: TariffVersion) -> Prices:
    rows = ((rate.item, rate.above, rate.service_tier, Rate(rate.cost, rate.charge)) for rate in version.rates.all())
    return compiled(rows, marginal=version.marginal, exchange_rate=version.exchange_rate)
