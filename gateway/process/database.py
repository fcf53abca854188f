"""What a process knows of its database: connections for each purpose, and, looked at now and then, how it is."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator

from django.conf import settings

from billing.backbone.connections import Connections, DatabaseAway
from billing.ids import CLOCKS_APART

logger = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two looks
LOOK_SECONDS = 1.5  # a look that takes longer finds the database away
STRANGE_SECONDS = 1.0  # clocks that are further apart are worth a warning
# And further than that no work is taken: ids, windows and prices would be of another time.
WRONG_SECONDS = CLOCKS_APART.total_seconds()
OLD_SECONDS = 60.0  # a transaction that has been open for so long is worth a warning
WARN_EVERY = 60.0

# Who keeps the database from clearing away what requests leave behind is told by the oldest transaction that anybody
# still sees; how long it has been there we measure ourselves, since others' sessions tell that to monitors alone.
QUERY = """
select extract(epoch from clock_timestamp())::float8,
       current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
         - coalesce(nullif(current_setting('reserved_connections', true), '')::integer, 0),
       (select nullif(rolconnlimit, -1) from pg_roles where rolname = session_user),
       (select count(*) from billing_lease
         where heartbeat_at > clock_timestamp() - interval '20 seconds'
           and heartbeat_at < clock_timestamp() + interval '20 seconds'
           and id > '00000000-0000-0000-0000-0000000000ff'),
       (select x::text
          from (select backend_xmin from pg_stat_activity
                 where pid <> pg_backend_pid() and usesysid is not null
                 union all select backend_xid from pg_stat_activity where pid <> pg_backend_pid()
                 union all select "transaction" from pg_prepared_xacts
                 union all select xmin from pg_replication_slots) o(x)
         where x is not null order by age(x) desc limit 1),
       (select count(*) from billing_auditfinding where gone_at is null),
       (select extract(epoch from ended_at)::float8 from billing_auditstate),
       (select count(*) from billing_storedexport p join billing_exportschedule s on s.id = p.schedule_id
         where s.active and p.state = 'waiting' and p.last_error <> '')
"""


class Pools:
    """A process's connections, apart by what they are for, so that none of it can take those of another."""

    def __init__(self, url: str, paid: Connections) -> None:
        most, seconds = settings.DATABASE_READ_CONNECTIONS, settings.DATABASE_READ_SECONDS
        self.paid = paid
        # Half of them at most for one tenant: the others' wait is not that of its slowest.
        self.reads = Connections(
            url, most, share=(most + 1) // 2, queue=settings.DATABASE_READS_WAITING, patience=seconds
        )
        self.files = Connections(url, settings.DATABASE_FILE_CONNECTIONS)
        self.errands = Connections(url, settings.DATABASE_ERRAND_CONNECTIONS)

    def __iter__(self) -> Iterator[tuple[str, Connections]]:
        """Each with its name."""
        yield from vars(self).items()

    @property
    def most(self) -> int:
        """How many connections they are at most, with the one that listens for changes."""
        return 1 + sum(pool.turns.places for _, pool in self)

    async def give_back(self) -> None:
        """Closes what has been idle for long."""
        for _, pool in self:
            await pool.give_back()

    async def close(self) -> None:
        """Waits for what runs, and closes everything."""
        for _, pool in self:
            await pool.close()


class Database:
    """How the database was when `keep` looked last; nobody else waits for an answer to that."""

    def __init__(self, pools: Pools, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.reachable = False
        self.ahead = 0.0  # seconds that the clock of this process is ahead of the database's, at least; below 0: behind
        self.oldest_seconds = 0.0  # how long the oldest open transaction has been seen, at least
        self.findings = 0  # of the auditor that are open
        self.audited_at = 0.0  # when it ended last; 0: never
        self.exports_failing = 0  # periods of schedules that could not be stored yet
        self.wanted = 0  # connections that all living processes like this one may have together
        self.allowed = 0  # by the server and the role
        self._pools = pools
        self._oldest: tuple[str, float] | None = None
        self._warned: dict[str, float] = {}

    @property
    def agrees(self) -> bool:
        """Whether the database's clock says about the same as ours."""
        return abs(self.ahead) <= WRONG_SECONDS

    async def keep(self) -> None:
        """Looks every second, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self.look()
                self.reachable = True
            except (DatabaseAway, TimeoutError):
                self.reachable = False
            except Exception:
                logger.exception("the state of the database could not be read")
                self.reachable = False
            await self._pools.give_back()
            await asyncio.sleep(EVERY)

    async def look(self) -> None:
        """Looks now. Raises `DatabaseAway`."""
        sent = self._clock()
        (found,) = await self._pools.errands.call(QUERY, [])
        got = self._clock()
        clock, most, most_of_role, processes, oldest, findings, audited, self.exports_failing = found
        # It was read at some moment between: what is surely not the way's.
        self.ahead = sent - clock if sent > clock else min(0.0, got - clock)
        self.allowed = most if most_of_role is None else min(most, most_of_role)
        self.findings, self.audited_at = findings, audited or 0.0
        own = self._pools.most + (settings.CONSOLE_REQUESTS if settings.SERVE == "all" else 0)
        self.wanted = own * max(processes, 1)
        now = time.monotonic()
        if oldest is None:
            self._oldest = None
        elif self._oldest is None or self._oldest[0] != oldest:
            self._oldest = oldest, now
        self.oldest_seconds = 0.0 if self._oldest is None else now - self._oldest[1]
        self._warn(now)

    def _warn(self, now: float) -> None:
        if abs(self.ahead) > STRANGE_SECONDS:
            self._say(
                now,
                "this machine's clock is %.1f s ahead of the database's; past %.0f s either way no work is taken",
                self.ahead,
                WRONG_SECONDS,
            )
        if self.oldest_seconds > OLD_SECONDS:
            self._say(
                now, "a transaction has been open in the database for %.0f s and holds back its cleaning",
                self.oldest_seconds,
            )  # fmt: skip
        if self.wanted > self.allowed:
            self._say(
                now,
                "the processes that live may take %d connections together, and the database allows %d",
                self.wanted,
                self.allowed,
            )

    def _say(self, now: float, text: str, *values: float) -> None:
        if now - self._warned.get(text, -WARN_EVERY) >= WARN_EVERY:
            self._warned[text] = now
            logger.warning(text, *values)
