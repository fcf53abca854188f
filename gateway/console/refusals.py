"""Pages of the console in place of those it does not show: why not, and the way back."""

from django.contrib import admin
from django.db import DataError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin
from psycopg.errors import LockNotAvailable, QueryCanceled


def refusal(request: HttpRequest, status: int, title: str, words: str) -> HttpResponse:
    """A page that says why there is none, with the way back."""
    frame = "admin/base_site.html" if request.user.is_authenticated else "unfold/layouts/unauthenticated.html"
    context = {**admin.site.each_context(request), "title": title, "words": words, "frame": frame}
    return render(request, "admin/refusal.html", context, status=status)


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to what the person may not do."""
    return refusal(request, 403, "Not allowed", "This is not yours to see or do.")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """The answer to a path that leads nowhere, or to a row that is no more."""
    return refusal(request, 404, "Not found", "There is no such page, or what it showed is no more.")


class DatabaseRefusals(MiddlewareMixin):
    """Turns what the database does not do for the console into a page that says what to do."""

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """The page, for a value that no column takes (such as a NUL in an address), and for a statement that took or
        waited longer than the console's may; nothing for any other error."""
        if isinstance(exception, DataError):
            return refusal(request, 400, "Not understood", "The address or the form has a value that nothing can have.")
        if isinstance(exception.__cause__, LockNotAvailable):
            return refusal(request, 503, "Busy", "Something else is at work on the same rows. Try again in a moment.")
        if not isinstance(exception.__cause__, QueryCanceled):
            return None
        words = (
            "The database gave up on this, since it took too long: too many rows were looked through. "
            "Narrow the range of time, or choose an organization, a project or a key."
        )
        return refusal(request, 503, "Too much to look through", words)
