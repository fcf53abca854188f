"""What a file's rows are made of: columns, each an SQL value of a kind, in a layout."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Self


class Kind(Enum):
    """What a column holds, and so how each format writes it."""

    TEXT = auto()  # of somebody else's
    CODE = auto()  # text of ours: letters, digits, spaces and a few marks that need no care
    INTEGER = auto()
    DECIMAL = auto()  # at most 24 digits, twelve of them decimals
    BOOLEAN = auto()
    TIME = auto()  # to the microsecond
    SECOND = auto()  # a time in whole seconds
    JSON = auto()


@dataclass(frozen=True, slots=True)
class Column:
    """`value` is SQL, of a row of `billing_usage` and of what the layout has beside it; `null`: it may be NULL."""

    name: str
    kind: Kind
    value: str
    null: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a file. A generation is a row of it, or several: those of the subquery `rows`, ordered by its `n`.

    The first column is the generation's id, or the last one where there may be several rows: by it a file that broke
    off goes on. `sums` are the columns that a manifest adds up. `tail` are further rows, which are of no generation and
    come last: the same columns, of the subquery `rows`, with its `key`, moment `at` and `organization`.
    """

    name: str
    columns: tuple[Column, ...]
    sums: tuple[str, ...]
    rows: str | None = None
    tail: "Layout | None" = None

    def without(self, names: Collection[str]) -> Self:
        """The same less some columns."""
        return replace(
            self,
            columns=tuple(column for column in self.columns if column.name not in names),
            sums=tuple(name for name in self.sums if name not in names),
            tail=self.tail and self.tail.without(names),
        )

    def text(self, line: str) -> str:
        """SQL of all that a generation is in a file, from the SQL of a line."""
        if self.rows is None:
            return line
        return f"coalesce((select string_agg({line}, '' order by n) from ({self.rows}) r), '')"  # noqa: S608 - SQL of ours


def literal(text: str) -> str:
    """SQL of a text, for a statement that has parameters."""
    return "'" + text.replace("'", "''").replace("%", "%%") + "'"
