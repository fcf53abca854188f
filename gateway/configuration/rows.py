"""Bringing rows to what a configuration file says, and the difference that makes, in words."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Generic, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import models

from accounts.exact import plain
from billing.models import Rate, Tariff, TariffVersion
from gateway.configuration.schema import Entry, Noun
from routing.models import Model, Offer

M = TypeVar("M", bound=models.Model)

# What a catalog has thousands of. The others' `save` does more than save.
IN_BULK = (Tariff, TariffVersion, Rate, Model, Offer)


@dataclass(slots=True)
class Difference:
    """What changed: a line a thing, in the order it was done; notes; and the new keys' secrets by key."""

    lines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    secrets: list[tuple[str, str]] = field(default_factory=list)

    def added(self, label: str, detail: str = "") -> None:
        """Notes a new thing."""
        self.lines.append(f"+ {label}: {detail}" if detail else f"+ {label}")

    def changed(self, label: str, details: Iterable[str]) -> None:
        """Notes a changed thing."""
        self.lines.append(f"~ {label}: {', '.join(details)}")

    def removed(self, label: str) -> None:
        """Notes a removed thing."""
        self.lines.append(f"- {label}")


@dataclass(slots=True)
class Wanted(Generic[M]):
    """A row as it is, and what the file wants of it. A fresh row, unsaved, holds what tells it from others.

    `set_fields` are fields the caller set itself, since no plain comparison would do; `set_text` says how.
    """

    entry: Entry
    label: str
    row: M
    fresh: bool
    columns: dict[str, Any]
    detail: str = ""
    set_fields: tuple[str, ...] = ()
    set_text: tuple[str, ...] = ()

    def merge(self) -> tuple[list[str], list[str]]:
        """Sets the columns that differ; gives their names and, for people, what became of them."""
        names, texts = list(self.set_fields), list(self.set_text)
        for name, value in self.columns.items():
            before = getattr(self.row, name)
            if before != value:
                setattr(self.row, name, value)
                names.append(name)
                texts.append(f"{name} {shown(before)} -> {shown(value)}")
        return names, texts

    def validate_fields(self) -> None:
        """Raises `ConfigurationError` for a value its column does not take. References were looked up."""
        references = {column.name for column in self.row._meta.concrete_fields if column.is_relation}
        self._placing_errors(lambda: self.row.clean_fields(exclude=references))

    def validate_whole(self) -> None:
        """Raises `ConfigurationError` for columns that do not go together, or not with other rows."""
        self._placing_errors(self.row.clean)

    def _placing_errors(self, check: Callable[[], None]) -> None:
        try:
            check()
        except ValidationError as error:
            errors = error.error_dict if hasattr(error, "error_dict") else {NON_FIELD_ERRORS: error.error_list}
            name, (first, *_) = next(iter(errors.items()))
            missing = first.code in ("blank", "null") and name not in self.entry.values
            message = f"is needed for a new {self.label.split()[0]}" if missing else first.messages[0]
            known = name in self.entry.places or missing
            raise (self.entry.wrong(name, message) if known else self.entry.at.wrong(message)) from None


def by_slug(table: type[M], noun: Noun, entries: Sequence[Entry]) -> list[Wanted[M]]:
    """What the file wants of a table's rows that are told apart by their slug alone, the entries' names."""
    rows = table._default_manager.filter(slug__in=[entry.name for entry in entries])
    found = {row.slug: row for row in rows}  # type: ignore[attr-defined]  # M has one here
    return [
        Wanted(
            entry,
            f"{table._meta.verbose_name} {entry.name}",
            row=found.get(entry.name) or begun(table, entry.name),
            fresh=entry.name not in found,
            columns=entry.column_values(noun),
        )
        for entry in entries
    ]


def begun(table: type[M], slug: str) -> M:
    """A fresh row, which people call by its slug unless the file says another name."""
    return table(slug=slug, name=slug)


def write(wanted: Sequence[Wanted[M]], difference: Difference) -> None:
    """Creates the fresh rows and changes those that differ, all of one table, in the caller's transaction.

    Every value goes through its column's validators first. What concerns several rows is checked after
    writing, so that the file's own rows see each other; uniqueness is the database's.
    """
    touched: list[Wanted[M]] = []
    fresh: list[Wanted[M]] = []
    for item in wanted:
        names, texts = item.merge()
        if item.fresh:
            item.validate_fields()
            fresh.append(item)
            difference.added(item.label, item.detail)
        elif names:
            item.validate_fields()
            item.row.save(update_fields=names)
            touched.append(item)
            difference.changed(item.label, texts)
    if fresh and type(fresh[0].row) in IN_BULK:
        table: models.Manager[M] = type(fresh[0].row)._default_manager
        table.bulk_create([item.row for item in fresh], batch_size=1000)
    else:
        for item in fresh:
            item.row.save(force_insert=True)
    for item in (*fresh, *touched):
        item.validate_whole()


def shown(value: Any) -> str:
    """A value as a difference shows it."""
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return plain(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(str, value))}]"
        case str():
            return value if value and value.isprintable() and " " not in value else repr(value)
        case float():
            return f"{value:g}"
        case _:
            return str(value)
