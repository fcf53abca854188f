"""What one gateway process keeps between requests, made when it starts and given back when it stops."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Protocol
from uuid import UUID

from django.conf import settings

from accounts.callers import Caller
from billing.backbone.backbone import Backbone
from gateway.files.store import Files
from gateway.process.arrivals import Arrivals
from gateway.process.database import Database, Pools
from gateway.process.deadline import boot_time
from gateway.process.drains import Drains
from gateway.process.ejections import Ejections
from gateway.process.heavy_bodies import Parser
from gateway.process.lengths import Lengths
from gateway.process.payloads import Payloads
from gateway.process.published import Statistics
from gateway.process.refused import Refused
from gateway.process.seats import Rotations, Seats
from gateway.process.snapshot import Snapshots
from gateway.process.tokenizers import Tokenizers
from gateway.process.turns import Rounds
from gateway.upstream.client import Upstream
from gateway.upstream.signing import Signer
from gateway.wire.errors import Forbidden, GatewayError, UpstreamFault
from routing.egress import Egress, parse_allow
from routing.health.faults import Fault
from routing.health.retries import RetryBudget

CUT_OFF = "This request was ended by whoever runs this gateway, or by an owner of its organization."
FIRST_SNAPSHOT_SECONDS = 5.0  # a server that swallows what it is sent does not keep us from saying so


class OpenCall(Protocol):
    """A call in progress that can be cut off: for a reason its client is told, by default that its key has ended.

    `id`: the generation's. `ends_by`: when its time is over, by `boot_time`.
    """

    ends_by: float

    @property
    def id(self) -> str: ...

    @property
    def caller(self) -> Caller: ...

    def cut(self, reason: GatewayError | None = None) -> None: ...


class OpenCalls(set[OpenCall]):
    """The calls in progress, so that a revoked key's are cut and not only its next ones refused.

    Keys end seldom, and then all calls are looked through.
    """

    def cut(self, keys: Collection[UUID]) -> None:
        """Cuts every call of `keys`."""
        for call in [call for call in self if call.caller.key in keys]:
            call.cut()

    def cut_off(self, requests: Collection[UUID]) -> None:
        """Cuts those of `requests`, by their generations, that are open here: somebody has ended them."""
        ids = {one.hex for one in requests}
        for call in [call for call in self if call.id in ids]:
            call.cut(Forbidden(CUT_OFF, code="request_cut"))

    def cut_expired(self) -> None:
        """Cuts the calls of keys that have expired since their calls began."""
        now = datetime.now(UTC)
        for call in [call for call in self if not call.caller.is_alive(now)]:
            call.cut()

    def cut_overdue(self) -> None:
        """Cuts the calls whose time is over. Each has deadlines of its own, which stand still while the machine sleeps;
        past this one others may take what it holds for free.
        """
        now = boot_time()
        for call in [call for call in self if call.ends_by < now]:
            call.cut(UpstreamFault(Fault.TIMEOUT, "longer than it may hold money"))


class Process:
    """One a process, living in its event loop from the server's start to its end."""

    def __init__(self) -> None:
        self.open_calls = OpenCalls()
        self.drains = Drains(settings.DRAINS_AT_ONCE)
        self.tokenizers = Tokenizers()
        self.arrivals = Arrivals(settings.KEY_REQUESTS_UNDER_WAY)
        self.backbone = Backbone(
            settings.DATABASE_APP_URL,
            settings.SPOOL_DIR,
            settings.DATABASE_PAID_CONNECTIONS,
            (settings.HOLD_SECONDS, settings.HOLD_SECONDS_MOST),
            settings.IDEMPOTENCY_ORGANIZATION_BYTES,
        )
        self.pools = Pools(settings.DATABASE_APP_URL, self.backbone.connections)
        self.database = Database(self.pools)
        self.ejections = Ejections(self.pools.errands)
        self.health = self.ejections.health
        self.retries = RetryBudget(time.monotonic())
        self.snapshots = Snapshots(
            settings.DATABASE_APP_URL,
            self.pools.errands,
            self.open_calls.cut,
            self.ejections.hear,
            self.open_calls.cut_off,
        )
        self.files = Files(self.pools.files)
        self.upstream = Upstream(Egress(parse_allow(settings.EGRESS_ALLOW)))
        self.signer = Signer(self.upstream, boot_time)
        self.statistics = Statistics(self.pools.errands, self.health)
        self.refused = Refused(self.pools.errands)
        self.payloads = Payloads(self.pools.files)
        self.leaving = False  # a stop has been asked for
        self.seats = Seats()
        self.lengths = Lengths()
        self.rotations = Rotations()
        self.rounds = Rounds()
        self.parser = Parser()
        self._tasks: list[asyncio.Task[None]] = []
        self._seen_off: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts everything; returns when requests can be answered.

        What is away is waited for in the background, and `/readyz` says so. Until the first snapshot is read no key is
        known, and whoever calls is told to come back.
        """
        await self.backbone.start()
        loop = asyncio.get_running_loop()
        keepers = (
            self.snapshots.keep(),
            self.ejections.keep(),
            self.statistics.keep(),
            self.refused.keep(),
            self.payloads.keep(),
            self.database.keep(),
            self._watch_expiry(),
        )
        self._tasks = [loop.create_task(keeper) for keeper in keepers]
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SNAPSHOT_SECONDS):
                await self.snapshots.tried.wait()

    async def _watch_expiry(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self.open_calls.cut_expired()
            self.open_calls.cut_overdue()

    def see_off(self, errand: Coroutine[Any, Any, None]) -> None:
        """Runs what outlives its request. It bounds its own time, and ends with the process."""
        task = asyncio.get_running_loop().create_task(errand)
        self._seen_off.add(task)
        task.add_done_callback(self._seen_off.discard)

    async def stop(self) -> None:
        """Ends everything, settlements last but for what is told of the refused and kept of payloads."""
        tasks = [*self._tasks, *self._seen_off]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.backbone.stop()
        await self.refused.stop()
        await self.payloads.stop()
        await self.pools.close()
        await self.signer.close()
        await self.upstream.close()
        await self.parser.close()


_current: list[Process] = []


def current() -> Process:
    """The running process. Raises RuntimeError outside a server."""
    if not _current:
        raise RuntimeError("no gateway process runs here")
    return _current[0]


def install(make: Callable[[], Process] = Process) -> Process:
    """Makes the process's one `Process`; `uninstall` forgets it."""
    _current[:] = [make()]
    return _current[0]


def uninstall() -> None:
    """Forgets the process."""
    _current.clear()
