"""Holds: what a request is given before its dial, what it is refused, and that nothing is held twice or for nobody."""

import asyncio
import random
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from psycopg import sql

from accounts.models import ApiKey
from billing.backbone.admission import AttemptItem, Held, HoldItem, Refused
from billing.backbone.connections import DatabaseAway
from billing.backbone.settlement import encode
from billing.ids import new_hex, new_id
from billing.models import Attempt, Budget, Counter, Hold, Lease, LedgerEntry, Limit, Usage
from tests.stage.backbone import admission, app_url, backbone, books, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant
from tests.stage.product import until

pytestmark = pytest.mark.backbone


def hold(item: HoldItem) -> Held:
    """Holds through the product, alone."""

    async def scenario() -> Held:
        async with admission() as door:
            return await door.hold(item)

    held: Held = run(scenario())
    return held


def refused(item: HoldItem) -> Refused:
    """The refusal of `item`, of which nothing may remain."""
    with pytest.raises(Refused) as caught:
        hold(item)
    assert not Hold.objects.filter(id=item.id).exists()
    assert not Attempt.objects.filter(generation=item.id).exists()
    return caught.value


def budget(tenant: Tenant, amount: str, period: str = "total", **of: Any) -> Budget:
    """A budget of the organization, or of the given project or key."""
    return Budget.objects.create(organization=tenant.organization, period=period, amount=Decimal(amount), **of)


def counters(tenant: Tenant) -> dict[tuple[str, str], tuple[Any, Any]]:
    """(used, held) by measure and period."""
    found = Counter.objects.filter(organization=tenant.organization.pk)
    return {(c.measure, c.period): (c.used, c.held) for c in found}


def test_it_holds_the_worst_case_before_the_dial(alice: Tenant) -> None:
    budget(alice, "5")
    Limit.objects.create(organization=alice.organization, measure="requests", value=9)
    Limit.objects.create(organization=alice.organization, measure="tokens", value=1000)
    Limit.objects.create(organization=alice.organization, measure="open", value=3)
    item = wanted(alice.key, fixed="0.25", rate="0.01", cap=100, tokens=40, copies=2)
    held = hold(item)
    assert (held.output_cap, held.money, held.hard) == (100, Decimal("1.25"), True)
    assert counters(alice) == {
        ("money", "total"): (0, Decimal("1.25")),
        ("requests", "minute"): (1, 0),
        ("tokens", "minute"): (0, 240),
        ("open", "now"): (0, 1),
    }
    row = Hold.objects.get(id=item.id)
    assert (row.organization, row.project, row.key) == (alice.organization.pk, alice.project.pk, alice.key.pk)
    assert (row.money, row.tokens, row.output_cap) == (Decimal("1.25"), 240, 100)
    assert sorted(row.counters) == sorted(held.counters)
    assert len(held.counters) == 4
    attempt = Attempt.objects.get(generation=item.id)
    assert (attempt.id.hex, attempt.number, attempt.status) == (item.attempt, 1, "dialling")


def test_without_rules_everything_is_admitted_and_still_held(alice: Tenant) -> None:
    item = wanted(alice.key, fixed=None, rate=None)
    held = hold(item)
    assert (held.money, held.counters, held.hard) == (None, [], False)
    assert Hold.objects.get(id=item.id).money is None


@pytest.mark.parametrize("whose", ["key", "project", "organization"])
def test_the_tightest_budget_decides(alice: Tenant, whose: str) -> None:
    of: dict[str, dict[str, Any]] = {
        "key": {"project": alice.project, "key": alice.key},
        "project": {"project": alice.project},
        "organization": {},
    }
    for name, fields in of.items():
        budget(alice, "0.5" if name == whose else "100", **fields)
    no = refused(wanted(alice.key, min_cap=100))
    subject = {"key": alice.key.pk, "project": alice.project.pk, "organization": alice.organization.pk}[whose]
    assert (no.verdict, no.subject, no.limit, no.retry_after) == ("credit", subject, Decimal("0.5"), None)
    assert all(held == 0 for _, held in counters(alice).values())


def test_all_periods_bind_at_once(alice: Tenant) -> None:
    budget(alice, "2", "total")
    budget(alice, "1.5", "month")
    budget(alice, "1", "day")
    assert hold(wanted(alice.key)).money == 1
    assert refused(wanted(alice.key)).limit == 1
    assert counters(alice) == {("money", period): (0, 1) for period in ("total", "month", "day")}


def test_money_that_runs_short_lowers_the_cap_but_not_below_the_keys_least(alice: Tenant) -> None:
    budget(alice, "0.30")
    held = hold(wanted(alice.key, fixed="0.05", rate="0.01", cap=100, min_cap=25))
    assert (held.output_cap, held.money) == (25, Decimal("0.30"))
    assert counters(alice)[("money", "total")] == (0, Decimal("0.30"))


def test_a_cap_below_the_keys_least_is_refused(alice: Tenant) -> None:
    budget(alice, "0.30")
    assert refused(wanted(alice.key, fixed="0.05", rate="0.01", cap=100, min_cap=26)).verdict == "credit"


def test_a_lowered_cap_takes_all_that_is_left_and_no_hair_more(alice: Tenant) -> None:
    """Rates whose quotients have no end: a rounded division would now and then give a token that is not paid for."""
    rule = budget(alice, "1")
    chance = random.Random(20)
    key = ApiKey.objects.select_related("project__organization").get(pk=alice.key.pk)

    async def scenario() -> None:
        async with admission() as door:
            for _ in range(150):
                places = chance.choice([2, 6, 12])
                room = Decimal(chance.randrange(1, 10**places)).scaleb(-places)
                rate = Decimal(chance.randrange(1, 10**places)).scaleb(-places) * chance.choice([1, 7, 128])
                fixed = Decimal(chance.randrange(0, 10**places)).scaleb(-places) / 4
                fixed = round(fixed, 12)
                owner.execute("update billing_budget set amount = %s where id = %s", [room, rule.pk])
                item = wanted(key, fixed=f"{fixed:f}", rate=f"{rate:f}", cap=1000)
                try:
                    held = await door.hold(item)
                except Refused as no:
                    assert no.verdict == "credit"
                    assert fixed + rate > room, (room, fixed, rate)
                    continue
                assert held.money == fixed + rate * held.output_cap <= room
                assert held.output_cap == 1000 or held.money + rate > room
                door.forget([item.id])
                await door.give_back()

    with database(owner_url()) as owner:
        run(scenario())
    assert books(alice.organization).problems() == []


def test_tenths_of_a_dollar_add_up_and_a_spent_budget_admits_nothing(alice: Tenant) -> None:
    budget(alice, "0.6")
    for amount in ("0.1", "0.2", "0.3"):
        item = wanted(alice.key, fixed=amount, rate="0")
        held = hold(item)
        with database(app_url()) as app:
            app.execute("select billing_settle(%s::jsonb)", [f"[{encode(settled(item, held, amount)).decode()}]"])
    assert counters(alice) == {("money", "total"): (Decimal("0.6"), 0)}
    assert sum(row.charge or 0 for row in Usage.objects.filter(organization=alice.organization.pk)) == Decimal("0.6")
    assert refused(wanted(alice.key, fixed="0.000000000001", rate="0")).verdict == "credit"
    assert 1_000_000 * Decimal("0.00000002") == Decimal("0.02")


def test_an_unknown_price_meets_no_hard_budget(alice: Tenant) -> None:
    rule = budget(alice, "5")
    assert refused(wanted(alice.key, fixed=None, rate=None)).verdict == "unpriced"
    rule.hard = False
    rule.save()
    held = hold(wanted(alice.key, fixed=None, rate=None))
    assert (held.money, held.hard) == (None, False)


def test_a_soft_budget_never_refuses(alice: Tenant) -> None:
    budget(alice, "0.5", hard=False)
    held = hold(wanted(alice.key))
    assert (held.money, held.output_cap, held.hard) == (Decimal(1), 100, False)


@pytest.mark.parametrize("reason", ["revoked", "expired", "not yet valid", "project", "organization", "owner"])
def test_a_key_that_is_not_alive_is_refused_in_the_hold(alice: Tenant, reason: str) -> None:
    now = datetime.now(UTC)
    alive = {
        "revoked": {"revoked_at": now},
        "expired": {"expires_at": now - timedelta(seconds=1)},
        "not yet valid": {"valid_from": now + timedelta(hours=1)},
    }
    item = wanted(alice.key)
    if reason in alive:
        ApiKey.objects.filter(pk=alice.key.pk).update(**alive[reason])
    elif reason == "project":
        type(alice.project).objects.filter(pk=alice.project.pk).update(active=False)
    elif reason == "organization":
        type(alice.organization).objects.filter(pk=alice.organization.pk).update(active=False)
    else:
        type(alice.user).objects.filter(pk=alice.user.pk).update(is_active=False)
    assert refused(item).verdict == "key"


def test_a_batch_is_judged_in_the_order_of_arrival(alice: Tenant, charlie: Tenant) -> None:
    budget(alice, "2")
    budget(charlie, "1")
    items = [wanted(tenant.key) for tenant in (alice, charlie, charlie, alice, alice)]

    async def scenario() -> list[Any]:
        async with admission() as door:
            return await asyncio.gather(*map(door.hold, items), return_exceptions=True)

    answers = run(scenario())
    assert [isinstance(answer, Held) for answer in answers] == [True, True, False, True, False]


def test_a_batch_sent_again_returns_what_was_recorded(alice: Tenant) -> None:
    budget(alice, "1.5")
    first, second = wanted(alice.key), wanted(alice.key, cap=500)
    with database(app_url()) as connection:
        lease = new_id()
        connection.execute("select billing_heartbeat(%s, 'here', 1, '8 seconds')", [lease])
        call = "select * from billing_admit(%s, %s::jsonb)"
        arguments = [lease, msgspec.json.encode([first, second]).decode()]
        once = connection.execute(call, arguments).fetchall()
        again = connection.execute(call, arguments).fetchall()
    # But for what the budget had left before, which is told once and not recorded.
    assert (once[0][8], again[0][8]) == (Decimal("1.5"), None)
    assert [(*row[:8], *row[9:]) for row in once] == [(*row[:8], *row[9:]) for row in again]
    assert [row[1] for row in once] == ["admitted", "admitted"]
    assert [row[2] for row in once] == [100, 50]
    assert counters(alice) == {("money", "total"): (0, Decimal("1.5"))}
    assert Attempt.objects.filter(generation__in=[first.id, second.id]).count() == 2


def test_two_sendings_of_a_batch_at_once_hold_it_once(alice: Tenant) -> None:
    """The first is still at work when its connection is lost and the second arrives."""
    Limit.objects.create(organization=alice.organization, measure="requests", value=100)
    items = [wanted(alice.key) for _ in range(5)]
    text = msgspec.json.encode(items).decode()

    async def sending(lease: Any) -> Any:
        def call() -> Any:
            with database(app_url()) as connection:
                return connection.execute("select * from billing_admit(%s, %s::jsonb)", [lease, text]).fetchall()

        return await asyncio.to_thread(call)

    async def scenario() -> list[Any]:
        lease = new_id()
        with database(app_url()) as connection:
            connection.execute("select billing_heartbeat(%s, 'here', 1, '8 seconds')", [lease])
        return await asyncio.gather(*(sending(lease) for _ in range(4)))

    answers = [sorted(rows) for rows in run(scenario())]
    assert all(answer == answers[0] for answer in answers)
    assert Hold.objects.filter(id__in=[item.id for item in items]).count() == 5
    assert counters(alice) == {("requests", "minute"): (5, 0)}


def test_a_hold_granted_after_its_request_left_is_given_back(alice: Tenant) -> None:
    """The client leaves while the database is at work."""
    rule = budget(alice, "1")
    item = wanted(alice.key)

    async def scenario() -> None:
        async with admission() as door:
            with database(owner_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("select 1 from billing_counter where subject = %s for update", [rule.subject])
                asking = asyncio.create_task(door.hold(item))
                await asyncio.to_thread(until, waits_for_a_lock)
                asking.cancel()
                await asyncio.wait({asking})
                blocker.execute("rollback")
            await asyncio.to_thread(until, lambda: exists("billing_usage", item))

    run(scenario())
    usage = Usage.objects.get(id=item.id)
    assert (usage.status, usage.basis, usage.error, usage.charge) == ("cancelled", "nothing", "not_dialled", Decimal(0))
    assert books(alice.organization).problems() == []
    assert hold(wanted(alice.key)).money == 1


def waits_for_a_lock() -> bool:
    """Whether a hold waits for another transaction, asked from any thread."""
    query = (
        "select 1 from pg_stat_activity where datname = current_database()"
        " and wait_event_type = 'Lock' and query like '%billing_admit%'"
    )
    with database(owner_url()) as connection:
        return bool(connection.execute(query).fetchall())


def test_a_hold_that_nobody_here_answers_for_is_found_and_given_back(alice: Tenant) -> None:
    """A server that was frozen grants it long after its process has given up on the answer."""
    budget(alice, "1")
    item = wanted(alice.key)

    async def scenario() -> int:
        async with admission() as door:
            with database(app_url()) as connection:
                text = msgspec.json.encode([item]).decode()
                connection.execute("select * from billing_admit(%s, %s::jsonb)", [door.lease.id, text])
            return await door.give_back()

    assert run(scenario()) == 1
    assert books(alice.organization).problems() == []


def exists(table: str, item: HoldItem) -> bool:
    """Whether `table` has the row of a generation, asked from any thread."""
    with database(owner_url()) as connection:
        query = sql.SQL("select 1 from {} where id = %s").format(sql.Identifier(table))
        return bool(connection.execute(query, [item.id]).fetchall())


def test_a_hold_that_waited_too_long_for_others_is_not_taken(alice: Tenant) -> None:
    """Its request has left by then; taken, it would bind money that the next one is refused."""
    rule = budget(alice, "1")
    item = wanted(alice.key)

    async def scenario() -> None:
        async with admission() as door:
            with database(owner_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("select 1 from billing_counter where subject = %s for update", [rule.subject])
                with pytest.raises(DatabaseAway):
                    await door.hold(item)
                blocker.execute("rollback")
            # Of the same key, so it has waited behind the first one's batch.
            assert (await door.hold(wanted(alice.key))).money == 1

    run(scenario())
    assert not Hold.objects.filter(id=item.id).exists()
    assert not Usage.objects.filter(id=item.id).exists()


def test_an_answer_that_is_there_is_taken_by_a_process_that_is_late(alice: Tenant) -> None:
    """Its loop was busy for longer than a request waits, and hears its clock before it reads the answer."""
    item = wanted(alice.key)

    async def scenario() -> Held:
        async with admission() as door:
            await door.hold(wanted(alice.key))
            asking = asyncio.create_task(door.hold(item))
            for _ in range(30):  # until it is sent
                await asyncio.sleep(0)
            patience_ends = time.monotonic() + 0.3
            until(lambda: time.monotonic() > patience_ends and exists("billing_hold", item))
            return await asking

    assert run(scenario()).output_cap == 100
    assert Hold.objects.filter(id=item.id).exists()


def test_open_holds_are_not_given_back(alice: Tenant) -> None:
    item = wanted(alice.key)

    async def scenario() -> int:
        async with admission() as door:
            await door.hold(item)
            return await door.give_back()

    assert run(scenario()) == 0
    assert Hold.objects.filter(id=item.id).exists()


def test_a_sending_that_arrives_after_the_end_changes_nothing(alice: Tenant, tmp_path: Any) -> None:
    """A network may deliver a batch minutes late, when its second sending has long been held and settled."""
    budget(alice, "5")
    Limit.objects.create(organization=alice.organization, measure="open", value=3)
    item = wanted(alice.key)

    async def scenario() -> int:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            await here.settler.settle(settled(item, held, "0", tariff_version=None))
            text = msgspec.json.encode([item]).decode()
            await here.connections.call("select * from billing_admit(%s, %s::jsonb)", [here.lease.id, text])
            return await here.admission.give_back()

    assert run(scenario()) == 1
    assert Usage.objects.get(id=item.id).status == "completed"
    assert LedgerEntry.objects.filter(generation=item.id).count() == 1
    assert books(alice.organization).problems() == []


def test_no_further_dial_of_a_revoked_key_or_of_what_others_have_ended(alice: Tenant) -> None:
    first, second, third = (wanted(alice.key) for _ in range(3))

    async def scenario() -> list[bool]:
        async with admission() as door:
            for item in (first, second):
                await door.hold(item)
            found = [await door.attempt_again(again(first, 2)), await door.attempt_again(again(third, 2))]
            with database(owner_url()) as owner:
                owner.execute("select billing_give_up(%s)", [[first.id]])
                found.append(await door.attempt_again(again(first, 3)))
                owner.execute("update accounts_apikey set revoked_at = now() where id = %s", [alice.key.pk])
            return [*found, await door.attempt_again(again(second, 2))]

    assert run(scenario()) == [True, False, False, False]
    assert list(Attempt.objects.filter(generation=first.id).order_by("number").values_list("number", "status")) == [
        (1, "unknown"),
        (2, "unknown"),
    ]
    assert Attempt.objects.get(generation=second.id).number == 1
    assert not Attempt.objects.filter(generation=third.id).exists()


def again(item: HoldItem, number: int) -> AttemptItem:
    """A further dial of a generation."""
    return AttemptItem(new_hex(), item.id, number, "provider", "upstream", item.model, item.key)


def test_a_process_that_was_paused_renews_its_lease_before_it_holds(alice: Tenant) -> None:
    item = wanted(alice.key)

    async def scenario() -> None:
        async with admission() as door:
            await door.hold(wanted(alice.key))
            with database(owner_url()) as owner:
                owner.execute(
                    "update billing_lease set heartbeat_at = now() - interval '1 hour' where id = %s", [door.lease.id]
                )
            await door.hold(item)

    run(scenario())
    lease = Lease.objects.get(id=Hold.objects.get(id=item.id).lease)
    assert lease.heartbeat_at > datetime.now(UTC) - timedelta(seconds=15)
