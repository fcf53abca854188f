"""Settlements: once, whoever sends them and how often; late ones win; nothing that a provider writes stops one."""

import asyncio
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest

from billing.backbone.admission import Held, HoldItem
from billing.backbone.backbone import Backbone
from billing.backbone.connections import DatabaseAway
from billing.backbone.settlement import Settlement, encode
from billing.models import Attempt, Budget, Counter, Hold, LedgerEntry, Limit, TariffVersion, Usage
from tests.stage.backbone import (
    admission,
    app_url,
    backbone,
    books,
    database,
    hold_many,
    owner_url,
    run,
    settled,
    transactions,
    wanted,
)
from tests.stage.cast import Tenant
from tests.stage.lossy import lossy
from tests.stage.shelf import make_tariff

pytestmark = pytest.mark.backbone

NIL = Decimal(0)


@pytest.fixture
def version() -> TariffVersion:
    """A cent for an output token, half of it the provider's; input costs nothing."""
    return make_tariff(input="0", output=("5000", "10000")).versions.get()


@pytest.fixture
def bounded(alice: Tenant) -> Tenant:
    """Alice with every kind of counter."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1_000_000))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="day", amount=Decimal(10**6))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=10**9)
    return alice


def spent(item: HoldItem, held: Held, version: TariffVersion, tokens: int, **changes: Any) -> Settlement:
    """A settlement of `tokens` output tokens at a cent."""
    row = {
        "charge": Decimal(tokens) / 100,
        "provider_cost": Decimal(tokens) / 200,
        "completion_tokens": tokens,
        "tariff_version": version.pk,
    }
    return settled(item, held, **{**row, **changes})


def settle(line: bytes) -> list[tuple[Any, str]]:
    """Settles one line on a connection of its own."""
    with database(app_url()) as connection:
        return connection.execute("select * from billing_settle(%s::jsonb)", [f"[{line.decode()}]"]).fetchall()


def counters(tenant: Tenant) -> dict[str, tuple[Any, Any]]:
    """(used, held) by measure and period."""
    found = Counter.objects.filter(organization=tenant.organization.pk)
    return {f"{c.measure} {c.period}": (c.used, c.held) for c in found}


def test_it_writes_usage_ledger_counters_and_ends_the_hold(
    bounded: Tenant, version: TariffVersion, tmp_path: Path
) -> None:
    item = wanted(bounded.key, tokens=50)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            await here.settler.settle(spent(item, held, version, 30))

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.charge, usage.provider_cost, usage.completion_tokens) == (Decimal("0.30"), Decimal("0.15"), 30)
    assert counters(bounded) == {
        "money total": (Decimal("0.30"), 0),
        "money day": (Decimal("0.30"), 0),
        "requests minute": (1, 0),
        "tokens minute": (30, 0),
        "open now": (0, 0),
    }
    assert transactions(item.id) == [("settle", Decimal("0.30")), ("settle", Decimal("0.15"))]
    assert Attempt.objects.get(generation=item.id).status == "completed"
    assert not Hold.objects.filter(id=item.id).exists()
    assert books(bounded.organization).problems() == []


def said_in_full(settlement: Settlement) -> bytes:
    """A line as the release before wrote it: with what is as usual, too."""
    fields = {name: getattr(settlement, name) for name in settlement.__struct_fields__ if name != "kept"}
    tries = [{name: getattr(one, name) for name in one.__struct_fields__} for one in settlement.tries]
    return msgspec.json.encode({**fields, "tries": tries})


def test_a_line_that_leaves_out_what_is_as_usual_makes_the_rows_of_a_full_one(
    bounded: Tenant, version: TariffVersion, tmp_path: Path
) -> None:
    made = []

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            for form in (encode, said_in_full):
                item = wanted(bounded.key, tokens=50)
                line = form(spent(item, await here.admission.hold(item), version, 30))
                assert (b'"cached_tokens"' in line) is (form is said_in_full)
                settle(line)
                made.append(item.id)

    run(scenario())
    own = {"id", "generation", "created_at", "settled_at", "started_at"}
    rows = [
        [
            {name: value for name, value in row.items() if name not in own}
            for row in (*Usage.objects.filter(id=id).values(), *Attempt.objects.filter(generation=id).values())
        ]
        for id in made
    ]
    assert len(rows[0]) == 2
    assert rows[0] == rows[1]
    assert transactions(made[0]) == transactions(made[1]) == [("settle", Decimal("0.30")), ("settle", Decimal("0.15"))]
    assert counters(bounded)["tokens minute"] == (60, 0)
    assert books(bounded.organization).problems() == []


def test_a_charge_above_a_hard_hold_is_overrun_and_nobodys(
    bounded: Tenant, version: TariffVersion, tmp_path: Path
) -> None:
    item = wanted(bounded.key, cap=10)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            assert held.money is not None
            overrun = Decimal("0.12") - held.money
            late = spent(item, held, version, 12, charge=held.money, overrun=overrun, basis="capped")
            await here.settler.settle(late)

    run(scenario())
    assert counters(bounded)["money total"] == (Decimal("0.10"), 0)
    entries = LedgerEntry.objects.filter(generation=item.id).order_by("id")
    assert [(e.debit.partition(":")[0], e.credit, e.amount) for e in entries] == [
        ("tenant", "revenue", Decimal("0.10")),
        ("overrun", "revenue", Decimal("0.02")),
        ("cost", "provider:provider", Decimal("0.06")),
    ]
    assert books(bounded.organization).problems() == []


def test_an_unknown_price_is_null_and_closes_with_a_void(alice: Tenant, tmp_path: Path) -> None:
    item = wanted(alice.key, fixed=None, rate=None)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            await here.settler.settle(settled(item, held, None, provider_cost=None, completion_tokens=3))

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.charge, usage.provider_cost) == (None, None)
    assert transactions(item.id) == [("void", NIL)]
    assert books(alice.organization).problems() == []


def test_four_racers_settle_each_of_500_generations_once(bounded: Tenant, version: TariffVersion) -> None:

    async def scenario() -> list[str]:
        async with admission() as here:  # which ends nothing when it goes
            held = await hold_many(here, bounded.key, 500)
        lines = [encode(spent(item, given, version, n % 90)) for n, (item, given) in enumerate(held)]

        def racer(number: int) -> list[str]:
            # Each in another order and in batches of another size, so that they meet in the middle of each other's.
            size = (7, 16, 31, 64)[number]
            mine = lines[::-1] if number % 2 else lines[number * 50 :] + lines[: number * 50]
            outcomes = []
            with database(app_url()) as connection:
                for start in range(0, len(mine), size):
                    text = b"[" + b",".join(mine[start : start + size]) + b"]"
                    outcomes += connection.execute(
                        "select outcome from billing_settle(%s::jsonb)", [text.decode()]
                    ).fetchall()
            return [outcome for (outcome,) in outcomes]

        found = await asyncio.gather(*(asyncio.to_thread(racer, number) for number in range(4)))
        return [outcome for outcomes in found for outcome in outcomes]

    before = deadlocks()
    outcomes = run(scenario())
    assert (outcomes.count("settled"), outcomes.count("repeated"), len(outcomes)) == (500, 1500, 2000)
    assert books(bounded.organization).problems() == []
    assert counters(bounded)["money total"] == (sum(Decimal(n % 90) for n in range(500)) / 100, 0)
    assert deadlocks() == before


def deadlocks() -> int:
    """How many deadlocks the tests' database has seen."""
    with database(owner_url()) as connection:
        return int(
            connection.execute("select deadlocks from pg_stat_database where datname = current_database()").fetchall()[
                0
            ][0]
        )


def test_the_same_line_twice_in_a_batch_counts_once(bounded: Tenant, version: TariffVersion, tmp_path: Path) -> None:
    """It waited for its commit for so long that it came from the spool as well."""
    first, second = wanted(bounded.key), wanted(bounded.key)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            lines = [encode(spent(item, await here.admission.hold(item), version, 20)) for item in (first, second)]
            text = b"[" + b",".join([lines[0], lines[1], lines[0]]) + b"]"
            rows = await here.connections.call("select * from billing_settle(%s::jsonb)", [text.decode()])
            assert sorted(rows) == sorted([(UUID(first.id), "settled"), (UUID(second.id), "settled")])

    run(scenario())
    assert counters(bounded)["money total"] == (Decimal("0.40"), 0)
    assert books(bounded.organization).problems() == []


def test_a_late_settlement_wins_over_a_resolution(bounded: Tenant, version: TariffVersion, tmp_path: Path) -> None:
    """A process was paused, the others took it for dead, and it comes back with what it knows."""
    item = wanted(bounded.key)

    async def scenario() -> bytes:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            resolve_everything_of(item)
            return encode(spent(item, held, version, 30))

    line = run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.status, usage.basis, usage.charge, usage.provider_cost) == ("abandoned", "unknown", Decimal(0), None)
    assert transactions(item.id) == [("void", NIL)]
    assert Attempt.objects.get(generation=item.id).status == "unknown"
    assert books(bounded.organization).problems() == []

    assert settle(line) == [(UUID(item.id), "late")]
    assert settle(line) == [(UUID(item.id), "repeated")]
    usage.refresh_from_db()
    assert (usage.status, usage.basis, usage.charge) == ("completed", "reported", Decimal("0.30"))
    assert transactions(item.id) == [
        ("void", NIL),
        ("reverse", NIL),
        ("settle", Decimal("0.30")),
        ("settle", Decimal("0.15")),
    ]
    assert Attempt.objects.get(generation=item.id).status == "completed"
    assert books(bounded.organization).problems() == []


def resolve_everything_of(item: HoldItem) -> None:
    """Ends the hold of `item` as that of a dead process, by a process that has lived long enough to judge."""
    with database(owner_url()) as owner:
        (lease,) = owner.execute("select lease from billing_hold where id = %s", [item.id]).fetchall()[0]
        owner.execute("update billing_lease set heartbeat_at = heartbeat_at - interval '1 hour' where id = %s", [lease])
        # What a hard budget holds stays until its request's own time is over.
        owner.execute("update billing_hold set facts = facts || '{\"seconds\": 0}' where id = %s", [item.id])
        owner.execute(
            "insert into billing_lease (id, host, pid, started_at, heartbeat_at)"
            " values (gen_random_uuid(), 'judge', 0, now() - interval '1 minute', now())"
        )
        owner.execute(
            "select billing_resolve((select id from billing_lease where host = 'judge' limit 1), %s, 500)",
            [timedelta(seconds=20)],
        )
        owner.execute("delete from billing_lease where host = 'judge'")


def test_racing_with_a_resolution_ends_a_hold_once(bounded: Tenant, version: TariffVersion, tmp_path: Path) -> None:

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await hold_many(here.admission, bounded.key, 200)
            lines = [encode(spent(item, given, version, 5)) for item, given in held]

            def settling() -> None:
                with database(app_url()) as connection:
                    for start in range(0, len(lines), 10):
                        text = b"[" + b",".join(lines[start : start + 10]) + b"]"
                        connection.execute("select * from billing_settle(%s::jsonb)", [text.decode()])

            def ending() -> None:
                with database(owner_url()) as connection:
                    for start in range(0, len(held), 7):
                        ids = [item.id for item, _ in held[::-1][start : start + 7]]
                        connection.execute("select billing_give_back(%s::uuid[])", [ids])

            await asyncio.gather(asyncio.to_thread(settling), asyncio.to_thread(ending))

    run(scenario())
    assert books(bounded.organization).problems() == []
    # What was ended first was settled late, so the charge is there for every one.
    assert counters(bounded)["money total"] == (Decimal("10.00"), 0)


def test_a_settlement_needs_no_hold(bounded: Tenant, version: TariffVersion) -> None:
    item = wanted(bounded.key)

    async def scenario() -> bytes:
        async with admission() as here:  # which ends nothing when it goes
            return encode(spent(item, await here.hold(item), version, 30))

    line = run(scenario())
    with database(owner_url()) as owner:
        owner.execute("delete from billing_hold where id = %s", [item.id])
        owner.execute("update billing_counter set held = 0 where organization = %s", [bounded.organization.pk])
    assert settle(line) == [(UUID(item.id), "settled")]
    assert books(bounded.organization).problems() == []


def test_what_a_provider_writes_is_stored_whatever_it_holds(alice: Tenant, tmp_path: Path) -> None:
    item = wanted(alice.key)
    odd = {"finish_reason": "sto\0p", "native_finish_reason": "half \ud83d of it", "upstream_id": "é\u2028\x1b"}

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            await here.settler.settle(settled(item, held, metadata={"a\0": "b\\u0000"}, **odd))

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert usage.finish_reason == "sto\ufffdp"
    assert usage.native_finish_reason == "half ? of it"
    assert usage.upstream_id == "é\u2028\x1b"
    assert usage.metadata == {"a\ufffd": "b\\u0000"}


def test_a_settlement_no_column_takes_fails_alone(alice: Tenant, tmp_path: Path) -> None:
    """It is kept for an operator, and its hold does not bind money for ever."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    poison, good = wanted(alice.key), wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await asyncio.gather(here.admission.hold(poison), here.admission.hold(good))
            await asyncio.gather(
                here.settler.settle(settled(poison, held[0], "10000000000000")),
                here.settler.settle(settled(good, held[1], "0")),
            )
            await here.settler.drain_spool()

    run(scenario())
    assert Usage.objects.get(id=good.id).status == "completed"
    given_up = Usage.objects.get(id=poison.id)
    assert (given_up.status, given_up.error, given_up.charge) == ("abandoned", "settlement_refused", Decimal(0))
    kept = (tmp_path / "refused.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["id"] for line in kept] == [poison.id]
    assert books(alice.organization).problems() == []


def test_who_waits_for_a_settlement_may_be_cancelled_and_ask_again(alice: Tenant, tmp_path: Path) -> None:
    item = wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            ending = here.settler.settle(settled(item, await here.admission.hold(item), "0.25"))

            async def wait() -> None:
                await ending

            first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
            await asyncio.sleep(0)
            first.cancel()
            await second
            await ending
            assert first.cancelled()
            rows = await here.connections.call("select charge from billing_usage where id = %s", [item.id])
            assert rows == [(Decimal("0.25"),)]

    run(scenario())


def test_what_is_held_never_goes_below_nothing(alice: Tenant) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    with database(owner_url()) as owner, pytest.raises(psycopg.errors.CheckViolation):
        owner.execute("update billing_counter set held = -1 where organization = %s", [alice.organization.pk])


@pytest.mark.parametrize("swallow", range(1, 13))
def test_a_reply_that_is_lost_neither_doubles_nor_loses(
    bounded: Tenant, version: TariffVersion, tmp_path: Path, swallow: int
) -> None:
    """The n-th reply of the database is swallowed and its connection cut: a login, a hold, a settlement, a beat."""

    async def one(here: Backbone) -> int:
        """One generation, of a client that asks again while it is told to; returns how often it asked."""
        for asked in range(1, 100):
            item = wanted(bounded.key)
            try:
                held = await here.admission.hold(item)
            except DatabaseAway:
                await asyncio.sleep(0.05)
                continue
            await here.settler.settle(spent(item, held, version, 10))
            return asked
        raise AssertionError("never admitted")

    async def scenario() -> int:
        async with lossy(app_url(), swallow) as relay, backbone(tmp_path, relay.url) as here:
            asked = [await one(here) for _ in range(3)]
            asked += await asyncio.gather(*(one(here) for _ in range(3)))
            assert relay.swallowed
            await here.settler.drain_spool()
            await here.admission.give_back()
            return sum(asked)

    asked = run(scenario())
    assert books(bounded.organization).problems() == []
    ends = Usage.objects.filter(organization=bounded.organization.pk).values_list("status", flat=True)
    assert sum(status == "completed" for status in ends) == 6
    assert len(ends) <= asked
    assert counters(bounded)["money total"] == (Decimal("0.60"), 0)


@pytest.mark.parametrize(
    ("amount", "charged", "overrun"),
    [("100", "0.12", "0"), ("0.11", "0.11", "0.01"), ("0.10", "0.10", "0.02")],
    ids=["the budget has room", "for a part", "for nothing more"],
)
def test_more_than_was_held_is_taken_of_what_the_budget_has_left(
    alice: Tenant, version: TariffVersion, tmp_path: Path, amount: str, charged: str, overrun: str
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(amount))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="day", amount=Decimal(99))
    item = wanted(alice.key, cap=10)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            ending = here.settler.settle(spent(item, held, version, 12, hard=True))
            await ending
            assert ending.overrun == Decimal(overrun)

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.charge, usage.overrun) == (Decimal(charged), Decimal(overrun))
    assert usage.basis == ("reported" if overrun == "0" else "capped")
    assert counters(alice)["money total"] == (Decimal(charged), 0)
    assert counters(alice)["money day"] == (Decimal(charged), 0)
    assert books(alice.organization).problems() == []


def test_what_others_hold_is_not_taken(alice: Tenant, version: TariffVersion, tmp_path: Path) -> None:
    """Ten cents each of thirty, and one of them owes thirty; then it all settles in one batch, and again later."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.30"))
    items = [wanted(alice.key, cap=10) for _ in range(3)]

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = [await here.admission.hold(item) for item in items]
            greedy = here.settler.settle(spent(items[0], held[0], version, 30, hard=True))
            await greedy
            assert greedy.overrun == Decimal("0.20")
            together = [
                here.settler.settle(spent(items[1], held[1], version, 30, hard=True)),
                here.settler.settle(spent(items[2], held[2], version, 4, hard=True)),
            ]
            for ending in together:
                await ending
            # The one that owes less than was held for it leaves the rest to the other.
            assert [ending.overrun for ending in together] == [Decimal("0.14"), 0]

    run(scenario())
    assert counters(alice)["money total"] == (Decimal("0.30"), 0)
    assert books(alice.organization).problems() == []


def test_one_that_comes_when_its_hold_is_gone_takes_what_is_left(
    alice: Tenant, version: TariffVersion, tmp_path: Path
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal("0.15"))
    late, other = wanted(alice.key, cap=10), wanted(alice.key, cap=12)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(late)
            with database(app_url()) as connection:
                connection.execute("select billing_give_up(%s::uuid[])", [[late.id]])
            freed = await here.admission.hold(other)
            await here.settler.settle(spent(late, held, version, 10, hard=True))
            with database(app_url()) as connection:
                query = "select used, held from billing_counter where organization = %s"
                assert connection.execute(query, [alice.organization.pk]).fetchall() == [
                    (Decimal("0.03"), Decimal("0.12"))
                ]
            await here.settler.settle(spent(other, freed, version, 12, hard=True))

    run(scenario())
    usage = Usage.objects.get(id=late.id)
    assert (usage.charge, usage.overrun, usage.basis) == (Decimal("0.03"), Decimal("0.07"), "capped")
    assert counters(alice)["money total"] == (Decimal("0.15"), 0)
    assert books(alice.organization).problems() == []
