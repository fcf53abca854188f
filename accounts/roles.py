"""What a person may be: in the installation, by a group, or in one organization, by a membership, and never both."""

from django.db import models


class Role(models.TextChoices):
    """A member's role in an organization."""

    OWNER = "owner", "Owner"
    DEVELOPER = "developer", "Developer"
    AUDITOR = "auditor", "Auditor"


class Office(models.TextChoices):
    """A role of the whole installation: the name of a group, made by a migration. Superusers are operators without."""

    OPERATOR = "operator", "Operator"
    FINANCE = "finance", "Finance"
    AUDITOR = "auditor", "Auditor"
