"""What the figures were measured on."""

import os
import platform
from datetime import UTC, datetime
from pathlib import Path

from bench.cores import Cores


def describe(cores: Cores) -> dict[str, object]:
    """The machine as it is now; `load` is the kernel's one-minute average before anything of ours ran."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "contender_core": cores.contender,
        "other_cores": sorted(cores.others),
        "load": round(os.getloadavg()[0], 2),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20,
        "kernel": platform.release(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
