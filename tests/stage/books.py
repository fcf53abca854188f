"""A database whose books no other test has touched, entries in its ledger, and what only a superuser may do to them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg
from django.core.management import call_command
from psycopg import sql

from tests.stage.backbone import database, migrating, owner_url, speaking_to


@contextmanager
def fresh_books() -> Iterator[None]:
    """Django's ORM, and with it the product's processes, on a new database while the block runs."""
    name = f"test_books_{secrets.token_hex(4)}"
    url = owner_url()
    with database(url) as owner:
        owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            with speaking_to(urlunsplit(urlsplit(url)._replace(path=f"/{name}"))):
                with migrating():
                    call_command("migrate", verbosity=0)
                yield
        finally:
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


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
