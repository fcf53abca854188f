"""Limits over four processes with Redis dead: exact, whoever asks where; a refusal says which one and for how long."""

import asyncio
import math
import random
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from billing.backbone.admission import Admission, Held, HoldItem, Refused
from billing.backbone.settlement import encode
from billing.models import Budget, Counter, Hold, Limit, Usage
from routing.models import Model, Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import admission, backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant, make_key, make_tenant
from tests.stage.clock import set_clock
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

pytest_plugins = ["tests.stage.fleet"]
pytestmark = pytest.mark.backbone


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


def limit(tenant: Tenant, measure: str, value: int, **fields: Any) -> Limit:
    """A limit of the organization, or of the given project or key."""
    return Limit.objects.create(organization=tenant.organization, measure=measure, value=value, **fields)


def clock() -> datetime:
    """The database's."""
    with database(owner_url()) as connection:
        ((now,),) = connection.execute("select clock_timestamp()").fetchall()
    assert isinstance(now, datetime)
    return now.astimezone(UTC)


def minute(moment: datetime) -> datetime:
    """When its window began."""
    return moment.replace(second=0, microsecond=0)


def in_one_minute(play: Callable[[Tenant], None]) -> Tenant:
    """Plays a scenario with a fresh tenant within one minute of the database's clock: again, should the first try
    have begun in one minute and ended in the next.
    """
    for _ in range(3):
        tenant, before = make_tenant("alice"), minute(clock())
        play(tenant)
        if minute(clock()) == before:
            return tenant
    raise AssertionError("three minutes have ended meanwhile")


async def persistent(clients: Clients, fleet: list[Gateway], number: int, secret: str, **body: Any) -> Answer:
    """What one of the fleet answers in the end."""
    return await clients.insist(fleet[number % 4].url, secret, **body)


def strays(tenant: Tenant) -> int:
    """Holds that came too late for their requests and were given back; each of these was told to come back."""
    return Usage.objects.filter(organization=tenant.organization.pk, error="not_dialled").count()


def at_rest(tenant: Tenant) -> None:
    """Returns once nothing is held, with right books."""
    until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), 10)
    assert books(tenant.organization).problems() == []


def test_of_1000_requests_at_once_exactly_a_hundred_are_taken_in_a_minute(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider
) -> None:
    name = f"minute-{provider.slug}?tokens=2"
    model = make_model(provider, name)
    answers: list[Answer] = []

    def play(tenant: Tenant) -> None:
        limit(tenant, "requests", 100)
        synchronize(*fleet)
        simulated.reset()

        async def scenario() -> list[Answer]:
            async with Clients() as clients:
                return await asyncio.gather(
                    *(persistent(clients, fleet, n, tenant.secret, model=model.slug) for n in range(1000))
                )

        answers[:] = run(scenario())

    tenant = in_one_minute(play)
    at_rest(tenant)
    found = Tally(answer.status for answer in answers)
    print(f"{dict(found)}, {strays(tenant)} strays; slowest {max(answer.seconds for answer in answers):.2f} s")
    # A stray has taken its place in the minute: it was admitted, if too late to be used.
    assert found == {200: 100 - strays(tenant), 429: 900 + strays(tenant)}
    assert all(answer.final for answer in answers if answer.status == 200)
    refused = [answer for answer in answers if answer.status == 429]
    assert {answer.json()["error"]["code"] for answer in refused} == {"rate_limit_exceeded"}
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in refused} == {"100"}
    assert {answer.json()["error"]["message"] for answer in refused} == {
        "The organization's limit of 100 requests a minute is reached."
    }
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="requests")
    assert counter.used == 100
    assert counter.held == 0
    # A refused request reaches no provider and leaves no row.
    assert sum(line["model"] == name for line in simulated.bill()) == found[200]
    assert Usage.objects.filter(organization=tenant.organization.pk, error="").count() == found[200]


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


def test_of_30_requests_at_once_exactly_seven_are_open(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider, alice: Tenant
) -> None:
    limit(alice, "open", 7)
    model = make_model(provider, f"open-{provider.slug}?hold&tokens=2")
    synchronize(*fleet)

    async def scenario() -> tuple[list[Answer], list[Answer]]:
        async with Clients() as clients:
            asking: list[asyncio.Task[Answer]] = []

            def ask(count: int) -> None:
                first = len(asking)
                wishes = (
                    persistent(clients, fleet, n, alice.secret, model=model.slug) for n in range(first, first + count)
                )
                asking.extend(map(asyncio.create_task, wishes))

            async def settle_down() -> int:
                """How many wait at the provider once everybody else has been told no."""
                await asyncio.to_thread(
                    until, lambda: simulated.state()["waiting"] + sum(map(asyncio.Task.done, asking)) == len(asking), 30
                )
                return int(simulated.state()["waiting"])

            ask(30)
            waiting = await settle_down()
            if waiting < 7:
                # Only one that was told to come back may have stood in another's way for a moment.
                assert sum(answer.status == 503 for answer in clients.journal) >= 7 - waiting
                ask(7 - waiting)
                waiting = await settle_down()
            assert waiting == 7, Tally((answer.status, answer.body[:200]) for answer in clients.journal)
            refused = [task.result() for task in asking if task.done()]

            simulated.release(1)
            still = [task for task in asking if not task.done()]
            await asyncio.wait(still, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            # One is free, at every process at once, and no second.
            ask(2)
            assert await settle_down() == 7
            simulated.release()
            return refused, await asyncio.gather(*asking)

    refused, answers = run(scenario())
    assert len(refused) >= 23
    assert {(answer.status, answer.json()["error"]["code"]) for answer in refused} == {(429, "rate_limit_exceeded")}
    found = Tally(answer.status for answer in answers)
    assert found == {200: 8, 429: len(answers) - 8}
    at_rest(alice)
    assert Counter.objects.get(organization=alice.organization.pk, measure="open").held == 0


def test_tokens_a_minute_are_never_passed_at_their_worst(
    fleet: list[Gateway], provider: Provider, simulated: SimulatedProvider
) -> None:
    """100 requests of 10 to 100 tokens each at worst, against 5,000. All that are taken wait, so room only shrinks."""
    model = make_model(provider, f"tokens-{provider.slug}?hold&tokens=5")
    caps = [random.Random(7).randrange(10, 100) for _ in range(100)]
    seen: dict[str, Any] = {}

    def play(tenant: Tenant) -> None:
        limit(tenant, "tokens", 5000)
        synchronize(*fleet)
        before = minute(clock())

        async def scenario() -> list[Answer]:
            async with Clients() as clients:
                asking = [
                    asyncio.create_task(persistent(clients, fleet, n, tenant.secret, model=model.slug, max_tokens=cap))
                    for n, cap in enumerate(caps)
                ]
                await asyncio.to_thread(
                    until, lambda: simulated.state()["waiting"] + sum(map(asyncio.Task.done, asking)) == len(asking), 30
                )
                seen.update(await asyncio.to_thread(_held, tenant.organization.pk))
                seen["same minute"] = minute(await asyncio.to_thread(clock)) == before
                simulated.release()
                return await asyncio.gather(*asking)

        seen["answers"] = run(scenario())
        seen["strays"] = strays(tenant)

    tenant = in_one_minute(play)
    answers, holds = seen["answers"], seen["holds"]
    taken = [cap for cap, answer in zip(caps, answers, strict=True) if answer.status == 200]
    refused = [cap for cap, answer in zip(caps, answers, strict=True) if answer.status == 429]
    assert len(taken) + len(refused) == 100
    assert taken
    ((prompt,),) = {(tokens - cap,) for tokens, cap in holds}  # they all say the same
    assert sorted(cap for _, cap in holds) == sorted(taken)
    worst = sum(cap + prompt for cap in taken)
    print(f"{len(taken)} taken, {worst} of 5000 tokens at worst, {seen['strays']} strays")
    assert worst == seen["held"] <= 5000
    # And nobody was refused for nothing: none of them would fit now.
    if not seen["strays"]:
        assert worst + min(refused) + prompt > 5000

    at_rest(tenant)
    counter = Counter.objects.get(organization=tenant.organization.pk, measure="tokens")
    used = sum(answer.json()["usage"]["total_tokens"] for answer in answers if answer.status == 200)
    assert counter.used == used
    assert counter.held == 0
    assert used <= 5000


def _held(organization: UUID) -> dict[str, Any]:
    """The tokens and output cap of each hold, and what the counter holds, from any thread."""
    with database(owner_url()) as connection:
        holds = connection.execute(
            "select tokens, output_cap from billing_hold where organization = %s", [organization]
        ).fetchall()
        held = connection.execute(
            "select sum(held) from billing_counter where organization = %s and measure = 'tokens'", [organization]
        ).fetchall()
    return {"holds": holds, "held": held[0][0]}


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


def test_a_changed_limit_binds_at_once_at_every_process(
    fleet: list[Gateway], provider: Provider, charlie: Tenant
) -> None:
    """Set, lowered, raised and taken away while requests run; nobody else's are counted."""
    model: Model = make_model(provider)
    found: list[list[int]] = []

    def play(tenant: Tenant) -> None:
        def answers() -> list[int]:
            return [gateway.chat(tenant.secret, model.slug).status_code for gateway in fleet]

        synchronize(*fleet)
        found[:] = [answers()]
        rule = limit(tenant, "requests", 3)
        found.append(answers())
        rule.value = 5
        rule.save()
        found.append(answers())
        rule.value = 2
        rule.save()
        found.append(answers())
        assert fleet[0].chat(charlie.secret, model.slug).status_code == 200
        rule.delete()
        synchronize(*fleet)  # what was refused is counted in the gateways, under the limit that they have heard of
        found.append(answers())

    in_one_minute(play)
    full, none = [200] * 4, [429] * 4
    assert found == [full, [200, 200, 200, 429], [200, 200, 429, 429], none, full]


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
