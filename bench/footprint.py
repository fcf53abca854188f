"""What a program and all it has started take of the machine: CPU time and resident memory, from /proc."""

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.cores import TICKS

PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
GONE = (FileNotFoundError, ProcessLookupError)


class Footprint(NamedTuple):
    """Taken since each process's start: seconds of CPU, user and system; and KiB resident now.

    Memory that processes share counts once for each. CPU is good to 10 ms: the kernel tells it in ticks.
    """

    cpu_seconds: float
    resident_kib: int


class _Seen(NamedTuple):
    parent: int
    ticks: int
    pages: int


def footprint(root: int) -> Footprint:
    """The sum over the process `root` and all its descendants. Raises ProcessLookupError when it is gone.

    A child that has ended is counted in whoever waited for it.
    """
    seen = _all_processes()
    if root not in seen:
        raise ProcessLookupError(root)
    tree = {root}
    grown = True
    while grown:
        more = {pid for pid, process in seen.items() if process.parent in tree} - tree
        grown = bool(more)
        tree |= more
    return Footprint(sum(seen[pid].ticks for pid in tree) / TICKS, sum(seen[pid].pages for pid in tree) * PAGE_KIB)


def _all_processes() -> dict[int, _Seen]:
    seen = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(*GONE):
                # A program's name stands in brackets and may hold anything, so what follows is cut from the right.
                words = Path("/proc", name, "stat").read_bytes().rpartition(b") ")[2].split()
                # proc(5): 4 ppid, 14 utime, 15 stime, 16 cutime, 17 cstime, 24 rss; the state is 3 and first here.
                ticks = sum(map(int, words[11:15]))
                seen[int(name)] = _Seen(int(words[1]), ticks, int(words[21]))
    return seen
