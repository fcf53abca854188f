"""What one gateway process finds out of an offer, all of them know: through the database and its changes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from billing.backbone.connections import Connections, DatabaseAway
from gateway.process.ejections import Ejections
from gateway.process.snapshot import Snapshots
from routing import catalog
from routing.health import ejections
from routing.health.breaker import LONGEST_REST, PROBE_SECONDS, Subject
from routing.health.faults import Fault
from routing.health.health import State
from routing.models import Ejection, Offer
from routing.statistics.rollups import prune
from tests.routing.offers import make_offer
from tests.stage import shelf
from tests.stage.backbone import app_url, database, operating, owner_url, run
from tests.stage.product import free_port

pytestmark = pytest.mark.backbone

BESIDE = make_offer(id=1 << 40)


class Mate:
    """As much of a gateway process as knows of ejections."""

    def __init__(self, url: str | None = None) -> None:
        self.connections = Connections(url or app_url())
        self.ejections = Ejections(self.connections)
        self.health = self.ejections.health
        self.snapshots = Snapshots(app_url(), self.connections, lambda gone: None, self.ejections.hear)

    def offer(self, model: str) -> catalog.Offer:
        """The one offer of a model."""
        (offer,) = self.snapshots.current.catalog.by_name[model].offers
        return offer

    def state(self, model: str, now: float | None = None) -> State:
        """How that offer stands, beside one that is well."""
        found = self.health.standings([self.offer(model), BESIDE], 0, time.monotonic() if now is None else now)
        return found[0].state

    def fail(self, model: str, fault: Fault = Fault.UNREACHABLE, retry_after: float | None = None) -> None:
        """A dial of it fails."""
        offer, now = self.offer(model), time.monotonic()
        self.health.begin(offer, offer.credentials[0], now).failed(fault, now, retry_after)


@asynccontextmanager
async def mates(count: int, url: str | None = None) -> AsyncIterator[list[Mate]]:
    """Processes that follow the changes, each with a snapshot."""
    made = [Mate(url) for _ in range(count)]
    tasks = [asyncio.create_task(keeper) for mate in made for keeper in (mate.snapshots.keep(), mate.ejections.keep())]
    try:
        await soon(lambda: all(mate.snapshots.current.version for mate in made))
        yield made
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for mate in made:
            await mate.connections.close()


async def soon(condition: Any, seconds: float = 10) -> None:
    """Polls until `condition()` holds. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(0.01)


def make_model(**provider: Any) -> str:
    """A model with one offer, whose provider rests for ten minutes at its first failure."""
    settings = {"failure_threshold": 1, "cooldown": 200.0, **provider}
    return shelf.make_model(shelf.make_provider("http://127.0.0.1:9", "secret", **settings)).slug


def rows(model: str) -> list[dict[str, Any]]:
    """The ejections of a model's offer, the oldest first, as the app's role reads them."""
    query = (
        "select e.cause, e.count, e.closed_by, e.closed_at is not null, extract(epoch from e.until - e.opened_at)"
        "  from routing_ejection e join routing_offer o on o.id = e.offer_id join routing_model m on m.id = o.model_id"
        " where m.slug = %s order by e.opened_at"
    )
    names = ("cause", "count", "closed_by", "closed", "seconds")
    with database(app_url()) as connection:
        return [dict(zip(names, row, strict=True)) for row in connection.execute(query, [model]).fetchall()]


def seconds_left(subject: Subject) -> float | None:
    """How long a subject still rests, as the database has it. None: it does not."""
    query = (
        "select extract(epoch from until - clock_timestamp())::float8 from routing_ejection"
        " where offer_id is not distinct from %s and credential_id is not distinct from %s and closed_at is null"
    )
    with database(app_url()) as connection:
        found = connection.execute(query, list(subject)).fetchone()
    return None if found is None else float(found[0])


async def over(model: str, mates: list[Mate]) -> None:
    """Lets the open rest of a model's offer be over for all, as if the time had passed."""
    query = (
        "update routing_ejection e set until = clock_timestamp() - interval '1 second' from routing_offer o"
        " join routing_model m on m.id = o.model_id where o.id = e.offer_id and m.slug = %s and e.closed_at is null"
    )
    await soon(lambda: not any(rest.unheard for mate in mates for rest in mate.health.rests.open.values()))
    with database(app_url()) as connection:
        connection.execute(query, [model])
    await soon(lambda: all(mate.state(model) is State.PROBE for mate in mates))


def test_an_ejection_is_heard_by_all_and_so_is_the_recovery() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(2) as (here, there):
            assert there.state(model) is State.USABLE
            here.fail(model)
            assert here.state(model) is State.RESTING
            await soon(lambda: there.state(model) is State.RESTING)
            offer, now = there.offer(model), time.monotonic() + 200
            assert there.state(model, now) is State.PROBE
            there.health.begin(offer, offer.credentials[0], now, probe=True).first_byte(now)
            await soon(lambda: here.state(model) is State.USABLE)

    run(scenario())
    (row,) = rows(model)
    assert (row["cause"], row["count"], row["closed"], row["closed_by"]) == ("unreachable", 1, True, "process")
    assert 195 < row["seconds"] <= 200.1


def test_two_that_find_out_at_once_write_one_row() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(2) as both:
            for mate in both:
                mate.fail(model)
            await soon(lambda: len(rows(model)) == 1 and not any(mate.ejections.waiting for mate in both))

    run(scenario())
    assert [(row["count"], row["closed"]) for row in rows(model)] == [(1, False)]


def test_a_process_started_later_knows_what_rests() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(1) as (here,):
            here.fail(model)
            await soon(lambda: rows(model))
        async with mates(1) as (later,):
            assert later.state(model) is State.RESTING

    run(scenario())


def test_a_later_and_shorter_word_leaves_the_later_end_everywhere() -> None:
    """Two dials under way in two processes are told to come back, after 50 seconds and then after five."""
    model = make_model()

    async def scenario() -> None:
        async with mates(2) as both:
            offer = both[0].offer(model)
            credential, now = offer.credentials[0], time.monotonic()
            first, second = (mate.health.begin(mate.offer(model), credential, now) for mate in both)
            third = both[0].health.begin(offer, credential, now)
            others = set(both[0].health.rests.open)
            first.failed(Fault.RATE_LIMITED, now, 50)
            (subject,) = set(both[0].health.rests.open) - others
            await soon(lambda: seconds_left(subject) is not None)
            second.failed(Fault.RATE_LIMITED, time.monotonic(), 5)
            third.failed(Fault.RATE_LIMITED, time.monotonic(), 5)
            await soon(lambda: not any(rest.unheard for mate in both for rest in mate.health.rests.open.values()))
            await soon(lambda: not any(mate.ejections.waiting for mate in both))
            assert (seconds_left(subject) or 0) > 20
            await soon(lambda: both[1].health.rests.open[subject].until > now + 40)
            assert both[0].health.rests.open[subject].until > now + 40
            async with mates(1) as (later,):
                assert later.health.rests.open[subject].until > now + 40

    run(scenario())


def test_a_rest_is_over_in_its_own_time_when_the_clock_was_set_back() -> None:
    """To the table it is as if rest and probe were to end in an hour and more, which none does."""
    model = make_model()
    set_back = (
        "update routing_ejection set opened_at = opened_at + interval '1 hour', until = until + interval '1 hour',"
        " probed_until = clock_timestamp() + interval '1 hour' where offer_id = %s"
    )

    async def scenario() -> None:
        async with mates(2) as (here, there):
            here.fail(model)
            await soon(lambda: there.state(model) is State.RESTING and bool(rows(model)))
            offer = here.offer(model)
            (subject,) = (one for one in here.health.rests.open if one.offer == offer.id)
            with database(app_url()) as app:
                app.execute(set_back, [offer.id])
                # Who hears of it now rests for as long as any rest is, and no longer.
                now = time.monotonic()
                await soon(lambda: all(mate.health.rests.open[subject].until > now + 250 for mate in (here, there)))
                for mate in (here, there):
                    assert mate.health.rests.open[subject].until < now + LONGEST_REST + 10
                    assert mate.health.rests.open[subject].probed_until < now + PROBE_SECONDS + 10
                # Whose own clock says that it is over has the probe, and no other.
                assert await here.ejections.agree([subject])
                assert not await there.ejections.agree([subject])
                # And a further failure is believed.
                app.execute(ejections.OPEN, [uuid4(), *subject, None, "timeout", 50.0, 2])
            assert 40 < (seconds_left(subject) or 0) <= 50

    run(scenario())


def test_one_process_has_the_probe_and_the_other_hears_of_its_failure() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(2) as both:
            both[0].fail(model)
            await soon(lambda: both[1].state(model) is State.RESTING)
            await over(model, both)
            answers = await asyncio.gather(
                *(mate.ejections.claim(mate.offer(model), mate.offer(model).credentials[0]) for mate in both * 3)
            )
            assert sorted(map(bool, answers)) == [False] * 5 + [True]
            assert answers.count(None) == 5
            winner = both[next(number for number, answer in enumerate(answers) if answer) % 2]
            loser = both[both[0] is winner]
            claimed = next(filter(None, answers))
            offer, now = winner.offer(model), time.monotonic()
            trial = winner.health.begin(offer, offer.credentials[0], now, claimed=claimed)
            trial.failed(Fault.TIMEOUT, now)
            subject = claimed[0]
            await soon(lambda: loser.health.rests.open[subject].count == 2)
            assert loser.health.rests.open[subject].until > now + 250

    run(scenario())
    assert [(row["cause"], row["count"], row["closed"]) for row in rows(model)] == [("timeout", 2, False)]


def test_a_probe_whose_client_left_is_free_for_the_other_process() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(2) as (here, there):
            here.fail(model)
            await soon(lambda: there.state(model) is State.RESTING)
            await over(model, [here, there])
            offer = here.offer(model)
            claimed = await here.ejections.claim(offer, offer.credentials[0])
            assert claimed
            await soon(lambda: there.state(model) is State.RESTING)
            here.health.begin(offer, offer.credentials[0], time.monotonic(), claimed=claimed).left(time.monotonic())
            await soon(lambda: there.state(model) is State.PROBE)
            assert await there.ejections.claim(offer, offer.credentials[0]) == claimed

    run(scenario())


def test_an_operator_ends_a_rest_for_all() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(1) as (here,):
            here.fail(model)
            await soon(lambda: rows(model))
            with operating() as console:
                console.execute(
                    "update routing_ejection e set closed_at = now(), closed_by = 'operator' from routing_offer o"
                    " join routing_model m on m.id = o.model_id where o.id = e.offer_id and m.slug = %s",
                    [model],
                )
            await soon(lambda: here.state(model) is State.USABLE)

    run(scenario())


def test_without_a_database_a_process_goes_by_what_it_knows() -> None:
    model = make_model()

    async def scenario() -> None:
        async with mates(1, f"postgres://nobody:pw@127.0.0.1:{free_port()}/away") as (here,):
            here.fail(model)
            assert here.state(model) is State.RESTING
            for rest in here.health.rests.open.values():
                rest.until = time.monotonic() - 1
            offer = here.offer(model)
            claimed = await here.ejections.claim(offer, offer.credentials[0])
            assert claimed
            now = time.monotonic()
            here.health.begin(offer, offer.credentials[0], now, claimed=claimed).succeeded(now, 1)
            assert here.state(model) is State.USABLE

    run(scenario())
    assert rows(model) == []


def test_a_credential_at_rest_is_known_by_its_id_alone() -> None:
    model = make_model()

    async def scenario() -> UUID:
        async with mates(2) as (here, there):
            here.fail(model, Fault.AUTH)
            await soon(lambda: there.state(model) is State.COOLING)
            return here.offer(model).credentials[0].id

    credential = run(scenario())
    (row,) = Ejection.objects.filter(credential=credential)
    assert (row.offer_id, row.cause, row.count, row.closed_at) == (None, "auth", 1, None)


def test_what_rested_long_ago_is_forgotten() -> None:
    now = datetime.now(UTC)
    offers = [Offer.objects.get(model__slug=make_model()) for _ in range(4)]
    for offer, until, closed in zip(offers, (30, 40, 40, 1), (30, 40, None, None), strict=True):
        Ejection.objects.create(
            offer=offer,
            cause="timeout",
            opened_at=now - timedelta(days=50),
            until=now - timedelta(days=until),
            count=1,
            closed_at=None if closed is None else now - timedelta(days=closed),
        )
    prune()
    assert set(Ejection.objects.filter(offer__in=offers).values_list("offer", flat=True)) == {
        offers[0].pk,
        offers[3].pk,
    }


def test_a_probe_does_not_wait_for_a_database_that_does_not_answer() -> None:
    """Somebody holds the row; the process goes by what it knows itself, as it does without a database."""
    model = make_model()

    async def scenario() -> None:
        async with mates(1) as (here,):
            here.fail(model)
            await soon(lambda: here.state(model) is State.RESTING and bool(rows(model)))
            await over(model, [here])
            offer = here.offer(model)
            with database(app_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("select 1 from routing_ejection where offer_id = %s for update", [offer.id])
                async with asyncio.timeout(1):  # a statement may take 2 s
                    assert await here.ejections.claim(offer, offer.credentials[0])
                blocker.execute("rollback")

    run(scenario())


def test_an_unknown_key_does_not_wait_longer_than_a_second() -> None:
    async def scenario() -> None:
        async with mates(1) as (here,):
            with database(owner_url()) as blocker:
                blocker.execute("begin")
                blocker.execute("lock table accounts_apikey in access exclusive mode")
                async with asyncio.timeout(1.9):  # a statement may take 2 s
                    with pytest.raises(DatabaseAway):
                        await here.snapshots.find([b"x" * 32])
                blocker.execute("rollback")
            assert await here.snapshots.find([b"x" * 32]) is None

    run(scenario())
