"""Console pages of price lists that are fetched: what one would change is looked at before it counts."""

from typing import Any

from celery import current_app
from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from kombu.exceptions import OperationalError
from unfold.decorators import display
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from accounts.console import NeverDeleted, Page, is_operator, number
from billing.models import PriceList
from routing.starter.vendors import VENDORS
from routing.starter.wanted import ask, decline, known_vendors

SHOWN = 1000  # lines
TASK = "routing.fetch_price_list"
State = PriceList.State


class PriceListForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Whose prices are wanted."""

    wanted = forms.MultipleChoiceField(
        label=gettext_lazy("Vendors"),
        choices=[(vendor.slug, vendor.slug) for vendor in VENDORS],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text=gettext_lazy(
            "Ticked are those that are providers already. Another one is added with all models that it sells."
        ),
    )

    class Meta:
        model = PriceList
        fields = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "wanted" in self.fields:  # the page of one that was asked for has none
            self.fields["wanted"].initial = known_vendors()


class PriceListPage(NeverDeleted, Page):
    """Price lists. One is asked for, fetched by a worker, looked at, and imported or declined as a whole."""

    form = PriceListForm
    list_display = ("asked_at", "asked", "state_shown", "differences", "held", "decided_by", "decided_at", "error")
    list_filter = ("state",)
    ordering = ("-pk",)
    search_fields = ()
    change_form_outer_after_template = "admin/billing/pricelist/lines.html"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        asked = ("url", "vendors", "asked_at", "asked", "state_shown", "error", "fetched_at", "size", "sha256")
        return (*asked, "differences", "held", "decided_by", "decided_at") if obj else ("wanted",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_fields(request, obj) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path(f"<int:number>/{name}/", view(require_POST(wish)), name=f"billing_pricelist_{name}")
            for name, wish in (("import", self.import_), ("decline", self.decline))
        ] + super().get_urls()

    def save_model(self, request: HttpRequest, obj: PriceList, form: Any, change: bool) -> None:
        """Asks for a list, and has a worker fetch it."""
        obj.pk = ask(request.user.get_username(), form.cleaned_data["wanted"]).pk

        def send() -> None:
            try:
                current_app.send_task(TASK, (obj.pk,), retry=False)
            except OperationalError:
                PriceList.objects.filter(pk=obj.pk).update(state=State.FAILED, error="no worker could be asked")
                messages.error(request, _("No worker could be asked: Redis does not answer. Try again."))

        transaction.on_commit(send)

    def response_add(self, request: HttpRequest, obj: PriceList, post_url_continue: str | None = None) -> HttpResponse:
        """Leads to the page on which it is looked at."""
        return redirect("admin:billing_pricelist_change", obj.pk)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its page, with what it would change; loaded again until that is known."""
        found = PriceList.objects.filter(pk=int(object_id)).first() if object_id.isdecimal() else None
        more = {"found": found, "lines": found.lines[:SHOWN]} if found and is_operator(request) else {}
        response = super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})
        if found and found.state in (State.WAITING, State.FETCHING):
            response["Refresh"] = "2"
        return response

    def import_(self, request: HttpRequest, number: int) -> HttpResponse:
        """POST: changes the catalog as the lines say, if they still say what it would do."""
        from routing.starter.fetching import Changed, import_  # what reads a list takes a second to import

        found = self._found(request, number)
        try:
            done = import_(found, request.user.get_username())
        except Changed:
            messages.error(request, _("The catalog was changed meanwhile. These are the new differences; look again."))
        else:
            if done is None:
                messages.error(request, _("Somebody has decided on it meanwhile. Nothing was changed."))
            else:
                self.log_change(request, found, f"Imported {len(done.lines)} differences.")
                messages.success(request, _("Imported."))
                if done.proposals:
                    messages.warning(
                        request,
                        _(
                            "%(proposals)s prices are hard to believe and were not changed: "
                            "somebody else has to approve them under Price proposals."
                        )
                        % {"proposals": len(done.proposals)},
                    )
        return redirect("admin:billing_pricelist_change", number)

    def decline(self, request: HttpRequest, number: int) -> HttpResponse:
        """POST: leaves the catalog as it is."""
        found = self._found(request, number)
        if decline(found, request.user.get_username()):
            self.log_change(request, found, "Declined.")
        else:
            messages.error(request, _("Somebody has decided on it meanwhile. Nothing was changed."))
        return redirect("admin:billing_pricelist_change", number)

    def _found(self, request: HttpRequest, number: int) -> PriceList:
        found = PriceList.objects.filter(pk=number).first()
        if not is_operator(request) or found is None:
            raise Http404
        return found

    @display(description=gettext_lazy("Asked for by"))
    def asked(self, found: PriceList) -> str:
        """Somebody, or the schedule."""
        return found.asked_by or _("the schedule")

    @display(
        description=gettext_lazy("State"),
        label={"fetched": "warning", "imported": "success", "same": "success", "failed": "danger", "declined": "info"},
    )
    def state_shown(self, found: PriceList) -> tuple[str, str]:
        """How far it is."""
        return found.state, found.get_state_display()

    @display(description=gettext_lazy("Differences"))
    def differences(self, found: PriceList) -> str:
        """How many lines."""
        return number(len(found.lines)) if found.fetched_at else "-"

    @display(description=gettext_lazy("Size"))
    def size(self, found: PriceList) -> str:
        """Of the list."""
        return "-" if found.bytes is None else filesizeformat(found.bytes)
