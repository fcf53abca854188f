"""Signing in at an identity provider, by OpenID Connect: away, and back."""

import logging

from django.conf import settings
from django.contrib import messages
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_GET

from accounts import login_attempts
from accounts.sign_in import factors, groups, invitations
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering, oidc
from gateway.console.sign_in.accepting import INVITED, invited
from gateway.console.sign_in.second_step import BEGUN
from routing.outside import outside

KEPT = "single_sign_on"
AGAIN = gettext_lazy("Signing in there did not work. Begin again.")
NO_ACCESS = gettext_lazy("You have no access here. Ask for an invitation.")

logger = logging.getLogger(__name__)


@transaction.non_atomic_requests  # the provider is waited for
@require_GET
def leave(request: HttpRequest) -> HttpResponseBase:
    """Sends somebody to the provider. A link and no form: a form's answer may not lead elsewhere, by the policy."""
    if seconds := login_attempts.crowded(entering.address_of(request), BEGUN):
        return entering.later(request, seconds)
    try:
        address, kept = _provider().leave(_callback(request), again=request.user.is_authenticated)
    except oidc.Refused as error:
        logger.error("single sign-on: %s", error)
        words = _("The identity provider cannot be reached, or is not set up as it should be.")
        return _failed(request, words, 502)
    if not request.user.is_authenticated:
        request.session.set_expiry(oidc.SIGN_IN_SECONDS)
    request.session[KEPT] = {**kept, "after": request.GET.get("next", "")}
    return redirect(address)


@transaction.non_atomic_requests
@require_GET
def back(request: HttpRequest) -> HttpResponseBase:
    """Takes somebody in who comes back from the provider."""
    provider, address = _provider(), entering.address_of(request)
    kept = request.session.pop(KEPT, None)
    if kept is None:  # anybody may ask for this page, as often as they like: nothing is kept of it
        return _failed(request, str(AGAIN), 403)
    request.session.save()  # good for one answer, whatever becomes of this one
    try:
        claims = provider.claims(kept, {name: request.GET[name] for name in request.GET}, _callback(request))
    except oidc.Refused as error:
        note("was refused after single sign-on", None, address, why=str(error)[:200])
        return _failed(request, str(AGAIN), 403)
    after = kept["after"]
    if kept["again"]:
        return _again(request, claims, after)
    invitation = invited(request)
    try:
        user = groups.person_of(claims, invitation.email if invitation else "")
        if invitation is not None and invitation.email.casefold() == user.email.casefold() == claims.email.casefold():
            invitations.accept(invitation, user)
            note("accepted an invitation", user, address, organization=invitation.organization.slug)
    except (groups.NobodyHere, invitations.NotGood) as error:
        note("was refused after single sign-on", None, address, subject=claims.subject, why=str(error))
        return _failed(request, str(NO_ACCESS), 403)
    except IntegrityError:  # another window of theirs was quicker
        return _failed(request, str(AGAIN), 409)
    if not entering.may_enter(user):
        note("was refused after single sign-on", user, address, why="not let in")
        return _failed(request, str(NO_ACCESS), 403)
    request.session.pop(INVITED, None)
    return entering.first_step(request, user, "single sign-on", after=after, whole=settings.OIDC_PROVES_SECOND_FACTOR)


def _again(request: HttpRequest, claims: groups.Claims, after: str) -> HttpResponse:
    """Whoever is signed in was at the provider to prove it anew: as the same person, and in place of a password."""
    if not request.user.is_authenticated:
        return redirect("admin:login")
    user = entering.me(request)
    same = user.identities.filter(issuer=claims.issuer, subject=claims.subject).exists()
    if not same or (factors.has_any(user) and not settings.OIDC_PROVES_SECOND_FACTOR):
        messages.error(request, _("That was not enough to prove that it is you."))
        return redirect("sign_in_again")
    entering.again(request, second=settings.OIDC_PROVES_SECOND_FACTOR)
    note("proved anew who they are", user, entering.address_of(request), how="single sign-on")
    return redirect(entering.safe(request, after or reverse("my_sign_in")))


def _provider() -> oidc.Provider:
    if not settings.OIDC_ISSUER:
        raise Http404
    return oidc.provider(outside(), settings.OIDC_ISSUER, settings.OIDC_CLIENT_ID, settings.OIDC_CLIENT_SECRET)


def _callback(request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("sso_back"))


def _failed(request: HttpRequest, words: str, status: int) -> HttpResponse:
    return entering.page(request, "failed", _("Not signed in"), status, words=words)
