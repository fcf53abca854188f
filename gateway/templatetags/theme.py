"""What the console's pages say and mark up otherwise than the theme they are made with."""

from collections.abc import Iterable
from typing import Any

from django import template
from django.contrib import admin
from django.db.models import Model
from django.urls import reverse
from django.utils.safestring import mark_safe
from django.utils.text import capfirst

from gateway.console.menu import called

register = template.Library()

# Markup of the theme, and what stands in its place: landmarks for screen readers, and a style that is set by the
# browser's own interface, which the content security policy allows.
MENDED = (
    ('<div id="content"', '<div role="main" tabindex="-1" id="content"'),
    (
        '<div class="bg-white border-b border-base-200 mb-6',
        '<div role="banner" class="bg-white border-b border-base-200 mb-6',
    ),
    ("""x-bind:style="'width: ' + changeListWidth + 'px'\"""", """x-bind:style="{ width: changeListWidth + 'px' }\""""),
)


@register.filter
def mended(html: str) -> str:
    """The theme's page with what is wrong in it put right. Escaped already."""
    for wrong, right in MENDED:
        html = html.replace(wrong, right)
    return mark_safe(html)  # noqa: S308 - a rendered page with constants of ours


@register.simple_tag(takes_context=True)
def page_title(context: Any) -> str:
    """What the browser's tab says: the row or what is done, then the page as the menu calls it, then whose it is."""
    words, opts, row = str(context.get("title") or ""), context.get("opts"), context.get("original")
    if opts is not None:
        listed = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
        page = called(listed, capfirst(str(opts.verbose_name_plural)))
        if "cl" in context:
            return page
        return f"{row if row is not None and 'adminform' in context else words} - {page}"
    return words


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
