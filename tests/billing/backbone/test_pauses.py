"""A process that is paused, or cut off from the database, for longer than its lease: while its streams go on nobody is
given their money, a hard budget holds at every commit, and nothing stays held afterwards.

`PAUSE_SECONDS=40` waits as long as that, while the leases go stale by themselves; `make pauses` does. Without it the
lease is made old instead.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from accounts import callers
from accounts.callers import Caller
from accounts.models import ApiKey
from billing.backbone.leases import DEAD_AFTER, EVERYBODY
from billing.ids import new_hex
from billing.models import Budget, Counter, Usage
from gateway.process.deadline import boot_time
from gateway.process.process import OpenCalls
from gateway.wire.errors import GatewayError
from tests.simulated.process import SimulatedProvider
from tests.stage.backbone import app_url, books, database, owner_url, run
from tests.stage.cast import Tenant
from tests.stage.gate import Gate, gate
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, launch, until
from tests.stage.shelf import make_model, make_provider, make_tariff

pytestmark = [pytest.mark.backbone, pytest.mark.timeout(600)]

PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))
STREAMS = 5
# A stream holds 10 dollars for its cap and comes to 6: five of them leave room for nothing else.
BUDGET = Decimal(51)
CAP, TOKENS = 100, 60

WATCH = """
create table if not exists tests_excess (organization uuid, used numeric, held numeric, room numeric);
create or replace function tests_note_excess() returns trigger language plpgsql security definer as $$
begin
    insert into tests_excess
    select new.organization, n.used, n.held, b.amount
      from billing_counter n join billing_budget b on b.subject = n.subject and b.period = n.period and b.hard
     where n.id = new.id and n.measure = 'money' and n.used + n.held > b.amount;
    return null;
end $$;
create constraint trigger tests_excess after insert or update on billing_counter
    deferrable initially deferred for each row execute function tests_note_excess();
"""
FORGET = "drop trigger tests_excess on billing_counter; drop function tests_note_excess; drop table tests_excess"


@pytest.fixture
def watched() -> Iterator[Callable[[Tenant], list[object]]]:
    """Tells of each commit that left a tenant's hard budget exceeded."""
    with database(owner_url()) as owner:
        owner.execute(WATCH)
        try:
            query = "select used, held, room from tests_excess where organization = %s"
            yield lambda tenant: owner.execute(query, [tenant.organization.pk]).fetchall()
        finally:
            owner.execute(FORGET)


@contextmanager
def paused(gateway: Gateway, way: Gate) -> Iterator[None]:
    """The process stands still."""
    gateway.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.process.send_signal(signal.SIGCONT)


@contextmanager
def cut_off(gateway: Gateway, way: Gate) -> Iterator[None]:
    """Nothing passes between the process and its database."""
    way.shut()
    try:
        yield
    finally:
        way.open()


def seems_dead(gateway: Gateway) -> None:
    """Returns once the others take the process for dead, and have looked at what it holds."""
    query = "select count(*) from billing_lease where pid = %s and id <> %s and heartbeat_at < clock_timestamp() - %s"
    with database(owner_url()) as owner:
        if PAUSE_SECONDS:
            time.sleep(PAUSE_SECONDS)  # that is what is tried
        else:
            old = "update billing_lease set heartbeat_at = now() - interval '1 minute' where pid = %s and id <> %s"
            owner.execute(old, [gateway.process.pid, EVERYBODY])
        assert owner.execute(query, [gateway.process.pid, EVERYBODY, DEAD_AFTER]).fetchall() == [(1,)]
        lived = "select 1 from billing_lease where id = %s and started_at < clock_timestamp() - interval '10 seconds'"
        until(lambda: owner.execute(lived, [EVERYBODY]).fetchall() != [], 60)
        owner.execute("select billing_resolve(%s, %s, 500)", [EVERYBODY, DEAD_AFTER])


@pytest.mark.parametrize("away", [paused, cut_off])
def test_nobody_is_given_the_money_of_streams_that_may_go_on(
    alice: Tenant,
    simulated: SimulatedProvider,
    tmp_path: Path,
    watched: Callable[[Tenant], list[object]],
    away: Callable[[Gateway, Gate], AbstractContextManager[None]],
) -> None:
    Budget.objects.create(organization=alice.organization, period="total", amount=BUDGET, hard=True)
    ApiKey.objects.filter(pk=alice.key.pk).update(min_output_cap=CAP)  # nobody's cap is lowered to what is left
    dear = make_tariff(input="0", output="100000")  # a dime a token
    provider = make_provider(simulated.base_url, idle_timeout=300)
    pace = f"pace={1000 * PAUSE_SECONDS * 1.5 / TOKENS:.0f}ms" if PAUSE_SECONDS else "hold=10"
    long = make_model(provider, f"long-{provider.slug}?tokens={TOKENS}&{pace}", dear).slug
    short = make_model(provider, f"short-{provider.slug}?tokens=5", dear).slug

    async def scenario(away_one: Gateway, other: Gateway, way: Gate) -> tuple[list[Answer], list[Answer]]:
        async with Clients() as clients:
            streams = [
                asyncio.create_task(clients.insist(away_one.url, alice.secret, long, stream=True, max_tokens=CAP))
                for _ in range(STREAMS)
            ]
            # One whose first part had not come would have waited for too long when the process looks again.
            await asyncio.to_thread(
                until, lambda: sum(b'"content"' in each.body for each in clients.journal) == STREAMS, 30
            )
            assert await asyncio.to_thread(held, alice) == STREAMS
            others: list[Answer] = []
            over = asyncio.Event()

            async def spend() -> None:
                while not over.is_set():
                    others.append(await clients.ask(other.url, alice.secret, short, max_tokens=CAP))
                    await asyncio.sleep(0.05)

            spending = asyncio.create_task(spend())
            with away(away_one, way):
                await asyncio.to_thread(seems_dead, away_one)
                assert await asyncio.to_thread(held, alice) == STREAMS
            simulated.release()
            answers = await asyncio.gather(*streams)
            await asyncio.to_thread(until, lambda: held(alice) <= 1, 30)
            over.set()
            await spending
            return answers, others

    with ExitStack() as stack:
        way = stack.enter_context(gate(app_url()))
        first = launch(tmp_path, EGRESS_ALLOW=simulated.url, DATABASE_APP_URL=way.url)
        stack.callback(first.stop)
        second = launch(tmp_path, EGRESS_ALLOW=simulated.url)
        stack.callback(second.stop)
        first.until_ready()
        second.until_ready()
        answers, others = run(scenario(first, second, way))
    assert [(answer.status, answer.body[-300:]) for answer in answers if not answer.final] == []
    refused = [answer for answer in others if answer.status == 402]
    print(f"{len(others)} others, {len(refused)} of them refused while the money was held")
    assert len(refused) >= 1
    assert watched(alice) == []
    found = Usage.objects.filter(organization=alice.organization.pk)
    assert [row.charge for row in found if row.model == long] == [Decimal(6)] * STREAMS
    counter = Counter.objects.get(organization=alice.organization.pk, measure="money")
    assert (counter.held, counter.used) == (Decimal(0), sum((row.charge or Decimal(0) for row in found), Decimal(0)))
    assert counter.used <= BUDGET
    assert books(alice.organization).problems() == []


def held(tenant: Tenant) -> int:
    """How many holds there are, asked from any thread."""
    with database(owner_url()) as owner:
        ((count,),) = owner.execute(
            "select count(*) from billing_hold where organization = %s and money > 5", [tenant.organization.pk]
        ).fetchall()
        return int(count)


class Standing:
    """An open call whose time is over when it says."""

    def __init__(self, caller: Caller, ends_by: float) -> None:
        self.id = new_hex()
        self.caller = caller
        self.ends_by = ends_by
        self.reason: GatewayError | None = None

    def cut(self, reason: GatewayError | None = None) -> None:
        """Notes why."""
        self.reason = reason


def test_a_call_is_cut_when_its_time_is_over(alice: Tenant) -> None:
    """Others may take what it holds for free from then on, whatever the clock of its own deadlines says."""
    with database(owner_url()) as owner:
        row = owner.execute(callers.QUERY + "where k.id = %s", [alice.key.pk]).fetchone()
    assert row is not None
    over, open = (Standing(callers.from_row(row), boot_time() + seconds) for seconds in (-0.01, 60))
    OpenCalls([over, open]).cut_overdue()
    assert over.reason is not None
    assert (over.reason.status, over.reason.code, open.reason) == (504, "upstream_timeout", None)
