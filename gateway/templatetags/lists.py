"""What stands above a list: what is often asked of it, and what it is filtered by, each with the list without."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl

from django import template
from django.contrib.admin import FieldListFilter
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.access.access import access_of

register = template.Library()
LONGEST = 60  # characters of a value
YES = {"1": gettext_lazy("yes"), "True": gettext_lazy("yes"), "0": gettext_lazy("no"), "False": gettext_lazy("no")}


@register.simple_tag
def presets(cl: Any) -> list[tuple[str, str, bool]]:
    """What is often asked of a list: titles, query strings beside what else is chosen, and whether it is asked now. One
    that is asked now leads to the list without it.
    """
    found = []
    for title, query in getattr(cl.model_admin, "presets", ()):
        asked = dict(parse_qsl(query.format(today=timezone.now().date())))
        current = all(cl.params.get(name) == value for name, value in asked.items())
        led = cl.get_query_string(remove=list(asked)) if current else cl.get_query_string(asked)
        found.append((str(title), led, current))
    return found


@register.simple_tag(takes_context=True)
def chips(context: Any, cl: Any) -> list[tuple[str, str, str]]:
    """What a list is filtered by: what is asked, the value in words, and the query string of the list without it."""
    found = [(_("search"), cl.query, cl.get_query_string(remove=["q"]))] if cl.query else []
    for spec in cl.filter_specs:
        names = [name for name in spec.expected_parameters() if cl.params.get(name)]
        if words := ", ".join(_words(context["request"], cl, spec, names)):
            found.append((str(spec.title), words[:LONGEST], cl.get_query_string(remove=names)))
    return found


def _words(request: HttpRequest, cl: Any, spec: Any, names: list[str]) -> Iterator[str]:
    """The values of a filter's parameters, as people know them."""
    said = getattr(spec, "lookup_choices", None) or ()  # pairs; of some filters of fields values alone
    chosen = {str(one[0]): str(one[1]) for one in said if isinstance(one, tuple | list) and len(one) == 2}
    for name in names:
        value = cl.params[name]
        value = value[-1] if isinstance(value, list) else value
        field = getattr(spec, "field", None) if isinstance(spec, FieldListFilter) else None
        if name.endswith(("_from_0", "_from")):
            yield _("from %(moment)s") % {"moment": value}
        elif name.endswith(("_to_0", "_to")):
            yield _("to %(moment)s") % {"moment": value}
        elif field is not None and field.is_relation:
            yield _called(request, field.remote_field.model, value)
        elif field is not None and field.choices:
            yield str(dict(field.flatchoices).get(value, value))
        elif field is not None and field.get_internal_type() == "BooleanField":
            yield str(YES.get(value, value))
        else:
            yield chosen.get(value, value)


def _called(request: HttpRequest, model: Any, value: str) -> str:
    """What the row is called that a list is filtered by, for who may see it."""
    try:
        row = access_of(request).rows(model._default_manager.filter(pk=value)).first()
    except (ValueError, ValidationError):
        row = None
    return value if row is None else str(row)
