"""Who makes a request of the console, said to the database before anything else is asked of it."""

from django.http import HttpRequest
from django.utils.deprecation import MiddlewareMixin

from accounts.access.access import enter
from gateway.door.authentication import client_address


def address_of(request: HttpRequest) -> str:
    """Where a request of the console comes from: as far as the proxies in front are to be believed."""
    forwarded = request.META.get("HTTP_X_FORWARDED_FOR", "").encode("latin-1", "replace")
    return client_address([(b"x-forwarded-for", forwarded)] if forwarded else [], request.META.get("REMOTE_ADDR", ""))


class Entering(MiddlewareMixin):
    """Gives each request the access of who makes it, and its connection what that person may see.

    For the connection's life, not for a transaction: pages are rendered, and files streamed, after the view's own has
    ended. A process that serves has a connection for each request; one that is used again enters again.
    """

    def process_request(self, request: HttpRequest) -> None:
        """Enters."""
        request.access = enter(request.user, address_of(request))  # type: ignore[attr-defined]
