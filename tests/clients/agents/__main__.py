"""python -m tests.clients.agents: every agent, framework and SDK over every protocol: a line each, and the counts.

Arguments are pytest's. Ends with 1 when a task failed, or none was tried.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

TASKS = Path(__file__).with_name("tasks.py")
FRAMEWORKS = TASKS.parents[1] / "test_defaults.py"
SDKS = f"{TASKS.parents[1] / 'test_foreign_upstreams.py'}::test_every_sdk_loops_over_every_protocol_of_theirs"


class Recorder:
    """A pytest plugin that tells how each task went, as it ends."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A task's line."""
        if report.when == "teardown" or (report.when == "setup" and report.passed):
            return
        self.counts[report.outcome] += 1
        line = f"\n{report.nodeid.rpartition('[')[2].removesuffix(']')}: "
        if report.when == "setup":
            line += f"does not install: {_why(report)}"
        else:
            line += "ok" if report.passed else f"failed: {_why(report)}"
        told: dict[str, Any] = dict(report.user_properties)
        if "counts" in told:
            requests, booked, counted, proved = told["counts"]
            line += f" · {requests} requests · booked {booked[0]} + {booked[1]} tokens, "
            line += f"counted {counted[0]} + {counted[1]} · proof {'came back' if proved else 'did not come back'}"
        print(line, flush=True)


def _why(report: pytest.TestReport) -> str:
    """The first line of what a test failed with, or was skipped for."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(crash.message if crash else report.longreprtext).splitlines()[0]


def main(arguments: list[str]) -> int:
    """The exit status."""
    os.environ.setdefault("LOG_LEVEL", "WARNING")
    os.environ.setdefault("CLIENT_PROVIDERS", "every")
    recorder = Recorder()
    tests = [str(TASKS), str(FRAMEWORKS), SDKS]
    ended = pytest.main(["-q", "-s", "-p", "no:randomly", *tests, *arguments], plugins=[recorder])
    counts = recorder.counts
    told = f"{counts['passed']} passed, {counts['failed']} failed"
    print(told + (f", {counts['skipped']} skipped" if counts["skipped"] else ""))
    return 0 if ended == pytest.ExitCode.OK and counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
