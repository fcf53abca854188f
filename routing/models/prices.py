"""Which offers have no price at this moment, and what they lack."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from django.db.models import Case, When
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.models import TariffVersion, rate_name
from billing.pricing import Prices, Rate, compiled
from routing.models.model import Model, Offer, never_written

# What follows, for whoever may mend it.
WITHOUT_A_PRICE = gettext_lazy("under a hard budget its calls are refused, under none nobody knows what they cost")


def lacks(offers: Iterable[Offer], models: Mapping[int, Model] | None = None) -> dict[int, str]:
    """What each of `offers` lacks to have a price now, by its key; with one it is left out.

    `models`: those of their models, by key, that have just been read. A query, and one more for the other models.
    """
    given = list(offers)
    tariffs = {offer.tariff_id for offer in given if offer.tariff_id is not None}
    prices, starts = _versions(tariffs)
    missing = {tariff: named for tariff, version in prices.items() if (named := version.lacking())}
    needless = _needless((offer.model_id for offer in given if offer.tariff_id in missing), models or {})
    found = {}
    for offer in given:
        if offer.tariff_id is None:
            found[offer.pk] = _("no tariff")
        elif offer.tariff_id in starts:
            moment = f"{starts[offer.tariff_id]:%Y-%m-%d %H:%M}"
            found[offer.pk] = _("no price before %(moment)s UTC") % {"moment": moment}
        elif offer.tariff_id not in prices:
            found[offer.pk] = _("a tariff without a version")
        elif offer.tariff_id in missing:
            free = needless.get(offer.model_id, ())
            needed = dict.fromkeys(which for which in missing[offer.tariff_id] if which[0] not in free)
            if needed:
                names = ", ".join(rate_name(*which) for which in needed)
                found[offer.pk] = _("a tariff without a rate for %(names)s") % {"names": names}
    return found


def _versions(tariffs: set[int]) -> tuple[dict[int, Prices], dict[int, datetime]]:
    """By tariff: the prices of the version in force; and where none is, when the first one will be."""
    begun = Case(When(effective_from__lte=Now(), then="effective_from"))
    nearest = TariffVersion.objects.filter(tariff__in=tariffs).order_by(
        "tariff", begun.desc(nulls_last=True), "effective_from"
    )
    columns = ("item", "above", "service_tier", "cost", "charge")
    rows = TariffVersion.objects.filter(pk__in=nearest.distinct("tariff").values("pk")).annotate(begun=begun)
    of: dict[int, list[Any]] = defaultdict(list)
    starts, kinds = {}, {}
    told = rows.values_list(
        "tariff", "begun", "effective_from", "marginal", "exchange_rate", *(f"rates__{name}" for name in columns)
    )
    for tariff, since, start, marginal, exchange_rate, item, above, tier, cost, charge in told if tariffs else ():
        if since is None:
            starts[tariff] = start
            continue
        kinds[tariff] = {"marginal": marginal, "exchange_rate": exchange_rate}
        if item is not None:
            of[tariff].append((item, above, tier, Rate(cost, charge)))
    return {tariff: compiled(of[tariff], **kind) for tariff, kind in kinds.items()}, starts


def _needless(models: Iterable[int], known: Mapping[int, Model]) -> dict[int, tuple[str, ...]]:
    """Items that these models have no use for."""
    asked = set(models)
    makes = {pk: known[pk].output_modalities for pk in asked & known.keys()}
    if unknown := asked - makes.keys():
        makes |= dict(Model.objects.filter(pk__in=unknown).values_list("pk", "output_modalities"))
    return {pk: free for pk, modalities in makes.items() if (free := never_written(modalities))}


def warnings(offers: Iterable[Offer]) -> list[str]:
    """A sentence for each of `offers` that is active and has no price."""
    active = [offer for offer in offers if offer.active]
    lacking = lacks(active)
    return [
        _("%(offer)s has %(lack)s: %(means)s.") % {"offer": offer, "lack": lacking[offer.pk], "means": WITHOUT_A_PRICE}
        for offer in active
        if offer.pk in lacking
    ]
