"""For a provider's page in the console: its credentials, and what came of their last trials."""

from typing import Any

from django import template

from gateway.console.starting.credentials import last_trials
from routing.models import AuthStyle, Provider

register = template.Library()
MOST_SHOWN = 50


@register.simple_tag
def credentials_to_test(provider: Provider) -> list[dict[str, Any]]:
    """Those that hold what they need, each with the event of its `last` trial, if it had one."""
    rows = provider.credentials.order_by("name")
    if provider.auth_style != AuthStyle.NONE:
        rows = rows.exclude(sealed="")
    shown = list(rows[:MOST_SHOWN])
    last = last_trials(shown)
    return [{"row": row, "last": last.get(str(row.pk))} for row in shown]
