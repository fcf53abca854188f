"""The bench's results as a person reads them."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.measure import Figures
from bench.refusals import Refusals
from bench.scale import HALF_LOAD, REFERENCE
from bench.targets import Target
from bench.translations import Translations
from bench.translations import pairs as translation_pairs

NAME, COLUMN = 34, 19
# Of a core. Less than the first was available to the contender; more than the second went to strangers.
SATURATED, DISTURBED = 0.9, 0.05


def _rate(figures: Figures) -> float | None:
    return figures.requests_per_s


# A name, the figure, and whether a ratio of it means something: what is added may be next to nothing, or less.
ROWS: list[tuple[str, Callable[[Figures], float | None], bool]] = [
    (f"requests/s, {REFERENCE} in flight", _rate, True),
    ("CPU us a request", lambda figures: figures.cpu_us_per_request, True),
    ("CPU us a streamed event", lambda figures: figures.cpu_us_per_event, True),
    (f"added p50 ms at {HALF_LOAD:,.0f}/s *", lambda figures: figures.added_p50_ms, False),
    (f"added p99 ms at {HALF_LOAD:,.0f}/s *", lambda figures: figures.added_p99_ms, False),
    ("added p50 ms at half its own rate", lambda figures: figures.added_p50_ms_at_own_half, False),
    ("added p99 ms at half its own rate", lambda figures: figures.added_p99_ms_at_own_half, False),
    ("resident KiB an open stream", lambda figures: figures.rss_kib_per_stream, True),
    ("database CPU us a request", lambda figures: figures.database_cpu_us_per_request, False),
]


def comparison(found: Mapping[str, Figures]) -> Iterator[str]:
    """A line a figure, a column a contender, in brackets how many times Meterline's it is."""
    shown = {name: figures for name, figures in found.items() if figures.skipped is None}
    ours = found.get("meterline", Figures())
    yield _line("", list(shown))
    for name, value, compared in ROWS:
        cells = [
            _cell(value(figures), value(ours) if compared and figures is not ours else None)
            for figures in shown.values()
        ]
        if value is _rate:
            cells = [_limited(cell, figures) for cell, figures in zip(cells, shown.values(), strict=True)]
        yield _line(name, cells)
    for load in sorted({load for figures in shown.values() for load in figures.cpu_us_by_connections}):
        values = [figures.cpu_us_by_connections.get(load) for figures in shown.values()]
        yield _line(f"CPU us a request, {load} in flight", [_number(value) for value in values])
    yield _line("wrong answers", [str(figures.failed) for figures in shown.values()])


def notes(found: Mapping[str, Figures]) -> Iterator[str]:
    """What was on for whom, who was skipped, and what went wrong."""
    for name, figures in found.items():
        if figures.skipped is not None:
            yield f"{name}: skipped, {figures.skipped}"
            continue
        yield f"{name} {figures.version}: {figures.on}"
        yield from (f"{name}: NOT MEASURED, {problem}" for problem in figures.problems)
        if figures.streams_together is False:
            yield f"{name}: its streams were never all open, so that an event pays for their begin and end, too"
        if (figures.others_on_core or 0) > DISTURBED:
            yield f"{name}: others took {figures.others_on_core:.0%} of its core meanwhile: see below"
    if any((figures.others_on_core or 0) > DISTURBED for figures in found.values()):
        yield (
            "This machine was not quiet: requests/s and latencies are worse than they would be. CPU time suffers less, "
            "by the caches that others emptied, and remains the figure to compare."
        )
    if any(figures.added_p50_ms is not None for figures in found.values()):
        yield f"* {HALF_LOAD:,.0f}/s, or half of a contender's own rate where that is less."
    if any(_is_limited(figures) for figures in found.values()):
        yield (
            f"> before requests/s: the contender could use less than {SATURATED:.0%} of its core; the load on the "
            "other cores, or a stranger on its own, was the limit."
        )


def micro(refusals: Refusals) -> Iterator[str]:
    """What refusals take, by what is wrong with the key."""
    medians = ", ".join(f"{kind} {time:,.0f} us" for kind, time in refusals.median_us.items())
    pairs = ", ".join(f"{pair} {t:.2f}" for pair, t in refusals.t.items())
    yield f"a refusal's median time: {medians} ({refusals.refused:,} refusals)"
    yield f"Welch's |t| of medians of blocks: {pairs}"


def pairs(translations: Translations) -> Iterator[str]:
    """What an event costs from each protocol to each, and for how long a first one is under way."""
    protocols = list(dict.fromkeys(provider for _, provider in translation_pairs()))
    for title, found in (
        ("CPU us an event, provider speaks", translations.cpu_us),
        ("first event under way, ms", translations.first_ms),
    ):
        yield _line(title, protocols)
        for client in protocols:
            yield _line(f"  client {client}", [_number(found[f"{client} over {one}"]) for one in protocols])


def verdicts(targets: Sequence[Target]) -> Iterator[str]:
    """A line a target."""
    for target in targets:
        word = {True: "met", False: "NOT MET", None: "not measured"}[target.met]
        yield f"{target.name.ljust(NAME + 8)}{target.wanted.rjust(12)}   {word.ljust(12)}  {target.found}"


def _line(name: str, cells: Sequence[str]) -> str:
    return "".join([name.ljust(NAME), *(cell.rjust(COLUMN) for cell in cells)])


def _cell(value: float | None, ours: float | None) -> str:
    if value is None or not ours:
        return _number(value)
    times = value / ours
    return f"{_number(value)} ({times:.2g}x)" if times < 10 else f"{_number(value)} ({times:,.0f}x)"


def _limited(cell: str, figures: Figures) -> str:
    return f"> {cell}" if _is_limited(figures) else cell


def _is_limited(figures: Figures) -> bool:
    return figures.core_busy is not None and figures.core_busy < SATURATED


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
