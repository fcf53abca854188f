"""The console's page of the ledger: postings by tenant, account and day, what they come to, and the file of them.

Lists go by the date of posting, for which there are indexes (`billing.models.LedgerEntry`); nothing is counted.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any
from uuid import UUID

from django.contrib.admin import FieldListFilter
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_date
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.contrib.filters.forms import RangeDateForm
from unfold.decorators import display

from accounts.console import Record, dollars
from accounts.exact import plain
from accounts.log import Action, log
from accounts.models import Organization
from billing.console.filters import NameFilter, OrganizationFilter
from billing.exports.streams import gzipped, in_thread, takes_gzip
from billing.models import LedgerEntry
from billing.postings import MOST_ACCOUNTS, Account, Postings, entries_csv

LOOK_BACK = timedelta(days=7)
DAYS = ("created_at_from", "created_at_to")
OWNED = ("tenant:", "prepaid:")  # by a tenant, whom pages name by its slug


def slug_of(column: str) -> Subquery:
    """The slug of the organization whose id stands in `column`; NULL when it is no more."""
    return Subquery(Organization.objects.filter(pk=OuterRef(column)).values("slug"))


def asked_for(request: HttpRequest) -> Postings | None:
    """What the query string asks for; the last days when it names no day and looks for no generation. None where it
    asks for what cannot be: no day, a tenant of nobody.
    """
    asked = {name: request.GET.get(name, "").strip().replace("\0", "") for name in ("organization", "account", "q")}
    try:
        first, last = (_day(request.GET.get(name, "")) for name in DAYS)
        if asked["q"]:
            return Postings(first=first, last=last, generation=UUID(asked["q"]))
        organization = UUID(asked["organization"]) if asked["organization"] else None
    except ValueError:
        return None
    if organization and not Organization.objects.filter(pk=organization).exists():
        return None
    account = asked["account"] or None
    if account and account.startswith(OWNED):
        kind, _colon, slug = account.partition(":")
        whose = Organization.objects.filter(slug=slug).values_list("pk", flat=True).first()
        account, organization = f"{kind}:{whose or slug}", organization or whose
    if first is None and last is None:
        first = timezone.now().date() - LOOK_BACK
    return Postings(organization, account, first, last)


def _day(text: str) -> date | None:
    if not text.strip():
        return None
    found = parse_date(text.strip())
    if found is None or not 1970 <= found.year < 9999:
        raise ValueError("not a day")
    return found


class DayFilter(FieldListFilter):
    """Entries posted to some days."""

    template = "unfold/filters/filters_date_range.html"
    form_class = RangeDateForm

    def __init__(self, field: Any, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        super().__init__(field, request, *args, **kwargs)
        self.title = _("day (UTC)")
        self.asked = {name: request.GET.get(name, "") for name in DAYS}

    def expected_parameters(self) -> list[str | None]:
        return list(DAYS)

    def has_output(self) -> bool:
        return True

    def choices(self, changelist: Any) -> Iterator[Any]:
        yield {"form": self.form_class(name="created_at", initial=self.asked)}

    def queryset(self, request: HttpRequest, queryset: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
        asked = asked_for(request)
        return queryset.none() if asked is None else within(asked, queryset)


def within(asked: Postings, queryset: QuerySet[LedgerEntry]) -> QuerySet[LedgerEntry]:
    """Those of the chosen days."""
    if asked.first:
        queryset = queryset.filter(created_at__gte=_midnight(asked.first))
    if asked.last:
        queryset = queryset.filter(created_at__lt=_midnight(asked.last + timedelta(days=1)))
    return queryset


def _midnight(day: date) -> str:
    return f"{day}T00:00:00Z"


class AccountFilter(NameFilter):
    """By an account on either side, as the page calls it: revenue, cost, overrun, provider:…, tenant:…"""

    title = parameter_name = "account"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        asked = asked_for(request)
        if asked is None or asked.account is None:
            return queryset
        asked = asked.where_there_are()
        if asked is None:
            return queryset.none()
        found = within(asked, queryset).filter(Q(debit=asked.account) | Q(credit=asked.account))
        return found.filter(organization=asked.organization) if asked.organization else found


class LedgerPage(Record):
    """Postings, newest first. A correction is a further row; none is ever changed."""

    list_display = ("created_at", "kind", "debit_shown", "credit_shown", "amount_shown", "generation_link", "late_of")
    list_filter = (("created_at", DayFilter), OrganizationFilter, AccountFilter)
    lookups = (*DAYS, "organization", "account")
    ordering = ("-created_at", "-pk")
    found_by = "generation"
    change_list_template = "admin/billing/ledgerentry/change_list.html"
    fields = (
        "id",
        "created_at",
        "kind",
        "transaction",
        "debit_shown",
        "credit_shown",
        "amount_shown",
        "currency",
        "generation_link",
        "late_of",
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(slug=slug_of("organization"))

    def get_urls(self) -> list[URLPattern]:
        export = path("export/", self.admin_site.admin_view(self.export), name="billing_ledgerentry_export")
        return [export, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        asked = asked_for(request)
        context = {"asked": asked, "query_string": request.GET.urlencode()}
        response: Any = super().changelist_view(request, {**(extra_context or {}), **context})
        # Not before the list has refused what it does not filter by.
        if asked is not None and hasattr(response, "context_data"):
            response.context_data |= comes_to(asked)
        return response  # type: ignore[no-any-return]

    def export(self, request: HttpRequest) -> StreamingHttpResponse:
        """What the query string filters, as CSV, gzipped for who takes that: what is posted by now, or it would never
        end.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        log(Action.EXPORT, LedgerEntry, None, request.GET.urlencode())
        with connection.cursor() as cursor:
            cursor.execute("select clock_timestamp(), coalesce(max(id), 0) from billing_ledgerentry")
            ((now, last),) = cursor.fetchall()
        found = self.get_changelist_instance(request).get_queryset(request).filter(id__lte=last)
        chunks = entries_csv(found)
        headers = {
            "Content-Disposition": f'attachment; filename="ledger-until-{now:%Y%m%dT%H%M%S.%fZ}.csv"',
            "Cache-Control": "no-store, private",
            "Vary": "Accept-Encoding",
        }
        if takes_gzip(request.headers.get("accept-encoding", "")):
            chunks, headers["Content-Encoding"] = gzipped(chunks), "gzip"
        return StreamingHttpResponse(in_thread(chunks), content_type="text/csv; charset=utf-8", headers=headers)

    @display(description=gettext_lazy("Debit"))
    def debit_shown(self, entry: Any) -> str:
        """The account, a tenant by its slug."""
        return account(entry.debit, entry)

    @display(description=gettext_lazy("Credit"))
    def credit_shown(self, entry: Any) -> str:
        """The account, a tenant by its slug."""
        return account(entry.credit, entry)

    @display(description=gettext_lazy("Amount"))
    def amount_shown(self, entry: LedgerEntry) -> str:
        """With its currency."""
        return f"{plain(entry.amount)} {entry.currency}"

    @display(description=gettext_lazy("Generation"))
    def generation_link(self, entry: LedgerEntry) -> str:
        """Leads to the generation, when there is one."""
        if entry.generation is None:
            return "-"
        url = reverse("admin:billing_usage_change", args=[entry.generation])
        return format_html('<a href="{}" class="text-link">{}</a>', url, entry.generation.hex)


def account(name: str, entry: Any) -> str:
    """A ledger account as pages show it."""
    return name.replace(str(entry.organization), entry.slug) if entry.slug else name


def comes_to(asked: Postings) -> dict[str, Any]:
    """What the template is told of what is filtered: a table by account, and what is not in it yet."""
    accounts, left_out = asked.sums()
    headers = [_("Account"), _("Debit"), _("Credit"), _("Debit less credit"), _("Entries")]
    balances = any(one.balance is not None for one in accounts)
    rows = [_row(one, balances) for one in accounts]
    return {
        "sums": {"headers": [*headers, _("Balance at the end")] if balances else headers, "rows": rows},
        "left_out": left_out,
        "cut": len(accounts) == MOST_ACCOUNTS,
    }


def _row(one: Account, balances: bool) -> tuple[str, ...]:
    name = one.name
    if name.startswith(OWNED):
        kind, _colon, whose = name.partition(":")
        slug = Organization.objects.filter(pk=whose).values_list("slug", flat=True).first()
        name = f"{kind}:{slug}" if slug else name
    row = (name, dollars(one.debit), dollars(one.credit), dollars(one.debit - one.credit), f"{one.entries:,}")
    return (*row, dollars(one.balance)) if balances else row
