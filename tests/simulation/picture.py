"""Draws a `Story` as an SVG: the mean latency under each rule, and where `least_latency` sent the traffic."""

import math
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape

from tests.simulation.story import CHAPTERS, SECONDS, Story

WIDTH, LEFT, RIGHT = 1000, 64, 24
TOP, HEIGHT, GAP, LOWER = 92, 250, 84, 120
BIN = 5.0  # seconds
LEAST, MOST = 0.5, 10.0  # of the logarithmic axis, in seconds
RULE_COLOURS = ("#0072b2", "#d55e00", "#8a8a8a")
OFFER_COLOURS = ("#0072b2", "#56b4e9", "#009e73", "#e69f00", "#cc79a7")
INK, SOFT, LINE, BAND = "#1f2328", "#59636e", "#d1d9e0", "#f6f8fa"


def draw(story: Story) -> str:
    """The picture."""
    bottom = TOP + HEIGHT
    lower = bottom + GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {lower + LOWER + 64}" '
        'font-family="system-ui, sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        _text(LEFT, 26, "Mean seconds to the whole answer, in bins of 5 s (logarithmic)", INK, weight=600),
        *_legend(story.logs, RULE_COLOURS, 48),
        *_bands(TOP, bottom, titles=True),
        *_bands(lower, lower + LOWER, titles=False),
    ]
    for value in (0.5, 1, 2, 5, 10):
        y = _height(value)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{value:g} s", SOFT, anchor="end"))
    for log, colour, width in reversed(list(zip(story.logs.values(), RULE_COLOURS, (2.6, 1.6, 1.6), strict=True))):
        points = []
        for begin in _bins():
            found = log.latencies(begin, begin + BIN)
            if found:
                points.append((_x(begin + BIN / 2), _height(sum(found) / len(found))))
        parts.append(_line(points, colour, width))
    parts.append(_text(LEFT, lower - 40, "Where least_latency sent its dials", INK, weight=600))
    parts += _legend(story.providers, OFFER_COLOURS, lower - 18)
    parts += _shares(story, lower)
    for minute in range(int(SECONDS // 60) + 1):
        parts.append(_text(_x(minute * 60), lower + LOWER + 20, str(minute), SOFT, anchor="middle"))
    parts.append(_text(WIDTH / 2, lower + LOWER + 44, "minutes", SOFT, anchor="middle"))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _shares(story: Story, top: float) -> Iterable[str]:
    log = next(iter(story.logs.values()))
    floor = [0.0 for _ in _bins()]
    for index, colour in enumerate(OFFER_COLOURS):
        ceiling = [low + log.share(index, begin, begin + BIN) for low, begin in zip(floor, _bins(), strict=True)]
        outline = [*_steps(ceiling, top), *reversed(_steps(floor, top))]
        shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
        yield f'<polygon points="{shape}" fill="{colour}"/>'
        floor = ceiling
    for share in (0, 50, 100):
        yield _text(LEFT - 8, top + LOWER * (1 - share / 100) + 4, f"{share} %", SOFT, anchor="end")


def _steps(shares: Sequence[float], top: float) -> list[tuple[float, float]]:
    return [
        (x, top + LOWER * (1 - share))
        for share, begin in zip(shares, _bins(), strict=True)
        for x in (_x(begin), _x(begin + BIN))
    ]


def _bands(top: float, bottom: float, *, titles: bool) -> Iterable[str]:
    for number, (begin, end, title) in enumerate(CHAPTERS):
        left, right = _x(begin), _x(end)
        if number % 2:
            yield f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{bottom - top}" fill="{BAND}"/>'
        if titles:
            middle = (left + right) / 2
            words = title.split()
            half = math.ceil(len(words) / 2) if len(title) > 11 else len(words)
            for line, part in enumerate((words[:half], words[half:])):
                yield _text(middle, top - 18 + 14 * line, " ".join(part), SOFT, anchor="middle", size=12)
        if begin:
            yield f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{top}" y2="{bottom}" stroke="{LINE}"/>'


def _legend(names: Iterable[str], colours: Sequence[str], y: float) -> Iterable[str]:
    x = float(LEFT)
    for name, colour in zip(names, colours, strict=False):
        yield f'<rect x="{x:.0f}" y="{y - 9}" width="12" height="12" rx="2" fill="{colour}"/>'
        yield _text(x + 18, y + 2, name, INK)
        x += 18 + 7.2 * len(name) + 26


def _text(
    x: float, y: float, words: str, colour: str, *, anchor: str = "start", weight: int = 400, size: int = 13
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}">{escape(words)}</text>'
    )


def _line(points: Iterable[tuple[float, float]], colour: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>'


def _bins() -> Iterable[float]:
    return (number * BIN for number in range(int(SECONDS / BIN)))


def _x(seconds: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * seconds / SECONDS


def _height(value: float) -> float:
    share = math.log(min(max(value, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return TOP + HEIGHT * (1 - share)
