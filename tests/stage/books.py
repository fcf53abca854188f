"""A database whose books no other test has touched, what is posted to them, and what only their owner may do."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from django.conf import settings
from django.db import connection
from django.utils import timezone
from psycopg import sql

from billing.auditing import audit
from billing.ids import first_id
from billing.issuing import issue
from billing.models import AuditFinding, ClosedMonth, ClosedSum, Statement, Usage
from billing.rollups import roll_up_usage
from billing.sealing import seal
from tests.console.browser import make_usage
from tests.stage.backbone import database, owner_url, speaking_to
from tests.stage.cast import Tenant


def _copy() -> str:
    return f"{connection.settings_dict['NAME']}_books"


@contextmanager
def copied() -> Iterator[None]:
    """Keeps a copy of the tests' database, as it is now, while the block runs: to migrate another takes seconds."""
    connection.close()
    made, test = sql.Identifier(_copy()), sql.Identifier(connection.settings_dict["NAME"])
    with database(settings.DATABASE_URL) as cluster:
        cluster.execute(sql.SQL("drop database if exists {}").format(made))
        cluster.execute(sql.SQL("create database {} template {}").format(made, test))
    yield
    with database(settings.DATABASE_URL) as cluster:
        cluster.execute(sql.SQL("drop database {}").format(made))


@contextmanager
def fresh_books() -> Iterator[None]:
    """Django's ORM, and with it the product's processes, on a database of its own while the block runs, one for all of
    this process. Its books are empty.
    """
    with speaking_to(urlunsplit(urlsplit(owner_url())._replace(path=f"/{_copy()}"))):
        empty()
        yield


def make_partitions(owner: "psycopg.Connection[Any]") -> None:
    """Partitions for some months that have been, which the product made when they were to come; those that are there
    stay.
    """
    end = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    for _ in range(4):
        start = (end - timedelta(days=1)).replace(day=1)
        for table in ("billing_usage", "billing_attempt"):
            made = (
                f"create table if not exists {table}_{start:%Y_%m} partition of {table}"
                f" for values from ('{first_id(start)}') to ('{first_id(end)}')"
            )
            owner.execute(made.encode())
        end = start


BOOKS = (
    *(
        "usage",
        "attempt",
        "ledgerentry",
        "ledgerblock",
        "accountday",
        "usagerollup",
        "spendrollup",
        "tagrollup",
        "latehour",
    ),
    *("auditfinding", "auditstate", "mark", "closedmonth", "closedsum", "repricing", "repricingsum", "prepaid"),
    *("judgement", "droppedmonth"),
)


def empty() -> None:
    """Nothing used, posted, credited, priced anew, sealed, audited, closed, stated or dropped."""
    # To truncate them makes files, and takes four times as long.
    forced("; ".join(f"delete from billing_{table}" for table in BOOKS))  # noqa: S608
    forced("delete from billing_counter where period = 'balance'")
    with database(owner_url()) as owner:  # nobody else may
        for table, trigger in (("statement", "keep_statements"), ("credit, billing_lot", "keep_credits")):
            kept = f"billing_{table.partition(',')[0]}"
            owner.execute(f"alter table {kept} disable trigger {trigger}".encode())
            owner.execute(f"truncate billing_{table}".encode())
            owner.execute(f"alter table {kept} enable trigger {trigger}".encode())
        owner.execute("update billing_retention set months = null")
        make_partitions(owner)


def spend(tenant: Tenant, at: datetime, **fields: Any) -> Usage:
    """A settled generation that began `at`."""
    row = make_usage(tenant, at, charge=Decimal("0.00132"), provider_cost=Decimal("0.001"), **fields)
    forced("select billing_close(array[%s::uuid])", row.pk)
    return row


def make_whole() -> None:
    """Everything rolled up, sealed, and audited until nothing new is looked at."""
    assert roll_up_usage()
    seal()
    for _ in range(2):
        audit()


def findings() -> list[tuple[str, str]]:
    """What the auditor has found, and is still so: kinds and places."""
    return [(row.kind, row.place) for row in AuditFinding.objects.filter(gone_at=None).order_by("kind", "place")]


def end_credit(*credits: int) -> None:
    """The time of these credits is over; what is left of them has not been taken yet."""
    with database(owner_url()) as owner:
        owner.execute("alter table billing_credit disable trigger keep_credits")
        owner.execute("update billing_credit set expires_at = now() where id = any(%s)", [list(credits)])
        owner.execute("alter table billing_credit enable trigger keep_credits")


def forced(statement: str, *values: Any) -> int:
    """Runs statements as the owner, who may do what the product's roles may not; how many rows the last one changed.

    The server's counts of what was changed, which come a moment later, have it by then.
    """
    with database(owner_url()) as owner:
        count = owner.execute(statement.encode(), values or None).rowcount
        owner.execute("select pg_stat_force_next_flush()")
        return count


def post(amount: Decimal, by: "psycopg.Connection[Any] | None" = None, **fields: Any) -> None:
    """Writes an entry, as a settlement does; in the transaction of `by`, where one is given."""
    organization = fields.get("organization") or uuid4()
    row: dict[str, Any] = {
        "transaction": uuid4(),
        "kind": "settle",
        "generation": uuid4(),
        "organization": organization,
        "debit": f"tenant:{organization}",
        "credit": "revenue",
        "amount": amount,
        "currency": "USD",
        **fields,
    }
    statement = sql.SQL("insert into billing_ledgerentry ({}, created_at) values ({}, now())").format(
        sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(sql.Placeholder() * len(row))
    )
    if by is not None:
        by.execute(statement, list(row.values()))
    else:
        with database(owner_url()) as own:
            own.execute(statement, list(row.values()))


OWED = Decimal("3.000000000001")  # by the statement below


def stated(tenant: Tenant) -> Statement:
    """A statement of a month so long ago that nothing is of it: of a model at two vendors, and a note."""
    months = ClosedMonth.objects.count()
    month = ClosedMonth.objects.create(
        month=date(1901 + months // 12, months % 12 + 1, 1), closed_by="finance", summed_at=timezone.now()
    )
    ClosedSum.objects.create(
        month=month.month, organization=tenant.organization.pk, account=f"tenant:{tenant.organization.pk}", debit=OWED,
        credit=0, debits=2, credits=0,
    )  # fmt: skip
    used = {"model": "lab/<b>model", "requests": 1, "prompt_tokens": 1000, "completion_tokens": 500}
    return issue(
        Statement(
            issuer="Meterline", kind="statement", organization=tenant.organization.pk, slug=tenant.organization.slug,
            name="Alice & <Sons>", month=month.month, total=OWED, issued_by="finance",
            lines=[
                {**used, "provider": "secret-vendor", "images": 3, "charge": "1.000000000001"},
                {**used, "provider": "other-vendor", "seconds": 1, "charge": "1.5"},
                {"note": "Of earlier months, settled after they were closed", "charge": "0.5"},
            ],
        )
    )  # fmt: skip
