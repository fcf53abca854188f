"""A moment by which the running task must have gone on, moved often and reached seldom.

`asyncio.timeout` costs some 3.5 us each time, which is too much for every event of every stream. Here moving the moment
is an assignment: the loop's one timer is set anew only when it fires early.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

Result = TypeVar("Result")
NEVER = float("inf")


def boot_time() -> float:
    """Seconds of a clock that goes on while the machine sleeps, as the others' does."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Deadline:
    """Bounds the awaits of one task. Made by the task it belongs to, and closed by it.

    `clock` is the loop's, whose times it takes.
    """

    __slots__ = ("_loop", "_passed", "_task", "_timer", "_when", "clock")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._loop = task.get_loop()
        self.clock = self._loop.time
        self._task = task
        self._when = NEVER
        self._passed = False
        self._timer: asyncio.TimerHandle | None = None

    async def wait(self, awaitable: Awaitable[Result], when: float) -> Result:
        """What `awaitable` gives, or TimeoutError once the loop's clock has reached `when`."""
        self._when = when
        if self._timer is None or self._timer.when() > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._fire)
        try:
            return await awaitable
        except asyncio.CancelledError:
            if not self._passed:
                raise
            self._passed = False
            # Somebody else may have cancelled the task in the same turn of the loop.
            if self._task.uncancel() > 0:
                raise
            raise TimeoutError from None
        finally:
            self._when = NEVER

    def close(self) -> None:
        """Takes the timer away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._when == NEVER:
            return  # nothing is awaited just now; the next wait sets the timer
        if self.clock() >= self._when:
            self._passed = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(self._when, self._fire)
