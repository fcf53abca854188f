"""Everything a gateway process keeps to hold and settle: connections, a lease, a spool, and their upkeep."""

import asyncio
import itertools
import logging
from pathlib import Path

from billing.backbone.admission import MOST_PATIENCE, PATIENCE, Admission
from billing.backbone.claims import Claims
from billing.backbone.connections import Connections, DatabaseAway
from billing.backbone.leases import Lease
from billing.backbone.settlement import Settler
from billing.backbone.spool import Spool
from billing.ids import new_id

logger = logging.getLogger(__name__)

KEPT = 3  # connections that stay open: a hold, an attempt and a settlement at once


class Backbone:
    """One a process, made and used inside its event loop. `url` is the app role's, `spool_dir` survives restarts.

    `most` is how many connections it has at most, `patience` how long a request waits for its hold: at least, at most;
    `kept_bytes` what an organization may have kept of answers in 24 hours, 0: any number.
    """

    def __init__(
        self,
        url: str,
        spool_dir: Path,
        most: int = 6,
        patience: tuple[float, float] = (PATIENCE, MOST_PATIENCE),
        kept_bytes: int = 0,
    ) -> None:
        self.connections = Connections(url, most, keep=KEPT)
        self.lease = Lease(self.connections, new_id())
        self.spool = Spool(spool_dir, self.lease.id)
        self.admission = Admission(self.connections, self.lease, patience)
        self.claims = Claims(self.connections, self.lease, lambda: self.admission.patience, kept_bytes)
        self.settler = Settler(self.connections, self.spool, self._settled)
        self._upkeep: list[asyncio.Task[None]] = []

    def _settled(self, ids: list[str]) -> None:
        self.admission.forget(ids)
        self.claims.forget(ids)

    async def start(self) -> None:
        """Takes the lease, opens connections and starts the upkeep; a database that is away is waited for in the
        background.
        """
        try:
            await self.lease.renew()
            await asyncio.gather(self.admission.warm(), self.settler.warm())
        except DatabaseAway as error:
            logger.warning("started without a database: %s", error)
        loop = asyncio.get_running_loop()
        self._upkeep = [loop.create_task(self.lease.keep()), loop.create_task(self._tidy())]

    async def _tidy(self) -> None:
        """Sends what was spooled every second, and every fifth gives back what nobody claimed."""
        for second in itertools.count(1):
            await asyncio.sleep(1)
            try:
                await self.spool.look()
                self.settler.try_again()
                await self.settler.drain_spool(self.lease.bury)
                if second % 5 == 0:
                    await self.admission.give_back()
                    await self.claims.give_back_strays()
            except DatabaseAway:
                continue
            except Exception:  # the upkeep must outlive whatever one round of it meets
                logger.exception("upkeep failed")

    async def stop(self) -> None:
        """Makes everything settled durable, then ends the upkeep. Call when no request is open any more."""
        await self.settler.finish()
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        self.settler.try_again()
        await self.settler.finish()
        buried = False
        try:
            await self.settler.drain_spool()
            await self.admission.give_back()
            await self.claims.give_back_strays()
            await self.lease.bury(self.lease.id)
            buried = True
        except DatabaseAway as error:
            logger.warning("left %d settlements in the spool: %s", self.spool.lines, error)
        self.spool.close(keep=not buried)
        await self.connections.close()
