"""The management endpoints: an organization's balance and usage, and what a key has left."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from django.db import connection
from django.utils import timezone

from billing.models import Budget, Usage
from gateway.models import ReadCount
from tests.simulated.process import SimulatedProvider
from tests.stage.cast import Tenant, make_key
from tests.stage.product import Gateway, running, synchronize
from tests.stage.shelf import make_model, make_provider, make_tariff

BALANCES = ("/api/v1/management/payg/balance", "/v1/management/payg/balance", "/v1/user/balance")
USAGE = "/api/v1/management/usage"
QUOTAS = ("/api/usage/token", "/api/usage/token/")


def manager(tenant: Tenant, **fields: Any) -> str:
    """A management key of the tenant's."""
    return make_key(tenant.project, name="manager", scopes=["management"], **fields)[1]


def get(gateway: Gateway, path: str, secret: str, **query: str) -> httpx.Response:
    """GETs `path` with a key."""
    return gateway.client.get(path, params=query, headers={"x-api-key": secret})


def exact(response: httpx.Response) -> Any:
    """The body with its numbers as `Decimal`."""
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_float=Decimal)


def spend(gateway: Gateway, tenant: Tenant, simulated: SimulatedProvider, count: int = 1) -> Decimal:
    """Lets the tenant's key spend; the dollars, 0.000050 each."""
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=7&prompt=11")
    synchronize(gateway)
    for _ in range(count):
        assert gateway.chat(tenant.secret, model.slug).status_code == 200
    return Decimal("0.000050") * count


# --- who may ask ----------------------------------------------------------------------------------------------------


@pytest.mark.row("B322")
@pytest.mark.parametrize("path", [*BALANCES, USAGE])
def test_management_is_for_management_keys(gateway: Gateway, alice: Tenant, path: str) -> None:
    assert gateway.client.get(path).status_code == 401
    _, others = make_key(alice.project, scopes=["inference", "files", "export"])
    _, elsewhere = make_key(alice.project, scopes=["management"], allowed_endpoints=["generation"])
    for secret, code in (
        (alice.secret, "missing_scope"),
        (others, "missing_scope"),
        (elsewhere, "endpoint_not_allowed"),
    ):
        answer = get(gateway, path, secret)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, code)
    assert get(gateway, path, manager(alice)).status_code == 200


@pytest.mark.row("B322")
def test_a_dialect_tells_the_refusal_in_its_own_words(gateway: Gateway, alice: Tenant) -> None:
    _, secret = make_key(alice.project, dialect="zenmux")
    answer = get(gateway, BALANCES[0], secret)
    assert answer.status_code == 403
    assert answer.json()["error"]["type"] == "access_denied"


def test_a_management_key_does_not_chat(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    model = make_model(make_provider(simulated.base_url))
    synchronize(gateway)
    secret = manager(alice)
    assert gateway.chat(secret, model.slug).status_code == 403
    assert get(gateway, "/v1/models", secret).status_code == 403
    assert not Usage.objects.filter(organization=alice.organization.id).exists()


@pytest.mark.row("B325", "B327")
@pytest.mark.parametrize("path", ["flow_rate", "subscription/detail", "statistics", "payg", "nothing"])
def test_what_is_not_served_is_not_found(gateway: Gateway, alice: Tenant, path: str) -> None:
    assert get(gateway, f"/api/v1/management/{path}", manager(alice)).status_code == 404


# --- how often ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strict(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Gateway]]:
    """Two gateways whose keys may read each endpoint three times a minute."""
    with running(tmp_path_factory.mktemp("strict"), 2, MANAGEMENT_READS_A_MINUTE="3") as gateways:
        yield gateways


def in_one_minute(act: Callable[[], Any]) -> Any:
    """What `act` returns when no minute of the database's clock ended meanwhile; else it is called once more."""
    for _ in range(2):
        before = minute()
        result = act()
        if minute() == before:
            break
    return result


def minute() -> Any:
    """The minute on the database's clock."""
    with connection.cursor() as cursor:
        cursor.execute("select date_trunc('minute', clock_timestamp())")
        return cursor.fetchone()


@pytest.mark.row("B324")
@pytest.mark.parametrize(
    ("paths", "status"),
    [(BALANCES, 200), ((USAGE,), 200), (QUOTAS, 200), (("/v1/management/generation", "/v1/generation"), 400)],
)
def test_a_key_reads_so_many_times_a_minute_whichever_process_answers(
    strict: list[Gateway], alice: Tenant, paths: tuple[str, ...], status: int
) -> None:
    def read() -> tuple[str, list[httpx.Response]]:
        _, secret = make_key(alice.project, scopes=["management"])
        synchronize(*strict)
        return secret, [get(strict[n % 2], paths[n % len(paths)], secret) for n in range(6)]

    secret, answers = in_one_minute(read)
    assert [answer.status_code for answer in answers] == [status] * 3 + [422] * 3
    for refused in answers[3:]:
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert refused.json()["error"] == {
            "message": "A key may read this 3 times a minute.",
            "type": "rate_limit_error",
            "param": None,
            "code": "too_many_reads",
        }
    other = BALANCES[0] if paths is not BALANCES else USAGE
    assert get(strict[0], other, secret).status_code == 200, "each endpoint has a count of its own"
    assert get(strict[0], paths[0], manager(alice)).status_code == status, "and each key"


@pytest.mark.row("B324")
@pytest.mark.parametrize(
    ("minutes", "status", "reads"),
    [(-1, 200, 1), (1, 422, 10), (60, 200, 1)],
    ids=["a new minute", "a call that waited", "a clock that was set back"],
)
def test_a_new_minute_counts_anew(strict: list[Gateway], alice: Tenant, minutes: int, status: int, reads: int) -> None:
    key, secret = make_key(alice.project, scopes=["management"])
    latest = timezone.now().replace(second=0, microsecond=0) + timedelta(minutes=minutes)
    ReadCount.objects.create(key=key.id, endpoint="balance", minute=latest, reads=9)
    synchronize(*strict)
    answer = get(strict[0], BALANCES[0], secret)
    assert answer.status_code == status
    found = ReadCount.objects.get(key=key.id)
    assert (found.reads, found.minute <= timezone.now()) == (reads, status == 200)


@pytest.mark.row("B324")
def test_reads_at_once_do_not_share_the_last_turn(strict: list[Gateway], alice: Tenant) -> None:
    def read() -> list[int]:
        _, secret = make_key(alice.project, scopes=["management"])
        synchronize(*strict)

        def one(n: int) -> int:
            return httpx.get(f"{strict[n % 2].url}{USAGE}", headers={"x-api-key": secret}, timeout=30).status_code

        with ThreadPoolExecutor(8) as pool:
            return sorted(pool.map(one, range(12)))

    assert in_one_minute(read) == [200] * 3 + [422] * 9


# --- balance --------------------------------------------------------------------------------------------------------


@pytest.mark.row("B323", "B326", "B338")
@pytest.mark.parametrize("path", BALANCES)
def test_the_balance_is_what_is_left_of_the_organizations_budget(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider, path: str
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("12.5"))
    Budget.objects.create(organization=alice.organization, period="day", amount=Decimal("3"))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="total", amount=Decimal("1"))
    Budget.objects.create(organization=charlie.organization, period="total", amount=Decimal("99"))
    secret = manager(alice)
    untouched = {
        "currency": "usd",
        "total_credits": Decimal("12.5"),
        "top_up_credits": Decimal("12.5"),
        "bonus_credits": 0,
        "held_credits": 0,
    }
    assert exact(get(gateway, path, secret)) == {"success": True, "data": untouched}
    left = Decimal("12.5") - spend(gateway, alice, simulated, 2)
    data = exact(get(gateway, path, secret))["data"]
    assert data == untouched | {"total_credits": left, "top_up_credits": left}
    assert left == Decimal("12.4999")


@pytest.mark.row("B326")
def test_what_a_running_request_holds_is_told_apart(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(5))
    model = make_model(make_provider(simulated.base_url), "sim-small?tokens=5&hold=2")
    synchronize(gateway)
    body = {
        "model": model.slug,
        "stream": True,
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "hi"}],
    }
    url, headers = f"{gateway.url}/v1/chat/completions", {"x-api-key": alice.secret}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=30) as running:
        assert running.status_code == 200
        data = exact(get(gateway, BALANCES[0], manager(alice)))["data"]
    assert data["total_credits"] == 5
    assert Decimal("0.004") < data["held_credits"] < Decimal("0.1")  # 1000 output tokens at $4 a million, and the input


@pytest.mark.row("B326")
def test_without_a_budget_there_is_no_balance(gateway: Gateway, alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(5))
    assert exact(get(gateway, BALANCES[0], manager(alice)))["data"] == {
        "currency": "usd",
        "total_credits": None,
        "top_up_credits": None,
        "bonus_credits": None,
        "held_credits": None,
    }


# --- a key's quota --------------------------------------------------------------------------------------------------


@pytest.mark.row("B337")
@pytest.mark.parametrize("path", QUOTAS)
def test_a_key_learns_what_it_has_left(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider, path: str
) -> None:
    Budget.objects.create(organization=alice.organization, key=alice.key, period="total", amount=Decimal("2.5"))
    Budget.objects.create(organization=alice.organization, key=alice.key, period="day", amount=Decimal("1"))
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("7"))
    used = spend(gateway, alice, simulated)
    body = exact(get(gateway, path, alice.secret))
    assert body == {
        "code": True,
        "message": "ok",
        "data": {
            "object": "token_usage",
            "name": alice.key.name,
            "total_granted": Decimal("2.5"),
            "total_used": used,
            "total_available": Decimal("2.5") - used,
            "total_held": 0,
            "currency": "usd",
            "period": "total",
            "unlimited_quota": False,
            "model_limits": {},
            "model_limits_enabled": False,
            "expires_at": 0,
        },
    }


@pytest.mark.row("B337")
def test_a_key_without_a_budget_is_unlimited_and_says_what_else_binds_it(gateway: Gateway, alice: Tenant) -> None:
    end = datetime(2100, 1, 1, tzinfo=UTC)
    _, secret = make_key(alice.project, name="bound", allowed_models=["b/2", "a/1"], expires_at=end)
    data = exact(get(gateway, QUOTAS[0], secret))["data"]
    assert (data["unlimited_quota"], data["period"], data["name"]) == (True, None, "bound")
    assert (data["total_granted"], data["total_used"], data["total_available"]) == (0, None, 0)
    assert (data["model_limits"], data["model_limits_enabled"]) == ({"a/1": True, "b/2": True}, True)
    assert data["expires_at"] == 4102444800


@pytest.mark.row("B337")
def test_the_running_month_counts_where_there_is_no_total(
    gateway: Gateway, alice: Tenant, simulated: SimulatedProvider
) -> None:
    Budget.objects.create(organization=alice.organization, key=alice.key, period="month", amount=Decimal("2"))
    Budget.objects.create(organization=alice.organization, key=alice.key, period="day", amount=Decimal("1"))
    used = spend(gateway, alice, simulated)
    data = exact(get(gateway, QUOTAS[0], alice.secret))["data"]
    assert (data["period"], data["total_granted"], data["total_used"]) == ("month", 2, used)


def test_a_quota_needs_a_key_that_infers_or_manages(gateway: Gateway, alice: Tenant) -> None:
    assert gateway.client.get(QUOTAS[0]).status_code == 401
    assert get(gateway, QUOTAS[0], manager(alice)).status_code == 200
    _, files = make_key(alice.project, scopes=["files"])
    assert get(gateway, QUOTAS[0], files).status_code == 403


# --- usage ----------------------------------------------------------------------------------------------------------


def move(model: str, moment: datetime) -> None:
    """Lets the generations of a model have been at another time, ids included."""
    for row in Usage.objects.filter(model=model):
        milliseconds = int(moment.timestamp() * 1000)
        id = f"{milliseconds:012x}{row.id.hex[12:]}"
        Usage.objects.filter(id=row.id).update(id=id, created_at=moment)


@pytest.mark.row("B323")
def test_usage_is_told_by_day_and_model_for_the_own_organization(
    gateway: Gateway, alice: Tenant, charlie: Tenant, simulated: SimulatedProvider
) -> None:
    provider = make_provider(simulated.base_url)
    one = make_model(provider, "sim-small?tokens=7&prompt=11&cached=4")
    two = make_model(provider, "sim-small?tokens=3&prompt=5", make_tariff(input=("1", "2")))
    synchronize(gateway)
    for tenant, model in ((alice, one), (alice, one), (alice, two), (charlie, one)):
        assert gateway.chat(tenant.secret, model.slug).status_code == 200
    today = Usage.objects.filter(model=one.slug).latest("created_at").created_at.astimezone(UTC).date().isoformat()
    first = {
        "requests": 2,
        "prompt_tokens": 22,
        "completion_tokens": 14,
        "total_tokens": 36,
        "cached_tokens": 8,
        "reasoning_tokens": 0,
        "cost": Decimal("0.0001"),
        "unpriced_requests": 0,
    }
    second = {
        "requests": 1,
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "cached_tokens": 0,
        "reasoning_tokens": 0,
        "cost": Decimal("0.00001"),  # of the prompt; what was written has no price
        "unpriced_requests": 1,
    }
    secret = manager(alice)
    by_model = exact(get(gateway, USAGE, secret, group_by="model"))
    assert by_model["success"] is True
    assert {row.pop("model"): row for row in by_model["data"]["entries"]} == {one.slug: first, two.slug: second}
    by_both = exact(get(gateway, USAGE, secret, group_by="day,model"))["data"]
    assert {(row.pop("date"), row.pop("model")): row for row in by_both["entries"]} == {
        (today, one.slug): first,
        (today, two.slug): second,
    }
    by_day = exact(get(gateway, USAGE, secret))["data"]
    assert (by_day["group_by"], by_day["ending_at"]) == (["day"], today)
    assert by_day["starting_at"] == (date.fromisoformat(today) - timedelta(days=6)).isoformat()
    (row,) = by_day["entries"]
    assert (row["date"], row["requests"], row["cost"]) == (today, 3, Decimal("0.00011"))


def test_both_days_of_a_range_belong_to_it(gateway: Gateway, alice: Tenant, simulated: SimulatedProvider) -> None:
    spent = spend(gateway, alice, simulated)
    model = Usage.objects.get(organization=alice.organization.id).model
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    secret = manager(alice)
    for moment, day in ((today, today), (today - timedelta(microseconds=1), today - timedelta(days=1))):
        move(model, moment)
        for begin, end, found in ((-1, 1, 1), (0, 0, 1), (-2, -1, 0), (1, 2, 0)):
            query = {
                "starting_at": (day + timedelta(days=begin)).date().isoformat(),
                "ending_at": (day + timedelta(days=end)).date().isoformat(),
            }
            entries = exact(get(gateway, USAGE, secret, **query))["data"]["entries"]
            assert [(row["date"], row["cost"]) for row in entries] == [(day.date().isoformat(), spent)] * found


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ({"starting_at": "2026-01-01", "ending_at": "2026-02-01"}, "starting_at"),
        ({"starting_at": "2026-01-02", "ending_at": "2026-01-01"}, "starting_at"),
        ({"starting_at": "20260101"}, "starting_at"),
        ({"starting_at": "yesterday"}, "starting_at"),
        ({"ending_at": "2026-02-30"}, "ending_at"),
        ({"ending_at": "9999-12-31"}, "ending_at"),
        ({"ending_at": "2026-01-01T00:00:00Z"}, "ending_at"),
        ({"group_by": "hour"}, "group_by"),
        ({"group_by": "day,day"}, "group_by"),
        ({"group_by": "day,"}, "group_by"),
    ],
)
def test_a_range_that_makes_no_sense_is_refused(
    gateway: Gateway, alice: Tenant, query: dict[str, str], param: str
) -> None:
    answer = get(gateway, USAGE, manager(alice), **query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_thirty_one_days_may_be_asked_for_at_once(gateway: Gateway, alice: Tenant) -> None:
    data = exact(get(gateway, USAGE, manager(alice), starting_at="2026-01-01", ending_at="2026-01-31"))["data"]
    assert data["entries"] == []
