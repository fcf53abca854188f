"""Console pages of bills that are fetched: where from and with which secret, and how far a fetch is."""

from typing import Any

from celery import current_app
from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Count, Sum
from django.db.models.functions import Length
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.decorators import method_decorator
from django.utils.html import format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST
from kombu.exceptions import OperationalError
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminSelectWidget

from accounts.console import NeverDeleted, Page, is_operator, link, number
from accounts.sealing import CannotOpen
from billing.bills.sources import file_of
from billing.models import BillFetch, BillPage, BillSource
from routing import provider_secret
from routing.bills.fetching import expected_pages, go_on, stop
from routing.bills.vendors import VENDORS
from routing.egress import objection
from routing.models import AuthStyle, Provider
from routing.models.provider import validate_base_url
from routing.provider_secret import UnusableSecret

TASK = "routing.fetch_bill"
State = BillFetch.State


class SourceForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A source. Its secret goes in and never comes out."""

    provider = forms.ModelChoiceField(
        Provider.objects.order_by("slug"),
        to_field_name="slug",
        widget=UnfoldAdminSelectWidget,
        help_text=gettext_lazy("With whose calls the bill is compared."),
        label=gettext_lazy("Provider"),
    )
    secret = forms.CharField(
        required=False,
        strip=True,
        max_length=provider_secret.MOST,
        label=gettext_lazy("Admin key"),
        help_text=gettext_lazy(
            "Of an administrator of the account: no key that calls models. Empty: what is stored stays."
        ),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}, render_value=False),
    )

    class Meta:
        model = BillSource
        fields = ("provider", "form", "endpoint")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "endpoint" in self.fields:
            self.fields["endpoint"].required = False
            self.fields["endpoint"].help_text = _("Up to, not including, /organization. Empty: the vendor's own.")

    def clean_provider(self) -> str:
        """Its slug."""
        return str(self.cleaned_data["provider"].slug)

    def clean_secret(self) -> str:
        """Raises ValidationError for what is no secret, and for none where none is stored."""
        secret: str = self.cleaned_data["secret"]
        if not secret and self.instance._state.adding:
            raise ValidationError(_("A new source needs one."))
        try:
            if secret:
                provider_secret.check(AuthStyle.BEARER, secret)
        except UnusableSecret as error:
            raise ValidationError(
                _("%(upper)s%(value)s.") % {"upper": str(error)[0].upper(), "value": str(error)[1:]}
            ) from None
        return secret

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.instance._state.adding and cleaned.get("form"):
            cleaned["endpoint"] = cleaned.get("endpoint") or VENDORS[cleaned["form"]].endpoint
            try:
                validate_base_url(cleaned["endpoint"])
            except ValidationError as error:
                self.add_error("endpoint", error)
        return cleaned

    def save(self, commit: bool = True) -> Any:
        """Saves; a secret that was typed is sealed for its address."""
        if self.cleaned_data["secret"]:
            self.instance.put(self.cleaned_data["secret"])
            self.instance.hint = provider_secret.hint(AuthStyle.BEARER, self.cleaned_data["secret"])
        return super().save(commit)


class BillSourcePage(Page):
    """Sources. Of another address or provider it would be another one; only the secret is ever changed."""

    form = SourceForm
    list_display = ("provider", "form", "endpoint", "stored")
    search_fields = ("provider",)
    ordering = ("provider",)
    fields = ("provider", "form", "endpoint", "secret", "stored")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("provider", "form", "endpoint", "stored") if obj else ("stored",)

    @method_decorator(sensitive_post_parameters())
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form; no report of an error in it holds what was typed."""
        return super().changeform_view(request, *args, **kwargs)

    def save_model(self, request: HttpRequest, obj: BillSource, form: Any, change: bool) -> None:
        """Saves, and says what will not be dialled."""
        super().save_model(request, obj, form, change)
        wrong = objection(obj.endpoint, settings.EGRESS_ALLOW)
        if wrong:
            messages.warning(request, wrong)

    @display(description=gettext_lazy("Stored"))
    def stored(self, source: BillSource) -> str:
        """The end of the secret, or what is wrong with it."""
        if source._state.adding:
            return "-"
        try:
            source.secret()
        except CannotOpen:
            return _("cannot be opened: type it again")
        return source.hint if source.hint == "…" else f"…{source.hint}"


class BillFetchPage(NeverDeleted, Page):
    """Fetches. One is asked for, fetched by a worker, stopped and gone on with, and compared once it is whole."""

    list_display = ("asked_at", "source", "first", "last", "state_shown", "pages", "error", "asked_by")
    list_select_related = ("source",)
    list_filter = ("state",)
    ordering = ("-pk",)
    search_fields = ()
    change_form_outer_after_template = "admin/billing/billfetch/progress.html"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        asked = ("source", "first", "last")
        return (
            (*asked, "asked_at", "asked_by", "state_shown", "error", "pages", "size", "files", "comparison")
            if obj
            else asked
        )

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_fields(request, obj) if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        found: Any = super().get_queryset(request)
        return found.annotate(kept_pages=Count("pages"), kept_bytes=Sum(Length("pages__content")))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("<int:fetch>/stop/", view(require_POST(self.stop)), name="billing_billfetch_stop"),
            path("<int:fetch>/go_on/", view(require_POST(self.go_on)), name="billing_billfetch_go_on"),
            path("<int:fetch>/file/<slug:part>/", view(self.file), name="billing_billfetch_file"),
            *super().get_urls(),
        ]

    def save_model(self, request: HttpRequest, obj: BillFetch, form: Any, change: bool) -> None:
        """Asks for it."""
        obj.asked_by = request.user.get_username()
        obj.save(force_insert=True)
        self._send(request, obj.pk)

    def response_add(self, request: HttpRequest, obj: BillFetch, post_url_continue: str | None = None) -> HttpResponse:
        """Leads to the page on which it is fetched."""
        return redirect("admin:billing_billfetch_change", obj.pk)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its page, with how far it is; loaded again until it is over."""
        fetch = BillFetch.objects.filter(pk=int(object_id)).first() if object_id.isdecimal() else None
        more: dict[str, Any] = {}
        under_way = fetch is not None and fetch.state in (State.WAITING, State.RUNNING)
        if fetch and is_operator(request):
            kept, expected = fetch.pages.count(), expected_pages(fetch)
            more = {
                "fetch": fetch,
                "kept": kept,
                "expected": max(kept, expected),
                "share": min(99, 100 * kept // expected),
                "under_way": under_way,
            }
        response = super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})
        if under_way:
            response["Refresh"] = "2"
        return response

    def stop(self, request: HttpRequest, fetch: int) -> HttpResponse:
        """POST: lets it rest before its next page."""
        stop(self._asked(request, fetch).pk)
        return redirect("admin:billing_billfetch_change", fetch)

    def go_on(self, request: HttpRequest, fetch: int) -> HttpResponse:
        """POST: goes on after the pages that it has, also when the worker that fetched them has died."""
        self._asked(request, fetch)
        if go_on(fetch):
            self._send(request, fetch)
        else:
            messages.error(request, _("A worker has it, or has had it a moment ago."))
        return redirect("admin:billing_billfetch_change", fetch)

    def file(self, request: HttpRequest, fetch: int, part: str) -> HttpResponse:
        """A part as it was sent, in the form in which it may be uploaded."""
        found = self._asked(request, fetch)
        if part not in BillPage.Part.values or not found.pages.filter(part=part).exists():
            raise Http404
        name, content = file_of(found, BillPage.Part(part))
        response = HttpResponse(content, content_type="application/json")
        response["Content-Disposition"] = f'attachment; filename="{name}"'
        return response

    def _asked(self, request: HttpRequest, fetch: int) -> BillFetch:
        found = BillFetch.objects.select_related("source").filter(pk=fetch).first()
        if not is_operator(request) or found is None:
            raise Http404
        return found

    def _send(self, request: HttpRequest, fetch: int) -> None:
        def send() -> None:
            try:
                current_app.send_task(TASK, (fetch,), retry=False)
            except OperationalError:
                BillFetch.objects.filter(pk=fetch, state=State.WAITING).update(state=State.STOPPED)
                messages.error(request, _("No worker could be asked: Redis does not answer. Try again."))

        transaction.on_commit(send)

    @display(
        description=gettext_lazy("State"),
        label={"done": "success", "failed": "danger", "stopped": "warning", "running": "info", "waiting": "info"},
    )
    def state_shown(self, fetch: BillFetch) -> tuple[str, str]:
        """How far it is."""
        return fetch.state, fetch.get_state_display()

    @display(description=gettext_lazy("Pages"))
    def pages(self, fetch: Any) -> str:
        """How many are kept."""
        return number(fetch.kept_pages)

    @display(description=gettext_lazy("Size"))
    def size(self, fetch: Any) -> str:
        """Of them all."""
        return filesizeformat(fetch.kept_bytes or 0)

    @display(description=gettext_lazy("Files"))
    def files(self, fetch: BillFetch) -> str:
        """Links to them."""
        link = '<a class="text-link" href="../file/{}/">{}</a>'
        return format_html_join(", ", link, ((part, part) for part in BillPage.Part.values))

    @display(description=gettext_lazy("Comparison"))
    def comparison(self, fetch: BillFetch) -> str:
        """Leads to what came of it."""
        return link(fetch.made) if fetch.made else "-"
