"""What holds on every page: who must have a second factor has one, who has one has proved it, and all are listed."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth import logout
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect

from accounts.sign_in import factors, sessions
from gateway.console.sign_in import entering

# What is open to those who must have a second factor and have none yet: getting one, and leaving.
OPEN = frozenset(
    {"my_sign_in", "new_totp", "passkey_new_options", "passkey_new", "new_codes", "sign_in_again", "admin:logout"}
    | {"second_options", "sso", "sso_back", "login"}
)


class SignInRules:
    """Looks at each request of somebody who is signed in, before its page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Any) -> HttpResponseBase | None:
        """None: the page is shown; else what is answered in its place."""
        if not request.user.is_authenticated:
            return None
        user = entering.me(request)
        if not entering.has_second(request):
            if factors.has_any(user):  # got in another session; this one has proved too little
                logout(request)
                return redirect("admin:login")
            wanted = request.resolver_match.view_name if request.resolver_match else ""
            if factors.is_required(user) and wanted not in OPEN:
                return redirect("my_sign_in")
        sessions.seen(request.session, user, entering.address_of(request), request.headers.get("User-Agent", ""))
        return None
