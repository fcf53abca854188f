"""What a batch reads is what it names, however old its plans, however many rows others have, and whoever else keeps a
transaction open.
"""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from django.conf import settings

from accounts import callers, keys
from accounts.models import ApiKey, Organization, Project
from billing.backbone.admission import AttemptItem, Held, HoldItem
from billing.backbone.connections import SESSION
from billing.backbone.leases import DEAD_AFTER, LONGEST_GAP
from billing.backbone.settlement import encode
from billing.credit.prepaid import BALANCE, grant
from billing.ids import new_hex, new_id
from billing.models import Budget, CreditKind, Limit, Prepaid
from gateway.endpoints.generations import Generations
from gateway.endpoints.management import BUDGETS
from tests.stage.backbone import app_url, database, owner_url, settled, wanted
from tests.stage.cast import Tenant

pytestmark = pytest.mark.backbone

COUNTERS = int(os.environ.get("COUNTERS", "50000"))  # `make plans`: 1,000,000
OTHERS = 2000  # rows of every other table
BLOCKS = """
    select coalesce(sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit), 0)::bigint
      from pg_statio_user_tables where relname like any (array['billing\\_%%', 'accounts\\_%%'])
"""
Statement = Callable[[], list[tuple[Any, ...]]]


class Session:
    """One session of the app's with a lease, as the backbone's are, and how many blocks it has touched."""

    def __init__(self, connection: "psycopg.Connection[Any]", tenant: Tenant) -> None:
        self._connection = connection
        self._tenant = tenant
        self._lease = new_id()
        connection.execute(SESSION)
        connection.execute("set statement_timeout = 0")  # blocks are counted here, however long they take
        self.heartbeat()

    def run(self, query: str, *params: object) -> list[tuple[Any, ...]]:
        """A statement, its plan kept."""
        return self._connection.execute(query, params, prepare=True).fetchall()

    def blocks(self, work: Callable[[], object]) -> int:
        """Blocks of tables and indexes that `work` touched."""
        self.run("select pg_stat_force_next_flush()")
        ((before,),) = self.run(BLOCKS)
        work()
        self.run("select pg_stat_force_next_flush()")
        ((after,),) = self.run(BLOCKS)
        return int(after - before)

    def heartbeat(self) -> None:
        """The lease lives."""
        self.run("select billing_heartbeat(%s, 'here', 1, %s)", self._lease, LONGEST_GAP)

    def hold(self) -> tuple[HoldItem, Held]:
        """One hold of the tenant's."""
        item = wanted(self._tenant.key, patience=60_000)
        ((*_, verdict, cap, money, counters, hard, _, _, _, at),) = self.run(
            "select * from billing_admit(%s, %s::jsonb)", self._lease, msgspec.json.encode([item]).decode()
        )
        assert verdict == "admitted"
        return item, Held(cap, money, counters, hard, at)

    def settle(self, item: HoldItem, held: Held) -> None:
        """Its settlement."""
        line = encode(settled(item, held, "0.01")).decode()
        ((_, outcome),) = self.run("select * from billing_settle(%s::jsonb)", f"[{line}]")
        assert outcome == "settled"

    def everything(self) -> dict[str, int]:
        """Blocks that each statement on a request's way touches."""
        found: dict[str, int] = {}
        held: list[tuple[HoldItem, Held]] = []
        found["heartbeat"] = self.blocks(self.heartbeat)
        found["hold"] = self.blocks(lambda: held.append(self.hold()))
        item, given = held[0]
        again = AttemptItem(new_hex(), item.id, 2, "provider", "upstream", "test/model", item.key)
        found["attempt"] = self.blocks(
            lambda: self.run("select * from billing_attempt_again(%s)", msgspec.json.encode([again]).decode())
        )
        found["mine"] = self.blocks(lambda: self.run("select id from billing_hold where lease = %s", self._lease))
        found["settle"] = self.blocks(lambda: self.settle(item, given))
        other, _ = self.hold()
        found["give back"] = self.blocks(lambda: self.run("select billing_give_back(%s)", [UUID(other.id)]))
        found["resolve"] = self.blocks(lambda: self.run("select billing_resolve(%s, %s, 1)", self._lease, DEAD_AFTER))
        digests = keys.digests(self._tenant.secret, settings.KEY_PEPPERS)
        found["look up"] = self.blocks(lambda: self.run(callers.FIND, digests))
        found["quota"] = self.blocks(lambda: self.run(BUDGETS, self._tenant.organization.pk))
        found["balance"] = self.blocks(lambda: self.run(BALANCE, self._tenant.organization.pk))
        found["generation"] = self.blocks(
            lambda: self.run(Generations.QUERY, UUID(item.id), self._tenant.organization.pk)
        )
        return found


def worst(session: Session) -> dict[str, int]:
    """The median of three rounds, of each statement: a page may split in one of them."""
    rounds = [session.everything() for _ in range(3)]
    return {name: sorted(each[name] for each in rounds)[1] for name in rounds[0]}


def crowd(count: int) -> None:
    """So many organizations with a project, a key, a limit, a budget and a balance each."""
    mark = f"crowd-{secrets.token_hex(4)}"
    organizations = Organization.objects.bulk_create(
        Organization(slug=f"{mark}-{number}", name="Crowd") for number in range(count)
    )
    projects = Project.objects.bulk_create(
        Project(organization=each, slug="main", name="Main") for each in organizations
    )
    ApiKey.objects.bulk_create(
        ApiKey(project=each, name="key", digest=secrets.token_bytes(32), prefix="sk-ml-crowd") for each in projects
    )
    Limit.objects.bulk_create(Limit(organization=each, measure="requests", value=1) for each in organizations)
    Budget.objects.bulk_create(Budget(organization=each, period="day", amount=1) for each in organizations)
    now = datetime.now(UTC)
    Prepaid.objects.bulk_create(
        Prepaid(organization=each, since=now, granted=1, granted_at=now, used=0) for each in organizations
    )


@contextmanager
def filled() -> Iterator[None]:
    """A crowd: counters by the million, and thousands of everything else."""
    crowd(OTHERS)
    counters = (
        "insert into billing_counter (organization, subject, measure, period, period_start, used, held)"
        " select %s, gen_random_uuid(), 'requests', 'minute', now(), 0, 0 from generate_series(1, %s)"
    )
    nobody = new_id()
    with database(owner_url()) as owner:
        owner.execute(counters, [nobody, COUNTERS])
        try:
            yield
        finally:
            owner.execute("delete from billing_counter where organization = %s", [nobody])
            owner.execute("vacuum billing_counter")
            Prepaid.objects.filter(organization__slug__startswith="crowd-").delete()


@pytest.fixture
def session(alice: Tenant) -> Iterator[Session]:
    """A session of Alice's, who has every kind of counter."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1_000_000))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="day", amount=Decimal(10**6))
    grant(alice.organization, CreditKind.TOP_UP, Decimal(1_000_000), "all of it", "finance", begin=True)
    for part in ({"model": "test/model"}, {"end_user": "*"}):
        Budget.objects.create(organization=alice.organization, period="month", amount=Decimal(10**6), **part)
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=10**9)
    with database(app_url()) as connection:
        yield Session(connection, alice)


@pytest.mark.timeout(900)
def test_plans_kept_from_a_time_of_few_rows_read_no_more_of_many(session: Session) -> None:
    # As few as autovacuum looks at. Of one or two rows no plan is better than another, until it looks: within a minute.
    crowd(60)
    with database(owner_url()) as owner:
        owner.execute("analyze")
        for _ in range(6):
            session.everything()
        before = worst(session)
        with filled():
            after = worst(session)
            owner.execute("analyze billing_counter")  # which makes every kept plan anew
            planned_anew = worst(session)
    for name, blocks in before.items():
        # An index of a million is two levels higher than one of a few, and a statement goes down a few of them.
        most = 2 * blocks + 40
        assert after[name] <= most, f"{name}: {before} {after}"
        assert planned_anew[name] <= most, f"{name}: {before} {planned_anew}"


@pytest.mark.timeout(900)
def test_an_old_transaction_makes_no_hold_and_no_settlement_dearer(session: Session) -> None:
    """Nothing that was written since it began can be cleared away: here 1,200 versions of each counter."""
    with database(owner_url()) as analyst:
        analyst.execute("begin isolation level repeatable read")
        analyst.execute("select count(*) from billing_counter")
        for _ in range(20):
            session.settle(*session.hold())
        young = worst(session)
        for number in range(600):
            if number % 20 == 0:
                session.heartbeat()
            session.settle(*session.hold())
        old = worst(session)
        analyst.execute("rollback")
    # A counter is at most 32 versions behind its newest mark, here eight counters of them, each looked up twice.
    for name in ("hold", "settle"):
        assert old[name] <= 2 * young[name] + 40, f"{name}: {young} {old}"
