"""What Meterline means to reach, with everything on, and whether this run has."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from bench.measure import Figures
from bench.refusals import SEPARABLE, Refusals
from bench.translations import Translations

# Of the CPU a request took with fewer in flight: what a measurement of a few seconds may be off by.
SCATTER = 1.05


@dataclass(frozen=True)
class Target:
    """One target. `met` is None when what it needs was not measured."""

    name: str
    wanted: str
    found: str
    met: bool | None


def judge(found: Mapping[str, Figures], refusals: Refusals | None, translations: Translations | None) -> list[Target]:
    """Every target, in the order they are shown."""
    ours = found.get("meterline", Figures())
    return [
        _at_least("requests a second on one core", 1600, ours.requests_per_s, _per_cpu_second(ours)),
        _at_most("CPU a streamed event", 75, ours.cpu_us_per_event, "us"),
        _at_most(
            "CPU a translated event, times one that passes", 2, translations.worst_ratio if translations else None
        ),
        _at_most("a first event is under way", 10, translations.latest_ms if translations else None, "ms"),
        _at_least("requests a CPU second, times LiteLLM's", 20, _times(found, "litellm")),
        _at_least("requests a CPU second, times Portkey's", 2.5, _times(found, "portkey")),
        _at_least("the same, Portkey on a newer Node", 2.5, _times(found, "portkey_newer_node")),
        _at_most("latency added at half load, p50", 5, ours.added_p50_ms, "ms"),
        _at_most("latency added at half load, p99", 15, ours.added_p99_ms, "ms"),
        _at_most("the same at half of its own rate, p50", 5, ours.added_p50_ms_at_own_half, "ms"),
        _at_most("the same at half of its own rate, p99", 15, ours.added_p99_ms_at_own_half, "ms"),
        _at_most("resident memory an open stream", 200, ours.rss_kib_per_stream, "KiB"),
        _falling("CPU a request falls as load grows", ours.cpu_us_by_connections),
        _at_most("refusals told apart by their time, |t|", SEPARABLE, refusals.worst if refusals else None),
    ]


def _times(found: Mapping[str, Figures], other: str) -> float | None:
    ours = found.get("meterline", Figures()).cpu_us_per_request
    theirs = found.get(other, Figures()).cpu_us_per_request
    return theirs / ours if ours and theirs else None


def _per_cpu_second(figures: Figures) -> str:
    cost = figures.cpu_us_per_request
    return f" ({1e6 / cost:,.0f} a CPU second)" if cost else ""


def _at_least(name: str, bound: float, value: float | None, remark: str = "") -> Target:
    return Target(name, f">= {bound:,g}", _text(value) + remark, None if value is None else value >= bound)


def _at_most(name: str, bound: float, value: float | None, unit: str = "") -> Target:
    wanted = f"<= {bound:,g} {unit}".strip()
    return Target(name, wanted, _text(value, unit), None if value is None else value <= bound)


def _falling(name: str, by_connections: Mapping[int, float]) -> Target:
    values = [by_connections[connections] for connections in sorted(by_connections)]
    met = None
    if len(values) > 1:
        steady = all(later <= earlier * SCATTER for earlier, later in pairwise(values))
        met = steady and values[-1] < values[0]
    found = ", ".join(f"{by_connections[load]:,.0f} at {load}" for load in sorted(by_connections))
    return Target(name, "falling", found or "not measured", met)


def _text(value: float | None, unit: str = "") -> str:
    return "not measured" if value is None else f"{value:,.4g} {unit}".strip()
