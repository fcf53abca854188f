"""Console pages: whom an organization's alerts go to, and what became of each."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext
from django.views.decorators.debug import sensitive_post_parameters
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextInputWidget

from accounts.console import Page, Record, RelatedFilter, money
from accounts.sealing import CannotOpen
from billing.credit.credits import BALANCE
from billing.models import Channel, Delivery, DeliveryStatus, Recipient
from gateway.alerts.signature import UnusableSecret, key_of, new_secret
from routing.base_url import BadUrl, parse_base_url
from routing.egress import objection


class RecipientForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A recipient. A webhook's secret is offered while it is made, goes in, and never comes out."""

    secret = forms.CharField(
        required=False,
        strip=True,
        max_length=100,
        help_text=gettext_lazy(
            "Of a webhook: signs what it is sent (Standard Webhooks). Copy it now, it is not shown again."
        ),
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        label=gettext_lazy("Secret"),
    )

    class Meta:
        model = Recipient
        fields = ("organization", "channel", "address", "active")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance._state.adding:
            self.fields["secret"].initial = new_secret()
        else:
            self.fields["secret"].widget = UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"})
            self.fields["secret"].help_text = _("Of a webhook. Empty: what is stored stays.")

    def clean_secret(self) -> str:
        """Raises ValidationError for what is no secret."""
        secret: str = self.cleaned_data["secret"]
        try:
            if secret:
                key_of(secret)
        except UnusableSecret as error:
            raise ValidationError(str(error)) from None
        return secret

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if not self.instance._state.adding or cleaned.get("channel") != Channel.WEBHOOK:
            return cleaned
        try:
            parse_base_url(cleaned.get("address", ""))
        except BadUrl:
            self.add_error("address", _("Write it like https://host/path, in plain ASCII, without a query."))
        if not cleaned.get("secret") and "secret" not in self.errors:
            self.add_error("secret", _("A webhook needs one."))
        return cleaned

    def save(self, commit: bool = True) -> Any:
        """Saves; a webhook's secret that was typed is sealed for its address."""
        if self.instance.channel == Channel.WEBHOOK and self.cleaned_data["secret"]:
            self.instance.put(self.cleaned_data["secret"])
        return super().save(commit)


class RecipientPage(Page):
    """Whom to tell. Where it goes is chosen once, since its secret is for that address."""

    form = RecipientForm
    list_display = ("address", "channel", "organization", "stored", "active", "created_at")
    list_filter = ("active", "channel", ("organization", RelatedFilter))
    list_select_related = ("organization",)
    search_fields = ("address", "organization__slug")
    ordering = ("organization__slug", "address")
    autocomplete_fields = ("organization",)
    fields = ("organization", "channel", "address", "secret", "active")

    def get_readonly_fields(self, request: HttpRequest, obj: Recipient | None = None) -> tuple[str, ...]:
        return ("organization", "channel", "address") if obj else ()

    @method_decorator(sensitive_post_parameters())
    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form; no report of an error in it holds what was typed."""
        return super().changeform_view(request, *args, **kwargs)

    @display(description=gettext_lazy("Secret"))
    def stored(self, recipient: Recipient) -> str:
        """Whether there is one."""
        if recipient.channel == Channel.MAIL:
            return _("none needed")
        try:
            recipient.secret()
        except CannotOpen:
            return _("cannot be opened: type it again")
        return _("stored")

    def save_model(self, request: HttpRequest, obj: Recipient, form: Any, change: bool) -> None:
        """Saves, and says what will not be sent."""
        super().save_model(request, obj, form, change)
        if obj.channel == Channel.WEBHOOK and (wrong := objection(obj.address, settings.EGRESS_ALLOW)):
            messages.warning(request, wrong)
        if obj.channel == Channel.MAIL and not settings.EMAIL_HOST:
            messages.warning(request, _("No mail is sent: EMAIL_HOST is not set."))


class DeliveryPage(Record):
    """Messages, newest first: what was to be told to whom, and how that went."""

    list_display = ("created_at", "whom", "percent", "spent", "channel", "address", "state", "tries", "last_error")
    list_select_related = ("crossing",)
    list_filter = ("status", "channel")
    lookups = ("status__exact", "channel__exact")
    ordering = ("-pk",)
    found_by = "message"
    search_help_text = gettext_lazy("Message id")
    fields = (
        "message",
        "created_at",
        "whom",
        "percent",
        "spent",
        "amount",
        "period",
        "channel",
        "address",
        "state_shown",
        "tries",
        "next_try_at",
        "sent_at",
        "last_error",
    )

    @display(description=gettext_lazy("Whom"))
    def whom(self, delivery: Delivery) -> str:
        """Whose budget it is."""
        return delivery.crossing.whom()

    @display(description=gettext_lazy("Reached"))
    def percent(self, delivery: Delivery) -> str:
        """The percent that was reached, or below what a balance fell."""
        crossing = delivery.crossing
        return crossing.reached() if crossing.period == BALANCE else f"{crossing.percent} %"

    @display(description=gettext_lazy("Spent or left"))
    def spent(self, delivery: Delivery) -> str:
        """Dollars, as it was seen."""
        return money(delivery.crossing.used)

    @display(description=gettext_lazy("Amount"))
    def amount(self, delivery: Delivery) -> str:
        """Dollars of the budget, or that an alert of a balance is for."""
        return money(delivery.crossing.amount)

    @display(description=gettext_lazy("Period"))
    def period(self, delivery: Delivery) -> str:
        """Which window of the budget."""
        crossing = delivery.crossing
        words = {
            "day": pgettext("period", "day"),
            "week": _("week"),
            "month": pgettext("period", "month"),
            "total": _("total"),
            BALANCE: _("balance"),
        }
        period = words.get(crossing.period, crossing.period)
        if crossing.period == "total":
            return period
        return _("%(period)s of %(day)s") % {"period": period, "day": f"{crossing.period_start:%Y-%m-%d}"}

    @display(
        description=gettext_lazy("State"),
        label={
            DeliveryStatus.WAITING.value: "info",
            DeliveryStatus.SENT.value: "success",
            DeliveryStatus.GIVEN_UP.value: "danger",
        },
    )
    def state(self, delivery: Delivery) -> tuple[str, str]:
        """How far it is; as a list shows it."""
        return delivery.status, delivery.get_status_display()

    @display(description=gettext_lazy("State"))
    def state_shown(self, delivery: Delivery) -> str:
        """The same on the page."""
        return delivery.get_status_display()
