"""Prices that an import found hard to believe: held until a second person has looked at them.

`billing/models.py` shows them as its own; `routing/starter` makes them, the console decides.
"""

from collections.abc import Mapping
from decimal import Decimal

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

BELIEVED = 3  # times: vendors halve and double prices; a comma in the wrong place is a factor of ten

Sizes = Mapping[tuple[str, int], Decimal]  # dollars by item and size of prompt (`Rate.above`)


class Decision(models.TextChoices):
    """What somebody said to a proposal."""

    APPROVED = "approved", gettext_lazy("Approved: the prices apply")
    DECLINED = "declined", gettext_lazy("Declined: nothing changes")


class PriceProposal(models.Model):
    """A tariff's version that is not one yet. Approved, it begins at `effective_from` (UTC) or, if that is over, then.

    `rates` are lists of item, size, cost and charge, the last two as text. Who proposed it cannot approve it.
    """

    tariff = models.ForeignKey("billing.Tariff", on_delete=models.CASCADE, related_name="proposals", editable=False)
    effective_from = models.DateTimeField(editable=False)
    rates = models.JSONField(editable=False)
    reason = models.TextField(editable=False)
    note = models.CharField(max_length=200, blank=True, editable=False)
    proposed_by = models.TextField(editable=False)
    proposed_at = models.DateTimeField(db_default=Now(), editable=False)
    decision = models.CharField(max_length=8, choices=Decision.choices, blank=True)
    decided_by = models.TextField(blank=True, editable=False)
    decided_at = models.DateTimeField(null=True, editable=False)

    def __str__(self) -> str:
        return _("%(slug)s from %(effective_from)s") % {
            "slug": self.tariff.slug,
            "effective_from": f"{self.effective_from:%Y-%m-%d %H:%M}",
        }


def leaps(before: Sizes, after: Sizes) -> list[str]:
    """What of a price change is hard to believe, in words; empty when all of it may well be.

    A rate that grows or falls by more than `BELIEVED` times, or that begins or ceases to be nothing.
    """
    found = []
    for which in sorted(before.keys() & after.keys()):
        old, new = before[which], after[which]
        if (old == 0) != (new == 0) or new > old * BELIEVED or old > new * BELIEVED:
            found.append(f"{rate_name(*which)} {old.normalize():f} -> {new.normalize():f}")
    return found


def rate_name(item: str, above: int, service: str = "") -> str:
    """How a difference or a list names a rate: by its item, and by size of prompt and class of service where they
    count.
    """
    named = f"{item}, {service}" if service else item
    return f"{named} (above {above})" if above else named
