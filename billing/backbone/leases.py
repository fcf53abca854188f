"""A process says every five seconds that it lives. Silent for twenty it seems dead; without a lease it is.

Of a process that seems dead the others end the holds that no hard budget counts: paused, or cut off from the database,
it may still stream, and what it holds will be charged. That one has ended is known by its spool file, which is locked
for as long as it lives, whatever ends it: who finds it unlocked ends the lease (`bury`), and with it all its holds.
"""

import asyncio
import logging
import os
import socket
import time
from datetime import timedelta
from uuid import UUID

from billing.backbone.connections import Connections, DatabaseAway

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 5
DEAD_AFTER = timedelta(seconds=20)
# Between two heartbeats of one life. A database that is back after such a gap may show the lease of a process that has
# lived all along as older by another heartbeat and the pause before its next try: still not dead.
LONGEST_GAP = timedelta(seconds=8)
EVERYBODY = UUID(int=0)  # a lease that every process renews: while it lives without a gap, the database was there
HOUSEKEEPER = UUID(int=1)  # the lease of whichever worker runs the tasks; it never holds
RESOLVED_AT_ONCE = 500
BURY = "delete from billing_lease where id = %s returning id"


class Lease:
    """This process's lease."""

    def __init__(self, connections: Connections, id: UUID) -> None:
        self.id = id
        self.commit_seconds = 0.0  # what the last renewal took, which waits for nobody's locks but the disk
        self._connections = connections

    async def renew(self) -> None:
        """Says that the process lives. Raises `DatabaseAway`."""
        host, pid = socket.gethostname(), os.getpid()
        began = time.monotonic()
        await self._connections.call(
            "select billing_heartbeat(%s, %s, %s, %s), billing_heartbeat(%s, %s, %s, %s)",
            [self.id, host, pid, LONGEST_GAP, EVERYBODY, host, pid, LONGEST_GAP],
        )
        self.commit_seconds = time.monotonic() - began

    async def bury(self, lease: UUID) -> None:
        """Ends the lease of a process that has ended for certain, and what it held. Raises `DatabaseAway`."""
        await self._connections.call(BURY, [lease])
        while await self.resolve_dead() == RESOLVED_AT_ONCE:
            pass

    async def resolve_dead(self) -> int:
        """Ends holds of dead processes, up to `RESOLVED_AT_ONCE`; safe from several processes at once.

        Only of those without a lease while the database has not been back for long: see `billing_resolve`. Returns how
        many it ended. Raises `DatabaseAway`.
        """
        ((count,),) = await self._connections.call(
            "select billing_resolve(%s, %s, %s)", [EVERYBODY, DEAD_AFTER, RESOLVED_AT_ONCE]
        )
        return int(count)

    async def keep(self) -> None:
        """Renews the lease and ends dead processes' holds, until cancelled."""
        while True:
            try:
                await self.renew()
                while await self.resolve_dead() == RESOLVED_AT_ONCE:
                    pass
            except DatabaseAway as error:
                logger.warning("the lease was not renewed: %s", error)
            except Exception:  # a process that stops saying that it lives loses its holds
                logger.exception("the lease was not renewed")
            await asyncio.sleep(HEARTBEAT_SECONDS)
