"""The console's login: passwords, with a bound on how often one may be tried and on how many are hashed at a time.

A hash takes a third of a second of a core; it runs in the request's own thread, `AT_ONCE` of them in a process.
"""

from collections.abc import Callable
from threading import BoundedSemaphore
from typing import Any, TypeVar, cast

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from unfold.forms import AuthenticationForm

from accounts import login_attempts
from accounts.models import User
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering

AT_ONCE = 2
PATIENCE = 5.0  # seconds until it is one's turn
T = TypeVar("T")
_hashes = BoundedSemaphore(AT_ONCE)


class Busy(Exception):
    """Others' passwords are being hashed."""


def hashed(work: Callable[[], T]) -> T:
    """What `work`, which hashes a password, gives, once it is its turn. Raises `Busy`."""
    if not _hashes.acquire(timeout=PATIENCE):
        raise Busy
    try:
        return work()
    finally:
        _hashes.release()


@transaction.non_atomic_requests  # a count stands whatever becomes of its attempt, and no lock is held meanwhile
@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@csrf_protect
def login(request: HttpRequest) -> HttpResponseBase:
    """Asks for a name and a password; 429 with Retry-After where too many attempts have failed."""
    after = request.POST.get(REDIRECT_FIELD_NAME) or request.GET.get(REDIRECT_FIELD_NAME) or ""
    if request.method != "POST":
        if admin.site.has_permission(request):
            return redirect("admin:index")
        return show(request, AuthenticationForm(request), after)
    if not settings.CONSOLE_PASSWORDS:
        return show(request, AuthenticationForm(request), after, status=403)
    attempt = login_attempts.Attempt(request.POST.get("username", ""), entering.address_of(request))
    if seconds := attempt.begin():
        return entering.later(request, seconds)
    form = AuthenticationForm(request, data=request.POST)
    try:
        right = hashed(form.is_valid)
    except Busy:
        return entering.later(request, round(PATIENCE))
    if not right:
        note("sent a wrong password", None, entering.address_of(request))
        return show(request, form, after)
    attempt.succeeded()
    return entering.first_step(request, cast(User, form.get_user()), "password", after=after)


def show(request: HttpRequest, form: Any, after: str, status: int = 200, wrong: str = "") -> HttpResponse:
    """The page with all ways in."""
    return entering.page(
        request,
        "login",
        _("Log in"),
        status,
        form=form,
        after=after,
        wrong=wrong,
        passwords=settings.CONSOLE_PASSWORDS,
        sso=settings.OIDC_NAME if settings.OIDC_ISSUER else "",
        field=REDIRECT_FIELD_NAME,
        is_login=True,
    )


@transaction.non_atomic_requests
@sensitive_post_parameters()
@entering.fresh
def change_password(request: HttpRequest) -> HttpResponseBase:
    """Django's own page, for those who have just proved who they are; the old password counts as one that is tried."""
    if not settings.CONSOLE_PASSWORDS or not entering.me(request).has_usable_password():
        raise Http404
    if request.method != "POST":
        return admin.site.password_change(request)
    attempt = login_attempts.Attempt(entering.me(request).get_username(), entering.address_of(request))
    if seconds := attempt.begin():
        return entering.later(request, seconds)
    try:
        response = hashed(lambda: admin.site.password_change(request))
    except Busy:
        return entering.later(request, round(PATIENCE))
    if response.status_code == 302:
        attempt.succeeded()
        note("changed the password", entering.me(request), entering.address_of(request))
        if response["Location"] == reverse("admin:password_change_done"):
            return redirect("my_sign_in")
    return response


@sensitive_post_parameters()
@entering.fresh
def give_password(request: HttpRequest, id: str) -> HttpResponseBase:
    """The page of a person's password, their own too, for those who have just proved who they are."""
    page: Any = admin.site.get_model_admin(User)
    return cast(HttpResponseBase, admin.site.admin_view(page.user_change_password)(request, id))
