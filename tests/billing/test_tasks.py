"""Housekeeping by a real Celery worker in the API's role: whatever runs, how often, in any order, ends the same."""

import os
from collections.abc import Iterator
from copy import copy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from accounts.models import Change
from billing.backbone.leases import DEAD_AFTER, HOUSEKEEPER, LONGEST_GAP
from billing.backbone.settlement import encode
from billing.credit.prepaid import Balance, balance, grant
from billing.models import (
    Attempt,
    Budget,
    Counter,
    CreditKind,
    Delivery,
    ExportSchedule,
    Hold,
    Lease,
    LedgerEntry,
    Limit,
    Recipient,
    Usage,
)
from billing.tasks import MONTHS_AHEAD
from gateway.celery import app as product
from tests.stage.backbone import admission, app_url, books, database, hold_many, owner_url, run, settled, wanted
from tests.stage.books import end_credit
from tests.stage.cast import Tenant
from tests.stage.worker import Worker, working

pytestmark = pytest.mark.backbone

TASKS = sorted({entry["task"] for entry in product.conf.beat_schedule.values()})
WHOLE = os.environ.get("TASK_ORDERS") == "whole"
# Every task is before and after each other one, in `make races` the first and the last, too; all orders of that many
# would take an hour.
ORDERS = [
    (*way[place:], *way[:place])
    for way in (tuple(TASKS), tuple(reversed(TASKS)))
    for place in range(0, len(TASKS), 1 if WHOLE else 6)
]


@pytest.fixture(scope="module")
def worker(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """The product's worker."""
    with working(tmp_path_factory.mktemp("worker")) as found:
        yield found


class Mess:
    """What housekeeping finds: rows it has to end or delete, each beside one that it must leave alone."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.dead_lease, self.dead = self._hold("2 days", "2 days")
        self.living_lease, self.living = self._hold("2 days", "0 seconds")
        self.renew()
        self.old_lease, self.recent_lease = uuid4(), uuid4()
        self.old_change, self.recent_change = self._change("61 minutes"), self._change("59 minutes")
        now = datetime.now(UTC)
        self.old_window = self._window("minute", now - timedelta(minutes=62))
        self.held_window = self._window("minute", now - timedelta(minutes=63), held=1)
        self.recent_window = self._window("minute", now - timedelta(minutes=58))
        self.old_day = self._window("day", now - timedelta(days=40))
        with database(owner_url()) as owner:
            for id, age in ((self.old_lease, "25 hours"), (self.recent_lease, "23 hours")):
                owner.execute(
                    "insert into billing_lease values (%(id)s, 'there', 1, now() - %(age)s::interval,"
                    " now() - %(age)s::interval)",
                    {"id": id, "age": age},
                )
            # The housekeeper itself has been running for a while.
            owner.execute(
                "insert into billing_lease values (%s, 'here', 1, now() - interval '1 hour', now()) on conflict (id)"
                " do update set started_at = excluded.started_at, heartbeat_at = excluded.heartbeat_at",
                [HOUSEKEEPER],
            )
            # So far ahead that nothing is in it.
            for table in ("billing_usage", "billing_attempt"):
                owner.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(f"{table}_{months()[-1]}")))

    def renew(self) -> None:
        """Lets the living one live for as long as anybody may who does not say so again: it is not further ahead of the
        clock than a lease is long.
        """
        with database(owner_url()) as owner:
            owner.execute(
                "update billing_lease set heartbeat_at = clock_timestamp() + %s where id = %s",
                [DEAD_AFTER - timedelta(seconds=2), self.living_lease],
            )

    def _hold(self, started: str, silent: str) -> tuple[UUID, UUID]:
        item = wanted(self.tenant.key)

        async def scenario() -> UUID:
            async with admission() as door:
                await door.hold(item)
                return door.lease.id

        lease: UUID = run(scenario())
        with database(owner_url()) as owner:
            owner.execute(
                "update billing_lease set started_at = now() - %s::interval, heartbeat_at = now() - %s::interval"
                " where id = %s",
                [started, silent, lease],
            )
            # The request's own time is over, so that nobody streams on a hard budget any more.
            owner.execute("update billing_hold set facts = facts || '{\"seconds\": 0}' where lease = %s", [lease])
        return lease, UUID(item.id)

    def _change(self, age: str) -> int:
        with database(owner_url()) as owner:
            ((id,),) = owner.execute(
                'insert into accounts_change (xid, "table", "row", at)'
                " values (0, 'tests', %s, now() - %s::interval) returning id",
                [str(self.tenant.organization.pk), age],
            ).fetchall()
        return int(id)

    def _window(self, period: str, start: datetime, held: int = 0) -> int:
        row = Counter.objects.create(
            organization=self.tenant.organization.pk,
            subject=uuid4(),
            measure="money" if period == "day" else "requests",
            period=period,
            period_start=start,
            held=held,
        )
        return int(row.pk)

    def rows(self) -> dict[str, list[Any]]:
        """Everything of the tenant's that housekeeping could touch."""
        organization = self.tenant.organization.pk
        generations = [self.dead, self.living]
        leases = [self.dead_lease, self.living_lease, self.old_lease, self.recent_lease]
        found = {
            "changes": Change.objects.filter(row=str(organization), table="tests"),
            "counters": Counter.objects.filter(organization=organization),
            "leases": Lease.objects.filter(pk__in=leases),
            "holds": Hold.objects.filter(organization=organization),
            "usage": Usage.objects.filter(organization=organization),
            "attempts": Attempt.objects.filter(generation__in=generations),
            "ledger": LedgerEntry.objects.filter(organization=organization),
        }
        return {name: list(rows.order_by("pk").values()) for name, rows in found.items()} | {"tables": partitions()}


def months() -> list[str]:
    """This month and those ahead of it, UTC, as partitions are named."""
    now = datetime.now(UTC)
    places = [now.year * 12 + now.month - 1 + ahead for ahead in range(MONTHS_AHEAD + 1)]
    return [f"{place // 12}_{place % 12 + 1:02}" for place in places]


def partitions() -> list[str]:
    """The partitions of usage and attempts."""
    query = (
        "select inhrelid::regclass::text from pg_inherits"
        " where inhparent in ('billing_usage'::regclass, 'billing_attempt'::regclass) order by 1"
    )
    with database(owner_url()) as owner:
        return [name for (name,) in owner.execute(query).fetchall()]


@pytest.fixture
def mess(alice: Tenant) -> Iterator[Mess]:
    """Alice's, with a budget and every limit."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(100))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=1000)
    yield Mess(alice)
    with database(owner_url()) as owner:
        owner.execute("select billing_make_partitions(%s)", [MONTHS_AHEAD])  # for the tests that come after


def test_every_scheduled_task_is_known() -> None:
    product.loader.import_default_modules()
    ours = {name for name in product.tasks if not name.startswith("celery.")}
    billings = {
        *("audit", "drop_old_months", "expire_credit", "make_partitions", "prune"),
        *("resolve_dead_holds", "roll_up_usage", "seal"),
    }
    gateways = {"gateway.alert", "gateway.prune_files", "gateway.prune_refused", "gateway.store_exports"}
    gateways.add("gateway.purge_payloads")
    routings = {"routing.fetch_price_list", "routing.prune", "routing.roll_up"}
    assert set(TASKS) == {*(f"billing.{name}" for name in billings), *routings, *gateways, "accounts.seal_log"}
    asked_for = {
        "routing.fetch_bill",
        "routing.replay",
        "billing.count_repricing",
        "billing.apply_repricing",
    }  # by somebody, when they like
    assert ours == {*TASKS, *asked_for}


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: "-".join(task.partition(".")[2] for task in order))
def test_tasks_run_twice_in_any_order_end_the_same(worker: Worker, mess: Mess, order: tuple[str, ...]) -> None:
    worker.run(*order, *order)
    mess.renew()
    after = mess.rows()

    assert [row["id"] for row in after["changes"]] == [mess.recent_change]
    counters = {row["id"] for row in after["counters"]}
    assert mess.old_window not in counters
    assert {mess.held_window, mess.recent_window, mess.old_day} < counters
    assert {row["id"] for row in after["leases"]} == {mess.living_lease, mess.recent_lease}
    assert [row["id"] for row in after["holds"]] == [mess.living]
    (usage,) = after["usage"]
    assert (usage["id"], usage["status"], usage["basis"], usage["error"]) == (
        mess.dead, "abandoned", "unknown", "process_died",
    )  # fmt: skip
    assert (usage["charge"], usage["provider_cost"]) == (Decimal(0), None)
    assert {row["generation"]: row["status"] for row in after["attempts"]} == {
        mess.dead: "unknown", mess.living: "dialling",
    }  # fmt: skip
    assert [(row["generation"], row["kind"], row["amount"]) for row in after["ledger"]] == [
        (mess.dead, "void", Decimal(0))
    ]
    held = {row["measure"]: row["held"] for row in after["counters"] if row["id"] in _counters(mess)}
    assert held == {"money": Decimal(1), "requests": 0, "tokens": 100, "open": 1}  # the living one's alone
    assert set(after["tables"]) == {
        f"billing_{table}_{name}" for table in ("usage", "attempt") for name in ("default", *months())
    }

    for task in TASKS:  # what each leaves as it is, all of them leave in any order
        worker.run(task)
        assert mess.rows() == after, task


def _counters(mess: Mess) -> list[int]:
    """The counters that the living hold is held on."""
    return list(Hold.objects.get(pk=mess.living).counters)


def test_a_partition_made_by_the_worker_takes_rows_and_is_closed_to_it(worker: Worker, mess: Mess) -> None:
    worker.run("billing.make_partitions")
    with database(owner_url()) as owner, owner.transaction(force_rollback=True):
        first = (datetime.now(UTC).replace(day=1) + timedelta(days=31 * MONTHS_AHEAD)).replace(day=15)
        assert f"{first.year}_{first.month:02}" == months()[-1]
        facts = {"id": f"{int(first.timestamp() * 1000):012x}70008000000000000000", "generation": str(uuid4()),
                 "number": 1, "provider": "", "upstream_model": "", "started_at": str(first), "status": "dialling",
                 "fault": "", "model": ""}  # fmt: skip
        rows = owner.execute(
            "insert into billing_attempt select * from jsonb_populate_record(null::billing_attempt, %s)"
            " returning tableoid::regclass::text",
            [Jsonb(facts)],
        ).fetchall()
    assert rows == [(f"billing_attempt_{months()[-1]}",)]
    with database(app_url()) as app:
        for table in ("billing_usage", "billing_attempt"):
            rights = app.execute(
                "select has_table_privilege(%s, 'select, insert, update, delete, truncate')",
                [f"{table}_{months()[-1]}"],
            ).fetchall()
            assert rights == [(False,)]


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_a_pickled_message_is_never_opened(worker: Worker, tmp_path: Path) -> None:
    trap = Trap(tmp_path / "sprung")
    worker.send("billing.prune", args=[trap], serializer="pickle")
    worker.run("billing.prune")  # of the same queue, so the first one has been looked at
    assert "Refusing to deserialize" in worker.log()
    assert not trap.folder.exists()
    assert worker.process.poll() is None


def test_books_of_what_housekeeping_ended_are_right(worker: Worker, mess: Mess) -> None:
    worker.run("billing.resolve_dead_holds")
    with database(owner_url()) as owner:
        owner.execute("update billing_lease set heartbeat_at = now() - interval '2 days' where id = %s",
                      [mess.living_lease])  # fmt: skip
        owner.execute("delete from billing_counter where id = %s", [mess.held_window])
    worker.run("billing.resolve_dead_holds")
    assert books(mess.tenant.organization).problems() == []
    assert Usage.objects.filter(organization=mess.tenant.organization.pk, status="abandoned").count() == 2


def test_what_the_last_gateway_left_when_it_died_is_settled_and_ended(worker: Worker, alice: Tenant) -> None:
    """No gateway is left to do it, and the process was heard of a moment ago; but nobody locks its spool any more."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(100))

    async def scenario() -> UUID:
        async with admission() as door:
            (item, held), (_, _) = await hold_many(door, alice.key, 2)
            line = encode(settled(item, held, "0.5"))
            (worker.spool / f"{door.lease.id}.spool").write_bytes(line + b"\n" + line[:20])  # the last one is torn
            return door.lease.id

    lease = run(scenario())
    worker.run("billing.resolve_dead_holds")
    rows = Usage.objects.filter(organization=alice.organization.pk)
    assert sorted((row.status, row.charge) for row in rows) == [("abandoned", 0), ("completed", Decimal("0.5"))]
    assert not Hold.objects.filter(organization=alice.organization.pk).exists()
    assert not Lease.objects.filter(id=lease).exists()
    assert list(worker.spool.iterdir()) == []


def test_a_budget_that_is_nearly_spent_is_told_by_the_worker(worker: Worker, alice: Tenant) -> None:
    """As far as it goes without a mail server; `tests/alerts` has the rest."""
    made = Recipient.objects.create(organization=alice.organization, channel="mail", address="finance@tenant.example")
    budget = Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(10))
    Counter.objects.filter(subject=budget.subject).update(used=Decimal(8))
    worker.run("gateway.alert", "gateway.alert")
    (row,) = Delivery.objects.filter(organization=alice.organization.pk)
    assert (row.recipient, row.status, row.tries) == (made.pk, "waiting", 1)
    assert row.last_error == "no mail is sent: EMAIL_HOST is not set"
    Delivery.objects.filter(pk=row.pk).update(status="given_up")


def test_credit_whose_time_is_over_is_taken_by_the_worker(worker: Worker, alice: Tenant) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    for kind, expires in ((CreditKind.TOP_UP, None), (CreditKind.BONUS, later)):
        end = grant(alice.organization, kind, Decimal(2), kind, "finance", expires_at=expires, begin=True)
    worker.run("billing.expire_credit")
    assert balance(alice.organization.pk) == Balance(*map(Decimal, (4, 2, 2, 0)))
    end_credit(end)
    worker.run("billing.expire_credit", "billing.expire_credit")
    assert balance(alice.organization.pk) == Balance(*map(Decimal, (2, 0, 2, 0)))
    rows = LedgerEntry.objects.filter(organization=alice.organization.pk, kind="expired")
    assert [row.amount for row in rows] == [2]


def test_what_is_due_of_a_schedule_is_stored_by_the_worker(worker: Worker, alice: Tenant) -> None:
    """As far as a folder goes; `tests/storage` has the rest."""
    first = (datetime.now(UTC) - timedelta(days=3)).date()
    made = ExportSchedule.objects.create(
        name=alice.organization.slug, organization=alice.organization, kind="folder", first=first
    )
    worker.run("billing.seal", "gateway.store_exports", "gateway.store_exports")
    ExportSchedule.objects.filter(pk=made.pk).update(active=False)
    stored = [(row.start, row.state, row.tries, row.rows) for row in made.periods.order_by("start")]
    assert stored[0] == (first, "stored", 1, 0) and all(row[1:3] == ("stored", 1) for row in stored)
    files = {path.name for path in (worker.exports / made.name).iterdir()}
    assert files == {f"generations-{start}.csv{end}" for start, *_ in stored for end in ("", ".json")}


def test_without_a_gateway_the_worker_ends_their_holds_within_half_a_minute() -> None:
    """It may say that it lives one time too late, and is believed all the same."""
    every = product.conf.beat_schedule["resolve"]["schedule"].run_every
    assert DEAD_AFTER + every < timedelta(seconds=30)
    assert 2 * every <= LONGEST_GAP


@pytest.mark.parametrize("name", product.conf.beat_schedule)
def test_a_clock_that_is_set_back_keeps_no_task_waiting(name: str) -> None:
    every = product.conf.beat_schedule[name]["schedule"]
    seconds = every.run_every.total_seconds()
    now = every.now()
    assert abs(now - datetime.now(UTC)) < timedelta(minutes=1)
    assert every.is_due(now + timedelta(hours=1)) == (True, seconds)
    assert every.is_due(now - timedelta(seconds=seconds)) == (True, seconds)
    due, left = every.is_due(now)
    assert not due and seconds - 2 < left <= seconds
    assert type(copy(every)) is type(every)  # by what pickle asks as well, when beat writes it down
