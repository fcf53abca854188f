"""Recovery codes: ten, each good once, for whoever has lost their second factor. 50 bits each, kept as digests."""

import base64
import secrets

from django.conf import settings
from django.db import transaction

from accounts.keys import digest, digests
from accounts.models import RecoveryCode, User

COUNT = 10
LENGTH = 10  # characters of base32


@transaction.atomic
def renew(user: User) -> list[str]:
    """Ten fresh ones, for showing once; those from before are no longer good."""
    # Who makes some at the same time waits: else both would be shown as good.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    codes = [base64.b32encode(secrets.token_bytes(10)).decode()[:LENGTH] for _ in range(COUNT)]
    RecoveryCode.objects.filter(user=user).delete()
    RecoveryCode.objects.bulk_create(
        RecoveryCode(user=user, digest=digest(_of(user, code), settings.KEY_PEPPERS[0])) for code in codes
    )
    return [f"{code[:5]}-{code[5:]}" for code in codes]


def take(user: User, typed: str) -> bool:
    """Whether it is one of theirs, which it then no longer is."""
    code = "".join(char for char in typed.upper() if char.isascii() and char.isalnum())
    if len(code) != LENGTH:
        return False
    known = digests(_of(user, code), settings.KEY_PEPPERS)
    deleted, _ = RecoveryCode.objects.filter(user=user, digest__in=known).delete()
    return deleted == 1


def _of(user: User, code: str) -> str:
    """Bound to the person, and no key's."""
    return f"recovery code of {user.pk}: {code}"
