"""kill -9 at any moment: every final answer has exactly one usage row, and the books are the provider's bill.

`make kills` kills 20 times.
"""

import asyncio
import os
import random
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.models import Budget, Hold, Limit, Usage
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import books, database, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.load import Answer, Clients, keep_asking
from tests.stage.product import Gateway, launch, until
from tests.stage.shelf import make_model, make_provider

pytestmark = pytest.mark.backbone

SEED = int(os.environ.get("SEED", "1"))
KILLS = int(os.environ.get("KILLS", "4"))
RESOLVED_WITHIN = 30.0  # seconds from the kill


@pytest.fixture
def bounded(alice: Tenant) -> Tenant:
    """Alice with every kind of counter, none of which is ever full."""
    Budget.objects.create(organization=alice.organization, period="total", amount=Decimal(1_000_000))
    Budget.objects.create(organization=alice.organization, project=alice.project, period="month", amount=Decimal(10**6))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=alice.organization, measure=measure, value=10**9)
    return alice


@pytest.fixture
def models(simulated: SimulatedProvider) -> list[Model]:
    """Answers that take from nothing to half a second, whole and streamed."""
    provider = make_provider(simulated.base_url)
    names = ("tokens=3", "tokens=12&pace=20ms", "tokens=5&first=200ms", "tokens=25&pace=20ms")
    return [make_model(provider, f"crash-{number}-{provider.slug}?{name}") for number, name in enumerate(names)]


class Killer:
    """Keeps a few gateways running over one spool folder, and kills one after the other."""

    def __init__(self, folder: Path, chance: random.Random, **env: str) -> None:
        self.ready: list[Gateway] = []
        self.killed: dict[int, float] = {}  # pid -> when
        self._folder, self._chance, self._env = folder, chance, env

    async def start(self, count: int) -> None:
        """Starts `count` gateways."""
        await asyncio.gather(*(self._start_one() for _ in range(count)))

    async def _start_one(self) -> None:
        gateway = launch(self._folder, spool=None, **self._env)
        await asyncio.to_thread(gateway.until_ready)
        self.ready.append(gateway)

    async def kill(self, times: int) -> None:
        """Kills at random moments, and starts another in its place."""
        starting = set()
        for _ in range(times):
            await asyncio.sleep(self._chance.uniform(0.1, 1.5))
            await asyncio.to_thread(until, self._two_are_ready, 60)
            victim = self.ready.pop(self._chance.randrange(len(self.ready)))
            self.killed[victim.process.pid] = time.monotonic()
            victim.kill()
            starting.add(asyncio.create_task(self._start_one()))
        await asyncio.gather(*starting)

    def _two_are_ready(self) -> bool:
        return len(self.ready) > 1

    def stop(self) -> None:
        """SIGTERM to all that are left."""
        for gateway in self.ready:
            gateway.stop()


async def watch(killed: dict[int, float], over: asyncio.Event) -> dict[int, float]:
    """Seconds from each kill until the dead process's holds were gone, once `over` is set and all are."""
    resolved: dict[int, float] = {}
    query = "select distinct l.pid from billing_lease l join billing_hold h on h.lease = l.id where l.pid = any(%s)"
    with database(owner_url()) as connection:

        def holding(pids: list[int]) -> set[int]:
            return {pid for (pid,) in connection.execute(query, [pids]).fetchall()}

        while not over.is_set() or len(resolved) < len(killed):
            waiting = [pid for pid in killed if pid not in resolved]
            still = await asyncio.to_thread(holding, waiting)
            for pid in waiting:
                if pid not in still:
                    resolved[pid] = time.monotonic() - killed[pid]
                assert time.monotonic() - killed[pid] < RESOLVED_WITHIN + 30, f"the holds of {pid} stay"
            await asyncio.sleep(0.2)
    return resolved


def test_kill_nine_loses_and_doubles_nothing(
    bounded: Tenant, models: list[Model], simulated: SimulatedProvider, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    killer = Killer(tmp_path, chance, EGRESS_ALLOW=simulated.url)

    async def scenario() -> tuple[list[Answer], dict[int, float]]:
        await killer.start(3)
        over = asyncio.Event()
        watching = asyncio.create_task(watch(killer.killed, over))
        async with Clients() as clients:

            async def ask(number: int) -> Answer:
                gateway = chance.choice(killer.ready)
                # The number of words, and so of prompt tokens, is the request's own: the bill is told apart by it.
                return await clients.ask(
                    gateway.url,
                    bounded.secret,
                    chance.choice(models).slug,
                    words=number + 1,
                    stream=chance.random() < 0.7,
                    user=f"client-{number}",
                )

            asking = asyncio.create_task(keep_asking(16, over.is_set, ask))
            await killer.kill(KILLS)
            over.set()
            await asking
            return clients.journal, await watching

    try:
        journal, resolved = run(scenario())
        until(lambda: not Hold.objects.filter(organization=bounded.organization.pk).exists(), RESOLVED_WITHIN)
    finally:
        killer.stop()

    finals = [answer for answer in journal if answer.final]
    usage = {row.id: row for row in Usage.objects.filter(organization=bounded.organization.pk)}
    print(
        f"seed {SEED}: {len(journal)} requests, {len(finals)} final answers, {len(usage)} generations,"
        f" {sum(row.status == 'abandoned' for row in usage.values())} abandoned;"
        f" holds resolved after at most {max(resolved.values()):.1f} s"
    )
    assert len(resolved) == KILLS
    assert max(resolved.values()) <= RESOLVED_WITHIN
    assert len(finals) > 10 * KILLS
    assert any(row.status == "abandoned" for row in usage.values())

    completed = {id for id, row in usage.items() if row.status == "completed"}
    assert {answer.generation for answer in finals} - completed == set()
    assert len({row.end_user for row in usage.values()}) == len(usage)
    assert books(bounded.organization).problems() == []
    compare_with_the_bill([usage[id] for id in completed], simulated)


def compare_with_the_bill(rows: list[Any], simulated: SimulatedProvider) -> None:
    """Each settled answer has one line of the provider's bill that says the same, and so does the sum of money."""
    names = {row.upstream_model for row in rows}
    lines = {
        line["prompt_tokens"]: line for line in simulated.bill() if line["model"] in names and line["prompt_tokens"]
    }
    billed = [lines[row.prompt_tokens] for row in rows]
    assert [row.completion_tokens for row in rows] == [line["completion_tokens"] for line in billed]
    assert all(line["ended"] == "complete" for line in billed)
    # $2 and $4 a million tokens.
    expected = sum(2 * line["prompt_tokens"] + 4 * line["completion_tokens"] for line in billed)
    assert sum(row.charge for row in rows) == Decimal(expected) / 10**6
