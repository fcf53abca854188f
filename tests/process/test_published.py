"""What a process makes of the published statistics: one tenant's failures are its own evidence alone."""

import asyncio
import secrets
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from billing.backbone.connections import Connections
from billing.models import Mark
from gateway.process.published import Statistics
from routing.health.health import Health
from routing.models import OfferStatistics
from tests.routing.offers import make_offer, make_provider
from tests.stage.backbone import app_url

ALICE, BOB = uuid4(), uuid4()


@pytest.mark.parametrize(
    ("failing", "uptimes"),
    [
        ({str(ALICE): 20}, (0.8, 1.0, 1.0)),
        ({str(ALICE): 20, str(BOB): 10}, (0.8, 0.8, 0.8)),  # 20 count of these 30, as many as of each but one
        ({}, (0.8, 0.8, 0.8)),  # counted before it was kept whose they were
    ],
)
def test_uptime_is_told_apart_by_tenant(failing: dict[str, int], uptimes: tuple[float, ...]) -> None:
    provider = f"provider-{secrets.token_hex(6)}"
    now = datetime.now(UTC)
    row = OfferStatistics.objects.create(
        window="5m", published_at=now, model="lab/model", provider=provider, upstream_model="upstream", size_class=0,
        attempts=100, completed=80, cancelled=0, offer_faults=sum(failing.values()) or 20, client_faults=0, faults={},
        failing=failing, ttft={}, token_time={}, prompt_tokens=0, completion_tokens=0, cached_tokens=0,
        output_tokens=0, output_ms=0, ttft_p50=100.0, token_p50=10_000.0,
    )  # fmt: skip
    Mark.objects.update_or_create(name="offers:5m", defaults={"until": now, "ran_at": now})
    health, offer = Health(), make_offer(make_provider(slug=provider))
    health.standings([offer], 0, 0.0)

    async def load() -> None:
        connections = Connections(app_url())
        await Statistics(connections, health).load()
        await connections.close()

    try:
        asyncio.run(load())
    finally:
        row.delete()
    found = [health.standings([offer], 0, 0.0, who)[0].uptime for who in (ALICE, BOB, None)]
    assert found == pytest.approx(uptimes)
