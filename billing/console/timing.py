"""Where the time of a generation went, as bars: what its usage row and its attempts have of it. Pure.

All is milliseconds from the request's arrival. Of rows from before a part was recorded it counts as 0, and an attempt
begins where the one before it ended: so nothing is shown as longer than it was.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from billing.models import Attempt, Usage

WIDTH = 1000  # of all bars: a thousandth of the whole each
LEAST = 2  # that a part is wide, to be seen at all


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a bar: its colour's name, what it is, since when and how long."""

    kind: str
    label: str
    start: int
    ms: int


def begins(attempts: Sequence[Attempt]) -> list[int]:
    """When each attempt began, from the beginning of `Usage.duration_ms`; they are in order."""
    found: list[int] = []
    end = 0
    for attempt in attempts:
        found.append(end if attempt.offset_ms is None else attempt.offset_ms)
        end = max(end, found[-1] + (attempt.duration_ms or 0))
    return found


def dial(attempt: Attempt, start: int) -> list[Part]:
    """The parts of one dial that began at `start`: the connection, the wait for the first token, and the answer."""
    whole = attempt.duration_ms or 0
    connect = min(attempt.connect_ms or 0, whole)
    first = whole if attempt.ttft_ms is None else min(max(attempt.ttft_ms, connect), whole)
    return [
        Part("connect", _("Connect"), start, connect),
        Part("wait", _("First token"), start + connect, first - connect),
        Part("stream", _("Stream"), start + first, whole - first),
    ]


def parts(usage: Usage, attempts: Sequence[Attempt]) -> list[Part]:
    """The parts of the whole: queue, hold, attempts before the last one, and those of the last one's dial."""
    queue, starts = usage.queue_ms or 0, begins(attempts)
    if not attempts:
        return [Part("queue", _("Queue"), 0, queue), Part("wait", _("Waiting"), queue, usage.duration_ms or 0)]
    tried = starts[-1] - starts[0]
    return [
        Part("queue", _("Queue"), 0, queue),
        Part("hold", _("Hold"), queue, starts[0]),
        *([Part("tried", _("Other attempts"), queue + starts[0], tried)] if tried else []),
        *dial(attempts[-1], queue + starts[-1]),
    ]


def timing(usage: Usage, attempts: Iterable[Attempt]) -> dict[str, Any]:
    """The bar of a generation, and a row of bars for each of its attempts in order, ready to be drawn.

    `whole`: how long it took, as pages show it; `bar` and of each row its `bar`: parts with `x` and `width` of `WIDTH`.
    """
    dials = list(attempts)
    queue, starts = usage.queue_ms or 0, begins(dials)
    said = parts(usage, dials)
    ends = [queue + (usage.duration_ms or 0), *(part.start + part.ms for part in said)]
    ends += [queue + start + (one.duration_ms or 0) for one, start in zip(dials, starts, strict=True)]
    whole = max(ends)
    rows = [
        {
            "attempt": attempt,
            "offset": seconds(queue + start),
            "connect": seconds(attempt.connect_ms),
            "first": seconds(attempt.ttft_ms),
            "took": seconds(attempt.duration_ms),
            "bar": drawn(dial(attempt, queue + start), whole),
        }
        for attempt, start in zip(dials, starts, strict=True)
    ]
    return {"whole": seconds(whole), "bar": drawn(said, whole), "parts": shown(said), "rows": rows}


def shown(said: Iterable[Part]) -> list[dict[str, str]]:
    """Each part in words, for who does not see the bar."""
    return [{"kind": part.kind, "label": part.label, "took": seconds(part.ms)} for part in said]


def drawn(said: Iterable[Part], whole: int) -> list[dict[str, Any]]:
    """The parts that took time, each as long as its share of `whole`."""
    return [
        {
            "kind": part.kind,
            "x": min(part.start * WIDTH // whole, WIDTH - LEAST),
            "width": max(part.ms * WIDTH // whole, LEAST),
            "title": f"{part.label}: {seconds(part.ms)}",
        }
        for part in said
        if part.ms
    ]


def seconds(milliseconds: int | None) -> str:
    """A duration as pages show it."""
    if milliseconds is None:
        return "-"
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:,.2f} s"
