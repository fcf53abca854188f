"""python -m tests.faults: plays the whole table and the proofs beside it, and prints how each cell went.

Arguments are pytest's. Ends with 1 when a cell failed, or did not run.
"""

import os
import sys

import pytest

from tests.faults.table import PASSED, Recorder

TESTS = [
    "tests/faults",
    "tests/generation/test_recovery.py",
    "tests/routing/test_routing_at_scale.py",
]


def main(arguments: list[str]) -> int:
    """The exit status."""
    os.environ["FAULTS"] = "whole"  # `make test` plays one cell of each row
    os.environ.setdefault("FAULT_REQUESTS", "5000")  # and sends fewer requests at once
    recorder = Recorder()
    parallel = ["-n", "logical", "-p", "tests.faults.named"]
    ended = pytest.main(["-q", *parallel, *TESTS, *arguments], plugins=[recorder])
    print(recorder.text())
    whole = set(recorder.counts) <= {PASSED}
    return 0 if whole and ended == pytest.ExitCode.OK else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
