"""Console pages of policies: whose requests one is for is chosen once, and a mistake is told with what to do."""

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.validators import MinValueValidator
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.console import Page
from routing.console.replays import Replays
from routing.models import ChoiceWeight, Level, Policy

UNSAID = gettext_lazy("Left to the next level")
HAS_ONE = {
    Level.KEY: gettext_lazy("This key has a policy already: change that one."),
    Level.PROJECT: gettext_lazy("This project has a policy already: change that one."),
    Level.MODEL: gettext_lazy("This model has a policy already: change that one."),
}
SUBJECTS = (Level.KEY, Level.PROJECT, Level.MODEL)


class PolicyForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A policy. Its own words on a mistake are enough: the database's constraints say the same less well."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in SUBJECTS:
            if name in self.fields:
                self.fields[name].error_messages["unique"] = HAS_ONE[name]

    def validate_constraints(self) -> None:
        """Asks the database's constraints only about what is right otherwise."""
        if not self.errors:
            super().validate_constraints()


class ChoiceWeightPage(Page):
    """How much each term counts where the gateway chooses the model."""

    list_display = ("word", "term", "weight")
    list_display_links = ("word", "term")
    list_editable = ("weight",)
    list_filter = ("word",)
    ordering = ("word", "term")
    fields = ("word", "term", "weight")

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Weights are not negative: a model would be marked down for what is good about it."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "weight":
            field.validators.append(MinValueValidator(0))
            field.widget.attrs["aria-label"] = _("Weight")  # in the list no label stands beside it
        return field

    def get_readonly_fields(self, request: HttpRequest, obj: ChoiceWeight | None = None) -> tuple[str, ...]:
        """What it weighs stays; another is another row."""
        return ("word", "term") if obj else ()


class PolicyPage(Replays, Page):
    """What is decided for the requests of a key, a project, a model, or for all."""

    form = PolicyForm
    list_display = ("subject", "level", "order", "shown_providers", "fallback", "max_attempts", "refusals")
    list_filter = ("level", "strategy")
    list_select_related = ("model", "project__organization", "key__project__organization")
    search_fields = ("model__slug", "project__slug", "project__organization__slug", "key__name", "key__prefix")
    search_help_text = gettext_lazy("Model, project, organization or key")
    ordering = ("level", "pk")
    autocomplete_fields = SUBJECTS
    fieldsets = (
        (
            gettext_lazy("Whose requests"),
            {
                "fields": ("level", "key", "project", "model"),
                "description": gettext_lazy(
                    "What the client asks for comes first, then the key's policy, the project's, the "
                    "model's, and the one for everything: the first that speaks of a thing decides it."
                ),
            },
        ),
        (
            gettext_lazy("Which offer is tried first"),
            {
                "fields": ("strategy", "factor", "providers"),
                "description": gettext_lazy("One thing: a level that names a strategy or providers sets all three."),
            },
        ),
        (gettext_lazy("What may follow"), {"fields": ("fallback", "max_attempts")}),
        (gettext_lazy("Deadlines, in seconds"), {"fields": ("first_byte_timeout", "total_timeout")}),
        (
            gettext_lazy("What no request gets past"),
            {"fields": ("only_providers", "refuses_training", "refuses_retention")},
        ),
        (gettext_lazy("Streams that break"), {"fields": ("continues_streams",)}),
    )

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """What is not chosen is left to the next level."""
        if db_field.blank:
            kwargs["choices"] = db_field.get_choices(blank_choice=[("", UNSAID)])
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """The same of yes or no."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(field, forms.NullBooleanField):
            field.widget.choices = [("unknown", UNSAID), ("true", _("Yes")), ("false", _("No"))]
        return field

    def get_urls(self) -> list[URLPattern]:
        of = path("of/<str:level>/<str:subject>/", self.admin_site.admin_view(self.of), name="routing_policy_of")
        return [of, *super().get_urls()]

    def of(self, request: HttpRequest, level: str, subject: str) -> HttpResponse:
        """Leads to the policy of a key, project or model, or to the form that makes it. 404 for another level."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        if level not in SUBJECTS:
            raise Http404
        try:
            policy = Policy.objects.filter(**{level: subject}).first()
        except (ValueError, ValidationError) as error:  # no id
            raise Http404 from error
        if policy:
            return redirect("admin:routing_policy_change", policy.pk)
        return redirect(f"{reverse('admin:routing_policy_add')}?{urlencode({'level': level, level: subject})}")

    def get_readonly_fields(self, request: HttpRequest, obj: Policy | None = None) -> tuple[str, ...]:
        """Whose it is stays: another's is another policy."""
        return ("level", *SUBJECTS) if obj else ()

    def get_fieldsets(self, request: HttpRequest, obj: Policy | None = None) -> Any:
        if obj is None:
            return self.fieldsets
        (title, _said), *rest = self.fieldsets
        whose = ("level",) if obj.level == Level.GLOBAL else ("level", obj.level)
        return [(title, {"fields": whose}), *rest]

    def get_queryset(self, request: HttpRequest) -> Any:
        related = ("model", "project__organization", "key__project__organization")
        return super().get_queryset(request).select_related(*related)

    @display(description=gettext_lazy("For"))
    def subject(self, policy: Policy) -> str:
        """Whose requests it is for."""
        return str(policy.key or policy.project or policy.model or _("everything"))

    @display(description=gettext_lazy("Order"))
    def order(self, policy: Policy) -> str:
        """Strategy and factor."""
        said = [policy.get_strategy_display(), policy.get_factor_display()] if policy.strategy or policy.factor else []
        return ", ".join(filter(None, said)) or "-"

    @display(description=gettext_lazy("Providers"))
    def shown_providers(self, policy: Policy) -> str:
        """Those that come first, and those that are left."""
        first = ", ".join(policy.providers or ())
        only = _("only %(names)s") % {"names": ", ".join(policy.only_providers)} if policy.only_providers else ""
        return "; ".join(filter(None, (first, only))) or "-"

    @display(description=gettext_lazy("Refuses"))
    def refusals(self, policy: Policy) -> str:
        """What providers may not do with what they are sent."""
        named = {_("training"): policy.refuses_training, _("retention"): policy.refuses_retention}
        return ", ".join(name for name, refused in named.items() if refused) or "-"
