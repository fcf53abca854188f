"""XLSX (ECMA-376), whose rows the server writes; packed as they come, so that nothing of the file is kept.

Neither a file on disk nor an object a cell: what a library for such files takes for a million rows of forty cells is
minutes of a process that relays streams. Texts are inline and typed as such, so none is a formula; an entry's sizes
stand behind it, as Java's writers of such files have them.

An amount is a number with all its digits. A spreadsheet keeps fifteen of them: dollars below 1,000 to the last of
twelve decimals. What must be exact is CSV or Parquet, and the manifest.
"""

import zipfile
from xml.sax.saxutils import escape

from billing.exports.columns import Column, Kind, Layout
from billing.exports.pieces import Pieces

MOST_ROWS = 1_000_000  # of a sheet; 1,048,576 are the format's
MOST_BYTES = 3 << 30  # of a sheet: past 4 GiB an entry needs another form, which not everybody reads
MOST_CHARACTERS = 16_383  # of a cell; the format has 32,767 halves of them
LEVEL = 1

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
# Of style 1: a time. Style 0 is none.
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><numFmts count="1">'
    '<numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss.000"/></numFmts>'
    '<fonts count="1"><font><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="2"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)

# Characters that XML 1.0 has no place for. A carriage return would become a line's end.
_NOWHERE = "E'" + "".join(f"\\u{code:04x}" for code in (*range(1, 9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF)) + "'"
# What needs care at all: few texts have any of it, and to look costs a hundredth of taking it out.
_CARE = r"'[\u0001-\u0008\u000b-\u001f&<>\ufffe\uffff]|_x'"
# How the format itself would write a character; whoever means these letters says so.
_ESCAPE = r"'_(x[0-9A-Fa-f]{4}_)', '_x005F_\1', 'g'"


def _text(value: str) -> str:
    value = f"({value})::text"
    cut = f"translate(left({value}, {MOST_CHARACTERS}), {_NOWHERE}, '')"
    made = f"replace(replace(replace(replace({cut}, '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), E'\\r', '&#13;')"
    plain = f"octet_length({value}) <= {MOST_CHARACTERS} and {value} !~ {_CARE}"
    return f"case when {plain} then {value} else regexp_replace({made}, {_ESCAPE}) end"


def _inline(text: str) -> str:
    return f"""'<c t="inlineStr"><is><t xml:space="preserve">' || {text} || '</t></is></c>'"""


def cell(column: Column) -> str:
    """SQL of a cell. Times are days since the end of 1899, as such files have them, UTC."""
    value = column.value
    match column.kind:
        case Kind.BOOLEAN:
            made = f"""'<c t="b"><v>' || ({value})::int::text || '</v></c>'"""
        case Kind.INTEGER | Kind.DECIMAL:
            made = f"'<c><v>' || ({value})::text || '</v></c>'"
        case Kind.TIME | Kind.SECOND:
            days = f"round(extract(epoch from {value}) / 86400 + 25569, 10)"
            made = f"""'<c s="1"><v>' || {days}::text || '</v></c>'"""
        case Kind.CODE:
            made = _inline(value)
        case _:
            made = _inline(_text(value))
    return f"coalesce({made}, '<c/>')" if column.null else made


class XlsxFile:
    """A file as it is written."""

    name, suffix = "xlsx", "xlsx"
    media = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    is_text = False
    kept = 0

    def __init__(self, layout: Layout) -> None:
        cells = "".join(f'<c t="inlineStr"><is><t>{escape(column.name)}</t></is></c>' for column in layout.columns)
        self._title = layout.name
        self._head = (
            f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
            '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews>'
            f"<sheetData><row>{cells}</row>"
        ).encode()
        self._sink = Pieces()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)
        self._sheets = self._rows = self._bytes = 0

    @staticmethod
    def line(layout: Layout) -> str:
        """SQL of a row."""
        return "'<row>' || " + " || ".join(map(cell, layout.columns)) + " || '</row>'"

    def begin(self) -> bytes:
        """The first bytes."""
        self._open()
        return self._sink.take()

    def page(self, text: str) -> bytes:
        """What goes out for rows that the server has written; a further sheet begins where one is full."""
        rows, lines = text.count("<row>"), text.encode()
        if self._rows + rows > MOST_ROWS or self._bytes + len(lines) > MOST_BYTES:
            self._close()
            self._open()
        self._rows += rows
        self._bytes += len(lines)
        self._sheet.write(lines)
        return self._sink.take()

    def end(self) -> bytes:
        """What goes out last: what else a workbook has. Without it there is no file."""
        self._close()
        numbers = range(1, self._sheets + 1)
        sheets = "".join(
            f'<sheet name="{self._title}{f" {number}" if number > 1 else ""}" sheetId="{number}" r:id="r{number}"/>'
            for number in numbers
        )
        kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
        parts = "".join(
            f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{kind}.worksheet+xml"/>'
            for number in numbers
        )
        leads = "".join(
            f'<Relationship Id="r{number}" Type="{_RELATIONS}/worksheet" Target="worksheets/sheet{number}.xml"/>'
            for number in numbers
        )
        self._add(
            "xl/workbook.xml", f'<workbook xmlns="{_MAIN}" xmlns:r="{_RELATIONS}"><sheets>{sheets}</sheets></workbook>'
        )
        self._add("xl/styles.xml", _STYLES)
        self._add(
            "xl/_rels/workbook.xml.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships">{leads}'
            f'<Relationship Id="styles" Type="{_RELATIONS}/styles" Target="styles.xml"/></Relationships>',
        )
        self._add(
            "_rels/.rels",
            f'<Relationships xmlns="{_PACKAGE}/relationships">'
            f'<Relationship Id="book" Type="{_RELATIONS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        )
        self._add(
            "[Content_Types].xml",
            f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="xml" ContentType="application/xml"/>'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            f'<Override PartName="/xl/workbook.xml" ContentType="{kind}.sheet.main+xml"/>{parts}'
            f'<Override PartName="/xl/styles.xml" ContentType="{kind}.styles+xml"/></Types>',
        )
        self._zip.close()
        return self._sink.take()

    def _open(self) -> None:
        self._sheets, self._rows, self._bytes = self._sheets + 1, 1, len(self._head)
        self._sheet = self._zip.open(_entry(f"xl/worksheets/sheet{self._sheets}.xml"), "w")
        self._sheet.write(self._head)

    def _close(self) -> None:
        self._sheet.write(b"</sheetData></worksheet>")
        self._sheet.close()

    def _add(self, name: str, content: str) -> None:
        self._zip.writestr(_entry(name), _HEAD + content)


def _entry(name: str) -> zipfile.ZipInfo:
    """Of no date, so that the same rows are the same file."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry
