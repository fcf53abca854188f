"""python -m tests.matrix: prints what each role may do, proves it and the tenant matrix whole, and counts both.

Arguments are pytest's. The last line is `N passed, N failed`; ends with 1 when a test failed, or none ran.
"""

import os
import sys

import pytest

NAMES = ("operator", "finance", "auditor", "owner", "developer", "auditor")


class Counter:
    """Counts what passed and what failed."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest."""
        if report.failed:
            self.failed += 1
        elif report.when == "call" and report.passed:
            self.passed += 1


def table() -> str:
    """The role matrix, as text."""
    from accounts.access.table import RULES
    from accounts.roles import Office, Role

    lines = [f"{'':24}{'installation':32}organization", f"{'':24}" + "".join(f"{name:11}" for name in NAMES)]
    for label, rule in RULES.items():
        rights = [*(rule.offices[one] for one in Office), *(rule.roles[one] for one in Role)]
        shown = ("".join(verb for verb in "vacd" if verb in given) or "-" for given in rights)
        lines.append(f"{label:24}" + "".join(f"{one:11}" for one in shown))
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: list[str]) -> int:
    """The exit status."""
    os.environ["MATRIX"] = "whole"  # `make test` has about a sixth
    counter = Counter()
    ended = pytest.main(["-q", "-n", "logical", "tests/matrix", *arguments], plugins=[counter])
    print("v view, a add, c change, d delete; of an organization its own rows, of a developer their own\n")
    print(table())
    print(f"\n{counter.passed} passed, {counter.failed} failed")
    return 0 if ended == pytest.ExitCode.OK and counter.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
