"""Reads rows.toml: what each row promises, what becomes of it, and who owns what is not served yet."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

FILE = Path(__file__).with_name("rows.toml")
LAST = 397


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `reason`: why it does not apply. `owner`: the later work that serves it. Neither: tests prove it."""

    id: str
    group: str
    title: str
    promise: str
    reason: str = ""
    owner: str = ""

    @property
    def tested(self) -> bool:
        """Whether tests must prove it."""
        return not (self.reason or self.owner)


@cache
def rows() -> Mapping[str, Row]:
    """All rows by id, in order. Raises ValueError when one is missing, stands twice, or has two fates."""
    groups = tomllib.loads(FILE.read_text())
    if not groups.pop("owners").keys() >= groups["later"].keys():
        raise ValueError("an owner of rows does not say why they are not served")
    reasons = groups.pop("not_applicable")
    owners = [(id, owner) for owner, ids in groups.pop("later").items() for id in ids]
    found: dict[str, Row] = {}
    for group, entries in groups.items():
        title = entries.pop("title")
        for id, promise in entries.items():
            if id in found:
                raise ValueError(f"{id} stands twice")
            owner = "".join(name for row, name in owners if row == id)
            found[id] = Row(id, group, title, promise, reasons.get(id, ""), owner)
    fates = [*reasons, *(id for id, _ in owners)]
    if list(found) != [f"B{number:03}" for number in range(1, LAST + 1)]:
        raise ValueError("the rows are not B001 to B397 in order")
    if len(fates) != len(set(fates)) or not found.keys() >= set(fates):
        raise ValueError("a fate is of no row, or a row has two")
    return MappingProxyType(found)


@cache
def owners() -> Mapping[str, str]:
    """Why the rows of each later work are not served yet."""
    return MappingProxyType(tomllib.loads(FILE.read_text())["owners"])
