"""What came of each promise, as a table. `Recorder` is a pytest plugin, told by each test's `figures`."""

from collections import defaultdict
from typing import Any

import pytest

Figures = dict[str, float]
deadlocks: list[int] = []  # that the database saw while each fleet ran


class Recorder:
    """Notes how the tests of each promise went, and the worst of their figures: the smaller one is, the better."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], Figures] = defaultdict(dict)  # by promise and test
        self._ran: dict[tuple[str, str], set[str]] = defaultdict(set)  # node ids
        self._passed: set[str] = set()
        self._failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes how one phase of a test went: a failed fixture fails the test."""
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed.add(report.nodeid)
        if report.when != "teardown":
            return
        told: list[Any] = [value for name, value in report.user_properties if name == "figures"]
        test = report.nodeid.rpartition("::")[2].partition("[")[0].removeprefix("test_").replace("_", " ")
        if not told:
            self._ran["-", test].add(report.nodeid)
        for promise, figures in told:
            place = promise, test
            self._ran[place].add(report.nodeid)
            for name, value in figures.items():
                self._figures[place][name] = max(value, self._figures[place].get(name, value))

    @property
    def passed(self) -> int:
        """Tests that passed from setup to teardown."""
        return len(self._passed - self._failed)

    @property
    def failed(self) -> int:
        """Tests of which some phase failed."""
        return len(self._failed)

    def text(self) -> str:
        """The table, a promise's test a line, the counts last."""
        lines = []
        for (promise, test), nodes in sorted(self._ran.items(), key=lambda row: (len(row[0][0]), row[0])):
            passed = len(nodes & self._passed - self._failed)
            figures = "; ".join(f"{name} {value:,.6g}" for name, value in self._figures[promise, test].items())
            lines.append(f"{promise:4} {test}: {passed} of {len(nodes)} passed{figures and f' · {figures}'}")
        lines.append(f"X11  deadlocks: {sum(deadlocks)} while {len(deadlocks)} fleets ran")
        return "\n".join([*lines, "", f"{self.passed} passed, {self.failed} failed"])
