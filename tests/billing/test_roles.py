"""What the database itself forbids the API and the console, whatever their code does; and migrations from nothing."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from django.apps import apps
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from billing.models import LedgerEntry
from tests.stage.backbone import app_url, backbone, console_url, database, owner_url, run, settled, wanted
from tests.stage.cast import Tenant
from tests.stage.product import ROOT
from tests.stage.shelf import add_version, make_tariff

pytestmark = pytest.mark.backbone

VERBS = ("insert", "update", "delete", "truncate")
# What the API may write, and nothing else.
APP_WRITES = {
    "billing_counter": {"insert", "update", "delete"},
    "billing_lease": {"insert", "update", "delete"},
    "billing_hold": {"insert", "update", "delete"},
    "billing_keptanswer": {"insert", "update", "delete"},
    "billing_keptshare": {"insert", "update", "delete"},
    "billing_attempt": {"insert", "update"},
    "billing_usage": {"insert", "update"},
    "billing_ledgerentry": {"insert"},
    "billing_ledgerblock": set(),
    "billing_accountday": set(),
    "billing_auditfinding": {"insert", "update", "delete"},
    "billing_auditstate": {"insert", "update", "delete"},
    "billing_closedmonth": set(),
    "billing_closedsum": set(),
    "billing_credit": set(),
    "billing_lot": set(),
    "billing_prepaid": set(),
    "billing_crossing": {"insert", "update", "delete"},
    "billing_delivery": {"insert", "update", "delete"},
    "billing_repricing": {"insert", "update", "delete"},
    "billing_repricingsum": {"insert", "update", "delete"},
    "billing_judgement": set(),
    "billing_reconciliation": {"insert"},
    "billing_reconciliationline": {"insert"},
    "billing_billfetch": {"update", "delete"},
    "billing_billpage": {"insert", "delete"},
    "billing_pricelist": {"insert", "update", "delete"},
    "billing_statement": set(),
    "billing_storedexport": {"insert", "update"},
    "billing_retention": set(),
    "billing_droppedmonth": set(),
    "accounts_change": {"delete"},
    "accounts_auditevent": set(),
    "accounts_auditblock": set(),
    "billing_usagerollup": {"insert", "update", "delete"},
    "billing_spendrollup": {"insert", "update", "delete"},
    "billing_tagrollup": {"insert", "update", "delete"},
    "billing_latehour": {"insert", "update", "delete"},
    "billing_mark": {"insert", "update", "delete"},
    "routing_offerrollup": {"insert", "update", "delete"},
    "routing_offerstatistics": {"insert", "update", "delete"},
    "routing_ejection": {"insert", "update", "delete"},
    "routing_replay": {"update", "delete"},
}
# What the console does to these: an operator closes a month, asks for a re-pricing, compares a bill, has one fetched,
# imports a price list, issues statements, says how long usage is kept, ends a rest, and with an offer goes its history.
CONSOLE_TOO = {
    "billing_closedmonth": {"insert"},
    "billing_repricing": {"insert"},
    "billing_reconciliation": {"insert"},
    "billing_reconciliationline": {"insert"},
    "billing_billfetch": {"insert", "update", "delete"},
    "billing_billpage": {"delete"},
    "billing_pricelist": {"insert", "update", "delete"},
    "billing_statement": {"insert"},
    "billing_retention": {"update"},
    "routing_ejection": {"update", "delete"},
    "routing_replay": {"insert", "update", "delete"},
}
OURS = ("accounts", "billing", "routing")
TABLES = sorted(model._meta.db_table for app in OURS for model in apps.get_app_config(app).get_models())
URLS = {"app": app_url, "console": console_url}


@contextmanager
def speaking_as(role: str, url: str | None = None) -> Iterator["psycopg.Connection[Any]"]:
    """A connection of `app` or `console`, as one who sees all; what it writes is rolled back in the end."""
    with psycopg.connect(url or URLS[role]()) as connection:
        user = connection.execute("select current_user").fetchall()
        assert user == [(f"meterline_{role}",)]
        connection.execute("select set_config('meterline.sees', 'all', false)")
        connection.commit()
        yield connection
        connection.rollback()


def allowed(connection: "psycopg.Connection[Any]", verb: str, table: str, column: str = "id") -> bool:
    """Whether the database lets this role do `verb` to `table`. Touches no row, and what is tried is undone."""
    name, changed = sql.Identifier(table), sql.Identifier(column)
    statement = {
        "select": sql.SQL("select 1 from {} where false").format(name),
        "insert": sql.SQL("insert into {} ({}) select null where false").format(name, changed),
        "update": sql.SQL("update {} set {} = null where false").format(name, changed),
        "delete": sql.SQL("delete from {} where false").format(name),
        "truncate": sql.SQL("truncate {}").format(name),
    }[verb]
    try:
        connection.execute(statement)
    except InsufficientPrivilege as error:
        assert str(error).startswith(f"permission denied for table {table}")
        return False
    finally:
        connection.rollback()
    return True


def writes(connection: "psycopg.Connection[Any]", table: str) -> set[str]:
    """What this role may do to `table` besides reading."""
    return {verb for verb in VERBS if allowed(connection, verb, table, _columns()[table])}


@cache
def _columns() -> dict[str, str]:
    """Of each table a column that may be written at all: neither generated nor an identity."""
    query = (
        "select distinct on (table_name) table_name, column_name from information_schema.columns"
        " where table_schema = 'public' and is_generated = 'NEVER' and is_identity = 'NO'"
        " order by table_name, ordinal_position"
    )
    with database(owner_url()) as owner:
        return dict(owner.execute(query).fetchall())


def partitions() -> list[str]:
    """The partitions of usage and attempts, the default ones among them."""
    query = (
        "select inhrelid::regclass::text from pg_inherits"
        " where inhparent in ('billing_usage'::regclass, 'billing_attempt'::regclass) order by 1"
    )
    with database(owner_url()) as owner:
        found = [name for (name,) in owner.execute(query).fetchall()]
    assert len(found) >= 2 * (1 + 4)  # the default one, this month's and three ahead
    return found


@pytest.mark.parametrize("role", ["app", "console"])
@pytest.mark.parametrize(
    "statement",
    [
        "update billing_ledgerentry set amount = 0 where generation = %(generation)s",
        "update billing_ledgerentry set generation = null",
        "delete from billing_ledgerentry where generation = %(generation)s",
        "truncate billing_ledgerentry",
        "truncate billing_ledgerentry cascade",
    ],
)
def test_nobody_changes_the_ledger(alice: Tenant, tmp_path: Any, role: str, statement: str) -> None:
    item = wanted(alice.key)

    async def scenario() -> None:
        async with backbone(tmp_path) as here:
            held = await here.admission.hold(item)
            await here.settler.settle(settled(item, held, "0.25"))

    run(scenario())
    before = list(LedgerEntry.objects.filter(generation=item.id).values())
    assert before
    with (
        speaking_as(role) as connection,
        pytest.raises(InsufficientPrivilege, match="permission denied for table billing_ledgerentry"),
    ):
        connection.execute(statement, {"generation": item.id})
    assert list(LedgerEntry.objects.filter(generation=item.id).values()) == before


def test_the_api_writes_the_hot_tables_and_nothing_else() -> None:
    assert set(APP_WRITES) < set(TABLES)
    with speaking_as("app") as connection:
        found = {table: writes(connection, table) for table in TABLES}
    assert found == {table: APP_WRITES.get(table, set()) for table in TABLES}


def test_the_console_writes_configuration_and_nothing_else() -> None:
    configuration = {"insert", "update", "delete"}
    with speaking_as("console") as connection:
        found = {table: writes(connection, table) for table in TABLES}
        assert all(allowed(connection, "select", table) for table in TABLES)
    expected = {table: set() if table in APP_WRITES else configuration for table in TABLES}
    assert found == {**expected, **CONSOLE_TOO}


@pytest.mark.parametrize("role", ["app", "console"])
def test_partitions_are_reached_through_their_parent_alone(role: str) -> None:
    with speaking_as(role) as connection:
        found = {(verb, table) for table in partitions() for verb in ("select", *VERBS)
                 if allowed(connection, verb, table)}  # fmt: skip
        assert found == set()
        assert allowed(connection, "select", "billing_usage")


@pytest.mark.parametrize("what", ["password", "username", "email", "*"])
def test_the_api_learns_of_people_only_who_is_active(what: str) -> None:
    with speaking_as("app") as connection:
        connection.execute("select id, is_active from accounts_user")
        with pytest.raises(InsufficientPrivilege, match="permission denied for table accounts_user"):
            connection.execute(sql.SQL("select {} from accounts_user").format(sql.SQL(what)))


# What the console's framework keeps: none of it is the API's to read or write.
FRAMEWORK = {
    "accounts_membership": {"insert", "update", "delete"},
    "accounts_user_groups": {"insert", "update", "delete"},
    "accounts_user_user_permissions": {"insert", "update", "delete"},
    "auth_group": {"insert", "update", "delete"},
    "auth_group_permissions": {"insert", "update", "delete"},
    "auth_permission": {"insert", "update", "delete"},
    "django_admin_log": {"insert"},
    "django_content_type": {"insert", "update", "delete"},
    "django_session": {"insert", "update", "delete"},
}
# Functions that run as their owner, and the one role that may call each; None: as a trigger alone.
AS_OWNER = {
    "accounts_note_change": None,
    "billing_make_partitions": "app",
    "billing_lock_month": "app",
    "billing_drop_month": "app",
    "billing_seal": "app",
    "billing_apply_repricing": "app",
    "billing_sum_closed": "app",
    "billing_expire_credit": "app",
    "accounts_audit": None,
    "accounts_enter": "console",
    "accounts_log": "console",
    "accounts_seal_log": "app",
    "accounts_wrong_log_blocks": "app",
    "billing_grant_credit": "console",
    "billing_end_balance": "console",
    "billing_judge_claim": "console",
    "billing_seed_counter": "console",
    "routing_end_rests": None,
    "gateway_reveal_payload": "console",
    "gateway_purge_payloads": "app",
    "gateway_cut": "console",
    "routing_sold": "console",
}


@pytest.mark.parametrize("table", FRAMEWORK)
def test_the_consoles_framework_is_the_consoles_alone(table: str) -> None:
    with database(owner_url()) as owner:
        query = "select privilege_type from information_schema.table_privileges where grantee = %s and table_name = %s"
        found = {
            role: {verb.lower() for (verb,) in owner.execute(query, [f"meterline_{role}", table])} for role in URLS
        }
    assert found == {"app": set(), "console": {"select", *FRAMEWORK[table]}}


def test_what_runs_as_its_owner_is_called_by_one_role_and_finds_nothing_temporary() -> None:
    with database(owner_url()) as owner:
        found = owner.execute(
            "select proname, proconfig, has_function_privilege('meterline_app', oid, 'execute'),"
            " has_function_privilege('meterline_console', oid, 'execute'), prorettype = 'trigger'::regtype"
            " from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
        ).fetchall()
    assert {name for name, *_ in found} == set(AS_OWNER)
    for name, settings, app, console, trigger in found:
        assert "search_path=public, pg_temp" in settings
        callers = {role for role, may in (("app", app), ("console", console)) if may}
        assert trigger if AS_OWNER[name] is None else callers == {AS_OWNER[name]}


@pytest.mark.parametrize(
    "statement",
    [
        "update billing_rate set charge = 0 where version_id = %(version)s",
        "delete from billing_rate where version_id = %(version)s",
        "insert into billing_rate (version_id, item, above, charge) values (%(version)s, 'web_search', 0, 0)",
        "update billing_tariffversion set effective_from = now() + interval '1 day' where id = %(version)s",
        "delete from billing_tariffversion where id = %(version)s",
    ],
)
def test_the_console_changes_no_rate_that_is_in_force(statement: str) -> None:
    version = make_tariff(input="1", output="2").versions.get()
    with speaking_as("console") as connection, pytest.raises(InsufficientPrivilege, match="in force"):
        connection.execute(statement, {"version": version.pk})


def test_the_console_still_sets_new_rates() -> None:
    tariff = make_tariff(input="1", output="2")
    later = add_version(tariff, datetime.now(UTC) + timedelta(days=1), input="3")
    with speaking_as("console") as connection:
        connection.execute("update billing_rate set charge = 4 where version_id = %s", [later.pk])
        with connection.transaction():
            ((version,),) = connection.execute(
                "insert into billing_tariffversion (tariff_id, effective_from, note)"
                " values (%s, now(), '') returning id",
                [tariff.pk],
            ).fetchall()
            connection.execute(
                "insert into billing_rate (version_id, item, above, charge) values (%s, 'input', 0, 5)", [version]
            )


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("console", "select billing_make_partitions(3)"),
        ("app", "select billing_seed_counter(0)"),
        ("console", "select billing_heartbeat(gen_random_uuid(), 'here', 1, '8 seconds')"),
        ("console", "select billing_give_back(array[gen_random_uuid()])"),
        ("console", "select * from billing_settle('[]')"),
        ("app", "drop trigger note_change on accounts_apikey"),
        ("app", "alter table billing_ledgerentry disable trigger all"),
        ("console", "drop table billing_ledgerentry"),
        ("app", "create table mine (id integer)"),
        ("console", "create table mine (id integer)"),
    ],
)
def test_neither_role_borrows_rights_or_changes_the_schema(role: str, statement: str) -> None:
    with speaking_as(role) as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(statement)


# --- migrations from nothing -----------------------------------------------------------------------------------------


@pytest.fixture
def owners() -> Iterator[str]:
    """The URL, without a database, of somebody who is no superuser, may make databases, and owns none yet.

    Where the tests' own owner is a superuser that is a login made for this, with CREATEROLE; otherwise it is the owner.
    """
    with database(owner_url()) as owner:
        ((superuser,),) = owner.execute("select rolsuper from pg_roles where rolname = current_user").fetchall()
        place = urlsplit(owner_url())
        if not superuser:
            yield urlunsplit(place._replace(path=""))
            return
        name, password = f"plain_{secrets.token_hex(4)}", secrets.token_hex(16)
        owner.execute(
            sql.SQL("create role {} login nosuperuser createdb createrole password {}").format(
                sql.Identifier(name), sql.Literal(password)
            )
        )
        host = place.netloc.rpartition("@")[2]
        yield urlunsplit(place._replace(netloc=f"{name}:{password}@{host}", path=""))
        owner.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


@contextmanager
def fresh_database(owners: str) -> Iterator[str]:
    """The URL of an empty database of theirs, dropped in the end."""
    name = f"fresh_{secrets.token_hex(4)}"
    with database(_at(owners, "postgres")) as owner:
        owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            yield _at(owners, name)
        finally:
            # Not by force: that may not end an autovacuum, which a plain one waits for.
            owner.execute(sql.SQL("drop database {}").format(sql.Identifier(name)))


def _at(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def migrate(url: str) -> str:
    """Runs `manage.py migrate` as the owner that `url` names; what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DATABASE_")}
    env |= {"DATABASE_URL": url, "DATABASE_ROLE": "owner"}
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--no-color"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def shape(url: str) -> list[Any]:
    """Everything of the public schema that a migration may change: relations, columns, rights, functions, triggers."""
    queries = (
        # An index of a partition has another name where the partition was made after it: not its name, what it is.
        "select case relkind when 'i' then regexp_replace(pg_get_indexdef(oid), 'INDEX \\S+ ON', 'INDEX ON')"
        " else relname end, relkind, coalesce(relacl::text, ''), coalesce(reloptions::text, '') from pg_class"
        " where relnamespace = 'public'::regnamespace",
        "select table_name, column_name, data_type, is_nullable, coalesce(column_default, '')"
        " from information_schema.columns where table_schema = 'public'",
        "select p.oid::regprocedure::text, prosecdef, coalesce(proacl::text, ''), md5(prosrc) from pg_proc p"
        " where pronamespace = 'public'::regnamespace",
        "select tgrelid::regclass::text, tgname from pg_trigger where not tgisinternal",
        "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint"
        " where connamespace = 'public'::regnamespace",
        "select defaclobjtype, defaclacl::text from pg_default_acl",
        "select app, name from django_migrations",
        "select app_label, model from django_content_type",
        "select codename from auth_permission",
    )
    with database(url) as connection:
        return [sorted(connection.execute(query).fetchall()) for query in queries]


def without(name: str, found: list[Any]) -> list[Any]:
    """A shape with the owner's own name taken out of its rights, which are in no particular order."""

    def plain(value: Any) -> Any:
        return sorted(value[1:-1].replace(name, "OWNER").split(",")) if str(value).startswith("{") else value

    return [sorted([[plain(value) for value in row] for row in rows], key=str) for rows in found]


@pytest.mark.slow
def test_an_owner_without_a_superusers_rights_migrates_two_databases_from_nothing(owners: str) -> None:
    name = urlsplit(owners).username
    assert name
    with fresh_database(owners) as first, fresh_database(owners) as second:
        assert "Applying billing.0002" in migrate(first)
        made = shape(first)
        assert "No migrations to apply." in migrate(first)
        assert shape(first) == made
        # The roles belong to the cluster and are there by now: the second database takes them as they are.
        assert "Applying accounts.0001" in migrate(second)
        assert shape(second) == made
        ours = urlsplit(owner_url()).username or ""
        for one, other in zip(without(name, made), without(ours, shape(owner_url())), strict=True):
            assert one == other  # what all other tests run on
        for role in URLS:
            rights_hold(role, second)


def rights_hold(role: str, url: str) -> None:
    """In the fresh database too the role reads, and changes no ledger."""
    with speaking_as(role, as_role(role, url)) as connection:
        assert allowed(connection, "select", "billing_ledgerentry")
        assert not writes(connection, "billing_ledgerentry") - ({"insert"} if role == "app" else set())


def as_role(role: str, url: str) -> str:
    """How `role` reaches the database of `url`: by the tests' own login for it, in that database."""
    return _at(URLS[role](), urlsplit(url).path[1:])
