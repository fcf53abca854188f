"""What a person may be: in the installation, by a group, or in one organization, by a membership, and never both."""

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy as _


class Role(models.TextChoices):
    """A member's role in an organization."""

    OWNER = "owner", _("Owner")
    DEVELOPER = "developer", _("Developer")
    AUDITOR = "auditor", _("Auditor")


class Office(models.TextChoices):
    """A role of the whole installation: the name of a group, made by a migration. Superusers are operators without."""

    OPERATOR = "operator", _("Operator")
    FINANCE = "finance", _("Finance")
    AUDITOR = "auditor", _("Auditor")


def runs_the_installation(user: Any) -> bool:
    """Whether a person is an operator, by their own row or by office."""
    return bool(user.is_superuser) or bool(user.groups.filter(name=Office.OPERATOR).exists())
