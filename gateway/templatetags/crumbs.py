"""For the console's head: the way to a page, in the menu's words."""

from collections.abc import Iterable
from typing import Any

from django import template
from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils.text import capfirst

from gateway.console.menu import called

register = template.Library()


@register.filter
def crumbs(parts: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    """The theme's parts of the way: without the apps, which the menu does not know, and rows by their own names."""
    apps = {
        reverse("admin:app_list", args=[label]) for label in {table._meta.app_label for table in admin.site._registry}
    }
    found = []
    for part in parts:
        link, title = str(part.get("link", "")), part["title"]
        if link in apps:
            continue
        words = str(title) if isinstance(title, Model) else called(link, capfirst(str(title)))
        found.append({"link": link, "title": words})
    return found
