"""Inviting people to an organization: for its owners, and for operators."""

import logging
import smtplib
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.core.mail import EmailMessage
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override
from django.views.decorators.http import require_http_methods, require_POST
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminSelectWidget

from accounts.models import Invitation, Organization
from accounts.roles import Role
from accounts.sign_in import invitations
from accounts.sign_in.noting import note
from gateway.console.sign_in import entering
from gateway.console.sign_in.entering import me, signed_in

MOST_SHOWN = 200

logger = logging.getLogger(__name__)


class Invite(forms.Form):
    """Whom, to what, and as what."""

    email = forms.EmailField(max_length=150, label=gettext_lazy("Mail address"), widget=UnfoldAdminEmailInputWidget())
    organization: Any = forms.ModelChoiceField(
        Organization.objects.none(), widget=UnfoldAdminSelectWidget(), label=gettext_lazy("Organization")
    )
    role = forms.ChoiceField(
        choices=Role.choices, initial=Role.DEVELOPER, widget=UnfoldAdminSelectWidget(), label=gettext_lazy("Role")
    )

    def __init__(self, mine: Any, data: Any = None) -> None:
        super().__init__(data)
        self.fields["organization"].queryset = mine.order_by("slug")  # type: ignore[attr-defined]


@transaction.non_atomic_requests  # the mail server is waited for, with nothing held
@require_http_methods(["GET", "HEAD", "POST"])
@signed_in
def invite(request: HttpRequest) -> HttpResponseBase:
    """The invitations to one's organizations, and a form for another."""
    mine = invitations.may_invite(me(request))
    if not mine.exists():
        raise PermissionDenied
    form = Invite(mine, request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _show(request, form)
    given = form.cleaned_data
    try:
        made, token = invitations.offer(me(request), given["organization"], given["email"], given["role"])
    except invitations.CannotInvite as error:
        form.add_error(None, str(error))
        return _show(request, form)
    facts = {"email": made.email, "organization": made.organization.slug, "role": made.role}
    note("invited somebody", me(request), entering.address_of(request), **facts)
    link = f"{request.build_absolute_uri(reverse('open_invitation'))}#{token}"
    if (wrong := _mailed(made, link)) is None:
        Invitation.objects.filter(pk=made.pk).update(mailed=True)
        messages.success(
            request,
            _("%(email)s was sent an invitation to %(slug)s.") % {"email": made.email, "slug": made.organization.slug},
        )
        return redirect("invite")
    return _show(request, Invite(mine), link=link, made=made, wrong=wrong)


@require_POST
@signed_in
def take_back(request: HttpRequest, pk: Any) -> HttpResponseBase:
    """Takes an open invitation back."""
    if not invitations.revoke(me(request), pk):
        raise Http404
    note("took an invitation back", me(request), entering.address_of(request), invitation=str(pk))
    messages.success(request, _("Taken back."))
    return redirect("invite")


def _mailed(made: Invitation, link: str) -> str | None:
    """Sends the mail; None, or why that did not work."""
    if not settings.EMAIL_HOST:
        return _("No mail server is set up (EMAIL_HOST).")
    with override("en"):  # whatever the language of who invites
        role = made.get_role_display().lower()
    text = (
        f"{made.invited_by.get_full_name() or made.invited_by.get_username()} invites you to {made.organization.name} "
        f"as {role}.\n\nAccept until {made.expires_at:%Y-%m-%d %H:%M} UTC:\n\n{link}\n\n"
        "The link is good once. Whoever did not expect this need not do anything.\n"
    )
    subject = " ".join(f"Invitation to {made.organization.name}".split())
    try:
        EmailMessage(subject, text, to=[made.email], headers={"Auto-Submitted": "auto-generated"}).send()
    except (OSError, smtplib.SMTPException) as error:
        logger.warning("an invitation was not mailed: %s", error)
        return _("The mail server did not take the mail.")
    return None


def _show(request: HttpRequest, form: Invite, **context: Any) -> HttpResponse:
    mine = invitations.may_invite(me(request))
    rows = Invitation.objects.filter(organization__in=mine).select_related("organization", "invited_by", "accepted_by")
    now = timezone.now()
    shown = [
        {
            "row": one,
            "open": not one.accepted_at and not one.revoked_at and one.expires_at > now,
            "state": _("accepted")
            if one.accepted_at
            else _("taken back")
            if one.revoked_at
            else _("open")
            if one.expires_at > now
            else _("expired"),
        }
        for one in rows.order_by("-created_at")[:MOST_SHOWN]
    ]
    return entering.page(request, "invite", _("Invitations"), form=form, rows=shown, **context)
