"""How the cells went, as a table. `Recorder` is a pytest plugin; which cell a test is, its reports say (`named`)."""

from collections import Counter
from typing import Any

import pytest

PASSED, FAILED, MISSING = "passed", "failed", "not run"


class Recorder:
    """Notes the outcome of every cell, and of the tests beside the table, by their names."""

    def __init__(self) -> None:
        self._cells: dict[str, tuple[str, str, str]] = {}  # by node id: row, promise, column
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes how one phase of a test went: a failed fixture fails the test, and so does a process that died."""
        properties: dict[str, Any] = dict(report.user_properties)
        name, promise, column = properties.get("cell", (report.nodeid, "", ""))
        self._cells[report.nodeid] = name, promise, column
        if report.failed:
            self._outcomes[report.nodeid] = FAILED
        elif report.when == "call" and report.passed:
            self._outcomes.setdefault(report.nodeid, PASSED)

    @property
    def counts(self) -> Counter[str]:
        """How many cells are in each state."""
        return Counter(self._outcomes.get(node, MISSING) for node in self._cells)

    def text(self) -> str:
        """The table, a row a line with its cells below, the counts last."""
        lines, row = [], ""
        for node, (name, promise, column) in sorted(self._cells.items(), key=lambda entry: entry[1]):
            outcome = self._outcomes.get(node, MISSING)
            if not column:
                lines.append(f"{name}: {outcome}")
                continue
            if name != row:
                lines.append(f"{name} · {promise}")
                row = name
            lines.append(f"    {column}: {outcome}")
        count = self.counts
        return "\n".join([*lines, "", f"{count[PASSED]} passed, {count[FAILED] + count[MISSING]} failed"])
