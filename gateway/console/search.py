"""The console's search, a box on every page: for generations, requests, keys, tenants, people, models and providers.

What is found is what the person may see (`accounts.access`), at most `MOST` of a kind. Usage is asked for by its
primary key alone; names are looked for in tables that people fill. What can only be one row is gone to at once.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Case, Model, Q, QuerySet, When
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.console import LONGEST_SEARCH
from accounts.keys import PREFIX, SHAPE
from accounts.models import ApiKey, Organization, Project, User
from billing.console.spend import uuid_of
from billing.models import Hold, Usage
from gateway.models import Refused
from routing import models as routing

MOST = 10  # of a kind
LEAST = 2  # characters of a name
END = re.compile(rf"(?:{PREFIX})?…?([0-9A-Za-z]{{4}})", re.ASCII)  # a key's, as lists show it


@dataclass(frozen=True, slots=True)
class Hit:
    """A row: what it is called, what it is, and its page. `exact`: it is what was typed, and not only like it."""

    name: str
    note: str
    link: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one kind, and whether there is more."""

    title: str
    hits: list[Hit]
    more: bool


def page(request: HttpRequest) -> HttpResponseBase:
    """GET `q`: what it finds, or the one row that it can only be. `stay`: also then the list."""
    text = request.GET.get("q", "").replace("\0", "").strip()[:LONGEST_SEARCH]
    found = list(search(access_of(request), text))
    exact = [hit for kind in found for hit in kind.hits if hit.exact]
    if len(exact) == 1 and "stay" not in request.GET:
        return redirect(exact[0].link)
    context = {
        **admin.site.each_context(request),
        "title": _("Search"),
        "text": "" if SHAPE.fullmatch(text) else text,  # nobody's secret is written into a page
        "found": found,
        "short": 0 < len(text) < LEAST,
    }
    return TemplateResponse(request, "admin/search.html", context, headers={"Cache-Control": "no-store, private"})


def search(access: Access, text: str) -> Iterator[Found]:
    """What the person may see that is `text`, or has it in its name."""
    id = uuid_of(text.removeprefix("gen-"))
    if id is not None:
        yield from _ids(access, id)
        return
    if len(text) < LEAST:
        return
    if end := END.fullmatch(f"…{text[-4:]}" if SHAPE.fullmatch(text) else text):
        ends = ApiKey.objects.filter(prefix=f"{PREFIX}…{end[1]}").select_related("project__organization")
        yield from _rows(access, _("Keys that end so"), ends, _is, "prefix")
    for title, rows, columns, note in (
        (_("Organizations"), Organization.objects.all(), ("slug", "name"), "name"),
        (_("Projects"), Project.objects.select_related("organization"), ("slug", "name"), "name"),
        (_("Keys"), ApiKey.objects.select_related("project__organization"), ("name",), "prefix"),
        (_("People"), User.objects.all(), ("username", "email"), "email"),
        (_("Models"), routing.Model.objects.all(), ("slug", "name"), "name"),
        (_("Providers"), routing.Provider.objects.all(), ("slug", "name"), "name"),
    ):
        yield from _named(access, title, rows, columns, text, note)


def _ids(access: Access, id: UUID) -> Iterator[Found]:
    """By an id: of a generation, of a request that was refused or is open, or of a tenant's row."""
    for title, rows, note in (
        (_("Generations"), Usage.objects.filter(pk=id), "model"),
        (_("Open requests"), Hold.objects.filter(pk=id), "model"),
        (_("Refused requests"), Refused.objects.filter(pk=id), "code"),
        (_("Organizations"), Organization.objects.filter(pk=id), "name"),
        (_("Projects"), Project.objects.filter(pk=id).select_related("organization"), "name"),
        (_("Keys"), ApiKey.objects.filter(pk=id).select_related("project__organization"), "prefix"),
    ):
        yield from _rows(access, title, rows, _is, note)


def _named(
    access: Access, title: str, rows: QuerySet[Any], columns: tuple[str, ...], text: str, note: str
) -> Iterator[Found]:
    """Rows with `text` in one of `columns`; those that are called so to the letter first."""
    like, same = Q(), Q()
    for column in columns:
        like |= Q(**{f"{column}__icontains": text})
        same |= Q(**{f"{column}__iexact": text})

    def exact(row: Any) -> bool:
        return any(getattr(row, column).casefold() == text.casefold() for column in columns)

    first = Case(When(same, then=0), default=1)
    yield from _rows(access, title, rows.filter(like).order_by(first, columns[0], "pk"), exact, note)


def _rows(access: Access, title: str, rows: QuerySet[Any], exact: Callable[[Any], bool], note: str) -> Iterator[Found]:
    """What there is of `rows`, if the person may see any at all."""
    if not access.may(rows.model, Verb.VIEW):
        return
    found = list(access.rows(rows)[: MOST + 1])
    if found:
        hits = [Hit(str(row), str(getattr(row, note) or ""), _page(row), exact(row)) for row in found[:MOST]]
        yield Found(title, hits, len(found) > MOST)


def _is(row: Any) -> bool:
    """What has been looked for by something that only it has."""
    return True


def _page(row: Model) -> str:
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_change", args=[row.pk])
