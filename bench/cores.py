"""Which cores a contender has, and which everything else."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Cores:
    """The contender's one core, and the others; on a machine with one core they are the same."""

    contender: int
    others: frozenset[int]

    @property
    def shared(self) -> bool:
        """Whether the contender shares its core with the load on it: then only its CPU time means anything."""
        return self.contender in self.others


def split() -> Cores:
    """The first core this process may use is the contender's."""
    first, *rest = sorted(os.sched_getaffinity(0))
    return Cores(first, frozenset(rest or [first]))


@contextmanager
def only_on(cores: frozenset[int]) -> Iterator[None]:
    """Keeps this thread, and what it starts meanwhile, to `cores`; what it started stays there afterwards.

    The kernel's affinity belongs to a thread and is inherited, so that a child has it from its first
    instruction and so have all threads it makes.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def busy_seconds(core: int) -> float:
    """Seconds this core has worked, for whomever, since the machine started."""
    for line in Path("/proc/stat").read_text().splitlines():
        name, *numbers = line.split()
        if name == f"cpu{core}":
            user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, numbers[:8])
            return (user + nice + system + interrupts + soft + stolen) / TICKS
    raise ValueError(f"/proc/stat does not know core {core}")
