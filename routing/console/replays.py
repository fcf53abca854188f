"""Console pages of replays: which traffic, how far it is, and what another policy would make of it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override
from django.views.decorators.http import require_POST
from kombu.exceptions import OperationalError
from unfold.widgets import UnfoldAdminSelectWidget

from accounts.models import Organization
from routing.models import Model, Policy, Replay
from routing.replay.comparison import Comparison
from routing.tasks import replay

if TYPE_CHECKING:
    from accounts.console import Page
else:
    Page = object

WINDOWS = (
    ("1", gettext_lazy("The last hour")),
    ("24", gettext_lazy("The last day")),
    ("168", gettext_lazy("The last 7 days")),
    ("720", gettext_lazy("The last 30 days")),
)
REFRESH_SECONDS = 2
SALT = "routing.replay"


class TrafficForm(forms.Form):
    """Which traffic is replayed. `policy` travels signed, as it was typed and checked, and is saved nowhere."""

    policy = forms.CharField(widget=forms.HiddenInput)
    window = forms.ChoiceField(
        choices=WINDOWS, initial="24", widget=UnfoldAdminSelectWidget, label=gettext_lazy("Window")
    )
    organization = forms.ModelChoiceField(
        Organization.objects.order_by("slug"),
        required=False,
        empty_label=gettext_lazy("All"),
        widget=UnfoldAdminSelectWidget,
        label=gettext_lazy("Organization"),
    )
    model = forms.ModelChoiceField(
        Model.objects.order_by("slug"),
        required=False,
        empty_label=gettext_lazy("All"),
        widget=UnfoldAdminSelectWidget,
        label=gettext_lazy("Model"),
    )

    def clean_policy(self) -> dict[str, Any]:
        """Raises ValidationError for what this console did not sign within the last hours."""
        try:
            found: dict[str, Any] = signing.loads(self.cleaned_data["policy"], salt=SALT, max_age=timedelta(hours=12))
        except signing.BadSignature:
            raise forms.ValidationError(_("This page is too old: go back to the policy.")) from None
        return found


def signed(policy: Policy) -> str:
    """A policy that was typed and is not saved, for the form. A project's and a key's traffic is their project's."""
    project = policy.project or (policy.key.project if policy.key else None)
    with override("en"):  # it is kept, for whoever else reads the replay
        subject = str(policy)
    return signing.dumps(
        {
            "subject": subject,
            "row": [str(value) if isinstance(value, UUID) else value for value in policy.row()],
            "project": str(project.pk) if project else None,
            "model": policy.model.slug if policy.model else "",
        },
        salt=SALT,
        compress=True,
    )


def signed_again(found: Replay) -> str:
    """The policy of a replay, for the form that asks for other traffic."""
    policy = {"subject": found.subject, "row": found.policy, "project": found.project, "model": found.model}
    return signing.dumps(policy | {"project": str(found.project) if found.project else None}, salt=SALT, compress=True)


class Replays(Page):
    """For the page of policies: what is typed may be replayed before it is saved."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("replay/", view(self.replay), name="routing_policy_replay"),
            path("replay/<int:number>/", view(self.replayed), name="routing_policy_replayed"),
            path("replay/<int:number>/keep/", view(require_POST(self.keep)), name="routing_policy_keep"),
            *super().get_urls(),
        ]

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The form; its button for a replay saves nothing, and leads on when what was typed is right."""
        if request.method == "POST" and "_replay" in request.POST and self.has_change_permission(request):
            policy = self.get_object(request, object_id) if object_id else None
            form = self.get_form(request, policy, change=policy is not None)(request.POST, instance=policy)
            if form.is_valid():
                query = urlencode({"policy": signed(form.instance)})
                return redirect(f"{reverse('admin:routing_policy_replay')}?{query}")
        return super().changeform_view(request, object_id, form_url, extra_context)

    def replay(self, request: HttpRequest) -> HttpResponse:
        """Asks which traffic; once that is said, has a worker replay it."""
        self._check(request)
        form = TrafficForm(request.POST or None, initial={"policy": request.GET.get("policy", "")})
        if request.method == "POST" and form.is_valid():
            made = self._make(request, form.cleaned_data)
            return redirect("admin:routing_policy_replayed", made.pk)
        context = {**self.admin_site.each_context(request), "title": _("Replay"), "opts": self.opts, "form": form}
        return TemplateResponse(request, "admin/routing/policy/replay.html", context)

    def replayed(self, request: HttpRequest, number: int) -> HttpResponse:
        """How far a replay is, and the comparison so far. Posting to it stops the replay."""
        self._check(request)
        found = Replay.objects.filter(pk=number).first()
        if found is None:
            raise Http404
        if request.method == "POST":
            Replay.objects.filter(pk=number).update(stop=True)
            return redirect("admin:routing_policy_replayed", number)
        running = found.state in (Replay.State.WAITING, Replay.State.RUNNING)
        comparison = Comparison.from_json(found.result) if found.result else None
        context = {
            **self.admin_site.each_context(request),
            "title": _("Replay"),
            "opts": self.opts,
            "replay": found,
            "running": running,
            "saved": Policy.from_row(found.policy).pk,
            "again": urlencode({"policy": signed_again(found)}),
            "share": min(100, 100 * found.done // found.total) if found.total else 0,
            "remarks": comparison.remarks() if comparison else (),
            "table": {
                "headers": ["", _("Recorded"), _("Predicted"), _("Difference")],
                "rows": list(comparison.lines()) if comparison else [],
            },
        }
        response = TemplateResponse(request, "admin/routing/policy/replayed.html", context)
        if running:
            response["Refresh"] = str(REFRESH_SECONDS)
        return response

    def keep(self, request: HttpRequest, number: int) -> HttpResponse:
        """POST: saves the policy that was replayed, in place of what its subject has, and leads to it; where
        SECOND_PERSON has policies drafted, nothing.
        """
        self._check(request)
        if "policy" in settings.SECOND_PERSON:
            messages.error(request, _("A second person has to approve policies: save it as a draft on its page."))
            return redirect("admin:routing_policy_replayed", number)
        found = Replay.objects.filter(pk=number).first()
        if found is None:
            raise Http404
        policy = Policy.from_row(found.policy)
        fresh = policy._state.adding
        try:
            policy.full_clean()
        except forms.ValidationError as error:
            messages.error(
                request, _("It cannot be saved as it was: %(messages)s") % {"messages": " ".join(error.messages)}
            )
            return redirect("admin:routing_policy_replayed", number)
        policy.save()
        words = f"As it was replayed in {number}."
        self.log_addition(request, policy, words) if fresh else self.log_change(request, policy, words)
        messages.success(request, _("%(policy)s: saved as it was replayed.") % {"policy": policy})
        return redirect("admin:routing_policy_change", policy.pk)

    def _check(self, request: HttpRequest) -> None:
        if not self.has_change_permission(request):
            raise PermissionDenied

    def _make(self, request: HttpRequest, asked: dict[str, Any]) -> Replay:
        policy, now = asked["policy"], timezone.now()
        organization, model = asked["organization"], asked["model"]
        made = Replay.objects.create(
            asked_by=request.user.get_username(),
            subject=policy["subject"],
            policy=policy["row"],
            start=now - timedelta(hours=int(asked["window"])),
            end=now,
            organization=organization.pk if organization else None,
            project=policy["project"],
            model=model.slug if model else policy["model"],
        )
        transaction.on_commit(lambda: self._send(request, made))
        return made

    def _send(self, request: HttpRequest, made: Replay) -> None:
        try:
            replay.apply_async((made.pk,), retry=False)
        except OperationalError:
            Replay.objects.filter(pk=made.pk).update(state=Replay.State.FAILED)
            messages.error(request, _("No worker could be asked: Redis does not answer. Try again."))
