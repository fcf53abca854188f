"""How somebody signs in, on one page of theirs: authenticator app, passkeys, recovery codes, sessions.

Nobody changes it for somebody else: whoever has lost all is helped on the machine, by `manage.py forget_second_factor`.
"""

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect
from django.utils.safestring import mark_safe
from django.utils.translation import gettext as _
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from accounts import login_attempts
from accounts.models import Passkey, Totp, User
from accounts.sealing import CannotOpen, open_sealed, seal
from accounts.sign_in import factors, passkeys, recovery_codes, sessions, totp
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering
from gateway.console.sign_in.entering import fresh, me, signed_in
from gateway.console.sign_in.second_step import CODE

SEED = "new_seed"  # sealed, until a code shows that the app has it
MOST_NAME = 64


@signed_in
def my_sign_in(request: HttpRequest) -> HttpResponseBase:
    """The page."""
    return _page(request)


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@fresh
def new_totp(request: HttpRequest) -> HttpResponseBase:
    """Shows a seed to scan; takes it once its code is sent back. Where there is an app already, the other way round."""
    user = me(request)
    if Totp.objects.filter(user=user).exists():
        messages.warning(request, _("You have an authenticator app. Remove it first."))
        return redirect("my_sign_in")
    seed = _seed(request, user)
    if request.method != "POST" or seed is None:
        return _scan(request, user, seed)
    attempt = login_attempts.Attempt(str(user.pk), entering.address_of(request), CODE)
    if seconds := attempt.begin():
        return entering.later(request, seconds)
    first = not factors.has_any(user)
    try:
        with transaction.atomic():
            right = totp.enrol(user, seed, request.POST.get("code", "")[:MOST_NAME])
    except IntegrityError:  # another window of theirs was quicker
        return redirect("my_sign_in")
    if not right:
        return _scan(request, user, seed, _("This code is not right. Is the clock of your device?"))
    attempt.succeeded()
    del request.session[SEED]
    return _gained(request, "added an authenticator app", first)


@require_POST
@fresh
@transaction.atomic
def remove_totp(request: HttpRequest) -> HttpResponseBase:
    """Takes the authenticator app away."""
    if _may_lose(request, "totp"):
        Totp.objects.filter(user=me(request)).delete()
        _lost(request, "removed the authenticator app")
    return redirect("my_sign_in")


@require_POST
@fresh
def passkey_new_options(request: HttpRequest) -> HttpResponseBase:
    """What the browser is to ask for a new passkey."""
    options, challenge = passkeys.ask_new(entering.site_of(request), me(request))
    request.session[entering.CHALLENGE] = challenge
    return JsonResponse(options)


@require_POST
@fresh
def passkey_new(request: HttpRequest) -> HttpResponseBase:
    """Takes the passkey that the browser has made."""
    user, name = me(request), _name(request)
    first, challenge = not factors.has_any(user), request.session.pop(entering.CHALLENGE, None)
    try:
        with transaction.atomic():
            passkeys.add(entering.site_of(request), user, challenge, request.POST.get("credential", ""), name)
    except (passkeys.NotBelieved, IntegrityError) as error:
        note("sent a new passkey that is not believed", user, entering.address_of(request), why=str(error)[:200])
        messages.error(request, _("The passkey could not be added. Try again; a person has 20 at most."))
        return redirect("my_sign_in")
    return _gained(request, "added a passkey", first, passkey=name)


@require_POST
@fresh
def passkey_rename(request: HttpRequest, pk: Any) -> HttpResponseBase:
    """Calls one of theirs something else."""
    if not Passkey.objects.filter(user=me(request), pk=pk).update(name=_name(request)):
        raise Http404
    return redirect("my_sign_in")


@require_POST
@fresh
@transaction.atomic
def passkey_remove(request: HttpRequest, pk: Any) -> HttpResponseBase:
    """Takes one of theirs away."""
    found = Passkey.objects.filter(user=me(request), pk=pk).first()
    if found is None:
        raise Http404
    if _may_lose(request, "passkey"):
        found.delete()
        _lost(request, "removed a passkey", passkey=found.name)
    return redirect("my_sign_in")


@require_POST
@fresh
def new_codes(request: HttpRequest) -> HttpResponseBase:
    """Shows ten fresh recovery codes, once; the others are gone."""
    user = me(request)
    if not factors.has_any(user):
        raise Http404
    note("made new recovery codes", user, entering.address_of(request))
    return _codes(request, recovery_codes.renew(user))


@require_POST
@signed_in
def end_sessions(request: HttpRequest) -> HttpResponseBase:
    """Ends one of their sessions, or all but this one."""
    user, this, asked = me(request), request.session.session_key or "", request.POST.get("session", "")
    chosen = next((one.pk for one in sessions.of(user) if sessions.name_of(one.pk) == asked), "") if asked else ""
    if asked and not chosen:
        messages.warning(request, _("This session has ended already."))
    else:
        count = sessions.end(user, only=chosen, but=this)
        note("ended sessions", user, entering.address_of(request), count=count)
        messages.success(
            request, _("Signed out: %(count)s.") % {"count": count} if count else _("No other session was open.")
        )
    return redirect("my_sign_in")


def _page(request: HttpRequest) -> HttpResponse:
    user = me(request)
    required, any_ = factors.is_required(user), factors.has_any(user)
    this = request.session.session_key
    return entering.page(
        request,
        "mine",
        _("Sign-in and sessions"),
        person=user,
        totp=Totp.objects.filter(user=user).first(),
        passkeys=list(user.passkeys.order_by("created_at")),
        codes=user.recovery_codes.count(),
        identities=list(user.identities.order_by("created_at")),
        passwords=settings.CONSOLE_PASSWORDS and user.has_usable_password(),
        has_second=any_,
        must=required and not entering.has_second(request),
        sessions=[
            {
                "name": sessions.name_of(one.pk),
                "device": sessions.device_name(one.device),
                "row": one,
                "this": one.pk == this,
            }
            for one in sessions.of(user)
        ],
    )


def _seed(request: HttpRequest, user: User) -> str | None:
    """The seed that this session has shown; a fresh one where it has shown none. None: nothing can open it any more."""
    try:
        if request.method == "POST":
            return open_sealed(request.session.get(SEED, ""), f"new totp {user.pk}")
    except CannotOpen:
        return None
    seed = totp.new_seed()
    request.session[SEED] = seal(seed, f"new totp {user.pk}")
    return seed


def _scan(request: HttpRequest, user: User, seed: str | None, wrong: str = "") -> HttpResponse:
    if seed is None:
        return redirect("new_totp")
    return entering.page(
        request,
        "new_totp",
        _("Add an authenticator app"),
        picture=mark_safe(totp.picture(user, seed, "Meterline")),  # noqa: S308 - made of modules alone, no text of anybody's
        seed=" ".join(seed[at : at + 4] for at in range(0, len(seed), 4)),
        wrong=wrong,
    )


def _gained(request: HttpRequest, event: str, first: bool, **facts: Any) -> HttpResponse:
    """A factor more. With the first come recovery codes, and whoever is in elsewhere proves it too."""
    user = me(request)
    entering.again(request, second=True)
    note(event, user, entering.address_of(request), **facts)
    if not first:
        messages.success(request, _("Added."))
        return redirect("my_sign_in")
    sessions.end(user, but=request.session.session_key or "")
    return _codes(request, recovery_codes.renew(user))


def _may_lose(request: HttpRequest, kind: str) -> bool:
    """Whether they keep a second factor without this one, or need none."""
    user = me(request)
    User.objects.select_for_update(no_key=True).get(pk=user.pk)  # of two windows one takes the last
    left = user.passkeys.count() + Totp.objects.filter(user=user).count()
    if left > 1 or not factors.is_required(user):
        return True
    messages.error(request, _("A second factor is required here. Add another one first."))
    return False


def _lost(request: HttpRequest, event: str, **facts: Any) -> None:
    factors.forget_codes_without_factor(me(request))
    note(event, me(request), entering.address_of(request), **facts)
    messages.success(request, _("Removed."))


def _codes(request: HttpRequest, codes: list[str]) -> HttpResponse:
    """The codes, once. No redirect: a page after one would need them kept somewhere meanwhile."""
    return entering.page(request, "codes", _("Recovery codes"), codes=codes)


def _name(request: HttpRequest) -> str:
    given = "".join(char if char.isprintable() else " " for char in request.POST.get("name", "")).strip()
    return given[:MOST_NAME] or _("Passkey")
