"""The console's login, with a bound on how often a password may be tried and on how many are hashed at a time.

A hash takes a third of a second of a core; it runs in the request's own thread, `AT_ONCE` of them in a process.
"""

from threading import BoundedSemaphore

from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from accounts import login_attempts
from gateway.door.authentication import client_address

AT_ONCE = 2
PATIENCE = 5.0  # seconds until it is one's turn
_hashes = BoundedSemaphore(AT_ONCE)


@transaction.non_atomic_requests  # a count stands whatever becomes of its attempt, and no lock is held meanwhile
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@csrf_protect
def login(request: HttpRequest) -> HttpResponseBase:
    """Django's own login; 429 with Retry-After where too many attempts have failed."""
    if request.method != "POST":
        return admin.site.login(request)
    attempt = login_attempts.Attempt(request.POST.get("username", ""), _address(request))
    if seconds := attempt.begin():
        return _later(request, seconds)
    if not _hashes.acquire(timeout=PATIENCE):
        return _later(request, round(PATIENCE))
    try:
        response = admin.site.login(request)
    finally:
        _hashes.release()
    if request.user.is_authenticated:
        attempt.succeeded()
    return response


def _address(request: HttpRequest) -> str:
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").encode("latin-1", "replace")
    return client_address([(b"x-forwarded-for", forwarded)] if forwarded else [], request.META.get("REMOTE_ADDR", ""))


def _later(request: HttpRequest, seconds: int) -> HttpResponseBase:
    context = {**admin.site.each_context(request), "minutes": -(-seconds // 60), "title": "Too many attempts"}
    response = render(request, "admin/login_later.html", context, status=429)
    response["Retry-After"] = str(seconds)
    return response
