"""Console pages: exports on a schedule, and what became of each period."""

from typing import Any
from uuid import UUID

from celery import current_app
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST
from kombu.exceptions import OperationalError
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget

from accounts.console import NeverDeleted, Page, Record, is_operator, moment, number
from accounts.sealing import CannotOpen
from billing.models import ExportSchedule, StorageKind, StoredExport
from gateway.storage.bucket import Address
from routing import provider_secret
from routing.base_url import BadUrl
from routing.egress import objection
from routing.provider_secret import AuthStyle, UnusableSecret

SHOWN = 30  # periods
TASK = "gateway.store_exports"


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A schedule. A bucket's access key goes in and never comes out."""

    secret = forms.CharField(
        required=False,
        strip=True,
        max_length=provider_secret.MOST,
        help_text=gettext_lazy("Of a bucket: ID:SECRET, or ID:SECRET:SESSION_TOKEN. Empty: what is stored stays."),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}, render_value=False),
        label=gettext_lazy("Secret"),
    )

    class Meta:
        model = ExportSchedule
        fields = (
            *("name", "organization", "layout", "format", "every", "first", "kind", "endpoint", "region", "bucket"),
            *("path_style", "prefix", "active"),
        )

    def clean_secret(self) -> str:
        """Raises ValidationError for what is no access key."""
        secret: str = self.cleaned_data["secret"]
        try:
            if secret:
                provider_secret.check(AuthStyle.SIGV4, secret)
        except UnusableSecret as error:
            raise ValidationError(
                _("%(upper)s%(value)s.") % {"upper": str(error)[0].upper(), "value": str(error)[1:]}
            ) from None
        return secret

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.instance._state.adding or self.errors:
            return cleaned
        if cleaned["kind"] == StorageKind.FOLDER:
            if settings.EXPORT_DIR is None:
                self.add_error("kind", _("EXPORT_DIR is not set: there are no folders to store in."))
            return cleaned
        try:
            if cleaned["endpoint"] and cleaned["bucket"]:
                _base(cleaned["endpoint"], cleaned["bucket"], cleaned["path_style"])
        except BadUrl:
            self.add_error("endpoint", _("Write it like https://host, in plain ASCII."))
        if not cleaned.get("secret"):
            self.add_error("secret", _("A bucket needs one."))
        return cleaned

    def save(self, commit: bool = True) -> Any:
        """Saves; an access key that was typed is sealed for its bucket."""
        if self.instance.kind == StorageKind.BUCKET and self.cleaned_data["secret"]:
            self.instance.put(self.cleaned_data["secret"])
            self.instance.hint = provider_secret.hint(AuthStyle.SIGV4, self.cleaned_data["secret"])
        return super().save(commit)


def _base(endpoint: str, bucket: str, path_style: bool) -> str:
    return str(Address(endpoint, "", bucket, path_style).base())


class SchedulePage(NeverDeleted, Page):
    """Schedules. What is written where is chosen once: the files of another one would not go on where these end."""

    form = ScheduleForm
    list_display = ("name", "whose", "every", "layout", "format", "where", "state", "last_error", "active")
    list_filter = ("active", "every")
    list_select_related = ("organization",)
    search_fields = ("name", "organization__slug", "bucket")
    ordering = ("name",)
    autocomplete_fields = ("organization",)
    fieldsets = (
        (None, {"fields": ("name", "organization", "layout", "format", "every", "first", "active")}),
        (gettext_lazy("Where to"), {"fields": ("kind", "prefix")}),
        (gettext_lazy("Of a bucket"), {"fields": ("endpoint", "region", "bucket", "path_style", "secret", "stored")}),
    )
    change_form_outer_after_template = "admin/billing/exportschedule/periods.html"

    def get_readonly_fields(self, request: HttpRequest, obj: ExportSchedule | None = None) -> tuple[str, ...]:
        chosen = tuple(name for name in ScheduleForm.Meta.fields if name != "active")
        return (*chosen, "stored") if obj else ("stored",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[ExportSchedule]:
        newest = StoredExport.objects.filter(schedule=OuterRef("pk")).order_by("-start")
        columns = {name: Subquery(newest.values(name)[:1]) for name in ("start", "state", "last_error")}
        found: QuerySet[ExportSchedule] = super().get_queryset(request)
        return found.annotate(**{f"newest_{name}": column for name, column in columns.items()})

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(self.run))
        return [path("<uuid:schedule>/run/", view, name="billing_exportschedule_run"), *super().get_urls()]

    @method_decorator(sensitive_post_parameters())
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form; no report of an error in it holds what was typed."""
        return super().changeform_view(request, *args, **kwargs)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        schedule = self.get_object(request, object_id) if is_operator(request) else None
        more = {"schedule": schedule, "periods": _periods(schedule)} if schedule else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})

    def run(self, request: HttpRequest, schedule: UUID) -> HttpResponse:
        """POST: has a worker store what is due, also what is to be tried again later; if not at once, then soon: what
        was asked for is in the row, and whoever stores next finds it.
        """
        found = ExportSchedule.objects.filter(pk=schedule).first()
        if not is_operator(request) or found is None:
            raise Http404
        found.periods.filter(state=StoredExport.State.WAITING).update(next_try_at=Now())

        def send() -> None:
            try:
                current_app.send_task(TASK, retry=False)
            except OperationalError:
                messages.error(request, _("No worker could be asked: Redis does not answer. Try again."))

        transaction.on_commit(send)
        if found.active:
            messages.info(request, _("Asked for at %(now)s UTC.") % {"now": f"{timezone.now():%H:%M:%S}"})
        else:
            messages.warning(request, _("It is off: nothing is stored."))
        return redirect("admin:billing_exportschedule_change", schedule)

    def save_model(self, request: HttpRequest, obj: ExportSchedule, form: Any, change: bool) -> None:
        """Saves, and says what will not be stored."""
        super().save_model(request, obj, form, change)
        if obj.kind == StorageKind.BUCKET:
            wrong = objection(_base(obj.endpoint, obj.bucket, obj.path_style), settings.EGRESS_ALLOW)
            if wrong:
                messages.warning(request, wrong)

    @display(description=gettext_lazy("Whose"))
    def whose(self, schedule: ExportSchedule) -> str:
        """An organization, or all."""
        return schedule.organization.slug if schedule.organization else _("all")

    @display(description=gettext_lazy("Access key"))
    def stored(self, schedule: ExportSchedule) -> str:
        """The end of its id, or what is wrong with it."""
        if schedule._state.adding or schedule.kind == StorageKind.FOLDER:
            return "-"
        try:
            schedule.secret()
        except CannotOpen:
            return _("cannot be opened: type it again")
        return schedule.hint if schedule.hint == "…" else f"…{schedule.hint}"

    @display(description=gettext_lazy("State"), label={"stored": "success", "failed": "danger", "waiting": "info"})
    def state(self, schedule: Any) -> tuple[str, str]:
        """How far it is."""
        if schedule.newest_last_error:
            return "failed", _("%(day)s failed") % {"day": schedule.newest_start}
        if schedule.newest_state == StoredExport.State.STORED:
            return "stored", _("%(day)s stored") % {"day": schedule.newest_start}
        return "waiting", _("waits for %(day)s") % {"day": schedule.newest_start or schedule.first}

    @display(description=gettext_lazy("Last error"))
    def last_error(self, schedule: Any) -> str:
        """Of the period that is not stored."""
        return schedule.newest_last_error or "-"


def _periods(schedule: ExportSchedule) -> dict[str, Any]:
    """The table of the newest periods."""
    return {
        "headers": [
            *(_("From"), _("State"), _("Tries"), _("Last error"), _("Rows"), _("Of earlier periods"), _("Size")),
            *(_("Stored at"), _("Name")),
        ],
        "rows": [
            [
                str(period.start),
                period.get_state_display(),
                number(period.tries),
                period.last_error or "-",
                number(period.rows),
                number(period.late),
                "-" if period.bytes is None else filesizeformat(period.bytes),
                moment(period.stored_at),
                period.name or "-",
            ]
            for period in schedule.periods.order_by("-start")[:SHOWN]
        ],
    }


class StoredExportPage(Record):
    """Periods of schedules, newest first."""

    list_display = ("schedule", "start", "state", "tries", "rows", "late", "size", "stored_at", "last_error")
    list_select_related = ("schedule",)
    list_filter = ("state",)
    lookups = ("state__exact", "schedule__name")
    ordering = ("-pk",)
    search_fields = ()
    codes = ("ledger",)
    fields = (
        *("schedule", "start", "state", "tries", "next_try_at", "last_error", "name", "rows", "late", "size"),
        *("sha256", "ledger", "stored_at"),
    )

    @display(description=gettext_lazy("Size"))
    def size(self, period: StoredExport) -> str:
        """Of the file."""
        return "-" if period.bytes is None else filesizeformat(period.bytes)
