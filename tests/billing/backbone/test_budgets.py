"""Budgets under parallel requests: never passed at any commit, never refusing money that is there."""

import asyncio
import json
import random
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from billing.backbone.admission import Refused
from billing.backbone.backbone import Backbone
from billing.backbone.connections import DatabaseAway
from billing.models import Budget, Counter, Hold, Tariff, Usage
from routing.models import Provider
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant, make_key
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, synchronize, until
from tests.stage.shelf import make_model, make_provider, make_tariff

pytest_plugins = ["tests.stage.fleet"]
pytestmark = pytest.mark.backbone


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def cents() -> Tariff:
    """A cent for an output token, nothing for input: the worst case is the cap in cents."""
    return make_tariff(input="0", output=("5000", "10000"))


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


@contextmanager
def no_deadlock() -> Iterator[None]:
    """The database sees no deadlock meanwhile."""
    query = "select deadlocks from pg_stat_database where datname = current_database()"
    with database(owner_url()) as connection:
        before = connection.execute(query).fetchall()
        yield
        connection.execute("select pg_sleep(1.2)")  # backends report at most every second
        assert connection.execute(query).fetchall() == before


@pytest.mark.parametrize("attempt", range(5))
def test_of_200_at_once_exactly_those_are_answered_that_there_is_money_for(
    fleet: list[Gateway],
    simulated: SimulatedProvider,
    provider: Provider,
    cents: Tariff,
    alice: Tenant,
    states: Any,
    attempt: int,
) -> None:
    rule = budget(alice, "10")
    slow = make_model(provider, f"budget-{provider.slug}?hold&tokens=16", cents)
    quick = make_model(provider, f"quick-{provider.slug}?tokens=4", cents)
    synchronize(*fleet)

    async def scenario() -> tuple[list[Answer], Answer]:
        async with Clients() as clients:

            async def one(number: int) -> Answer:
                """A client that is told to come back does so."""
                answer = await clients.ask(fleet[number % 4].url, alice.secret, slow.slug, max_tokens=100)
                return answer if answer.status != 503 else await one(number)

            def all_are_where_they_stay() -> bool:
                return bool(simulated.state()["waiting"] + sum(task.done() for task in asking) == len(asking))

            asking = [asyncio.create_task(one(number)) for number in range(200)]
            await asyncio.to_thread(until, all_are_where_they_stay, 60)
            missing = 10 - simulated.state()["waiting"]
            if missing:
                # On a slow machine a request that was told to come back may have held money for a moment. Only then may
                # another have been refused meanwhile; it asks again.
                assert sum(answer.status == 503 for answer in clients.journal) >= missing
                asking += [asyncio.create_task(one(number)) for number in range(missing)]
                await asyncio.to_thread(until, all_are_where_they_stay, 60)
            assert simulated.state()["waiting"] == 10, Tally((a.status, a.body[:400]) for a in clients.journal)

            simulated.release(1)
            waiting = [task for task in asking if not task.done()]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=30)
            # 84 of its 100 cents are free again, at once and at every process.
            after = await clients.ask(fleet[3].url, alice.secret, quick.slug, max_tokens=84)
            simulated.release()
            return await asyncio.gather(*asking), after

    with no_deadlock():
        answers, after = run(scenario())
    assert sum(answer.final for answer in answers) == 10
    refused = [answer for answer in answers if not answer.final]
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


def test_nested_budgets_are_taken_all_or_none(alice: Tenant, tmp_path: Path) -> None:
    """Two keys share a project, which shares the organization: 200 wishes at once, and no counter holds for nobody."""
    second, _ = make_key(alice.project, name="second")
    budget(alice, "9", "month")
    budget(alice, "8", "day", project=alice.project)
    budget(alice, "3", "total", project=alice.project, key=alice.key)
    keys = [alice.key.pk, second.pk]
    items = [wanted(key, min_cap=100) for key in (alice.key, second) for _ in range(100)]
    random.Random(3).shuffle(items)

    def on_the_books() -> tuple[dict[str, Decimal], int]:
        """What is held by period, and how many hold it."""
        with database(owner_url()) as found:
            organization = [alice.organization.pk]
            held = found.execute("select period, held from billing_counter where organization = %s", organization)
            ((count,),) = found.execute("select count(*) from billing_hold where key = any(%s)", [keys])
            return dict(held.fetchall()), count

    async def scenario() -> tuple[list[Any], tuple[dict[str, Decimal], int]]:
        async with backbone(tmp_path / "a") as a, backbone(tmp_path / "b") as b:
            doors = (a.admission, b.admission)
            answers = await asyncio.gather(
                *(doors[n % 2].hold(item) for n, item in enumerate(items)), return_exceptions=True
            )
            return answers, on_the_books()

    answers, (found, holds) = run(scenario())
    held = Tally(item.key for item, answer in zip(items, answers, strict=True) if not isinstance(answer, Exception))
    assert all(isinstance(answer, Refused) for answer in answers if isinstance(answer, Exception))
    assert sum(held.values()) == 8
    assert held[alice.key.pk] <= 3
    assert found == {"month": 8, "day": 8, "total": held[alice.key.pk]}
    assert holds == 8
    # Processes that stop end what they hold.
    assert on_the_books() == (dict.fromkeys(("month", "day", "total"), Decimal(0)), 0)


def test_freed_money_is_spent_to_the_last(alice: Tenant, tmp_path: Path) -> None:
    """Costs are mostly far below their worst case; in the end less than one worst case is left."""
    rule = budget(alice, "10")
    chance = random.Random(5)

    held_now = grants = 0

    async def client(here: Backbone) -> None:
        nonlocal held_now, grants
        while True:
            item = wanted(alice.key, cap=10, min_cap=10)
            alone, before = held_now == 0, grants
            try:
                held = await here.admission.hold(item)
            except DatabaseAway:
                continue
            except Refused:
                if alone and grants == before:
                    return  # while nobody held anything: no money is left
                await asyncio.sleep(0.005)
                continue
            held_now, grants = held_now + 1, grants + 1
            await here.settler.settle(settled(item, held, f"0.0{chance.randrange(10**11):011}"))
            held_now -= 1

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            await asyncio.gather(*(client(here) for _ in range(50)))

    run(scenario())
    counter = Counter.objects.get(subject=rule.subject)
    assert counter.held == 0
    assert Decimal("9.9") < counter.used <= 10


def test_money_that_runs_short_lowers_the_upstreams_cap(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40")
    model = make_model(provider, "sim-small?echo", cents)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=1000)
    assert answer.status_code == 200, answer.text
    received = json.loads(answer.json()["choices"][0]["message"]["content"])
    assert received["max_tokens"] == 40


def test_a_client_that_names_no_cap_gets_one_when_money_runs_short(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40")
    model = make_model(provider, "sim-small?echo", cents)
    synchronize(gateway)
    received = json.loads(gateway.chat(alice.secret, model.slug).json()["choices"][0]["message"]["content"])
    assert received[provider.cap_field] == 40


def test_the_cap_is_never_lowered_below_the_keys_least(
    gateway: Gateway, simulated: SimulatedProvider, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    budget(alice, "0.40", project=alice.project)
    name = f"sim-{provider.slug}?tokens=2"
    model = make_model(provider, name, cents)
    _, secret = make_key(alice.project, name="picky", min_output_cap=41)
    synchronize(gateway)
    answer = gateway.chat(secret, model.slug, max_tokens=1000)
    assert answer.status_code == 402
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("insufficient_credit", "insufficient_credit")
    assert error["message"].startswith("The project's budget of $0.4 does not cover")
    assert "Retry-After" not in answer.headers
    assert not Usage.objects.filter(organization=alice.organization.pk).exists()
    assert not any(line["model"] == name for line in simulated.lines())
    # What the client itself asks for may be less.
    assert gateway.chat(secret, model.slug, max_tokens=40).status_code == 200


def test_a_charge_above_the_hold_takes_what_the_budget_has_and_the_rest_is_not_the_tenants(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    """The provider says more than its cap: 50 cents, when 30 were held of a budget of 40."""
    rule = budget(alice, "0.40")
    model = make_model(provider, f"sim-{provider.slug}?tokens=50&ignore_max", cents)
    synchronize(gateway)
    answer = gateway.chat(alice.secret, model.slug, max_tokens=30)
    assert answer.status_code == 200
    usage = Usage.objects.get(organization=alice.organization.pk)
    assert (usage.basis, usage.charge, usage.overrun) == ("capped", Decimal("0.40"), Decimal("0.10"))
    assert usage.provider_cost == Decimal("0.25")
    counter = Counter.objects.get(subject=rule.subject)
    assert (counter.used, counter.held) == (Decimal("0.40"), Decimal(0))
    assert books(alice.organization).problems() == []


def test_a_new_day_begins_with_nothing_spent(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    rule = budget(alice, "0.05", "day")
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    synchronize(gateway)
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_counter set used = 0.05, period_start = period_start - interval '1 day' where subject = %s",
            [rule.subject],
        )
    assert gateway.chat(alice.secret, model.slug).status_code == 200
    assert gateway.chat(alice.secret, model.slug).status_code == 402
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    found = {c.period_start: c.used for c in Counter.objects.filter(subject=rule.subject)}
    assert set(found) >= {today, today - timedelta(days=1)} or len(found) == 2  # the day may have turned meanwhile
    assert set(found.values()) == {Decimal("0.05")}


def test_a_budget_counts_what_was_spent_before_it_was_made(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant, charlie: Tenant
) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    _, other = make_key(alice.project, name="other")
    synchronize(gateway)
    for secret in (alice.secret, other, charlie.secret):
        assert gateway.chat(secret, model.slug).status_code == 200
    rules = [
        budget(alice, "1", "month"),
        budget(alice, "1", "total", project=alice.project),
        budget(alice, "1", "day", project=alice.project, key=alice.key),
    ]
    used = [Counter.objects.get(subject=rule.subject, period=rule.period).used for rule in rules]
    assert used == [Decimal("0.10"), Decimal("0.10"), Decimal("0.05")]


def test_a_budget_that_was_deleted_and_made_again_has_missed_nothing(
    gateway: Gateway, provider: Provider, cents: Tariff, alice: Tenant
) -> None:
    model = make_model(provider, f"sim-{provider.slug}?tokens=5", cents)
    synchronize(gateway)
    rule = budget(alice, "1")
    gateway.chat(alice.secret, model.slug)
    Budget.objects.filter(pk=rule.pk).delete()
    gateway.chat(alice.secret, model.slug)
    budget(alice, "1")
    assert Counter.objects.get(subject=rule.subject).used == Decimal("0.10")
    assert books(alice.organization).problems() == []


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
