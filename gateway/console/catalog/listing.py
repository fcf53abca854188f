"""The catalog's first page: the models a reader may use, to look through, to sort and to compare."""

import time
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from accounts.console import number
from gateway.console.catalog.facts import PARAMETERS, about, parameters, surfaces
from gateway.console.catalog.prices import classes, grid, price
from gateway.console.catalog.reader import PUBLIC, Reader, frame_of, reader_of
from gateway.console.catalog.sellers import speeds, tokens_a_day
from gateway.console.catalog.shelf import Entry, entries
from gateway.console.catalog.wanted import ORDERS, Line, asked
from routing.models import Modality

A_PAGE = 50
FEWEST, MOST = 2, 4  # models beside each other
KEPT_SECONDS = 10.0  # that everybody without a name reads the same list


def page(request: HttpRequest) -> HttpResponse:
    """GET: the models of the query string, `A_PAGE` of them from `page` on.

    To operators, finance and auditors at the list's prices, or with `organization` at that one's; to members of an
    organization at its own; to everybody at the list's, where the catalog is public.
    """
    reader, wanted, now = reader_of(request), asked(request.GET), timezone.now()
    every = _public(now) if reader.is_public else _lines(entries(reader), reader, now)
    found = wanted.chosen(every)
    first = A_PAGE * (_page(request) - 1)
    shown = found[first : first + A_PAGE]
    context = {
        **frame_of(request, reader),
        "title": _("Catalog"),
        "wanted": wanted,
        "lines": [_cells(line) for line in shown],
        "found": len(found),
        "first": first + 1,
        "last": first + len(shown),
        "before": _query(request, page=str(_page(request) - 1)) if first else "",
        "after": _query(request, page=str(_page(request) + 1)) if len(found) > first + A_PAGE else "",
        "orders": [(name, title) for name, (title, _key) in ORDERS.items() if name != "tokens" or not reader.is_public],
        "authors": sorted({line.entry.author for line in every}),
        "modalities": Modality.choices,
        "surfaces": [(one.name, one.title) for one in surfaces(every[0].entry.model)] if every else [],
        "parameters": PARAMETERS,
        "barred": sum(bool(line.entry.why) for line in every),
    }
    return TemplateResponse(request, "admin/catalog/list.html", context)


def compare(request: HttpRequest) -> HttpResponse:
    """GET: two to four models, `m` by slug, beside each other, to whom and at whose prices `page` shows them."""
    reader, now = reader_of(request), timezone.now()
    slugs = list(dict.fromkeys(one[:200] for one in request.GET.getlist("m")))
    context = {**frame_of(request, reader), "title": _("Models beside each other")}
    found = {one.model.slug: one for one in entries(reader, slugs)} if FEWEST <= len(slugs) <= MOST else {}
    chosen = [found[slug] for slug in slugs if slug in found]
    if len(chosen) < FEWEST:
        context["wrong"] = _("Choose two to four models of the list.")
        return TemplateResponse(request, "admin/catalog/compare.html", context, status=400)
    lines = _lines(chosen, reader, now)
    context |= {"lines": lines, "rows": _rows(lines, reader), "with_classes": classes(one.prices for one in chosen)}
    return TemplateResponse(request, "admin/catalog/compare.html", context)


_kept: tuple[int, dict[str, list[Line]]] = (-1, {})  # by language


def _public(now: datetime) -> list[Line]:
    """The list for everybody: whoever asks for it often costs no more than who asks once."""
    global _kept
    moment = int(time.monotonic() / KEPT_SECONDS)
    if _kept[0] != moment:
        _kept = moment, {}
    by_language, language = _kept[1], get_language()
    if language not in by_language:
        by_language[language] = _lines(entries(PUBLIC), PUBLIC, now)
    return by_language[language]


def _lines(found: list[Entry], reader: Reader, now: datetime) -> list[Line]:
    slugs = None if len(found) > MOST else [one.model.slug for one in found]
    known, did, used = about(slugs), speeds(slugs), tokens_a_day(reader, now, slugs)
    return [
        Line(
            one,
            known[one.model.slug],
            None if reader.is_public else used.get(one.model.slug, 0),
            did.get(one.model.slug),
        )
        for one in found
        if one.model.slug in known  # else it has gone since the first of these queries
    ]


def _cells(line: Line) -> dict[str, Any]:
    """A line as the list shows it."""
    prices = line.entry.prices
    return {
        "line": line,
        "model": line.entry.model,
        "input": price(prices, "input"),
        "output": price(prices, "output"),
        "tokens": number(line.tokens),
        "context": number(line.entry.model.context_length),
    }


def _rows(lines: list[Line], reader: Reader) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The comparison: titles, and for each model a cell's text, title and note."""

    def row(title: str, *texts: str) -> tuple[str, list[tuple[str, str, str]]]:
        return title, [(text, "", "") for text in texts]

    models = [line.entry.model for line in lines]
    rows = [
        row(_("Author"), *(line.about.author for line in lines)),
        row(_("Published"), *(f"{model.published_on:%Y-%m-%d}" if model.published_on else "-" for model in models)),
        row(_("Reads"), *(", ".join(model.input_modalities) or _("not known") for model in models)),
        row(_("Writes"), *(", ".join(model.output_modalities) for model in models)),
        row(_("Context, tokens"), *(_size(model.context_length) for model in models)),
        row(_("Output at most, tokens"), *(_size(model.max_output) for model in models)),
    ]
    if not reader.is_public:
        rows.append(row(_("Tokens a day"), *(f"{line.tokens or 0:,}" for line in lines)))
    rows += [
        row(_("First token, median"), *(_ms(line.first_token) for line in lines)),
        row(_("Tokens a second"), *(_rate(line.did.throughput) if line.did else "-" for line in lines)),
        row(_("Uptime, 30 days"), *(line.did.uptime_text if line.did else "-" for line in lines)),
    ]
    for title, prices in grid([line.entry.prices for line in lines]):
        rows.append((title, [(one.text, one.title, one.note) for one in prices]))
    for at, surface in enumerate(surfaces(models[0])):
        rows.append(row(surface.title, *(surfaces(model)[at].words for model in models)))
    for name in PARAMETERS:
        rows.append(row(name, *(dict(parameters(model))[name] for model in models)))
    return rows


def _size(tokens: int) -> str:
    return f"{tokens:,}" if tokens else _("not known")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f} ms"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _page(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


def _query(request: HttpRequest, **changed: str) -> str:
    query = request.GET.copy()
    for name, value in changed.items():
        query[name] = value
    return query.urlencode()
