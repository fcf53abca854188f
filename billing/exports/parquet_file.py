"""Parquet: the lines that the server writes as CSV, read into columns by pyarrow; a row group at a time."""

import io
from typing import TYPE_CHECKING

from billing.exports import csv_file
from billing.exports.columns import Kind, Layout
from billing.exports.pieces import Pieces

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_BYTES = 1 << 24  # of lines: so much is kept until a row group is written
COMPRESSION = "zstd"


def _types() -> "dict[Kind, pa.DataType]":
    # A hundred megabytes of memory: read by who writes such a file alone.
    import pyarrow as pa

    return {
        Kind.TEXT: pa.string(),
        Kind.CODE: pa.string(),
        Kind.JSON: pa.string(),
        Kind.INTEGER: pa.int64(),
        Kind.DECIMAL: pa.decimal128(24, 12),
        Kind.BOOLEAN: pa.bool_(),
        Kind.TIME: pa.timestamp("us", "UTC"),
        Kind.SECOND: pa.timestamp("s", "UTC"),
    }


class ParquetFile:
    """A file as it is written. Texts are as they are: nothing here is a formula."""

    name, suffix, media = "parquet", "parquet", "application/vnd.apache.parquet"
    is_text = False

    def __init__(self, layout: Layout) -> None:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        types = _types()
        self._csv = pyarrow.csv
        self._schema = pa.schema([pa.field(column.name, types[column.kind], column.null) for column in layout.columns])
        self._read = pyarrow.csv.ParseOptions(newlines_in_values=True)
        self._convert = pyarrow.csv.ConvertOptions(
            column_types=self._schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._sink = Pieces()
        self._kept: list[bytes] = []
        self.kept = 0  # bytes that it has and gave nobody yet
        self._writer = pyarrow.parquet.ParquetWriter(self._sink, self._schema, compression=COMPRESSION)

    @staticmethod
    def line(layout: Layout) -> str:
        """SQL of a line."""
        return csv_file.line(layout, guarded=False)

    def begin(self) -> bytes:
        """The first bytes."""
        return self._sink.take()

    def page(self, text: str) -> bytes:
        """What goes out for lines that the server has written: nothing, until they make a row group."""
        self._kept.append(text.encode())
        self.kept += len(self._kept[-1])
        if self.kept >= GROUP_BYTES:
            self._group()
        return self._sink.take()

    def end(self) -> bytes:
        """What goes out last: the rest, and where all of it is. Without it there is no file."""
        self._group()
        self._writer.close()
        return self._sink.take()

    def _group(self) -> None:
        lines, self._kept, self.kept = b"".join(self._kept), [], 0
        if lines:
            read = self._csv.ReadOptions(column_names=self._schema.names, block_size=len(lines) + 1, use_threads=False)
            table = self._csv.read_csv(io.BytesIO(lines), read, self._read, self._convert)
            self._writer.write_table(table.cast(self._schema))
