"""Files a page at a time, so that memory is bounded by a page.

No cursor and no transaction stays open between pages: a reader on a slow line would otherwise hold back the
vacuum of the counters, which every request updates. A page starts after the last id of the one before, and so can a
file that broke off. The server joins a page's lines, so that the process has one object a page.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from billing.exports.columns import Layout
from billing.exports.csv_file import CsvFile
from billing.exports.focus import VERSIONS, focus
from billing.exports.generations import GENERATIONS
from billing.exports.parquet_file import ParquetFile
from billing.exports.xlsx_file import XlsxFile
from billing.models import Usage

PAGE = 1000  # generations
File = CsvFile | XlsxFile | ParquetFile
FORMATS: dict[str, type[CsvFile] | type[XlsxFile] | type[ParquetFile]] = {
    one.name: one for one in (CsvFile, XlsxFile, ParquetFile)
}
FOCUS = tuple(f"focus-{version}" for version in VERSIONS)
LAYOUTS = ("generations", *FOCUS)


def layout_of(name: str) -> Layout:
    """The layout of a name, one of `LAYOUTS`."""
    return focus(name.removeprefix("focus-")) if name in FOCUS else GENERATIONS


def joined(rows: str) -> str:
    """SQL of a page, from that of its rows (id, line): its text, how many generations, and the last one's id."""
    return (
        "select coalesce(string_agg(p.line, '' order by p.id), ''), count(*), (array_agg(p.id order by p.id desc))[1]"  # noqa: S608
        f" from ({rows}) p(id, line)"
    )


def tail_page(layout: Layout, line: str) -> str:
    """SQL of a page of the rows behind a layout's generations, as the SQL `line` writes them: its text, how many they
    are, and the last one's key. Takes `after`, a key, `begin` and `end`, moments, `organization`, NULL for all, and
    `size`.
    """
    assert layout.tail is not None
    return (
        "select coalesce(string_agg(p.line, '' order by p.key), ''), count(*), max(p.key)"  # noqa: S608 - SQL of ours
        f" from (select a.key, {line} from ({layout.tail.rows}) a"
        " where a.key > %(after)s and a.at >= %(begin)s and a.at < %(end)s"
        " and (%(organization)s::uuid is null or a.organization = %(organization)s::uuid)"
        " order by a.key limit %(size)s) p(key, line)"
    )


def tails(layout: Layout, file: File, begin: datetime, end: datetime, organization: UUID | None) -> Iterator[str]:
    """The texts of what comes behind the generations of an organization, or of all (None), of what was made from
    `begin` until before `end`; none where the layout has nothing there.
    """
    if layout.tail is None:
        return
    query, after = tail_page(layout, file.line(layout.tail)), ""
    asked = {"begin": begin, "end": end, "organization": organization, "size": PAGE}
    while True:
        with connection.cursor() as cursor:
            cursor.execute(query, {**asked, "after": after})
            text, count, last = cursor.fetchone()
        if count:
            yield text
        if count < PAGE:
            return
        after = last


class Page(NamedTuple):
    """Lines of so many generations, the last of them `last`."""

    text: str
    generations: int
    last: UUID | None


def pages(generations: QuerySet[Usage], line: str, size: int = PAGE, after: UUID | None = None) -> Iterator[Page]:
    """All of `generations`, oldest first, as the SQL `line` writes them. What is settled meanwhile may be missing."""
    ordered = generations.order_by("id").annotate(line=RawSQL(line, [])).values_list("id", "line")  # noqa: S611, of ours
    with connection.cursor() as cursor:
        cursor.execute("set jit = off")  # a page is over before its expressions are compiled
    while True:
        try:
            rows, params = (ordered if after is None else ordered.filter(id__gt=after))[:size].query.sql_with_params()
        except EmptyResultSet:  # there can be none
            return
        with connection.cursor() as cursor:
            cursor.execute(joined(rows), params)
            page = Page(*cursor.fetchone())
        if page.generations:
            yield page
        if page.generations < size:
            return
        after = page.last


def chunks(
    generations: QuerySet[Usage], file: File, layout: Layout, size: int = PAGE, after: UUID | None = None
) -> Iterator[bytes]:
    """A file of all of `generations`, in pieces that are not empty.

    `after`: the rest of a CSV file whose last whole line was that generation's; it has no header.
    """
    if after is None and (piece := file.begin()):
        yield piece
    for page in pages(generations, layout.text(file.line(layout)), size, after):
        if piece := file.page(page.text):
            yield piece
    if piece := file.end():
        yield piece
