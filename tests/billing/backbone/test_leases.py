"""Leases: the holds of the dead end, those of the living stay, and who was only thought dead has the last word."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from billing.backbone.leases import DEAD_AFTER, EVERYBODY, LONGEST_GAP
from billing.ids import new_id
from billing.models import Attempt, Budget, Counter, Hold, Lease, LedgerEntry, Limit, Usage
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import admission, backbone, books, database, hold_many, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.load import Answer, Clients
from tests.stage.product import running, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone


@pytest.fixture
def bounded(alice: Tenant) -> Tenant:
    """Alice with every kind of counter."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1000))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=10**9)
    return alice


def hold_and_die(tenant: Tenant, count: int) -> UUID:
    """Holds of a process that ends without a word; gives its lease."""

    async def scenario() -> UUID:
        async with admission() as door:
            await hold_many(door, tenant.key, count)
            return door.lease.id

    lease: UUID = run(scenario())
    return lease


def age(lease: UUID, seconds: float) -> None:
    """As if the last sign of life had come that long ago."""
    with database(owner_url()) as owner:
        owner.execute(
            "update billing_lease set heartbeat_at = clock_timestamp() - %s where id = %s",
            [timedelta(seconds=seconds), lease],
        )


@contextmanager
def judge(lived: float = 60) -> Iterator[UUID]:
    """A lease that has been alive for `lived` seconds, and says so now."""
    id = new_id()
    with database(owner_url()) as owner:
        owner.execute(
            "insert into billing_lease values (%s, 'judge', 0, clock_timestamp() - %s, clock_timestamp())",
            [id, timedelta(seconds=lived)],
        )
        yield id
        owner.execute("delete from billing_lease where id = %s", [id])


def resolve(judging: UUID, dead: timedelta = DEAD_AFTER, most: int = 500) -> int:
    """Resolves what is dead; other tests may have left some too, so that only the tenant's own are looked at."""
    with database(owner_url()) as owner:
        ((count,),) = owner.execute("select billing_resolve(%s, %s, %s)", [judging, dead, most]).fetchall()
        return int(count)


def bury(lease: UUID) -> None:
    """What whoever knows that a process has ended does."""
    Lease.objects.filter(id=lease).delete()


def holds(tenant: Tenant) -> int:
    """How many holds there are."""
    return Hold.objects.filter(organization=tenant.organization.pk).count()


def test_a_dead_process_holds_end_and_charge_nobody(bounded: Tenant) -> None:
    bury(hold_and_die(bounded, 30))
    with judge() as judging:
        assert resolve(judging) >= 30
    rows = Usage.objects.filter(organization=bounded.organization.pk)
    assert {(u.status, u.basis, u.error, u.charge, u.provider_cost) for u in rows} == {
        ("abandoned", "unknown", "process_died", Decimal(0), None)
    }
    assert len(rows) == 30
    assert set(Attempt.objects.filter(generation__in=[u.id for u in rows]).values_list("status", flat=True)) == {
        "unknown"
    }
    entries = LedgerEntry.objects.filter(organization=bounded.organization.pk)
    assert {(e.kind, e.amount) for e in entries} == {("void", Decimal(0))}
    assert books(bounded.organization).problems() == []


def test_a_living_process_holds_stay(bounded: Tenant) -> None:
    lease = hold_and_die(bounded, 3)
    age(lease, 15)
    with judge() as judging:
        resolve(judging)
    assert holds(bounded) == 3
    assert not Usage.objects.filter(organization=bounded.organization.pk).exists()


def test_who_has_ended_for_certain_holds_nothing_even_right_after_an_outage(bounded: Tenant) -> None:
    bury(hold_and_die(bounded, 2))
    with judge(lived=0) as judging:
        resolve(judging)
    assert holds(bounded) == 0


def test_money_of_a_hard_budget_stays_held_while_its_process_may_be_paused(bounded: Tenant) -> None:
    """Until the request's own time is over: by then the process, should it live, has ended the stream itself."""
    lease = hold_and_die(bounded, 2)
    age(lease, 3000)
    with judge() as judging:
        resolve(judging)
        assert holds(bounded) == 2
        with database(owner_url()) as owner:
            over = "update billing_hold set facts = facts || '{\"seconds\": -1}' where lease = %s"
            owner.execute(over, [lease])
        resolve(judging)
        assert holds(bounded) == 0
    assert books(bounded.organization).problems() == []


def test_what_no_hard_budget_counts_ends_with_the_silence(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1000), hard=False)
    age(hold_and_die(alice, 2), 21)
    with judge() as judging:
        resolve(judging)
    assert holds(alice) == 0


def test_who_is_back_first_after_an_outage_takes_nobody_for_dead(alice: Tenant) -> None:
    """While the database was away nobody could say that he lives."""
    lease = hold_and_die(alice, 2)
    age(lease, 120)
    with judge(lived=9) as judging:
        resolve(judging)
    assert holds(alice) == 2
    with judge(lived=11) as judging:
        resolve(judging)
    assert holds(alice) == 0


@pytest.mark.parametrize(
    "silent, goes_on", [(LONGEST_GAP.total_seconds() - 1, True), (LONGEST_GAP.total_seconds() + 1, False)]
)
def test_a_silence_begins_a_new_life(tmp_path: Path, silent: float, goes_on: bool) -> None:
    async def scenario() -> tuple[bool, bool]:
        async with admission() as door:
            await door.lease.renew()
            first = await started(door.lease.id)
            await asyncio.to_thread(age, door.lease.id, silent)
            await door.lease.renew()
            return await started(door.lease.id) == first, await started(EVERYBODY) is not None

    async def started(lease: UUID) -> object:
        def ask() -> object:
            with database(owner_url()) as owner:
                return owner.execute("select started_at from billing_lease where id = %s", [lease]).fetchall()[0][0]

        return await asyncio.to_thread(ask)

    assert run(scenario()) == (goes_on, True)


def test_several_judges_at_once_end_each_hold_once(bounded: Tenant) -> None:
    bury(hold_and_die(bounded, 60))
    bury(hold_and_die(bounded, 40))

    async def scenario() -> None:
        with judge() as judging:
            while any(await asyncio.gather(*(asyncio.to_thread(resolve, judging, most=7) for _ in range(4)))):
                pass

    run(scenario())
    assert Usage.objects.filter(organization=bounded.organization.pk, status="abandoned").count() == 100
    assert books(bounded.organization).problems() == []


def test_a_backbone_ends_the_holds_of_the_dead_by_itself(bounded: Tenant, tmp_path: Path) -> None:
    """It knows them by their spool files, which nobody locks any more, however short ago they were heard of."""
    lease = hold_and_die(bounded, 5)
    (tmp_path / f"{lease}.spool").touch()

    def rest() -> bool:
        with database(owner_url()) as connection:
            query = "select 1 from billing_hold where organization = %s"
            return not connection.execute(query, [bounded.organization.pk]).fetchall()

    async def scenario() -> None:
        async with backbone(tmp_path):
            await asyncio.to_thread(until, rest, 20)

    run(scenario())
    assert Usage.objects.filter(organization=bounded.organization.pk, status="abandoned").count() == 5


def test_a_gateway_that_was_only_paused_has_the_last_word(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    """Stopped with streams in flight, taken for dead and resolved by others, it goes on and settles what it knows."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1000), hard=False)
    provider = make_provider(simulated.base_url)
    # The streams wait in the middle, the whole answers before their first byte.
    names = [f"paused-{provider.slug}?{wait}&tokens=10&prompt=9" for wait in ("hold=3", "hold")]
    models = [make_model(provider, name) for name in names]

    async def scenario(url: str, pid: int) -> list[Answer]:
        async with Clients() as clients:
            asking = [
                asyncio.create_task(clients.ask(url, alice.secret, model.slug, stream=model is models[0]))
                for model in models * 3
            ]
            await asyncio.to_thread(simulated.until, 10.0, waiting=6)
            await asyncio.to_thread(pause_until_resolved, pid)
            simulated.release()
            return await asyncio.gather(*asking)

    def pause_until_resolved(pid: int) -> None:
        paused.process.send_signal(signal.SIGSTOP)
        try:
            with database(owner_url()) as owner:
                mine = "select count(*) from billing_hold where organization = %s"
                assert owner.execute(mine, [alice.organization.pk]).fetchall() == [(6,)]
                owner.execute(
                    "update billing_lease set heartbeat_at = now() - interval '1 minute' where pid = %s", [pid]
                )
                with judge() as judging:
                    resolve(judging)
                assert owner.execute(mine, [alice.organization.pk]).fetchall() == [(0,)]
                ends = "select distinct status from billing_usage where organization = %s"
                assert owner.execute(ends, [alice.organization.pk]).fetchall() == [("abandoned",)]
        finally:
            paused.process.send_signal(signal.SIGCONT)

    with running(tmp_path, EGRESS_ALLOW=simulated.url) as (paused,):
        answers = run(scenario(paused.url, paused.process.pid))
    assert all(answer.final for answer in answers), [answer.body for answer in answers]
    rows = Usage.objects.filter(organization=alice.organization.pk)
    assert {(u.status, u.basis, u.completion_tokens, u.charge) for u in rows} == {
        ("completed", "reported", 10, Decimal("0.000058"))
    }
    assert {answer.generation for answer in answers} == {u.id for u in rows}
    for u in rows:
        kinds = LedgerEntry.objects.filter(generation=u.id).order_by("id").values_list("kind", flat=True)
        assert list(kinds) == ["void", "reverse", "settle", "settle"]
    assert Counter.objects.get(organization=alice.organization.pk, measure="money").used == Decimal("0.000348")
    assert books(alice.organization).problems() == []


def test_a_heartbeat_from_before_the_clock_was_set_back_says_nothing(alice: Tenant) -> None:
    """It would be young for an hour."""
    lease = hold_and_die(alice, 47)
    age(lease, -3600)
    with judge() as judging:
        assert resolve(judging) >= 47
    assert holds(alice) == 0
    assert books(alice.organization).problems() == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_who_lives_holds_and_settles_on_when_the_clock_is_set(bounded: Tenant, hours: int) -> None:
    """To the tables it is as if all that was said before had been said an hour ago, or were to be said in one."""

    async def scenario() -> None:
        async with admission() as door:
            held = await hold_many(door, bounded.key, 3)
            age(door.lease.id, hours * 3600)
            held += await hold_many(door, bounded.key, 3)
            await door.lease.renew()
            with judge() as judging:
                resolve(judging)
            assert await asyncio.to_thread(holds_now, bounded.organization.pk) == len(held) == 6

    run(scenario())


def holds_now(organization: UUID) -> int:
    """How many holds there are, asked from any thread."""
    with database(owner_url()) as owner:
        ((count,),) = owner.execute(
            "select count(*) from billing_hold where organization = %s", [organization]
        ).fetchall()
        return int(count)


@pytest.mark.parametrize("hours", [-1, 1])
def test_everybody_is_heard_before_anybody_is_judged_when_the_clock_was_set(bounded: Tenant, hours: int) -> None:
    """After a step all leases are of another time; whoever says so first must not take the others for dead."""

    async def scenario() -> UUID:
        async with admission() as door:
            await hold_many(door, bounded.key, 3)
            age(door.lease.id, hours * 3600)
            return door.lease.id

    run(scenario())
    with judge(600) as judging, database(owner_url()) as owner:
        age(judging, hours * 3600)
        owner.execute("select billing_heartbeat(%s, 'judge', 0, %s)", [judging, LONGEST_GAP])
        assert resolve(judging) == 0
    assert holds(bounded) == 3
