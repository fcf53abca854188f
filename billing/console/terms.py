"""Console page of what single organizations pay."""

from typing import Any

from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.console import Page, RelatedFilter
from billing.console.tariffs import DatedForm
from billing.models import Terms


class TermsForm(DatedForm):
    """When terms begin: never before now."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "effective_from" in cleaned:
            now = timezone.now()
            cleaned["effective_from"] = start = cleaned["effective_from"] or now
            if start < now:
                raise ValidationError({"effective_from": _("What has been charged stays: not before now.")})
        return cleaned


class TermsPage(Page):
    """Terms. A change is a further row; one that is in force is only to look at."""

    form = TermsForm
    list_display = ("organization", "tariff_shown", "what_shown", "effective_from", "is_in_force", "note")
    list_select_related = ("organization", "tariff", "price_list")
    list_filter = (("organization", RelatedFilter),)
    search_fields = ("organization__slug", "tariff__slug", "price_list__slug", "note")
    ordering = ("organization__slug", "-effective_from")
    autocomplete_fields = ("organization", "tariff", "price_list")
    fields = ("organization", "tariff", "markup", "price_list", "effective_from", "note")

    @display(description=gettext_lazy("For"), ordering="tariff")
    def tariff_shown(self, terms: Terms) -> str:
        """The tariff of the offers that it is for."""
        return terms.tariff.slug if terms.tariff else _("every tariff")

    @display(description=gettext_lazy("Pays"))
    def what_shown(self, terms: Terms) -> str:
        """In a few words."""
        return terms.what()

    @display(description=gettext_lazy("In force"), boolean=True)
    def is_in_force(self, terms: Terms) -> bool:
        """Whether they began. Older ones for the same are over."""
        return begun(terms)

    def has_change_permission(self, request: HttpRequest, obj: Terms | None = None) -> bool:
        return super().has_change_permission(request, obj) and not begun(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Terms | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not begun(obj)


def begun(terms: Terms | None) -> bool:
    """Whether calls may have been charged by them."""
    return terms is not None and terms.effective_from <= timezone.now()
