"""A process says every five seconds that it lives; silent for twenty it is dead, and the others end its holds."""

import asyncio
import logging
import os
import socket
from datetime import timedelta
from uuid import UUID

from billing.batches import Connections, DatabaseAway

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5
DEAD_AFTER = timedelta(seconds=20)
RESOLVED_AT_ONCE = 500


class Lease:
    """This process's lease."""

    def __init__(self, connections: Connections, id: UUID) -> None:
        self.id = id
        self._connections = connections

    async def renew(self) -> None:
        """Says that the process lives. Raises `DatabaseAway`."""
        await self._connections.call(
            "select billing_heartbeat(%s, %s, %s)", [self.id, socket.gethostname(), os.getpid()]
        )

    async def resolve_dead(self) -> int:
        """Ends the holds of dead processes; safe from several processes at once. Returns how many."""
        return await resolve_dead(self._connections)

    async def keep(self) -> None:
        """Renews the lease and ends dead processes' holds, until cancelled."""
        while True:
            try:
                await self.renew()
                while await self.resolve_dead() == RESOLVED_AT_ONCE:
                    pass
            except DatabaseAway as error:
                logger.warning("the lease was not renewed: %s", error)
            await asyncio.sleep(HEARTBEAT_SECONDS)


async def resolve_dead(connections: Connections) -> int:
    """Ends up to `RESOLVED_AT_ONCE` holds of processes silent for `DEAD_AFTER`. Returns how many."""
    ((count,),) = await connections.call("select billing_resolve(%s, %s)", [DEAD_AFTER, RESOLVED_AT_ONCE])
    return int(count)
