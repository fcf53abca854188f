"""Accepting an invitation. Its token is behind the `#` of the mail's link, which no browser sends and no log has."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods
from unfold.widgets import UnfoldAdminPasswordWidget

from accounts import login_attempts
from accounts.models import Invitation, User
from accounts.sign_in import invitations
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering
from gateway.console.sign_in.login import PATIENCE, Busy, hashed
from gateway.console.sign_in.second_step import BEGUN

INVITED = "invited"  # the id of the invitation whose token this session has shown
SECONDS = 1800
NOT_GOOD = gettext_lazy(
    "This invitation is not good any more: it was used, taken back, or is older than a week. Ask for another."
)


class NewPassword(forms.Form):
    """A password, twice."""

    password = forms.CharField(
        max_length=200,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        label=gettext_lazy("Password"),
    )
    repeated = forms.CharField(
        max_length=200,
        label=gettext_lazy("Password again"),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
    )

    def __init__(self, email: str, data: Any = None) -> None:
        super().__init__(data)
        self._person = User(username=email, email=email)

    def clean(self) -> dict[str, Any]:
        """Raises ValidationError where they differ, or it is too easy."""
        given = super().clean() or {}
        if given.get("password") and given.get("repeated"):
            if given["password"] != given["repeated"]:
                raise ValidationError({"repeated": _("This is another one.")})
            try:
                validate_password(given["password"], self._person)
            except ValidationError as error:
                raise ValidationError({"password": error.messages}) from error
        return given


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def open_invitation(request: HttpRequest) -> HttpResponseBase:
    """Takes the token that the page's script has found in the address, or that was typed."""
    if request.method != "POST":
        return entering.page(request, "invitation", _("Invitation"))
    if seconds := login_attempts.crowded(entering.address_of(request), BEGUN):
        return entering.later(request, seconds)
    try:
        found = invitations.by_token(request.POST.get("token", "").strip())
    except invitations.NotGood:
        return entering.page(request, "failed", _("Invitation"), 404, words=NOT_GOOD)
    if not request.user.is_authenticated:
        request.session.set_expiry(SECONDS)
    request.session[INVITED] = str(found.pk)
    return redirect("accept_invitation")


@transaction.non_atomic_requests
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def accept_invitation(request: HttpRequest) -> HttpResponseBase:
    """Shows what is offered, and gives it: to whoever is signed in, or to somebody new who chooses a password."""
    found = invited(request)
    if found is None:
        return entering.page(request, "failed", _("Invitation"), 404, words=NOT_GOOD)
    if request.method != "POST":
        return _show(request, found, NewPassword(found.email))
    form = NewPassword(found.email, request.POST)
    try:
        if request.user.is_authenticated:
            return _accepted(request, found)
        if not settings.CONSOLE_PASSWORDS or not form.is_valid():
            return _show(request, found, form)
        user = hashed(lambda: invitations.accept_anew(found, form.cleaned_data["password"]))
    except invitations.NotGood:
        return entering.page(request, "failed", _("Invitation"), 404, words=NOT_GOOD)
    except Busy:
        return entering.later(request, round(PATIENCE))
    _note(request, found, user)
    return entering.first_step(request, user, "invitation", after="")


def invited(request: HttpRequest) -> Invitation | None:
    """The invitation whose token this session has shown, while it is good."""
    if INVITED not in request.session:
        return None
    try:
        return invitations.good(request.session[INVITED])
    except invitations.NotGood:
        return None


def _accepted(request: HttpRequest, found: Invitation) -> HttpResponse:
    invitations.accept(found, entering.me(request))
    _note(request, found, entering.me(request))
    messages.success(request, _("You are a member of %(name)s now.") % {"name": found.organization.name})
    return redirect("admin:index")


def _note(request: HttpRequest, found: Invitation, user: User) -> None:
    request.session.pop(INVITED, None)
    organization = found.organization.slug
    note("accepted an invitation", user, entering.address_of(request), organization=organization, role=found.role)


def _show(request: HttpRequest, found: Invitation, form: NewPassword) -> HttpResponse:
    mine = request.user.is_authenticated and entering.me(request).email.casefold() == found.email.casefold()
    return entering.page(
        request,
        "accept",
        _("Join %(name)s") % {"name": found.organization.name},
        invitation=found,
        form=form,
        mine=mine,
        stranger=request.user.is_authenticated and not mine,
        known=invitations.is_known(found.email),
        passwords=settings.CONSOLE_PASSWORDS,
        sso=settings.OIDC_NAME if settings.OIDC_ISSUER else "",
    )
