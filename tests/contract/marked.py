"""A pytest plugin for each process that runs tests: keeps those marked `row`, and has their reports name their rows."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the marked tests alone to run."""
    marked: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        ids = tuple(id for mark in item.iter_markers("row") for id in mark.args)
        item.user_properties.append(("rows", ids))
        (marked if ids else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = marked
