"""What a person may be in an organization. No page reads it yet."""

from django.db import models


class Role(models.TextChoices):
    """A member's role. Operators of the whole installation are Django superusers and need no membership."""

    OWNER = "owner", "Owner"
    DEVELOPER = "developer", "Developer"
    FINANCE = "finance", "Finance"
    AUDITOR = "auditor", "Auditor"
