"""python -m tests.contention: plays it all, and prints what came of each promise, with its figures.

Arguments are pytest's. Ends with 1 when something failed, or nothing ran.
"""

import os
import sys

import pytest

from tests.contention.table import Recorder


def main(arguments: list[str]) -> int:
    """The exit status."""
    os.environ["CONTENTION"] = "whole"
    recorder = Recorder()
    status = pytest.main(
        ["-q", "-p", "no:randomly", "--timeout=1800", "tests/contention", *arguments], plugins=[recorder]
    )
    print(recorder.text())
    return 0 if status == pytest.ExitCode.OK and recorder.passed and not recorder.failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
