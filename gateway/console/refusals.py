"""Pages of the console in place of those it does not show: why not, and the way back."""

import logging
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _
from psycopg.errors import LockNotAvailable, QueryCanceled

from gateway.console.frame import icon, stylesheet
from gateway.door.view import new_request_id

OUTSIDE = "unfold/layouts/unauthenticated.html"


logger = logging.getLogger(__name__)


class RequestId(MiddlewareMixin):
    """Gives each request of the stock handler an id, which its answer says in `x-request-id`, and a page of refusal."""

    def process_request(self, request: HttpRequest) -> None:
        """Before anything can fail."""
        request.id = new_request_id()  # type: ignore[attr-defined]

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The answer; the API's views have said their own."""
        response.headers.setdefault("x-request-id", _id(request))
        return response


def refusal(request: HttpRequest, status: int, title: str, words: str) -> HttpResponse:
    """A page that says why there is none, with the way back and the request's id.

    In the console's frame for who is signed in; without it where not even that is known, such as without a database.
    """
    told: dict[str, Any] = {"title": title, "words": words, "request_id": _id(request), "inside": False}
    try:
        if hasattr(request, "access") and request.user.is_authenticated:
            context = {**admin.site.each_context(request), **told, "frame": "admin/base_site.html", "inside": True}
            return render(request, "admin/refusal.html", context, status=status)
    except Exception:
        if status != 500:  # a page of its own, by way of `broken`
            raise
    looks = {"styles": [stylesheet(request)], "site_favicons": [{"rel": "icon", "href": icon(request)}]}
    context = {**told, **looks, "site_title": settings.UNFOLD["SITE_TITLE"], "frame": OUTSIDE}
    return HttpResponse(render_to_string("admin/refusal.html", context), status=status)


def _id(request: HttpRequest) -> str:
    return str(getattr(request, "id", ""))


def not_understood(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to an address or a form that no page of the console makes."""
    words = _("The address or the form has something in it that the console cannot read.")
    return refusal(request, 400, _("Not understood"), words)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to what the person may not do."""
    return refusal(request, 403, _("Not allowed"), _("This is not yours to see or do."))


def forged(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The answer to a form that did not come from a page of this session (CSRF)."""
    words = _(
        "The form was opened before you signed in or out, or not here. Nothing was done. Open its page again, and send "
        "it from there. If that does not help, allow cookies for this site."
    )
    return refusal(request, 403, _("Form not taken"), words)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to a path that leads nowhere, or to a row that is no more."""
    return refusal(request, 404, _("Not found"), _("There is no such page, or what it showed is no more."))


def broken(request: HttpRequest) -> HttpResponse:
    """The answer to what went wrong on our side, which the log has with the same request id."""
    view = request.resolver_match.view_name if request.resolver_match else "none"  # a path may have a secret in it
    logger.error("unexpected, request %s, view %s", _id(request), view, exc_info=True)
    response = refusal(request, 500, _("Something went wrong"), _("It is our fault, not yours. Try again in a moment."))
    response._has_been_logged = True  # type: ignore[attr-defined]  # Django would log it again, without the id
    return response


class DatabaseRefusals(MiddlewareMixin):
    """Turns what the database does not do for the console into a page that says what to do."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The page, for a value that no column takes (such as a NUL in an address), and for a statement that took or
        waited longer than the console's may; nothing for any other error."""
        if isinstance(exception, DataError):
            words = _("The address or the form has a value that nothing can have.")
            return refusal(request, 400, _("Not understood"), words)
        if isinstance(exception.__cause__, LockNotAvailable):
            words = _("Something else is at work on the same rows. Try again in a moment.")
            return refusal(request, 503, _("Busy"), words)
        if not isinstance(exception.__cause__, QueryCanceled):
            return None
        words = _(
            "The database gave up on this, since it took too long: too many rows were looked through. "
            "Narrow the range of time, or choose an organization, a project or a key."
        )
        return refusal(request, 503, _("Too much to look through"), words)
