"""How each pair of client and provider protocol went in each case, as a table."""

from collections import Counter
from typing import Any

import pytest

from tests.pairs.clients import CLIENTS
from tests.pairs.providers import PROVIDERS

CASES = 21  # that there are
NONE = "-"

Cell = tuple[str, str, str]  # the client's protocol, the provider's, the case


class Recorder:
    """A pytest plugin that notes how the tests of each cell went."""

    def __init__(self) -> None:
        self.cells: dict[str, Cell] = {}  # by the test's node id
        self.passed: set[str] = set()
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Notes how one phase of a test went: a failed fixture fails the test."""
        properties: dict[str, Any] = dict(report.user_properties)
        if "cell" in properties:
            client, provider, case = properties["cell"]
            self.cells[report.nodeid] = client, provider, case
        if report.failed:
            self.failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def counts(self) -> tuple[int, int]:
        """How many tests of cells passed, and how many tests failed or proved nothing."""
        passed = self.passed & self.cells.keys() - self.failed
        return len(passed), len(self.cells.keys() - passed | self.failed)


def last_line(recorder: Recorder) -> str:
    """The counts, as the table's last line tells them."""
    passed, failed = recorder.counts()
    return f"{passed} passed, {failed} failed"


def rows(recorder: Recorder) -> tuple[list[str], list[tuple[str, str, list[str]]]]:
    """The cases, and each pair with how many tests of each case passed, of how many."""
    passed, ran = Counter[Cell](), Counter[Cell]()
    for node, cell in recorder.cells.items():
        ran[cell] += 1
        passed[cell] += node in recorder.passed and node not in recorder.failed
    cases = sorted({case for _, _, case in ran})
    return cases, [
        (client, provider, [_told(passed[cell], ran[cell]) for case in cases for cell in [(client, provider, case)]])
        for client in CLIENTS
        for provider in PROVIDERS
    ]


def is_whole(recorder: Recorder) -> bool:
    """Whether every pair was tried in every case there is, but for the one that some providers have no words for."""
    cases, lines = rows(recorder)
    return len(cases) == CASES and all(counts.count(NONE) <= 1 for _, _, counts in lines)


def text(recorder: Recorder) -> str:
    """The table for a terminal, one line a pair, the counts last."""
    cases, lines = rows(recorder)
    told = [f"{client} → {provider} · " + ", ".join(f"{case} {n}" for case, n in zip(cases, counts, strict=True))
            for client, provider, counts in lines]  # fmt: skip
    return "\n".join([*told, "", last_line(recorder)])


def markdown(recorder: Recorder) -> str:
    """The table as a document: a row a case, a column a pair."""
    cases, lines = rows(recorder)
    out = [
        "# Pairs of protocols",
        "",
        "A client speaks one wire protocol and a provider one; each answers each. What is proved of every pair,",
        "streamed and whole, and how many tests passed of how many. Made by `make pairs`; the scenes are in",
        "`tests/pairs`.",
        "",
        "- **text**, **length**, **refusal**, **cached usage**: what was said, why it ended, and what was counted, on",
        "  the books and as the client is told; a refusal is one in every protocol",
        "- **one tool**, **tool after text**, **parallel tools**, **no arguments**, **no tool used**, **tool choice**:",
        "  the provider knows the tools and which to choose, and calls keep their ids, names, arguments and order",
        "- **second turn**: thoughts, words, calls and results go back, to a provider of any protocol; the proof of a",
        "  thought, byte for byte, to that of its own alone",
        "- **image**, **structured**: what the provider is sent of a picture and of a schema",
        "- **named parameter**: what a provider faults has the name that the client knows it by; two of",
        "  the protocols name none",
        "- **first words**: they reach the client before the provider says the second",
        "- **other form**: a provider that streams unasked, or does not though it is asked to",
        "- **error before**, **at once**, **after**, **broken off**: a provider's refusal, limit or overload, a prompt",
        "  too long and an answer without an end, before it began and within it, in the client's own words",
    ]
    for client in CLIENTS:
        of_client = [(provider, counts) for told, provider, counts in lines if told == client]
        out += ["", f"## Clients of {client}", "", f"| Case | {' | '.join(provider for provider, _ in of_client)} |"]
        out.append(f"|---|{'---|' * len(of_client)}")
        out += [f"| {case} | {' | '.join(counts[at] for _, counts in of_client)} |" for at, case in enumerate(cases)]
    return "\n".join([*out, "", f"{last_line(recorder)}.", ""])


def _told(passed: int, ran: int) -> str:
    return f"{passed} of {ran}" if ran else NONE
