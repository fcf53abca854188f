"""How somebody gets in, step by step, and what the session says of it: never more than has been proved.

A password or a provider's word is the first step. Who has a second factor is nobody until it is proved too, and the
session knows only who is half-way, for some minutes. With each step that gives more the session's key changes.
"""

import time
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import quote

from django.contrib import admin
from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _

from accounts.models import User
from accounts.sign_in import factors, sessions
from accounts.sign_in.noting import note
from accounts.sign_in.passkeys import Site
from gateway.console.entering import address_of as address_of

HALF_WAY_SECONDS = 300
FRESH_SECONDS = 600  # in which whoever has just proved who they are may change how they do
HALF_WAY, PROVED, CHALLENGE = "half_way", "proved", "passkey_challenge"
BACKEND = "django.contrib.auth.backends.ModelBackend"


def may_enter(user: User) -> bool:
    """Whether the console lets `user` in, as it decides on every page."""
    return user.is_active and bool(admin.site.has_permission(cast(HttpRequest, SimpleNamespace(user=user))))


def first_step(request: HttpRequest, user: User, how: str, *, after: str, whole: bool = False) -> HttpResponse:
    """`user` was proved by `how`. Asks for the second factor where there is one, unless this was `whole`."""
    if whole or not factors.has_any(user):
        return enter(request, user, how, after=after, second=whole)
    request.session.cycle_key()
    request.session.set_expiry(HALF_WAY_SECONDS)
    request.session[HALF_WAY] = {
        "user": user.pk,
        "how": how,
        "until": time.time() + HALF_WAY_SECONDS,
        "after": after,
        "hash": user.get_session_auth_hash(),
    }
    return redirect("second_step")


def half_way(request: HttpRequest) -> tuple[User, dict[str, Any]] | None:
    """Who is half-way, and what is known of it; None: nobody, or too long ago, or the password is another now."""
    known = request.session.get(HALF_WAY)
    if known is None or not 0 <= known["until"] - time.time() <= HALF_WAY_SECONDS:
        return None
    user = User.objects.filter(pk=known["user"]).first()
    if user is None or not may_enter(user) or user.get_session_auth_hash() != known["hash"]:
        return None
    return user, known


def enter(request: HttpRequest, user: User, how: str, *, after: str, second: bool) -> HttpResponse:
    """Lets `user` in, with a fresh session. `second`: a second factor was proved."""
    for name in (HALF_WAY, CHALLENGE):
        request.session.pop(name, None)
    request.session.set_expiry(None)
    login(request, user, BACKEND)
    request.session[PROVED] = {"how": how, "at": time.time(), "second": second}
    sessions.forget_expired()
    note("signed in", user, address_of(request), how=how)
    return redirect(safe(request, after))


def again(request: HttpRequest, *, second: bool) -> None:
    """Whoever is signed in has just proved it anew; `second`: by a second factor."""
    known = request.session.get(PROVED, {})
    request.session[PROVED] = {**known, "at": time.time(), "second": second or known.get("second", False)}
    sessions.renew(request.session)


def is_fresh(request: HttpRequest) -> bool:
    """Whether whoever is signed in has proved it lately."""
    return bool(0 <= time.time() - request.session.get(PROVED, {}).get("at", 0) <= FRESH_SECONDS)


def has_second(request: HttpRequest) -> bool:
    """Whether the session has proved a second factor."""
    return bool(request.session.get(PROVED, {}).get("second"))


View = Callable[..., HttpResponseBase]


def fresh(view: View) -> View:
    """A view of those who are signed in and have proved it lately: the others are asked again, whatever they send."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect(f"{reverse('admin:login')}?next={reverse('my_sign_in')}")
        if not is_fresh(request):
            page = request.path if request.method == "GET" else reverse("my_sign_in")
            return redirect(f"{reverse('sign_in_again')}?next={page}")
        return view(request, *args, **kwargs)

    return checked


def signed_in(view: View) -> View:
    """A view of those who are signed in."""

    @wraps(view)
    def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not request.user.is_authenticated:
            return redirect(f"{reverse('admin:login')}?next={request.path}")
        return view(request, *args, **kwargs)

    return checked


def me(request: HttpRequest) -> User:
    """Who is signed in, where a view has made sure that somebody is."""
    return cast(User, request.user)


def safe(request: HttpRequest, address: str) -> str:
    """`address`, if it is a page of this host; else the console's first one."""
    if address and url_has_allowed_host_and_scheme(address, {request.get_host()}, require_https=request.is_secure()):
        return address
    return reverse("admin:index")


def site_of(request: HttpRequest) -> Site:
    """Whom passkeys are made for: the host that this request is for, which ALLOWED_HOSTS has."""
    host = request.get_host()
    return Site(host.rpartition(":")[0] or host if host[-1] != "]" else host, f"{request.scheme}://{host}")


def later(request: HttpRequest, seconds: int) -> HttpResponse:
    """Says when to try again: 429, with Retry-After."""
    context = {**admin.site.each_context(request), "minutes": -(-seconds // 60), "title": _("Too many attempts")}
    response = render(request, "admin/login_later.html", context, status=429)
    response["Retry-After"] = str(seconds)
    return response


def page(request: HttpRequest, template: str, title: str, status: int = 200, **context: Any) -> HttpResponse:
    """A page of signing in. It is kept by nobody on the way."""
    after = quote(str(context.get("after", "")))
    context = {**admin.site.each_context(request), "title": title, "after_quoted": after, **context}
    response = render(request, f"admin/sign_in/{template}.html", context, status=status)
    response["Cache-Control"] = "no-store, private"
    return response
