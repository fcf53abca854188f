"""Whoever stops waiting for the database leaves no answer for another: X10. Each call's number must come back to it."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from billing.backbone.batches import GroupCommit
from billing.backbone.connections import Connections
from tests.contention.conftest import Figures
from tests.contention.scale import scaled
from tests.stage.backbone import app_url

pytestmark = pytest.mark.backbone

CALLERS = 64
SINGLE = scaled(1_000, 100_000)
BATCHED = scaled(5_000, 900_000)


async def cross_talk(calls: int, ask: Callable[[int], Awaitable[int]]) -> tuple[int, int, int]:
    """How many of so many calls were answered, were left by their callers, one in ten and at any moment, and were given
    what another had asked for.
    """
    chance = random.Random(13)
    numbers = iter(range(calls))
    answered = left = others = 0

    async def caller() -> None:
        nonlocal answered, left, others
        for number in numbers:
            asking = asyncio.ensure_future(ask(number))
            if chance.random() < 0.1:
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.random() * 0.004)
                for _ in range(chance.randrange(12)):
                    await asyncio.sleep(0)
                asking.cancel()
            await asyncio.wait({asking})
            if asking.cancelled():
                left += 1
            else:
                answered += 1
                others += asking.result() != number

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return answered, left, others


async def test_a_call_is_given_its_own_answer(figures: Figures) -> None:
    connections = Connections(app_url(), 4, patience=60)

    async def ask(number: int) -> int:
        ((found,),) = await connections.call("select %s::bigint", [number])
        return int(found)

    answered, left, others = await cross_talk(SINGLE, ask)
    await connections.close()
    assert answered + left == SINGLE and left > SINGLE / 50
    assert others == 0
    figures("X10", calls=SINGLE, given_another_s=others)


async def test_of_a_batch_each_is_given_its_own_answer(figures: Figures) -> None:
    connections = Connections(app_url(), 4)

    async def send(batch: list[int]) -> list[int]:
        rows = await connections.call("select n from unnest(%s::bigint[]) with ordinality u(n, o) order by o", [batch])
        return [int(number) for (number,) in rows]

    commits = GroupCommit[int, int](send)
    answered, left, others = await cross_talk(BATCHED, commits.put)
    await connections.close()
    assert answered + left == BATCHED and left > BATCHED / 50
    assert others == 0
    figures("X10", calls=BATCHED, given_another_s=others)
