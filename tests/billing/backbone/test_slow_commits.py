"""A disk that takes its time for each commit, as a busy volume in a cloud does: requests wait, none is refused."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connection

from billing.backbone.backbone import Backbone
from billing.models import Budget, Hold, Limit, Usage
from deploy import postgres
from deploy.engines import Engines, start
from tests.stage.backbone import backbone, run, settled, speaking_to, wanted
from tests.stage.cast import make_tenant
from tests.stage.verifier import Books

pytestmark = [pytest.mark.slow, pytest.mark.backbone]

A_SECOND = 50  # requests, over both gateways
SECONDS = 6


@pytest.fixture(scope="module")
def own(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines of our own, as fast as any; the ORM speaks to them."""
    with start(tmp_path_factory.mktemp("engines")) as engines, speaking_to(engines.urls["DATABASE_URL"]):
        call_command("migrate", verbosity=0)
        yield engines


@pytest.fixture(params=[20, 60])
def slow(request: pytest.FixtureRequest, own: Engines) -> Iterator[Engines]:
    """They write each commit so many milliseconds late, its locks held until then."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(postgres.SETTINGS, "commit_delay", str(request.param * 1000))
        patch.setitem(postgres.SETTINGS, "commit_siblings", "0")
        connection.close()
        own.postgres.stop()
        own.postgres.start()
        with connection.cursor() as cursor:
            cursor.execute("show commit_delay")
            assert cursor.fetchone() == (str(request.param * 1000),)
        yield own


def test_two_gateways_of_one_organization_refuse_nobody(slow: Engines, tmp_path: Path) -> None:
    tenant = make_tenant("alice")
    Budget.objects.create(organization=tenant.organization, period="total", amount=Decimal(1_000_000))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=tenant.organization, measure=measure, value=10**9)
    ends: Counter[str] = Counter()

    async def request(here: Backbone) -> None:
        item = wanted(tenant.key)
        try:
            held = await here.admission.hold(item)
        except Exception as error:
            ends[repr(error)] += 1
        else:
            await here.settler.settle(settled(item, held))
            ends["settled"] += 1

    async def scenario() -> None:
        url = slow.urls["DATABASE_APP_URL"]
        async with backbone(tmp_path / "one", url) as one, backbone(tmp_path / "two", url) as two:
            began, asked = time.monotonic(), []
            for number in range(A_SECOND * SECONDS):
                await asyncio.sleep(max(0, began + number / A_SECOND - time.monotonic()))
                asked.append(asyncio.create_task(request((one, two)[number % 2])))
            await asyncio.gather(*asked)

    run(scenario())
    assert ends == {"settled": A_SECOND * SECONDS}
    assert Usage.objects.filter(organization=tenant.organization.pk).count() == A_SECOND * SECONDS
    assert not Hold.objects.exists()
    assert Books(slow.urls["DATABASE_URL"], [tenant.organization.pk]).problems() == []
