"""How a provider's secret is put on a request: a closed set of styles, as data.

Which style a provider uses is a column of its row. A secret goes into a header, never into a URL: URLs end
up in logs.
"""

import re
from enum import StrEnum

VISIBLE = re.compile("[!-~]+")  # 0x21 to 0x7e


class AuthStyle(StrEnum):
    """The values of the provider's auth column."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    NONE = "none"  # A server of one's own that asks for nothing.


# Style -> header name, and what stands before the secret; None: no header.
_HEADER: dict[str, tuple[str, str] | None] = {
    AuthStyle.BEARER: ("Authorization", "Bearer "),  # RFC 6750, 2.1
    AuthStyle.API_KEY: ("api-key", ""),
    AuthStyle.X_API_KEY: ("x-api-key", ""),
    AuthStyle.X_GOOG_API_KEY: ("x-goog-api-key", ""),
    AuthStyle.NONE: None,
}


class UnusableSecret(ValueError):
    """The secret cannot stand in a header. The message never holds it."""


def check_secret(secret: str) -> None:
    """Raises `UnusableSecret` unless `secret` is one or more visible ASCII characters (0x21 to 0x7e).

    Control characters would end the header and begin another; a space or a non-ASCII letter is a paste gone
    wrong, better told when the credential is saved than as a 401 from the provider.
    """
    if not secret:
        raise UnusableSecret("the secret is empty")
    if not VISIBLE.fullmatch(secret):
        raise UnusableSecret("the secret has a character that is not visible ASCII")


def headers(style: str, secret: str) -> list[tuple[str, str]]:
    """The headers that carry `secret` in this style: one, or for `none` no header, whatever the secret.

    Raises ValueError for a style that is not an `AuthStyle`, `UnusableSecret` for a secret that cannot
    stand in a header.
    """
    if style not in _HEADER:
        raise ValueError(f"{style!r} is not an AuthStyle")
    header = _HEADER[style]
    if header is None:
        return []
    check_secret(secret)
    name, prefix = header
    return [(name, prefix + secret)]
