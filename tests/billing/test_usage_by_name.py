"""Generations are looked for by what none has: the list says so without looking through all of them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from billing.models import Usage
from tests.console.browser import console, context_of, make_usage, url
from tests.stage.cast import Tenant, make_tenant

A_DAY = datetime(2025, 5, 17, tzinfo=UTC)  # nobody else's
LIST = url(Usage, "changelist")
MAKE = """
    insert into billing_usage
    select made.*
      from billing_usage u, generate_series(1, 20000) n,
           jsonb_populate_record(u, jsonb_build_object(
               'id', billing_first_id(u.created_at + n * interval '1 s'),
               'created_at', u.created_at + n * interval '1 s',
               'model', 'lab/model-' || n %% 10, 'app', 'app ' || n %% 10)) made
     where u.id = %s
"""
# What the autovacuum does when it comes round.
SUMMARIZE = "select brin_summarize_new_values(inhrelid) from pg_inherits where inhparent = 'usage_by_name'::regclass"
PAGES = "select pg_relation_size('billing_usage_default') / current_setting('block_size')::int"


@pytest.fixture(scope="module")
def pages(database: None) -> Iterator[int]:
    """A day with so many generations that nobody wants to read them all: how many pages they take."""
    pattern = make_usage(make_tenant("many"), at=A_DAY)
    with connection.cursor() as cursor:
        cursor.execute(MAKE, [pattern.pk])
        cursor.execute(SUMMARIZE)
        cursor.execute("analyze billing_usage")
        cursor.execute(PAGES)
        ((found,),) = cursor.fetchall()
        yield found
        cursor.execute("delete from billing_usage where organization = %s", [pattern.organization])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", "no/such"),
        ("provider", "nobody"),
        ("app", "none"),
        ("status", "abandoned"),
        ("status", "bad"),
        ("basis", "unknown"),
    ],
)
def test_it_reads_few_pages_to_find_none(name: str, value: str, pages: int) -> None:
    day = f"{A_DAY:%Y-%m-%d}"
    with CaptureQueriesContext(connection) as captured:
        page = console().get(LIST, {"created_at_from_0": day, "created_at_to_0": day, name: value})
    assert list(context_of(page)["cl"].result_list) == []
    (query,) = [query["sql"] for query in captured.captured_queries if 'FROM "billing_usage"' in query["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"explain (analyze, buffers, format json) {query}")
        (((plan,),),) = cursor.fetchall()
    read = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    assert pages > 1000 and read < pages / 10


def test_metadata_are_looked_for_in_the_last_day_unless_asked(alice: Tenant) -> None:
    recent = make_usage(alice, at=timezone.now() - timedelta(hours=23), metadata={"team": "emea"})
    old = make_usage(alice, at=timezone.now() - timedelta(hours=25), metadata={"team": "emea"})
    client = console()

    def found(**asked: str) -> list[Usage]:
        page = client.get(LIST, {"organization": str(alice.organization.pk), **asked})
        return list(context_of(page)["cl"].result_list)

    assert found(metadata="team=emea") == [recent]
    assert found(metadata="team", created_at_from_0=f"{old.created_at:%Y-%m-%d}") == [recent, old]
    assert found() == [recent, old]
