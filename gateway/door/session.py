"""Whether a request of the console's comes from somebody who has logged in, found out before its body is read."""

from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from importlib import import_module

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import SESSION_KEY
from django.db import DatabaseError, close_old_connections

MOST_COOKIE_BYTES = 8192


async def has_session(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the cookie in these raw headers is that of a session in which somebody has logged in."""
    text = b"; ".join(value for name, value in headers if name == b"cookie").decode("latin-1")
    try:
        cookie = SimpleCookie(text[:MOST_COOKIE_BYTES]).get(settings.SESSION_COOKIE_NAME)
    except CookieError:
        return False
    return cookie is not None and await sync_to_async(_is_logged_in)(cookie.value)


def _is_logged_in(key: str) -> bool:
    close_old_connections()
    try:
        store = import_module(settings.SESSION_ENGINE).SessionStore
        return SESSION_KEY in store(session_key=key).load()
    except DatabaseError:
        return False
    finally:
        close_old_connections()
