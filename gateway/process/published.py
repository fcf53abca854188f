"""The published statistics of offers, taken over by this process when they change; no request waits for it."""

import asyncio
import logging
import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from billing.backbone.connections import Connections, DatabaseAway
from gateway.process import telemetry
from routing.health.breaker import weighed
from routing.health.health import Health
from routing.health.latency import Published

logger = logging.getLogger(__name__)

EVERY = 3.0  # seconds between two looks
FEW = 5  # calls: with fewer in a window, the next longer one says more

NEWEST = "select max(until) from billing_mark where name like %s"
# Of each offer and size class the shortest window with enough calls, else the longest. Its age is that of the
# publication and, in a long window, half of the window.
QUERY = """
select distinct on (model, provider, upstream_model, size_class)
       model, provider, upstream_model, size_class, ttft_p50, token_p50 / 1000, output_tokens, output_ms,
       completed, offer_faults, failing, attempts - client_faults - cancelled,
       extract(epoch from clock_timestamp() - published_at)::float8
         + case "window" when '5m' then 0 when '1h' then 1800 else 43200 end
  from routing_offerstatistics
 where size_class >= 0 and "window" in ('5m', '1h', '1d')
 order by model, provider, upstream_model, size_class, attempts - client_faults - cancelled < %s,
          case "window" when '5m' then 1 when '1h' then 2 else 3 end
            * case when attempts - client_faults - cancelled < %s then -1 else 1 end
"""


class Statistics:
    """Teaches `health` what all processes measured."""

    def __init__(self, connections: Connections, health: Health) -> None:
        self._connections = connections
        self._health = health
        self._newest: datetime | None = None

    async def keep(self) -> None:
        """Loads them at once, and whenever they are published anew. Without a database the last ones hold, and age."""
        while True:
            try:
                await self.load()
            except DatabaseAway:
                pass
            except Exception:  # routing goes on with what is known
                logger.exception("the statistics of offers could not be read")
            await asyncio.sleep(EVERY)

    async def load(self) -> None:
        """Takes over what has been published since the last time. Raises `DatabaseAway`."""
        ((newest,),) = await self._connections.call(NEWEST, ["offers:%"])
        if newest is None or newest == self._newest:
            return
        rows = await self._connections.call(QUERY, [FEW, FEW])
        self._health.learn(_published(rows), time.monotonic())
        self._newest = newest
        telemetry.statistics.set(newest.timestamp())


def _published(rows: Iterable[tuple[Any, ...]]) -> list[Published]:
    found = []
    for model, provider, upstream, size, ttft, token, tokens, milliseconds, good, bad, whose, count, age in rows:
        throughput = 1000 * tokens / milliseconds if milliseconds else None
        failing: dict[UUID | None, int] = {UUID(organization): failures for organization, failures in whose.items()}
        if free := bad - sum(
            failing.values()
        ):  # nobody knows whose, as of those that were counted before that was kept
            failing[None] = free
        judged = good + (counting := weighed(failing))
        uptime = good / judged if judged else None
        own = {who: good / (good + most) for who, most in failing.items() if who is not None and most > counting}
        found.append(Published(model, provider, upstream, size, ttft, token, throughput, uptime, count, age, own))
    return found
