"""Console pages of requests that were refused before anything was held for them: the last, and how many a minute."""

from typing import Any

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.console import Record, number, whose
from billing.console.filters import KeyFilter, ModelFilter, NameFilter, OrganizationFilter, ProjectFilter
from gateway.models import Refused, RefusedCount

COLOURS = {"theirs": "warning", "ours": "danger"}


class StatusFilter(NameFilter):
    """By HTTP status, typed; nothing for what is none."""

    title = gettext_lazy("HTTP status")
    parameter_name = "status"

    def narrow(self, generations: QuerySet[Any], text: str) -> QuerySet[Any]:
        """Those that were told this status."""
        return (
            generations.filter(status=int(text))
            if text.isascii() and text.isdigit() and len(text) == 3
            else generations.none()
        )


class ReasonFilter(NameFilter):
    """By the error's code."""

    title = gettext_lazy("reason")
    parameter_name = "code"


class Told(Record):
    """What both pages show of who was refused, and of what was told."""

    lookups = ("organization", "project", "key", "status", "code", "model")

    codes = ("status",)

    @display(description=gettext_lazy("Whose"))
    def caller(self, row: Any) -> str:
        """Organization, project and key, as they were called then."""
        return whose(row.organization_slug, row.project_slug, self.key_link(row)) if row.organization else "-"

    @display(description=gettext_lazy("Project"))
    def tenant(self, row: Any) -> str:
        """Organization and project, as they were called then."""
        return f"{row.organization_slug}/{row.project_slug}" if row.organization else "-"

    @display(description=gettext_lazy("Key"))
    def key_link(self, row: Any) -> str:
        """Leads to the key, by its name then."""
        if row.key is None:
            return _("no key known")
        url = reverse("admin:accounts_apikey_change", args=[row.key])
        return format_html('<a href="{}" class="text-link">{}</a>', url, row.key_name)

    @display(description=gettext_lazy("Status"), label=COLOURS)
    def answered(self, row: Any) -> tuple[str, str]:
        """The HTTP status; what we could not do stands out."""
        return "ours" if row.status >= 500 else "theirs", str(row.status)


class RefusedPage(Told):
    """The last refused requests, found by their `x-request-id`, and by who sent them."""

    list_display = ("created_at", "answered", "code", "message", "caller", "request_id")
    list_filter = (OrganizationFilter, ProjectFilter, KeyFilter, StatusFilter, ReasonFilter, ModelFilter)
    search_help_text = gettext_lazy("Request id (x-request-id)")
    ordering = ("-pk",)
    fields = (
        "request_id",
        "created_at",
        "status",
        "code",
        "message",
        "tenant",
        "key_link",
        "address",
        "method",
        "path",
        "model",
    )

    @display(description=gettext_lazy("Request id"))
    def request_id(self, row: Refused) -> str:
        """As the client got it."""
        return row.pk.hex


class RefusedCountPage(Told):
    """How many were refused in each minute, of each key and for each reason."""

    list_display = ("minute", "answered", "code", "count", "caller")
    list_filter = (OrganizationFilter, ProjectFilter, KeyFilter, StatusFilter, ReasonFilter)
    search_fields = ()
    ordering = ("-minute", "-pk")
    fields = ("minute", "status", "code", "requests", "tenant", "key_link")

    @display(description=gettext_lazy("Requests"))
    def count(self, row: RefusedCount) -> str:
        """How many."""
        return number(row.requests)
