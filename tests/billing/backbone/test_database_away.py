"""PostgreSQL away under load: what runs goes on and is accounted for once, what comes is refused at once, and the
service comes back by itself.
"""

import asyncio
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from statistics import quantiles

import pytest
from django.core.management import call_command
from django.db import connection

from billing.models import Budget, Hold, LedgerEntry, Limit, Usage
from deploy.engines import Engines, start
from routing.models import Model
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import run, speaking_to
from tests.stage.cast import Tenant, make_tenant
from tests.stage.load import Answer, Clients, keep_asking
from tests.stage.product import Gateway, launch, running, until
from tests.stage.shelf import make_model, make_provider
from tests.stage.verifier import Books

pytestmark = pytest.mark.backbone

AWAY_SECONDS = float(os.environ.get("AWAY_SECONDS", "6"))


@pytest.fixture(scope="module")
def own(database: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Engines of our own, which may be stopped; the ORM speaks to them."""
    with start(tmp_path_factory.mktemp("engines")) as engines, speaking_to(engines.urls["DATABASE_URL"]):
        call_command("migrate", verbosity=0)
        yield engines


@pytest.fixture
def tenant(own: Engines) -> Tenant:
    """A tenant with every kind of counter, none of which is ever full."""
    found = make_tenant("alice")
    Budget.objects.create(organization=found.organization, period="total", amount=Decimal(1_000_000))
    for measure in ("requests", "tokens", "open"):
        Limit.objects.create(organization=found.organization, measure=measure, value=10**9)
    return found


@contextmanager
def stopped(engines: Engines) -> Iterator[None]:
    """A clean stop and a start."""
    engines.postgres.stop()
    try:
        yield
    finally:
        engines.postgres.start()


@contextmanager
def killed(engines: Engines) -> Iterator[None]:
    """A crash and its recovery."""
    engines.postgres.kill()
    try:
        yield
    finally:
        engines.postgres.start()


@contextmanager
def frozen(engines: Engines) -> Iterator[None]:
    """Every process stands still: connections stay open and nobody answers."""
    postmaster = engines.postgres.pid
    os.kill(postmaster, signal.SIGSTOP)  # first, so that it starts no other
    family = [postmaster, *children(postmaster)]
    for pid in family[1:]:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in family[::-1]:
            os.kill(pid, signal.SIGCONT)


def children(pid: int) -> list[int]:
    """The processes that `pid` has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass
class Outage:
    """What happened around one; times are `time.monotonic()`."""

    began: float  # it is away from here on
    ended: float  # and begins to come back here
    back: float  # it is back
    journal: list[Answer]
    streams: list[Answer]


async def under_load(
    gateways: list[Gateway],
    tenant: Tenant,
    models: list[Model],
    simulated: SimulatedProvider,
    opened: Callable[[], bool],
    away: Callable[[], tuple[float, float]],
) -> Outage:
    """Steady load over all gateways, and streams that are `opened` when it begins; `away` returns when it is over."""
    over = asyncio.Event()
    quick, slow, held = models
    async with Clients() as clients:

        async def ask(number: int) -> Answer:
            answer = await clients.ask(gateways[number % len(gateways)].url, tenant.secret, quick.slug)
            await asyncio.sleep(0.2)
            return answer

        asking = asyncio.create_task(keep_asking(6, over.is_set, ask))
        await asyncio.sleep(1)
        streams = [
            asyncio.create_task(
                clients.insist(gateways[number % len(gateways)].url, tenant.secret, model.slug, stream=stream)
            )
            for number, (model, stream) in enumerate([(slow, True), (held, True), (slow, False), (held, True)] * 4)
        ]
        await asyncio.to_thread(until, opened, 20)
        began, ended = await asyncio.to_thread(away)
        back = time.monotonic()
        simulated.release()  # these were open all the time
        await asyncio.sleep(3)
        over.set()
        await asking
        return Outage(began, ended, back, clients.journal, await asyncio.gather(*streams))


@pytest.mark.parametrize("kind", [stopped, frozen], ids=["stopped", "frozen"])
def test_a_while_without_it(
    own: Engines,
    tenant: Tenant,
    simulated: SimulatedProvider,
    tmp_path: Path,
    kind: Callable[[Engines], AbstractContextManager[None]],
) -> None:
    provider = make_provider(simulated.base_url)
    pace = round(AWAY_SECONDS * 10)  # ms: the second ends while it is away
    does = ("tokens=2", f"tokens=40&pace={pace}ms", "hold=3&tokens=6")
    names = [f"away-{provider.slug}-{number}?{what}" for number, what in enumerate(does)]
    models = [make_model(provider, name) for name in names]

    def opened() -> bool:
        asked = simulated.state()["requests"]
        return bool(asked.get(names[1], 0) == 8 and simulated.state()["waiting"] == 8)

    def away() -> tuple[float, float]:
        with kind(own):
            began = time.monotonic()
            time.sleep(AWAY_SECONDS)
            ended = time.monotonic()
        return began, ended

    with running(tmp_path, 2, EGRESS_ALLOW=simulated.url, **own.urls) as gateways:
        connection.close()  # the ORM's would be a dead one
        found = run(under_load(gateways, tenant, models, simulated, opened, away))
        until(lambda: not Hold.objects.filter(organization=tenant.organization.pk).exists(), 20)
        until(lambda: all(gateway.readiness().get("spooled") == 0 for gateway in gateways), 20)

    assert all(stream.final for stream in found.streams), [stream.body[-300:] for stream in found.streams]
    finished = [s for s in found.streams if found.began < s.ended < found.ended]
    assert len(finished) >= 8

    meanwhile = [a for a in found.journal if found.began < a.sent and a.ended < found.ended and a not in found.streams]
    waits = quantiles((a.seconds for a in meanwhile), n=100)
    after = min(a.ended for a in found.journal if a.sent > found.ended and a.status == 200) - found.back
    print(
        f"{len(meanwhile)} refused, p50 {waits[49] * 1000:.0f} ms, p99 {waits[98] * 1000:.0f} ms, "
        f"slowest {max(a.seconds for a in meanwhile) * 1000:.0f} ms; first answer {after:.2f} s after it was back"
    )
    assert len(meanwhile) >= AWAY_SECONDS  # so that there is something to look at
    assert {(a.status, a.json()["error"]["code"], a.headers["retry-after"]) for a in meanwhile} == {
        (503, "billing_unavailable", "1")
    }
    assert max(a.seconds for a in meanwhile) <= 2  # a hold's patience follows the commits before, up to 1.8 s
    assert after <= 5

    rows = {u.id: u for u in Usage.objects.filter(organization=tenant.organization.pk)}
    finals = [a.generation for a in found.journal if a.final]
    assert len(set(finals)) == len(finals) > 30
    assert all(rows[id].status == "completed" for id in finals if id)
    # Nobody that lives was taken for dead, and nothing was settled twice.
    assert {u.status for u in rows.values()} - {"cancelled"} == {"completed"}
    assert {u.error for u in rows.values() if u.status == "cancelled"} <= {"not_dialled"}
    assert not LedgerEntry.objects.filter(organization=tenant.organization.pk, kind="reverse").exists()
    assert Books(own.urls["DATABASE_URL"], [tenant.organization.pk]).problems() == []


def test_what_a_killed_gateway_had_spooled_is_drained_by_another(
    own: Engines, tenant: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    provider = make_provider(simulated.base_url)
    model = make_model(provider, f"spooled-{provider.slug}?hold=3&tokens=6")
    victim, survivor = (launch(tmp_path, spool=None, EGRESS_ALLOW=simulated.url, **own.urls) for _ in range(2))

    async def scenario() -> list[Answer]:
        async with Clients() as clients:
            asking = [
                asyncio.create_task(clients.ask(victim.url, tenant.secret, model.slug, stream=True)) for _ in range(5)
            ]
            await asyncio.to_thread(simulated.until, 10.0, waiting=5)
            crash.enter_context(killed(own))
            simulated.release()
            answers = await asyncio.gather(*asking)
            victim.kill()
            return answers

    crash = ExitStack()
    try:
        victim.until_ready()
        survivor.until_ready()
        connection.close()
        answers = run(scenario())
        assert all(answer.final for answer in answers)
        left = [path for path in (tmp_path / "spool").glob("*.spool") if path.stat().st_size]
        assert len(left) == 1
        assert left[0].read_bytes().count(b"\n") == 5
        crash.close()
        until(lambda: not left[0].exists(), 20)
    finally:
        crash.close()
        victim.stop()
        survivor.stop()
    rows = Usage.objects.filter(organization=tenant.organization.pk)
    assert {u.id for u in rows} == {answer.generation for answer in answers}
    assert {(u.status, u.completion_tokens) for u in rows} == {("completed", 6)}
    assert Books(own.urls["DATABASE_URL"], [tenant.organization.pk]).problems() == []


def test_a_full_disk_refuses_paid_work_until_it_is_well_again(
    own: Engines, tenant: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    """The database goes away while no byte fits on the disk: nothing final goes out that nobody has written down."""
    provider = make_provider(simulated.base_url)
    slow = make_model(provider, f"full-{provider.slug}?hold=3&tokens=6")
    quick = make_model(provider, f"full-{provider.slug}?tokens=2")

    def room(size: int) -> None:
        resource.prlimit(gateway.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    async def scenario() -> Answer:
        async with Clients() as clients:
            asking = asyncio.create_task(clients.ask(gateway.url, tenant.secret, slow.slug, stream=True))
            await asyncio.to_thread(simulated.until, 10.0, waiting=1)
            room(0)
            outage.enter_context(stopped(own))
            simulated.release()
            return await asking

    with running(tmp_path, 1, EGRESS_ALLOW=simulated.url, **own.urls) as (gateway,):
        connection.close()
        with ExitStack() as outage:
            answer = run(scenario())
        assert not answer.final
        assert answer.events()[-1]["error"]["code"] == "billing_unavailable"
        # What it used is known all the same, now that somebody takes it.
        until(lambda: Usage.objects.filter(id=answer.generation, status="completed").exists(), 20)
        refused = gateway.chat(tenant.secret, quick.slug)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "billing_unavailable")
        assert int(refused.headers["Retry-After"]) > 0
        until(lambda: gateway.readiness()["missing"] == ["disk"], 10)
        room(resource.RLIM_INFINITY)
        until(lambda: gateway.chat(tenant.secret, quick.slug).status_code == 200, 10)
    assert Books(own.urls["DATABASE_URL"], [tenant.organization.pk]).problems() == []


def test_a_gateway_that_starts_without_it_serves_as_soon_as_it_is_there(
    own: Engines, tenant: Tenant, simulated: SimulatedProvider, tmp_path: Path
) -> None:
    model = make_model(make_provider(simulated.base_url))
    connection.close()
    with killed(own):
        gateway = launch(tmp_path, spool=None, EGRESS_ALLOW=simulated.url, **own.urls)
        until(lambda: "database" in gateway.readiness().get("missing", ()), 30)
        assert gateway.chat(tenant.secret, model.slug).status_code == 503
    try:
        gateway.until_ready()
        assert gateway.chat(tenant.secret, model.slug).status_code == 200
    finally:
        gateway.stop()
