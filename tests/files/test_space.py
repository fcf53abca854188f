"""Deleted files give their space back, and nobody has to ask the database for it."""

import os
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from django.core.management import call_command

from billing.ids import new_id
from deploy import postgres
from deploy.engines import Engines, start
from gateway.files.store import STORE
from tests.stage.backbone import database as connected
from tests.stage.backbone import speaking_to
from tests.stage.cast import Tenant, make_tenant
from tests.stage.product import until

pytestmark = pytest.mark.slow

MIB = 1 << 20
FILE = 4 * MIB
SIZE = "select pg_total_relation_size('gateway_storedfile')"
DELETE = "delete from gateway_storedfile where id = any(%s)"


@pytest.fixture(scope="module")
def engines(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines whose autovacuum looks around once a second instead of once a minute; the ORM speaks to them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(postgres.SETTINGS, "autovacuum_naptime", "1s")
        with start(tmp_path_factory.mktemp("engines")) as found, speaking_to(found.urls["DATABASE_URL"]):
            call_command("migrate", verbosity=0)
            yield found


def store(app: "psycopg.Connection[tuple[object, ...]]", tenant: Tenant, size: int = FILE) -> UUID:
    """A file of the tenant's."""
    id = new_id()
    row = (id, tenant.project.pk, tenant.key.pk, "a", "user_data", "text/plain", size, os.urandom(size), None)
    ((verdict, *_),) = app.execute(STORE, (*row, 1024 * MIB, 10_000)).fetchall()
    assert verdict == "stored"
    return id


def test_what_is_uploaded_and_deleted_weighs_nothing_a_moment_later(engines: Engines) -> None:
    tenant = make_tenant("busy")
    with connected(engines.urls["DATABASE_APP_URL"]) as app, connected(engines.urls["DATABASE_URL"]) as owner:
        kept = store(app, tenant, 1000)
        for _ in range(30):
            app.execute(DELETE, [[store(app, tenant)]])

        def weighs() -> int:
            return int(owner.execute(SIZE).fetchall()[0][0])

        until(lambda: weighs() < 2 * FILE, seconds=60)
        assert owner.execute("select id from gateway_storedfile").fetchall() == [(kept,)]


def test_a_last_file_that_stays_keeps_no_more_than_what_is_used_again(engines: Engines) -> None:
    """The end of a table is not cut off before the last row of it, so its holes are filled."""
    tenant = make_tenant("sticky")
    with connected(engines.urls["DATABASE_APP_URL"]) as app, connected(engines.urls["DATABASE_URL"]) as owner:
        sizes, last = [], []
        for _ in range(4):
            gone = [store(app, tenant) for _ in range(10)]
            last.append(store(app, tenant, 1000))
            app.execute(DELETE, [gone])
            owner.execute("vacuum gateway_storedfile")
            sizes.append(owner.execute(SIZE).fetchall()[0][0])
        assert sizes[-1] <= sizes[0] + MIB
        app.execute(DELETE, [last])
        owner.execute("vacuum gateway_storedfile")
        assert owner.execute(SIZE).fetchall()[0][0] < 2 * FILE
