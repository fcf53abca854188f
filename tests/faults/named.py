"""A pytest plugin for each process that runs tests: has each report say which cell of the table its test is."""

import pytest

from tests.faults.promises import Cell


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Names the cell that each test is."""
    for item in items:
        cell = (
            item.callspec.params.get("cell")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(cell, Cell):
            told = cell.row.name, cell.row.promise, f"{cell.form}, {cell.company}"
        else:
            told = item.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " "), "", ""
        item.user_properties.append(("cell", told))
