"""Partitions are made ahead of time, and their making stops nobody."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql

from billing.ids import first_id
from billing.models import Usage
from billing.tasks import MONTHS_AHEAD
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.cast import Tenant

pytestmark = pytest.mark.backbone


def last_month() -> datetime:
    """The first moment of the last month that is made ahead, UTC."""
    now = datetime.now(UTC)
    place = now.year * 12 + now.month - 1 + MONTHS_AHEAD
    return datetime(place // 12, place % 12 + 1, 1, tzinfo=UTC)


TABLE = f"billing_usage_{last_month():%Y_%m}"


def make() -> None:
    """As the worker does."""
    with database(app_url()) as app:
        app.execute("select billing_make_partitions(%s)", [MONTHS_AHEAD])


def is_there() -> bool:
    """Whether the last month has its partition."""
    with database(owner_url()) as owner:
        return owner.execute("select to_regclass(%s) is not null", [TABLE]).fetchall() == [(True,)]


def drop(owner: "psycopg.Connection[Any]") -> None:
    """Takes the last month's partition away; nothing is in it."""
    owner.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(TABLE)))


def test_a_long_read_is_not_waited_for() -> None:
    """Whoever waits for the table's lock has every settlement wait behind it."""
    with database(owner_url()) as owner:
        drop(owner)
        with psycopg.connect(owner_url()) as reading:
            reading.execute("select count(*) from billing_usage")
            make()
            assert not is_there()
            reading.rollback()
        make()
        assert is_there()


def test_rows_that_came_too_early_do_not_keep_other_months_from_being_made(alice: Tenant) -> None:
    """A process whose clock runs ahead settles into the default partition."""
    row = Usage(
        id=UUID(int=first_id(last_month()).int + 1),
        organization=alice.organization.pk,
        project=alice.project.pk,
        key=alice.key.pk,
        stream=False,
        attempts=0,
        suspect=False,
        overrun=0,
        created_at=last_month(),
        settled_at=last_month(),
        **dict.fromkeys(
            ("prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_5m_tokens", "cache_write_1h_tokens",
             "audio_input_tokens", "image_input_tokens", "reasoning_tokens", "audio_output_tokens", "web_searches"), 0
        ),
    )  # fmt: skip
    attempts = TABLE.replace("usage", "attempt")
    with database(owner_url()) as owner:
        drop(owner)
        owner.execute(sql.SQL("drop table if exists {}").format(sql.Identifier(attempts)))
        row.save(force_insert=True)
        try:
            make()
            assert not is_there()
            assert owner.execute("select to_regclass(%s) is not null", [attempts]).fetchall() == [(True,)]
            assert Usage.objects.get(id=row.id).created_at == last_month()
        finally:
            owner.execute("delete from billing_usage where id = %s", [row.id])
        make()
        assert is_there()
