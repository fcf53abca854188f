"""The stages each contender goes through, and the figures that come of them."""

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, TypeVar

import uvloop

from bench.cores import busy_seconds
from bench.footprint import Footprint, footprint
from bench.load import Broken, Rush, closed_loop, open_loop, percentile
from bench.scale import HALF_LOAD, REFERENCE, Scale
from bench.site import Running, Site, say
from bench.streams import Crowd, crowd
from bench.wire import Question

INSTANT = "sim?instant"
SHORT = "sim?tokens=16"
SPREAD_SECONDS = 1.0  # over which streams begin
WARM_UP = 300  # answers of each kind, before memory is looked at

Result = TypeVar("Result")


@dataclass
class Figures:
    """What was found about one contender; None: not measured, `skipped` or `problems` say why.

    CPU is the contender's own processes', user and system. Latency is added to that of the simulated provider asked
    directly, at the same rate: HALF_LOAD, or half of `requests_per_s` where that is less; `at_own_half`: at that half.
    """

    requests_per_s: float | None = None  # REFERENCE in flight
    cpu_us_per_request: float | None = None  # the same
    cpu_us_per_event: float | None = None
    added_p50_ms: float | None = None
    added_p99_ms: float | None = None
    added_p50_ms_at_own_half: float | None = None
    added_p99_ms_at_own_half: float | None = None
    rss_kib_per_stream: float | None = None
    core_busy: float | None = None  # 0 to 1, REFERENCE in flight: below 0.9 something else was the limit
    database_cpu_us_per_request: float | None = None  # spent on the other cores
    cpu_us_by_connections: dict[int, float] = field(default_factory=dict)
    requests_per_s_by_connections: dict[int, float] = field(default_factory=dict)
    events_per_s: float | None = None
    streams_together: bool | None = None  # False: an event pays for its stream's begin and end, too
    p50_ms: float | None = None
    p99_ms: float | None = None
    failed: int = 0
    others_on_core: float | None = None  # share of the contender's core that strangers took
    on: str = ""
    version: str = ""
    skipped: str | None = None
    problems: list[str] = field(default_factory=list)


def timed(scale: Scale) -> str:
    """The simulated model whose streams are timed: an event each 20 ms."""
    return f"sim?tokens={scale.stream_tokens}&pace=20ms"


def held(scale: Scale) -> str:
    """The simulated model whose streams are held open while memory is looked at."""
    return f"sim?tokens={scale.held_tokens}&pace=250ms"


def models(scale: Scale) -> tuple[str, ...]:
    """All that a contender is asked for."""
    return INSTANT, SHORT, timed(scale), held(scale)


class Course:
    """One contender's way through the stages."""

    def __init__(self, name: str, running: Running, direct: Running, site: Site, scale: Scale) -> None:
        self.figures = Figures(on=running.on, version=running.version)
        self._name, self._running, self._direct = name, running, direct
        self._site, self._scale = site, scale

    def run(self) -> Figures:
        """All stages. A stage that breaks leaves its figures empty and a line in `problems`."""
        core = self._site.cores.contender
        begun, busy, own = time.monotonic(), busy_seconds(core), self._probe().cpu_seconds
        self._stage("warming up", self._warm_up)
        self._stage(f"{self._scale.held} open streams", self._memory)
        self._stage(f"{self._scale.streams} streams at 20 ms", self._streaming)
        for connections in self._scale.connections:
            self._stage(f"{connections} in flight", partial(self._rush, connections))
        self._stage("half load", self._half_load)
        strangers = busy_seconds(core) - busy - (self._probe().cpu_seconds - own)
        self.figures.others_on_core = max(0.0, strangers / (time.monotonic() - begun))
        return self.figures

    def _stage(self, what: str, stage: Callable[[], None]) -> None:
        say(f"  {self._name}: {what}")
        try:
            stage()
        except Broken as broken:
            self.figures.problems.append(f"{what}: {broken}")
            say(f"  {self._name}: {what}: {broken}")

    def _probe(self) -> Footprint:
        return footprint(self._running.pid)

    def _question(self, model: str, *, streamed: bool = False) -> Question:
        try:
            return self._running.question(model, streamed=streamed)
        except RuntimeError as error:
            raise Broken(str(error)) from error

    def _closed(self, question: Question, connections: int, seconds: float, **bounds: Any) -> Rush:
        rush = _run(closed_loop(question, connections, seconds, self._probe, **bounds))
        self.figures.failed += rush.failed
        return rush

    def _crowd(self, model: str, count: int) -> Crowd:
        found = _run(crowd(self._question(model, streamed=True), count, SPREAD_SECONDS, self._probe))
        self.figures.failed += found.failed
        return found

    def _warm_up(self) -> None:
        for question in (self._question(INSTANT), self._question(SHORT, streamed=True)):
            self._closed(question, 8, 5.0, warm=0, most=WARM_UP)

    def _memory(self) -> None:
        before = self._probe().resident_kib
        found = self._crowd(held(self._scale), self._scale.held)
        fullest = found.fullest
        self.figures.rss_kib_per_stream = max(0, fullest.footprint.resident_kib - before) / fullest.open

    def _streaming(self) -> None:
        found = self._crowd(timed(self._scale), self._scale.streams)
        self.figures.cpu_us_per_event = found.cpu_us_per_event
        self.figures.events_per_s = found.events_per_s
        self.figures.streams_together = found.together

    def _rush(self, connections: int) -> None:
        database = self._running.database
        taken: list[float] = []

        def probe() -> Footprint:
            if database is not None:
                taken.append(footprint(database).cpu_seconds)
            return self._probe()

        question, scale = self._question(INSTANT), self._scale
        found = _run(closed_loop(question, connections, scale.seconds, probe, warm=scale.warm_seconds))
        figures = self.figures
        figures.failed += found.failed
        figures.cpu_us_by_connections[connections] = found.cpu_us_per_request
        figures.requests_per_s_by_connections[connections] = found.requests_per_s
        if connections == REFERENCE:
            figures.requests_per_s = found.requests_per_s
            figures.cpu_us_per_request = found.cpu_us_per_request
            figures.core_busy = found.cpu_seconds / found.seconds
            if taken:
                figures.database_cpu_us_per_request = (taken[1] - taken[0]) / found.answers * 1e6

    def _half_load(self) -> None:
        figures = self.figures
        if figures.requests_per_s is None:
            raise Broken("its rate is not known")
        own = figures.requests_per_s / 2
        figures.p50_ms, figures.p99_ms, figures.added_p50_ms, figures.added_p99_ms = self._latency(min(own, HALF_LOAD))
        _, _, figures.added_p50_ms_at_own_half, figures.added_p99_ms_at_own_half = self._latency(own)

    def _latency(self, rate: float) -> tuple[float, float, float, float]:
        """At `rate` requests a second, in ms: the median, the 99th percentile, and what of each is added."""
        seconds = self._scale.half_load_seconds
        here = _run(open_loop(self._question(INSTANT), rate, seconds))
        there = _run(open_loop(self._direct.question(INSTANT, streamed=False), rate, seconds))
        p50, p99 = median(here) * 1e3, percentile(here, 0.99) * 1e3
        return p50, p99, p50 - median(there) * 1e3, p99 - percentile(there, 0.99) * 1e3


def _run(stage: Coroutine[Any, Any, Result]) -> Result:
    result: Result = uvloop.run(stage)
    return result
