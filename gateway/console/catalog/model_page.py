"""The catalog's page of one model."""

from collections.abc import Sequence
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.access.access import access_of
from accounts.access.table import Verb
from billing.models import Limit, Measure
from gateway.console.address import api_base
from gateway.console.catalog.facts import About, about, chats, parameters, surfaces
from gateway.console.catalog.prices import classes, grid
from gateway.console.catalog.reader import Reader, frame_of, reader_of
from gateway.console.catalog.samples import CHAT, EMBEDDINGS, Sample, samples
from gateway.console.catalog.sellers import HEIGHT, all_together, days, sellers
from gateway.console.catalog.shelf import Entry, entries
from gateway.console.health_board import age
from routing.catalog import Model, Offer
from routing.models import Model as Row
from routing.models import Window

QUESTION = "What is the meaning of life?"


def page(request: HttpRequest, slug: str) -> HttpResponse:
    """GET: the page of the model `slug`.

    Whoever has logged in is told which providers sell it, as a plan tells it to their keys; members at their
    organization's prices. Everybody, where the catalog is public, is shown the providers as one, at the list's prices.
    Operators have the pages of models that cannot be called as well: of others nobody is told that they are there.
    """
    reader, now = reader_of(request), timezone.now()
    entry = next(iter(entries(reader, [slug])), None)
    row = Row.objects.filter(slug=slug).first()
    if row is None or (entry is None and not reader.is_staff):
        raise Http404
    said = about([slug]).get(slug) or About(row.author or slug.partition("/")[0], row.description)
    offers = entry.model.offers if entry else ()
    providers = sorted({offer.provider.slug for offer in offers})
    shown = _priced(entry, reader)
    context = {
        **frame_of(request, reader),
        "title": row.name,
        "row": row,
        "about": said,
        "entry": entry,
        "age": age(Window.MONTH, now),
        "days": days(slug, reader, now),
        "height": HEIGHT,
        "sellers": all_together(slug, now) if reader.is_public else sellers(slug, providers, now),
        "heads": [name for name, prices in shown],
        "prices": grid([prices for name, prices in shown]),
        "with_classes": classes(prices for name, prices in shown),
        "context_length": _sizes(offers, row.context_length, "context_length"),
        "max_output": _sizes(offers, row.max_output, "max_output"),
        "limits": _limits(request, reader),
        "parameters": parameters(entry.model) if entry else [],
        "surfaces": surfaces(entry.model) if entry else [],
        "samples": _samples(request, entry.model) if entry else [],
        "may_edit": access_of(request).may(Row, Verb.CHANGE),
    }
    return TemplateResponse(request, "admin/catalog/model.html", context)


def _priced(entry: Entry | None, reader: Reader) -> list[tuple[str, Any]]:
    """The columns of the price grid: of each offer that the reader is told of, in the order they are tried."""
    if entry is None:
        return []
    if reader.is_public:
        return [("", entry.prices)]
    now = timezone.now()
    found = [(offer.provider.slug, version.prices) for offer in entry.model.offers if (version := offer.tariff_at(now))]
    return found or [("", entry.prices)]


def _sizes(offers: Sequence[Offer], own: int, name: str) -> str:
    """The sizes that its offers have, the greatest first."""
    found = sorted({getattr(offer, name) for offer in offers} or {own}, reverse=True)
    return "; ".join(f"{size:,}" if size else _("not known") for size in found)


def _limits(request: HttpRequest, reader: Reader) -> list[tuple[str, str]]:
    """How fast the reader's organization as a whole may go."""
    if reader.organization is None:
        return []
    mine = access_of(request).rows(Limit.objects.filter(organization=reader.organization, project=None, key=None))
    words = dict(Measure.choices)
    return [(str(words[measure]), f"{value:,}") for measure, value in mine.values_list("measure", "value")]


def _samples(request: HttpRequest, model: Model) -> list[Sample]:
    if not chats(model):
        return samples(api_base(request), {"model": model.slug, "input": QUESTION}, EMBEDDINGS)
    body = {"model": model.slug, "messages": [{"role": "user", "content": QUESTION}]}
    return samples(api_base(request), body, CHAT)
