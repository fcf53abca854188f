"""Limits: exact, by whatever clock; a refusal says which one and for how long. Many at once: `tests/contention`."""

import asyncio
import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.backbone.admission import Admission, Held, HoldItem, Refused
from billing.backbone.settlement import encode
from billing.models import Budget, Counter, Hold, Limit, Usage
from routing.models import Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import admission, backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant, make_key
from tests.stage.clock import clock, in_one_minute, minute, set_clock
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def limit(tenant: Tenant, measure: str, value: int, **fields: Any) -> Limit:
    """A limit of the organization, or of the given project or key."""
    return Limit.objects.create(organization=tenant.organization, measure=measure, value=value, **fields)


def at_rest(tenant: Tenant) -> None:
    """Returns once nothing is held, with right books."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), 10)
    assert books(tenant.organization).problems() == []


def test_a_new_minute_begins_with_nothing_used(gateway: Gateway, provider: Provider, alice: Tenant) -> None:
    model = make_model(provider)
    limit(alice, "requests", 1)
    synchronize(gateway)
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_counter set period_start = period_start - interval '1 minute' where subject = %s",
            [alice.organization.pk],
        )
    assert gateway.chat(alice.secret, model.slug).status_code == 200


def test_five_at_once_hold_what_they_may_use_and_one_fits(tmp_path: Path) -> None:
    """60 tokens each at worst against 100 a minute. What it does not use is room for the next one."""
    seen: dict[str, Any] = {}

    def play(tenant: Tenant) -> None:
        limit(tenant, "tokens", 100)

        def ask() -> HoldItem:
            return wanted(tenant.key, tokens=10, cap=50, min_cap=50)

        async def scenario() -> None:
            async with backbone(tmp_path / tenant.organization.slug) as here:
                items = [ask() for _ in range(5)]
                seen["answers"] = await asyncio.gather(*map(here.admission.hold, items), return_exceptions=True)
                ((item, held),) = [
                    pair for pair in zip(items, seen["answers"], strict=True) if isinstance(pair[1], Held)
                ]
                await here.settler.settle(settled(item, held, prompt_tokens=10, completion_tokens=30))
                seen["next"] = await here.admission.hold(ask())

        run(scenario())

    tenant = in_one_minute(play)
    refused = [answer for answer in seen["answers"] if isinstance(answer, Refused)]
    assert {(answer.verdict, answer.limit) for answer in refused} == {("tokens", Decimal(100))}
    assert len(refused) == 4
    assert all(answer.retry_after is not None and 0 < answer.retry_after <= 60 for answer in refused)
    assert seen["next"].output_cap == 50
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="tokens")
    assert (counter.used, counter.held) == (Decimal(40), Decimal(0))  # a process that stops gives back what it holds


@pytest.mark.parametrize("stream", [False, True])
def test_streams_use_up_a_minutes_tokens_as_other_answers_do(
    gateway: Gateway, provider: Provider, simulated: SimulatedProvider, stream: bool
) -> None:
    """80 tokens each against 300 a minute: three fit, and once it is known what they use the fourth is refused."""
    model = make_model(provider, f"streams-{provider.slug}?tokens=70&prompt=10")
    answers: list[int] = []

    def play(tenant: Tenant) -> None:
        limit(tenant, "tokens", 300)
        synchronize(gateway)
        asked = [gateway.chat(tenant.secret, model.slug, max_tokens=70, stream=stream) for _ in range(5)]
        answers[:] = [answer.status_code for answer in asked]

    tenant = in_one_minute(play)
    assert answers == [200, 200, 200, 429, 429]
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="tokens")
    assert (counter.used, counter.held) == (Decimal(240), Decimal(0))
    at_rest(tenant)


def test_tokens_count_every_copy_that_is_asked_for(gateway: Gateway, provider: Provider) -> None:
    """Of 200 tokens the prompt takes about 25, so three copies may have 58 each, which is not 60."""
    model = make_model(provider, "sim-small?tokens=60&prompt=5")
    answers: list[Any] = []

    def play(tenant: Tenant) -> None:
        limit(tenant, "tokens", 200)
        synchronize(gateway)
        answers[:] = [gateway.chat(tenant.secret, model.slug, max_tokens=60, n=copies) for copies in (3, 1)]

    in_one_minute(play)
    assert [answer.status_code for answer in answers] == [200, 429]
    assert 150 < answers[0].json()["usage"]["completion_tokens"] < 180


WORDS = {"requests": "requests a minute", "tokens": "tokens a minute", "open": "open requests"}


@pytest.mark.parametrize("measure", ["requests", "tokens", "open"])
@pytest.mark.parametrize("subject", ["key", "project", "organization"])
def test_a_refusal_names_the_limit_and_when_to_come_back(
    gateway: Gateway, provider: Provider, simulated: SimulatedProvider, alice: Tenant, subject: str, measure: str
) -> None:
    """A limit of 0 refuses the first request; another key is bound by what it shares."""
    name = f"refusal-{provider.slug}"
    model = make_model(provider, name)
    bindings: dict[str, dict[str, Any]] = {
        "key": {"project": alice.project, "key": alice.key},
        "project": {"project": alice.project},
        "organization": {},
    }
    limit(alice, measure, 0, **bindings[subject])
    _, other = make_key(alice.project, name="other")
    synchronize(gateway)

    before = clock()
    answer = gateway.chat(alice.secret, model.slug)
    after = clock()
    if measure == "tokens":  # which no request ever fits
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "token_limit_too_low")
        assert "Retry-After" not in answer.headers
        assert not Usage.objects.filter(organization=alice.organization.pk).exists()
        assert not any(line["model"] == name for line in simulated.lines())
        return
    assert answer.status_code == 429
    assert answer.json() == {
        "error": {
            "message": f"The {subject}'s limit of 0 {WORDS[measure]} is reached.",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    assert answer.headers[f"x-ratelimit-limit-{measure}"] == "0"
    assert answer.headers[f"x-ratelimit-remaining-{measure}"] == "0"
    assert answer.headers["Retry-After"] in {str(second) for second in seconds_left(measure, before, after)}
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert not any(line["model"] == name for line in simulated.lines())
    assert gateway.chat(other, model.slug).status_code == (200 if subject == "key" else 429)


def seconds_left(measure: str, before: datetime, after: datetime) -> Iterable[int]:
    """What Retry-After may say to a refusal between two moments: whole seconds to the window's end, rounded up."""
    if measure == "open":
        return {1}
    if minute(after) > minute(before):
        return range(1, 61)
    most, least = (math.ceil((minute(m) + timedelta(minutes=1) - m).total_seconds()) for m in (before, after))
    assert 1 <= least <= most <= 60
    return range(least, most + 1)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_minute_an_hour_away_has_its_own_count_and_the_first_one_is_not_forgotten(hours: int) -> None:
    verdicts: list[list[str]] = []

    async def scenario(tenant: Tenant) -> None:
        with set_clock() as there:
            async with admission(there.url) as door:
                for ahead in (0, hours, 0):
                    there.set(timedelta(hours=ahead))
                    verdicts.append([await verdict(door, wanted(tenant.key)) for _ in range(3)])

    def play(tenant: Tenant) -> None:
        limit(tenant, "requests", 2)
        verdicts.clear()
        run(scenario(tenant))

    in_one_minute(play)
    taken = ["admitted", "admitted", "requests"]
    assert verdicts == [taken, taken, ["requests"] * 3]


async def verdict(door: Admission, item: HoldItem) -> str:
    """What becomes of a request. Whoever is refused for a minute need not wait for longer."""
    try:
        await door.hold(item)
    except Refused as no:
        assert no.retry_after is None or 1 <= no.retry_after <= 60
        return no.verdict
    return "admitted"


def test_a_day_s_money_is_spent_in_the_day_that_it_was_held_in_wherever_the_clock_goes(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="day", amount=Decimal(1))
    today, tomorrow, late = (wanted(alice.key, cap=60, min_cap=60) for _ in range(3))

    async def scenario() -> None:
        with set_clock() as there, database(there.url) as app:
            async with admission(there.url) as door:
                held = [await door.hold(today)]
                there.set(timedelta(days=1))
                held.append(await door.hold(tomorrow))
                there.set(timedelta(0))
                assert await verdict(door, late) == "credit"  # 40 cents are left, and 60 are the least
                for item, hold in zip((today, tomorrow), held, strict=True):
                    row = encode(settled(item, hold, "0.6")).decode()
                    app.execute("select billing_settle(%s::jsonb)", [f"[{row}]"])

    run(scenario())
    first, second = Counter.objects.filter(organization=alice.organization.pk).order_by("period_start")
    assert second.period_start - first.period_start == timedelta(days=1)
    assert [(day.used, day.held) for day in (first, second)] == [(Decimal("0.6"), Decimal(0))] * 2
