"""The playground's page. What it does is its script's: `gateway/static/console/playground.js`."""

from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import dollars
from accounts.models import ApiKey
from gateway.console.address import UNKNOWN, api_base, api_origin
from gateway.console.catalog.facts import chats
from gateway.console.catalog.reader import frame_of, reader_of
from gateway.console.catalog.samples import templates
from gateway.console.catalog.shelf import entries
from gateway.console.frame import CONTENT_SECURITY_POLICY
from gateway.console.playground.minting import projects

MOST_MODELS = 4  # side by side
MOST_PROJECTS = 200  # to choose from


def page(request: HttpRequest) -> HttpResponse:
    """GET: the page, with the models `m` (slugs) chosen.

    For who may make keys: operators, owners and developers. Members try the models of their organization at its prices,
    in their own projects.
    """
    if not access_of(request).may(ApiKey, Verb.ADD):
        raise PermissionDenied
    reader = reader_of(request)
    mine = projects(request).order_by("organization__slug", "slug")
    if reader.organization is not None:
        mine = mine.filter(organization=reader.organization)
    known = [one.model.slug for one in entries(reader) if not one.why and chats(one.model)]
    chosen = [slug for slug in dict.fromkeys(request.GET.getlist("m")) if slug in known][:MOST_MODELS]
    context = {
        **frame_of(request, reader),
        "title": _("Playground"),
        "projects": list(mine[:MOST_PROJECTS]),
        "models": known,
        "chosen": [*(chosen or known[:1]), *[""] * MOST_MODELS][:MOST_MODELS],
        "base": api_base(request),
        "is_reachable": api_origin(request) != UNKNOWN,
        "samples": templates(api_base(request)),
        "dollars": dollars(settings.PLAYGROUND_DOLLARS),
    }
    response = TemplateResponse(request, "admin/playground/page.html", context)
    response.headers["Content-Security-Policy"] = f"{CONTENT_SECURITY_POLICY}; connect-src 'self' {api_origin(request)}"
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
