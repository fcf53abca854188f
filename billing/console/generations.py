"""Console pages of generations: the list, one generation with its arithmetic, and the filtered export.

The table may hold billions of rows, is partitioned by its time-ordered ids and has no index on `created_at`:
a range of time is a range of ids, nothing is counted, and without a range the list shows the last days alone.
"""

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import connection
from django.db.models import Count, Min, Q, QuerySet, Sum
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from unfold.decorators import display

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import Record, dollars, money, number, whose
from accounts.exact import plain
from accounts.log import Action, log
from accounts.models import ApiKey
from billing.console.filters import (
    TIME_INPUTS,
    AppFilter,
    BasisFilter,
    EndUserFilter,
    KeyFilter,
    MetadataFilter,
    ModelFilter,
    OddFilter,
    OrganizationFilter,
    ProjectFilter,
    ProviderFilter,
    Range,
    SessionFilter,
    StatusFilter,
    TimeFilter,
    asked_range,
)
from billing.console.timing import seconds, timing
from billing.exports.generations import OPERATORS
from billing.exports.pages import FORMATS, LAYOUTS, chunks, layout_of
from billing.exports.streams import gzipped, in_thread, takes_gzip
from billing.models import Attempt, Item, LedgerEntry, Status, Usage
from billing.pricing import Line, Rate

USUAL_ENDS = ("", "stop")
ARRIVING = 300_000  # milliseconds in which a request is read and, where its dialect queues it, waits for room
MOST_ADDED_UP = 50_000  # generations of a list
STATUS_COLOURS = {"completed": "success", "failed": "danger", "cancelled": "warning", "abandoned": "danger"}


class GenerationPage(Record):
    """Requests and their answers, newest first."""

    list_display = (
        "created_at",
        "caller",
        "model",
        "provider",
        "ending",
        "prompt_shown",
        "completion_shown",
        "charge_shown",
        "first_token",
        "duration",
        "speed",
    )
    search_help_text = gettext_lazy("Generation id or request id")
    list_filter = (
        ("created_at", TimeFilter),
        OrganizationFilter,
        ProjectFilter,
        KeyFilter,
        ModelFilter,
        ProviderFilter,
        EndUserFilter,
        AppFilter,
        SessionFilter,
        MetadataFilter,
        StatusFilter,
        BasisFilter,
        OddFilter,
    )
    lookups = (
        *TIME_INPUTS,
        *("organization", "project", "key", "model", "provider", "end_user", "app", "session", "metadata"),
        *("status", "basis", "odd"),
    )
    presets = (
        (gettext_lazy("Today"), "created_at_from_0={today}"),
        (gettext_lazy("Failed"), "status=bad"),
        (gettext_lazy("Unpriced"), "odd=unpriced"),
        (gettext_lazy("Slow"), "odd=slow"),
    )
    ordering = ("-pk",)
    concealed = (
        *("provider", "upstream_model", "upstream_id", "cost_shown", "overrun_shown", "tariff_link", "attempts"),
        ProviderFilter,
    )
    change_list_template = "admin/billing/usage/change_list.html"
    change_form_outer_before_template = "admin/billing/usage/summary.html"
    change_form_after_template = "admin/billing/usage/accounts.html"
    fieldsets = (
        (
            gettext_lazy("Call"),
            {
                "fields": (
                    "created_at",
                    "settled_at",
                    "tenant",
                    "key_link",
                    "app",
                    "end_user",
                    "model",
                    "stream",
                    "metadata_shown",
                )
            },
        ),
        (
            gettext_lazy("Outcome"),
            {
                "fields": (
                    "status",
                    "error",
                    "attempts",
                    "finish_reason",
                    "native_finish_reason",
                    "provider",
                    "upstream_model",
                    "service_tier",
                    "first_token",
                    "duration",
                )
            },
        ),
        (
            gettext_lazy("Tokens"),
            {
                "fields": (
                    "prompt_tokens",
                    "cached_tokens",
                    "audio_input_tokens",
                    "image_input_tokens",
                    "video_input_tokens",
                    "cache_write_5m_tokens",
                    "cache_write_1h_tokens",
                    "completion_tokens",
                    "reasoning_tokens",
                    "audio_output_tokens",
                    "image_output_tokens",
                    "web_searches",
                    "images",
                    "seconds",
                ),
                "description": gettext_lazy(
                    "Cached, written, audio, image and video input are inside the prompt; "
                    "reasoning, audio and image output are inside the completion."
                ),
            },
        ),
        (
            gettext_lazy("Money"),
            {
                "fields": (
                    "charge_shown",
                    "cost_shown",
                    "overrun_shown",
                    "basis",
                    "suspect",
                    "tariff_link",
                )
            },
        ),
    )

    def get_urls(self) -> list[URLPattern]:
        export = self.admin_site.admin_view(self.export)
        return [
            path("export/", export, name="billing_usage_export"),
            path("sums/", self.admin_site.admin_view(self.sums), name="billing_usage_sums"),
            path("export/<str:layout>/<str:format>/", export, name="billing_usage_export_as"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        try:
            shown = asked_range(request.GET.dict())
        except ValueError:
            shown = None
        context = {"range": shown, "query_string": request.GET.urlencode()}
        return super().changelist_view(request, {**(extra_context or {}), **context})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        context = dict(extra_context or {})
        usage = self.get_object(request, object_id)
        if usage is not None:
            staff, table = access_of(request).is_staff, arithmetic(usage)
            context |= {
                "arithmetic": table if staff else without_costs(table),
                "compared": compared(usage, table["sum"]),
                "timing": timing(usage, Attempt.objects.filter(generation=usage.pk).order_by("number")),
                "ids": ids(usage, named=staff),
                "staff": staff,
            }
            if staff:
                postings_of = LedgerEntry.objects.filter(generation=usage.pk).order_by("pk")
                context["postings"] = postings(usage, postings_of)
        return super().change_view(request, object_id, form_url, context)

    def export(self, request: HttpRequest, layout: str = LAYOUTS[0], format: str = "csv") -> StreamingHttpResponse:
        """What the query string filters, as a file; CSV gzipped for who takes that. Ends at the present moment, or it
        would never end.

        The file's name says which moment, by the database's clock; nothing is missing that was settled by then.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        if layout not in LAYOUTS or format not in FORMATS:
            raise Http404
        columns, file = layout_of(layout), FORMATS[format]
        if not access_of(request).is_staff:
            columns = columns.without(OPERATORS)
        log(Action.EXPORT, Usage, None, f"{layout} {format} {request.GET.urlencode()}")
        with connection.cursor() as cursor:
            cursor.execute("select clock_timestamp()")
            ((now,),) = cursor.fetchall()
        found = Range(None, now).narrow(self.get_changelist_instance(request).get_queryset(request))
        pieces = chunks(found, file(columns), columns)
        headers = {
            "Content-Disposition": f'attachment; filename="{layout}-until-{now:%Y%m%dT%H%M%S.%fZ}.{file.suffix}"',
            "Cache-Control": "no-store, private",
            "Vary": "Accept-Encoding",
        }
        if file.is_text and takes_gzip(request.headers.get("accept-encoding", "")):
            pieces, headers["Content-Encoding"] = gzipped(pieces), "gzip"
        return StreamingHttpResponse(in_thread(pieces), content_type=file.media, headers=headers)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> Any:
        """The generation of an id, or of the request that had it; nothing for any other text."""
        if not search_term:
            return queryset, False
        try:
            id = UUID(search_term.strip())
        except ValueError:
            return queryset.none(), False
        return queryset.filter(pk__in=[id, *of_request(access_of(request).rows(Usage.objects.all()), id)]), False

    def sums(self, request: HttpRequest) -> HttpResponse:
        """What the query string filters, counted and added up: the newest `MOST_ADDED_UP`, as nobody may count all."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        chosen = self.get_changelist_instance(request).get_queryset(request)
        found = chosen.order_by("-pk")[:MOST_ADDED_UP].aggregate(
            count=Count("pk"),
            failed=Count("pk", filter=Q(status__in=StatusFilter.FAILED)),
            prompt=Sum("prompt_tokens", default=0),
            completion=Sum("completion_tokens", default=0),
            charged=Sum("charge", default=Decimal(0)),
            unpriced=Count("pk", filter=Q(charge=None)),
            oldest=Min("created_at"),
        )
        context = {
            **self.admin_site.each_context(request),
            "title": _("Generations, added up"),
            "sums": {name: number(value) if isinstance(value, int) else value for name, value in found.items()},
            "charge": money(found["charged"]),
            "unpriced": found["unpriced"],
            "all": found["count"] < MOST_ADDED_UP,
            "back": f"{reverse('admin:billing_usage_changelist')}?{request.GET.urlencode()}",
        }
        return TemplateResponse(request, "admin/billing/usage/sums.html", context)

    @display(description=gettext_lazy("Whose"))
    def caller(self, usage: Usage) -> str:
        """Organization, project and key, as they were called then."""
        return whose(usage.organization_slug, usage.project_slug, usage.key_name)

    @display(description=gettext_lazy("Project"))
    def tenant(self, usage: Usage) -> str:
        """Organization and project, as they were called then."""
        return f"{usage.organization_slug}/{usage.project_slug}"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """A key leads to its page for who may see it."""
        found = super().get_fieldsets(request, obj)
        if access_of(request).may(ApiKey, Verb.VIEW):
            return found
        return [
            (title, {**said, "fields": ["key_name" if one == "key_link" else one for one in said["fields"]]})
            for title, said in found
        ]

    @display(description=gettext_lazy("Key"))
    def key_link(self, usage: Usage) -> str:
        """Leads to the key."""
        url = reverse("admin:accounts_apikey_change", args=[usage.key])
        return format_html('<a href="{}" class="text-link">{}</a>', url, usage.key_name)

    @display(description=gettext_lazy("Metadata"))
    def metadata_shown(self, usage: Usage) -> str:
        """What the client sent along."""
        return json.dumps(usage.metadata, ensure_ascii=False, indent=1) if usage.metadata else "-"

    @display(description=gettext_lazy("Status"), label=STATUS_COLOURS)
    def ending(self, usage: Usage) -> tuple[str, str]:
        """How it ended; the list colours it. Of a whole answer that did not simply stop, why it ended."""
        end = usage.finish_reason if usage.status == Status.COMPLETED else ""
        return usage.status, usage.get_status_display() if end in USUAL_ENDS else end

    @display(description=gettext_lazy("Input"))
    def prompt_shown(self, usage: Usage) -> str:
        """Tokens."""
        return number(usage.prompt_tokens)

    @display(description=gettext_lazy("Output"))
    def completion_shown(self, usage: Usage) -> str:
        """Tokens."""
        return number(usage.completion_tokens)

    @display(description=gettext_lazy("Charge"))
    def charge_shown(self, usage: Usage) -> str:
        """What the tenant pays."""
        return money(usage.charge)

    @display(description=gettext_lazy("Provider's cost"))
    def cost_shown(self, usage: Usage) -> str:
        """What the provider takes."""
        return money(usage.provider_cost)

    @display(description=gettext_lazy("Overrun"))
    def overrun_shown(self, usage: Usage) -> str:
        """What exceeded the hold of a hard budget, and nobody pays."""
        return money(usage.overrun)

    @display(description=gettext_lazy("First token"))
    def first_token(self, usage: Usage) -> str:
        """Time to it."""
        return format_html('<span class="number">{}</span>', seconds(usage.ttft_ms))

    @display(description=gettext_lazy("Duration"))
    def duration(self, usage: Usage) -> str:
        """From the request to its end."""
        return format_html('<span class="number">{}</span>', seconds(usage.duration_ms))

    @display(description=gettext_lazy("Tokens/s"))
    def speed(self, usage: Usage) -> str:
        """Of a stream, from its first token on."""
        took = (usage.duration_ms or 0) - (usage.ttft_ms or 0)
        if not usage.stream or usage.ttft_ms is None or took <= 0:
            return "-"
        return number(round(usage.completion_tokens * 1000 / took))

    @display(description=gettext_lazy("Tariff version"))
    def tariff_link(self, usage: Usage) -> str:
        """Leads to the rates."""
        if usage.tariff_version is None:
            return "-"
        url = reverse("admin:billing_tariffversion_change", args=[usage.tariff_version])
        return format_html('<a href="{}" class="text-link">{}</a>', url, usage.tariff_version)


def of_request(generations: QuerySet[Usage], request_id: UUID) -> list[UUID]:
    """The id of the generation of a request, in a list of one or none.

    A request's id says when it came, and the generation's is made within `ARRIVING` of that: so no index is needed.
    """
    if request_id.version != 7:
        return []
    came = request_id.int >> 80
    first, last = (UUID(int=max(came + apart, 0) << 80) for apart in (-1000, ARRIVING))
    found = generations.filter(pk__gte=first, pk__lt=last, request_id=request_id)
    return list(found.order_by("pk").values_list("pk", flat=True)[:1])


def ids(usage: Usage, *, named: bool) -> list[tuple[str, str]]:
    """The ids of a generation as their makers write them, each with its name; `named`: with the provider's."""
    found = [(_("Generation"), usage.pk.hex)]
    if usage.request_id is not None:
        found.append((_("Request (x-request-id)"), usage.request_id.hex))
    if named and usage.upstream_id:
        found.append((_("The provider's own"), usage.upstream_id))
    return found


def arithmetic(usage: Usage) -> dict[str, Any]:
    """The table of the lines that make the amounts; amounts by the one module that knows prices, exact in their titles.

    `sum`: what the lines come to for the tenant; None: a price is not known, or there is no line.
    """
    labels = dict(Item.choices)
    rows: list[tuple[str, ...]] = []
    charges: list[Decimal | None] = []
    costs: list[Decimal | None] = []
    for stored in usage.arithmetic:
        rate = Rate(*(None if stored[side] is None else Decimal(stored[side]) for side in ("cost", "charge")))
        line = Line(stored["item"], stored["quantity"], rate)
        charges.append(line.amount(rate.charge))
        costs.append(line.amount(rate.cost))
        rows.append(
            (
                str(labels.get(line.item, line.item)),
                number(line.quantity),
                dollars(rate.charge),
                money(charges[-1]),
                dollars(rate.cost),
                money(costs[-1]),
            )
        )
    if rows:
        rows.append((_("Sum"), "", "", money(total(charges)), "", money(total(costs))))
    headers = [_("Class"), _("Quantity"), _("Rate"), _("Charge"), _("Provider's rate"), _("Provider's cost")]
    return {"headers": headers, "rows": rows, "sum": total(charges) if rows else None}


def compared(usage: Usage, lines: Decimal | None) -> str:
    """In a sentence, what the lines come to beside what is charged. Escaped."""
    if lines is None or usage.charge is None:
        return ""
    if not usage.overrun:
        said = _("The lines come to {lines}, and {charge} is charged.")
    else:
        said = _("The lines come to {lines}: {charge} is charged, and {overrun} was more than a hard budget had left.")
    return format_html(said, lines=money(lines), charge=money(usage.charge), overrun=money(usage.overrun))


def without_costs(table: dict[str, Any]) -> dict[str, Any]:
    """The table of an arithmetic as the tenant may see it: what it is charged."""
    return {**table, "headers": table["headers"][:4], "rows": [row[:4] for row in table["rows"]]}


def total(amounts: list[Decimal | None]) -> Decimal | None:
    """The sum; one unknown amount makes it unknown."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known, Decimal(0)) if len(known) == len(amounts) else None


def postings(usage: Usage, entries: Iterable[LedgerEntry]) -> dict[str, Any]:
    """The table of the ledger's rows."""
    tenant = (str(usage.organization), usage.organization_slug)
    rows = [
        (
            f"{entry.created_at:%Y-%m-%d %H:%M:%S}",
            entry.kind,
            entry.debit.replace(*tenant),
            entry.credit.replace(*tenant),
            f"{plain(entry.amount)} {entry.currency}",
        )
        for entry in entries
    ]
    return {"headers": [_("Posted"), _("Kind"), _("Debit"), _("Credit"), _("Amount")], "rows": rows}
