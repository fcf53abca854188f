"""What the template of the first page is told."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _

from accounts.access.table import Verb
from accounts.console import money
from billing.console.burn import Burn, Burning, burning
from billing.models import Budget, Usage
from gateway.console.overview.asked import Asked, asked_for, choices
from gateway.console.overview.attention import items
from gateway.console.overview.dashboard import shown
from gateway.console.overview.providers import providers, running
from gateway.console.starting.first_steps import first_steps

MOST_BURNING = 8  # budgets in the table
MOST_LOOKED_UP = 40  # of which more is told than how many they are


def overview(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Context of the first page: what needs the person, and what a range of days came to; empty without any role."""
    asked = asked_for(request)
    if not asked.access.may(Usage, Verb.VIEW):
        return {**context, "title": _("Overview"), "first_steps": first_steps(request), "figures": None}
    budgets = _budgets(asked)
    return {
        **context,
        "title": _("Overview"),
        "first_steps": first_steps(request),
        "asked": asked,
        **choices(asked),
        **shown(asked),
        "running": running(asked),
        "attention": items(asked, budgets),
        "budgets": [told(one) for one in budgets.shown[:MOST_BURNING]],
        "providers": providers(asked),
    }


def _budgets(asked: Asked) -> Burning:
    found = asked.access.rows(Budget.objects.all())
    if asked.organization is not None:
        found = found.filter(organization=asked.organization)
    return burning(found, MOST_LOOKED_UP)


def told(burn: Burn) -> dict[str, Any]:
    """A budget as a table shows it."""
    if burn.reached_at is not None:
        forecast = _("spent on %(day)s") % {"day": f"{burn.reached_at:%Y-%m-%d %H:%M} UTC"}
    elif burn.level == "over":
        forecast = _("spent")
    elif burn.comes_to is None:
        forecast = "-"
    else:
        forecast = _("stays within")
    return {
        "name": burn.name,
        "link": burn.link,
        "hard": burn.budget.hard,
        "percent": f"{burn.percent:,.0f}",
        "value": min(100, round(burn.percent)),
        "level": burn.level,
        "used": money(burn.used),
        "amount": money(burn.budget.amount),
        "comes_to": "" if burn.comes_to is None else money(burn.comes_to),
        "forecast": forecast,
    }
