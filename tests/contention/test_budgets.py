"""Money for exactly so many: X1 and X2. A budget is never passed at any commit, nor refuses money that is there."""

import asyncio
import random
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.db import connections

from billing.backbone.admission import Admission, Held, Refused
from billing.backbone.connections import DatabaseAway
from billing.models import Budget, Counter, Hold, Limit, Tariff, Usage
from routing.models import Provider
from tests.contention.conftest import STATES, Broker, Figures
from tests.contention.crowd import Crowd
from tests.contention.scale import scaled
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import admission, books, database, owner_url, run, wanted
from tests.stage.cast import Tenant, make_key
from tests.stage.clock import clock, in_one_minute, set_clock
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone


def budget(tenant: Tenant, amount: str, period: str = "total", **fields: Any) -> Budget:
    """A hard budget of the organization, or of the given project or key."""
    return Budget.objects.create(organization=tenant.organization, period=period, amount=Decimal(amount), **fields)


WATCH = """
create table seen_state (subject uuid, spoken_for numeric, amount numeric);
grant insert on seen_state to meterline_app;
create function see_state() returns trigger language plpgsql as $$
begin
    insert into seen_state select new.subject, new.used + new.held, b.amount
      from billing_budget b where b.subject = new.subject and b.period = new.period and new.measure = 'money';
    return null;
end $$;
-- Deferred: what is seen is what is committed.
create constraint trigger see_state after insert or update on billing_counter
    deferrable initially deferred for each row execute function see_state();
"""


@pytest.fixture
def states() -> Iterator[Any]:
    """Every committed state of a budget's counter, recorded by the database: a function from subject to states."""

    def of(subject: UUID) -> list[tuple[Decimal, Decimal]]:
        query = "select spoken_for, amount from seen_state where subject = %s"
        return connection.execute(query, [subject]).fetchall()

    with database(owner_url()) as connection:
        connection.execute(WATCH)
        try:
            yield of
        finally:
            connection.execute(
                "drop trigger see_state on billing_counter; drop function see_state; drop table seen_state"
            )


@pytest.mark.parametrize("repeat", range(scaled(4, 100)))
def test_of_200_at_once_exactly_the_10_are_answered_that_there_is_money_for(
    fleet: list[Gateway],
    broker: Broker,
    simulated: SimulatedProvider,
    provider: Provider,
    cents: Tariff,
    alice: Tenant,
    states: Any,
    figures: Figures,
    repeat: int,
) -> None:
    """By turns with a broker that is up, gone, emptied in their midst, and paused."""
    rule = budget(alice, "10")
    slow = make_model(provider, f"budget-{provider.slug}?hold&tokens=16", cents)
    quick = make_model(provider, f"quick-{provider.slug}?tokens=4", cents)
    synchronize(*fleet)

    async def scenario() -> tuple[list[Answer], Answer]:
        async with Clients() as clients:
            crowd = Crowd(clients, fleet, simulated)
            with broker.being(STATES[repeat % 4]) as in_the_midst:
                crowd.ask(100, alice.secret, slow.slug, max_tokens=100)
                await asyncio.to_thread(in_the_midst)
                crowd.ask(100, alice.secret, slow.slug, max_tokens=100)
                await crowd.fill(10, alice.secret, slow.slug, max_tokens=100)
                await crowd.release(1)
                # 84 of its 100 cents are free again, at once and at every process.
                after = await clients.insist(fleet[3].url, alice.secret, model=quick.slug, max_tokens=84)
                await crowd.release()
            return crowd.answered(), after

    answers, after = run(scenario())
    final = sum(answer.final for answer in answers)
    refused = [answer for answer in answers if not answer.final]
    assert final == 10
    assert len(refused) >= 190
    assert {(answer.status, answer.json()["error"]["code"]) for answer in refused} == {(402, "insufficient_credit")}
    assert after.final, after.body

    assert books(alice.organization).problems() == []
    assert Usage.objects.filter(organization=alice.organization.pk, status="completed").count() == 11
    seen = states(rule.subject)
    assert len(seen) >= 4
    assert max(spoken_for for spoken_for, _ in seen) == 10
    assert all(spoken_for <= amount for spoken_for, amount in seen)
    assert Counter.objects.get(subject=rule.subject).used == Decimal("1.64")
    over = float(max(spoken_for - amount for spoken_for, amount in seen))
    figures("X1", answers=final, refusals=len(refused), overshoot_in_dollars=over, false_refusals=10 - final)


NESTED = scaled(60, 200)


@pytest.mark.parametrize("measure", ["money", "tokens"])
def test_nested_counters_are_taken_all_or_none(
    fleet: list[Gateway],
    simulated: SimulatedProvider,
    provider: Provider,
    cents: Tariff,
    charlie: Tenant,
    figures: Figures,
    measure: str,
) -> None:
    """Two keys share a project, which shares the organization: room for 3, 8 and 9. No counter holds for nobody."""
    model = make_model(provider, f"nested-{provider.slug}?hold&tokens=5", cents).slug
    seen: dict[str, Any] = {}

    def play(alice: Tenant) -> None:
        key, second = (make_key(alice.project, name=name, min_output_cap=100) for name in ("first", "second"))
        synchronize(*fleet)

        async def scenario() -> None:
            async with Clients() as clients:
                crowd = Crowd(clients, fleet, simulated)
                crowd.ask(1, charlie.secret, model, max_tokens=100)  # has no bounds
                assert await crowd.waiting() == 1
                ((each,),) = await asyncio.to_thread(
                    on_the_books, "select tokens from billing_hold where organization = %s", charlie
                )
                await asyncio.to_thread(make_rules, alice, key[0], each)
                secrets = [key[1], second[1]] * (NESTED // 2)
                random.Random(3).shuffle(secrets)
                for secret in secrets:
                    crowd.ask(1, secret, model, max_tokens=100)
                await crowd.fill(1 + 8, second[1], model, max_tokens=100)
                query = "select key, count(*) from billing_hold where organization = %s group by key"
                seen["holds"] = dict(await asyncio.to_thread(on_the_books, query, alice))
                query = "select subject, held from billing_counter where organization = %s and held <> 0"
                held = dict(await asyncio.to_thread(on_the_books, query, alice))
                one = 1 if measure == "money" else each
                seen["held"] = {subject: amount / one for subject, amount in held.items()}
                await crowd.release()
                seen["answers"] = Tally(answer.status for answer in crowd.answered())

        def make_rules(alice: Tenant, key: Any, each: int) -> None:
            whose = {9: {}, 8: {"project": alice.project}, 3: {"project": alice.project, "key": key}}
            for (room, bound), period in zip(whose.items(), ("month", "day", "total"), strict=True):
                if measure == "money":
                    budget(alice, str(room), period, **bound)
                else:
                    Limit.objects.create(organization=alice.organization, measure="tokens", value=room * each, **bound)
            connections.close_all()  # this thread's

        run(scenario())
        seen["subjects"] = alice.organization.pk, alice.project.pk, key[0].pk

    alice = in_one_minute(play)
    organization, project, key = seen["subjects"]
    of_key = seen["holds"].get(key, 0)
    assert sum(seen["holds"].values()) == 8
    assert of_key <= 3
    assert seen["held"] == {organization: 8, project: 8} | ({key: of_key} if of_key else {})
    assert seen["answers"][200] == 1 + 8
    assert set(seen["answers"]) == {200, 402 if measure == "money" else 429}
    until(lambda: not Hold.objects.filter(organization=organization).exists())
    assert books(alice.organization).problems() == []
    figures("X1", answers=8, of_the_innermost=of_key, held_for_nobody=0)


def on_the_books(query: str, tenant: Tenant) -> list[Any]:
    """Rows of an organization, from any thread."""
    with database(owner_url()) as owner:
        return owner.execute(query.encode(), [tenant.organization.pk]).fetchall()


def test_a_day_that_ends_in_the_midst_has_its_money_and_so_has_the_next(alice: Tenant, figures: Figures) -> None:
    """Four doors, a clock that comes to midnight: exactly ten of each day, at whatever door."""
    budget(alice, "10", "day")
    held: list[Held] = []
    refused: list[str] = []

    async def one(door: Admission) -> bool:
        with suppress(DatabaseAway):  # who is told to come back does
            try:
                held.append(await door.hold(wanted(alice.key, min_cap=100)))
            except Refused as no:
                refused.append(no.verdict)
                return False
        return True

    async def scenario() -> None:
        with set_clock() as there, database(there.url) as app:
            async with (
                admission(there.url) as first, admission(there.url) as second,
                admission(there.url) as third, admission(there.url) as fourth,
            ):  # fmt: skip
                doors = [first, second, third, fourth] * 10
                there.set(midnight - clock() - timedelta(seconds=0.5))
                over, taken = False, [True]
                while not over or any(taken):
                    ((over,),) = app.execute("select clock_timestamp() >= %s", [midnight]).fetchall()
                    taken = await asyncio.gather(*map(one, doors))

    midnight = clock().replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    run(scenario())
    days = Tally(hold.admitted_at >= midnight for hold in held)
    counters = Counter.objects.filter(subject=alice.organization.pk).order_by("period_start")
    assert [counter.held for counter in counters] == [10, 10]
    assert days == {False: 10, True: 10}
    assert set(refused) == {"credit"}
    figures("X1", answers_a_day=max(days.values()), overshoot=0, refusals=len(refused))


ANSWERS = scaled(200, 10_000)  # about


def test_what_costs_less_than_its_worst_is_spent_to_the_last(
    fleet: list[Gateway],
    simulated: SimulatedProvider,
    cents: Tariff,
    alice: Tenant,
    figures: Figures,
) -> None:
    """50 clients ask until there is nothing for them. An answer costs a cent to 91, and a dollar is held for it."""
    amount = Decimal(ANSWERS) / 2
    rule = budget(alice, str(amount))
    provider = make_provider(simulated.base_url)
    models = [make_model(provider, f"costs-{provider.slug}-{n}?tokens={n * 10 + 1}", cents).slug for n in range(10)]
    _, secret = make_key(alice.project, name="whole", min_output_cap=100)
    synchronize(*fleet)
    chance = random.Random(5)
    grants = 0

    async def client(clients: Clients, number: int, times: int) -> None:
        """Until it has been refused so many times, one after the other, while nobody was granted anything."""
        nonlocal grants
        refusals, before = 0, -1
        while refusals < times:
            refusals, before = (refusals if grants == before else 0), grants
            url = fleet[(number + grants) % 4].url
            answer = await clients.insist(url, secret, model=chance.choice(models), max_tokens=100)
            if answer.status == 200:
                grants += 1
            else:
                assert (answer.status, answer.json()["error"]["code"]) == (402, "insufficient_credit")
                refusals += 1

    async def scenario() -> list[Answer]:
        async with Clients() as clients:
            await asyncio.gather(*(client(clients, number, 3) for number in range(50)))
            await client(clients, 0, 1)  # alone: now nobody else holds anything
            return clients.journal

    journal = run(scenario())
    until(lambda: not Hold.objects.filter(organization=alice.organization.pk).exists())
    counter = Counter.objects.get(subject=rule.subject)
    answers = sum(answer.final for answer in journal)
    assert counter.held == 0 and counter.used <= amount
    assert amount - counter.used < 1
    assert answers == Usage.objects.filter(organization=alice.organization.pk, status="completed").count()
    assert answers > 1.5 * float(amount)
    assert books(alice.organization).problems() == []
    figures("X2", answers=answers, unspent_percent=float(100 * (1 - counter.used / amount)))


def test_a_raised_budget_is_there_at_once(
    fleet: list[Gateway], provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    rule = budget(alice, "0")
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    synchronize(*fleet)
    assert {gateway.chat(alice.secret, model.slug).status_code for gateway in fleet} == {402}
    rule.amount = Decimal(1)
    rule.save()
    assert {gateway.chat(alice.secret, model.slug).status_code for gateway in fleet} == {200}
    until(lambda: not Hold.objects.filter(organization=alice.organization.pk).exists())
    assert books(alice.organization).problems() == []
