"""A process has so many connections for each purpose and never more; who waits for one is served in turn."""

import asyncio
from typing import Any

import pytest

from billing.backbone.connections import Asker, Busy, Connections, DatabaseAway, Turns
from tests.stage.backbone import app_url, database, owner_url
from tests.stage.product import until

pytestmark = pytest.mark.backbone


def asker(tenant: str, key: str = "") -> Asker:
    """One key of a tenant, by default its only one."""
    return Asker(tenant, key or tenant)


async def waiting(turns: Turns, *askers: Asker) -> list["asyncio.Task[None]"]:
    """Tasks that wait for a place, in this order."""
    tasks = []
    for each in askers:
        tasks.append(asyncio.create_task(turns.take(each)))
        await asyncio.sleep(0)
    return tasks


async def test_a_tenant_that_came_later_does_not_wait_for_all_of_one_that_came_first() -> None:
    turns = Turns(1, 1, 100, 60)
    await turns.take(asker("alice"))
    many = await waiting(turns, *[asker("alice")] * 50)
    (charlie,) = await waiting(turns, asker("charlie"))
    turns.give(asker("alice"))
    await asyncio.sleep(0)
    assert not charlie.done()
    turns.give(asker("alice"))  # that of Alice's first in the queue, whose turn came before
    await charlie
    assert sum(task.done() for task in many) == 1
    for task in many:
        task.cancel()


async def test_a_tenant_leaves_places_to_the_others() -> None:
    turns = Turns(4, 2, 100, 60)
    many = await waiting(turns, *[asker("alice")] * 10)
    assert (turns.free, turns.waiting) == (2, 8)
    await turns.take(asker("charlie"))
    await turns.take(asker("charlie"))
    assert turns.free == 0
    for task in many:
        task.cancel()


async def test_what_is_past_a_bound_is_refused_at_once_and_what_waits_too_long_then() -> None:
    turns = Turns(1, 1, 3, 0.01)
    await turns.take(asker("alice"))
    many = await asyncio.gather(*(turns.take(asker("alice")) for _ in range(10)), return_exceptions=True)
    assert [type(found) for found in many] == [Busy] * 10
    assert (turns.refused, turns.waiting, turns.free) == (10, 0, 0)
    of_all_keys = Turns(1, 1, 3, 60)
    await of_all_keys.take(asker("alice"))
    tasks = await waiting(of_all_keys, *(asker("alice", f"key {number}") for number in range(12)))
    with pytest.raises(Busy):
        await of_all_keys.take(asker("alice", "another key"))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert of_all_keys.waiting == 0


async def test_patience_that_ends_as_the_turn_comes_loses_no_place() -> None:
    turns = Turns(1, 1, 100, 60)
    await turns.take(asker("alice"))
    first, second = await waiting(turns, asker("alice"), asker("alice"))
    first.cancel()
    turns.give(asker("alice"))  # before the first has come to know
    await second
    await asyncio.wait({first})
    assert (turns.free, turns.waiting) == (0, 0)
    turns.give(asker("alice"))
    assert turns.free == 1


async def test_who_leaves_while_waiting_takes_no_place_with_them() -> None:
    turns = Turns(1, 1, 100, 60)
    await turns.take(asker("alice"))
    first, second = await waiting(turns, asker("alice"), asker("bob"))
    first.cancel()
    turns.give(asker("alice"))
    await second
    turns.give(asker("bob"))
    assert (turns.free, turns.waiting) == (1, 0)
    await turns.take(asker("alice"))
    (late,) = await waiting(turns, asker("bob"))
    turns.give(asker("alice"))
    late.cancel()  # at the very moment at which it gets it
    await asyncio.wait({late})
    assert turns.free == 1


def sessions(name: str) -> list[tuple[Any, ...]]:
    """The sessions of an application name, asked from any thread."""
    with database(owner_url()) as owner:
        return owner.execute("select pid, state from pg_stat_activity where application_name = %s", [name]).fetchall()


def named(name: str) -> str:
    """The app's URL under an application name."""
    url = app_url()
    return f"{url}{'&' if '?' in url else '?'}application_name={name}"


async def test_however_many_ask_there_are_no_more_connections_and_idle_ones_are_given_back() -> None:
    connections = Connections(named("bounded"), 3)
    asked = [asyncio.create_task(connections.call("select 1 from pg_sleep(0.02)", [])) for _ in range(50)]
    await asyncio.to_thread(until, lambda: len(sessions("bounded")) == 3)
    assert await asyncio.gather(*asked) == [[(1,)]] * 50
    assert len(await asyncio.to_thread(sessions, "bounded")) == 3
    await connections.give_back(60)
    assert connections.idle == 3
    await connections.give_back(0)
    await asyncio.to_thread(until, lambda: sessions("bounded") == [])
    await connections.close()


async def test_callers_that_leave_open_no_connection_beyond_the_bound() -> None:
    """The server goes on with what they asked for."""
    connections = Connections(named("left"), 2)
    for _ in range(10):
        asked = asyncio.create_task(connections.call("select 1 from pg_sleep(0.3)", []))
        await asyncio.to_thread(until, lambda: connections.turns.free < 2)
        asked.cancel()
        await asyncio.wait({asked})
        assert len(await asyncio.to_thread(sessions, "left")) <= 2
    assert await connections.call("select 2", []) == [(2,)]
    await connections.close()
    assert connections.turns.free == 2


async def test_waiting_for_a_connection_has_an_end() -> None:
    connections = Connections(named("busy"), 1, patience=0.05)
    slow = asyncio.create_task(connections.call("select 1 from pg_sleep(1)", []))
    await asyncio.to_thread(until, lambda: connections.turns.free == 0)
    with pytest.raises(Busy):
        await connections.call("select 2", [])
    assert await slow == [(1,)]
    await connections.close()


async def test_a_place_comes_back_from_a_database_that_is_away() -> None:
    connections = Connections("postgresql://nobody@127.0.0.1:9/nothing", 2)
    for _ in range(5):
        with pytest.raises(DatabaseAway):
            await connections.call("select 1", [])
    assert connections.turns.free == 2
