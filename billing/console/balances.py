"""Console page of prepaid balances: what each organization has left, its credits, and giving one more."""

from datetime import UTC
from decimal import Decimal
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import OuterRef, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.decorators import display
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanWidget,
)

from accounts.console import NeverDeleted, Page, RelatedFilter, is_operator, money
from accounts.exact import plain
from accounts.models import Organization
from billing.credit.credits import BALANCE, GIVABLE
from billing.credit.prepaid import balance, end, grant, lots
from billing.models import Counter, Credit, CreditKind, Prepaid

SHOWN = 200  # credits


class CreditForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A credit to give. It is given as the form is checked, since only the database knows whether it may be."""

    by = ""

    organization = forms.CharField(
        max_length=200,
        widget=UnfoldAdminTextInputWidget,
        help_text=gettext_lazy("The organization's slug."),
        strip=True,
        label=gettext_lazy("Organization"),
    )
    kind = forms.ChoiceField(
        choices=[(kind.value, kind.label) for kind in GIVABLE],
        widget=UnfoldAdminSelectWidget,
        label=gettext_lazy("Kind"),
    )
    amount = forms.DecimalField(
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=gettext_lazy("Dollars. Below 0 an adjustment takes what is neither spent nor held."),
        label=gettext_lazy("Amount"),
    )
    reference = forms.CharField(
        max_length=200,
        widget=UnfoldAdminTextInputWidget,
        strip=True,
        help_text=gettext_lazy("Of the payment or the reason; each counts once for an organization."),
        label=gettext_lazy("Reference"),
    )
    expires_at = forms.DateTimeField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        help_text=gettext_lazy("UTC, as 2027-01-01 00:00. Empty: never. What is left then is taken within a minute."),
        label=gettext_lazy("Expires at"),
    )
    note = forms.CharField(
        required=False, max_length=200, widget=UnfoldAdminTextInputWidget, strip=True, label=gettext_lazy("Note")
    )
    begin = forms.BooleanField(
        required=False,
        label=gettext_lazy("Make it prepaid"),
        widget=UnfoldBooleanWidget,
        help_text=gettext_lazy(
            "For the first credit of an organization that is postpaid: from then on it spends what it was given "
            "and no more."
        ),
    )

    class Meta:
        model = Prepaid
        fields: tuple[str, ...] = ()

    def _post_clean(self) -> None:
        """Gives it, in place of the checks of a row."""
        if self.errors:
            return
        given = self.cleaned_data
        organization = Organization.objects.filter(slug=given["organization"]).first()
        if organization is None:
            self.add_error("organization", _("There is no organization %(value)s.") % {"value": given["organization"]})
            return
        try:
            grant(
                organization,
                CreditKind(given["kind"]),
                given["amount"],
                given["reference"],
                self.by,
                expires_at=given["expires_at"],
                note=given["note"],
                begin=given["begin"],
            )
        except ValidationError as error:
            self.add_error(None, error)
            return
        self.instance = Prepaid.objects.get(pk=organization.pk)


def counted(column: str) -> Subquery:
    """`column` of a balance's counter."""
    counters = Counter.objects.filter(subject=OuterRef("pk"), measure="money", period=BALANCE)
    return Subquery(counters.values(column)[:1])


class BalancePage(NeverDeleted, Page):
    """Who is prepaid, and what is left. Adding is giving a credit, which nothing changes: another one corrects it."""

    list_display = ("organization", "left", "held", "granted_at", "since", "alerts_shown")
    list_filter = (("organization", RelatedFilter),)
    list_select_related = ("organization",)
    search_fields = ("organization__slug",)
    ordering = ("organization__slug",)
    change_form_after_template = "admin/billing/statement/lines.html"
    change_form_outer_after_template = "admin/billing/prepaid/end.html"
    shown_fields = ("organization", "left", "given", "paid", "held", "since", "granted_at")

    def get_queryset(self, request: HttpRequest) -> Any:
        counters = {"used_now": counted("used"), "held_now": counted("held")}
        return super().get_queryset(request).select_related("organization").annotate(**counters)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        asked = ("organization", "kind", "amount", "reference", "expires_at", "note", "begin")
        return (*self.shown_fields, "alerts") if obj else asked

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.shown_fields if obj else ()

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is not None:
            return super().get_form(request, obj, change, **kwargs)
        made: Any = super().get_form(request, obj, change, **{**kwargs, "form": CreditForm, "fields": ()})
        made.by = request.user.get_username()  # a class of this request's own
        return made

    def save_model(self, request: HttpRequest, obj: Prepaid, form: Any, change: bool) -> None:
        if change:
            obj.save(update_fields=["alerts"])

    def response_add(self, request: HttpRequest, obj: Prepaid, post_url_continue: str | None = None) -> HttpResponse:
        """Leads to the balance."""
        return redirect("admin:billing_prepaid_change", obj.pk)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        context = dict(extra_context or {})
        found = self.get_object(request, object_id)
        if found is not None:
            context |= {"lines": credits(found), "ends": found.pk}
        return super().change_view(request, object_id, form_url, context)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(require_POST(self.end))
        return [path("<uuid:organization>/end/", view, name="billing_prepaid_end"), *super().get_urls()]

    def end(self, request: HttpRequest, organization: UUID) -> HttpResponse:
        """POST: makes the organization postpaid, if nothing is left."""
        found = Prepaid.objects.select_related("organization").filter(pk=organization).first()
        if not is_operator(request) or found is None:
            raise Http404
        try:
            end(organization)
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
            return redirect("admin:billing_prepaid_change", organization)
        self.log_change(request, found, "Ended: the organization is postpaid.")
        messages.success(request, _("%(slug)s is postpaid.") % {"slug": found.organization.slug})
        return redirect("admin:billing_prepaid_changelist")

    @display(description=gettext_lazy("Left"))
    def left(self, prepaid: Any) -> str:
        """Dollars that are not spent; open requests may hold some of it."""
        return money(max(prepaid.granted - (prepaid.used_now or Decimal(0)), Decimal(0)))

    @display(description=gettext_lazy("On hold"))
    def held(self, prepaid: Any) -> str:
        """Dollars that open requests may still come to."""
        return money(prepaid.held_now or Decimal(0))

    @display(description=gettext_lazy("Of it given, and spent first"))
    def given(self, prepaid: Prepaid) -> str:
        """Dollars left of bonuses and the like."""
        found = balance(prepaid.pk)
        return money(found.given if found else None)

    @display(description=gettext_lazy("Of it paid"))
    def paid(self, prepaid: Prepaid) -> str:
        """Dollars left of top-ups and adjustments."""
        found = balance(prepaid.pk)
        return money(found.paid if found else None)

    @display(description=gettext_lazy("Told below"))
    def alerts_shown(self, prepaid: Prepaid) -> str:
        """At which amounts an alert goes out."""
        return ", ".join(f"${plain(amount)}" for amount in prepaid.alerts) or "-"


def credits(prepaid: Prepaid) -> dict[str, Any]:
    """The table of an organization's credits, newest first, with what each has left."""
    left = lots(prepaid.pk)
    rows = [
        (
            f"{one.created_at.astimezone(UTC):%Y-%m-%d %H:%M}",
            one.get_kind_display(),
            plain(one.amount),
            plain(left[one.pk]) if one.pk in left else "",
            f"{one.expires_at.astimezone(UTC):%Y-%m-%d %H:%M}" if one.expires_at else "",
            one.reference,
            one.note,
            one.granted_by,
        )
        for one in Credit.objects.filter(organization=prepaid.pk).order_by("-pk")[:SHOWN]
    ]
    return {
        "headers": [
            *(_("Moved (UTC)"), _("Kind"), _("Dollars"), _("Left"), _("Expires (UTC)"), _("Reference"), _("Note")),
            _("Granted by"),
        ],
        "rows": rows,
    }
