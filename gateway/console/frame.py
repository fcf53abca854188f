"""What of the console mixes the apps: its sidebar, first page and colours, and the headers of its answers."""

from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.db.models import Count, Min, Q, Sum
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils import timezone
from django.utils.deprecation import MiddlewareMixin

from accounts.access.access import Access, access_of
from accounts.access.table import Verb
from accounts.console import is_operator, money, sees_books
from accounts.models import ApiKey
from accounts.roles import Role
from billing.backbone.leases import DEAD_AFTER, EVERYBODY, HOUSEKEEPER
from billing.ids import first_id
from billing.models import AuditFinding, AuditState, Hold, Lease, Status, Usage
from gateway.console.menu import NAVIGATION, links
from gateway.console.starting.first_steps import first_steps

# The theme's script library makes functions of its templates' attributes, hence 'unsafe-eval'; there is no inline
# script and no inline style.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)

AUDITED_WITHIN = timedelta(minutes=5)  # it is every minute
MOST_LOOKED_AT = 50_000  # generations the first page sums up at most


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: the pages that are for the person."""
    known = links()
    found = [
        {
            "title": title,
            "items": [
                {"title": name, "icon": icon, "link": known[view]}
                for name, icon, view in items
                if may_open(request, view)
            ],
        }
        for title, items in NAVIGATION
    ]
    return [section for section in found if section["items"]]


def may_open(request: HttpRequest, view: str) -> bool:
    """Whether a page of the menu is one for the person: the first is for who has any role."""
    if view == "health_board":
        return is_operator(request)
    if view in ("spend", "end_users"):
        return sees_books(request)
    if view == "catalog":
        return access_of(request).is_staff or bool(access_of(request).roles)
    if view == "playground":
        return access_of(request).may(ApiKey, Verb.ADD)
    if view == "invite":
        return access_of(request).is_operator or Role.OWNER in access_of(request).roles.values()
    if view == "admin:index":
        access = access_of(request)
        return access.is_staff or bool(access.roles)
    pages = {f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist": page
             for model, page in admin.site._registry.items()}  # fmt: skip
    return pages[view].has_module_permission(request)


def stylesheet(request: HttpRequest) -> str:
    """The address of the console's own style sheet."""
    return static("console/theme.css")


def script(request: HttpRequest) -> str:
    """The address of the console's own script."""
    return static("console/names.js")


def icon(request: HttpRequest) -> str:
    """The address of the tab's icon."""
    return static("console/icon.svg")


def without_inline_colours(request: HttpRequest) -> dict[str, Any]:
    """Context of every page: the theme would write its colours into the page, which the policy forbids."""
    return {"colors": None}


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Context of the first page: today (UTC) in figures; and for who has an office what is wrong with the books."""
    access = access_of(request)
    return {
        **context,
        "title": "Overview",
        "first_steps": first_steps(request),
        "figures": today(access) if access.may(Usage, Verb.VIEW) else None,
        "books": books() if access.is_staff else None,
    }


def books() -> str | None:
    """What is wrong with the books; None when they agree."""
    if count := AuditFinding.objects.filter(gone_at=None).count():
        return f"The books do not agree: {count:,} {'finding' if count == 1 else 'findings'}."
    ended = AuditState.objects.values_list("ended_at", flat=True).first()
    if ended is None:
        return "The books have not been audited yet."
    if timezone.now() - ended > AUDITED_WITHIN:
        return f"The books were audited last at {ended:%Y-%m-%d %H:%M:%S} UTC. No worker seems to run."
    return None


def today(access: Access) -> list[dict[str, Any]]:
    """The figures of the day so far, of the newest generations when there are too many to look at all: those of all, or
    those that the person may see.
    """
    now = timezone.now()
    midnight = datetime.combine(now.date(), time(), UTC)
    newest = access.rows(Usage.objects.filter(pk__gte=first_id(midnight))).order_by("-pk")[:MOST_LOOKED_AT]
    sums = newest.aggregate(
        generations=Count("pk"),
        spent=Sum("charge"),
        unpriced=Count("pk", filter=Q(charge=None) | Q(arithmetic__contains=[{"charge": None}])),
        failed=Count("pk", filter=Q(status__in=(Status.FAILED, Status.ABANDONED))),
        oldest=Min("created_at"),
    )
    since, of_today = "since midnight, UTC", f"?created_at_from_0={midnight:%Y-%m-%d}"
    if sums["generations"] == MOST_LOOKED_AT:
        since = f"since {sums['oldest']:%H:%M:%S}, UTC"
    unpriced = f"; {sums['unpriced']:,} of unknown price" if sums["unpriced"] else ""
    figures = [
        figure("Generations", f"{sums['generations']:,}", since, "admin:billing_usage_changelist", of_today),
        figure(
            "Charged",
            money(sums["spent"] or Decimal(0)),
            since + unpriced,
            "admin:billing_usage_changelist",
            of_today,
        ),
        figure(
            "Failed",
            f"{sums['failed']:,}",
            f"or abandoned, {since}",
            "admin:billing_usage_changelist",
            f"{of_today}&status=bad",
        ),
    ]
    if not access.everywhere(Hold, Verb.VIEW):
        return figures
    alive = Lease.objects.filter(heartbeat_at__gt=now - DEAD_AFTER).exclude(pk__in=(EVERYBODY, HOUSEKEEPER)).count()
    return [
        *figures,
        figure("Open", f"{Hold.objects.count():,}", "requests at this moment", "admin:billing_hold_changelist"),
        figure("Processes", f"{alive:,}", "gateways that are alive", "admin:billing_lease_changelist"),
    ]


def figure(title: str, value: str, note: str, view: str, query: str = "") -> dict[str, Any]:
    """One card of the first page."""
    return {"title": title, "value": value, "note": note, "link": f"{reverse_lazy(view)}{query}"}


class SecurityHeaders(MiddlewareMixin):
    """Adds the content security policy to every answer of the stock handler."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The answer with the header, unless the view set its own."""
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response
