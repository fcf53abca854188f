"""Many requests under way at once, at the gateways of a fleet in turn."""

import asyncio
from collections import Counter as Tally
from collections.abc import Sequence
from typing import Any

from tests.simulated.process import SimulatedProvider
from tests.stage.load import Answer, Clients
from tests.stage.product import Gateway, until


class Crowd:
    """Requests that are answered, or wait at the simulated provider (`hold`) until it is told to go on.

    Who is told to come back shortly, as a busy machine tells, does so.
    """

    def __init__(self, clients: Clients, fleet: Sequence[Gateway], simulated: SimulatedProvider) -> None:
        self.asked: list[asyncio.Task[Answer]] = []
        self._clients, self._fleet, self._simulated = clients, fleet, simulated

    def ask(self, count: int, secret: str, model: str, **body: Any) -> None:
        """So many more, at once."""
        for _ in range(count):
            gateway = self._fleet[len(self.asked) % len(self._fleet)]
            self.asked.append(asyncio.create_task(self._clients.insist(gateway.url, secret, model=model, **body)))

    async def waiting(self) -> int:
        """How many wait at the provider, once everybody else is answered."""

        def is_still() -> bool:
            return bool(self._simulated.state()["waiting"] + sum(task.done() for task in self.asked) == len(self.asked))

        await asyncio.to_thread(until, is_still, 90)
        return int(self._simulated.state()["waiting"])

    async def fill(self, room: int, secret: str, model: str, **body: Any) -> None:
        """Returns once `room` wait. One that was told to come back may have stood in others' way for a moment: only
        then, and for no more than there were of these, are further ones asked for.
        """
        missing = room - await self.waiting()
        if missing:
            told_to_come_back = sum(answer.status == 503 for answer in self._clients.journal)
            assert 0 < missing <= told_to_come_back, f"{missing} of {room} are missing: {self.tally()}"
            self.ask(missing, secret, model, **body)
            missing = room - await self.waiting()
        assert not missing, self.tally()

    def tally(self) -> Any:
        """How those that are answered were answered."""
        return Tally((answer.status, answer.body[:300]) for answer in self.answered())

    def answered(self) -> list[Answer]:
        """The answers that are there."""
        return [task.result() for task in self.asked if task.done()]

    async def release(self, count: int | None = None) -> None:
        """Lets so many that wait go on, by default all; returns when they are answered."""
        still = [task for task in self.asked if not task.done()]
        self._simulated.release(count)
        if count is None:
            await asyncio.gather(*still)
        else:
            await asyncio.wait(still, return_when=asyncio.FIRST_COMPLETED, timeout=30)
