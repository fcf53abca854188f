"""A provider's bill beside our books: what was compared, and what came of it.

`billing/models.py` shows them as its own; `billing/bills/reconciling.py` writes them.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext as _


class Reconciliation(models.Model):
    """A bill of a provider's that was compared: `gap` = bill - books = missing calls + token drift + price drift."""

    provider = models.CharField(max_length=200)
    form = models.CharField(max_length=16)
    files = models.TextField()  # names and SHA-256, a line each
    first = models.DateField()  # days (UTC), both inclusive
    last = models.DateField()
    made_at = models.DateTimeField(db_default=Now())
    made_by = models.CharField(max_length=150)
    billed = models.DecimalField(max_digits=30, decimal_places=12)
    booked = models.DecimalField(max_digits=30, decimal_places=12)
    missing = models.DecimalField(max_digits=30, decimal_places=12)
    tokens = models.DecimalField(max_digits=30, decimal_places=12)
    price = models.DecimalField(max_digits=30, decimal_places=12)

    def __str__(self) -> str:
        return _("%(provider)s, %(first)s to %(last)s") % {
            "provider": self.provider,
            "first": self.first,
            "last": self.last,
        }


class ReconciliationLine(models.Model):
    """One day x model x credential of it. Calls are NULL where the bill does not count them; tokens are all of them."""

    id = models.BigAutoField(primary_key=True)
    reconciliation = models.ForeignKey(Reconciliation, on_delete=models.CASCADE, related_name="lines")
    day = models.DateField()
    model = models.TextField()
    credential = models.TextField(blank=True)
    billed_calls = models.BigIntegerField(null=True)
    booked_calls = models.BigIntegerField()
    billed_tokens = models.BigIntegerField()
    booked_tokens = models.BigIntegerField()
    billed = models.DecimalField(max_digits=30, decimal_places=12)
    booked = models.DecimalField(max_digits=30, decimal_places=12)
    missing = models.DecimalField(max_digits=30, decimal_places=12)
    tokens = models.DecimalField(max_digits=30, decimal_places=12)
    price = models.DecimalField(max_digits=30, decimal_places=12)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["reconciliation", "day", "model", "credential"], name="one_reconciliation_line"
            )
        ]

    def __str__(self) -> str:
        return f"{self.day} {self.model} {self.credential}".rstrip()
