"""The database's clock: what it says, and one that can be set, for whoever comes by its own way."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from psycopg import sql

from billing.backbone.leases import EVERYBODY
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.cast import Tenant, make_tenant


def clock() -> datetime:
    """What it says, in UTC."""
    with database(owner_url()) as connection:
        ((now,),) = connection.execute("select clock_timestamp()").fetchall()
    assert isinstance(now, datetime)
    return now.astimezone(UTC)


def minute(moment: datetime) -> datetime:
    """When its window began."""
    return moment.replace(second=0, microsecond=0)


def in_one_minute(play: Callable[[Tenant], None]) -> Tenant:
    """Plays a scenario with a fresh tenant within one minute of the database's clock: again, should the first try
    have begun in one minute and ended in the next.
    """
    for _ in range(3):
        tenant, before = make_tenant("alice"), minute(clock())
        play(tenant)
        if minute(clock()) == before:
            return tenant
    raise AssertionError("three minutes have ended meanwhile")


class Clock:
    """`url` is the way of the API's role to the database; the clock there is `set` to so much from now."""

    def __init__(self, schema: str) -> None:
        self._schema = sql.Identifier(schema)
        before, joint, options = app_url().partition("options=")
        words = quote(f"-c search_path={schema},pg_catalog,public ")
        joint = "" if joint else "&" if "?" in before else "?"
        self.url = f"{before}{joint}options={words}{options}"

    def set(self, ahead: timedelta) -> None:
        """From now on it is so far ahead."""
        define = sql.SQL(
            "create or replace function {}.clock_timestamp() returns timestamptz language sql volatile"
            " as $$select pg_catalog.clock_timestamp() + {}$$"
        )
        with database(owner_url()) as owner:
            owner.execute(define.format(self._schema, sql.Literal(ahead)))


@contextmanager
def set_clock(ahead: timedelta = timedelta(0)) -> Iterator[Clock]:
    """A way to the database by which its clock is `ahead`. Whoever comes by another way hears nothing of it later."""
    schema = f"clock_{secrets.token_hex(4)}"
    with database(owner_url()) as owner:
        since = owner.execute("select started_at from billing_lease where id = %s", [EVERYBODY]).fetchone()
        owner.execute(sql.SQL("create schema {}").format(sql.Identifier(schema)))
        owner.execute(sql.SQL("grant usage on schema {} to public").format(sql.Identifier(schema)))
    try:
        found = Clock(schema)
        found.set(ahead)
        yield found
    finally:
        with database(owner_url()) as owner:
            owner.execute(sql.SQL("drop schema {} cascade").format(sql.Identifier(schema)))
            # It was renewed by that clock.
            owner.execute("delete from billing_lease where id = %s", [EVERYBODY])
            if since is not None:
                owner.execute(
                    "insert into billing_lease values (%s, 'tests', 0, %s, clock_timestamp()) on conflict do nothing",
                    [EVERYBODY, *since],
                )
