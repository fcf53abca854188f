"""How a webhook proves whose it is: the scheme of Standard Webhooks 1.0, with a secret that both sides have.

`webhook-id` is the same however often a message is sent, `webhook-timestamp` is of the try (seconds since 1970), and
`webhook-signature` is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
"""

import base64
import hashlib
import hmac
import secrets

from django.utils.translation import gettext as _

PREFIX = "whsec_"
LEAST, MOST = 24, 64  # bytes of a secret, as the scheme has it


class UnusableSecret(ValueError):
    """The text is no secret of the scheme. The message says what one looks like, and never holds it."""


def new_secret() -> str:
    """A secret, as both sides write it."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The bytes that a secret stands for. Raises `UnusableSecret`."""
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True) if secret.startswith(PREFIX) else b""
    except ValueError:
        key = b""
    if not LEAST <= len(key) <= MOST:
        raise UnusableSecret(
            _("A secret is %(prefix)s and %(least)s to %(most)s bytes in base64.")
            % {"prefix": PREFIX, "least": LEAST, "most": MOST}
        )
    return key


def signed(secret: str, id: str, seconds: int, body: bytes) -> dict[str, str]:
    """The headers that go with `body`. Raises `UnusableSecret`."""
    digest = hmac.new(key_of(secret), f"{id}.{seconds}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
