"""In whose turn work is begun: organization by organization, whatever one of them has sent before the others."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from uuid import UUID, uuid4

from gateway.process.turns import A_ROUND, ROUND_SECONDS, Places, Rounds, Waiting
from tests.stage.backbone import run

ALICE, BOB, CHARLIE = uuid4(), uuid4(), uuid4()
NAMES = {ALICE: "a", BOB: "b", CHARLIE: "c"}


def told(called: list[str], organization: UUID, future: "asyncio.Future[None]") -> None:
    """Notes whose turn came."""
    called.append(NAMES[organization])


def test_who_waits_is_called_organization_by_organization() -> None:
    async def scenario() -> str:
        waiting = Waiting()
        called: list[str] = []
        for organization in (ALICE, ALICE, ALICE, BOB, CHARLIE, BOB):
            waiting.join(organization).add_done_callback(partial(told, called, organization))
        for _ in range(6):
            assert waiting.call()
        assert not waiting.call()
        await asyncio.sleep(0)
        return "".join(called)

    assert run(scenario()) == "abcaba"


def test_who_comes_between_stands_behind_those_that_wait() -> None:
    async def scenario() -> list[bool]:
        waiting = Waiting()
        first, second = waiting.join(ALICE), waiting.join(ALICE)
        waiting.call()
        third = waiting.join(BOB)
        waiting.call()
        return [future.done() for future in (first, second, third)]

    assert run(scenario()) == [True, True, False]


def test_who_has_left_is_passed_over() -> None:
    async def scenario() -> list[bool]:
        waiting = Waiting()
        gone, second, other = waiting.join(ALICE), waiting.join(ALICE), waiting.join(BOB)
        gone.cancel()
        assert waiting.call()
        found = [second.done(), other.done()]
        assert waiting.call() and not waiting.call()
        return [*found, second.done()]

    assert run(scenario()) == [False, True, True]


EACH = 4  # requests' beginnings fill a round


async def begun(asked: Iterable[UUID]) -> list[list[str]]:
    """Who is begun, round by round of the loop, where each takes its part of a round."""
    found: list[list[str]] = [[]]
    rounds = Rounds(lambda: sum(map(len, found)) * ROUND_SECONDS / EACH)

    async def one(organization: UUID) -> None:
        await rounds.turn(organization)
        found[-1].append(NAMES[organization])

    tasks = [asyncio.create_task(one(organization)) for organization in asked]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        found.append([])
    return [names for names in found if names]


def test_requests_begin_until_a_round_is_over_and_others_do_not_stand_behind_all_of_one() -> None:
    found = run(begun([ALICE] * 5 * A_ROUND + [BOB, CHARLIE]))
    assert found[0] == ["a"] * EACH
    assert sorted(found[1]) == ["a"] * (A_ROUND - 2) + ["b", "c"]
    assert all(len(names) <= A_ROUND for names in found)
    assert sum(map(len, found)) == 5 * A_ROUND + 2


def test_nobody_waits_while_there_is_little_to_do() -> None:
    async def scenario() -> None:
        now = 0.0
        rounds = Rounds(lambda: now)
        for _ in range(3):
            for _ in range(100):
                turn = rounds.turn(ALICE)
                with suppress(StopIteration):
                    turn.send(None)
                    raise AssertionError("it waits")
            await asyncio.sleep(0)  # the next round
            now += 1

    run(scenario())


def test_places_are_given_in_turn_and_come_back_from_who_leaves() -> None:
    async def scenario() -> str:
        places = Places(1)
        order: list[str] = []

        async def one(organization: UUID) -> None:
            async with places.place(organization):
                order.append(NAMES[organization])
                await asyncio.sleep(0)

        async with places.place(CHARLIE):
            tasks = [asyncio.create_task(one(who)) for who in (ALICE, ALICE, ALICE, BOB)]
            await asyncio.sleep(0)
            assert order == []
            tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        called = asyncio.create_task(one(ALICE))  # cancelled as its turn comes
        async with places.place(CHARLIE):
            await asyncio.sleep(0)
        called.cancel()
        await asyncio.gather(called, return_exceptions=True)
        await one(BOB)
        return "".join(order)

    assert run(scenario()) == "abab"
