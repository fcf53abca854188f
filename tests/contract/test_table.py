"""The table of the contract: its rows are all there, its marks name rows, and it cannot be green without proof."""

import re
from pathlib import Path

import pytest

from tests.contract.rows import owners, rows
from tests.contract.table import (
    FAILED,
    LATER,
    NOT_APPLICABLE,
    PASSED,
    Recorder,
    counts,
    judge,
    last_line,
    markdown,
    text,
)

TESTS = Path(__file__).parents[1]
MARK = re.compile(r"mark\.row\(([^)]*)\)")


def marked() -> set[str]:
    """The rows that marks in this folder name."""
    sources = [path.read_text() for path in TESTS.rglob("test_*.py")]
    return {id for source in sources for mark in MARK.findall(source) for id in re.findall(r'"([^"]+)"', mark)}


def test_every_row_has_a_promise_of_one_line_and_no_other_ones_words() -> None:
    promises = [row.promise for row in rows().values()]
    assert len(promises) == len(set(promises)) == 397
    assert all(0 < len(promise) <= 120 and "\n" not in promise for promise in promises)


def test_every_row_that_tests_prove_has_one_and_every_mark_names_a_row() -> None:
    found = marked()
    assert found <= rows().keys()
    assert {id for id, row in rows().items() if row.tested} <= found


def test_a_row_is_what_its_tests_are() -> None:
    recorder = Recorder()
    recorder.marked = {
        "a": ("B001", "B002"),
        "b": ("B001",),
        "c": ("B003",),
        "d": ("B378", "B059"),
        "e": ("B059", "B325"),
    }
    recorder.passed, recorder.failed = {"a", "d"}, {"b", "e"}
    verdicts = {verdict.row.id: verdict for verdict in judge(recorder)}
    states = {id: verdicts[id].state for id in ("B001", "B002", "B003", "B004", "B378", "B059", "B325", "B327")}
    assert states == {
        "B001": FAILED,  # one of its two tests failed
        "B002": PASSED,
        "B003": FAILED,  # its test was skipped
        "B004": FAILED,  # it has none
        "B378": LATER,
        "B059": FAILED,  # what is not promised yet must not break either
        "B325": FAILED,
        "B327": NOT_APPLICABLE,
    }
    assert [verdicts[id].why for id in ("B001", "B003", "B004", "B378")] == [
        "b",
        "its tests were skipped",
        "no test speaks of it",
        "console",
    ]


def test_the_last_line_counts() -> None:
    recorder = Recorder()
    recorder.marked, recorder.passed = {"a": ("B001",)}, {"a"}
    verdicts = judge(recorder)
    count = counts(verdicts)
    assert count[PASSED] == 1
    assert sum(count.values()) == 397
    *_, later, last = text(verdicts).splitlines()
    assert last == last_line(verdicts) == f"1 passed, {count[FAILED]} failed, {count[NOT_APPLICABLE]} not applicable"
    assert later.startswith(f"{count[LATER]} rows are later work's: ")


def test_the_document_says_why_rows_are_later_works() -> None:
    verdicts = judge(Recorder())
    said = markdown(verdicts)
    left = {verdict.row.owner for verdict in verdicts if verdict.state == LATER}
    assert left
    for owner in left:
        assert f"\n- {owner}: {owners()[owner]}.\n" in said


def test_a_mark_that_names_no_row_is_an_error() -> None:
    recorder = Recorder()
    recorder.marked = {"a": ("B999",)}
    with pytest.raises(KeyError):
        judge(recorder)
