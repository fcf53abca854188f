"""python -m tests.chaos: 5,000 answers and 20 kills (CHAOS=full: 50,000 and 150). Arguments are pytest's."""

import os
import sys

import pytest

SIZES = {"": ("5000", "20"), "full": ("50000", "150")}

if __name__ == "__main__":
    size = os.environ.get("CHAOS", "")
    if size not in SIZES:
        sys.exit("CHAOS is full, or not there at all.")
    for name, value in zip(("CHAOS_ANSWERS", "KILLS"), SIZES[size], strict=True):
        os.environ.setdefault(name, value)
    arguments = ["-q", "-s", "--timeout=7200", "tests/chaos", *sys.argv[1:]]
    status = pytest.main(arguments)
    from tests.chaos.test_chaos import told  # by pytest, which rewrites it, before by anybody else

    print(*told, sep="\n")
    sys.exit(status)
