"""GET /v1/exports/generations and /v1/exports/spend: an organization's generations, and what it spent, as a file, for a
key that may do this and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.http import HttpRequest

from accounts.models import Scope
from billing.exports.generations import OPERATORS
from billing.exports.pages import FORMATS, LAYOUTS, File, joined, layout_of, tail_page
from billing.exports.streams import Gzip, takes_gzip
from billing.ids import first_id
from billing.spending import TOLD, Whose, filed, values
from billing.spending import Days as Spent
from gateway.door.answers import Answer, Streamed
from gateway.door.view import ApiView
from gateway.endpoints.periods import Days, choice, day, span, today
from gateway.endpoints.read_limit import count_read, read
from gateway.wire.errors import InvalidRequest

PAGE = 1_000  # rows, some 400 KB, and 10 ms of the database's time
MOST_DAYS = 366
MOST_LINES = 50_000
MOST_TOLD_DAYS = 93  # by end user or tag, of whom there may be thousands a day: more take longer than a read may
MOST_BYTES = 8 << 20  # of a file's lines, which are in memory at once
SPENT_BY = ("project", "key", "model", "month", "day", "end_user", "tag")
KEPT_SINCE = """select (max(month) + interval '1 month')::date from billing_droppedmonth where "table" = 'usage'"""


class SpendExport(ApiView):
    """GET /v1/exports/spend: what the organization spent in a span of UTC days as a file, told apart as `by` says.

    - `starting_at`, `ending_at`: days like 2026-01-31, both inclusive, at most 366, and 93 by end user or tag; by
      default the running month
    - `by`: one or several of project, key, model, month, day, and end_user or tag, with commas between; by default
      model. Beside each line stand the days before that they are compared with: as many days, or months
    - `tag`: for `by=tag`, the key of metadata; its values are told apart where the operator has named it
    - `format`: `csv`, by default; `xlsx`; `parquet`

    Read from rollups, which are some minutes old. Of an hour or a day of many end users, or values, the dearest are
    told apart; `end_user_is` (`tag_is`) says which line is all `others`, and which is of requests that name `none`.
    The lines add up to the same however they are told apart. More than 50,000 lines, or 8 MiB of them, are refused.
    """

    scope = Scope.EXPORT
    endpoint = "exports"

    async def get(self, request: HttpRequest) -> Answer:
        """The file."""
        await count_read(self.caller, "exports")
        last = day(request, "ending_at") or today()
        by = (request.GET.get("by") or "model").split(",")
        most = MOST_DAYS if set(by).isdisjoint(TOLD) else MOST_TOLD_DAYS
        days = span(day(request, "starting_at") or last.replace(day=1), last, most)
        if len(set(by)) != len(by) or not set(by) <= set(SPENT_BY):
            raise InvalidRequest(f"by must be some of {', '.join(SPENT_BY)}.", param="by", code="invalid_value")
        format = FORMATS[choice(request, "format", tuple(FORMATS), "csv")]
        whose = Whose(self.caller.organization, tag=request.GET.get("tag", "").replace("\0", "") or None)
        try:
            file, lines = await asyncio.to_thread(filed, whose, by, format, tenants=True)
        except ValueError as error:
            raise InvalidRequest(str(error), param="by", code="invalid_value") from error
        asked = values(Spent(days.first, days.last), whose, by, MOST_LINES + 1)
        bounded = f"select case when octet_length(x) <= {MOST_BYTES} then x end, n from ({lines}) made(x, n)"  # noqa: S608 - SQL of ours
        ((text, count),) = await read(self.caller, bounded, asked)
        if count > MOST_LINES or text is None:
            raise InvalidRequest(
                f"More than {MOST_LINES:,} lines, or {MOST_BYTES >> 20} MiB: ask for fewer days, or tell less apart.",
                param="by",
                code="invalid_value",
            )
        self.share.take(4 * len(text) + file.kept)  # as text, as bytes, and both once more in one piece
        body = b"".join([file.begin(), await asyncio.to_thread(file.page, text), await asyncio.to_thread(file.end)])
        answer = Answer(body, format.media.encode())
        name = f"spend-{days.first}-{days.last}-by-{'-'.join(by)}.{format.suffix}"
        answer.headers[b"content-disposition"] = f'attachment; filename="{name}"'.encode()
        answer.headers[b"cache-control"] = b"no-store, private"
        return answer


class GenerationsExport(ApiView):
    """GET /v1/exports/generations: every generation of the organization in a span of UTC days as a file, oldest first.

    - `starting_at`, `ending_at`: days like 2026-01-31, both inclusive, at most 366, of which all generations are kept;
      by default the running month
    - `layout`: `generations`, a row each, by default; `focus-1.2` or `focus-1.4`, a row for each item that is charged
    - `format`: `csv`, by default; `xlsx`; `parquet`
    - `after`: the id of the last generation of a CSV file that broke off all of whose lines are there; what comes is
      the rest, without a header

    Amounts are exact. A text that a spreadsheet would take for a formula begins with an apostrophe in CSV. Whoever
    takes gzip gets CSV so. Today's ends at the present moment, or a slow reader of a busy organization's would never
    come to its end. An answer that ends without its end (of the chunks, of the file) is not whole.
    """

    scope = Scope.EXPORT
    endpoint = "exports"

    async def get(self, request: HttpRequest) -> Answer:
        """The file, as it is made: a page is read once the client has taken the one before."""
        await count_read(self.caller, "exports")
        last = day(request, "ending_at") or today()
        days = span(day(request, "starting_at") or last.replace(day=1), last, MOST_DAYS)
        ((kept,),) = await read(self.caller, KEPT_SINCE, [])
        if kept is not None and days.first < kept:
            raise InvalidRequest(f"Generations are kept since {kept}.", param="starting_at", code="invalid_value")
        layout = layout_of(choice(request, "layout", LAYOUTS, LAYOUTS[0])).without(OPERATORS)
        format = FORMATS[choice(request, "format", tuple(FORMATS), "csv")]
        after = _id(request.GET.get("after"))
        if after and not format.is_text:
            raise InvalidRequest("Only a CSV file goes on after a generation.", param="after", code="invalid_value")
        # The range of ids lets the index and the partitions work; their clock is the process's, that of the column is
        # not.
        query = joined(f"""
            select id, {layout.text(format.line(layout))}
              from billing_usage
             where organization = %s and id > %s and id < %s and created_at >= %s and created_at < %s
             order by id limit {PAGE}
        """)  # noqa: S608 - names of ours
        behind = tail_page(layout, format.line(layout.tail)) if layout.tail else None
        pages = self._pages(query, behind, days, await asyncio.to_thread(format, layout), after)
        zipped = format.is_text and takes_gzip(self.fields.get(b"accept-encoding", b"").decode("latin-1"))
        parts = _zipped(pages) if zipped else pages
        answer = Streamed(await anext(parts), parts, format.media.encode())
        name = f"{layout.name}-{days.first}-{days.last}.{format.suffix}"
        answer.headers[b"content-disposition"] = f'attachment; filename="{name}"'.encode()
        answer.headers[b"cache-control"] = b"no-store, private"
        answer.headers[b"vary"] = b"accept-encoding"
        if zipped:
            answer.headers[b"content-encoding"] = b"gzip"
        return answer

    async def _pages(
        self, query: str | None, behind: str | None, days: Days, file: File, after: UUID | None
    ) -> AsyncGenerator[bytes]:
        """The pieces of the file, none of them empty but perhaps the first: a page each of what `query` gives, then of
        what `behind` does.
        """
        hour = timedelta(hours=1)
        until = min(days.end, datetime.now(UTC))
        begin, end = first_id(days.begin - hour), first_id(days.end + hour)
        begun = b"" if after else file.begin()
        after = begin if after is None else max(after, begin)
        first, key, asked = True, "", {"begin": days.begin, "end": until, "organization": self.caller.organization}
        while query:
            if query is behind:
                ((text, count, last),) = await read(self.caller, query, {**asked, "after": key, "size": PAGE})
                key = last or key
            else:
                ((text, count, last),) = await read(
                    self.caller, query, [self.caller.organization, after, end, days.begin, until]
                )
                after = last or after
            page = begun + await asyncio.to_thread(file.page, text)
            if count < PAGE:
                query = behind if query is not behind else None
            if not query:
                page += await asyncio.to_thread(file.end)
            self.share.free()  # the page before has been taken
            (self.share.take if first else self.share.keep)(len(page) + file.kept)
            if page or first:
                yield page
            begun, first = b"", False


async def _zipped(pages: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    stream = Gzip()
    async with aclosing(pages):
        async for page in pages:
            yield await asyncio.to_thread(stream.add, page)
    yield stream.end()


def _id(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return UUID(hex=text)
    except ValueError as error:
        raise InvalidRequest("after must be the id of a generation.", param="after", code="invalid_value") from error
