"""What the auditor has found wrong in the books, and what it remembers from one run to the next.

`billing/models.py` shows them as its own; `billing/auditing.py` writes them.
"""

from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy


class FindingKind(models.TextChoices):
    """What does not agree with what."""

    GENERATION = "generation", gettext_lazy("A generation and its postings")
    BLOCK = "block", gettext_lazy("A block and the ledger")
    TOUCHED = "touched", gettext_lazy("Rows that only ever grow were changed")
    BALANCES = "balances", gettext_lazy("Balances and blocks")
    CLOSED = "closed", gettext_lazy("A closed month and what it was")
    ROLLUP = "rollup", gettext_lazy("A rollup and what it is made of")
    REPRICING = "repricing", gettext_lazy("Re-pricing and its postings")
    PREPAID = "prepaid", gettext_lazy("A balance and its credits")
    SEALING = "sealing", gettext_lazy("Entries are not sealed")


class AuditFinding(models.Model):
    """Something that does not agree, since `first_seen`; and, once it does again, until `gone_at`."""

    id = models.BigAutoField(primary_key=True)
    kind = models.CharField(max_length=16, choices=FindingKind.choices)
    place = models.TextField()
    expected = models.TextField()
    found = models.TextField()
    first_seen = models.DateTimeField()
    gone_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "place"], condition=models.Q(gone_at=None), name="one_open_finding_a_place"
            )
        ]

    def __str__(self) -> str:
        return _("%(place)s: %(found)s instead of %(expected)s") % {
            "place": self.place,
            "found": self.found,
            "expected": self.expected,
        }


class AuditState(models.Model):
    """One row: when the auditor ended last, what the tables' counters said then, and how far its rounds have come."""

    id = models.SmallIntegerField(primary_key=True)
    ended_at = models.DateTimeField()
    state = models.JSONField()

    def __str__(self) -> str:
        return f"audited at {self.ended_at:%Y-%m-%d %H:%M:%S}"
