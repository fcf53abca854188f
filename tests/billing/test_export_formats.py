"""XLSX and Parquet: every cell is what CSV has, typed, and memory is bounded by a page or a row group."""

import csv
import io
import subprocess
import sys
import zipfile
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from billing.exports import xlsx_file
from billing.exports.generations import COLUMNS, GENERATIONS
from billing.exports.pages import FORMATS, chunks
from billing.models import Usage
from tests.console.browser import make_usage
from tests.stage.cast import Tenant
from tests.stage.product import ROOT

AT = datetime(2026, 3, 14, 15, 9, 26, 535897, tzinfo=UTC)
MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
# A formula, marks of XML, what it has no place for, an escape of the format's, line ends, more than a cell may hold.
HOSTILE = [
    "=1+1",
    "<&>\"']]>",
    "a\x01\x0b\x1fb\ufffe\uffff",
    "_x000D_ _xyz",
    "one\r\ntwo\rthree\t",
    "\u00e9\U0001f600",
    "",
]


def made(tenant: Tenant, format: str, page: int = 2) -> bytes:
    """The file of all of `tenant`'s generations."""
    found = Usage.objects.filter(organization=tenant.organization.pk)
    return b"".join(chunks(found, FORMATS[format](GENERATIONS), GENERATIONS, page))


def parsed(xml: bytes) -> ElementTree.Element:
    """The element of a part of a workbook."""
    return ElementTree.fromstring(xml)  # noqa: S314 - of our own making


def sheets(content: bytes) -> dict[str, list[list[tuple[str, str, str]]]]:
    """The rows of each sheet by its name, as a reader of the format sees them: type, style and text of cells."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        assert book.testzip() is None
        kinds = parsed(book.read("[Content_Types].xml"))
        parts = {one.get("PartName"): one.get("ContentType") for one in kinds if one.get("PartName")}
        assert {f"/{name}" for name in book.namelist() if name.startswith("xl/") and "_rels" not in name} == set(parts)
        leads = {one.get("Id"): one.get("Target") for one in parsed(book.read("xl/_rels/workbook.xml.rels"))}
        found = {}
        for sheet in parsed(book.read("xl/workbook.xml")).iter(f"{MAIN}sheet"):
            target = leads[sheet.get("{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id")]
            rows = parsed(book.read(f"xl/{target}")).iter(f"{MAIN}row")
            found[sheet.get("name", "")] = [
                [(cell.get("t", "n"), cell.get("s", "0"), "".join(cell.itertext())) for cell in row] for row in rows
            ]
        return found


def test_parquet_has_every_column_typed_and_exact(alice: Tenant) -> None:
    usage = make_usage(
        alice,
        AT,
        end_user="=1+1",
        app="",
        metadata={"a": 'b\r\n"c'},
        charge=Decimal("123456789012.000000000001"),
        provider_cost=None,
        duration_ms=7,
    )
    plain = make_usage(alice, AT + timedelta(seconds=1), app=None, stream=False)
    table = pq.read_table(io.BytesIO(made(alice, "parquet")))
    assert table.column_names == list(COLUMNS)
    types = {name: table.schema.field(name).type for name in COLUMNS}
    assert types["charge"] == types["provider_cost"] == types["overrun"] == pa.decimal128(24, 12)
    assert types["created_at"] == pa.timestamp("us", "UTC")
    assert (types["prompt_tokens"], types["stream"], types["id"]) == (pa.int64(), pa.bool_(), pa.string())
    assert not table.schema.field("id").nullable and table.schema.field("charge").nullable
    one, other = table.to_pylist()
    assert (one["id"], one["charge"], one["provider_cost"]) == (usage.pk.hex, usage.charge, None)
    assert (one["created_at"], one["end_user"], one["app"], one["stream"]) == (AT, "=1+1", "", True)
    assert (one["metadata"], one["duration_ms"], one["ttft_ms"]) == ('{"a": "b\\r\\n\\"c"}', 7, None)
    assert (other["id"], other["charge"], other["app"], other["stream"]) == (plain.pk.hex, plain.charge, None, False)


def test_parquet_goes_out_a_row_group_at_a_time(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("billing.exports.parquet_file.GROUP_BYTES", 1500)
    ids = [make_usage(alice, AT + timedelta(seconds=n)).pk.hex for n in range(9)]
    found = Usage.objects.filter(organization=alice.organization.pk)
    file = FORMATS["parquet"](GENERATIONS)
    pieces = list(chunks(found, file, GENERATIONS, 1))
    whole = pq.ParquetFile(io.BytesIO(b"".join(pieces)))
    assert whole.metadata.num_row_groups == 3 and len(pieces) == 4
    assert whole.read().column("id").to_pylist() == ids
    assert file.kept == 0


def test_no_rows_are_a_file(alice: Tenant) -> None:
    table = pq.read_table(io.BytesIO(made(alice, "parquet")))
    assert (table.num_rows, table.column_names) == (0, list(COLUMNS))
    (rows,) = sheets(made(alice, "xlsx")).values()
    assert [[text for _, _, text in row] for row in rows] == [list(COLUMNS)]


def test_a_workbook_s_cells_are_typed(alice: Tenant) -> None:
    usage = make_usage(alice, AT, charge=Decimal("123456.000000000001"), provider_cost=None, metadata={"a": "=<&>"})
    (titles, cells) = sheets(made(alice, "xlsx"))["generations"]
    row = dict(zip([text for _, _, text in titles], cells, strict=True))
    assert row["id"] == ("inlineStr", "0", usage.pk.hex)
    assert row["charge"] == ("n", "0", "123456.000000000001")  # all digits; a spreadsheet keeps fifteen
    assert row["provider_cost"] == ("n", "0", "")
    assert row["prompt_tokens"] == ("n", "0", "1000")
    assert row["stream"] == ("b", "0", "1")
    assert row["metadata"] == ("inlineStr", "0", '{"a": "=<&>"}')
    kind, style, days = row["created_at"]
    assert (kind, style) == ("n", "1")
    assert abs(datetime(1899, 12, 30, tzinfo=UTC) + timedelta(days=float(days)) - AT) < timedelta(milliseconds=1)


def test_no_text_breaks_a_workbook(alice: Tenant) -> None:
    for n, text in enumerate([*HOSTILE, "\U0001f600" * 40_000]):
        make_usage(alice, AT + timedelta(seconds=n), end_user=text)
    (_, *rows) = sheets(made(alice, "xlsx"))["generations"]
    shown = [row[COLUMNS.index("end_user")] for row in rows]
    assert {kind for kind, _, _ in shown} == {"inlineStr"}
    assert [text for _, _, text in shown] == [
        "=1+1",
        "<&>\"']]>",
        "ab",
        "_x005F_x000D_ _xyz",
        "one\r\ntwo\rthree\t",
        "\u00e9\U0001f600",
        "",
        "\U0001f600" * xlsx_file.MOST_CHARACTERS,
    ]


def test_a_full_sheet_is_followed_by_another(alice: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_file, "MOST_ROWS", 3)
    ids = [make_usage(alice, AT + timedelta(seconds=n)).pk.hex for n in range(5)]
    found = sheets(made(alice, "xlsx", 1))
    assert list(found) == ["generations", "generations 2", "generations 3"]
    assert [[row[0][2] for row in rows] for rows in found.values()] == [
        ["id", *ids[:2]],
        ["id", *ids[2:4]],
        ["id", ids[4]],
    ]


def said(value: Any) -> str:
    """A value as CSV has it."""
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


@pytest.mark.parametrize("format", ["xlsx", "parquet"])
def test_the_same_rows_are_the_same_file(alice: Tenant, format: str) -> None:
    make_usage(alice, AT)
    assert made(alice, format) == made(alice, format)


def test_all_formats_say_the_same(alice: Tenant) -> None:
    for n in range(3):
        make_usage(alice, AT + timedelta(hours=n), charge=Decimal(n) / 8, ttft_ms=n or None)
    lines = list(csv.DictReader(io.StringIO(made(alice, "csv").decode(), newline="")))
    (titles, *cells) = sheets(made(alice, "xlsx"))["generations"]
    names = [text for _, _, text in titles]
    columns: list[dict[str, Any]] = pq.read_table(io.BytesIO(made(alice, "parquet"))).to_pylist()
    assert len(lines) == len(cells) == len(columns) == 3
    times, texts = {"created_at", "settled_at"}, {"id", "model", "organization_slug", "charge", "ttft_ms", "metadata"}
    assert len(names) == len(COLUMNS) and times < set(names)
    for line, row, column in zip(lines, cells, columns, strict=True):
        for name in texts:
            (_, _, text) = row[names.index(name)]
            assert text == line[name]
            assert ("" if column[name] is None else said(column[name])) == line[name]
        for name in times:
            assert f"{column[name]:%Y-%m-%dT%H:%M:%S.%fZ}" == line[name]


def test_nothing_but_parquet_reads_pyarrow() -> None:
    """It takes a hundred megabytes, which no gateway needs that makes no such file."""
    code = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'gateway.settings'; django.setup();"
        "import gateway.urls, billing.exports.pages; sys.exit('pyarrow' in sys.modules or 'fpdf' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
