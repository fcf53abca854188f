"""The statistics of an organization's own use, over the management API."""

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import jsonschema_rs
import pytest
from django.db import connection, transaction

from billing.rollups import make, roll_up_usage
from gateway.openapi.document import document
from tests.console.browser import make_usage
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, synchronize
from tests.stage.shelf import make_model, make_provider

BASE = "/api/v1/management/statistics"
DAY = timedelta(days=1)
TODAY_PATHS = ("timeseries", "leaderboard", "market_share", "model_usage", "trending", "performance")
# A Wednesday long ago, so that no test's present falls into it.
THEN = date(2025, 6, 18)


def get(gateway: Gateway, tenant: Tenant, path: str, **query: Any) -> httpx.Response:
    """GETs a statistic with a management key of the tenant's. A date is written as ISO has it."""
    _, secret = make_key(tenant.project, scopes=["management"])
    texts = {name: value.isoformat() if isinstance(value, date) else str(value) for name, value in query.items()}
    return gateway.client.get(f"{BASE}/{path}", params=texts, headers={"x-api-key": secret})


def data(gateway: Gateway, tenant: Tenant, path: str, **query: Any) -> Any:
    """What a statistic says, its numbers as `Decimal`; as the document describes it."""
    answer = get(gateway, tenant, path, **query)
    assert answer.status_code == 200, answer.text
    schema = document()["paths"][f"{BASE}/{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    whole = {**schema, "components": {"schemas": document()["components"]["schemas"]}}
    jsonschema_rs.validate(whole, answer.json())
    body = json.loads(answer.text, parse_float=Decimal)
    assert body["success"] is True
    return body["data"]


def used(tenant: Tenant, day: date, model: str, tokens: int, charge: str = "0", **fields: Any) -> None:
    """A generation at noon of a day, with its rollups made."""
    at = datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
    make_usage(
        tenant, at, model=model, prompt_tokens=tokens, completion_tokens=0, charge=Decimal(charge), **fields
    )  # fmt: skip
    begin = at.replace(hour=0)
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, begin, begin + DAY)


# --- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.row("B322", "B330", "B331", "B332", "B333", "B334", "B335")
@pytest.mark.parametrize("path", TODAY_PATHS)
def test_statistics_are_for_management_keys(gateway: Gateway, alice: Tenant, path: str) -> None:
    for mount in ("/v1", "/api/v1"):
        url = f"{mount}/management/statistics/{path}"
        assert gateway.client.get(url).status_code == 401
        refused = gateway.client.get(url, headers={"x-api-key": alice.secret})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_scope")


@pytest.mark.row("B330", "B331", "B332", "B333", "B334", "B335")
def test_charlie_sees_nothing_of_alices(gateway: Gateway, alice: Tenant, charlie: Tenant) -> None:
    used(alice, THEN, "lab/a", 100, "1", ttft_ms=10, duration_ms=20)
    dates = {"starting_at": THEN, "ending_at": THEN}
    assert data(gateway, alice, "leaderboard", metric="cost", **dates)["entries"]
    for path in ("timeseries", "market_share"):
        (bucket,) = data(gateway, charlie, path, metric="cost", bucket_width="1d", **dates)["series"]
        assert bucket in ({"period": "20250618", "date": "2025-06-18", name: []} for name in ("models", "authors"))
    assert data(gateway, charlie, "leaderboard", metric="tokens")["entries"] == []
    usage = data(gateway, charlie, "model_usage", metric="cost", model="lab/a", **dates)
    assert (usage["value"], usage["series"]) == (0, [])
    assert data(gateway, charlie, "trending", metric="cost", bucket_width="1d", ending_at=THEN)["entries"] == []
    for metric in ("throughput", "ttft", "cache_hit"):
        assert data(gateway, charlie, "performance", metric=metric, **dates)["entries"] == []


# --- what may be asked ----------------------------------------------------------------------------------------------

SERIES = {"metric": "tokens", "bucket_width": "1d"}
PAST = {"starting_at": THEN, "ending_at": THEN}
TOMORROW = datetime.now(UTC).date() + 2 * DAY


@pytest.mark.row("B330", "B331", "B332", "B333", "B334", "B335")
@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        *((path, {"bucket_width": "1d"}, "metric") for path in ("timeseries", "market_share", "trending")),
        *((path, {"metric": "cost"}, "bucket_width") for path in ("timeseries", "market_share", "trending")),
        ("timeseries", {**SERIES, "metric": "requests"}, "metric"),
        ("timeseries", {**SERIES, "bucket_width": "1h"}, "bucket_width"),
        ("timeseries", {**SERIES, "limit": 51}, "limit"),
        ("timeseries", {**SERIES, "limit": 0}, "limit"),
        ("timeseries", {**SERIES, "limit": "ten"}, "limit"),
        ("timeseries", {**SERIES, "starting_at": THEN, "ending_at": THEN + 60 * DAY}, "starting_at"),
        ("timeseries", {**SERIES, "starting_at": THEN, "ending_at": THEN - DAY}, "starting_at"),
        ("market_share", {**SERIES, "bucket_width": "1w", "starting_at": THEN, "ending_at": THEN + 421 * DAY},
         "starting_at"),
        ("leaderboard", {}, "metric"),
        ("leaderboard", {"metric": "tokens", "limit": 51}, "limit"),
        ("leaderboard", {"metric": "tokens", "starting_at": "June"}, "starting_at"),
        ("model_usage", {"metric": "tokens", **PAST}, "model"),
        ("model_usage", {"model": "lab/a", **PAST}, "metric"),
        ("model_usage", {"model": "lab/a", "metric": "cost", "ending_at": THEN}, "starting_at"),
        ("model_usage", {"model": "lab/a", "metric": "cost", "starting_at": THEN}, "ending_at"),
        ("model_usage", {"model": "lab/a", "metric": "cost", "starting_at": THEN, "ending_at": THEN + 30 * DAY},
         "starting_at"),
        ("model_usage", {"model": "lab/a", "metric": "cost", "starting_at": THEN, "ending_at": TOMORROW}, "ending_at"),
        ("performance", {"metric": "latency", **PAST}, "metric"),
        ("performance", {"metric": "ttft", "ending_at": THEN}, "starting_at"),
        ("performance", {"metric": "ttft", "starting_at": THEN}, "ending_at"),
        ("performance", {"metric": "ttft", "starting_at": THEN, "ending_at": THEN + 30 * DAY}, "starting_at"),
        ("performance", {"metric": "ttft", "starting_at": THEN, "ending_at": TOMORROW}, "ending_at"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_name(
    gateway: Gateway, alice: Tenant, path: str, query: dict[str, Any], param: str
) -> None:
    answer = get(gateway, alice, path, **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


# --- over time ------------------------------------------------------------------------------------------------------


@pytest.mark.row("B330", "B077")
def test_use_by_day_tells_the_most_used_models_and_the_rest(gateway: Gateway, alice: Tenant) -> None:
    used(alice, THEN - DAY, "lab/a", 10)
    used(alice, THEN - DAY, "lab/a-free", 5)
    used(alice, THEN - DAY, "house/b", 7)
    used(alice, THEN - DAY, "house/c", 2)
    used(alice, THEN - DAY, "house/d", 1)
    used(alice, THEN + DAY, "house/b", 30)
    found = data(gateway, alice, "timeseries", **SERIES, starting_at=THEN - DAY, ending_at=THEN + DAY, limit=2)
    assert found == {
        "metric": "tokens", "bucket_width": "1d", "starting_at": "2025-06-17", "ending_at": "2025-06-19",
        "total_buckets": 3,
        "series": [
            {"period": "20250617", "date": "2025-06-17", "models": [
                {"model": "lab/a", "label": "lab/a", "value": 15},
                {"model": "house/b", "label": "house/b", "value": 7},
                {"model": "__others__", "label": "Others", "value": 3},
            ]},
            {"period": "20250618", "date": "2025-06-18", "models": []},
            {"period": "20250619", "date": "2025-06-19", "models": [
                {"model": "house/b", "label": "house/b", "value": 30},
            ]},
        ],
    }  # fmt: skip


@pytest.mark.row("B330")
def test_weeks_begin_on_monday_and_days_are_moved_back_to_theirs(gateway: Gateway, alice: Tenant) -> None:
    used(alice, date(2024, 12, 29), "lab/a", 1, "1")  # a Sunday: the week before
    used(alice, date(2024, 12, 30), "lab/a", 1, "2")  # a Monday: week 1 of 2025
    used(alice, date(2025, 1, 12), "lab/a", 1, "0.000000000003")  # a Sunday: the last day of week 2
    used(alice, date(2025, 1, 13), "lab/a", 1, "4")
    query = {"metric": "cost", "bucket_width": "1w", "starting_at": "2025-01-02", "ending_at": "2025-01-08"}
    found = data(gateway, alice, "timeseries", **query)
    assert (found["starting_at"], found["ending_at"], found["total_buckets"]) == ("2024-12-30", "2025-01-06", 2)
    values = [(bucket["period"], bucket["date"], [one["value"] for one in bucket["models"]])
              for bucket in found["series"]]  # fmt: skip
    assert values == [("202501", "2024-12-30", [2]), ("202502", "2025-01-06", [Decimal("0.000000000003")])]


@pytest.mark.row("B330")
def test_sixty_buckets_may_be_asked_for_and_thirty_days_are_usual(gateway: Gateway, alice: Tenant) -> None:
    whole = data(gateway, alice, "timeseries", **SERIES, starting_at=THEN, ending_at=THEN + 59 * DAY)
    assert whole["total_buckets"] == len(whole["series"]) == 60
    today = datetime.now(UTC).date()
    usual = data(gateway, alice, "timeseries", **SERIES)
    assert usual["total_buckets"] == 30 and usual["ending_at"] >= today.isoformat()
    assert data(gateway, alice, "timeseries", metric="cost", bucket_width="1w")["total_buckets"] == 12


@pytest.mark.row("B332", "B077")
def test_authors_share_the_use_of_their_models(gateway: Gateway, alice: Tenant) -> None:
    for model, charge in (
        ("lab/a", "0.1"),
        ("lab/a-free", "0"),
        ("lab/b", "0.2"),
        ("house/c", "0.25"),
        ("x/y", "0.01"),
    ):
        used(alice, THEN, model, 1, charge)
    query = {"metric": "cost", "bucket_width": "1d", **PAST}
    (bucket,) = data(gateway, alice, "market_share", **query, limit=2)["series"]
    assert bucket["authors"] == [
        {"author": "lab", "label": "lab", "value": Decimal("0.3")},
        {"author": "house", "label": "house", "value": Decimal("0.25")},
        {"author": "__others__", "label": "Others", "value": Decimal("0.01")},
    ]


# --- by rank --------------------------------------------------------------------------------------------------------


@pytest.mark.row("B331", "B077")
def test_models_are_ranked_and_the_others_come_after_the_last(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    used(alice, THEN, model.slug, 40)
    used(alice, THEN + DAY, model.slug + "-free", 60)
    used(alice, THEN + DAY, "lab/b", 50)
    for place in range(3):
        used(alice, THEN, f"house/{place}", 10 + place)
    found = data(gateway, alice, "leaderboard", metric="tokens", limit=3)
    author = {"author": "test", "author_label": "test"}
    others = {"author": "__others__", "author_label": "Others"}
    assert found["entries"] == [
        {"rank": 1, "model": model.slug, "label": model.name, **author, "value": 100},
        {"rank": 2, "model": "lab/b", "label": "lab/b", "author": "lab", "author_label": "lab", "value": 50},
        {"rank": 3, "model": "house/2", "label": "house/2", "author": "house", "author_label": "house", "value": 12},
        {"rank": 4, "model": "__others__", "label": "Others", **others, "value": 21},
    ]
    assert found["starting_at"] == THEN.isoformat()  # since the first day
    one = data(gateway, alice, "leaderboard", metric="tokens", starting_at=THEN + DAY, ending_at=THEN + DAY)
    assert [(entry["rank"], entry["value"]) for entry in one["entries"]] == [(1, 60), (2, 50)]
    before = data(gateway, alice, "leaderboard", metric="tokens", ending_at=THEN - DAY)
    assert (before["starting_at"], before["entries"]) == ((THEN - DAY).isoformat(), [])


@pytest.mark.row("B333", "B077")
def test_one_models_use_is_told_by_day(gateway: Gateway, alice: Tenant) -> None:
    used(alice, THEN, "lab/a", 3, "0.5")
    used(alice, THEN, "lab/b", 100, "100")
    used(alice, THEN + 29 * DAY, "lab/a-free", 4, "0.25")
    query = {"starting_at": THEN, "ending_at": THEN + 29 * DAY}
    dates = {"starting_at": "2025-06-18", "ending_at": "2025-07-17"}
    for name in ("lab/a", "lab/a-free"):
        assert data(gateway, alice, "model_usage", metric="cost", model=name, **query) == {
            "model": "lab/a", "label": "lab/a", "metric": "cost", **dates, "value": Decimal("0.75"),
            "series": [
                {"date": "2025-06-18", "value": Decimal("0.5")}, {"date": "2025-07-17", "value": Decimal("0.25")},
            ],
        }  # fmt: skip
    unknown = data(gateway, alice, "model_usage", metric="tokens", model="nobody/knows", **query)
    assert (unknown["model"], unknown["value"], unknown["series"]) == ("nobody/knows", 0, [])


@pytest.mark.row("B334", "B077")
def test_what_grows_most_comes_first(gateway: Gateway, alice: Tenant) -> None:
    for model, before, now in (("lab/steady", 100_000, 100_000), ("lab/riser", 10_000, 80_000), ("lab/gone", 500, 0)):
        for day, tokens in ((THEN - DAY, before), (THEN, now)):
            if tokens:
                used(alice, day, model, tokens)
    used(alice, THEN - 6 * DAY, "lab/riser-free", 1)
    used(alice, THEN - 7 * DAY, "lab/riser", 10**9)  # before the points
    used(alice, THEN, "lab/new", 2000)
    found = data(gateway, alice, "trending", **SERIES, ending_at=THEN)

    def score(value: int, previous: int) -> float:
        return math.log1p(value) * (value + 1000) / (previous + 1000)

    assert [entry["model"] for entry in found["entries"]] == ["lab/riser", "lab/new", "lab/steady"]
    assert score(80_000, 10_000) > score(2000, 0) > score(100_000, 100_000)
    assert {name: found[name] for name in ("metric", "bucket_width", "ending_at")} == {
        **SERIES, "ending_at": THEN.isoformat(),
    }  # fmt: skip
    first, second, third = found["entries"]
    points = first.pop("data_points")
    assert [(point["period"], point["value"]) for point in points] == [
        ("20250612", 1), ("20250613", 0), ("20250614", 0), ("20250615", 0), ("20250616", 0),
        ("20250617", 10_000), ("20250618", 80_000),
    ]  # fmt: skip
    assert first == {
        "rank": 1, "model": "lab/riser", "label": "lab/riser", "author": "lab", "author_label": "lab",
        "icon_url": None, "value": 80_000, "total_value": 90_001, "previous_value": 10_000,
        "growth_rate": Decimal("6.3636"), "growth_label": "+636.4%",
    }  # fmt: skip
    assert (second["growth_label"], third["growth_label"], third["growth_rate"]) == ("new", "+0.0%", 0)
    assert len(data(gateway, alice, "trending", **SERIES, ending_at=THEN, limit=1)["entries"]) == 1


@pytest.mark.row("B334")
def test_a_weeks_trend_compares_seven_days_with_the_seven_before(gateway: Gateway, alice: Tenant) -> None:
    for back, charge in ((0, "1"), (6, "2"), (7, "0.5"), (13, "0.25"), (14, "100")):
        used(alice, THEN - back * DAY, "lab/a", 1, charge)
    query = {"metric": "cost", "bucket_width": "1w", "ending_at": THEN}
    (entry,) = data(gateway, alice, "trending", **query)["entries"]
    assert (entry["value"], entry["previous_value"], entry["total_value"]) == (3, Decimal("0.75"), Decimal("3.75"))
    assert len(entry["data_points"]) == 14
    assert float(entry["growth_rate"]) == pytest.approx(3.01 / 0.76 - 1, abs=1e-4)
    yesterday = datetime.now(UTC).date() - DAY
    assert data(gateway, alice, "trending", **SERIES)["ending_at"] >= yesterday.isoformat()


# --- performance ----------------------------------------------------------------------------------------------------


def answered(tenant: Tenant, model: str, provider: str, **fields: Any) -> None:
    """A completed generation of 1000 tokens in and 500 out."""
    at = datetime(THEN.year, THEN.month, THEN.day, 12, tzinfo=UTC)
    make_usage(tenant, at, model=model, provider=provider, **fields)
    with transaction.atomic(), connection.cursor() as cursor:
        make(cursor, at.replace(hour=0), at.replace(hour=0) + DAY)


@pytest.mark.row("B335", "B077")
def test_speed_is_told_by_model_and_provider(gateway: Gateway, alice: Tenant) -> None:
    answered(alice, "lab/a", "one", ttft_ms=100, duration_ms=5100)  # 100 tokens a second
    answered(alice, "lab/a-free", "one", ttft_ms=300, duration_ms=5300)
    answered(alice, "lab/a", "two", ttft_ms=1000, duration_ms=2000)  # 500
    answered(alice, "lab/b", "one", stream=False, ttft_ms=9000, duration_ms=10_000)  # 50, and no first token
    answered(alice, "lab/c", "one", status="failed", ttft_ms=None, duration_ms=10, completion_tokens=0)
    throughput = data(gateway, alice, "performance", metric="throughput", **PAST)["entries"]
    assert throughput == [
        {"rank": 1, "model": "lab/a", "label": "lab/a", "icon_url": None, "value": Decimal("136.36"), "providers": [
            {"provider": "two", "label": "two", "value": 500, "requests": 1},
            {"provider": "one", "label": "one", "value": 100, "requests": 2},
        ]},
        {"rank": 2, "model": "lab/b", "label": "lab/b", "icon_url": None, "value": 50, "providers": [
            {"provider": "one", "label": "one", "value": 50, "requests": 1},
        ]},
    ]  # fmt: skip
    (ttft,) = data(gateway, alice, "performance", metric="ttft", **PAST)["entries"]
    assert (ttft["model"], ttft["value"]) == ("lab/a", Decimal("466.7"))
    assert [(one["provider"], one["value"]) for one in ttft["providers"]] == [("one", 200), ("two", 1000)]


@pytest.mark.row("B335")
def test_cache_hits_are_told_by_provider_and_surface(gateway: Gateway, alice: Tenant) -> None:
    # Reads and writes are inside the 1000 prompt tokens: 600 of 2000, and 100 of 1000.
    answered(alice, "lab/a", "one", cached_tokens=600, cache_write_5m_tokens=300)
    answered(alice, "lab/a", "one")
    answered(alice, "lab/a", "two", cached_tokens=100)
    (entry,) = data(gateway, alice, "performance", metric="cache_hit", **PAST)["entries"]
    api = "chat.completions"
    assert entry == {
        "rank": 1, "model": "lab/a", "label": "lab/a", "icon_url": None, "value": Decimal("0.2333"),
        "top_provider": {"provider": "one", "label": "one", "value": Decimal("0.3"), "requests": 2},
        "providers": {
            "one": {"label": "one", "apis": [{"api": api, "value": Decimal("0.3")}]},
            "two": {"label": "two", "apis": [{"api": api, "value": Decimal("0.1")}]},
        },
    }  # fmt: skip


@pytest.mark.row("B335")
def test_the_ten_best_models_are_told(gateway: Gateway, alice: Tenant) -> None:
    for place in range(12):
        answered(alice, f"lab/{place:02}", "one", ttft_ms=100 + place, duration_ms=1100 + place)
    entries = data(gateway, alice, "performance", metric="ttft", **PAST)["entries"]
    assert [(entry["rank"], entry["model"]) for entry in entries] == [(n + 1, f"lab/{n:02}") for n in range(10)]


@pytest.mark.row("B336")
def test_a_run_of_the_worker_makes_them_as_new_as_it(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=7&prompt=11")
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    assert data(gateway, alice, "leaderboard", metric="tokens")["entries"] == []
    assert roll_up_usage()
    (entry,) = data(gateway, alice, "leaderboard", metric="tokens")["entries"]
    assert (entry["model"], entry["label"], entry["value"]) == (model.slug, "Model", 18)
    (cost,) = data(gateway, alice, "leaderboard", metric="cost")["entries"]
    assert cost["value"] == Decimal("0.00005")


def test_a_model_that_the_key_may_not_use_has_no_other_name_here(gateway: Gateway, alice: Tenant) -> None:
    hidden = make_model(make_provider("https://api.example/v1"))
    hidden.name = "Nobody Shall Know"
    hidden.save()
    _, narrow = make_key(alice.project, scopes=["management"], allowed_models=["lab/other"])
    _, wide = make_key(alice.project, scopes=["management"])
    synchronize(gateway)
    query = {"model": hidden.slug, "metric": "cost", "starting_at": "2025-06-18", "ending_at": "2025-06-18"}

    def labelled(secret: str) -> str:
        answer = gateway.client.get(f"{BASE}/model_usage", params=query, headers={"x-api-key": secret})
        assert answer.status_code == 200
        assert answer.json()["data"]["model"] == hidden.slug
        label: str = answer.json()["data"]["label"]
        return label

    assert (labelled(wide), labelled(narrow)) == ("Nobody Shall Know", hidden.slug)
