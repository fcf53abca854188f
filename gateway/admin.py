"""Console pages of what the gateway alone knows: what keys may name, and uploaded files, never what is in them."""

from collections.abc import Callable, Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.template.defaultfilters import filesizeformat
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

import gateway.celery  # noqa: F401  # the console sends tasks, by this application
from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.admin import ApiKeyPage, NewKeyForm
from accounts.console import Page, ReadOnly, RelatedFilter
from accounts.log import Action, log
from accounts.models import ApiKey
from billing.admin import HoldPage, SubjectForm
from billing.models import Budget, Delivery, ExportSchedule, Hold, Limit, Recipient, StoredExport, TariffVersion
from gateway.configuration.allowed import endpoint_objection, model_objection
from gateway.console.changing.change_sets import ChangeSetPage
from gateway.console.changing.drafted_pages import (
    DraftedBudgetPage,
    DraftedLimitPage,
    DraftedPolicyPage,
    DraftedVersionPage,
)
from gateway.console.cuts import cuts_any
from gateway.console.payloads import PayloadPage
from gateway.console.recipients import DeliveryPage, RecipientPage
from gateway.console.refused import RefusedCountPage, RefusedPage
from gateway.console.schedules import SchedulePage, StoredExportPage
from gateway.console.words import translate_names
from gateway.files.store import file_id, parse_id
from gateway.models import ChangeSet, Payload, Refused, RefusedCount, StoredFile
from routing.models import Policy

admin.site.register(Recipient, RecipientPage)
admin.site.register(Delivery, DeliveryPage)
admin.site.register(ExportSchedule, SchedulePage)
admin.site.register(StoredExport, StoredExportPage)
admin.site.register(Payload, PayloadPage)
admin.site.register(Refused, RefusedPage)
admin.site.register(RefusedCount, RefusedCountPage)
admin.site.register(ChangeSet, ChangeSetPage)
admin.site.register(Limit, DraftedLimitPage)
admin.site.register(TariffVersion, DraftedVersionPage)
admin.site.register(Policy, DraftedPolicyPage)


class Allowed:
    """For forms of keys: what they allow is there. What a key names already may stay, though it be gone since."""

    def clean_allowed_models(self) -> list[str]:
        """Raises ValidationError for the slug of no model."""
        return self._checked("allowed_models", model_objection)

    def clean_allowed_endpoints(self) -> list[str]:
        """Raises ValidationError for the name of no endpoint."""
        return self._checked("allowed_endpoints", endpoint_objection)

    def _checked(self: Any, field: str, objection: Callable[[Iterable[str]], str]) -> list[str]:
        given: list[str] = self.cleaned_data[field]
        held = self.initial.get(field) or ()
        if wrong := objection(name for name in given if name not in held):
            raise ValidationError(wrong)
        return given


class CheckedKeyForm(Allowed, forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A key that allows what is there."""


class CheckedNewKeyForm(Allowed, NewKeyForm):
    """A key to be made that allows what is there."""


@admin.register(ApiKey)
class KeyPage(ApiKeyPage):
    """Keys."""

    form = CheckedKeyForm
    add_form = CheckedNewKeyForm


class CheckedBudgetForm(SubjectForm):
    """A budget of all models, or of one that there is."""

    def clean_model(self) -> str:
        """Raises ValidationError for the slug of no model."""
        given: str = self.cleaned_data["model"]
        if given and (wrong := model_objection([given])):
            raise ValidationError(wrong)
        return given


@admin.register(Budget)
class CheckedBudgetPage(DraftedBudgetPage):
    """Budgets."""

    form = CheckedBudgetForm


@admin.register(Hold)
class OpenRequestPage(HoldPage):
    """Requests that are open at this moment, kept fresh while somebody looks, each with a way to end it."""

    list_before_template = "admin/live_list.html"
    concealed = ("process",)

    def get_list_display(self, request: HttpRequest) -> Any:
        """The way to end one is for who may end any."""
        shown = super().get_list_display(request)
        return [*shown, "end"] if cuts_any(access_of(request)) else shown

    @display(description="")
    def end(self, hold: Hold) -> str:
        """Leads to where it is cut off."""
        return format_html(
            '<a class="text-link" href="{}">{}</a>', reverse("cut_request", args=[hold.pk]), _("Cut off")
        )


@admin.register(StoredFile)
class FilePage(ReadOnly, Page):
    """Uploaded files, to look for and to delete. Their content is sealed, and the console's role may not read it."""

    list_display = ("api_id", "filename", "project", "purpose", "size", "created_at", "expires_at")
    list_filter = ("purpose", ("project__organization", RelatedFilter))
    search_fields = ("filename", "project__slug", "project__organization__slug")
    search_help_text = gettext_lazy("A file's id, name, project or organization")
    ordering = ("-id",)
    actions = ()  # deleting is everybody's
    fields = ("api_id", "filename", "project", "key", "purpose", "media_type", "size", "created_at", "expires_at")
    readonly_fields = ("api_id", "size")

    @display(description=gettext_lazy("Id"), ordering="id")
    def api_id(self, file: StoredFile) -> str:
        """As clients know it."""
        return file_id(file.id)

    @display(description=gettext_lazy("Size"), ordering="bytes")
    def size(self, file: StoredFile) -> str:
        """Of the content as it was uploaded."""
        return filesizeformat(file.bytes)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("project__organization").defer("content")

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """One file by its id; by words otherwise."""
        if id := parse_id(search_term.strip()):
            return queryset.filter(pk=id), False
        return super().get_search_results(request, queryset, search_term)

    def delete_model(self, request: HttpRequest, obj: StoredFile) -> None:
        """Deletes it, and logs that: no trigger does, since it would read the content."""
        log(Action.DELETE, obj, obj.project.organization_id, obj.filename)
        super().delete_model(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: StoredFile | None = None) -> bool:
        """What a tenant may delete the operator may too."""
        return self._may(request, Verb.DELETE, obj)


translate_names()  # of all pages: this app's come last
