"""Console pages of kept payloads: which there are, for whom they are; what is in one is shown for a reason, which is
logged first.
"""

import zlib
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db import connection, transaction
from django.db.models import OuterRef, Subquery, Value
from django.db.models.functions import Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.decorators import display

from accounts.access.table import Verb
from accounts.console import Record
from accounts.log import Action, log
from accounts.models import Project
from accounts.sealing import CannotOpen, open_bytes
from billing.console.filters import OrganizationFilter, ProjectFilter
from gateway.models import Payload
from gateway.process.payloads import SIDES, place

LONGEST_REASON = 500  # characters, as the log keeps
REVEAL = "select * from gateway_reveal_payload(%s, %s, %s)"


class PayloadPage(Record):
    """Kept payloads. The console's role may not read what is in them, but by `gateway_reveal_payload`."""

    list_display = ("created_at", "generation", "project_shown", "prompt_size", "answer_size")
    list_filter = (OrganizationFilter, ProjectFilter)
    lookups = ("organization", "project")
    ordering = ("-pk",)
    actions = ()  # deleting is that of who may
    fields = ("generation", "project_shown", "created_at", "prompt_size", "answer_size")
    readonly_fields = fields
    change_form_outer_after_template = "admin/gateway/payload/reveal.html"

    def get_urls(self) -> list[URLPattern]:
        reveal = require_POST(self.admin_site.admin_view(self.reveal))
        return [path("<uuid:payload>/reveal/", reveal, name="gateway_payload_reveal"), *super().get_urls()]

    def get_queryset(self, request: HttpRequest) -> Any:
        called = Project.objects.filter(pk=OuterRef("project")).values(
            called=Concat("organization__slug", Value("/"), "slug")
        )
        return super().get_queryset(request).defer(*SIDES).annotate(called=Subquery(called))

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """What a tenant may delete the operator may too."""
        return self._may(request, Verb.DELETE, obj)

    def delete_model(self, request: HttpRequest, obj: Payload) -> None:
        """Deletes it, and logs that: no trigger does, since it would read the content."""
        log(Action.DELETE, obj, obj.organization)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Deletes those chosen, each as one."""
        for payload in queryset:
            self.delete_model(request, payload)

    def reveal(self, request: HttpRequest, payload: Any) -> HttpResponse:
        """Shows what was asked and answered, once the log has who, why, when and from where."""
        row = self.get_queryset(request).filter(pk=payload).first()
        if not self.has_view_permission(request) or row is None:
            raise Http404
        reason = request.POST.get("reason", "").replace("\0", "").strip()
        if not reason or len(reason) > LONGEST_REASON:
            messages.error(request, _("Say why, in at most %(most)s characters.") % {"most": LONGEST_REASON})
            return redirect("admin:gateway_payload_change", row.pk)
        with transaction.atomic(durable=not connection.in_atomic_block), connection.cursor() as cursor:
            cursor.execute(REVEAL, [row.pk, reason, settings.PAYLOAD_DAYS_MOST])
            sealed = cursor.fetchone()
        if sealed is None:
            raise Http404
        context = {
            **self.admin_site.each_context(request),
            "title": _("Payload"),
            "row": row,
            "reason": reason,
            "sides": [shown(row, side, box) for side, box in zip(SIDES, sealed, strict=True)],
        }
        return TemplateResponse(request, "admin/gateway/payload/shown.html", context)

    @display(description=gettext_lazy("Generation"))
    def generation(self, payload: Payload) -> str:
        """Leads to its page."""
        url = reverse("admin:billing_usage_change", args=[payload.pk])
        return format_html('<a href="{}" class="text-link">{}</a>', url, payload.pk.hex)

    @display(description=gettext_lazy("Project"))
    def project_shown(self, payload: Any) -> str:
        """As it is called now."""
        return payload.called or "-"

    @display(description=gettext_lazy("Prompt"))
    def prompt_size(self, payload: Payload) -> str:
        """As it was sent."""
        return filesizeformat(payload.prompt_bytes)

    @display(description=gettext_lazy("Answer"))
    def answer_size(self, payload: Payload) -> str:
        """As it went out."""
        return filesizeformat(payload.answer_bytes)


def shown(payload: Payload, side: str, sealed: bytes) -> dict[str, Any]:
    """One side for the page: its text, or that it cannot be opened; and of how much that is the beginning."""
    titles = {"prompt": _("What was asked"), "answer": _("What was answered")}
    whole: int = getattr(payload, f"{side}_bytes")
    try:
        content = zlib.decompress(open_bytes(bytes(sealed), place(side, payload.pk)))
    except (CannotOpen, zlib.error):
        return {"title": titles[side], "text": None, "kept": 0, "whole": whole}
    return {"title": titles[side], "text": content.decode("utf-8", "replace"), "kept": len(content), "whole": whole}
