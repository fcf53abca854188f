"""What runs at this moment: requests and processes; and how providers did in the last hour, for operators."""

from typing import Any
from urllib.parse import urlencode

from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce
from django.urls import reverse
from django.utils.translation import gettext as _

from accounts.access.table import Verb
from accounts.console import number
from billing.backbone.leases import DEAD_AFTER, EVERYBODY, HOUSEKEEPER
from billing.models import Hold, Lease
from gateway.console.health_board import Figures, age
from gateway.console.overview.asked import Asked
from gateway.console.overview.dashboard import figure
from routing.models import ALL_SIZES, Ejection, OfferStatistics, Provider, Window

MOST_PROVIDERS = 12  # those that rest first, then those with the most calls


def running(asked: Asked) -> list[dict[str, str]]:
    """Open requests and living gateways as figures; none for who does not see them."""
    if not asked.access.everywhere(Hold, Verb.VIEW):
        return []
    alive = Lease.objects.filter(heartbeat_at__gt=asked.now - DEAD_AFTER).exclude(pk__in=(EVERYBODY, HOUSEKEEPER))
    held = Hold.objects.filter(organization=asked.organization.pk) if asked.organization else Hold.objects.all()
    return [
        figure(_("Open requests"), number(held.count()), reverse("admin:billing_hold_changelist"), _("at this moment")),
        figure(_("Processes"), number(alive.count()), reverse("admin:billing_lease_changelist"),
               _("gateways that are alive")),
    ]  # fmt: skip


def providers(asked: Asked) -> dict[str, Any] | None:
    """What the page is told; None for who is no operator, or where there is no provider."""
    if not asked.access.is_operator:
        return None
    hour = OfferStatistics.objects.filter(window=Window.HOUR, size_class=ALL_SIZES).values("provider")
    did = {
        row["provider"]: Figures(row["calls"], row["good"], row["bad"])
        for row in hour.annotate(calls=Sum("attempts"), good=Sum("completed"), bad=Sum("offer_faults"))
    }
    open = Ejection.objects.filter(closed_at=None).values(
        slug=Coalesce("offer__provider__slug", "credential__provider__slug")
    )
    rests = {row["slug"]: row["count"] for row in open.annotate(count=Count("pk"))}
    used = Count("offers", filter=Q(offers__active=True, offers__model__active=True))
    known = Provider.objects.filter(active=True).annotate(used=used).values_list("slug", "name", "used")
    rows = sorted(known, key=lambda row: (-rests.get(row[0], 0), -did.get(row[0], Figures()).attempts, row[0]))
    lines = []
    for slug, name, offers in rows[:MOST_PROVIDERS]:
        figures, resting = did.get(slug, Figures()), rests.get(slug, 0)
        state = _("%(count)s at rest") % {"count": resting} if resting else _("in use") if offers else _("no offers")
        lines.append(
            {
                "name": name,
                "slug": slug,
                "link": f"{reverse('health_board')}?{urlencode({'q': slug})}",
                "calls": number(figures.attempts),
                "uptime": figures.uptime_text,
                "offers": number(offers),
                "state": state,
                "level": "bad" if resting else figures.level if figures.attempts else "none",
            }
        )
    if not lines:
        return None
    return {"lines": lines, "more": len(rows) - len(lines), "age": age(Window.HOUR, asked.now)}
