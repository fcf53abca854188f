"""Console pages: budgets, limits, and what is on hold. Generations, prices and the ledger have modules of their own."""

from decimal import Decimal
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import (
    Case,
    Count,
    DateTimeField,
    F,
    Func,
    Max,
    OuterRef,
    Q,
    Subquery,
    Sum,
    UUIDField,
    Value,
    When,
)
from django.db.models.functions import Now, NullIf
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import NeverDeleted, Page, Record, RelatedFilter, money, whose
from accounts.exact import plain
from billing.alerts import NEAR
from billing.backbone.leases import DEAD_AFTER, EVERYBODY, HOUSEKEEPER
from billing.console.balances import BalancePage
from billing.console.end_users import address
from billing.console.generations import GenerationPage
from billing.console.ledger import LedgerPage, slug_of
from billing.console.proposals import ProposalPage
from billing.console.quarantine import QuarantinePage
from billing.console.repricings import RepricingPage
from billing.console.spend import LATE
from billing.console.statements import StatementPage
from billing.console.tariffs import TariffPage
from billing.console.terms import TermsPage
from billing.dropping import months
from billing.models import (
    EACH,
    AuditFinding,
    Budget,
    ClosedMonth,
    ClosedSum,
    Counter,
    DroppedMonth,
    Hold,
    Lease,
    LedgerEntry,
    Mark,
    Prepaid,
    PriceProposal,
    Quarantined,
    ReportTags,
    Repricing,
    Retention,
    Statement,
    Tariff,
    Terms,
    Usage,
)
from billing.retention import first_kept

admin.site.register(Usage, GenerationPage)
admin.site.register(Quarantined, QuarantinePage)
admin.site.register(Tariff, TariffPage)
admin.site.register(Terms, TermsPage)
admin.site.register(PriceProposal, ProposalPage)
admin.site.register(LedgerEntry, LedgerPage)
admin.site.register(Repricing, RepricingPage)
admin.site.register(Statement, StatementPage)
admin.site.register(Prepaid, BalancePage)


# --- what a subject may use -------------------------------------------------------------------------


class SubjectForm(forms.ModelForm):  # type: ignore[type-arg]  # not generic at run time
    """A budget or limit. The constraint behind `clean` is on a generated column, which forms do not look at."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        whom = cleaned.get("key") or cleaned.get("project") or cleaned.get("organization")
        kind = {name: cleaned[name] for name in ("period", "measure", "model", "end_user") if name in cleaned}
        if (
            whom
            and {"period", "measure"} & kind.keys()
            and self._meta.model.objects.filter(subject=whom.pk, **kind).exists()
        ):
            raise ValidationError(_("There is one already for this subject. Change that one."))
        return cleaned


class SubjectPage(Page):
    """Budgets and limits. Whom one binds is chosen once: its counters lie there."""

    form = SubjectForm
    autocomplete_fields = ("organization", "project", "key")
    search_fields: ClassVar[tuple[str, ...]] = ("organization__slug", "project__slug", "key__name", "key__prefix")
    list_select_related = ("organization", "project__organization", "key__project__organization")
    chosen_once: tuple[str, ...] = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related(*self.list_select_related)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("organization", "project", "key", *self.chosen_once) if obj else ()

    @display(description=gettext_lazy("Whom"))
    def whom(self, row: Any) -> str:
        """The subject's name."""
        project = row.key.project if row.key else row.project
        return whose(row.organization.slug, project.slug if project else "", row.key.name if row.key else "")


# A period's first moment, as the hold's SQL computes it.
PERIOD_START = Func("period", Now(), "time_zone", function="billing_window", output_field=DateTimeField())
# The subject of a budget's counter, likewise; for each end user there are many.
SCOPE = Func("subject", "model", NullIf("end_user", Value("")), function="billing_scope", output_field=UUIDField())


def counted(column: str) -> Subquery:
    """For a queryset of budgets annotated with `start` and `scope`: `column` of the counter of the running period."""
    counters = Counter.objects.filter(
        subject=OuterRef("scope"),
        measure="money",
        period=OuterRef("period"),
        period_start=OuterRef("start"),
    )
    return Subquery(counters.values(column)[:1])


def of_end_users(column: str) -> Subquery:
    """The same of budgets for each end user: of the counter of whoever has spent most."""
    counters = Counter.objects.filter(
        owner=OuterRef("subject"),
        end_user__isnull=False,
        model=OuterRef("model"),
        period=OuterRef("period"),
        period_start=OuterRef("start"),
    )
    return Subquery(counters.order_by("-used").values(column)[:1])


def check_contract(budget: Budget, given: dict[str, Any]) -> None:
    """Raises ValidationError for more than a budget of the contract of the same period allows the same or a wider
    subject: it would promise what no request gets.
    """
    whom = {name: given.get(name) or getattr(budget, name, None) for name in ("organization", "project", "key")
            if f"{name}_id" in budget.__dict__ or given.get(name)}  # fmt: skip
    amount, period = given.get("amount"), given.get("period") or budget.period
    if amount is None or not whom.get("organization"):
        return
    wider = [one.pk for one in whom.values() if one]
    key = whom.get("key")
    if key is not None:
        wider.append(key.project_id)
    agreed = Budget.objects.filter(contract=True, hard=True, period=period, subject__in=wider, end_user="")
    least = agreed.filter(model__in=("", given.get("model") or budget.model)).order_by("amount").first()
    if least is not None and amount > least.amount:
        told = {
            "whom": least.subject_name(),
            "amount": f"${plain(least.amount)}",
            "period": least.get_period_display().lower(),
        }
        raise ValidationError({"amount": _("The contract has %(whom)s at %(amount)s %(period)s.") % told})


class BudgetPage(SubjectPage):
    """How much may be spent, and how much of it is. Whoever knows the models registers it."""

    list_display = ("whom", "part", "period", "amount_shown", "used", "share", "held", "hard")
    list_filter = ("period", "hard", ("organization", RelatedFilter))
    search_fields = (*SubjectPage.search_fields, "model", "end_user")
    ordering = ("organization__slug", "pk")
    chosen_once = ("model", "end_user", "period")
    fields = ("organization", "project", "key", "model", "end_user", "period", "amount", "hard", "alerts", "contract")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """An organization's own people make none of the contract."""
        found = super().get_readonly_fields(request, obj)
        return found if access_of(request).is_staff else (*found, "contract")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and self._is_theirs(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and self._is_theirs(request, obj)

    def _is_theirs(self, request: HttpRequest, obj: Any) -> bool:
        """What was agreed with an organization its own people leave as it is."""
        return not isinstance(obj, Budget) or not obj.contract or access_of(request).everywhere(Budget, Verb.CHANGE)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        made: Any = super().get_form(request, obj, change, **kwargs)
        if access_of(request).everywhere(Budget, Verb.ADD):
            return made

        class Below(made):  # a class of this request's own
            def clean(self) -> dict[str, Any]:
                cleaned: dict[str, Any] = super().clean() or self.cleaned_data
                check_contract(self.instance, cleaned)
                self.instance.contract = False
                return cleaned

        return Below

    def get_queryset(self, request: HttpRequest) -> Any:
        counters = {
            name: Case(When(end_user=EACH, then=of_end_users(column)), default=counted(column))
            for name, column in (("used_now", "used"), ("held_now", "held"))
        }
        return super().get_queryset(request).annotate(start=PERIOD_START, scope=SCOPE).annotate(**counters)

    @display(description=gettext_lazy("Of"))
    def part(self, budget: Budget) -> str:
        """Which calls alone it counts; of end users', leads to what they have left."""
        words = budget.part().strip() or _("all calls")
        if not budget.end_user:
            return words
        return format_html('<a href="{}" class="text-link">{}</a>', address(budget.organization_id), words)

    @display(description=gettext_lazy("Amount"), ordering="amount")
    def amount_shown(self, budget: Budget) -> str:
        """In dollars."""
        return money(budget.amount)

    @display(description=gettext_lazy("Spent"))
    def used(self, budget: Any) -> str:
        """Dollars settled in the running period; of each end user's budget by whoever has spent most."""
        return money(budget.used_now or Decimal(0))

    @display(description=gettext_lazy("Of it"), label={"far": "success", "near": "warning", "over": "danger"})
    def share(self, budget: Any) -> tuple[str, str]:
        """How much of the amount is spent; a soft budget goes past it."""
        used = budget.used_now or Decimal(0)
        if not budget.amount:
            return ("over", _("more")) if used else ("far", "-")
        spent = 100 * used / budget.amount
        return "over" if spent >= 100 else "near" if spent >= NEAR else "far", f"{spent:,.0f} %"

    @display(description=gettext_lazy("On hold"))
    def held(self, budget: Any) -> str:
        """Dollars that open requests may still come to."""
        return money(budget.held_now or Decimal(0))


class LimitPage(SubjectPage):
    """How fast a subject may go. Whoever drafts changes registers it, and price versions."""

    list_display = ("whom", "measure", "value")
    list_filter = ("measure", ("organization", RelatedFilter))
    ordering = ("organization__slug", "pk")
    chosen_once = ("measure",)
    fields = ("organization", "project", "key", "measure", "value")


@admin.register(ReportTags)
class ReportTagsPage(Page):
    """By which keys of metadata an organization's spending is told apart."""

    list_display = ("organization", "tags_shown", "done")
    list_select_related = ("organization",)
    search_fields = ("organization__slug",)
    ordering = ("organization__slug",)
    autocomplete_fields = ("organization",)
    fields = ("organization", "names")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("organization",) if obj else ()

    def get_queryset(self, request: HttpRequest) -> Any:
        """With how far the worker is that tells them apart."""
        until = Mark.objects.filter(name="tags").values("until")
        return super().get_queryset(request).annotate(until=Subquery(until))

    @display(description=gettext_lazy("Tags"))
    def tags_shown(self, row: ReportTags) -> str:
        """All of them."""
        return ", ".join(row.names)

    @display(description=gettext_lazy("Told apart"))
    def done(self, row: Any) -> str:
        """Since the month before they were named, once the worker has made its days again; or how far it is."""
        if not row.rolled_up or row.until is None:
            return _("waits for the worker")
        if timezone.now() - row.until <= LATE:
            return _("up to now")
        return _("until %(moment)s UTC, going on") % {"moment": f"{row.until:%Y-%m-%d %H:%M}"}


# --- what only the product writes -------------------------------------------------------------------


class HoldPage(Record):
    """Requests that are open at this moment, and what they may come to. Whoever can end them registers it."""

    list_display = (
        "created_at",
        "id",
        "organization_slug",
        "model",
        "worst_case",
        "tokens",
        "output_cap",
        "process",
    )
    ordering = ("pk",)
    fields = (
        "id",
        "created_at",
        "organization_slug",
        "project",
        "key",
        "model",
        "output_cap",
        "worst_case",
        "tokens",
        "hard",
        "process",
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        host = Subquery(Lease.objects.filter(pk=OuterRef("lease")).values("host"))
        return super().get_queryset(request).annotate(slug=slug_of("organization"), host=host)

    @display(description=gettext_lazy("Organization"))
    def organization_slug(self, hold: Any) -> str:
        """As lists show it."""
        return hold.slug or str(hold.organization)

    @display(description=gettext_lazy("Worst case"))
    def worst_case(self, hold: Hold) -> str:
        """In dollars."""
        return money(hold.money)

    @display(description=gettext_lazy("Process"))
    def process(self, hold: Any) -> str:
        """The host of the process that made it."""
        return hold.host or _("gone")


@admin.register(Lease)
class LeasePage(Record):
    """Gateway processes, whose holds the others resolve when they fall silent, and the worker that helps with it."""

    list_display = ("host", "pid", "kind", "state", "started_at", "heartbeat_at")
    codes = ("pid",)
    ordering = ("-started_at",)  # those that live would change places with every beat
    search_fields = ()

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).exclude(pk=EVERYBODY)

    @display(description=gettext_lazy("Kind"))
    def kind(self, lease: Lease) -> str:
        """What it does."""
        return _("worker") if lease.pk == HOUSEKEEPER else _("gateway")

    @display(description=gettext_lazy("State"), label={"alive": "success", "silent": "warning"})
    def state(self, lease: Lease) -> tuple[str, str]:
        """By the time since its last heartbeat."""
        alive = timezone.now() - lease.heartbeat_at < DEAD_AFTER
        return ("alive", _("alive")) if alive else ("silent", _("silent"))


@admin.register(ClosedMonth)
class ClosedMonthPage(NeverDeleted, Page):
    """Months that are closed. Adding one closes it; nothing opens it again."""

    list_display = ("month", "closed_at", "closed_by", "summed_at", "charged")
    ordering = ("-month",)
    search_fields = ()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("month", "closed_at", "closed_by", "summed_at", "charged", "sums") if obj else ("month",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return self.get_fields(request, obj) if obj else ()

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: ClosedMonth, form: Any, change: bool) -> None:
        obj.closed_by = request.user.get_username()
        obj.save(force_insert=True)

    def get_queryset(self, request: HttpRequest) -> Any:
        owing = Q(account__startswith="tenant:") | Q(account__startswith="repriced:")
        tenants = ClosedSum.objects.filter(owing, month=OuterRef("month"))
        owed = tenants.values("month").annotate(owed=Sum(F("debit") - F("credit"))).values("owed")
        return super().get_queryset(request).annotate(owed=Subquery(owed))

    @display(description=gettext_lazy("Charged"))
    def charged(self, row: Any) -> str:
        """What tenants owe for it, in dollars."""
        return money(row.owed or Decimal(0)) if row.summed_at else "-"

    @display(description=gettext_lazy("Sums"))
    def sums(self, row: ClosedMonth) -> str:
        """What it came to, by account, of all organizations together."""
        found: dict[str, Decimal] = {}
        for one in ClosedSum.objects.filter(month=row.month):
            name = (
                one.account.partition(":")[0]
                if one.account.startswith(("tenant:", "repriced:", "prepaid:"))
                else one.account
            )
            found[name] = found.get(name, Decimal(0)) + one.debit - one.credit
        return ", ".join(f"{name}: {plain(value)}" for name, value in sorted(found.items())) or "-"


@admin.register(Retention)
class RetentionPage(NeverDeleted, Page):
    """How many months of usage and attempts are kept, and what the worker drops by that, once a day."""

    list_display = ("shown", "kept", "oldest", "dropped")
    ordering = ("-table",)
    search_fields = ()
    fields = ("months", "oldest", "dropped", "plan")
    readonly_fields = ("oldest", "dropped", "plan")

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @display(description=gettext_lazy("What"))
    def shown(self, row: Retention) -> str:
        """The table."""
        return str(row)

    @display(description=gettext_lazy("Months kept"))
    def kept(self, row: Retention) -> str:
        """Beside the running one."""
        return _("all") if row.months is None else str(row.months)

    def get_queryset(self, request: HttpRequest) -> Any:
        """With the last month that was dropped, how many were, and their rows."""
        of = DroppedMonth.objects.filter(table=OuterRef("pk")).order_by().values("table")
        sums = {"last": Max("month"), "months_gone": Count("pk"), "rows_gone": Sum("rows")}
        columns = {name: Subquery(of.annotate(**{name: one}).values(name)) for name, one in sums.items()}
        return super().get_queryset(request).annotate(**columns)

    @display(description=gettext_lazy("Kept since"))
    def oldest(self, row: Any) -> str:
        """From which day on all rows are there."""
        return f"{first_kept(row.last):%Y-%m-%d}" if row.last else _("the beginning")

    @display(description=gettext_lazy("Dropped"))
    def dropped(self, row: Any) -> str:
        """How many months, and rows, were dropped so far."""
        told = {"months": row.months_gone, "rows": f"{row.rows_gone or 0:,}"}
        return _("%(months)s months, %(rows)s rows") % told if row.months_gone else _("nothing")

    @display(description=gettext_lazy("Months"))
    def plan(self, row: Retention) -> str:
        """What would go by what is saved, and why the others stay."""
        found = [month for month in months() if month.table == row.table]
        told = [
            f"{month.first:%Y-%m}: "
            + (_("stays, %(why)s") % {"why": _(month.objection)} if month.objection else _("goes"))
            for month in found
        ]
        return "; ".join(told) or "-"


@admin.register(AuditFinding)
class AuditFindingPage(Record):
    """What the auditor found, newest first: open, or gone again."""

    list_display = ("first_seen", "state", "kind", "place", "expected", "found", "gone_at")
    ordering = ("-pk",)
    search_fields = ()
    fields = ("first_seen", "gone_at", "kind", "place", "expected", "found")

    @display(description=gettext_lazy("State"), label={"open": "danger", "gone": "success"})
    def state(self, finding: AuditFinding) -> str:
        """Whether it still does not agree."""
        return "open" if finding.gone_at is None else "gone"
