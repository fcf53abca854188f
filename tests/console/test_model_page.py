"""The console's page of a model: its tokens by day, and each provider's speed and uptime."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from billing.models import Attempt
from billing.rollups import make
from routing.models import Model, Offer, OfferStatistics
from tests.console.browser import console, context_of, make_usage
from tests.console.test_health_board import attempt, published
from tests.stage.cast import Tenant, make_tenant
from tests.stage.shelf import add_offer, make_model, make_provider

DAY = timedelta(days=1)


@pytest.fixture
def model() -> Iterator[Model]:
    """A model of two providers."""
    made = make_model(make_provider("https://one.example/v1"), "one", published_on=date(2026, 1, 31))
    add_offer(made, make_provider("https://two.example/v1"), "two")
    yield made
    Attempt.objects.filter(model=made.slug).delete()


def offers(model: Model) -> tuple[Offer, Offer]:
    """Its offers."""
    one, two = model.offers.select_related("model", "provider").order_by("pk")
    return one, two


@pytest.mark.row("B389", "B390", "B391")
def test_it_shows_speed_latency_and_uptime_by_provider(model: Model) -> None:
    one, two = offers(model)
    # A hundred tokens after the first one: 100, 50 and 400 a second.
    attempt(one, ttft_ms=200, duration_ms=1200)
    attempt(one, ttft_ms=800, duration_ms=2800)
    attempt(one, status="failed", fault="timeout", ttft_ms=None, completion_tokens=0)
    attempt(two, ttft_ms=100, duration_ms=350)
    published()
    response = console().get(reverse("health_model", args=[model.pk]))
    assert response.status_code == 200
    sellers = {seller.slug: seller for seller in context_of(response)["sellers"]}
    assert set(sellers) == {one.provider.slug, two.provider.slug}
    found = sellers[one.provider.slug]
    speed, first = found.speed, found.first_token
    assert speed.least == pytest.approx(50, rel=0.05) and speed.greatest == pytest.approx(100, rel=0.05)
    assert speed.mean == pytest.approx(200 / 3)
    assert first.least == pytest.approx(200, rel=0.05) and first.greatest == pytest.approx(800, rel=0.05)
    assert first.mean == pytest.approx(500, rel=0.05)
    assert found.figures.ttft_p50 == pytest.approx(200, rel=0.05)
    assert found.figures.uptime == pytest.approx(2 / 3)
    assert [bar["level"] for bar in found.hours].count("bad") == 1 and len(found.hours) == 24
    assert sellers[two.provider.slug].figures.uptime == 1.0
    html = response.content.decode()
    assert "66.67 tps" in html and "66.6 %" in html and re.search(r"<dd>(19|20|21)\d ms\s*</dd>", html)


@pytest.mark.row("B396")
def test_it_shows_tokens_by_day_and_what_the_model_is(model: Model, alice: Tenant) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for back, tokens, slug in (
        (0, 40, model.slug),
        (3, 100, model.slug + "-free"),
        (3, 100, model.slug),
        (30, 9, model.slug),
    ):
        for tenant in (alice, make_tenant("charlie")):
            make_usage(tenant, today - back * DAY, model=slug, prompt_tokens=tokens, completion_tokens=0)
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, today - 31 * DAY, today + DAY)
    response = console().get(reverse("health_model", args=[model.pk]))
    days = context_of(response)["days"]
    assert len(days) == 30
    assert [(bar["day"], bar["tokens"], bar["height"]) for bar in days if bar["height"]] == [
        (today - 3 * DAY, "400", 120), (today, "80", 24),
    ]  # fmt: skip
    html = response.content.decode()
    assert "by test, published 2026-01-31" in html and "writes text" in html
    assert "<style" not in html and " style=" not in html


@pytest.mark.row("B397")
def test_the_board_shows_all_models_of_a_provider_and_their_use() -> None:
    provider = make_provider("https://vendor.example/v1")
    used = make_model(provider, "used")
    make_model(provider, "unused")
    attempt(used.offers.get())
    try:
        published()
        response = console().get("/console/health/", {"window": "1d", "q": provider.slug})
        (shown,) = (one for one in context_of(response)["providers"] if one["provider"] == provider)
        calls = {line.offer.upstream_model: line.figures.attempts for line in shown["lines"]}
        assert calls == {"used": 1, "unused": 0}
        assert shown["figures"].attempts == 1
    finally:
        Attempt.objects.filter(provider=provider.slug).delete()


def test_a_model_nobody_has_called_has_an_empty_page(model: Model) -> None:
    html = console().get(reverse("health_model", args=[model.pk])).content.decode()
    assert html.count(">-<") >= 6
    assert console().get(reverse("health_model", args=[10**9])).status_code == 404


def test_it_is_for_operators(model: Model) -> None:
    path = reverse("health_model", args=[model.pk])
    assert console(superuser=False).get(path).status_code == 403
    assert Client().get(path).status_code == 302


def test_calls_of_a_moment_ago_are_shown_before_the_month_is_published(model: Model) -> None:
    offer, _ = offers(model)
    attempt(offer)
    published()
    OfferStatistics.objects.filter(window="30d").delete()
    response = console().get(reverse("health_model", args=[model.pk]))
    (seller,) = (one for one in context_of(response)["sellers"] if one.slug == offer.provider.slug)
    assert (seller.figures.attempts, seller.figures.uptime) == (1, 1.0)
