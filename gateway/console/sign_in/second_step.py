"""The second factor: asked for after the first, and again before it is changed how somebody signs in."""

import logging

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST
from unfold.forms import AuthenticationForm

from accounts import login_attempts
from accounts.models import Passkey, Totp, User
from accounts.sealing import CannotOpen
from accounts.sign_in import factors, passkeys, recovery_codes, totp
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering
from gateway.console.sign_in.login import PATIENCE, Busy, hashed, show

CODE, BEGUN = "code", "begun"  # what is counted
MOST_CHARS = 64

logger = logging.getLogger(__name__)


@transaction.non_atomic_requests
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def second_step(request: HttpRequest) -> HttpResponseBase:
    """Asks whoever is half-way for a code, a recovery code or a passkey."""
    found = entering.half_way(request)
    if found is None:
        return redirect("admin:login")
    user, known = found
    if request.method != "POST":
        return _show(request, user)
    how = _proved(request, user)
    if isinstance(how, HttpResponse):
        return how
    return entering.enter(request, user, f"{known['how']}, {how}", after=known["after"], second=True)


@transaction.non_atomic_requests
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@entering.signed_in
def sign_in_again(request: HttpRequest) -> HttpResponseBase:
    """Asks whoever is signed in for their second factor, or, who has none, for the password, or at their provider."""
    user, after = entering.me(request), request.POST.get("next") or request.GET.get("next") or ""
    second = factors.has_any(user)
    if request.method != "POST":
        return _show(request, user)
    how = _proved(request, user) if second else _password(request, user)
    if isinstance(how, HttpResponse):
        return how
    entering.again(request, second=second)
    note("proved anew who they are", user, entering.address_of(request), how=how)
    return redirect(entering.safe(request, after or reverse("my_sign_in")))


@require_POST
def passkey_options(request: HttpRequest, known: bool) -> HttpResponseBase:
    """What the browser is to ask its passkeys: those of whoever is half-way or signed in (`known`), or any for us."""
    user: User | None = None
    if known:
        found = entering.half_way(request)
        if found is None and not request.user.is_authenticated:
            return redirect("admin:login")
        user = found[0] if found else entering.me(request)
    else:
        if seconds := login_attempts.crowded(entering.address_of(request), BEGUN):
            return entering.later(request, seconds)
        request.session.set_expiry(entering.HALF_WAY_SECONDS)
    options, challenge = passkeys.ask(entering.site_of(request), user, _purpose(user))
    request.session[entering.CHALLENGE] = challenge
    return JsonResponse(options)


@transaction.non_atomic_requests
@sensitive_post_parameters()
@require_POST
def passkey_login(request: HttpRequest) -> HttpResponseBase:
    """Signs in with a passkey alone: its device has seen who holds it, so it is both factors."""
    after, key = request.POST.get("next", ""), _signed(request, None)
    if key is None or not entering.may_enter(key.user):
        return show(request, AuthenticationForm(request), after, wrong=_("This passkey does not open an account here."))
    return entering.enter(request, key.user, "passkey", after=after, second=True)


def _proved(request: HttpRequest, user: User) -> str | HttpResponse:
    """How `user` has proved a second factor with this form; else what to answer."""
    if request.POST.get("credential"):
        if _signed(request, user) is None:
            return _show(request, user, wrong=_("This passkey is not one of yours."))
        return "passkey"
    attempt = login_attempts.Attempt(str(user.pk), entering.address_of(request), CODE)
    if seconds := attempt.begin():
        return entering.later(request, seconds)
    code, how = request.POST.get("code", "")[:MOST_CHARS], "authenticator app"
    try:
        right = totp.take(user, code)
    except CannotOpen:
        logger.error("the authenticator app's seed of %s cannot be opened with any of SEALING_KEYS", user)
        right = False
    if not right:
        right, how = recovery_codes.take(user, code), "recovery code"
    if not right:
        note("sent a wrong code", user, entering.address_of(request))
        return _show(request, user, wrong=_("This code is not right, or it was used already."))
    attempt.succeeded()
    return how


def _password(request: HttpRequest, user: User) -> str | HttpResponse:
    if not settings.CONSOLE_PASSWORDS:
        return _show(request, user, wrong=_("Passwords are off here."))
    attempt = login_attempts.Attempt(user.get_username(), entering.address_of(request))
    if seconds := attempt.begin():
        return entering.later(request, seconds)
    try:
        right = hashed(lambda: user.check_password(request.POST.get("password", "")))
    except Busy:
        return entering.later(request, round(PATIENCE))
    if not right:
        note("sent a wrong password", user, entering.address_of(request))
        return _show(request, user, wrong=_("This is not your password."))
    attempt.succeeded()
    return "password"


def _signed(request: HttpRequest, user: User | None) -> Passkey | None:
    """The passkey that has signed this form's answer: `user`'s, or anybody's. The challenge is gone with it."""
    challenge = request.session.pop(entering.CHALLENGE, None)
    if challenge is None:  # anybody may send this form, as often as they like: nothing is noted of it
        return None
    try:
        answer = request.POST.get("credential", "")
        return passkeys.used(entering.site_of(request), user, challenge, _purpose(user), answer)
    except passkeys.NotBelieved as error:
        note("sent a passkey that is not believed", user, entering.address_of(request), why=str(error)[:200])
        return None


def _purpose(user: User | None) -> str:
    return f"sign in {user.pk if user else 'anybody'}"


def _show(request: HttpRequest, user: User, wrong: str = "") -> HttpResponse:
    again = request.user.is_authenticated
    second = factors.has_any(user)
    return entering.page(
        request,
        "second_step",
        _("Prove that it is you") if again else _("One more step"),
        again=again,
        wrong=wrong,
        after=request.POST.get("next") or request.GET.get("next") or "",
        has_second=second,
        has_totp=Totp.objects.filter(user=user).exists(),
        has_passkey=user.passkeys.exists(),
        has_codes=user.recovery_codes.exists(),
        passwords=not second and settings.CONSOLE_PASSWORDS and user.has_usable_password(),
        sso=settings.OIDC_NAME if not second and settings.OIDC_ISSUER and user.identities.exists() else "",
        person=user,
    )
