"""GET /v1/exports/statements: the organization's statements and credit notes, for a key with the scope export."""

import asyncio
import re
from typing import Any

from django.http import HttpRequest

from accounts.models import Scope
from billing.documents import by_model, page, pdf
from billing.models import DocumentKind, Statement
from gateway.door.answers import Answer, json_answer
from gateway.door.view import ApiView
from gateway.endpoints.periods import choice, limit
from gateway.endpoints.read_limit import count_read, read
from gateway.wire.errors import InvalidRequest, NotFound
from gateway.wire.strict_json import number

MOST_LISTED, USUAL = 50, 20
MADE_BYTES, LINE_BYTES = 1 << 20, 1 << 10  # what a document takes while it is made, and each of its lines
NUMBER = re.compile(r"([0-9]{4})-([0-9]{5,9})", re.ASCII)
FORMATS = ("json", "html", "pdf")
# It is a page of its own that loads nothing and runs nothing, wherever a browser opens it.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"

COLUMNS = (
    *("issuer", "year", "number", "kind", "organization", "slug", "name", "month", "currency", "total", "lines"),
    *("reason", "issued_at"),
)
FIND = f"""
    select {", ".join(f"s.{name}" for name in COLUMNS)}, o.year, o.number
      from billing_statement s left join billing_statement o on o.id = s.refers_to_id
     where s.organization = %s
"""  # noqa: S608 - names of columns
# A number is given once by an issuer; the newest, where it was called something else before.
ONE = FIND + " and s.year = %s and s.number = %s order by s.id desc limit 1"
SOME = FIND + " and (s.year, s.number) < (%s, %s) order by s.year desc, s.number desc, s.id desc limit %s"


class Statements(ApiView):
    """GET /v1/exports/statements: the organization's documents, the newest first.

    - `limit`: how many, at most 50, by default 20
    - `before`: the number of the document that the list goes on behind
    """

    scope = Scope.EXPORT
    endpoint = "exports"

    async def get(self, request: HttpRequest) -> Answer:
        """A list of them, with their lines."""
        await count_read(self.caller, "exports")
        most = limit(request, USUAL, MOST_LISTED)
        before = (9999, 0)
        if text := request.GET.get("before"):
            parts = _parts(text)
            if parts is None:
                raise InvalidRequest("before must be a number like 2026-00001.", param="before", code="invalid_value")
            before = parts
        found = await read(self.caller, SOME, [self.caller.organization, *before, most + 1])
        documents = [_told(_document(row)) for row in found[:most]]
        return json_answer({"object": "list", "data": documents, "has_more": len(found) > most})


class OneStatement(ApiView):
    """GET /v1/exports/statements/{number}: one of them.

    - `format`: json, by default; html, a page of its own; pdf, the document as it was issued
    """

    scope = Scope.EXPORT
    endpoint = "exports"

    async def get(self, request: HttpRequest, number: str) -> Answer:
        """The document; 404 where the organization has none of this number."""
        await count_read(self.caller, "exports")
        format, parts = choice(request, "format", FORMATS, "json"), _parts(number)
        found = await read(self.caller, ONE, [self.caller.organization, *parts]) if parts else []
        if not found:
            raise NotFound("There is no such statement.", param="number", code="statement_not_found")
        document = _document(found[0])
        headers = {"Cache-Control": "no-store, private", "X-Content-Type-Options": "nosniff"}
        if format != "json":  # which is made in one piece, beside others
            self.share.take(MADE_BYTES + LINE_BYTES * len(document.lines))
        if format == "pdf":
            headers["Content-Disposition"] = f'attachment; filename="{document}.pdf"'
            return Answer(await asyncio.to_thread(pdf, document), b"application/pdf", headers=headers)
        if format == "html":
            headers["Content-Security-Policy"] = CONTENT_SECURITY_POLICY
            text = await asyncio.to_thread(page, document)
            return Answer(text.encode(), b"text/html; charset=utf-8", headers=headers)
        return json_answer(_told(document), headers=headers)


def _parts(text: str) -> tuple[int, int] | None:
    found = NUMBER.fullmatch(text)
    return (int(found[1]), int(found[2])) if found else None


def _document(row: tuple[Any, ...]) -> Statement:
    """A row, with what a credit note refers to, so that nothing more is read."""
    *values, year, of = row
    refers_to = None if year is None else Statement(id=0, year=year, number=of)
    return Statement(**dict(zip(COLUMNS, values, strict=True)), refers_to=refers_to)


def _told(document: Statement) -> dict[str, Any]:
    return {
        "object": "statement",
        "number": str(document),
        "kind": document.kind,
        "refers_to": str(document.refers_to) if document.kind == DocumentKind.CREDIT else None,
        "issuer": document.issuer,
        "organization": document.slug,
        "name": document.name,
        "month": f"{document.month:%Y-%m}",
        "currency": document.currency,
        "total": number(document.total),
        "reason": document.reason,
        "issued_at": int(document.issued_at.timestamp()),
        "lines": [{**line, "charge": number(line["charge"])} for line in by_model(document)],
    }
