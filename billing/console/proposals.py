"""Console page of prices that were found hard to believe, and wait for a second person."""

from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.console import NeverDeleted, Page
from billing.imports.proposals import Decision
from billing.models import PriceProposal, Rate, TariffVersion, rate_name


class DecisionForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """One word, which has to be said."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "decision" in self.fields:
            self.fields["decision"].required = True


class ProposalPage(NeverDeleted, Page):
    """Proposals. Whoever made one cannot decide on it, and what is decided stays."""

    form = DecisionForm
    list_display = ("tariff", "effective_from", "reason", "proposed_by", "proposed_at", "decision", "decided_by")
    list_select_related = ("tariff",)
    list_filter = ("decision",)
    search_fields = ("tariff__slug", "reason")
    ordering = ("-proposed_at",)
    shown = ("tariff", "effective_from", "reason", "prices", "note", "proposed_by", "proposed_at")
    fields = (*shown, "decision", "decided_by", "decided_at")
    readonly_fields = (*shown, "decided_by", "decided_at")

    @display(description=gettext_lazy("Prices"))
    def prices(self, proposal: PriceProposal) -> str:
        """All of them, a line each."""
        lines = ((rate_name(item, above), cost, charge) for item, above, cost, charge in proposal.rates)
        return format_html_join("", _("{}: cost {}, charge {}<br>"), lines)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: PriceProposal | None = None) -> bool:
        undecided = obj is None or not (obj.decision or obj.proposed_by == request.user.get_username())
        return super().has_change_permission(request, obj) and undecided

    def save_model(self, request: HttpRequest, obj: PriceProposal, form: Any, change: bool) -> None:
        """Decides, unless somebody has meanwhile."""
        if not decide(obj, obj.decision, request.user.get_username()):
            messages.error(request, _("Somebody else has decided on it meanwhile. Nothing was changed."))


def decide(proposal: PriceProposal, decision: str, who: str) -> bool:
    """Writes a decision, and what follows from it. False: somebody has decided before; nothing is changed.

    Raises PermissionError when `who` is who proposed it.
    """
    with transaction.atomic():
        row = PriceProposal.objects.select_for_update().get(pk=proposal.pk)  # two may decide at once
        if row.decision:
            return False
        if row.proposed_by == who:
            raise PermissionError("somebody else has to decide on it")
        now: Any = Now()
        row.decision, row.decided_by, row.decided_at = decision, who, now
        row.save(update_fields=["decision", "decided_by", "decided_at"])
        if decision == Decision.APPROVED:
            row.refresh_from_db()
            assert row.decided_at is not None
            start = max(row.effective_from, row.decided_at)
            version = TariffVersion.objects.create(tariff_id=row.tariff_id, effective_from=start, note=row.note)
            Rate.objects.bulk_create(
                Rate(version=version, item=item, above=above, cost=cost, charge=charge)
                for item, above, cost, charge in row.rates
            )
    return True
