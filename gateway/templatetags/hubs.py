"""Shows what matters of a row before its form."""

from typing import Any

from django import template

register = template.Library()


@register.inclusion_tag("admin/hub.html", takes_context=True)
def hub(context: Any, row: Any) -> dict[str, Any]:
    """What `gateway.console.hubs` says of the row that a page shows."""
    from gateway.console import hubs  # the theme looks at all tags while it is being imported

    return hubs.hub(context["request"], row)
