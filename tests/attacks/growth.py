"""What work costs when one thing in it is enlarged tenfold, twice: time and memory that grow faster are an attack."""

import gc
import time
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

from tests.attacks.scale import WHOLE

SIZES = (60, 600, 6000) if WHOLE else (20, 200, 2000)
# A tenfold of the input may take this much more time: linear is 10, quadratic 100. What takes less than `UNSEEN`
# seconds of the processor is too short to tell.
MOST_TIMES = 25
UNSEEN = 0.02
ATTEMPTS = 4  # A neighbour on the machine may spoil one; a quadratic spoils all.
# To watch memory takes four times as long as the work: a quarter of the input tells as much, with a quarter to spare.
WATCHED = SIZES[-1] // (1 if WHOLE else 4)
MOST_MEMORY = 80  # Bytes for each byte of input, and `SPARE` more.
SPARE = 4 << 20 if WHOLE else 1 << 20

Work = Callable[[], object]


def check_linear(prepare: Callable[[int], tuple[Work, int]]) -> None:
    """`prepare(size)` gives work and the length of its input in bytes; fails when that grows faster than the size."""
    prepared = [prepare(size) for size in SIZES]
    for _ in range(ATTEMPTS):
        seconds = [_seconds(work) for work, _ in prepared]
        times = [more / max(less, UNSEEN / 10) for less, more in pairwise(seconds) if more > UNSEEN]
        if all(ratio <= MOST_TIMES for ratio in times):
            break
    else:
        raise AssertionError(f"{SIZES} take {[round(second, 4) for second in seconds]} seconds")
    work, length = prepare(WATCHED)
    peak = _peak(work)
    assert peak <= MOST_MEMORY * length + SPARE, f"{length} bytes take {peak} bytes of memory"


def _seconds(work: Work) -> float:
    gc.disable()
    started = time.process_time()
    try:
        work()
        return time.process_time() - started
    finally:
        gc.enable()


def _peak(work: Work) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
