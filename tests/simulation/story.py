"""Twelve bad minutes of one model's providers, as each of the three rules lives through them."""

from dataclasses import dataclass

from routing.health.faults import Fault
from tests.simulation.rules import MeanOfTen, Ours, PeakEwma
from tests.simulation.world import Log, Provider, World

SEED = 4
A_SECOND = 20.0
SECONDS = 720.0
CHAPTERS = (
    (0.0, 120.0, "all well"),
    (120.0, 180.0, "swift is 5x slower"),
    (180.0, 360.0, "well again"),
    (360.0, 420.0, "swift times out"),
    (420.0, 540.0, "well again"),
    (540.0, 600.0, "1 in 5 is 30x slower"),
    (600.0, SECONDS, "a faster one is new"),
)
RULES = ("least_latency", "mean of the last ten", "two choices, peak-EWMA")


@dataclass(frozen=True)
class Story:
    """The runs, by rule, and the providers' names."""

    logs: dict[str, Log]
    providers: list[str]


def providers() -> list[Provider]:
    """The cast: whole answers of 1.0, 1.3, 1.7 and 3 s in the mean, and of 0.7 s the new one."""
    return [
        Provider(
            "swift",
            0.2,
            0.004,
            slower=lambda now: 5.0 if 120 <= now < 180 else 1.0,
            slow_share=lambda now: 0.2 if now >= 540 else 0.0,
            down=lambda now: Fault.TIMEOUT if 360 <= now < 420 else None,
            failing_takes=5.0,
        ),
        Provider("steady", 0.3, 0.005),
        Provider("plain", 0.5, 0.006),
        Provider("slow", 1.0, 0.010),
        Provider("new", 0.14, 0.0028, there=lambda now: now >= 600),
    ]


def tell() -> Story:
    """Runs it once for each rule, on the same requests."""
    logs = {}
    for name, rule in zip(RULES, (Ours, MeanOfTen, PeakEwma), strict=True):
        cast = providers()
        logs[name] = World(cast, rule(cast, SEED), SEED).run(SECONDS, A_SECOND)
    return Story(logs, [provider.name for provider in providers()])


def figures(story: Story) -> str:
    """A table of the mean and the 99th percentile of each chapter, in seconds, by rule."""
    lines = [f"{'seconds, mean / p99':32}" + "".join(f"{rule:>26}" for rule in story.logs)]
    for begin, end, title in CHAPTERS:
        cells = (f"{log.mean(begin, end):.2f} / {log.quantile(0.99, begin, end):.2f}" for log in story.logs.values())
        lines.append(f"{begin:3.0f}-{end:3.0f} s {title:22}"[:32].ljust(32) + "".join(f"{cell:>26}" for cell in cells))
    return "\n".join(lines)
