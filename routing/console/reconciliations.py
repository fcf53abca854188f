"""Console pages of reconciliation: a bill is uploaded, and compared with the books by day, model and credential."""

import csv
import re
from io import StringIO
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.db import OperationalError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display
from unfold.widgets import UnfoldAdminFileFieldWidget, UnfoldAdminSelectWidget

from accounts.console import Record, is_operator, money, number
from billing.bills.files import MOST_BYTES, BadBill, Form
from billing.bills.reconciling import reconcile
from billing.exports.csv_file import FORMULA
from billing.models import Reconciliation, ReconciliationLine
from routing.bills.credentials import billed_as
from routing.models import Provider

SHOWN = 1000  # lines; the file has all
COLUMNS = (
    *(
        "day",
        "model",
        "credential",
        "billed_calls",
        "booked_calls",
        "billed_tokens",
        "booked_tokens",
        "billed",
        "booked",
    ),
    *("missing", "tokens", "price"),
)
HEADER = (*COLUMNS[:9], "missing_calls", "token_drift", "price_drift")
AMOUNTS = COLUMNS[7:]
SHOWN_AMOUNTS = tuple(f"{name}_shown" for name in AMOUNTS)


def as_csv(made: Reconciliation) -> str:
    """All lines (RFC 4180), safe against a spreadsheet's formulas."""
    output = StringIO()
    writer = csv.writer(output)
    writer.writerow(HEADER)
    for line in made.lines.order_by("day", "model", "credential").values_list(*COLUMNS).iterator():
        writer.writerow([_cell(value) for value in line])
    return output.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if re.match(FORMULA, value) else value
    return f"{value:f}" if hasattr(value, "normalize") else str(value)


FORMS = (
    (Form.METERLINE, gettext_lazy("Meterline's own")),
    (Form.OPENAI, gettext_lazy("OpenAI's exports")),
    (Form.ANTHROPIC, gettext_lazy("Anthropic's exports")),
)


class BillForm(forms.Form):
    """A bill to be compared."""

    provider = forms.ModelChoiceField(
        Provider.objects.order_by("slug"),
        to_field_name="slug",
        widget=UnfoldAdminSelectWidget,
        label=gettext_lazy("Provider"),
    )
    form = forms.ChoiceField(choices=FORMS, widget=UnfoldAdminSelectWidget, label=gettext_lazy("Form"))
    file = forms.FileField(widget=UnfoldAdminFileFieldWidget, label=gettext_lazy("File"))
    second = forms.FileField(
        required=False,
        widget=UnfoldAdminFileFieldWidget,
        help_text=gettext_lazy("OpenAI's and Anthropic's bills are two files: usage and cost."),
        label=gettext_lazy("Second file"),
    )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        for name in ("file", "second"):
            if cleaned.get(name) and cleaned[name].size > MOST_BYTES:
                self.add_error(name, _("It is larger than %(value)s MiB.") % {"value": MOST_BYTES >> 20})
        return cleaned


class ReconciliationPage(Record):
    """Bills that were compared, newest first. What one came to stays as it was."""

    list_display = ("made_at", "provider", "first", "last", *SHOWN_AMOUNTS, "made_by")
    ordering = ("-pk",)
    search_fields = ()
    list_before_template = "admin/billing/reconciliation/upload_button.html"
    change_form_outer_after_template = "admin/billing/reconciliation/lines.html"
    fields = ("provider", "form", "files", "first", "last", "made_at", "made_by", *SHOWN_AMOUNTS)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("upload/", view(self.upload), name="billing_reconciliation_upload"),
            path("<int:made>/file/", view(self.file), name="billing_reconciliation_file"),
            *super().get_urls(),
        ]

    def upload(self, request: HttpRequest) -> HttpResponse:
        """Asks for a bill; compares it. What is refused leaves nothing behind."""
        if not is_operator(request):
            raise PermissionDenied
        form = BillForm(request.POST or None, request.FILES or None)
        if request.method == "POST" and form.is_valid():
            given = form.cleaned_data
            provider = given["provider"].slug
            files = [(one.name, one.read()) for one in (given["file"], given["second"]) if one]
            try:
                with transaction.atomic():  # what was too long for the console leaves its request's transaction whole
                    made = reconcile(
                        provider, Form(given["form"]), files, billed_as(provider), request.user.get_username()
                    )
            except BadBill as error:
                form.add_error("file", str(error))
            except OperationalError:
                form.add_error("file", _("It takes too long here: use manage.py reconcile, or fewer days at once."))
            else:
                self.log_addition(request, made, "Compared.")
                return redirect("admin:billing_reconciliation_change", made.pk)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Compare a bill"),
            "opts": self.opts,
            "form": form,
        }
        return TemplateResponse(request, "admin/billing/reconciliation/upload.html", context)

    def file(self, request: HttpRequest, made: int) -> HttpResponse:
        """All its lines as CSV."""
        if not is_operator(request):
            raise PermissionDenied
        found = Reconciliation.objects.filter(pk=made).first()
        if found is None:
            raise Http404
        response = HttpResponse(as_csv(found), content_type="text/csv; charset=utf-8")
        response["Content-Disposition"] = f'attachment; filename="reconciliation-{made}.csv"'
        return response

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its page, with its lines."""
        made = Reconciliation.objects.filter(pk=int(object_id)).first() if object_id.isdecimal() else None
        more = {"made": made, "table": table(made)} if made and is_operator(request) else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})

    @display(description=gettext_lazy("Billed"))
    def billed_shown(self, made: Reconciliation) -> str:
        """What the provider takes."""
        return money(made.billed)

    @display(description=gettext_lazy("In the books"))
    def booked_shown(self, made: Reconciliation) -> str:
        """What we have of it."""
        return money(made.booked)

    @display(description=gettext_lazy("Missing calls"))
    def missing_shown(self, made: Reconciliation) -> str:
        """Of the gap."""
        return money(made.missing)

    @display(description=gettext_lazy("Token drift"))
    def tokens_shown(self, made: Reconciliation) -> str:
        """Of the gap."""
        return money(made.tokens)

    @display(description=gettext_lazy("Price drift"))
    def price_shown(self, made: Reconciliation) -> str:
        """Of the gap."""
        return money(made.price)


def table(made: Reconciliation) -> dict[str, Any]:
    """Its lines, those with the most to tell first."""

    def gap(line: ReconciliationLine) -> Any:
        return max(abs(line.missing), abs(line.tokens), abs(line.price))

    lines = sorted(made.lines.order_by("day", "model", "credential"), key=gap, reverse=True)[:SHOWN]
    counts = ("billed_calls", "booked_calls", "billed_tokens", "booked_tokens")
    return {
        "headers": [
            *(_("Day"), _("Model"), _("Credential"), _("Calls"), _("Ours"), _("Tokens"), _("Ours"), _("Billed")),
            *(_("In the books"), _("Missing calls"), _("Token drift"), _("Price drift")),
        ],
        "rows": [
            [
                f"{line.day}",
                line.model,
                line.credential or "-",
                *(number(getattr(line, name)) for name in counts),
                *(money(getattr(line, name)) for name in AMOUNTS),
            ]
            for line in lines
        ],
    }
