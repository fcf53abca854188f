"""Offers without a price in the console: a warning when one is saved, a mark wherever they are listed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.models import Tariff
from billing.pricing import Prices, Rate, by_size, compiled
from routing.models import Model, Offer
from routing.models.prices import lacks
from tests.console.browser import console, context_of, submit, url
from tests.stage.shelf import add_offer, add_version, make_model, make_provider, make_tariff

REFUSED = "under a hard budget its calls are refused, under none nobody knows what they cost."
LATER = datetime(2090, 1, 2, 3, 4, tzinfo=UTC)


@pytest.fixture
def model() -> Iterator[Model]:
    """A model with one offer, which has a price."""
    made = make_model(make_provider("https://vendor.example/v1"))
    yield made
    providers = [offer.provider for offer in made.offers.select_related("provider")]
    made.delete()
    for provider in providers:
        provider.delete()


def half() -> Tariff:
    """A tariff that does not say what output costs."""
    return make_tariff(input="1")


def lower() -> Tariff:
    """A tariff whose newest version lacks what the older one had."""
    tariff = make_tariff(input="1", output="2")
    add_version(tariff, datetime(2021, 1, 1, tzinfo=UTC), output="2")
    return tariff


def unknown() -> Tariff:
    """A tariff with a rate that nobody knows."""
    tariff = make_tariff(input="1", output="2")
    tariff.versions.get().rates.create(item="cached_input", cost=1, charge=None)
    return tariff


def empty() -> Tariff:
    """A tariff without a version."""
    return Tariff.objects.create(slug=f"{half().slug}-empty")


def to_come() -> Tariff:
    """A tariff whose only version is to come."""
    tariff = empty()
    add_version(tariff, LATER, input="1", output="2")
    return tariff


def none() -> None:
    """No tariff."""
    return


LACKS = [
    (none, "no tariff"),
    (empty, "a tariff without a version"),
    (to_come, "no price before 2090-01-02 03:04 UTC"),
    (half, "a tariff without a rate for output"),
    (lower, "a tariff without a rate for input"),
    (unknown, "a tariff without a rate for cached_input"),
]


def said(response: Any) -> list[str]:
    """The messages for the next page, without its own on what was saved."""
    return [str(message) for message in get_messages(response.wsgi_request) if message.level_tag == "warning"]


@pytest.mark.parametrize(("tariff", "lack"), LACKS, ids=lambda value: getattr(value, "__name__", ""))
def test_it_says_and_shows_what_an_offer_lacks(tariff: Any, lack: str, model: Model) -> None:
    client, priced = console(), model.offers.get()
    provider = make_provider("https://other.example/v1")
    made = tariff()
    saved = submit(
        client, url(Offer, "add"), "offer_form",
        model=str(model.pk), provider=str(provider.pk), upstream_model="u", tariff=str(made.pk) if made else "",
    )  # fmt: skip
    assert saved.status_code == 302
    assert said(saved) == [f"{model.slug} at {provider.slug} has {lack}: {REFUSED}"]
    offer = model.offers.get(provider=provider)
    assert lacks([priced, offer]) == {offer.pk: lack}
    # The list of offers, that of models, and the health board.
    shown = context_of(client.get(url(Offer, "changelist"), {"q": model.slug}))["cl"]
    assert {row.pk: row.lack for row in shown.result_list} == {priced.pk: "", offer.pk: lack}
    page = client.get(url(Model, "changelist"), {"q": model.slug})
    (row,) = context_of(page)["cl"].result_list
    assert (row.offered, row.unpriced) == (2, 1) and "unknown of 1" in page.content.decode()
    board = client.get("/console/health/", {"q": model.slug})
    assert {line.offer.pk: line.lack for one in context_of(board)["providers"] for line in one["lines"]} == {
        priced.pk: "", offer.pk: lack,
    }  # fmt: skip
    assert f"No price: {lack}" in board.content.decode()
    provider.delete()


def test_an_offer_with_a_price_or_off_is_not_warned_of(model: Model) -> None:
    client = console()
    offer = model.offers.get()
    priced = submit(client, url(Offer, "change", offer.pk), "offer_form", weight="2")
    assert (priced.status_code, said(priced)) == (302, [])
    off = submit(client, url(Offer, "change", offer.pk), "offer_form", tariff="", active=[])
    offer.refresh_from_db()
    assert (off.status_code, offer.tariff, offer.active, said(off)) == (302, None, False, [])


def test_the_page_of_a_model_warns_of_each_of_its_offers(model: Model) -> None:
    other = make_provider("https://other.example/v1")
    add_offer(model, other, tariff=half())
    response = submit(console(), url(Model, "change", model.pk), "model_form", name="Renamed")
    assert said(response) == [f"{model.slug} at {other.slug} has a tariff without a rate for output: {REFUSED}"]
    other.delete()


def test_it_asks_as_often_for_many_offers_as_for_few(model: Model) -> None:
    with CaptureQueriesContext(connection) as few:
        lacks(model.offers.all())
    for _ in range(5):
        add_offer(model, make_provider("https://other.example/v1"))
    with CaptureQueriesContext(connection) as many:
        lacks(model.offers.all())
    assert len(many) == len(few) <= 4


KNOWN, NOBODY_KNOWS = Rate(None, Decimal(1)), Rate(Decimal(1), None)


@pytest.mark.parametrize(
    ("prices", "lacking"),
    [
        ({}, ["input", "output"]),
        ({"input": KNOWN, "output": KNOWN}, []),
        ({"input": KNOWN, "output": NOBODY_KNOWS}, ["output"]),
        ({"input": KNOWN, "output": KNOWN, "request": NOBODY_KNOWS}, ["request"]),
        ({"input": KNOWN, "output": KNOWN, "web_search": NOBODY_KNOWS}, []),
    ],
)
def test_what_is_lacking_is_what_makes_a_worst_case_unknown(prices: dict[str, Rate], lacking: list[str]) -> None:
    found = Prices(prices)
    assert [item for item, *_ in found.lacking()] == lacking
    worst = found.worst_case(10, 1)
    assert (worst.fixed is None or worst.rate is None) == bool(lacking)


def test_it_looks_at_every_size_of_prompt_and_class_of_service() -> None:
    sized = by_size([("input", 0, KNOWN), ("output", 0, KNOWN), ("output", 200_000, NOBODY_KNOWS)])
    assert sized.lacking() == [("output", 200_000, "")]
    flex = [(item, 0, "", KNOWN) for item in ("input", "output")] + [("output", 0, "flex", NOBODY_KNOWS)]
    assert compiled(flex).lacking() == [("output", 0, "flex")]


def test_what_makes_vectors_needs_no_rate_for_what_it_writes(model: Model) -> None:
    client, offer = console(), model.offers.get()
    submit(client, url(Offer, "change", offer.pk), "offer_form", tariff=str(half().pk))
    offer = model.offers.get()
    assert lacks([offer]) == {offer.pk: "a tariff without a rate for output"}
    saved = submit(client, url(Model, "change", model.pk), "model_form", output_modalities="embeddings")
    assert (saved.status_code, said(saved), lacks([offer])) == (302, [], {})
    submit(client, url(Model, "change", model.pk), "model_form", output_modalities=["text", "embeddings"])
    assert lacks([offer]) == {offer.pk: "a tariff without a rate for output"}
    offer.tariff = lower()
    offer.save()
    submit(client, url(Model, "change", model.pk), "model_form", output_modalities="embeddings")
    assert lacks([offer]) == {offer.pk: "a tariff without a rate for input"}
