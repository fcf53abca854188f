"""GET /v1/exports/generations: an organization's generations as a file, for a key that may do this and nothing else."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.http import HttpRequest

from accounts.models import Scope
from billing.exports import COLUMNS, Gzip, csv_line, header, takes_gzip
from billing.ids import first_id
from gateway.door.answers import Answer, Streamed
from gateway.door.view import ApiView
from gateway.endpoints.periods import Days, day, span, today
from gateway.endpoints.read_limit import count_read, read
from gateway.wire.errors import InvalidRequest

PAGE = 1_000  # rows, some 400 KB, and 10 ms of the database's time
MOST_DAYS = 366
# What the operator pays, and to whom, is not the tenant's to know.
OPERATORS = {"provider", "upstream_model", "upstream_id", "provider_cost", "tariff_version"}
TENANTS_COLUMNS = tuple(name for name in COLUMNS if name not in OPERATORS)


class GenerationsExport(ApiView):
    """GET /v1/exports/generations: every generation of the organization in a span of UTC days, as CSV, oldest first.

    - `starting_at`, `ending_at`: days like 2026-01-31, both inclusive, at most 366; by default the running month
    - `after`: the id of the last whole line of a file that broke off; what comes is the rest, without a header

    Amounts are exact. A text that a spreadsheet would take for a formula begins with an apostrophe. Whoever takes gzip
    gets it. Today's ends at the present moment, or a slow reader of a busy organization's would never come to its end.
    An answer that ends without its end (of the chunks, of the gzip stream) is not whole.
    """

    scope = Scope.EXPORT
    endpoint = "exports"

    # The range of ids lets the index and the partitions work; their clock is the process's, that of the column is not.
    QUERY = f"""
        select id, {csv_line(TENANTS_COLUMNS)}
          from billing_usage
         where organization = %s and id > %s and id < %s and created_at >= %s and created_at < %s
         order by id limit {PAGE}
    """  # noqa: S608 - names of ours

    async def get(self, request: HttpRequest) -> Answer:
        """The file, as it is made: a page is read once the client has taken the one before."""
        await count_read(self.caller, "exports")
        last = day(request, "ending_at") or today()
        days = span(day(request, "starting_at") or last.replace(day=1), last, MOST_DAYS)
        pages = self._pages(days, _id(request.GET.get("after")))
        zipped = takes_gzip(self.fields.get(b"accept-encoding", b"").decode("latin-1"))
        parts = _zipped(pages) if zipped else pages
        answer = Streamed(await anext(parts), parts, b"text/csv; charset=utf-8")
        name = f"generations-{days.first}-{days.last}.csv"
        answer.headers[b"content-disposition"] = f'attachment; filename="{name}"'.encode()
        answer.headers[b"cache-control"] = b"no-store, private"
        answer.headers[b"vary"] = b"accept-encoding"
        if zipped:
            answer.headers[b"content-encoding"] = b"gzip"
        return answer

    async def _pages(self, days: Days, after: UUID | None) -> AsyncGenerator[bytes]:
        hour = timedelta(hours=1)
        until = min(days.end, datetime.now(UTC))
        begin, end = first_id(days.begin - hour), first_id(days.end + hour)
        begun = b"" if after else header(TENANTS_COLUMNS)
        after = begin if after is None else max(after, begin)
        while True:
            rows = await read(self.caller, self.QUERY, [self.caller.organization, after, end, days.begin, until])
            page = begun + await asyncio.to_thread(_joined, rows)
            self.share.free()  # the page before has been taken
            (self.share.take if begun else self.share.keep)(len(page))
            yield page
            if len(rows) < PAGE:
                return
            begun, after = b"", rows[-1][0]


async def _zipped(pages: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    stream = Gzip()
    async with aclosing(pages):
        async for page in pages:
            yield await asyncio.to_thread(stream.add, page)
    yield stream.end()


def _joined(rows: list[tuple[UUID, str]]) -> bytes:
    return "".join([line for _, line in rows]).encode()


def _id(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(hex=text)
    except ValueError as error:
        raise InvalidRequest("after must be the id of a generation.", param="after", code="invalid_value") from error
