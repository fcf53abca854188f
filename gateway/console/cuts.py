"""Cutting off a request that is open: whoever runs the installation any, an owner those of their organization.

The process that it is open in hears of it as of a revoked key, and ends it alike: nothing more is read, what was is
settled at once by the rule of what a client that left is charged (`docs/design.md`, "How an answer can end").
"""

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _

from accounts.access.access import Access, access_of
from accounts.roles import Role
from billing.models import Hold


def may_cut(access: Access, hold: Hold) -> bool:
    """Whether the person may cut this one off."""
    return access.is_operator or access.roles.get(hold.organization) is Role.OWNER


def cuts_any(access: Access) -> bool:
    """Whether there may be any that the person may cut off."""
    return access.is_operator or Role.OWNER in access.roles.values()


def cut(request: HttpRequest, generation: UUID) -> HttpResponseBase:
    """GET: asks; POST: cuts it off. 404 for what is not open, or not theirs to see; 403 for who may only see it."""
    access = access_of(request)
    hold = access.rows(Hold.objects.filter(pk=generation)).first()
    if hold is None and request.method == "POST" and cuts_any(access):
        messages.info(request, _("It had ended before."))
        return redirect("admin:billing_hold_changelist")
    if hold is None:
        raise Http404
    if not may_cut(access, hold):
        raise PermissionDenied
    if request.method != "POST":
        context: dict[str, Any] = {
            **admin.site.each_context(request),
            "title": _("Cut off a request"),
            "hold": hold,
            "open_for": int((timezone.now() - hold.created_at).total_seconds()),
        }
        return TemplateResponse(request, "admin/cut.html", context)
    with connection.cursor() as cursor:
        cursor.execute("select gateway_cut(%s)", [generation])
        (done,) = cursor.fetchone()
    words = (
        _("Cut off: it ends within a second, and is settled for what was read of it.")
        if done
        else _("It had ended before.")
    )
    messages.success(request, words)
    return redirect("admin:billing_hold_changelist")
