"""Prepaid balances: what an organization was given to spend, what was taken back, and what is left of it.

`billing/models.py` shows them as its own; `billing/sql/credit.sql` alone writes them.
"""

from decimal import Decimal
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy

from accounts.models import Organization

LOW = Decimal(3)  # dollars
MOST_ALERTS = 10
BALANCE = "balance"  # the period of the counter that a balance is kept on


class CreditKind(models.TextChoices):
    """Why a balance moves. All but `top_up` and `adjustment` are given, and spent first."""

    TOP_UP = "top_up", gettext_lazy("Top-up")
    BONUS = "bonus", gettext_lazy("Bonus")
    GIFT = "gift", gettext_lazy("Gift")
    REFERRAL = "referral", gettext_lazy("Referral")
    COMPENSATION = "compensation", gettext_lazy("Compensation")
    ADJUSTMENT = "adjustment", gettext_lazy("Adjustment")
    EXPIRED = "expired", gettext_lazy("Expired")


GIVABLE = [kind for kind in CreditKind if kind != CreditKind.EXPIRED]
PAID = (CreditKind.TOP_UP, CreditKind.ADJUSTMENT)


def low() -> list[Decimal]:
    """Below which dollars an alert goes out, when nobody says otherwise."""
    return [LOW]


class Prepaid(models.Model):
    """An organization that spends what it was given before, and no more. Without a row it is postpaid.

    What is left is `granted` less what its counter (of the period `balance`) has used: what was spent since, and what
    was taken back or expired. So a balance falls under that counter's lock alone, which every hold takes, and
    `granted`, which a hold may have read a moment ago, only ever grows.

    A balance that ended has no row any more; its credits and its counter stay. One that begins again goes on with both:
    `carried` is what had been spent until then.
    """

    organization = models.OneToOneField(Organization, on_delete=models.PROTECT, primary_key=True, related_name="+")
    since = models.DateTimeField()
    granted = models.DecimalField(max_digits=24, decimal_places=12)
    granted_at = models.DateTimeField()
    used = models.DecimalField(max_digits=24, decimal_places=12)  # of the counter, when the lots were last brought up
    carried = models.DecimalField(max_digits=24, decimal_places=12, default=0, db_default=0)
    alerts = ArrayField(
        models.DecimalField(max_digits=12, decimal_places=2, validators=[MinValueValidator(0)]),
        size=MOST_ALERTS,
        default=low,
        db_default=low(),
        blank=True,
        help_text=gettext_lazy(
            "Dollars: when less is left the organization's recipients are told, once after each credit; 0: when "
            "nothing is left."
        ),
    )

    class Meta:
        verbose_name = gettext_lazy("balance")

    def __str__(self) -> str:
        return self.organization.slug


class Credit(models.Model):
    """One movement of a balance. Append-only; below 0 it takes.

    `expired` takes what was left of the credit `of`; above 0 it gives back what had been held before and was spent.
    `used_before` is what the counter said, so that what each credit paid for can be told again from these rows alone.
    """

    id = models.BigAutoField(primary_key=True)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    kind = models.CharField(max_length=12, choices=CreditKind.choices)
    amount = models.DecimalField(max_digits=24, decimal_places=12)
    expires_at = models.DateTimeField(null=True, blank=True)
    reference = models.CharField(max_length=200)
    note = models.CharField(max_length=200, blank=True)
    granted_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()
    used_before = models.DecimalField(max_digits=24, decimal_places=12)
    of = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "reference"], name="one_credit_a_reference"),
            models.CheckConstraint(
                condition=models.Q(kind__in=("adjustment", "expired")) | models.Q(amount__gt=0), name="credit_gives"
            ),
            models.CheckConstraint(condition=~models.Q(amount=0), name="credit_moves_something"),
            models.CheckConstraint(
                condition=models.Q(expires_at=None) | (models.Q(amount__gt=0) & ~models.Q(kind="expired")),
                name="what_expires_was_given",
            ),
            models.CheckConstraint(
                condition=models.Q(kind="expired", of__isnull=False) | (~models.Q(kind="expired") & models.Q(of=None)),
                name="expired_is_of_a_credit",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.reference}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Only the functions in `billing/sql/` write credits."""
        raise TypeError("credits are written by billing.credit.prepaid alone")


class Lot(models.Model):
    """What is left of a credit, as of `Prepaid.used`. Gone when nothing is."""

    credit = models.OneToOneField(Credit, on_delete=models.PROTECT, primary_key=True, related_name="+")
    organization = models.UUIDField()
    remaining = models.DecimalField(max_digits=24, decimal_places=12)

    class Meta:
        indexes = [models.Index(fields=["organization"], name="lot_by_organization")]
        constraints = [models.CheckConstraint(condition=models.Q(remaining__gte=0), name="remaining_not_negative")]

    def __str__(self) -> str:
        return f"{self.remaining} of {self.credit_id}"
