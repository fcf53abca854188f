"""Console pages of re-pricing: what usage would come to by another version, by organization, and then posted."""

from decimal import Decimal
from typing import Any

from celery import current_app
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.db.models import F, Sum
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST
from kombu.exceptions import OperationalError
from unfold.decorators import display

from accounts.console import NeverDeleted, Page, is_operator, money, number
from accounts.models import Organization
from billing.models import Repricing

SHOWN = 500  # organizations


class RepricingPage(NeverDeleted, Page):
    """Re-pricings. One is asked for, counted by a worker, looked at, and applied, or not."""

    list_display = ("created_at", "version", "first", "until", "state_shown", "applied_at", "asked_by")
    list_select_related = ("version__tariff",)
    ordering = ("-pk",)
    search_fields = ()
    autocomplete_fields = ("version",)
    change_form_outer_after_template = "admin/billing/repricing/sums.html"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        asked = ("version", "first", "until")
        return (*asked, "created_at", "asked_by", "state_shown", "applied_at", "applied_by", "digest") if obj else asked

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_fields(request, obj) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path(f"<int:run>/{name}/", view(require_POST(wish)), name=f"billing_repricing_{name}")
            for name, wish in (("stop", self.stop), ("count", self.count), ("apply", self.apply))
        ] + super().get_urls()

    def save_model(self, request: HttpRequest, obj: Repricing, form: Any, change: bool) -> None:
        obj.asked_by = request.user.get_username()
        obj.save(force_insert=True)
        self._send(request, "billing.count_repricing", obj.pk)

    def response_add(self, request: HttpRequest, obj: Repricing, post_url_continue: str | None = None) -> HttpResponse:
        """Leads to the page on which it is counted."""
        return redirect("admin:billing_repricing_change", obj.pk)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Its page, with what it comes to; loaded again while it is counted."""
        run = Repricing.objects.filter(pk=int(object_id)).first() if object_id.isdecimal() else None
        more = {"run": run, "table": sums(run), "share": share(run)} if run and is_operator(request) else {}
        response = super().change_view(request, object_id, form_url, {**(extra_context or {}), **more})
        if run and run.state == Repricing.State.COUNTING and not run.stop:
            response["Refresh"] = "2"
        return response

    def stop(self, request: HttpRequest, run: int) -> HttpResponse:
        """POST: lets the count rest."""
        self._asked(request, run).filter(state=Repricing.State.COUNTING).update(stop=True)
        return redirect("admin:billing_repricing_change", run)

    def count(self, request: HttpRequest, run: int) -> HttpResponse:
        """POST: goes on with the count, also when the worker that did it has died."""
        self._asked(request, run).filter(state=Repricing.State.COUNTING).update(stop=False)
        self._send(request, "billing.count_repricing", run)
        return redirect("admin:billing_repricing_change", run)

    def apply(self, request: HttpRequest, run: int) -> HttpResponse:
        """POST: has a worker post what it comes to, if its rows still come to that; where SECOND_PERSON has it so, not
        for who asked for it.
        """
        asked_by = self._asked(request, run).values_list("asked_by", flat=True).get()
        if "repricing" in settings.SECOND_PERSON and asked_by == request.user.get_username():
            messages.error(request, _("Somebody else has to apply it."))
            return redirect("admin:billing_repricing_change", run)
        self._send(request, "billing.apply_repricing", run, request.user.get_username())
        messages.info(
            request,
            _("Asked for at %(now)s UTC. It counts once more, and then posts.") % {"now": f"{timezone.now():%H:%M:%S}"},
        )
        return redirect("admin:billing_repricing_change", run)

    def _asked(self, request: HttpRequest, run: int) -> Any:
        found = Repricing.objects.filter(pk=run)
        if not is_operator(request) or not found.exists():
            raise Http404
        return found

    def _send(self, request: HttpRequest, task: str, *args: Any) -> None:
        def send() -> None:
            try:
                current_app.send_task(task, args, retry=False)
            except OperationalError:
                messages.error(request, _("No worker could be asked: Redis does not answer. Try again."))

        transaction.on_commit(send)

    @display(description=gettext_lazy("State"), label={"counted": "warning", "applied": "success"})
    def state_shown(self, run: Repricing) -> tuple[str, str]:
        """How far it is."""
        return run.state, run.get_state_display()


def share(run: Repricing) -> int:
    """How much is counted, in percent."""
    return min(100, 100 * run.done // run.total) if run.total else 0


def sums(run: Repricing) -> dict[str, Any]:
    """What it comes to, by organization; those with the most money first."""
    stands = {name: Sum(F(f"{name}_before") + F(f"{name}_prior")) for name in ("charge", "cost")}
    rows: Any = run.sums.values("organization").annotate(
        generations=Sum("rows"), kept=Sum("left"), new=Sum("charge_after"), new_cost=Sum("cost_after"), **stands,
    )  # fmt: skip
    found = sorted(rows, key=lambda row: abs(row["new"] - row["charge"]), reverse=True)
    ids = [row["organization"] for row in found[:SHOWN]]
    slugs = dict(Organization.objects.filter(pk__in=ids).values_list("pk", "slug"))
    lines = [(str(slugs.get(row["organization"], row["organization"])), row) for row in found[:SHOWN]]
    names = ("generations", "kept", "charge", "new", "cost", "new_cost")
    everyone = {name: sum((row[name] for row in found), Decimal(0)) for name in names}
    return {
        "headers": [
            *(_("Organization"), _("Generations"), _("Left as they are"), _("Charge"), _("Would be"), _("Difference")),
            _("Cost difference"),
        ],
        "rows": [
            [
                name,
                number(int(row["generations"])),
                number(int(row["kept"])),
                money(row["charge"]),
                money(row["new"]),
                money(row["new"] - row["charge"]),
                money(row["new_cost"] - row["cost"]),
            ]
            for name, row in [*lines, (_("All"), everyone)]
        ],
    }
