"""Sealing secrets at rest: AES-256-GCM, keys from the environment, each value bound to where it lies.

The associated data names the row, so a ciphertext copied onto another row, or a credential whose provider's address
was changed behind the console's back, does not open (OWASP ASVS 5.0, 11.3.2 and 11.3.3). Sealing keys are apart from
Django's SECRET_KEY; the first seals, all open, `manage.py reseal` moves old values to the first.
"""

import base64
import hashlib
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings


class CannotOpen(Exception):
    """The value was sealed with a key we no longer have, for another place, or was changed."""


def seal(secret: str, place: str) -> str:
    """`secret` sealed for `place` (any text naming the row and field); ASCII, safe in a text column."""
    key = base64.urlsafe_b64decode(settings.SEALING_KEYS[0])
    nonce = os.urandom(12)
    box = AESGCM(key).encrypt(nonce, secret.encode(), place.encode())
    return f"1.{_name(key)}.{base64.urlsafe_b64encode(nonce + box).decode()}"


def open_sealed(sealed: str, place: str) -> str:
    """The secret that was sealed for `place`. Raises `CannotOpen`, never saying why."""
    try:
        version, name, text = sealed.split(".")
        box = base64.urlsafe_b64decode(text)
        key = next(k for k in map(base64.urlsafe_b64decode, settings.SEALING_KEYS) if _name(k) == name)
        if version != "1":
            raise CannotOpen
        return AESGCM(key).decrypt(box[:12], box[12:], place.encode()).decode()
    except (ValueError, StopIteration, InvalidTag) as error:
        raise CannotOpen from error


def is_current(sealed: str) -> bool:
    """Whether `sealed` was sealed with the first key."""
    return sealed.startswith(f"1.{_name(base64.urlsafe_b64decode(settings.SEALING_KEYS[0]))}.")


def _name(key: bytes) -> str:
    return hashlib.sha256(b"sealing-key-name" + key).hexdigest()[:8]
