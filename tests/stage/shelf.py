"""Catalog rows for tests: models offered by the simulated provider, or by any other address.

What belongs together is committed together: each commit has every gateway that runs read its snapshot again.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.db import transaction

from billing.models import Rate, Tariff, TariffVersion
from routing.models import Credential, Model, Offer, Provider

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


Price = tuple[str, str] | str
BySize = Mapping[int, Mapping[str, Price]]
ByClass = Mapping[str, Mapping[str, Price]]
NOTHING: Mapping[Any, Any] = MappingProxyType({})


@transaction.atomic(savepoint=False)
def make_tariff(
    above: BySize = NOTHING, classes: ByClass = NOTHING, *, marginal: bool = False, **rates: Price
) -> Tariff:
    """A tariff in force since long ago; rates as `input=(cost, charge)`, or one number for both.

    `above`: rates of larger prompts, by the number of tokens that they have more than. `classes`: of any size, by class
    of service.
    """
    tariff = Tariff.objects.create(slug=f"tariff-{secrets.token_hex(6)}")
    add_version(tariff, LONG_AGO, above, classes, marginal=marginal, **rates)
    return tariff


@transaction.atomic(savepoint=False)
def add_version(
    tariff: Tariff,
    effective_from: datetime,
    above: BySize = NOTHING,
    classes: ByClass = NOTHING,
    *,
    marginal: bool = False,
    **rates: Price,
) -> TariffVersion:
    """A further version of `tariff`."""
    version = TariffVersion.objects.create(tariff=tariff, effective_from=effective_from, marginal=marginal)
    sizes = [(size, "", prices) for size, prices in {0: rates, **above}.items()]
    made = []
    for size, service, prices in (*sizes, *((0, service, prices) for service, prices in classes.items())):
        for item, price in prices.items():
            cost, charge = (Decimal(price), Decimal(price)) if isinstance(price, str) else map(Decimal, price)
            made.append(Rate(version=version, item=item, above=size, service_tier=service, cost=cost, charge=charge))
    Rate.objects.bulk_create(made)
    return version


@transaction.atomic(savepoint=False)
def make_provider(base_url: str, secret: str | None = None, **fields: Any) -> Provider:
    """A provider at `base_url`; with `secret` it has a credential."""
    fields.setdefault("auth_style", "bearer" if secret else "none")
    provider = Provider.objects.create(
        slug=f"provider-{secrets.token_hex(6)}", name="Provider", base_url=base_url, **fields
    )
    if secret:
        credential = Credential(provider=provider)
        credential.put(secret)
        credential.save()
    return provider


@transaction.atomic(savepoint=False)
def make_model(
    provider: Provider, upstream_model: str = "sim-small", tariff: Tariff | None = None, **fields: Any
) -> Model:
    """A model that `provider` offers as `upstream_model`; by default at $1 / $2 cost and $2 / $4 charge a million."""
    fields.setdefault("input_modalities", [])  # whatever a test sends
    model = Model.objects.create(slug=f"test/model-{secrets.token_hex(6)}", name="Model", **fields)
    add_offer(model, provider, upstream_model, tariff)
    return model


@transaction.atomic(savepoint=False)
def add_offer(
    model: Model,
    provider: Provider,
    upstream_model: str = "sim-small",
    tariff: Tariff | None = None,
    **fields: Any,
) -> Offer:
    """A further offer of `model`."""
    tariff = tariff or make_tariff(input=("1", "2"), output=("2", "4"))
    return Offer.objects.create(model=model, provider=provider, upstream_model=upstream_model, tariff=tariff, **fields)
