"""The console in the reader's language: names that Django makes of attributes, which no catalogue would see.

All other texts are said by gettext where they stand. The catalogues are in `gateway/locale`; `manage.py makemessages`
brings them up to date with what the code says.
"""

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.forms.utils import pretty_name
from django.utils.translation import gettext_lazy

from routing.health.faults import Fault
from routing.planning.ordering import WORDS

OURS = ("accounts", "billing", "routing", "gateway")
# What the theme says, which has no catalogues of its own.
OF_THE_THEME = (
    "%(class_name)s %(instance)s",
    "Add row",
    "All applications",
    "Apply Filters",
    "Cancel",
    "Click to cancel",
    "Click to download",
    "Dark",
    "Dataset not found. No action performed.",
    "Date",
    "Date from",
    "Date to",
    "Expand row",
    "False",
    "Filters",
    "From",
    "General",
    "Go back",
    "Light",
    "Loading more results...",
    "More actions",
    "Next",
    "No data",
    "No recent searches",
    "No results found",
    "No results matching your query",
    "Previous",
    "Recent searches",
    "Record picture",
    "Reset filters",
    "Run",
    "Select action",
    "Select action to run",
    "Select all rows",
    "Select currency",
    "Select format",
    "Select record",
    "Select value",
    "Submit",
    "System",
    "This item will be deleted.",
    "This page yielded into no results. Create a new item or reset your filters.",
    "To",
    "Toggle password visibility",
    "True",
    "Type to search",
    "Value",
    "You can not create nested object without parent",
    "You have been successfully logged out from the administration",
)


def translate_names() -> None:
    """Has models, their fields and the columns of lists called in the reader's language. Once a process."""
    for table in _tables():
        table._meta.verbose_name = gettext_lazy(str(table._meta.verbose_name))
        table._meta.verbose_name_plural = gettext_lazy(str(table._meta.verbose_name_plural))
        for field in table._meta.fields + table._meta.many_to_many:
            field.verbose_name = gettext_lazy(str(field.verbose_name))
    for shown in _undescribed():
        shown.short_description = gettext_lazy(pretty_name(shown.__name__))


def names() -> set[str]:
    """What `translate_names` looks up, in English, what the theme says, and what is said of plans and of faults."""
    found = set(OF_THE_THEME)
    for table in _tables():
        found |= {str(table._meta.verbose_name), str(table._meta.verbose_name_plural)}
        found |= {str(field.verbose_name) for field in table._meta.fields + table._meta.many_to_many}
    found |= set(WORDS.values()) | {fault.value.replace("_", " ") for fault in Fault}
    return found | {pretty_name(shown.__name__) for shown in _undescribed()}


def _tables() -> Iterator[Any]:
    return (table for app in OURS for table in apps.get_app_config(app).get_models())


def _undescribed() -> Iterator[Any]:
    """Functions of pages that are columns and have no name of their own."""
    for page in admin.site._registry.values():
        for name in (*page.list_display, *page.readonly_fields):
            shown = getattr(getattr(page, name, None), "__func__", None) if isinstance(name, str) else None
            if shown is not None and not hasattr(shown, "short_description"):
                yield shown
