"""Changes of the configuration while many ask, and when each was there."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.db import connections

from tests.stage.backbone import database, operating, owner_url
from tests.stage.load import Answer, Clients, keep_asking
from tests.stage.product import Gateway


class Change(NamedTuple):
    """A change: on the client's monotonic clock before and after its commit, and on the database's before and after."""

    began: float
    committed: float
    since: datetime
    at: datetime


def change(statement: str, *values: Any) -> Change:
    """Commits a change as the console does."""
    with operating() as console:
        return _timed(console, lambda: console.execute(statement.encode(), values))


def change_by(work: Callable[[], object]) -> Change:
    """Commits what `work` does with the ORM."""
    with database(owner_url()) as owner:
        return _timed(owner, work)


def _timed(asked: Any, work: Callable[[], object]) -> Change:
    def clock() -> datetime:
        ((now,),) = asked.execute("select clock_timestamp()").fetchall()
        assert isinstance(now, datetime)
        return now

    since = clock()
    began = time.monotonic()
    work()
    committed = time.monotonic()
    return Change(began, committed, since, clock())


async def ask_while_changing(
    fleet: Sequence[Gateway],
    requests: int,
    changes: int,
    ask: Callable[[Clients, str, int], Awaitable[Answer]],
    make: Callable[[int], Change],
    *,
    clients: int = 16,
    apart: float = 0.0,
) -> tuple[list[Answer], list[Change]]:
    """What at least so many requests were answered, by clients who ask the gateways in turn, and the changes in their
    midst: `make(n)`, from 0, spread over the requests, at least `apart` seconds from each other and from the end.

    `ask` is given the address of a gateway and the request's number.
    """
    made: list[Change] = []
    answered = 0
    due = [asyncio.Event() for _ in range(changes)]

    async def change_all() -> None:
        for number in range(changes):
            await due[number].wait()
            made.append(await asyncio.to_thread(alone, number))
            await asyncio.sleep(apart)

    def alone(number: int) -> Change:
        try:
            return make(number)
        finally:
            connections.close_all()  # this thread's

    async with Clients() as asking:

        async def one(number: int) -> Answer:
            nonlocal answered
            answer = await ask(asking, fleet[number % len(fleet)].url, number)
            answered += 1
            for event in due[: answered * (changes + 1) // requests]:
                event.set()
            return answer

        changing = asyncio.create_task(change_all())
        await keep_asking(clients, lambda: answered >= requests and changing.done(), one)
        await changing
        return asking.journal, made
