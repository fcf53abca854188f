"""What rested and when: how the gateway processes share it, and the history that the console shows."""

import uuid

from django.db import models
from django.utils.translation import gettext_lazy

from accounts.models import Organization
from routing.models.model import Offer
from routing.models.provider import Credential


class ClosedBy(models.TextChoices):
    """Who ended a rest."""

    PROCESS = "process", gettext_lazy("A call that succeeded")
    OPERATOR = "operator", gettext_lazy("An operator")


class Ejection(models.Model):
    """An offer, a credential wherever it is used, or the one with the other, that rests or rested: for all, or for the
    organization whose requests alone have failed.

    One row from the failure that opened it to the call that succeeded: a probe that failed moves `until` and raises
    `count`. Written by the gateway processes; they hear of each other's by the changes of this table.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    offer = models.ForeignKey(Offer, on_delete=models.CASCADE, null=True, related_name="ejections")
    credential = models.ForeignKey(Credential, on_delete=models.CASCADE, null=True, related_name="ejections")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, null=True, related_name="+")
    cause = models.CharField(max_length=32, help_text=gettext_lazy("The fault that opened it, or the last probe's."))
    opened_at = models.DateTimeField()
    until = models.DateTimeField(help_text=gettext_lazy("Then one request probes it."))
    count = models.PositiveIntegerField(help_text=gettext_lazy("Rests in a row."))
    probed_until = models.DateTimeField(null=True, help_text=gettext_lazy("A probe is out."))
    probed_by = models.UUIDField(null=True)  # a process
    closed_at = models.DateTimeField(null=True)
    closed_by = models.CharField(max_length=8, choices=ClosedBy.choices, blank=True, default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="ejection_subject", condition=models.Q(offer__isnull=False) | models.Q(credential__isnull=False)
            ),
            # What two processes find out at once is one ejection.
            models.UniqueConstraint(
                fields=["offer", "credential"],
                condition=models.Q(closed_at=None),
                nulls_distinct=False,
                name="one_open_ejection",
            ),
        ]
        indexes = [
            models.Index(fields=["opened_at"], name="ejection_by_time"),  # the history, and its pruning
        ]

    def __str__(self) -> str:
        subject = " with ".join(str(part) for part in (self.offer, self.credential) if part is not None)
        return f"{subject}: {self.cause}"
