"""How the tests of each row went, as a table.

`Recorder` is a pytest plugin that notes how the tests of rows went, which their reports name (`marked` sees to that).
`judge` makes of its notes what became of each row; `text` and `markdown` print it.

A row of fate `test` has passed when at least one of its tests ran and none failed; a skipped test proves nothing. A
row that does not apply, or that later work owns, may have tests all the same (that its path is a 404, that its
parameter is read); only a failure of theirs changes what is told of it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.contract.rows import Row, owners, rows

PASSED, FAILED, NOT_APPLICABLE, LATER = "passed", "failed", "not applicable", "later"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a row: its state, why, and how many tests speak of it."""

    row: Row
    state: str
    why: str
    tests: int


class Recorder:
    """Collects the outcome of every test that is marked with rows."""

    def __init__(self) -> None:
        self.marked: dict[str, tuple[str, ...]] = {}  # rows by the test's node id
        self.passed: set[str] = set()
        self.failed: set[str] = set()
        self.broken: list[str] = []  # files that could not be collected, tests whose process died

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Notes a file that could not be read: its rows would look unproved for no reason of their own."""
        if report.failed:
            self.broken.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes how one phase of a test went: a failed fixture fails the test."""
        properties: dict[str, Any] = dict(report.user_properties)
        ids = tuple(properties.get("rows", ()))
        if not ids:
            self.broken.append(report.nodeid)
            return
        self.marked[report.nodeid] = ids
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)


def judge(recorder: Recorder) -> list[Verdict]:
    """The verdict on every row, in order. Raises KeyError for a mark that names no row."""
    found = rows()
    tests: defaultdict[str, set[str]] = defaultdict(set)
    for node, ids in recorder.marked.items():
        for id in ids:
            tests[found[id].id].add(node)
    return [_verdict(row, tests[row.id], recorder) for row in found.values()]


def _verdict(row: Row, tests: set[str], recorder: Recorder) -> Verdict:
    if failed := sorted(tests & recorder.failed):
        return Verdict(row, FAILED, failed[0], len(tests))
    if row.reason:
        return Verdict(row, NOT_APPLICABLE, row.reason, len(tests))
    if row.owner:
        return Verdict(row, LATER, row.owner, len(tests))
    passed = len(tests & recorder.passed)
    if not passed:
        return Verdict(row, FAILED, "its tests were skipped" if tests else "no test speaks of it", len(tests))
    return Verdict(row, PASSED, "", passed)


def counts(verdicts: Iterable[Verdict]) -> Mapping[str, int]:
    """How many rows are in each state."""
    return Counter(verdict.state for verdict in verdicts)


def last_line(verdicts: Iterable[Verdict]) -> str:
    """The counts, as the table's last line tells them."""
    count = counts(verdicts)
    return f"{count[PASSED]} passed, {count[FAILED]} failed, {count[NOT_APPLICABLE]} not applicable"


def later_line(verdicts: list[Verdict]) -> str:
    """How many rows later work owns, and which."""
    owners = Counter(verdict.row.owner for verdict in verdicts if verdict.state == LATER)
    shares = ", ".join(f"{owner} {count}" for owner, count in owners.items())
    return f"{counts(verdicts)[LATER]} rows are later work's: {shares}"


def text(verdicts: list[Verdict]) -> str:
    """The table for a terminal, one line a row, the counts last."""
    lines = []
    for verdict in verdicts:
        why = f" ({verdict.why})" if verdict.why else ""
        lines.append(f"{verdict.row.id} · {verdict.state}{why} · {verdict.row.promise}")
    return "\n".join([*lines, "", later_line(verdicts), last_line(verdicts)])


def markdown(verdicts: list[Verdict]) -> str:
    """The table as a document."""
    lines = [
        "# Conformance",
        "",
        "What a client may rely on, row by row, and what proves it. Made by `make conformance`; the rows are in",
        '`tests/contract/rows.toml`, and a test names those it proves: `@pytest.mark.row("B001")`.',
    ]
    group = ""
    for verdict in verdicts:
        if verdict.row.group != group:
            group = verdict.row.group
            lines += [
                "",
                f"## {group}. {verdict.row.title}",
                "",
                "| Row | Promise | State | Tests |",
                "|---|---|---|---|",
            ]
        why = f": {verdict.why}" if verdict.why else ""
        lines.append(
            f"| {verdict.row.id} | {_cell(verdict.row.promise)} | {verdict.state}{_cell(why)} | {verdict.tests} |"
        )
    left = {verdict.row.owner for verdict in verdicts if verdict.state == LATER}
    reasons = [f"- {owner}: {reason}." for owner, reason in owners().items() if owner in left]
    return "\n".join([*lines, "", f"{later_line(verdicts)}.", "", *reasons, "", f"{last_line(verdicts)}.", ""])


def _cell(value: str) -> str:
    return value.replace("|", "\\|").replace("<", "&lt;")
