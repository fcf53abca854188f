"""Console page of the quarantine: what providers claimed that was not believed, beside what was charged for it."""

from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import OuterRef, Subquery
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import DropdownFilter
from unfold.decorators import display

from accounts.console import Record, is_operator, money, number
from billing.console.filters import ModelFilter, OrganizationFilter, ProviderFilter
from billing.models import Judgement, Quarantined
from billing.quarantine import amounts, judge, tokens_of

OPEN = "open"


class DecisionFilter(DropdownFilter):
    """By what was said to them."""

    title = gettext_lazy("decision")
    parameter_name = "decision"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return [(OPEN, _("Not decided")), *Judgement.Decision.choices]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        value = self.value()
        if not value:
            return queryset
        if value == OPEN:
            return queryset.filter(decision=None)
        return queryset.filter(decision=value) if value in Judgement.Decision.values else queryset.none()


class QuarantinePage(Record):
    """Generations of which a provider's counts were refused, newest first. Each is judged once."""

    list_display = ("created_at", "organization_slug", "provider", "model", "counted", "claim", "charged", "decided")
    list_filter = (DecisionFilter, OrganizationFilter, ProviderFilter, ModelFilter)
    lookups = ("decision", "organization", "provider", "model")
    ordering = ("-pk",)
    change_form_outer_after_template = "admin/billing/quarantined/judge.html"
    fields = (
        *("generation", "created_at", "organization_slug", "provider", "upstream_model", "upstream_id", "basis"),
        *("counted", "said", "claim", "charged", "cost", "would_be", "would_cost", "decision_shown", "decided_by"),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        said = Judgement.objects.filter(generation=OuterRef("pk"))
        columns = {name: Subquery(said.values(name)[:1]) for name in ("decision", "decided_by")}
        return super().get_queryset(request).filter(suspect=True).annotate(**columns)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path(f"<uuid:generation>/{name}/", view(require_POST(wish)), name=f"billing_quarantined_{name}")
            for name, wish in (("accept", self.accept), ("dismiss", self.dismiss))
        ] + super().get_urls()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        row: Any = self.get_object(request, object_id) if is_operator(request) else None
        more = {"row": row, "acceptable": amounts(row) is not None} if row is not None and not row.decision else {}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})

    def accept(self, request: HttpRequest, generation: UUID) -> HttpResponse:
        """POST: posts the difference between the claim and what was charged."""
        return self._judge(request, generation, accept=True)

    def dismiss(self, request: HttpRequest, generation: UUID) -> HttpResponse:
        """POST: leaves it as it was charged."""
        return self._judge(request, generation, accept=False)

    def _judge(self, request: HttpRequest, generation: UUID, *, accept: bool) -> HttpResponse:
        row = Quarantined.objects.filter(pk=generation, suspect=True).first()
        if not is_operator(request) or row is None:
            raise Http404
        try:
            done = judge(row, request.user.get_username(), accept=accept)
        except ValueError as error:
            messages.error(request, _("It cannot be accepted: %(error)s.") % {"error": error})
        else:
            if done:
                self.log_change(request, row, "Accepted the claim." if accept else "Dismissed the claim.")
                messages.success(request, _("Accepted: the difference is posted.") if accept else _("Dismissed."))
            else:
                messages.error(request, _("Somebody has decided on it meanwhile. Nothing was changed."))
        return redirect("admin:billing_quarantined_change", generation)

    @display(description=gettext_lazy("Generation"))
    def generation(self, row: Quarantined) -> str:
        """Leads to its page."""
        return format_html(
            '<a class="text-link" href="{}">{}</a>', reverse("admin:billing_usage_change", args=[row.pk]), row.pk.hex
        )

    @display(description=gettext_lazy("Tokens in and out, as charged"))
    def counted(self, row: Quarantined) -> str:
        """What it rests on."""
        return format_html("{} + {}", number(row.prompt_tokens), number(row.completion_tokens))

    @display(description=gettext_lazy("Claimed"))
    def claim(self, row: Quarantined) -> str:
        """Tokens in and out, where they are counts."""
        tokens = tokens_of(row)
        return format_html("{} + {}", number(tokens.prompt), number(tokens.completion)) if tokens else _("no counts")

    @display(description=gettext_lazy("As the provider said it"))
    def said(self, row: Quarantined) -> str:
        """Shortened."""
        said = row.claimed.get("said", _("not kept"))
        if not isinstance(said, dict):
            return str(said)
        return ", ".join(f"{name}: {value}" for name, value in said.items())

    @display(description=gettext_lazy("Charged"))
    def charged(self, row: Quarantined) -> str:
        """The tenant."""
        return money(row.charge)

    @display(description=gettext_lazy("Cost"))
    def cost(self, row: Quarantined) -> str:
        """Of the provider, as it was counted."""
        return money(row.provider_cost)

    @display(description=gettext_lazy("Charge, as claimed"))
    def would_be(self, row: Quarantined) -> str:
        """What the tenant would be charged."""
        found = amounts(row)
        return money(found.charge) if found else "-"

    @display(description=gettext_lazy("Cost, as claimed"))
    def would_cost(self, row: Quarantined) -> str:
        """What the provider would take."""
        found = amounts(row)
        return money(found.cost) if found else "-"

    @display(description=gettext_lazy("Decision"), label={"accepted": "success", "dismissed": "info", OPEN: "warning"})
    def decided(self, row: Any) -> tuple[str, str]:
        """What somebody said."""
        words = {OPEN: _("Not decided"), "accepted": _("Accepted"), "dismissed": _("Dismissed")}
        return row.decision or OPEN, words[row.decision or OPEN]

    @display(description=gettext_lazy("Decision"))
    def decision_shown(self, row: Any) -> str:
        """The same on the page."""
        return str(self.decided(row)[1])

    @display(description=gettext_lazy("Decided by"))
    def decided_by(self, row: Any) -> str:
        """Who."""
        return row.decided_by or "-"
