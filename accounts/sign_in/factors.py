"""Whether a person has a second factor, must have one, and may lose it."""

from django.conf import settings

from accounts.models import Passkey, RecoveryCode, Totp, User
from accounts.roles import runs_the_installation

OPTIONAL, OPERATORS, REQUIRED = "optional", "operators", "required"  # CONSOLE_SECOND_FACTOR


def has_any(user: User) -> bool:
    """Whether `user` has an authenticator app or a passkey. Recovery codes only stand in for one."""
    return Totp.objects.filter(user=user).exists() or Passkey.objects.filter(user=user).exists()


def is_required(user: User) -> bool:
    """Whether `user` sees nothing of the console without one."""
    if settings.CONSOLE_SECOND_FACTOR == OPERATORS:
        return runs_the_installation(user)
    return bool(settings.CONSOLE_SECOND_FACTOR == REQUIRED)


def forget_codes_without_factor(user: User) -> None:
    """With the last factor go the codes that stand in for it."""
    if not has_any(user):
        RecoveryCode.objects.filter(user=user).delete()


def remove_all(user: User) -> None:
    """`user` has none from now on: for the operator of the machine, who has seen them in person."""
    for table in (Totp, Passkey, RecoveryCode):
        table._default_manager.filter(user=user).delete()
