"""The catalog's list: what each reader is shown of it, at whose prices, and what they look for."""

import json
import secrets
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.test import override_settings
from django.urls import reverse
from django.utils import timezone

from accounts.models import ApiKey, Membership
from accounts.roles import Role
from billing.models import Terms
from billing.rollups import make
from gateway.console.catalog import listing, shelf
from gateway.console.catalog.reader import Reader
from routing import catalog
from routing.models import Model, Policy, Provider
from routing.models.policy import Level
from tests.console.browser import console, console_role, context_of, make_usage
from tests.console.catalog.readers import member, nobody, shown, slugs
from tests.console.test_health_board import attempt, published
from tests.stage.cast import Tenant, make_tenant
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
JSON = (44, 45)  # columns of the catalog's query that Django leaves as text


@pytest.fixture
def provider(database: None) -> Provider:
    """Of this test alone."""
    return make_provider("https://one.example/v1", retains_data=False)


@pytest.fixture
def everybody(database: None) -> Iterator[None]:
    """Nobody has read the list for everybody a moment ago."""
    listing._kept = (-1, {})
    with override_settings(PUBLIC_CATALOG=True):
        yield


def priced(provider: Provider, word: str, cost: str, charge: str, name: str = "Model", **fields: object) -> Model:
    """A model that is found by `word`, whose input costs and is charged so much."""
    tariff = make_tariff(input=(cost, charge), output=("2", "4"))
    model = make_model(provider, "one", tariff, description=f"{word} model", **fields)
    Model.objects.filter(pk=model.pk).update(name=name)
    return model


def word() -> str:
    """Found in no other test's model."""
    return f"w{secrets.token_hex(5)}"


# --- whose prices ----------------------------------------------------------------------------------------------------


def test_each_reader_sees_the_own_prices_and_nobody_what_a_provider_takes(
    provider: Provider, alice: Tenant, everybody: None
) -> None:
    mark, charlie = word(), make_tenant("charlie")
    priced(provider, mark, "0.777777", "1.25")
    Terms.objects.create(organization=alice.organization, effective_from=LONG_AGO, markup=Decimal(50))
    listed = make_tariff(input=("0", "0.1875"), output=("0", "5"))
    Terms.objects.create(organization=charlie.organization, effective_from=LONG_AGO, price_list=listed)
    finance = console(superuser=True)
    said = {
        name: [(one["input"].title, one["output"].title) for one in shown(client, q=mark, **query)]
        for name, client, query in (
            ("marked up", member(alice), {}),
            ("price list", member(charlie, Role.AUDITOR), {}),
            ("staff", finance, {}),
            ("staff as alice", finance, {"organization": alice.organization.slug}),
            ("everybody", nobody(), {}),
        )
    }
    unit = " for a million tokens"
    assert said == {
        "marked up": [("$1.166666" + unit, "$3" + unit)],  # 0.777777 and half of it, to six decimals, half to even
        "price list": [("$0.1875" + unit, "$5" + unit)],
        "staff": [("$1.25" + unit, "$4" + unit)],
        "staff as alice": [("$1.166666" + unit, "$3" + unit)],
        "everybody": [("$1.25" + unit, "$4" + unit)],
    }
    for client in (member(charlie), nobody()):
        html = client.get(reverse("catalog"), {"q": mark}).content.decode()
        assert "0.7777" not in html and provider.slug not in html


def test_what_a_provider_takes_reaches_no_page_of_who_pays_by_a_list(provider: Provider, alice: Tenant) -> None:
    model, other = priced(provider, word(), "0.777777", "1.25"), make_tenant("charlie")
    with console_role(), connection.cursor() as cursor:
        cursor.execute("select set_config('meterline.sees', %s, false)", [f"{{{alice.organization.pk}}}"])
        cursor.execute("select routing_sold(%s, %s)::text", [alice.organization.pk, [model.slug]])
        (said,) = cursor.fetchone()
        assert "1.25" in said and "0.777777" not in said and provider.base_url not in said
        cursor.execute("select count(*) from routing_offer")  # the second wall stands
        assert cursor.fetchone() == (0,)
        # Of an organization that is not seen neither terms, policies of projects nor lists are told.
        cursor.execute("select routing_sold(%s, %s) -> 'projects'", [other.organization.pk, [model.slug]])
        assert cursor.fetchone() == ("[]",)


def charges(version: catalog.TariffVersion) -> list[object]:
    """What it charges, of every size and class."""
    prices = version.prices
    every = [prices.rates, *(step.rates for step in prices.steps), *(one.rates for one in prices.classes.values())]
    steps = [step.above for step in prices.steps]
    charged = [{item: rate.charge for item, rate in rates.items()} for rates in every]
    return [version.id, version.effective_from, steps, sorted(prices.classes), charged]


def test_the_document_has_the_rows_that_the_gateway_reads(provider: Provider) -> None:
    tariff = make_tariff({200_000: {"input": "3"}}, {"flex": {"input": "0.5"}}, input=("1", "2"), output="4")
    model = make_model(provider, "one", tariff, published_on=date(2026, 1, 31), supported_parameters=["tools"])
    add_offer(model, make_provider("https://two.example/v1", "secret-of-two", protocol="google_gemini"), "two")
    with connection.cursor() as cursor:
        cursor.execute(f"{catalog.QUERY} and m.id = %s", [model.pk])
        rows = [[json.loads(one) if at in JSON and one else one for at, one in enumerate(row)] for row in cursor]
    own = catalog.from_rows(rows)[model.pk]
    (found,) = shelf.entries(Reader(), [model.slug])
    told = [name for name in catalog.Model.__slots__ if name != "offers"]
    assert [getattr(found.model, name) for name in told] == [getattr(own, name) for name in told]
    kept = [name for name in catalog.Offer.__slots__ if name not in ("provider", "credentials", "versions")]
    dialled = ("slug", "protocol", "variant", "trains_on_data", "retains_data")
    for one, other in zip(found.model.offers, own.offers, strict=True):
        assert [getattr(one, name) for name in kept] == [getattr(other, name) for name in kept]
        assert [getattr(one.provider, name) for name in dialled] == [getattr(other.provider, name) for name in dialled]
        assert [charges(version) for version in one.versions] == [charges(version) for version in other.versions]
        assert one.versions


# --- what may be used ------------------------------------------------------------------------------------------------


def test_what_an_organization_may_not_use_is_not_shown_as_usable(provider: Provider, alice: Tenant) -> None:
    mark, charlie = word(), make_tenant("charlie")
    kept = make_provider("https://keeps.example/v1", retains_data=True)
    free, barred = priced(provider, mark, "1", "2"), priced(kept, mark, "1", "2")
    Policy.objects.create(level=Level.PROJECT, project=alice.project, refuses_retention=True)
    client = member(alice)
    assert slugs(client, q=mark) == [free.slug]
    (refused,) = [one for one in shown(client, q=mark, show="all") if one["model"].slug == barred.slug]
    assert refused["line"].entry.why == "Its provider keeps what it is sent."
    assert set(slugs(member(charlie), q=mark)) == {free.slug, barred.slug}
    page = client.get(reverse("catalog_model", args=[barred.slug])).content.decode()
    assert f"Not for {alice.organization.slug}" in page and reverse("playground") + "?m=" not in page


def test_what_no_key_lists_is_not_shown_as_usable(provider: Provider, alice: Tenant) -> None:
    mark = word()
    listed, other = priced(provider, mark, "1", "2"), priced(provider, mark, "1", "2")
    client = member(alice, Role.OWNER)
    assert set(slugs(client, q=mark)) == {listed.slug, other.slug}
    ApiKey.objects.filter(pk=alice.key.pk).update(allowed_models=[listed.slug])
    assert slugs(client, q=mark) == [listed.slug]


def test_what_nobody_can_call_is_there_for_operators_alone(provider: Provider, alice: Tenant, everybody: None) -> None:
    mark = word()
    off, keyless = priced(provider, mark, "1", "2", active=False), priced(provider, mark, "1", "2")
    Provider.objects.filter(pk=keyless.offers.get().provider_id).update(auth_style="bearer")
    readers = {"operator": console(), "member": member(alice), "everybody": nobody()}
    for name, client in readers.items():
        assert slugs(client, q=mark, show="all") == []
        for model in (off, keyless):
            status = client.get(reverse("catalog_model", args=[model.slug])).status_code
            assert status == (200 if name == "operator" else 404), (name, model.slug)


def test_nobody_reads_as_another_organization(alice: Tenant, everybody: None) -> None:
    charlie = make_tenant("charlie")
    page = reverse("catalog")
    assert member(alice).get(page, {"organization": charlie.organization.slug}).status_code == 404
    assert console().get(page, {"organization": "no-such"}).status_code == 404
    # Who has not logged in reads the list's prices, whatever the address says.
    # Of one page: a link to the next would say the address again.
    html = nobody().get(page, {"organization": charlie.organization.slug, "q": word()}).content.decode()
    assert charlie.organization.slug not in html


def test_a_member_of_two_organizations_chooses(provider: Provider, alice: Tenant) -> None:
    mark, bob = word(), make_tenant("bob")
    priced(provider, mark, "1", "2")
    Terms.objects.create(organization=bob.organization, effective_from=LONG_AGO, markup=Decimal(900))
    client = member(alice)
    user = client.session["_auth_user_id"]
    Membership.objects.create(user_id=user, organization=bob.organization, role=Role.OWNER)
    for tenant, price in ((alice, "$2.00"), (bob, "$10.00")):
        (one,) = shown(client, q=mark, organization=tenant.organization.slug)
        assert one["input"].text == price


# --- for everybody ---------------------------------------------------------------------------------------------------


def test_the_catalog_is_for_everybody_only_where_that_is_set(provider: Provider) -> None:
    model = priced(provider, word(), "1", "2")
    addresses = [reverse("catalog"), reverse("catalog_compare"), reverse("catalog_model", args=[model.slug])]
    for address in addresses:
        answer = nobody().get(address)
        assert answer.status_code == 302 and answer["Location"].startswith("/console/login/")
    listing._kept = (-1, {})
    with override_settings(PUBLIC_CATALOG=True):
        page = nobody().get(addresses[2])
        assert page.status_code == 200 and "no-store" in page["Cache-Control"]
        html = page.content.decode()
        assert model.slug in html and provider.slug not in html and "Tokens by day" not in html
        assert "nav-sidebar" not in html and reverse("playground") not in html
        assert nobody().get(reverse("playground")).status_code == 302


# --- what is looked for ----------------------------------------------------------------------------------------------


def test_it_is_searched_and_filtered(provider: Provider) -> None:
    mark = word()
    google = make_provider("https://two.example/v1", protocol="google_gemini")
    small = priced(
        provider, mark, "1", "2", context_length=8_000, input_modalities=["text"], supported_parameters=["seed"]
    )
    large = priced(
        provider, mark, "1", "20", context_length=128_000, input_modalities=["text", "image"],
        supported_parameters=["tools"], aliases=[f"lab/{mark}-large"],
    )  # fmt: skip
    vectors = priced(google, mark, "1", "3", output_modalities=["embeddings"], author="Ulmus")
    client = console()
    every = {small.slug, large.slug, vectors.slug}
    for query, found in (
        ({}, every),
        ({"q": f"{mark.upper()} mod"}, every),
        ({"q": f"{mark}-large"}, {large.slug}),
        ({"q": f"{mark} ulmus"}, {vectors.slug}),
        ({"author": "test"}, every),
        ({"author": "nobody"}, set()),
        ({"modality": "image"}, {large.slug}),
        ({"modality": "embeddings"}, {vectors.slug}),
        ({"surface": "messages"}, {small.slug, large.slug}),
        ({"surface": "embeddings"}, {vectors.slug}),
        ({"parameter": "seed"}, {small.slug, vectors.slug}),  # which lists none: they are sent
        ({"context": "8001"}, {large.slug}),
        ({"price": "3"}, {small.slug, vectors.slug}),
        ({"price": "1.99"}, set()),
        ({"price": "nan", "context": "-1", "order": "none", "page": "-3", "modality": "\0"}, every),
    ):
        assert set(slugs(client, **{"q": mark, **query})) == found, query


def test_it_is_sorted(provider: Provider, alice: Tenant) -> None:
    mark, today = word(), timezone.now().replace(hour=0, minute=0, second=0, microsecond=0)
    a = priced(provider, mark, "1", "3", name="Ash", context_length=8_000, published_on=date(2025, 1, 1))
    b = priced(provider, mark, "1", "1", name="birch", context_length=32_000, published_on=date(2026, 1, 1))
    c = make_model(provider, "one", make_tariff(output="4"), description=mark, context_length=16_000)
    for model, tokens in ((a, 300), (b, 60)):
        make_usage(alice, today, model=model.slug, prompt_tokens=tokens, completion_tokens=0)
    # What another organization had is not told.
    make_usage(make_tenant("charlie"), today, model=c.slug, prompt_tokens=9_000, completion_tokens=0)
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, today, today + timedelta(days=1))
    for model, milliseconds in ((a, 800), (b, 100)):
        attempt(model.offers.select_related("model", "provider").get(), ttft_ms=milliseconds)
    published()
    client = member(alice)
    for order, found in (
        ("name", [a, b, c]),
        ("price", [b, a, c]),  # of the last none is known
        ("context", [b, c, a]),
        ("newest", [b, a, c]),
        ("tokens", [a, b, c]),
        ("latency", [b, a, c]),
    ):
        assert slugs(client, q=mark, order=order) == [model.slug for model in found], order
    assert [one["line"].tokens for one in shown(client, q=mark, order="tokens")] == [10, 2, 0]
    staff = console()
    assert [one["line"].tokens for one in shown(staff, q=mark, order="tokens")] == [300, 10, 2]
    as_alice = {"organization": alice.organization.slug}
    assert [one["line"].tokens for one in shown(staff, q=mark, order="tokens", **as_alice)] == [10, 2, 0]


def test_two_to_four_are_compared(provider: Provider, alice: Tenant) -> None:
    one, two = priced(provider, word(), "1", "2", context_length=8_000), priced(provider, word(), "1", "2.5")
    client, page = member(alice), reverse("catalog_compare")
    answer = client.get(page, {"m": [two.slug, one.slug, two.slug, "lab/none"]})
    context = context_of(answer)
    assert [line.entry.model.slug for line in context["lines"]] == [two.slug, one.slug]
    rows = {title: [text for text, *_ in cells] for title, cells in context["rows"]}
    assert rows["Input"] == ["$2.50", "$2.00"] and rows["Context, tokens"] == ["not known", "8,000"]
    assert rows["Reasoning"] == ["-", "-"] and rows["Chat completions"] == ["passed on", "passed on"]
    for chosen in ([], [one.slug], [one.slug, "lab/none"], ["lab/a", "lab/b", "lab/c", "lab/d", "lab/e"]):
        assert client.get(page, {"m": chosen}).status_code == 400
