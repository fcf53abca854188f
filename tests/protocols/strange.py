"""Values with one inside of them replaced by a strange one, for tests of what comes from others."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

STRANGE: tuple[Any, ...] = (None, 7, -1.5, True, "x", "", [], {}, [7], ["x"], {"type": "x"}, [{"type": 7}])


def changed(value: Any) -> Iterator[Any]:
    """The value with one inside of it, or itself, replaced by each strange one in turn."""
    for path in paths(value):
        for strange in STRANGE:
            made = deepcopy(value)
            holder = made
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = deepcopy(strange)
            yield made


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if type(value) is dict else enumerate(value) if type(value) is list else ()
    for name, inner in members:
        yield (*path, name)
        yield from paths(inner, (*path, name))
