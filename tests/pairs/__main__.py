"""python -m tests.pairs: runs every pair in every case, prints the table, and writes docs/protocols.md.

Arguments are pytest's. Ends with 1 when a test failed, or did not run.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.pairs.table import Recorder, is_whole, markdown, text

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "protocols.md"
TESTS = [f"tests/pairs/test_{name}.py" for name in ("pairs", "framed", "reasoning", "cuts")]


def main(arguments: list[str]) -> int:
    """The exit status."""
    os.environ["PAIRS"] = "whole"  # `make test` plays about a third
    recorder = Recorder()
    ended = pytest.main(["-q", "-n", "logical", *TESTS, *arguments], plugins=[recorder])
    print(text(recorder))
    if ended != pytest.ExitCode.OK:
        return 1
    if is_whole(recorder):  # a run of some tests alone says nothing about the rest
        DOCUMENT.write_text(markdown(recorder), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
