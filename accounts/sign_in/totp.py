"""Authenticator apps: time-based codes of six digits (RFC 6238, with what every app takes: SHA-1, 30 s).

The seed is sealed under a key that the database does not have. A code is taken once, as of its window or of the ones
beside it, since clocks differ: RFC 6238, 5.2.
"""

import base64
import secrets
import time
from hmac import compare_digest

import segno
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.db import connection

from accounts.models import Totp, User
from accounts.sealing import seal

STEP_SECONDS, DIGITS, SEED_BYTES = 30, 6, 20

# Whoever sends the same code at the same time: the first has it.
TAKE = "update accounts_totp set last_step = %(step)s where user_id = %(user)s and last_step < %(step)s"


def new_seed() -> str:
    """A fresh one: 160 bits, in base32."""
    return base64.b32encode(secrets.token_bytes(SEED_BYTES)).decode()


def code_of(seed: str, step: int) -> str:
    """The code of a window of 30 s, counted from 1970."""
    return _generator(seed).generate(step * STEP_SECONDS).decode()


def matching_step(seed: str, code: str) -> int | None:
    """The window that `code` is of: this one, the one before or the one after; None: of none of them."""
    given, now = "".join(code.split()), int(time.time()) // STEP_SECONDS
    if len(given) != DIGITS or not given.isascii() or not given.isdigit():
        return None
    return next((step for step in (now, now - 1, now + 1) if compare_digest(code_of(seed, step), given)), None)


def enrol(user: User, seed: str, code: str) -> bool:
    """Takes `seed` as the user's, once a code shows that their app has it. False: it does not."""
    step = matching_step(seed, code)
    if step is None:
        return False
    row = Totp(user=user, last_step=step)
    row.sealed = seal(seed, row.place())
    row.save()
    return True


def take(user: User, code: str) -> bool:
    """Whether `code` is the user's, and has not been used. Raises `CannotOpen` where no key opens the seed."""
    row = Totp.objects.filter(user=user).first()
    step = matching_step(row.secret(), code) if row else None
    if step is None:
        return False
    with connection.cursor() as cursor:
        cursor.execute(TAKE, {"step": step, "user": user.pk})
        return bool(cursor.rowcount == 1)


def picture(user: User, seed: str, issuer: str) -> str:
    """A QR code of the seed, for apps to scan: SVG to stand in a page, without style attributes."""
    uri = _generator(seed).get_provisioning_uri(user.get_username(), issuer)
    return segno.make(uri, error="m").svg_inline(border=2, unit="px", scale=5, dark="#000", light="#fff")


def _generator(seed: str) -> TOTP:
    return TOTP(base64.b32decode(seed), DIGITS, SHA1(), STEP_SECONDS)  # noqa: S303 - as RFC 6238 has it
