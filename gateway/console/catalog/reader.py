"""Who reads the catalog, and so whose prices stand in it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache

from accounts.access.access import access_of
from accounts.models import Organization

MOST_NAMED = 50  # organizations to choose from


@dataclass(frozen=True, slots=True)
class Reader:
    """`organization`: at whose prices, None: the list's. `others`: slugs of those that they may read as, theirs too.

    `is_staff`: has an office of the installation; `is_public`: nobody has logged in, or whoever has is let see no more
    than those.
    """

    organization: UUID | None = None
    slug: str = ""
    others: tuple[str, ...] = ()
    is_staff: bool = False
    is_public: bool = False


PUBLIC = Reader(is_public=True)


def reader_of(request: HttpRequest) -> Reader:
    """Who asks; `organization` in the query string chooses among theirs. Staff without one read the list's prices.

    Raises PermissionDenied for who has neither office nor organization, Http404 for an organization that is not theirs.
    """
    if not request.user.is_authenticated:
        return PUBLIC
    access, wanted = access_of(request), request.GET.get("organization", "")[:200]
    if not access.is_staff and not access.roles:
        raise PermissionDenied
    if access.is_staff and not wanted:
        return Reader(is_staff=True)
    theirs = Organization.objects.all() if access.is_staff else Organization.objects.filter(pk__in=list(access.roles))
    named = dict(theirs.filter(slug=wanted).values_list("slug", "pk"))
    if not access.is_staff:
        named |= dict(theirs.order_by("slug").values_list("slug", "pk")[:MOST_NAMED])
    slug = wanted or next(iter(named), "")
    if slug not in named:
        raise Http404
    return Reader(named[slug], slug, () if access.is_staff else tuple(sorted(named)), access.is_staff)


def for_readers(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """A view for who has logged in, and for everybody where the catalog is public (`PUBLIC_CATALOG`)."""
    inside, outside = admin.site.admin_view(view), never_cache(view)

    def either(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        is_open = settings.PUBLIC_CATALOG and not request.user.is_authenticated
        return (outside if is_open else inside)(request, **kwargs)

    return either


def frame_of(request: HttpRequest, reader: Reader) -> dict[str, Any]:
    """Context of a page: the console's own, or of a page for everybody only what its frame needs."""
    if not reader.is_public:
        return {**admin.site.each_context(request), "reader": reader, "frame": "admin/base_site.html"}
    known = admin.site.each_context(request)
    kept = ("site_title", "site_header", "site_symbol", "site_favicons", "styles", "scripts", "colors", "theme")
    return {
        **{name: known[name] for name in kept if name in known},
        "reader": reader,
        "frame": "admin/catalog/outside.html",
    }
