"""python -m tests.restarts: 20 rolling restarts of each kind, and what came of them. Arguments are pytest's."""

import os
import sys

import pytest

WHOLE = {"RESTARTS": "20", "RESTARTS_RATE": "60", "RESTARTS_STREAMS": "100"}

if __name__ == "__main__":
    for name, value in WHOLE.items():
        os.environ.setdefault(name, value)
    sys.exit(pytest.main(["-q", "-s", "tests/restarts", *sys.argv[1:]]))
