"""Four gateway processes with a broker that may be killed, paused and emptied; and what is told of a promise."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from billing.models import Tariff
from deploy.placing import place_for, unprivileged
from deploy.state import Memory, own_folder
from deploy.valkey import Valkey
from routing.models import Provider
from tests.contention.table import deadlocks
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import database as connected
from tests.stage.backbone import owner_url
from tests.stage.product import Gateway, running
from tests.stage.shelf import make_provider, make_tariff

Figures = Callable[..., None]
STATES = ("up", "gone", "emptied", "paused")


class Broker:
    """A Valkey of the fleet's own."""

    def __init__(self, folder: Path) -> None:
        account = unprivileged()
        state = own_folder(folder, 0o711 if account else 0o700)
        self._valkey = Valkey(place_for(state, account), state / "valkey.log", account, Memory(state / "valkey.env"))
        self._valkey.start()
        self.url = self._valkey.url

    @contextmanager
    def being(self, state: str) -> Iterator[Callable[[], None]]:
        """In a state of `STATES` while the block runs; what is given is to be called in its midst."""
        pid = self._valkey.pid
        if state == "gone":
            self._valkey.kill()
        elif state == "paused":
            os.kill(pid, signal.SIGSTOP)
        try:
            yield self._empty if state == "emptied" else lambda: None
        finally:
            if state == "gone":
                self._valkey.start()
            elif state == "paused":
                os.kill(pid, signal.SIGCONT)

    def _empty(self) -> None:
        with redis.Redis.from_url(self.url, socket_timeout=5) as client:
            client.flushall()

    def stop(self) -> None:
        """Ends it."""
        self._valkey.stop()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The fleet's Valkey."""
    made = Broker(tmp_path_factory.mktemp("broker") / "state")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def fleet(
    database: None, simulated: SimulatedProvider, broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Gateway]]:
    """Four gateways over one spool folder, which may dial the simulated provider alone; meanwhile no deadlock."""
    query = "select deadlocks from pg_stat_database where datname = current_database()"
    with connected(owner_url()) as owner:
        before = owner.execute(query).fetchall()
    folder = tmp_path_factory.mktemp("fleet")
    with running(folder, 4, EGRESS_ALLOW=simulated.url, REDIS_URL=broker.url) as gateways:
        yield gateways
    with connected(owner_url()) as owner:  # their sessions are over, and have reported
        deadlocks.append(owner.execute(query).fetchall()[0][0] - before[0][0])
    assert deadlocks[-1] == 0


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Figures:
    """Tells the figures of a promise, each by its name: the smaller the better."""

    def tell(promise: str, **found: float) -> None:
        told = {name.replace("_", " "): value for name, value in found.items()}
        print(f"{promise}: {told}")
        record_property("figures", (promise, told))

    return tell


@pytest.fixture
def provider(simulated: SimulatedProvider) -> Provider:
    """A provider row for the simulated provider."""
    return make_provider(simulated.base_url)


@pytest.fixture
def cents() -> Tariff:
    """A cent for an output token, nothing for input: the worst case is the cap in cents."""
    return make_tariff(input="0", output=("5000", "10000"))
