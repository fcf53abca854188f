"""python -m tests.contract: runs the tests that name rows, prints the table, and writes docs/conformance.md.

Arguments are pytest's. Ends with 1 when a row failed or nothing proves one that tests should, or when the run itself
went wrong.
"""

import sys
from pathlib import Path

import pytest

from tests.contract.table import FAILED, Recorder, counts, judge, markdown, text

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"


def main(arguments: list[str]) -> int:
    """The exit status."""
    recorder = Recorder()
    ended = pytest.main(["-q", "-n", "logical", "-p", "tests.contract.marked", *arguments], plugins=[recorder])
    if ended not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or recorder.broken:
        print(f"The tests did not run to their end: {', '.join(recorder.broken) or ended!r}", file=sys.stderr)
        return 1
    verdicts = judge(recorder)
    print(text(verdicts))
    failed = counts(verdicts)[FAILED]
    if not (failed and arguments):  # a run of some tests alone says nothing about the rest
        DOCUMENT.write_text(markdown(verdicts), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
