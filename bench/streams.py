"""Many streams open at once, each of which is read to its [DONE]."""

import asyncio
import time
from dataclasses import dataclass
from typing import NamedTuple

from bench.footprint import Footprint
from bench.load import Broken, Probe, Tally
from bench.wire import Line, Question, connect

LOOK_SECONDS = 0.25


class Look(NamedTuple):
    """One look at a crowd: when, streams that had begun and were not over, events so far, and the probed process."""

    at: float  # time.perf_counter()
    open: int
    events: int
    footprint: Footprint


@dataclass(frozen=True)
class Crowd:
    """What a crowd of streams found between two looks, and the look at which most of them were open.

    `together`: the two looks enclose the time in which all were open. Where there was none, because streams ended
    before the last had begun, they enclose everything, and events pay for the begin and end of their streams, too.
    """

    begin: Look
    end: Look
    fullest: Look
    together: bool
    failed: int

    @property
    def events_per_s(self) -> float:
        """Events a second."""
        return (self.end.events - self.begin.events) / (self.end.at - self.begin.at)

    @property
    def cpu_us_per_event(self) -> float:
        """Microseconds of CPU an event."""
        spent = self.end.footprint.cpu_seconds - self.begin.footprint.cpu_seconds
        return spent / (self.end.events - self.begin.events) * 1e6


class _Streams:
    def __init__(self, count: int, probe: Probe) -> None:
        self.tally = Tally()
        self.over = asyncio.Event()
        self.open: set[Line] = set()
        self.looks: list[Look] = []
        self.together: list[Look] = []  # when all were open, and when the first ended after that
        self._count = count
        self._probe = probe
        self._events = 0
        self._speaking: set[Line] = set()

    def look(self) -> Look:
        """Looks, and remembers."""
        look = Look(time.perf_counter(), len(self._speaking), self._events, self._probe())
        self.looks.append(look)
        return look

    async def look_around(self) -> None:
        """Looks again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def ready(self, line: Line) -> None:
        self.open.add(line)
        line.ask()

    def heard(self, line: Line, events: int) -> None:
        self._events += events
        if line.events == events:  # its first ones
            self._speaking.add(line)
            if len(self._speaking) == self._count:
                self.together.append(self.look())

    def answered(self, line: Line, problem: str | None, reusable: bool) -> None:
        self._end(line, problem)
        line.close()

    def lost(self, line: Line, busy: bool) -> None:
        self.open.discard(line)
        if busy:
            self._end(line, "connection lost")

    def _end(self, line: Line, problem: str | None) -> None:
        if len(self.together) == 1:
            self.together.append(self.look())
        self._speaking.discard(line)
        self.tally.add(problem)
        if self.tally.total == self._count:
            self.over.set()


async def crowd(question: Question, count: int, spread: float, probe: Probe, *, limit: float = 90.0) -> Crowd:
    """Opens `count` streams, evenly over `spread` seconds, and reads each to its end, for `limit` seconds at most.

    The spread keeps their events from coming all at once, as they would not in life. Raises `Broken` when streams
    are not whole.
    """
    streams = _Streams(count, probe)
    streams.look()
    looking = asyncio.get_running_loop().create_task(streams.look_around())
    try:
        async with asyncio.timeout(limit):
            for _ in range(count):
                await connect(question, streams)
                await asyncio.sleep(spread / count)
            await streams.over.wait()
    except TimeoutError as error:
        raise Broken(f"{count} streams were not over within {limit:.0f} s") from error
    finally:
        looking.cancel()
        for line in list(streams.open):
            line.close()
    streams.tally.verify()
    streams.look()
    fullest = max(streams.looks, key=lambda look: (look.open, look.footprint.resident_kib))
    together = len(streams.together) == 2 and streams.together[1].events > streams.together[0].events
    begin, end = streams.together if together else (streams.looks[0], streams.looks[-1])
    return Crowd(begin, end, fullest, together, streams.tally.failed)
