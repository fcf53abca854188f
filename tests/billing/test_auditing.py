"""The auditor: an error of the smallest unit in any row of any month is named, mended it is gone; traffic is none."""

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import Sum

from billing import auditing
from billing.auditing import _counts, audit
from billing.backbone.settlement import encode
from billing.models import AccountDay, AuditFinding, AuditState, ReportTags, TagRollup, Usage
from billing.rollups import roll_up_usage
from billing.sealing import seal
from tests.console.browser import console, make_usage
from tests.stage.backbone import admission, app_url, books, database, hold_many, owner_url, run, settled
from tests.stage.books import empty, findings, forced, fresh_books, make_whole, spend
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import running, until
from tests.stage.shelf import make_tariff
from tests.stage.worker import working

pytestmark = pytest.mark.backbone

UNIT = "0.000000000001"
IN_USAGE = "update billing_usage set {column} = {column} {sign} 0.000000000001 where id = '{id}'"
IN_LEDGER = (
    "update billing_ledgerentry set amount = amount {sign} 0.000000000001 where generation = '{id}' and debit = 'cost'"
)
DAYS = (0, 0, 2, 40, 75)  # ago


@pytest.fixture(scope="module")
def fresh(database: None) -> Iterator[None]:
    """A database whose books no other test has touched."""
    with fresh_books():
        yield


@pytest.fixture
def rows(fresh: None) -> list[Usage]:
    """Generations of several months that are settled, rolled up, sealed and audited."""
    empty()
    tenant = make_tenant("alice")
    made = [spend(tenant, ago(days)) for days in DAYS]
    make_whole()
    assert findings() == []
    return made


def ago(days: int) -> datetime:
    """So many days ago."""
    return datetime.now(UTC) - timedelta(days=days)


def about(row: Usage) -> str:
    return f"generation {row.pk.hex} of {row.organization}"


@pytest.mark.parametrize("which", range(len(DAYS)))
def test_a_unit_in_a_usage_row_of_any_month_is_named_and_mended_it_is_gone(
    rows: list[Usage], monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    monkeypatch.setattr(auditing, "IN_TURN", 0)  # not by chance
    row = rows[which]
    for column, amount in (
        ("charge", Decimal("0.00132")),
        ("provider_cost", Decimal("0.001")),
        ("overrun", Decimal(0)),
    ):
        assert forced(IN_USAGE.format(column=column, sign="+", id=row.pk)) == 1
        assert audit() == 1
        assert findings() == [("generation", about(row))]
        finding = AuditFinding.objects.get()
        name = {"provider_cost": "cost"}.get(column, column)
        assert f"{name} {amount + Decimal(UNIT):f}".rstrip("0") in finding.expected
        assert audit() == 1
        assert AuditFinding.objects.get().first_seen == finding.first_seen
        assert forced(IN_USAGE.format(column=column, sign="-", id=row.pk)) == 1
        assert audit() == 0
        assert AuditFinding.objects.get().gone_at is not None
        finding.delete()


@pytest.mark.parametrize("which", range(len(DAYS)))
def test_a_unit_in_the_ledger_is_named_with_its_block(rows: list[Usage], which: int) -> None:
    assert forced(IN_LEDGER.format(sign="+", id=rows[which].pk)) == 1
    audit()
    assert findings() == [
        ("block", "block 1"), ("generation", about(rows[which])), ("touched", "billing_ledgerentry"),
    ]  # fmt: skip
    assert forced(IN_LEDGER.format(sign="-", id=rows[which].pk)) == 1
    audit()
    assert findings() == [("touched", "billing_ledgerentry")]  # it was written to, whatever it says
    assert audit() == 0


CHANGES = {
    "usage gone": ("delete from billing_usage where id = '{id}'", "generation"),
    "a posting gone": ("delete from billing_ledgerentry where generation = '{id}' and debit = 'cost'", "generation"),
    "all postings gone": ("delete from billing_ledgerentry where generation = '{id}'", "generation"),
    "closed twice": ("select billing_close(array['{id}'::uuid])", "generation"),
    "an organization": ("update billing_usage set organization = gen_random_uuid() where id = '{id}'", "generation"),
    "another account": ("update billing_ledgerentry set credit = 'overrun' where generation = '{id}'"
                        " and credit = 'revenue'", "generation"),
    "the ledger emptied": ("truncate billing_ledgerentry", "touched"),
    "a block's amount": ("update billing_ledgerblock set amount = amount + 0.000000000001 where number = 1", "block"),
    "a block gone": ("delete from billing_ledgerblock where number = 1", "block"),
    "a balance": ("update billing_accountday set debit = debit + 0.000000000001 where id ="
                  " (select min(id) from billing_accountday)", "balances"),
    "a day": ("update billing_usagerollup set charge = charge + 0.000000000001 where span = 'day' and starts_at ="
              " (select min(starts_at) from billing_usagerollup)", "rollup"),
    "a day of now": ("update billing_usagerollup set charge = charge + 0.000000000001 where span = 'day' and starts_at"
                     " = (select max(starts_at) from billing_usagerollup where span = 'day')", "rollup"),
    "an hour": ("update billing_usagerollup set charge = charge + 0.000000000001 where span = 'hour' and starts_at ="
                " (select max(starts_at) from billing_usagerollup)", "rollup"),
    "a request less": ("update billing_usagerollup set requests = requests - 1 where span = 'day' and starts_at ="
                       " (select min(starts_at) from billing_usagerollup)", "rollup"),
    "a day gone": ("delete from billing_usagerollup where span = 'day' and starts_at ="
                   " (select min(starts_at) from billing_usagerollup)", "rollup"),
    "a day of a key": ("update billing_spendrollup set charge = charge - 0.000000000001 where id = (select id"
                       " from billing_spendrollup where span = 'day' and starts_at < date_trunc('day', now(), 'UTC')"
                       " order by starts_at desc limit 1)", "rollup"),
}  # fmt: skip


@pytest.mark.parametrize("what", CHANGES)
def test_whatever_is_changed_is_found_by_the_next_run(
    rows: list[Usage], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(auditing, "IN_TURN", 0)
    statement, kind = CHANGES[what]
    forced(statement.format(id=rows[3].pk))
    assert audit()
    assert kind in dict(findings())


TAG_CHANGES = {
    "a day by end user": "update billing_tagrollup set charge = charge + 0.000000000001 where span = 'day' and tag = ''"
                         " and value = 'ann'",
    "a day by tag": "update billing_tagrollup set requests = requests - 1 where span = 'day' and tag = 'team'"
                    " and value = 'red'",
    "a day's rest": "delete from billing_tagrollup where span = 'day' and value = ''",
    "an hour by end user": "update billing_tagrollup set charge = charge - 0.000000000001 where span = 'hour'"
                           " and tag = ''",
    "an hour by tag": "delete from billing_tagrollup where span = 'hour' and tag = 'team'",
}  # fmt: skip


def test_what_is_changed_by_end_user_or_tag_is_found(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hours once they no longer change, days in turn; what is open is looked at each time."""
    empty()
    tenant = make_tenant("alice")
    ReportTags.objects.create(organization=tenant.organization, names=["team"])
    final = (datetime.now(UTC) - timedelta(hours=2)).replace(minute=0, second=0, microsecond=0) - timedelta(minutes=30)
    for moment in (final, ago(3)):
        spend(tenant, moment, end_user="ann", metadata={"team": "red"})
        spend(tenant, moment)
    make_whole()
    assert findings() == []
    kept = forced("create table kept_tagrollup as table billing_tagrollup")
    assert kept == TagRollup.objects.count() > 0
    for what, statement in TAG_CHANGES.items():
        state = AuditState.objects.get()
        state.state["hour"] = ""
        state.save()
        assert forced(statement), what
        monkeypatch.setattr(auditing, "TAGGED_IN_TURN", 34)
        assert audit() and dict(findings()).keys() == {"rollup"}, what
        monkeypatch.setattr(auditing, "TAGGED_IN_TURN", 0)
        assert audit() and dict(findings()).keys() == {"rollup"}, what
        forced("delete from billing_tagrollup; insert into billing_tagrollup select * from kept_tagrollup")
        assert audit() == 0, what
    forced("drop table kept_tagrollup")
    # A tag that is named no more, or not told apart yet, is no error.
    ReportTags.objects.filter(pk=tenant.organization.pk).update(names=["trace"], rolled_up=False)
    monkeypatch.setattr(auditing, "TAGGED_IN_TURN", 34)
    state = AuditState.objects.get()
    state.state["hour"] = ""
    state.save()
    assert audit() == 0


def unseen(**changes: Any) -> None:
    """As if the counts had not moved, as for a superuser who turned them off."""
    state = AuditState.objects.get()
    state.state["seen"] = {name: [*counts[:3], changes.get("reset", counts[3])] for name, counts in _counts().items()}
    state.save()


def test_what_no_count_tells_is_found_in_turn(rows: list[Usage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "IN_TURN", 2)
    forced(IN_USAGE.format(column="charge", sign="+", id=rows[4].pk))
    forced(CHANGES["a block's amount"][0])
    unseen()
    for _ in DAYS:
        audit()
    assert findings() == [("balances", "all balances"), ("block", "block 1"), ("generation", about(rows[4]))]


def test_counts_that_were_reset_tell_nothing_so_everything_is_looked_at(
    rows: list[Usage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "IN_TURN", 0)
    forced(IN_USAGE.format(column="charge", sign="+", id=rows[4].pk))
    unseen(reset="another time")
    audit()
    assert findings() == [("generation", about(rows[4]))]


def test_a_late_settlement_is_no_error(rows: list[Usage]) -> None:
    """It is of an hour long rolled up, in an older month, and comes before it is sealed or rolled up again."""
    tenant = make_tenant("bob")
    spend(tenant, ago(40), model="late/model")
    forced(
        "insert into billing_latehour (hour) select date_trunc('hour', created_at, 'UTC') from billing_usage"
        " where model = 'late/model'"
    )
    assert audit() == 0
    seal()
    assert audit() == 0
    roll_up_usage()
    assert audit() == 0


def test_what_is_found_is_bounded(rows: list[Usage]) -> None:
    tenant = make_tenant("bob")
    for _ in range(30):
        make_usage(tenant)
    assert audit() == auditing.MOST_FOUND


def test_entries_that_are_not_sealed_for_long_are_told(rows: list[Usage]) -> None:
    spend(make_tenant("bob"), ago(0))
    assert audit() == 0
    forced("update billing_mark set ran_at = now() - interval '16 minutes' where name = 'sealing'")
    audit()
    assert findings() == [("sealing", "the ledger")]
    seal()
    assert audit() == 0


RACED = int(os.environ.get("RACED_SETTLEMENTS", "200"))
CHARGE = Decimal("0.123457")  # a token


def test_of_those_who_settle_and_void_at_once_exactly_one_wins(
    rows: list[Usage], alice: Tenant, tmp_path: Path
) -> None:
    """Each hold is settled by two and given back by two, at the same time; the auditor looks on."""

    async def scenario() -> list[str]:
        async with admission() as door:
            held = await hold_many(door, alice.key, RACED)
        what = {"completion_tokens": 1, "tariff_version": version.pk, "provider_cost": Decimal("0.061728")}
        return [encode(settled(item, given, CHARGE, **what)).decode() for item, given in held]

    version = make_tariff(input="0", output=("61728", "123457")).versions.get()
    items = run(scenario())
    ids = [json.loads(item)["id"] for item in items]
    outcomes: Counter[tuple[str, str]] = Counter()
    guard = threading.Lock()
    start = threading.Barrier(5)

    def settles(seed: int) -> None:
        with database(app_url()) as app:
            start.wait()
            for at in batches(seed):
                batch = "[" + ",".join(items[n] for n in at) + "]"
                ended = app.execute("select id, outcome from billing_conclude(%s::jsonb)", [batch]).fetchall()
                with guard:
                    outcomes.update((UUID(str(id)).hex, outcome) for id, outcome in ended if outcome != "repeated")

    def voids(seed: int) -> None:
        with database(app_url()) as app:
            start.wait()
            for at in batches(seed):
                app.execute("select billing_give_back(%s::uuid[])", [[ids[n] for n in at]])

    def batches(seed: int) -> list[list[int]]:
        order = list(range(RACED))
        random.Random(seed).shuffle(order)
        return [order[place : place + 5] for place in range(0, RACED, 5)]

    def audits() -> list[int | None]:
        try:
            start.wait()
            return [audit() for _ in range(5)]
        finally:
            connection.close()

    with ThreadPoolExecutor(5) as pool:
        jobs = [pool.submit(settles, 1), pool.submit(settles, 2), pool.submit(voids, 3), pool.submit(voids, 4)]
        looked = pool.submit(audits)
        for job in jobs:
            job.result()
    assert set(looked.result()) <= {0, None}

    assert len(outcomes) == RACED and set(outcomes.values()) == {1}
    assert {outcome for _, outcome in outcomes} <= {"settled", "late"}
    with database(owner_url()) as owner:
        standing = owner.execute(
            "select count(*) filter (where debit like 'tenant:%%') - count(*) filter (where credit like 'tenant:%%')"
            " from billing_ledgerentry where organization = %s group by generation",
            [alice.organization.pk],
        ).fetchall()
    assert standing == [(1,)] * RACED
    make_whole()
    assert findings() == []
    sums = AccountDay.objects.filter(organization=alice.organization.pk, account=f"tenant:{alice.organization.pk}")
    assert sums.aggregate(balance=Sum("debit") - Sum("credit"))["balance"] == RACED * CHARGE
    used = Usage.objects.filter(organization=alice.organization.pk).aggregate(Sum("charge"))["charge__sum"]
    assert used == RACED * CHARGE
    assert books(alice.organization).problems() == []


@pytest.mark.slow
def test_within_ninety_seconds_worker_and_beat_raise_the_alarm(rows: list[Usage], tmp_path: Path) -> None:
    """A unit, in an old month, by somebody who may do everything; seen in the log, the metrics and the console."""
    with working(tmp_path, beat=True) as worker, running(tmp_path) as (gateway,):
        forced(IN_USAGE.format(column="charge", sign="+", id=rows[4].pk))
        until(lambda: bool(findings()), 90)
        assert findings() == [("generation", about(rows[4]))]
        until(lambda: f"the books do not agree: {about(rows[4])}" in worker.log(), 5)
        until(lambda: "meterline_audit_findings 1.0\n" in gateway.client.get("/metrics").text, 5)
        text = gateway.client.get("/metrics").text
        audited = float(text.split("\nmeterline_audit_timestamp_seconds ")[1].split()[0])
        assert abs(audited - time.time()) < 60
    first = console().get("/console/").content.decode()
    assert "The books do not agree: 1 finding" in first
    assert about(rows[4]) in console().get("/console/billing/auditfinding/").content.decode()
