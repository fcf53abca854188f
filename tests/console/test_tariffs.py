"""Tariffs in the console: what has been charged stays explained, a price change is a new version."""

import secrets
from datetime import datetime, timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from billing.models import Rate, Tariff, TariffVersion
from tests.console.browser import console, filled, submit

ADD = reverse("admin:billing_tariffversion_add")
FORM = "tariffversion_form"
HOUR = timedelta(hours=1)


@pytest.fixture
def tariff() -> Tariff:
    """A tariff with nothing in it."""
    return Tariff.objects.create(slug=f"tariff-{secrets.token_hex(4)}")


def version_of(tariff: Tariff, start: datetime) -> TariffVersion:
    """A version with two rates."""
    version = tariff.versions.create(effective_from=start)
    version.rates.create(item="input", cost=Decimal("0.4"), charge=Decimal("0.44"))
    version.rates.create(item="output", cost=Decimal("1.6"), charge=None)
    return version


def page(version: TariffVersion, name: str = "change") -> str:
    """The address of a version's page."""
    return reverse(f"admin:billing_tariffversion_{name}", args=[version.pk])


def rates(version: TariffVersion) -> list[tuple[str, Decimal | None, Decimal | None]]:
    """A version's rates: item, cost, charge."""
    return list(version.rates.order_by("item").values_list("item", "cost", "charge"))


def at(moment: datetime) -> dict[str, str]:
    """The two inputs of a time."""
    return {"effective_from_0": f"{moment:%Y-%m-%d}", "effective_from_1": f"{moment:%H:%M:%S}"}


def test_it_works(tariff: Tariff) -> None:
    prices = {"rates__0__cost": "0.4", "rates__0__charge": "0.44", "rates__1__cost": "", "rates__1__charge": "0"}
    before = timezone.now()
    assert submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, **prices).status_code == 302
    version = tariff.versions.get()
    assert before <= version.effective_from <= timezone.now()
    assert rates(version) == [("input", Decimal("0.4"), Decimal("0.44")), ("output", None, Decimal(0))]


def test_a_new_version_starts_from_the_newest_rates(tariff: Tariff) -> None:
    old = version_of(tariff, timezone.now() - HOUR)
    client = console()
    led = client.get(reverse("admin:billing_tariff_new_version", args=[tariff.pk]))
    assert (led.status_code, led["Location"]) == (302, f"{ADD}?tariff={tariff.pk}")
    assert submit(client, led["Location"], FORM, note="rise", rates__0__charge="0.5").status_code == 302
    new = tariff.versions.get(note="rise")
    assert rates(new) == [("input", Decimal("0.4"), Decimal("0.5")), ("output", Decimal("1.6"), None)]
    assert rates(old) == [("input", Decimal("0.4"), Decimal("0.44")), ("output", Decimal("1.6"), None)]


def test_a_version_in_force_is_never_changed(tariff: Tariff) -> None:
    version = version_of(tariff, timezone.now() - HOUR)
    client = console()
    html = client.get(page(version)).content.decode()
    assert "0.44" in html and 'name="rates-0-charge"' not in html and 'name="_save"' not in html
    rate = version.rates.get(item="input")
    forged = {
        "tariff": tariff.pk,
        "note": "forged",
        "rates-TOTAL_FORMS": 2,
        "rates-INITIAL_FORMS": 2,
        "rates-0-id": rate.pk,
        "rates-0-version": version.pk,
        "rates-0-item": "input",
        "rates-0-charge": "0",
        "rates-0-DELETE": "on",
    }
    assert client.post(page(version), {**forged, **at(timezone.now() + HOUR)}).status_code == 403
    assert client.post(page(version, "delete"), {"post": "yes"}).status_code == 403
    address = reverse("admin:billing_tariff_delete", args=[tariff.pk])
    assert client.post(address, {"post": "yes"}).status_code == 403
    assert list(tariff.versions.all()) == [version] and tariff.versions.get().note == ""
    assert rates(version) == [("input", Decimal("0.4"), Decimal("0.44")), ("output", Decimal("1.6"), None)]


def test_a_version_to_come_may_be_changed(tariff: Tariff) -> None:
    version_of(tariff, timezone.now() - HOUR)
    version = version_of(tariff, timezone.now() + HOUR)
    client = console()
    later = (timezone.now() + 2 * HOUR).replace(microsecond=0)
    changes = {"rates__0__charge": "0.123456", "rates__1__DELETE": "on", **at(later)}
    assert submit(client, page(version), FORM, **changes).status_code == 302
    version.refresh_from_db()
    assert (version.effective_from, rates(version)) == (later, [("input", Decimal("0.4"), Decimal("0.123456"))])
    assert client.post(page(version, "delete"), {"post": "yes"}).status_code == 302
    assert not TariffVersion.objects.filter(pk=version.pk).exists()


def test_a_version_that_came_into_force_meanwhile_is_not_changed(tariff: Tariff) -> None:
    version = version_of(tariff, timezone.now() + HOUR)
    client = console()
    fields: dict[str, Any] = filled(client.get(page(version)).content.decode(), FORM)
    TariffVersion.objects.filter(pk=version.pk).update(effective_from=timezone.now() - HOUR)
    assert client.post(page(version), {**fields, "rates-0-charge": "9"}).status_code == 403
    assert rates(version)[0] == ("input", Decimal("0.4"), Decimal("0.44"))


@pytest.mark.parametrize("ago", [timedelta(seconds=2), 2 * HOUR, timedelta(days=4000)])
def test_it_refuses_to_rewrite_the_past(ago: timedelta, tariff: Tariff) -> None:
    version_of(tariff, timezone.now() - HOUR)
    client = console()
    response = submit(client, f"{ADD}?tariff={tariff.pk}", FORM, **at(timezone.now() - ago))
    assert "not before now" in response.content.decode()
    assert tariff.versions.count() == 1
    coming = version_of(tariff, timezone.now() + HOUR)
    assert submit(client, page(coming), FORM, **at(timezone.now() - ago)).status_code == 200
    assert TariffVersion.objects.get(pk=coming.pk).effective_from == coming.effective_from


def test_the_first_version_may_begin_in_the_past(tariff: Tariff) -> None:
    start = (timezone.now() - timedelta(days=30)).replace(microsecond=0)
    assert submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, **at(start)).status_code == 302
    assert tariff.versions.get().effective_from == start


@pytest.mark.parametrize("price", ["-0.000001", "NaN", "Infinity", "1e30", "0.0000001", "one"])
def test_it_refuses_a_price_that_is_none(price: str, tariff: Tariff) -> None:
    assert submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, rates__0__charge=price).status_code == 200
    assert not tariff.versions.exists()


def test_it_refuses_an_item_twice(tariff: Tariff) -> None:
    assert submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, rates__1__item="input").status_code == 200
    assert not tariff.versions.exists() and not Rate.objects.filter(version__tariff=tariff).exists()


def test_an_item_may_have_a_rate_for_each_size_of_prompt(tariff: Tariff) -> None:
    more = {
        "rates__TOTAL_FORMS": "3",
        "rates__0__charge": "1",
        "rates__1__charge": "2",
        "rates__2__item": "input",
        "rates__2__above": "200000",
        "rates__2__charge": "3",
    }
    client = console()
    assert submit(client, f"{ADD}?tariff={tariff.pk}", FORM, **more).status_code == 302
    sized = [("input", 0, Decimal(1)), ("input", 200_000, Decimal(3)), ("output", 0, Decimal(2))]
    first = tariff.versions.get()
    assert list(first.rates.order_by("item", "above").values_list("item", "above", "charge")) == sized
    # The next version starts from them all.
    assert submit(client, f"{ADD}?tariff={tariff.pk}", FORM, note="next").status_code == 302
    second = tariff.versions.get(note="next")
    assert list(second.rates.order_by("item", "above").values_list("item", "above", "charge")) == sized
    assert "200,000" in client.get(page(second)).content.decode()


def test_a_version_has_margins_and_rates_by_class_of_service_and_the_next_starts_from_them(tariff: Tariff) -> None:
    version = version_of(tariff, timezone.now() + HOUR)
    client = console()
    address = f"{ADD}?tariff={tariff.pk}"
    fields: dict[str, Any] = {"rates__1__item": "input", "rates__1__service_tier": "flex", "rates__1__charge": "0.2"}
    later = at(timezone.now() + 2 * HOUR)
    euros = {"currency": "EUR", "exchange_rate": "1.084321987"}
    for wrong in ({"currency": "EUR"}, {"exchange_rate": "1.1"}, {"currency": "eur", "exchange_rate": "1.1"}):
        assert submit(client, address, FORM, **wrong, **later).status_code == 200
    assert submit(client, address, FORM, marginal="on", **euros, **fields, **later).status_code == 302
    made = tariff.versions.exclude(pk=version.pk).get()
    assert (made.marginal, made.currency, made.exchange_rate) == (True, "EUR", Decimal("1.084321987"))
    assert [(rate.item, rate.service_tier, rate.charge) for rate in made.rates.order_by("pk")] == [
        ("input", "", Decimal("0.44")),
        ("input", "flex", Decimal("0.2")),
    ]
    html = client.get(address).content.decode()
    again = filled(html, FORM)
    assert (again["marginal"], again["rates-1-service_tier"]) == (["on"], ["flex"])
    assert (again["currency"], again["exchange_rate"]) == (["EUR"], ["1.084321987"])
    refused = submit(client, address, FORM, **{**fields, "rates__1__service_tier": "standard"})
    assert (refused.status_code, tariff.versions.count()) == (200, 2)
    assert "of the ordinary class, empty" in refused.content.decode()


def test_a_row_left_open_is_no_rate(tariff: Tariff) -> None:
    more = {
        "rates__TOTAL_FORMS": "3",
        "rates__2__item": "",
        "rates__2__above": "0",
        "rates__2__cost": "",
        "rates__2__charge": "",
    }
    assert submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, **more).status_code == 302
    assert [item for item, _, _ in rates(tariff.versions.get())] == ["input", "output"]


ADD_TARIFF = reverse("admin:billing_tariff_add")


def test_a_tariff_and_its_prices_are_made_on_one_page() -> None:
    client, slug = console(), f"tariff-{secrets.token_hex(4)}"
    html = client.get(ADD_TARIFF).content.decode()
    assert "Rates: per million tokens, or each, in the version's currency" in unescape(html)
    start = (timezone.now() + HOUR).replace(microsecond=0)
    prices = {"rates__0__cost": "0.4", "rates__0__charge": "0.44", "rates__1__cost": "1.6", "rates__1__charge": "1.76"}
    made = submit(client, ADD_TARIFF, "tariff_form", slug=slug, name="A", note="list", **prices, **at(start))
    assert made.status_code == 302
    tariff = Tariff.objects.get(slug=slug)
    version = tariff.versions.get()
    assert (tariff.name, version.effective_from, version.note) == ("A", start, "list")
    assert rates(version) == [
        ("input", Decimal("0.4"), Decimal("0.44")),
        ("output", Decimal("1.6"), Decimal("1.76")),
    ]
    # Afterwards the price changes by a version alone.
    html = client.get(reverse("admin:billing_tariff_change", args=[tariff.pk])).content.decode()
    assert "rates-0-charge" not in html and "effective_from" not in html
    assert (
        submit(client, reverse("admin:billing_tariff_change", args=[tariff.pk]), "tariff_form", name="B").status_code
        == 302
    )
    assert tariff.versions.get() == version


def test_a_tariff_made_in_a_popup_is_given_to_the_page_that_asked() -> None:
    client, slug = console(), f"tariff-{secrets.token_hex(4)}"
    address = f"{ADD_TARIFF}?_popup=1&_to_field=id"
    before = timezone.now()
    made = submit(client, address, "tariff_form", slug=slug, rates__0__charge="1", rates__1__charge="2")
    tariff = Tariff.objects.get(slug=slug)
    assert made.status_code == 200 and f"&quot;value&quot;: &quot;{tariff.pk}&quot;" in made.content.decode()
    version = tariff.versions.get()
    assert before <= version.effective_from <= timezone.now()
    assert rates(version) == [("input", None, Decimal(1)), ("output", None, Decimal(2))]


@pytest.mark.parametrize(
    "wrong",
    [
        {"slug": ""},
        {"effective_from_0": "2026-02-30"},
        {"rates__0__charge": "-1"},
        {"rates__1__item": "input"},
        {"rates__TOTAL_FORMS": "0"},
        {"rates__0__DELETE": "on", "rates__1__DELETE": "on"},
    ],
)
def test_a_tariff_that_is_wrong_makes_nothing(wrong: dict[str, str]) -> None:
    before = (Tariff.objects.count(), TariffVersion.objects.count(), Rate.objects.count())
    fields = {"slug": f"tariff-{secrets.token_hex(4)}", "rates__0__charge": "1", **wrong}
    response = submit(console(), ADD_TARIFF, "tariff_form", **fields)
    assert response.status_code == 200 and "Please correct the error" in response.content.decode()
    assert (Tariff.objects.count(), TariffVersion.objects.count(), Rate.objects.count()) == before


def test_a_version_without_rates_is_none(tariff: Tariff) -> None:
    response = submit(console(), f"{ADD}?tariff={tariff.pk}", FORM, rates__TOTAL_FORMS="0")
    assert "A version without rates prices nothing" in response.content.decode()
    assert not tariff.versions.exists()
