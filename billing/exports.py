"""What leaves as a file: generations as CSV (RFC 4180), page by page, so that memory is bounded by a page.

No cursor and no transaction stays open between pages: a reader on a slow line would otherwise hold back the
vacuum of the counters, which every request updates. A page starts after the last id of the one before.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db.models import QuerySet

from billing.models import Usage

PAGE = 500  # rows

COLUMNS = (
    "id",
    "created_at",
    "settled_at",
    "organization_slug",
    "project_slug",
    "key_name",
    "organization",
    "project",
    "key",
    "model",
    "provider",
    "upstream_model",
    "upstream_id",
    "service_tier",
    "stream",
    "end_user",
    "app",
    "status",
    "error",
    "finish_reason",
    "attempts",
    "ttft_ms",
    "duration_ms",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_5m_tokens",
    "cache_write_1h_tokens",
    "audio_input_tokens",
    "image_input_tokens",
    "reasoning_tokens",
    "audio_output_tokens",
    "web_searches",
    "basis",
    "suspect",
    "tariff_version",
    "charge",
    "provider_cost",
    "overrun",
    "metadata",
)

# A spreadsheet takes such a text for a formula (OWASP ASVS 5.0, 1.2.10); some skip white space and marks
# before it, and East Asian versions read the full-width forms as the plain ones.
FORMULA = re.compile(r"[\t\r\n\0]|[\s\0\ufeff\u200b-\u200f\u2060]*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def cell(value: Any) -> str:
    """`value` as a CSV cell. Texts are quoted, and get a leading apostrophe where a spreadsheet would see a
    formula; numbers stay numbers, without exponent; None is empty; times are UTC; a list or object is JSON.
    """
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case UUID():
            text = value.hex
        case datetime():
            text = value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        case str():
            text = f"'{value}" if FORMULA.match(value) else value
        case _:
            text = json.dumps(value, ensure_ascii=False)
    return '"' + text.replace('"', '""') + '"'


def line(values: tuple[Any, ...]) -> str:
    """One row of the file."""
    return ",".join(map(cell, values)) + "\r\n"


def generations_csv(generations: QuerySet[Usage], page: int = PAGE) -> Iterator[bytes]:
    """The file in chunks of a page of rows, oldest first. What is settled meanwhile may be in it or not."""
    yield line(COLUMNS).encode()
    ordered = generations.order_by("id").values_list(*COLUMNS)
    rows = list(ordered[:page])
    while rows:
        yield "".join(map(line, rows)).encode()
        if len(rows) < page:
            return
        rows = list(ordered.filter(id__gt=rows[-1][0])[:page])


async def in_thread(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """`chunks` for an answer under ASGI, which would read a plain iterator to its end before the first byte.

    Each step runs in the request's own thread, where its database connection lives.
    """
    while (chunk := await sync_to_async(lambda: next(chunks, None))()) is not None:
        yield chunk
