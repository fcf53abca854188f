"""Console pages: providers with their credentials, models, and offers."""

from collections.abc import Iterator
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.postgres.aggregates import ArrayAgg
from django.core.exceptions import ValidationError
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters
from unfold.decorators import display
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import UnfoldAdminPasswordWidget

from accounts.console import KeptList, Page, RelatedFilter, Rows
from accounts.sealing import CannotOpen
from billing.models import BillFetch, BillSource, Budget, PriceList, Reconciliation
from routing import provider_secret
from routing.console.bills import BillFetchPage, BillSourcePage
from routing.console.policies import ChoiceWeightPage
from routing.console.price_lists import PriceListPage
from routing.console.reconciliations import ReconciliationPage
from routing.egress import objection
from routing.models import AuthStyle, ChoiceWeight, Credential, Model, Offer, Provider
from routing.models.prices import lacks, warnings
from routing.starter.vendors import SERVICES, VENDORS, vendor_at

admin.site.register(ChoiceWeight, ChoiceWeightPage)
admin.site.register(PriceList, PriceListPage)
admin.site.register(BillSource, BillSourcePage)
admin.site.register(BillFetch, BillFetchPage)
admin.site.register(Reconciliation, ReconciliationPage)


class CredentialForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A credential whose secret goes in and never comes out."""

    secret = forms.CharField(
        required=False,
        strip=True,
        max_length=provider_secret.MOST,
        help_text=gettext_lazy("Empty: what is stored stays."),
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}, render_value=False),
        label=gettext_lazy("Secret"),
    )

    class Meta:
        model = Credential
        fields = ("name", "secret", "active", "billed_as")

    def __init__(self, *args: Any, provider: Provider, **kwargs: Any) -> None:
        """`provider`: what is typed beside it, once that has been cleaned."""
        super().__init__(*args, **kwargs)
        self._provider = provider

    def clean_secret(self) -> str:
        """Raises ValidationError for what is no secret of the provider's auth style."""
        secret: str = self.cleaned_data["secret"]
        if secret:
            # Sealed for nowhere and dropped: the provider's address is not saved yet.
            Credential(provider=Provider(base_url="", auth_style=self._provider.auth_style)).put(secret)
        return secret

    def save(self, commit: bool = True) -> Any:
        """Saves; a typed secret is sealed for the address its provider has been saved with.

        What was not typed is not written: the instance was read before the provider was saved, which may have
        emptied it.
        """
        credential, columns = self.instance, ["name", "active", "billed_as"]
        if self.cleaned_data["secret"]:
            credential.provider = Provider.objects.get(pk=credential.provider_id)
            credential.put(self.cleaned_data["secret"])
            columns += ["sealed", "hint"]
        if credential._state.adding or not commit:
            return super().save(commit)
        credential.save(update_fields=columns)
        return credential


class CredentialForms(PaginationInlineFormSet):
    """The forms of a provider's credentials, which are checked against what is typed of it beside them."""

    def get_form_kwargs(self, index: int | None) -> dict[str, Any]:
        """What each form is made with."""
        return {**super().get_form_kwargs(index), "provider": self.instance}


class CredentialRows(Rows):
    """A provider's credentials, on the page of the address they are sent to."""

    model = Credential
    form = CredentialForm
    formset = CredentialForms
    fields = ("name", "secret", "stored", "billed_as", "active")
    ordering = ("name",)
    readonly_fields = ("stored",)

    @display(description=gettext_lazy("Stored"))
    def stored(self, credential: Credential) -> str:
        """The secret's end, or what is wrong with it."""
        if credential._state.adding:
            return "-"
        if not credential.sealed:
            return _("nothing: type it")
        try:
            credential.secret()
        except CannotOpen:
            return _("cannot be opened: type it again")
        return credential.hint if credential.hint == "…" else f"…{credential.hint}"


class OfferRows(Rows):
    """A model's offers."""

    model = Offer
    ordering = ("priority", "pk")
    fields = (
        "provider",
        "upstream_model",
        "priority",
        "weight",
        "tariff",
        "context_length",
        "max_output",
        "active",
    )
    autocomplete_fields = ("provider", "tariff")


@admin.register(Provider)
class ProviderPage(Page):
    """Who sells, at which address, with which secrets."""

    add_form_template = "admin/routing/provider/add_form.html"
    change_form_outer_after_template = "admin/routing/provider/test.html"
    list_display = ("slug", "name", "protocol", "base_url", "secrets", "active")
    list_filter = ("active", "protocol")
    search_fields = ("slug", "name", "base_url")
    ordering = ("slug",)
    inlines = (CredentialRows,)
    fieldsets = (
        (None, {"fields": ("slug", "name", "base_url", "protocol", "variant", "auth_style", "region", "active")}),
        (
            gettext_lazy("Quirks"),
            {"fields": ("api_version", "cap_field", "stream_usage", "reasoning_format", "max_event_bytes")},
        ),
        (
            gettext_lazy("Timeouts, in seconds"),
            {"fields": ("connect_timeout", "first_byte_timeout", "idle_timeout", "total_timeout")},
        ),
        (gettext_lazy("When it fails"), {"fields": ("failure_threshold", "cooldown")}),
        (gettext_lazy("What it does with what it is sent"), {"fields": ("trains_on_data", "retains_data")}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        ready = Count("credentials", filter=Q(credentials__active=True) & ~Q(credentials__sealed=""))
        return super().get_queryset(request).annotate(ready=ready)

    @display(description=gettext_lazy("Secrets"), ordering="ready")
    def secrets(self, provider: Any) -> str:
        """How many may be sent."""
        return _("none needed") if provider.auth_style == AuthStyle.NONE else str(provider.ready)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        known = {"vendors": [vendor.slug for vendor in (*VENDORS, *SERVICES)], "chosen": request.GET.get("vendor")}
        return super().add_view(request, form_url, {**(extra_context or {}), **known})

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """A well-known vendor's facts, when the query string names one."""
        initial: dict[str, Any] = dict(super().get_changeform_initial_data(request))
        chosen = initial.pop("vendor", None)
        for vendor in (*VENDORS, *SERVICES):
            if vendor.slug == chosen:
                initial |= {"slug": vendor.slug, "name": vendor.slug, "base_url": vendor.base_url, **vendor.quirks}
        return initial

    @method_decorator(sensitive_post_parameters())
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form; no report of an error in it holds what was typed."""
        return super().changeform_view(request, *args, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Saves the credentials, and says what of it will not work: the address, or secrets that are missing."""
        super().save_related(request, form, formsets, change)
        if wrong := objection(form.instance.base_url, settings.EGRESS_ALLOW):
            messages.warning(request, wrong)
        vendor = vendor_at(form.instance.base_url)
        if vendor and vendor.protocol == form.instance.protocol:  # some have another protocol at the same address
            odd = [name for name, value in vendor.quirks.items() if getattr(form.instance, name) != value]
            said = ", ".join(f"{form.fields[name].label} {vendor.quirks[name]}" for name in odd)
            if odd:
                messages.warning(
                    request,
                    _("%(slug)s at this address is known to need: %(said)s.") % {"slug": vendor.slug, "said": said},
                )
        empty = form.instance.credentials.filter(active=True, sealed="").values_list("name", flat=True)
        if form.instance.auth_style != AuthStyle.NONE and empty:
            moved = (
                _("The address changed, so stored secrets were dropped. ") if "base_url" in form.changed_data else ""
            )
            messages.warning(
                request, _("%(moved)sType the secret of: %(empty)s.") % {"moved": moved, "empty": ", ".join(empty)}
            )
        for credential in form.instance.credentials.filter(active=True).exclude(sealed="").select_related("provider"):
            for words in _wrong_with(credential):
                messages.warning(request, words)


def _wrong_with(credential: Credential) -> Iterator[str]:
    """What will not work of a stored secret."""
    try:
        if misfit := credential.misfit():
            yield _("The stored secret of %(name)s does not go with the auth style. %(misfit)s Type it again.") % {
                "name": credential.name,
                "misfit": misfit,
            }
        elif (address := credential.token_address()) and (wrong := objection(address, settings.EGRESS_ALLOW)):
            yield _("The token endpoint of %(name)s: %(wrong)s") % {"name": credential.name, "wrong": wrong}
    except CannotOpen:
        yield _("The stored secret of %(name)s cannot be opened: type it again.") % {"name": credential.name}


class ModelList(KeptList):
    """Models, with how many of their active offers have no price."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        super().get_results(request)
        shown = {model.pk: model for model in self.result_list}
        # An offer for each tariff that the row of a model brought along.
        offers = [Offer(model=model, tariff_id=tariff) for model in shown.values() for tariff in model.tariffs]
        for number, offer in enumerate(offers):
            offer.pk = number
        lacking = lacks(offers, shown)
        for model in shown.values():
            model.unpriced = 0
        for offer in offers:
            shown[offer.model_id].unpriced += offer.pk in lacking


class OfferList(KeptList):
    """Offers, with what each lacks to have a price."""

    def get_results(self, request: HttpRequest) -> None:
        """The rows of the page."""
        super().get_results(request)
        lacking = lacks(self.result_list, {offer.model_id: offer.model for offer in self.result_list})
        for offer in self.result_list:
            offer.lack = lacking.get(offer.pk, "")


class ModelForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A model that keeps its name while a budget counts the calls of that name."""

    def clean_slug(self) -> str:
        """Raises ValidationError for another name of a model that has a budget: nothing would bind its calls."""
        given: str = self.cleaned_data["slug"]
        before = self.initial.get("slug")
        if before and given != before and Budget.objects.filter(model=before).exists():
            raise ValidationError(_("A budget counts the calls of this name. Delete it first, or make a new model."))
        return given


@admin.register(Model)
class ModelPage(Page):
    """Models under their public names, with who offers them."""

    form = ModelForm
    list_display = ("slug", "name", "context_length", "max_output", "offer_count", "without_price", "active")
    list_filter = ("active",)
    search_fields = ("slug", "name")
    ordering = ("slug",)
    inlines = (OfferRows,)
    fieldsets = (
        (None, {"fields": ("slug", "name", "author", "description", "aliases", "published_on", "active")}),
        (gettext_lazy("Sizes, in tokens"), {"fields": ("context_length", "max_output")}),
        (gettext_lazy("Choosing a model"), {"fields": ("quality",)}),
        (
            gettext_lazy("What it takes"),
            {"fields": ("input_modalities", "output_modalities", "supported_parameters", "capabilities")},
        ),
        (gettext_lazy("Bounds of a hold"), {"fields": ("image_token_bound", "audio_token_bound", "file_token_bound")}),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        active = Q(offers__active=True)
        tariffs = ArrayAgg("offers__tariff", filter=active, default=[])
        return super().get_queryset(request).annotate(offered=Count("offers", filter=active), tariffs=tariffs)

    @display(description=gettext_lazy("Offers"), ordering="offered")
    def offer_count(self, model: Any) -> int:
        """Active ones."""
        return int(model.offered)

    @display(description=gettext_lazy("Price"), label="danger")
    def without_price(self, model: Any) -> str | None:
        """A mark where active offers have none."""
        if not model.unpriced:
            return None
        if model.unpriced == model.offered:
            return _("unknown")
        return _("unknown of %(count)s") % {"count": model.unpriced}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeptList]:
        return ModelList

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Saves the offers, and says which of them have no price."""
        super().save_related(request, form, formsets, change)
        for words in warnings(form.instance.offers.select_related("model", "provider")):
            messages.warning(request, words)


@admin.register(Offer)
class OfferPage(Page):
    """Which provider sells which model, at what tariff."""

    list_display = ("model", "provider", "upstream_model", "priority", "weight", "tariff", "price", "active")
    list_filter = ("active", ("provider", RelatedFilter))
    list_select_related = ("model", "provider", "tariff")
    search_fields = ("model__slug", "provider__slug", "upstream_model")
    ordering = ("model__slug", "priority")
    autocomplete_fields = ("model", "provider", "tariff")
    fields = (
        "model",
        "provider",
        "upstream_model",
        "priority",
        "weight",
        "tariff",
        "active",
        "context_length",
        "max_output",
        "input_modalities",
        "supported_parameters",
        "quality",
        "forced",
    )

    @display(description=gettext_lazy("Price"), label={"known": "success", "unknown": "danger"})
    def price(self, offer: Any) -> tuple[str, str]:
        """Whether it has one now, and what it lacks."""
        return ("unknown", offer.lack) if offer.lack else ("known", "known")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeptList]:
        return OfferList

    def save_model(self, request: HttpRequest, obj: Offer, form: Any, change: bool) -> None:
        """Saves, and says so when the offer has no price."""
        super().save_model(request, obj, form, change)
        for words in warnings([obj]):
            messages.warning(request, words)
