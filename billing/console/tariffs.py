"""Console pages of prices: a tariff is made on one page, and its price changes by a new version."""

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Max
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import action, display
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSplitDateTimeWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from accounts.console import Page, ReadOnly, Rows, link
from billing.models import Item, Rate, Tariff, TariffVersion

WHEN_EMPTY = gettext_lazy("UTC. Empty: now.")
DETAILS = ("marginal", "currency", "exchange_rate", "note")  # of a version, besides its date and rates


class VersionRows(ReadOnly, Rows):
    """A tariff's versions, to follow."""

    model = TariffVersion
    fields = readonly_fields = ("page", "note")
    ordering = ("-effective_from",)

    @display(description=gettext_lazy("Version"))
    def page(self, version: TariffVersion) -> str:
        """Leads to the version."""
        return link(version)


class DatedForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """Of what begins at a moment: at once when that is empty."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "effective_from" in self.fields:
            self.fields["effective_from"].required = False
            self.fields["effective_from"].help_text = WHEN_EMPTY


class VersionForm(DatedForm):
    """When a version begins: never before now once the tariff has a price in force."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        tariff, start = cleaned.get("tariff"), cleaned.get("effective_from")
        if "effective_from" not in cleaned or not tariff:
            return cleaned
        now = timezone.now()
        cleaned["effective_from"] = start = start or now
        if start < now and tariff.versions.filter(effective_from__lte=now).exists():
            raise ValidationError({"effective_from": _("What has been charged stays: not before now.")})
        return cleaned


def in_force(version: TariffVersion | None) -> bool:
    """Whether calls may have been charged by `version`."""
    return version is not None and version.effective_from <= timezone.now()


class RateFormSet(PaginationInlineFormSet):
    """The rates of a version: one at least."""

    def clean(self) -> None:
        """Raises ValidationError when none is left."""
        super().clean()
        kept = [form for form in self.forms if form not in self.deleted_forms and form.cleaned_data.get("item")]
        if not kept and not any(self.errors):
            raise ValidationError(_("A version without rates prices nothing: add one."))


class RateRows(Rows):
    """A version's rates, fixed once it is in force. Of one item there may be several, by size of prompt and class of
    service.
    """

    model = Rate
    formset = RateFormSet
    verbose_name_plural = gettext_lazy("rates: per million tokens, or each, in the version's currency")
    fields = ("item", "above", "service_tier", "cost", "charge")
    ordering = ("pk",)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_add_permission(request, obj) and not in_force(obj)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and not in_force(obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and not in_force(obj)

    def get_extra(self, request: HttpRequest, obj: TariffVersion | None = None, **kwargs: Any) -> int:
        return len(newest_rates(request)) if obj is None else 0


def newest_version(request: HttpRequest) -> TariffVersion | None:
    """The newest version of the tariff named in the query string, from which another one starts."""
    tariff = request.GET.get("tariff", "")
    versions = TariffVersion.objects.filter(tariff_id=int(tariff) if tariff.isdecimal() else 0)
    return versions.order_by("-effective_from").first()


def newest_rates(request: HttpRequest) -> list[dict[str, Any]]:
    """The rates a new version starts from."""
    if request.method != "GET":
        return []
    newest = newest_version(request)
    if newest is None:
        return [{"item": Item.INPUT}, {"item": Item.OUTPUT}]
    return [{name: getattr(rate, name) for name in RateRows.fields} for rate in newest.rates.order_by("id")]


class NewTariffForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A tariff to be made, and what its first version says besides rates."""

    effective_from = forms.SplitDateTimeField(
        required=False,
        widget=UnfoldAdminSplitDateTimeWidget,
        help_text=WHEN_EMPTY,
        label=gettext_lazy("Effective from"),
    )
    marginal = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanSwitchWidget,
        help_text=TariffVersion._meta.get_field("marginal").help_text,
        label=gettext_lazy("Marginal"),
    )
    currency = forms.CharField(
        initial="USD",
        max_length=3,
        widget=UnfoldAdminTextInputWidget,
        help_text=TariffVersion._meta.get_field("currency").help_text,
        label=gettext_lazy("Currency"),
    )
    exchange_rate = forms.DecimalField(
        initial=1,
        max_digits=10,
        decimal_places=9,
        widget=UnfoldAdminDecimalFieldWidget,
        help_text=TariffVersion._meta.get_field("exchange_rate").help_text,
        label=gettext_lazy("Exchange rate"),
    )
    note = forms.CharField(
        required=False,
        max_length=TariffVersion._meta.get_field("note").max_length,
        widget=UnfoldAdminTextInputWidget,
        help_text=gettext_lazy("Where the prices are from, say."),
        label=gettext_lazy("Note"),
    )

    class Meta:
        model = Tariff
        fields = ("slug", "name")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "currency" in cleaned and "exchange_rate" in cleaned:
            version = TariffVersion(currency=cleaned["currency"], exchange_rate=cleaned["exchange_rate"])
            version.clean_fields(exclude={"tariff", "effective_from"})
            version.clean()
        return cleaned


class TariffPage(Page):
    """Tariffs. A price change is a new version; what was charged stays explained by the old one."""

    fields = ("slug", "name")

    list_display = ("slug", "name", "newest")
    search_fields = ("slug", "name")
    ordering = ("slug",)
    inlines = (VersionRows,)
    actions_detail = ("new_version",)

    def get_form(self, request: HttpRequest, obj: Tariff | None = None, change: bool = False, **kwargs: Any) -> Any:
        return super().get_form(request, obj, change, **({} if obj else {"form": NewTariffForm}), **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Tariff | None = None) -> Any:
        first = (_("Its first version"), {"fields": ("effective_from", *DETAILS)})
        return [*super().get_fieldsets(request, obj), *(() if obj else (first,))]

    def get_inline_instances(self, request: HttpRequest, obj: Tariff | None = None) -> Any:
        """A tariff's versions; of one to be made, the rates of the first."""
        return super().get_inline_instances(request, obj) if obj else [RateRows(TariffVersion, self.admin_site)]

    def get_formset_kwargs(self, request: HttpRequest, obj: Any, inline: Any, prefix: str) -> dict[str, Any]:
        """Rates are of a version, which is made with them."""
        kwargs = super().get_formset_kwargs(request, obj, inline, prefix)
        return (
            kwargs | {"instance": TariffVersion(), "initial": newest_rates(request)} if inline.model is Rate else kwargs
        )

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Saves the rates, with the version they are of."""
        if formset.model is Rate:
            said = form.cleaned_data
            formset.instance = TariffVersion.objects.create(
                tariff=form.instance,
                effective_from=said["effective_from"] or timezone.now(),
                **{name: said[name] for name in DETAILS},
            )
        super().save_formset(request, form, formset, change)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(newest=Max("versions__effective_from"))

    @display(description=gettext_lazy("Newest version"), ordering="newest")
    def newest(self, tariff: Tariff) -> datetime | None:
        """When the newest version begins, which may be to come."""
        found: datetime | None = tariff.newest  # type: ignore[attr-defined]  # annotated
        return found

    def has_delete_permission(self, request: HttpRequest, obj: Tariff | None = None) -> bool:
        """Only while no version has been in force."""
        return super().has_delete_permission(request, obj) and (
            obj is None or not obj.versions.filter(effective_from__lte=Now()).exists()
        )

    @action(description=gettext_lazy("New version"), permissions=("change",), icon="add")
    def new_version(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Leads to the form, filled with the newest rates."""
        return redirect(f"{reverse('admin:billing_tariffversion_add')}?{urlencode({'tariff': object_id})}")


class TariffVersionPage(Page):
    """Versions of tariffs with their rates; once in force, only to look at."""

    form = VersionForm
    list_display = ("tariff", "effective_from", "is_in_force", "note")
    list_select_related = ("tariff",)
    search_fields = ("tariff__slug", "note")
    ordering = ("tariff__slug", "-effective_from")
    autocomplete_fields = ("tariff",)
    fields = ("tariff", "effective_from", *DETAILS)
    inlines = (RateRows,)

    @display(description=gettext_lazy("In force"), boolean=True)
    def is_in_force(self, version: TariffVersion) -> bool:
        """Whether it began. An older one of the same tariff is over."""
        return in_force(version)

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        newest = newest_version(request)
        kept = {name: getattr(newest, name) for name in DETAILS if name != "note"} if newest else {}
        return {**super().get_changeform_initial_data(request), **kept}

    def get_formset_kwargs(self, request: HttpRequest, obj: Any, inline: Any, prefix: str) -> dict[str, Any]:
        """On GET a new version is filled in; on POST it is compared with nothing, so every row is saved."""
        kwargs = super().get_formset_kwargs(request, obj, inline, prefix)
        if obj is None or obj.pk is None:
            kwargs["initial"] = newest_rates(request)
        return kwargs

    def has_change_permission(self, request: HttpRequest, obj: TariffVersion | None = None) -> bool:
        return super().has_change_permission(request, obj) and not in_force(obj)

    def has_delete_permission(self, request: HttpRequest, obj: TariffVersion | None = None) -> bool:
        return super().has_delete_permission(request, obj) and not in_force(obj)
