"""Restarts under load: no request fails, and each is on the books once. `make restarts` plays 20 of each kind."""

import os
import shutil
from itertools import product
from pathlib import Path

import pytest

from billing.models import Hold, Usage
from tests.restarts import rolling
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books
from tests.stage.cast import Tenant
from tests.stage.product import until
from tests.stage.shelf import make_model, make_provider

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

RESTARTS = int(os.environ.get("RESTARTS", "1"))
RATE = float(os.environ.get("RESTARTS_RATE", "10"))
STREAMS = int(os.environ.get("RESTARTS_STREAMS", "10"))
KINDS = {"direct": rolling.direct, "nginx": rolling.behind_nginx}
SCENES = [("direct", 2), ("nginx", 1)] if "RESTARTS" not in os.environ else list(product(KINDS, (1, 2)))


@pytest.mark.parametrize(("kind", "workers"), SCENES)
def test_rolling_restarts_fail_no_request(
    alice: Tenant, simulated: SimulatedProvider, tmp_path: Path, kind: str, workers: int
) -> None:
    if kind == "nginx" and shutil.which("nginx") is None:
        pytest.skip("there is no nginx here")
    provider = make_provider(simulated.base_url)
    names = (f"whole-{provider.slug}?tokens=5", f"stream-{provider.slug}?tokens=50&pace=100ms")
    whole, stream = (make_model(provider, name).slug for name in names)
    load = rolling.Load(alice, (whole, stream), RATE, STREAMS)
    counts = KINDS[kind](tmp_path, load, RESTARTS, workers, EGRESS_ALLOW=simulated.url)
    print(f"{kind}, {workers} a gateway: {counts}")
    assert counts.failed == []
    assert counts.statuses == [0] * RESTARTS
    until(lambda: not Hold.objects.filter(organization=alice.organization.pk).exists(), 30)
    found = Usage.objects.filter(organization=alice.organization.pk)
    assert {(row.id, row.status) for row in found} == {(id, "completed") for id in counts.generations}
    assert books(alice.organization).problems() == []
