"""API keys: making a secret, telling a mistyped one from an unknown one, and its digest.

A secret is `sk-ml-`, 30 base62 characters (178 bits of randomness) and 6 that are the CRC-32 of those before them, in
base62. A typo is refused without a look-up, and secret scanners recognise a leaked key. The database holds only the
HMAC-SHA-256 under a pepper from the environment: at this entropy a fast hash is enough (OWASP ASVS 5.0, 6.5.2), and
a stolen dump is worth nothing without the pepper.
"""

import hashlib
import hmac
import re
import secrets
import zlib
from collections.abc import Sequence
from functools import lru_cache

PREFIX = "sk-ml-"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SHAPE = re.compile(r"sk-ml-[0-9A-Za-z]{36}", re.ASCII)


def new_secret() -> str:
    """A fresh secret, 42 characters, for showing once."""
    body = PREFIX + "".join(secrets.choice(ALPHABET) for _ in range(30))
    return body + checksum(body)


def checksum(body: str) -> str:
    """Six base62 characters over `body` (ASCII). CRC-32 catches every change within four neighbouring characters."""
    value = zlib.crc32(body.encode("ascii"))
    digits = ""
    for _ in range(6):
        digits = ALPHABET[value % 62] + digits
        value //= 62
    return digits


def is_well_formed(secret: str) -> bool:
    """Whether `secret` has a key's shape and its checksum holds. Says nothing about whether it exists."""
    return SHAPE.fullmatch(secret) is not None and checksum(secret[:-6]) == secret[-6:]


def digest(secret: str, pepper: str) -> bytes:
    """The 32 bytes that stand for `secret` in the database."""
    mac = _keyed(pepper).copy()
    mac.update(secret.encode("ascii"))
    return mac.digest()


@lru_cache(maxsize=16)
def _keyed(pepper: str) -> hmac.HMAC:
    """A MAC that has taken its key: that is most of the work, and the same for every secret."""
    return hmac.new(pepper.encode(), digestmod=hashlib.sha256)


def digests(secret: str, peppers: Sequence[str]) -> list[bytes]:
    """The digest under each pepper, the current one first: a key made before a rotation still opens."""
    return [digest(secret, pepper) for pepper in peppers]


def display_prefix(secret: str) -> str:
    """What lists and logs may show of a key: its prefix and last four characters."""
    return f"{PREFIX}…{secret[-4:]}"
