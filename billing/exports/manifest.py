"""What a file on disk holds: its manifest, and where one that broke off goes on."""

import csv
import hashlib
import os
import re
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID
from xml.etree import ElementTree

from billing.exports.columns import Layout

# Where a row begins with a generation's id, or ends with it. No cell has such a place: quotes are doubled there.
BEGINS = re.compile(rb'\r\n"([0-9a-f]{32})","')
ENDS = re.compile(rb',"([0-9a-f]{32})"\r\n')
TAIL = 1 << 24  # bytes: more than two generations
CELL, ROW = (f"{{http://schemas.openxmlformats.org/spreadsheetml/2006/main}}{name}" for name in ("c", "row"))


def resumed(part: Path, layout: Layout) -> UUID | None:
    """Cuts a CSV file that broke off back to its whole generations. Gives the last one's id, after which it goes on, or
    None for the beginning.
    """
    with part.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - TAIL)
        file.seek(start)
        tail = file.read()
        if layout.rows is None:
            found = [(match[1], match.start() + 2) for match in BEGINS.finditer(tail)]
            whole = [(one, end) for (one, _), (_, end) in pairwise(found)]
        else:
            found = [(match[1], match.end()) for match in ENDS.finditer(tail)]
            whole = [one for one in found if one[0] != found[-1][0]]  # the last one may have rows to come
        file.truncate(start + whole[-1][1] if whole else 0)
        return UUID(hex=whole[-1][0].decode()) if whole else None


def manifest(file: Path, layout: Layout, format: str) -> dict[str, Any]:
    """What a whole file holds, read from itself: rows, exact sums of what is known, and how many are not priced."""
    rows, unpriced = 0, 0
    sums = dict.fromkeys(layout.sums, Decimal(0))
    for row in READERS[format](file, layout.sums):
        rows += 1
        unpriced += row[layout.sums[0]] in ("", None)
        for name in layout.sums:
            if row[name] not in ("", None):
                sums[name] += Decimal(row[name])
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    told = {"layout": layout.name, "format": format, "rows": rows, "unpriced": unpriced}
    return told | {name: f"{one:f}" for name, one in sums.items()} | {"sha256": digest}


def _csv(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with file.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines, strict=True)


def _parquet(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as content:
        for batch in content.iter_batches(batch_size=10_000, columns=list(columns)):
            yield from batch.to_pylist()


def _xlsx(file: Path, columns: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    with zipfile.ZipFile(file) as content:
        for name in content.namelist():
            if not name.startswith("xl/worksheets/"):
                continue
            with content.open(name) as sheet:
                places: list[tuple[str, int]] = []
                for _, element in ElementTree.iterparse(sheet):  # noqa: S314 - of our own making
                    if element.tag != ROW:
                        continue
                    texts = ["".join(cell.itertext()) for cell in element]
                    if places:
                        yield {column: texts[place] for column, place in places}
                    else:
                        places = [(column, texts.index(column)) for column in columns]
                    element.clear()


READERS = {"csv": _csv, "parquet": _parquet, "xlsx": _xlsx}
