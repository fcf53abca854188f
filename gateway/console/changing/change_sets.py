"""Console pages of sets of changes: what is in one, what it would do, and the buttons of its life."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from unfold.decorators import display

from accounts.access.access import access_of
from accounts.access.table import Verb as Right
from accounts.console import NeverDeleted, Page, money
from billing.models import Budget, Limit, TariffVersion
from gateway.changes.effects import moves, words
from gateway.changes.models import Change, ChangeSet, Kind
from gateway.console.changing.drafts import CannotApply, Drafted
from routing.models import Policy

ROWS = {Kind.PRICE: TariffVersion, Kind.BUDGET: Budget, Kind.LIMIT: Limit, Kind.POLICY: Policy}
State = ChangeSet.State
MOST_TOLD = 20  # changes of which a page tells what they would do: each looks at thousands of generations


class Refused(Exception):
    """What was asked of a set is not done, and nothing is changed. The message says why, for people."""


def page_of(kind: str) -> Drafted:
    """The page by whose form a kind is changed."""
    found: Drafted = admin.site._registry[ROWS[Kind(kind)]]  # type: ignore[assignment]
    return found


def approve(request: HttpRequest, row: ChangeSet) -> None:
    """Approves a draft. Raises `Refused`. `row` is locked, as in all of these."""
    who = request.user.get_username()
    if row.state != State.DRAFT:
        raise Refused(_("It is no draft any more."))
    if row.needs_second_person and row.drafted_by == who:
        raise Refused(_("Somebody else has to approve it."))
    row.state, row.approved_by, row.approved_at = State.APPROVED, who, timezone.now()
    row.save()


def apply(request: HttpRequest, row: ChangeSet) -> None:
    """Applies all of it, in the order in which it was drafted. Raises `Refused`, `CannotApply`."""
    if not row.may_be_applied:
        waits = row.state == State.DRAFT
        raise Refused(_("Somebody else has to approve it.") if waits else _("It has been applied or given up."))
    for change in row.changes.order_by("pk"):
        try:
            page_of(change.kind).apply_change(request, change)
        except (IntegrityError, ProtectedError):
            why = _("%(what)s: something else refers to it, or is it already.")
            raise CannotApply(why % {"what": change}) from None
    row.state, row.applied_by, row.applied_at = State.APPLIED, request.user.get_username(), timezone.now()
    row.save()
    if row.takes_back_id:
        ChangeSet.objects.filter(pk=row.takes_back_id).update(state=State.ROLLED_BACK)


def roll_back(request: HttpRequest, row: ChangeSet) -> ChangeSet:
    """Drafts the set that takes back one that was applied: the last change first. Raises `Refused`, `CannotApply`."""
    if row.state != State.APPLIED or row.taken_back_by.exclude(state=State.GIVEN_UP).exists():
        raise Refused(_("Only what is applied is rolled back, and once."))
    made = ChangeSet.objects.create(
        title=f"Roll back: {row.title}"[:200],
        second_person=row.second_person,
        drafted_by=request.user.get_username(),
        takes_back=row,
    )
    for change in row.changes.order_by("-pk"):
        back = page_of(change.kind).taking_back(request, change)
        back.set, back.subject = made, change.subject
        back.save()
    return made


def give_up(request: HttpRequest, row: ChangeSet) -> None:
    """Drops what has not been applied. Raises `Refused`."""
    if row.state not in (State.DRAFT, State.APPROVED):
        raise Refused(_("It has been applied or given up."))
    row.state = State.GIVEN_UP
    row.save()


def looked_at(row: ChangeSet) -> str:
    """Stands for what is in a set: whoever approves or applies it does that to what they have looked at."""
    return sha256(repr(list(row.changes.order_by("pk").values_list())).encode()).hexdigest()


class ChangeSetPage(NeverDeleted, Page):
    """Sets, newest first. They come from drafts; what is in them is told below, and what that would do when asked."""

    list_display = ("title", "state_shown", "drafted_by", "drafted_at", "approved_by", "applied_by", "applied_at")
    list_filter = ("state",)
    search_fields = ("title", "drafted_by")
    ordering = ("-pk",)
    change_form_outer_after_template = "admin/gateway/changeset/changes.html"
    fields = ("title", "second_person", "state", "drafted_by", "drafted_at", "approved_by", "approved_at",
              "applied_by", "applied_at", "takes_back")  # fmt: skip

    def get_readonly_fields(self, request: HttpRequest, obj: ChangeSet | None = None) -> tuple[str, ...]:
        """All but its name, and that it needs somebody else, while it is its drafter's."""
        own = obj and obj.state == State.DRAFT and obj.drafted_by == request.user.get_username()
        return self.fields[2:] if own else self.fields

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        wishes: tuple[tuple[str, Callable[..., Any]], ...] = (
            ("approve", approve), ("apply", apply), ("roll_back", roll_back), ("give_up", give_up)
        )  # fmt: skip

        def wish(do: Callable[..., Any]) -> Any:
            return view(require_POST(lambda request, number: self.wish(request, number, do)))

        return [
            path(f"<int:number>/{name}/", wish(do), name=f"gateway_changeset_{name}") for name, do in wishes
        ] + super().get_urls()

    def wish(self, request: HttpRequest, number: int, do: Callable[..., Any]) -> HttpResponse:
        """POST: does it to a set, whole or not at all; of two at once the second finds it done."""
        if not access_of(request).may(ChangeSet, Right.CHANGE):
            raise PermissionDenied
        made = None
        try:
            with transaction.atomic():
                row = ChangeSet.objects.select_for_update().filter(pk=number).first()
                if row is None:
                    raise Http404
                if do in (approve, apply) and request.POST.get("looked_at") != looked_at(row):
                    raise Refused(_("More was drafted into it since you opened it. Look at it again."))
                made = do(request, row)
        except (Refused, CannotApply) as error:
            messages.error(request, _("Nothing was done. %(why)s") % {"why": error})
        return redirect("admin:gateway_changeset_change", made.pk if made else number)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its page, with its changes; with `?effects=1` what they would do as well."""
        row = ChangeSet.objects.filter(pk=int(object_id)).first() if object_id.isdecimal() else None
        more: dict[str, Any] = {}
        if row and self.has_view_permission(request, row):
            acts = access_of(request).may(ChangeSet, Right.CHANGE)  # who may not change it has no forms to ask
            asked = acts and request.GET.get("effects") == "1" and row.state in (State.DRAFT, State.APPROVED)
            more = {
                "set": row,
                "looked_at": looked_at(row),
                "changes": [
                    told(request, one, asked and number < MOST_TOLD)
                    for number, one in enumerate(row.changes.order_by("pk"))
                ],
                "effects": asked,
                "waits": row.needs_second_person and row.state == State.DRAFT,
                "mine": row.drafted_by == request.user.get_username(),
                "acts": acts,
            }
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})

    @display(
        description=gettext_lazy("State"),
        label={"draft": "info", "approved": "warning", "applied": "success", "rolled": "danger", "given_up": "danger"},
    )
    def state_shown(self, row: ChangeSet) -> tuple[str, str]:
        """How far it is."""
        return row.state, row.get_state_display()


def told(request: HttpRequest, change: Change, effects: bool) -> dict[str, Any]:
    """A change as its set's page shows it: `fields` that differ, and what it would do in `effects` and `money`."""
    page = page_of(change.kind)
    found = page.effect(request, change) if effects else None
    unknown = [_("What it would do is not known.")] if effects and found is None else []
    return {
        "change": change,
        "fields": page.shown(change),
        "effects": list(words(found)) if found else unknown,
        "money": [(label, *map(money, amounts)) for label, *amounts in moves(found)] if found else [],
    }
