"""Console pages of statements: the list, one as a page and as PDF, and issuing."""

from datetime import date
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from accounts.console import NeverDeleted, Page, link, money, number
from accounts.exact import plain
from accounts.models import Organization
from billing.documents import counted, pdf
from billing.issuing import BESIDE, MOST_REASON, credit_note, issue, statement
from billing.models import Statement

COPIED = (
    "issuer",
    "kind",
    "refers_to",
    "organization",
    "slug",
    "name",
    "month",
    "currency",
    "total",
    "lines",
    "reason",
)
WHICH = gettext_lazy(
    "Give a month and an organization for a statement, or a statement, an amount and a reason for a credit note."
)


def words(label: Any, help_text: Any, most: int = 100) -> forms.CharField:
    """A line of text that may stay empty."""
    return forms.CharField(
        required=False, max_length=most, label=label, help_text=help_text, widget=UnfoldAdminTextInputWidget, strip=True
    )


class StatementForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """What to issue: a statement, or a credit note."""

    of_month = words(gettext_lazy("Of month"), gettext_lazy("For a statement: a closed month, as 2026-10."))
    of_organization = words(
        gettext_lazy("Of organization"), gettext_lazy("For a statement: the organization's slug."), 200
    )
    credits = words(gettext_lazy("Credits"), gettext_lazy("For a credit note: the statement's number, as 2026-00001."))
    amount = words(gettext_lazy("Amount"), gettext_lazy("For a credit note: dollars that are taken of it."))
    why = words(gettext_lazy("Why"), gettext_lazy("For a credit note: the reason, which is on it."), MOST_REASON)

    class Meta:
        model = Statement
        fields: tuple[str, ...] = ()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        first, slug = cleaned["of_month"], cleaned["of_organization"]
        note = (cleaned["credits"], cleaned["amount"], cleaned["why"])
        if any(note) == bool(first or slug):
            raise ValidationError(WHICH)
        if any(note):
            cleaned["document"] = credit_note(*note, by="")
            return cleaned
        organization = Organization.objects.filter(slug=slug).first()
        if organization is None:
            raise ValidationError({"of_organization": _("There is no organization %(value)s.") % {"value": slug}})
        try:
            month = date.fromisoformat(f"{first}-01")
        except ValueError:
            raise ValidationError(
                {"of_month": _("%(value)s is no month. Write it as 2026-10.") % {"value": first}}
            ) from None
        cleaned["document"] = statement(month, organization, by="")
        return cleaned


class StatementPage(NeverDeleted, Page):
    """Statements and credit notes, newest first. Adding one issues it; nothing changes it again."""

    form = StatementForm
    list_display = ("shown", "kind", "issued_at", "slug", "month_shown", "total_shown", "file")
    list_filter = ("kind", "month")
    ordering = ("-pk",)
    search_fields = ("slug",)
    search_help_text = gettext_lazy("Organization")
    change_form_after_template = "admin/billing/statement/lines.html"
    shown_fields = (
        *("shown", "kind", "refers_link", "issuer", "slug", "name", "month_shown", "total_exact", "currency"),
        *("reason", "issued_at", "issued_by", "file"),
    )

    def get_urls(self) -> list[URLPattern]:
        name = "billing_statement_pdf"
        return [path("<int:number>/pdf/", self.admin_site.admin_view(self.pdf), name=name), *super().get_urls()]

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.shown_fields if obj else ("of_month", "of_organization", "credits", "amount", "why")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.shown_fields if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is None:
            kwargs["fields"] = ()
        return super().get_form(request, obj, change, **kwargs)

    def save_model(self, request: HttpRequest, obj: Statement, form: Any, change: bool) -> None:
        document = form.cleaned_data["document"]
        for name in COPIED:
            setattr(obj, name, getattr(document, name))
        obj.issued_by = request.user.get_username()
        issue(obj)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        context = dict(extra_context or {})
        document = self.get_object(request, object_id)
        if document is not None:
            context["lines"] = lines(document)
        return super().change_view(request, object_id, form_url, context)

    def pdf(self, request: HttpRequest, number: int) -> HttpResponse:
        """The document, as it goes to the organization."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        document = self.get_queryset(request).filter(pk=number).first() if number < 2**63 else None
        if document is None:
            raise Http404
        headers = {
            "Content-Disposition": f'attachment; filename="{document}.pdf"',
            "Cache-Control": "no-store, private",
        }
        return HttpResponse(pdf(document), content_type="application/pdf", headers=headers)

    @display(description=gettext_lazy("Number"), ordering="pk")
    def shown(self, document: Statement) -> str:
        """Year and number."""
        return str(document)

    @display(description=gettext_lazy("Month"), ordering="month")
    def month_shown(self, document: Statement) -> str:
        """As 2026-10."""
        return f"{document.month:%Y-%m}"

    @display(description=gettext_lazy("Total"))
    def total_shown(self, document: Statement) -> str:
        """In dollars."""
        return money(document.total)

    @display(description=gettext_lazy("Total"))
    def total_exact(self, document: Statement) -> str:
        """With every digit."""
        return plain(document.total)

    @display(description=gettext_lazy("Refers to"))
    def refers_link(self, document: Statement) -> str:
        """Leads to the statement that a credit note is of."""
        return link(document.refers_to) if document.refers_to else "-"

    @display(description=gettext_lazy("Document"))
    def file(self, document: Statement) -> str:
        """Leads to the PDF."""
        url = reverse("admin:billing_statement_pdf", args=[document.pk])
        return format_html('<a href="{}" class="text-link">PDF</a>', url)


def in_words(note: str) -> str:
    """A line's note; ours are in the reader's language."""
    return _(note) if note else ""


def lines(document: Statement) -> dict[str, Any]:
    """The table of a document's lines, by model and provider."""
    rows = [
        (
            line["model"] if "model" in line else in_words(line["note"]),
            line.get("provider", ""),
            *(
                number(line[name]) if name in line else ""
                for name in ("requests", "prompt_tokens", "completion_tokens")
            ),
            counted(*(line.get(name, 0) for name in BESIDE)),
            plain(Decimal(line["charge"])),
        )
        for line in document.lines
    ]
    rows.append((_("Total"), "", "", "", "", "", plain(document.total)))
    headers = [
        *(_("Model"), _("Provider"), _("Requests"), _("Prompt tokens"), _("Completion tokens"), _("Beside tokens")),
        _("Charge"),
    ]
    return {"headers": headers, "rows": rows}
