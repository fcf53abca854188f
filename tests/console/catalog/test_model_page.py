"""The console's page of a model: its tokens by day, each provider's speed and uptime, and what it costs whom."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.test import Client, override_settings
from django.urls import reverse

from accounts.roles import Role
from billing.models import Attempt, Limit
from billing.rollups import make
from routing.models import Model, Offer, OfferStatistics
from tests.console.browser import console, context_of, make_usage
from tests.console.catalog.readers import member
from tests.console.test_health_board import attempt, published
from tests.stage.cast import Tenant, make_tenant
from tests.stage.shelf import add_offer, make_model, make_provider, make_tariff

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
    response = console().get(reverse("catalog_model", args=[model.slug]))
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
    response = console().get(reverse("catalog_model", args=[model.slug]))
    days = context_of(response)["days"]
    assert len(days) == 30
    assert [(bar["day"], bar["tokens"], bar["height"]) for bar in days if bar["height"]] == [
        (today - 3 * DAY, "400", 120), (today, "80", 24),
    ]  # fmt: skip
    html = response.content.decode()
    assert "By test, published 2026-01-31" in html and "writes text" in html
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
    html = console().get(reverse("catalog_model", args=[model.slug])).content.decode()
    assert html.count(">-<") >= 6
    assert console().get(reverse("catalog_model", args=["lab/none"])).status_code == 404


def test_it_is_for_who_has_a_role(model: Model) -> None:
    path = reverse("catalog_model", args=[model.slug])
    assert console(superuser=False).get(path).status_code == 403
    assert Client().get(path).status_code == 302


def test_calls_of_a_moment_ago_are_shown_before_the_month_is_published(model: Model) -> None:
    offer, _ = offers(model)
    attempt(offer)
    published()
    OfferStatistics.objects.filter(window="30d").delete()
    response = console().get(reverse("catalog_model", args=[model.slug]))
    (seller,) = (one for one in context_of(response)["sellers"] if one.slug == offer.provider.slug)
    assert (seller.figures.attempts, seller.figures.uptime) == (1, 1.0)


@pytest.mark.row("B392", "B393", "B394", "B395")
def test_it_shows_prices_limits_parameters_and_protocols(alice: Tenant) -> None:
    tariff = make_tariff(
        {200_000: {"input": ("9", "4.5"), "output": ("9", "6")}}, input=("9", "2.25"), output=("9", "3"),
        cached_input=("9", "0.0125"), request=("9", "0.001"), web_search=("9", "0.01"), image=("9", "0.04"),
    )  # fmt: skip
    provider = make_provider("https://one.example/v1", protocol="anthropic_messages")
    model = make_model(
        provider, "one", tariff, context_length=64_000, max_output=32_000, supported_parameters=["temperature", "seed"]
    )
    context = context_of(member(alice).get(reverse("catalog_model", args=[model.slug])))
    grid = dict(context["prices"])
    assert {title: [cell.text for cell in cells] for title, cells in grid.items()} == {
        "Input": ["$2.25"], "Cached read": ["$0.0125"], "Cache write, 5 minutes": ["-"], "Cache write, 1 hour": ["-"],
        "Output": ["$3.00"], "Reasoning": ["-"], "Audio in": ["-"], "Audio out": ["-"], "Image in": ["-"],
        "Image out": ["-"], "Video": ["-"], "Each request, each search": ["$0.001 a request, $0.01 a search"],
        "Each image": ["$0.04"],
    }  # fmt: skip
    assert grid["Input"][0].note == "$4.50 for prompts of more than 200,000 tokens"
    assert grid["Reasoning"][0].title == "Billed as output"
    assert (context["context_length"], context["max_output"], context["heads"]) == ("64,000", "32,000", [provider.slug])
    assert dict(context["parameters"]) == {
        "max_completion_tokens": "yes", "temperature": "yes", "top_p": "-", "frequency_penalty": "-",
        "presence_penalty": "-", "seed": "yes", "logit_bias": "-", "logprobs": "-", "top_logprobs": "-",
        "response_format": "-", "stop": "yes", "tools": "-", "tool_choice": "-", "parallel_tool_calls": "-",
    }  # fmt: skip
    assert {one.name: one.by for one in context["surfaces"]} == {
        "chat": "translated", "responses": "translated", "messages": "passed", "generateContent": "translated",
        "embeddings": "", "completions": "",
    }  # fmt: skip


def test_a_member_is_told_of_the_own_tokens_and_of_nobodys_calls(model: Model, alice: Tenant) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for tenant, tokens in ((alice, 40), (make_tenant("charlie"), 7)):
        make_usage(tenant, today, model=model.slug, prompt_tokens=tokens, completion_tokens=0)
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, today, today + DAY)
    offer, _ = offers(model)
    attempt(offer)
    published()
    page = member(alice).get(reverse("catalog_model", args=[model.slug]))
    assert [bar["tokens"] for bar in context_of(page)["days"] if bar["height"]] == ["40"]
    html = page.content.decode()
    assert "<dt>Calls</dt>" not in html and " calls" not in html and "100.0 %" in html
    assert reverse("admin:routing_model_change", args=[model.pk]) not in html


def test_the_limits_of_an_organization_are_its_own(model: Model, alice: Tenant) -> None:
    Limit.objects.create(organization=alice.organization, measure="requests", value=1200)
    Limit.objects.create(organization=make_tenant("charlie").organization, measure="requests", value=7)
    context = context_of(member(alice, Role.OWNER).get(reverse("catalog_model", args=[model.slug])))
    assert context["limits"] == [("Requests a minute", "1,200")]


def test_the_code_is_for_the_readers_own_address(model: Model) -> None:
    page = reverse("catalog_model", args=[model.slug])
    for settings, base in (
        ({"SERVE": "all"}, "http://testserver/v1"),
        ({"SERVE": "console"}, "https://GATEWAY/v1"),
        ({"SERVE": "console", "PUBLIC_URL": "https://api.example:8443"}, "https://api.example:8443/v1"),
    ):
        with override_settings(**settings):
            found = {one.name: one.text for one in context_of(console().get(page))["samples"]}
        assert f"curl {base}/chat/completions" in found["curl"]
        assert f'OpenAI(base_url="{base}", ' in found["python"] and f'baseURL: "{base}"' in found["node"]
        for text in found.values():
            assert model.slug in text and "sk-ml-" not in text
