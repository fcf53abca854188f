"""Files of a provider's bill, read strictly: what is not as it must be is refused with its line, and nothing is kept.

**meterline**, our own form: a CSV file with a header line of `day` (2026-10-31, UTC), `model` (as the provider calls
it) and `cost` (dollars), and of what there is of `credential` (as the console calls it), `calls` (how many), `call`
(the provider's id of a single one; then `calls` is 1), and columns named as the items of a tariff (`input`,
`cached_input`, `output`...), each token in one of them. A day, model, credential and call stand once.

**openai**: the usage dashboard's two CSV exports, completions usage and costs, together. Their columns bear the names
of the fields of `GET /v1/organization/usage/completions` and `GET /v1/organization/costs` in OpenAI's API reference,
and mean the same: `input_tokens` has the cached ones in it and no audio, a bucket is named by its `start_time` in Unix
seconds, `line_item` is a model, a comma and what of it. Usage must be grouped by model, costs by line item. A model is
compared without the date in its name, since the bill names what an alias stood for.

**anthropic**: the Claude Console's two CSV exports, usage and cost, together. Classes of input exclude each other, as
in `GET /v1/organizations/usage_report/messages` of Anthropic's API reference; calls are not counted. Usage names a
model as the API does, with a date, and cost as a person would: compared is a name without its date, its parts in any
order.

The answers of those endpoints are read as well (JSON: a page, or a list of all pages), in place of either file; of
Anthropic's cost that is `GET /v1/organizations/cost_report`, in cents and without keys. Those are documented; the
columns of the dashboards' CSV are described nowhere, and are as exports of 2026 had them. What is not needed is ignored
there, and refused in our own form.
"""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from io import StringIO
from typing import Any, NamedTuple

from billing.bills.gaps import Cell, Side, plus
from billing.pricing import COUNTED, PARTS_OF_INPUT, PARTS_OF_OUTPUT, ZERO

MOST_BYTES = 16 << 20  # a file
MOST_LINES = 200_000
MOST_COLUMNS = 100
MOST_TEXT = 200  # characters of a name
MOST_DAYS = 400
ITEMS = ("input", *PARTS_OF_INPUT, "output", *PARTS_OF_OUTPUT, *COUNTED)

COUNT = re.compile(r"\d{1,15}(?:\.0+)?", re.ASCII)
MONEY = re.compile(r"-?\d{1,12}(?:\.\d{1,40})?(?:[eE]-\d{1,2})?", re.ASCII)
DAY = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ].{1,30})?", re.ASCII)
# What a spreadsheet would take for a formula: no model, credential or call is called so.
FORMULA = re.compile(r"[-=+@\uff1d\uff0b\uff0d\uff20]")
DATED = re.compile(r"(?:-\d{8}|-\d{4}-\d\d-\d\d)\Z", re.ASCII)


class Form(StrEnum):
    """Whose form a bill has."""

    METERLINE = "meterline"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


class BadBill(Exception):
    """A file that is not read. The message names its line."""


class Bill(NamedTuple):
    """What a bill says by cell, and the items that it tells of. `named_calls`, `named_credentials`: whether it does.

    `unnamed`: days and models of which something is of no credential, so that they are compared without.
    """

    cells: Mapping[Cell, Side]
    told: frozenset[str]
    named_calls: bool
    named_credentials: bool
    unnamed: frozenset[tuple[date, str]] = frozenset()

    @property
    def days(self) -> tuple[date, date]:
        """The first and the last one."""
        found = [cell.day for cell in self.cells]
        return min(found), max(found)


Row = tuple[int, Mapping[str, str]]  # its line, from 1, and its cells by column


def read(form: Form, files: Sequence[tuple[str, bytes]]) -> Bill:
    """The bill that is in `files`, each a name and its bytes. Raises BadBill."""
    found: list[tuple[Cell, Side]] = []
    told: set[str] = set()
    kinds: list[str] = []
    for name, data in files:
        try:
            word, header, rows = _table(form, data)
            kind, reader = _reader(form, header)
            kinds.append(kind)
            told |= {item for item, columns in _items(form, kind).items() if set(columns) <= set(header)}
            found += _read(reader, rows, word)
        except BadBill as error:
            raise BadBill(f"{name}: {error}") from None
    wanted = {Form.METERLINE: ["bill"]}.get(form, ["cost", "usage"])
    if sorted(kinds) != wanted:
        raise BadBill(f"A bill in the form {form} is one file each of: {', '.join(wanted)}.")
    if not found:
        raise BadBill("There is nothing in it.")
    # A credential counts only where every file names one for all that it has of a day and a model.
    unnamed = frozenset((cell.day, cell.model) for cell, _ in found if not cell.credential)
    cells: dict[Cell, Side] = {}
    for cell, side in found:
        place = cell._replace(credential="") if (cell.day, cell.model) in unnamed else cell
        cells[place] = plus(cells[place], side) if place in cells else side
    named = any(cell.credential for cell in cells)
    bill = Bill(cells, frozenset(told), any(cell.call for cell in cells), named, unnamed)
    first, last = bill.days
    if (last - first).days >= MOST_DAYS:
        raise BadBill(f"It is of more than {MOST_DAYS} days.")
    return bill


def model_name(form: Form, name: str) -> str:
    """A model's name as it is compared."""
    if form is Form.METERLINE:
        return name
    undated = DATED.sub("", name.strip().lower())
    return undated if form is Form.OPENAI else "-".join(sorted(re.split(r"[-. ]+", undated)))


def _table(form: Form, data: bytes) -> tuple[str, list[str], Iterator[Row]]:
    """A file's header and rows, and what a row of it is called."""
    if len(data) > MOST_BYTES:
        raise BadBill(f"It is larger than {MOST_BYTES >> 20} MiB.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadBill(f"Line {line} is not UTF-8.") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadBill(f"Line {line} has a NUL in it.")
    if form is not Form.METERLINE and text.lstrip()[:1] in ("{", "["):
        return "Result", *_results(form, text)
    reader = csv.reader(StringIO(text, newline=""), strict=True)
    lines = _lines(reader)
    _, header = next(lines, (1, []))
    header = [name.strip() for name in header]
    if not header or len(header) > MOST_COLUMNS or len(set(header)) < len(header):
        raise BadBill("Line 1 is no header: names of columns, each once.")

    def rows() -> Iterator[Row]:
        for count, (number, cells) in enumerate(lines, 1):
            if count > MOST_LINES:
                raise BadBill(f"Line {number}: there are more than {MOST_LINES:,} lines.")
            if len(cells) != len(header):
                raise BadBill(f"Line {number} has {len(cells)} cells, the header {len(header)}.")
            yield number, dict(zip(header, cells, strict=True))

    return "Line", header, rows()


def _results(form: Form, text: str) -> tuple[list[str], Iterator[Row]]:
    """The results in the buckets of an API's answer, as rows of the dashboard's file."""
    try:
        pages = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
        pages = pages if isinstance(pages, list) else [pages]
        buckets = [bucket for page in pages for bucket in page["data"]]
        results = [(bucket, result) for bucket in buckets for result in bucket["results"]]
        rows = [_flat(form, bucket, result) for bucket, result in results[: MOST_LINES + 1]]
        unfinished = not pages or bool(pages[-1].get("has_more"))
    except (ValueError, RecursionError):
        raise BadBill("It is no JSON.") from None
    except (KeyError, TypeError, AttributeError):
        raise BadBill("It has not the form of a page: data, buckets, results.") from None
    if unfinished:
        raise BadBill("Its last page says that there are more: put all of them into one list.")
    if len(rows) > MOST_LINES:
        raise BadBill(f"There are more than {MOST_LINES:,} results.")
    header = list(dict.fromkeys(name for row in rows for name in row))
    if len(header) > MOST_COLUMNS:  # each row has a cell of each
        raise BadBill(f"Its results have more than {MOST_COLUMNS} fields.")
    return header, ((number, {**dict.fromkeys(header, ""), **row}) for number, row in enumerate(rows, 1))


RENAMED = {
    "uncached_input_tokens": "usage_input_tokens_no_cache",
    "cache_read_input_tokens": "usage_input_tokens_cache_read",
    "output_tokens": "usage_output_tokens",
    "api_key_id": "api_key",
}
NESTED = {
    ("amount", "value"): "amount_value",
    ("amount", "currency"): "amount_currency",
    ("cache_creation", "ephemeral_5m_input_tokens"): "usage_input_tokens_cache_write_5m",
    ("cache_creation", "ephemeral_1h_input_tokens"): "usage_input_tokens_cache_write_1h",
    ("server_tool_use", "web_search_requests"): "web_search_count",
}


def _flat(form: Form, bucket: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, str]:
    """A result as a row of the dashboard's file. Raises TypeError, KeyError where it has not the form of one."""
    row = {name: value for name, value in result.items() if isinstance(value, str)}
    for (outer, inner), name in NESTED.items():
        if isinstance(result.get(outer), dict) and isinstance(result[outer].get(inner), str):
            row[name] = result[outer][inner]
    if form is Form.OPENAI:
        return {"start_time": _text(bucket["start_time"]), **row}
    row = {RENAMED.get(name, name): value for name, value in row.items()}
    row["usage_date_utc"] = _text(bucket["starting_at"])
    if "amount" in row:  # in cents
        row["cost_usd"] = f"{Decimal(row['amount']).scaleb(-2):f}" if MONEY.fullmatch(row["amount"]) else row["amount"]
        return {"model": "", "token_type": "", **row}
    return {"model_version": row.pop("model", ""), **row}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _lines(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line that each begins on."""
    while True:
        number = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise BadBill(f"Line {reader.line_num}: {error}.") from None
        if any(cells):
            yield number, cells


def _read(reader: "Reader", rows: Iterator[Row], word: str) -> Iterator[tuple[Cell, Side]]:
    seen: dict[object, int] = {}
    for number, row in rows:
        try:
            read = reader(row)
        except ValueError as error:
            raise BadBill(f"{word} {number}: {error}.") from None
        if read is None:
            continue
        cell, _ = read
        once: object = cell if reader is _ours else tuple(row.values())
        if once in seen:
            raise BadBill(f"{word} {number} repeats {word.lower()} {seen[once]}.")
        seen[once] = number
        yield read


# --- forms -----------------------------------------------------------------------------------------------------------

Reader = Callable[[Mapping[str, str]], tuple[Cell, Side] | None]
OPENAI_USAGE = ("start_time", "model", "num_model_requests", "input_tokens", "output_tokens")
OPENAI_COST = ("start_time", "amount_value", "amount_currency", "line_item")
ANTHROPIC_USAGE = ("usage_date_utc", "model_version", "usage_input_tokens_no_cache", "usage_output_tokens")
ANTHROPIC_COST = ("usage_date_utc", "model", "cost_usd", "token_type")


def _reader(form: Form, header: Sequence[str]) -> tuple[str, Reader]:
    """What file of a form has these columns, and how a row of it is read."""
    kinds: dict[Form, list[tuple[str, tuple[str, ...], Reader]]] = {
        Form.METERLINE: [("bill", ("day", "model", "cost"), _ours)],
        Form.OPENAI: [("cost", OPENAI_COST, _openai_cost), ("usage", OPENAI_USAGE, _openai_usage)],
        Form.ANTHROPIC: [
            ("usage", ANTHROPIC_USAGE, _anthropic_usage),
            ("cost", ANTHROPIC_COST, _anthropic_cost),
        ],
    }
    for kind, columns, reader in kinds[form]:
        if set(columns) <= set(header):
            if form is Form.METERLINE:
                for name in header:
                    if name not in ("day", "model", "cost", "credential", "calls", "call", *ITEMS):
                        raise BadBill(f"Line 1: {name[:MOST_TEXT]!r} is no column of a bill.")
            return kind, reader
    needed = " or ".join(", ".join(columns) for _, columns, _ in kinds[form])
    raise BadBill(f"Line 1 has not all of the columns {needed}.")


def _items(form: Form, kind: str) -> Mapping[str, tuple[str, ...]]:
    """The columns that must be there for an item to be told of."""
    match form, kind:
        case Form.METERLINE, _:
            return {item: (item,) for item in ITEMS}
        case Form.OPENAI, "usage":
            return {
                "input": ("input_tokens",),
                "cached_input": ("input_cached_tokens",),
                "audio_input": ("input_audio_tokens",),
                "output": ("output_tokens",),
                "audio_output": ("output_audio_tokens",),
            }
        case Form.ANTHROPIC, "usage":
            return {
                "input": ("usage_input_tokens_no_cache",),
                "cached_input": ("usage_input_tokens_cache_read",),
                "cache_write_5m": ("usage_input_tokens_cache_write_5m",),
                "cache_write_1h": ("usage_input_tokens_cache_write_1h",),
                "output": ("usage_output_tokens",),
                "web_search": ("web_search_count",),
            }
    return {}


def _counts(form: Form, kind: str, row: Mapping[str, str]) -> dict[str, int]:
    found = {item: _count(row, column) for item, (column,) in _items(form, kind).items() if column in row}
    return {item: count for item, count in found.items() if count}


def _ours(row: Mapping[str, str]) -> tuple[Cell, Side]:
    call = _name(row, "call", needed=False)
    calls = _count(row, "calls") if row.get("calls") else 1 if call else None
    if call and calls != 1:
        raise ValueError("a call that has a name is one call")
    cell = Cell(_day(row, "day"), _name(row, "model"), _name(row, "credential", needed=False), call)
    return cell, Side(calls, _counts(Form.METERLINE, "bill", row), _money(row, "cost"))


def _openai_usage(row: Mapping[str, str]) -> tuple[Cell, Side] | None:
    if not row["model"] and not row["num_model_requests"]:
        return None  # a bucket in which nothing was used
    counts = _counts(Form.OPENAI, "usage", row)
    cached = counts.get("cached_input", 0)
    if cached > counts.get("input", 0):
        raise ValueError("input_cached_tokens is more than input_tokens, which has them in it")
    if cached:
        counts["input"] -= cached
    model = model_name(Form.OPENAI, _name(row, "model"))
    cell = Cell(_bucket(row), model, _name(row, "api_key_id", needed=False))
    return cell, Side(_count(row, "num_model_requests"), counts, ZERO)


def _openai_cost(row: Mapping[str, str]) -> tuple[Cell, Side] | None:
    if not row["amount_value"]:
        return None
    if row["amount_currency"].lower() != "usd":
        raise ValueError("amount_currency is not usd")
    model = model_name(Form.OPENAI, _name(row, "line_item").partition(",")[0])
    cell = Cell(_bucket(row), model, _name(row, "api_key_id", needed=False))
    return cell, Side(0, {}, _money(row, "amount_value"))


def _anthropic_usage(row: Mapping[str, str]) -> tuple[Cell, Side]:
    model = model_name(Form.ANTHROPIC, _name(row, "model_version"))
    cell = Cell(_day(row, "usage_date_utc"), model, _name(row, "api_key", needed=False))
    return cell, Side(None, _counts(Form.ANTHROPIC, "usage", row), ZERO)


def _anthropic_cost(row: Mapping[str, str]) -> tuple[Cell, Side]:
    # What is of no model, such as a search, is named by what it is.
    named = _name(row, "model", needed=False) or _name(row, "cost_type" if "cost_type" in row else "token_type")
    model = model_name(Form.ANTHROPIC, named)
    cell = Cell(_day(row, "usage_date_utc"), model, _name(row, "api_key", needed=False))
    return cell, Side(None, {}, _money(row, "cost_usd"))


# --- values ----------------------------------------------------------------------------------------------------------


def _name(row: Mapping[str, str], column: str, *, needed: bool = True) -> str:
    value = row.get(column, "").strip()
    if needed and not value:
        raise ValueError(f"{column} is empty")
    if len(value) > MOST_TEXT or FORMULA.match(value) or not value.isprintable():
        raise ValueError(f"{column} is no name: {value[:MOST_TEXT]!r}")
    return value


def _count(row: Mapping[str, str], column: str) -> int:
    value = row[column].strip()
    if not value:
        return 0
    if not COUNT.fullmatch(value):
        raise ValueError(f"{column} is no count: {value[:MOST_TEXT]!r}")
    return int(value.partition(".")[0])


def _money(row: Mapping[str, str], column: str) -> Decimal:
    """Dollars; what is finer than twelve decimals is rounded."""
    value = row[column].strip()
    if not MONEY.fullmatch(value):
        raise ValueError(f"{column} is no amount: {value[:MOST_TEXT]!r}")
    return round(Decimal(value), 12)


def _day(row: Mapping[str, str], column: str) -> date:
    found = DAY.fullmatch(row[column].strip())
    try:
        if found:
            return date.fromisoformat(found[1])
    except ValueError:
        pass
    raise ValueError(f"{column} is no day: {row[column][:MOST_TEXT]!r}")


def _bucket(row: Mapping[str, str]) -> date:
    value = row["start_time"].strip()
    if not re.fullmatch(r"\d{9,10}", value, re.ASCII):
        raise ValueError(f"start_time is no time in Unix seconds: {value[:MOST_TEXT]!r}")
    return datetime.fromtimestamp(int(value), UTC).date()
