"""How much is measured: counts and seconds, all of them bounds."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """One size of the whole bench.

    `connections`: how many requests are kept in flight, stage after stage; REFERENCE must be among them.
    `streams` at 20 ms an event are timed; `held` slower ones are open while memory is looked at. `firsts` of each pair
    of protocols are timed.
    """

    connections: tuple[int, ...]
    warm_seconds: float  # of each stage, not counted
    seconds: float  # of each stage, counted
    streams: int
    stream_tokens: int
    held: int
    held_tokens: int
    half_load_seconds: float  # of each rate
    refusal_blocks: int
    firsts: int


REFERENCE = 32  # the load at which contenders are compared
# Requests a second: half of what one process of ours should come to. Latency is compared at this one rate, or at half
# of a contender's own where that is less. At half of its own alone, whoever got faster would be asked under more load.
HALF_LOAD = 1000.0
FULL = Scale((1, 8, 32, 200), 0.7, 5.0, 100, 250, 200, 20, 8.0, 60, 25)
QUICK = Scale((1, 8, 32, 200), 0.3, 1.5, 60, 120, 120, 8, 2.0, 20, 9)
