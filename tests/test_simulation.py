"""Routing by speed through the bad days of simulated providers. Everything is in virtual time and seeded."""

import pytest

from tests.simulation.rules import MeanOfTen, Ours, PeakEwma, Plain
from tests.simulation.world import Log, Provider, World

SEEDS = (1, 2, 3)


def providers(**best: object) -> list[Provider]:
    """Four, of which the first is the best: whole answers take 1.0, 1.3, 1.7 and 3 s."""
    return [
        Provider("swift", 0.2, 0.004, **best),  # type: ignore[arg-type]
        Provider("steady", 0.3, 0.005),
        Provider("plain", 0.5, 0.006),
        Provider("slow", 1.0, 0.010),
    ]


def ours(world: list[Provider], seed: int, seconds: float, a_second: float = 20.0) -> tuple[Log, Ours]:
    """A run of ours."""
    rule = Ours(world, seed)
    return World(world, rule, seed).run(seconds, a_second), rule


def plainly(kind: type[Plain], world: list[Provider], seed: int, seconds: float, a_second: float = 20.0) -> Log:
    """A run of a plain rule."""
    return World(world, kind(world, seed), seed).run(seconds, a_second)


@pytest.mark.parametrize("seed", SEEDS)
def test_in_steady_state_the_mean_is_that_of_the_best_fixed_choice(seed: int) -> None:
    world = providers()
    log, _ = ours(world, seed, 300.0)
    best = min(provider.mean for provider in world)
    print(log.mean(60, 300) / best, [log.share(i, 60, 300) for i in range(4)])
    print(
        plainly(MeanOfTen, world, seed, 300).mean(60, 300) / best,
        plainly(PeakEwma, world, seed, 300).mean(60, 300) / best,
    )
    assert log.mean(60.0, 300.0) <= 1.05 * best
