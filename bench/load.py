"""Whole answers asked for as fast as they come (a closed loop), or at a rate of their own (an open one)."""

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from bench.footprint import Footprint
from bench.wire import Line, Question, connect

MOST_LINES = 256
LEAVE_SECONDS = 15.0  # what is still unanswered so long after the last question is given up
MOST_FAILED = 0.01  # of a stage; with more of them it measures something else

Probe = Callable[[], Footprint]


class Broken(Exception):
    """A stage whose answers are not what they have to be. It has no figures."""


@dataclass
class Tally:
    """Answers, and what was wrong with those that were not as they have to be."""

    good: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """How many were wrong."""
        return self.problems.total()

    @property
    def total(self) -> int:
        """How many there were."""
        return self.good + self.failed

    def add(self, problem: str | None) -> None:
        """Counts one answer."""
        if problem is None:
            self.good += 1
        else:
            self.problems[problem] += 1

    def verify(self) -> None:
        """Raises `Broken` for no answer at all, or for too many wrong ones."""
        if not self.good or self.failed > MOST_FAILED * self.total:
            raise Broken(f"{self.good} answers were right and {self.failed} wrong: {dict(self.problems)}")


@dataclass(frozen=True)
class Rush:
    """What a closed loop found: right answers in `seconds`, and the CPU they cost the process that was probed."""

    answers: int
    failed: int
    seconds: float
    cpu_seconds: float

    @property
    def requests_per_s(self) -> float:
        """Right answers a second."""
        return self.answers / self.seconds

    @property
    def cpu_us_per_request(self) -> float:
        """Microseconds of CPU a right answer; what the wrong ones took is in it."""
        return self.cpu_seconds / self.answers * 1e6


class _Loop:
    """A closed loop: each line asks again as soon as it is answered."""

    def __init__(self, question: Question, most: int) -> None:
        self.tally = Tally()
        self.full = asyncio.Event()  # set after `most` answers
        self._question = question
        self._most = most
        self._stopped = False
        self._open: set[Line] = set()
        self._opening: set[asyncio.Task[Line]] = set()

    def open_line(self) -> None:
        task = asyncio.get_running_loop().create_task(connect(self._question, self))
        self._opening.add(task)
        task.add_done_callback(self._opened)

    def _opened(self, task: "asyncio.Task[Line]") -> None:
        self._opening.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._count(f"no connection: {task.exception()}")

    def ready(self, line: Line) -> None:
        self._open.add(line)
        if not self._over:
            line.ask()

    def heard(self, line: Line, events: int) -> None:
        """Whole answers have no events."""

    def answered(self, line: Line, problem: str | None, reusable: bool) -> None:
        self._count(problem)
        if reusable and not self._over:
            line.ask()

    def lost(self, line: Line, busy: bool) -> None:
        self._open.discard(line)
        if busy and not self._over:
            self._count("connection lost")
        if not self._over:
            self.open_line()

    @property
    def _over(self) -> bool:
        return self._stopped or self.full.is_set()

    def _count(self, problem: str | None) -> None:
        self.tally.add(problem)
        if self.tally.total >= self._most:
            self.full.set()

    def stop(self) -> None:
        self._stopped = True
        for task in self._opening:
            task.cancel()
        for line in list(self._open):
            line.close()


async def closed_loop(
    question: Question,
    connections: int,
    seconds: float,
    probe: Probe,
    *,
    warm: float = 0.5,
    most: int = 1_000_000,
) -> Rush:
    """Keeps `connections` requests in flight for `warm` and then `seconds`, of which the latter count.

    Ends early at `most` answers. `probe` is asked at both ends of what counts. Raises `Broken`.
    """
    loop = _Loop(question, most)
    try:
        for _ in range(connections):
            loop.open_line()
        await _pass(warm, loop.full)
        begun, before, good, failed = time.perf_counter(), probe(), loop.tally.good, loop.tally.failed
        await _pass(seconds, loop.full)
        ended, after = time.perf_counter(), probe()
        answers = loop.tally.good - good
    finally:
        loop.stop()
    loop.tally.verify()
    if not answers:
        raise Broken(f"no answer within {seconds} s")
    return Rush(answers, loop.tally.failed - failed, ended - begun, after.cpu_seconds - before.cpu_seconds)


async def _pass(seconds: float, full: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await full.wait()


class _Arrivals:
    """An open loop: questions come when they are due, however long the answers take."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.latencies: list[float] = []
        self.counting = False
        self.quiet = asyncio.Event()  # set whenever nothing waits
        self.waiting: deque[float] = deque()  # due, and no line was idle
        self.open: set[Line] = set()
        self._idle: list[Line] = []
        self._since: dict[Line, tuple[float, bool]] = {}  # when it was due, and whether it counts

    @property
    def unanswered(self) -> int:
        """Questions that still wait for an answer, sent or not."""
        return len(self._since) + len(self.waiting)

    def due(self) -> None:
        """A question is due now."""
        now = time.perf_counter()
        self.quiet.clear()
        if self._idle:
            self._ask(self._idle.pop(), now)
        else:
            self.waiting.append(now)

    def _ask(self, line: Line, due: float) -> None:
        self._since[line] = due, self.counting
        line.ask()

    def ready(self, line: Line) -> None:
        self.open.add(line)
        self._next(line)

    def heard(self, line: Line, events: int) -> None:
        """Whole answers have no events."""

    def answered(self, line: Line, problem: str | None, reusable: bool) -> None:
        due, counts = self._since.pop(line)
        self.tally.add(problem)
        if counts and problem is None:
            self.latencies.append(time.perf_counter() - due)
        if reusable:
            self._next(line)
        self._look()

    def lost(self, line: Line, busy: bool) -> None:
        self.open.discard(line)
        if line in self._idle:
            self._idle.remove(line)
        if self._since.pop(line, None):
            self.tally.add("connection lost")
            self._look()

    def _look(self) -> None:
        if not self.unanswered:
            self.quiet.set()

    def _next(self, line: Line) -> None:
        if self.waiting:
            self._ask(line, self.waiting.popleft())
        else:
            self._idle.append(line)


async def open_loop(question: Question, rate: float, seconds: float, *, warm: float = 0.5) -> list[float]:
    """The latencies, in seconds, of questions that arrive at `rate` a second, at random, for `seconds`.

    Each counts from the moment it was due, so that a server which falls behind cannot hide it. The same seed gives the
    same arrivals each time. Raises `Broken`.
    """
    arrivals = _Arrivals()
    lines = min(MOST_LINES, max(32, int(rate / 10)))
    try:
        await asyncio.gather(*(connect(question, arrivals) for _ in range(lines)))
        chance = random.Random(1)
        start = time.perf_counter()
        due = start
        while (due := due + chance.expovariate(rate)) < start + warm + seconds:
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            arrivals.counting = due >= start + warm
            arrivals.due()
        if arrivals.unanswered:
            await _pass(LEAVE_SECONDS, arrivals.quiet)
        for _ in range(arrivals.unanswered):
            arrivals.tally.add("no answer")
    finally:
        for line in list(arrivals.open):
            line.close()
    arrivals.tally.verify()
    return arrivals.latencies


def percentile(values: list[float], share: float) -> float:
    """The smallest of `values` that at least `share` (0 to 1) of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
