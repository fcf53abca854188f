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

HEAD_BYTES = 11  # of sealed bytes


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


def seal_bytes(content: bytes, place: str) -> bytes:
    """`content` sealed for `place`, for a bytea column: 11 bytes that name version and key, 12 of nonce, the box."""
    key = base64.urlsafe_b64decode(settings.SEALING_KEYS[0])
    nonce = os.urandom(12)
    return b"".join((_head(key), nonce, AESGCM(key).encrypt(nonce, content, place.encode())))


def open_bytes(sealed: bytes, place: str) -> bytes:
    """The content that was sealed for `place` by `seal_bytes`. Raises `CannotOpen`, never saying why."""
    keys = map(base64.urlsafe_b64decode, settings.SEALING_KEYS)
    key = next((key for key in keys if _head(key) == sealed[:HEAD_BYTES]), None)
    if key is None:
        raise CannotOpen
    box = memoryview(sealed)[HEAD_BYTES:]
    try:
        return AESGCM(key).decrypt(box[:12], box[12:], place.encode())
    except (ValueError, InvalidTag) as error:
        raise CannotOpen from error


def current_head() -> bytes:
    """How everything begins that `seal_bytes` sealed with the first key."""
    return _head(base64.urlsafe_b64decode(settings.SEALING_KEYS[0]))


def is_current(sealed: str) -> bool:
    """Whether `sealed` was sealed with the first key."""
    return sealed.startswith(f"1.{_name(base64.urlsafe_b64decode(settings.SEALING_KEYS[0]))}.")


def _head(key: bytes) -> bytes:
    return f"1.{_name(key)}.".encode()


def _name(key: bytes) -> str:
    return hashlib.sha256(b"sealing-key-name" + key).hexdigest()[:8]
