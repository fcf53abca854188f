"""kill -9 of anything at any moment: each final answer has one usage row, and the books are the provider's bill.

`make chaos` kills 20 times among 5,000 answers, `CHAOS=full make chaos` 150 times among 50,000.
"""

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connection

from billing.models import Budget, Hold, Limit, Usage
from deploy.engines import Engines, start
from routing.models import Model
from tests.chaos.killer import Deployment, kill_in_turn
from tests.simulated.process import SimulatedProvider
from tests.stage import plugin
from tests.stage.backbone import owner_url, run, speaking_to
from tests.stage.cast import Tenant, make_tenant
from tests.stage.load import Answer, Clients, keep_asking
from tests.stage.product import until
from tests.stage.shelf import make_model, make_provider
from tests.stage.verifier import Books

pytestmark = pytest.mark.backbone

SEED = int(os.environ.get("SEED", "1"))
ANSWERS = int(os.environ.get("CHAOS_ANSWERS", "400"))
KILLS = int(os.environ.get("KILLS", "4"))
RESOLVED_WITHIN = 30.0  # seconds from the kill
SMALLEST = Fraction(1, 10**12)  # dollars
told: list[str] = []  # what came of it, in a line


@pytest.fixture
def own(database: None, tmp_path: Path) -> Iterator[Engines | None]:
    """Engines of our own, which may be killed; None where others' are named. The ORM speaks to them."""
    if plugin.named:
        yield None
        return
    with start(tmp_path / "engines") as engines, speaking_to(engines.urls["DATABASE_URL"]):
        call_command("migrate", verbosity=0)
        yield engines


@pytest.fixture
def tenant(own: Engines | None) -> Tenant:
    """One with every kind of counter, none of which is ever full."""
    found = make_tenant("alice")
    Budget.objects.create(organization=found.organization, period="total", amount=Decimal(1_000_000))
    Budget.objects.create(organization=found.organization, project=found.project, period="month", amount=Decimal(10**6))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=found.organization, measure=measure, value=10**9)
    return found


@pytest.fixture
def models(own: Engines | None, simulated: SimulatedProvider) -> list[Model]:
    """Answers that take from nothing to half a second, whole and streamed."""
    provider = make_provider(simulated.base_url)
    names = ("tokens=3", "tokens=12&pace=20ms", "tokens=5&first=200ms", "tokens=25&pace=20ms")
    return [make_model(provider, f"crash-{number}-{provider.slug}?{name}") for number, name in enumerate(names)]


async def watch(url: str, killed: dict[int, float], over: asyncio.Event) -> dict[int, float]:
    """Seconds from each gateway's kill until its holds were gone, once `over` is set and all are."""
    resolved: dict[int, float] = {}
    query = "select distinct l.pid from billing_lease l join billing_hold h on h.lease = l.id where l.pid = any(%s)"

    def holding(pids: list[int]) -> set[int]:
        with psycopg.connect(url, connect_timeout=5) as books:
            return {pid for (pid,) in books.execute(query, [pids]).fetchall()}

    while not over.is_set() or len(resolved) < len(killed):
        waiting = [pid for pid in killed if pid not in resolved]
        still = set(waiting)
        with suppress(psycopg.OperationalError):  # it was killed, too
            still = await asyncio.to_thread(holding, waiting)
        for pid in waiting:
            if pid not in still:
                resolved[pid] = time.monotonic() - killed[pid]
            assert time.monotonic() - killed[pid] < RESOLVED_WITHIN + 30, f"the holds of {pid} stay"
        await asyncio.sleep(0.2)
    return resolved


@pytest.mark.timeout(7200)
def test_kill_nine_loses_and_doubles_nothing(
    own: Engines | None, tenant: Tenant, models: list[Model], simulated: SimulatedProvider, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    url = own.urls["DATABASE_URL"] if own else owner_url()
    deployment = Deployment(tmp_path, own, EGRESS_ALLOW=simulated.url)

    async def scenario() -> tuple[list[Answer], list[str], dict[int, float]]:
        await deployment.start()
        over, shown = asyncio.Event(), 0
        watching = asyncio.create_task(watch(url, deployment.killed, over))
        finals, dues = 0, [asyncio.Event() for _ in range(KILLS)]  # spread over the answers

        async def due(number: int) -> None:
            await dues[number].wait()

        async with Clients() as clients:

            async def ask(number: int) -> Answer:
                nonlocal finals, shown
                gateway = chance.choice(deployment.ready)
                answer = await clients.ask(
                    gateway.url,
                    tenant.secret,
                    chance.choice(models).slug,
                    words=number % 50 + 1,
                    stream=chance.random() < 0.7,
                    user=f"client-{number}",
                )
                finals += answer.final
                for number in range(min(finals * (KILLS + 1) // ANSWERS, KILLS)):
                    dues[number].set()
                if finals >= shown + 1000:
                    shown = finals - finals % 1000
                    print(f"{shown:,} of {ANSWERS:,} answers, {len(deployment.killed)} gateways killed", flush=True)
                return answer

            killing = asyncio.create_task(kill_in_turn(deployment, KILLS, chance, due))
            await keep_asking(16, lambda: finals >= ANSWERS and killing.done(), ask)
            over.set()
            return clients.journal, await killing, await watching

    try:
        journal, kinds, resolved = run(scenario())
        connection.close()  # the server that it led to was killed
        until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), RESOLVED_WITHIN)
    finally:
        deployment.stop()

    finals = [answer for answer in journal if answer.final]
    usage = {row.id: row for row in Usage.objects.filter(organization=tenant.organization.pk)}
    completed = {id: row for id, row in usage.items() if row.status == "completed"}
    found = Books(url, [tenant.organization.pk])
    lost = {answer.generation for answer in finals} - completed.keys()
    doubled = sum(count - 1 for count in Counter(row.end_user for row in usage.values()).values())
    drift = sum((abs(x) for x in differences(completed.values(), simulated)), Fraction(0)) / SMALLEST
    print(
        f"\nseed {SEED}: {len(journal):,} requests, {len(finals):,} final answers, {len(usage):,} generations,"
        f" {sum(row.status == 'abandoned' for row in usage.values())} abandoned; {dict(Counter(kinds))} killed;"
        f" holds of gateways resolved after at most {max(resolved.values(), default=0):.1f} s"
    )
    problems = found.problems()
    print(*problems[:20], sep="\n")
    told.append(f"lost {len(lost)}, duplicate {doubled}, drift {drift}")
    print(told[-1])
    assert not lost and not doubled and not drift
    assert problems == []
    assert len(resolved) == kinds.count("gateway")
    assert max(resolved.values(), default=0) <= RESOLVED_WITHIN
    assert len(finals) >= ANSWERS
    assert len(kinds) == KILLS


def differences(rows: Any, simulated: SimulatedProvider) -> Iterator[Fraction]:
    """Of each settled answer: how far its charge is from what the provider's own bill says of it."""
    lines = {line["id"]: line for line in simulated.bill() if line["ended"] == "complete"}
    for row in rows:
        line = lines[row.upstream_id]
        # $2 and $4 a million tokens.
        owed = Fraction(2 * line["prompt_tokens"] + 4 * line["completion_tokens"], 10**6)
        yield Fraction(row.charge) - owed
