"""What of the console mixes the apps: its sidebar and colours, and the headers of its answers."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.utils.deprecation import MiddlewareMixin
from django.utils.translation import gettext as _

from accounts.access.access import access_of
from accounts.access.table import Verb
from accounts.console import is_operator, sees_books
from accounts.models import ApiKey
from accounts.roles import Role
from gateway.console.menu import NAVIGATION, links

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


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The sidebar: the pages that are for the person."""
    known = links()
    found = [
        {
            "title": _(title),
            "items": [
                {"title": _(name), "icon": icon, "link": known[view]}
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
    if view in ("admin:index", "search"):
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


def live(request: HttpRequest) -> str:
    """The address of the script that keeps parts of pages fresh."""
    return static("console/live.js")


def copying(request: HttpRequest) -> str:
    """The address of the script behind buttons that copy."""
    return static("console/copy.js")


def icon(request: HttpRequest) -> str:
    """The address of the tab's icon."""
    return static("console/icon.svg")


def without_inline_colours(request: HttpRequest) -> dict[str, Any]:
    """Context of every page: the theme would write its colours into the page, which the policy forbids."""
    return {"colors": None}


class SecurityHeaders(MiddlewareMixin):
    """Adds the content security policy to every answer of the stock handler."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        super().__init__(get_response)

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        """The answer with the header, unless the view set its own."""
        response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        return response
