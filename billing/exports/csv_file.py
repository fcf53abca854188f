"""CSV (RFC 4180, UTF-8), whose lines the server writes.

When the process wrote them, it made an object and then a text of each of forty values: 100 us of its time a row, 9,500
rows/s.
"""

from collections.abc import Iterable

from billing.exports.columns import Column, Kind, Layout

# A spreadsheet takes such a text for a formula (OWASP ASVS 5.0, 1.2.10); some skip white space and marks before it, and
# East Asian versions read the full-width forms as the plain ones. White space is told by its code points: what a server
# counts as such depends on its locale.
_BLANK = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff"
FORMULA = rf"^(?:[\t\r\n]|[{_BLANK}]*[-=+@\uff1d\uff0b\uff0d\uff20])"


def text_cell(value: str) -> str:
    """SQL of a cell of the text that the SQL `value` is: quoted, with a leading apostrophe where a spreadsheet would
    see a formula. What begins with a digit or a letter is none, and no regular expression looks at it.
    """
    plain = f"ascii({value}) between 65 and 122 or ascii({value}) between 48 and 57"
    return (
        f"""case when {plain} or {value} !~ '{FORMULA}' then '"' else '"''' end || replace({value}, '"', '""') || '"'"""
    )


def cell(column: Column, *, guarded: bool = True) -> str:
    """SQL of a cell. Numbers stay numbers, without exponent; NULL is empty; times are UTC; an object is JSON.

    `guarded`: no text is a formula.
    """
    value = column.value
    match column.kind:
        case Kind.BOOLEAN | Kind.INTEGER | Kind.DECIMAL:
            made = f"({value})::text"
        case Kind.CODE:
            made = f"""'"' || {value} || '"'"""
        case Kind.TIME:
            made = f"""'"' || to_char({value} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'"""
        case Kind.SECOND:
            made = f"""'"' || to_char({value} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || '"'"""
        case Kind.TEXT if guarded:
            made = text_cell(f"({value})")
        case _:
            made = f"""'"' || replace(({value})::text, '"', '""') || '"'"""
    return f"coalesce({made}, '')" if column.null else made


def header(columns: Iterable[str]) -> bytes:
    """The first line of a file: its columns' names."""
    return (",".join(f'"{name}"' for name in columns) + "\r\n").encode()


def line(layout: Layout, *, guarded: bool = True) -> str:
    """SQL of a line."""
    return " || ',' || ".join(cell(column, guarded=guarded) for column in layout.columns) + r" || E'\r\n'"


class CsvFile:
    """A file as it is written."""

    name, suffix, media = "csv", "csv", "text/csv; charset=utf-8"
    is_text = True
    kept = 0  # bytes that it has and gave nobody yet

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    line = staticmethod(line)

    def begin(self) -> bytes:
        """Its first line: the columns' names."""
        return header(column.name for column in self._layout.columns)

    def page(self, text: str) -> bytes:
        """What goes out for lines that the server has written."""
        return text.encode()

    def end(self) -> bytes:
        """What goes out last."""
        return b""
