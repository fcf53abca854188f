"""Usage priced anew, by another version of its tariff or by what its provider claimed: the runs, what they come to, and
what was said of claims.

`billing/models.py` shows them as its own; `billing/repricing.py` counts, `billing/sql/repricing.sql` alone posts.
"""

from datetime import timedelta
from decimal import Decimal

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.retention import is_kept


class Repricing(models.Model):
    """What the usage of some days (UTC) that any version of a tariff priced would cost by `version`.

    Counted first, in pages, by whoever finds it; then applied as a whole or not at all. `after` and `digest` are how
    far the count is: the last row, and SHA-256 over all that went into it. One of a `generation` is what its provider's
    claim comes to, and stands whatever its tariff's other runs come to.
    """

    class State(models.TextChoices):
        """How far it is."""

        COUNTING = "counting", gettext_lazy("Being counted")
        COUNTED = "counted", gettext_lazy("Counted")
        APPLIED = "applied", gettext_lazy("Applied")

    version = models.ForeignKey("billing.TariffVersion", on_delete=models.PROTECT, related_name="+")
    first = models.DateField("from")
    until = models.DateField(help_text=gettext_lazy("The first day that is not in it any more."))
    asked_by = models.CharField(max_length=150, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.COUNTING, editable=False)
    stop = models.BooleanField(default=False, editable=False)
    total = models.BigIntegerField(default=0, editable=False)
    done = models.BigIntegerField(default=0, editable=False)
    after = models.UUIDField(null=True, editable=False)
    digest = models.CharField(max_length=64, blank=True, editable=False)
    looks = models.PositiveIntegerField(
        default=1, editable=False
    )  # more: its rows had changed when it was to be applied
    applied_at = models.DateTimeField(null=True, editable=False)
    applied_by = models.CharField(max_length=150, blank=True, editable=False)
    generation = models.UUIDField(null=True, editable=False)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=models.Q(first__lt=models.F("until")), name="repricing_has_days"),
        ]

    def __str__(self) -> str:
        return _("%(version)s, usage of %(first)s to %(until)s") % {
            "version": self.version,
            "first": self.first,
            "until": self.until,
        }

    def clean(self) -> None:
        """Raises ValidationError for no days, days to come or not kept, and rates that may still be changed."""
        if self.first and self.until:
            if self.first >= self.until:
                raise ValidationError({"until": _("It ends before it begins.")})
            if not is_kept(self.first):
                raise ValidationError({"first": _("Not all usage of these days is kept any more.")})
            if self.until > timezone.now().date() + timedelta(days=1):
                raise ValidationError({"until": _("These days have not begun yet.")})
        if self.version_id and self.version.effective_from > timezone.now():
            raise ValidationError({"version": _("This version is not in force yet: its rates may still be changed.")})


class RepricingSum(models.Model):
    """What a run comes to for an organization and a day (UTC) of usage.

    `*_before` is what the usage rows say, `*_after` what they come to by the version, `*_prior` what earlier runs of
    the same tariff have already posted for that day. What is posted is after - before - prior.
    """

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Repricing, on_delete=models.PROTECT, related_name="sums")
    organization = models.UUIDField()
    day = models.DateField()
    rows = models.BigIntegerField(default=0)
    left = models.BigIntegerField(default=0)  # rows that stay as they are, see `billing.repricing`
    charge_before = models.DecimalField(max_digits=30, decimal_places=12, default=0)
    charge_after = models.DecimalField(max_digits=30, decimal_places=12, default=0)
    charge_prior = models.DecimalField(max_digits=30, decimal_places=12, default=0)
    cost_before = models.DecimalField(max_digits=30, decimal_places=12, default=0)
    cost_after = models.DecimalField(max_digits=30, decimal_places=12, default=0)
    cost_prior = models.DecimalField(max_digits=30, decimal_places=12, default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "organization", "day"], name="one_repricing_sum_a_day")]
        indexes = [models.Index(fields=["organization", "day"], name="repricing_sum_by_day")]  # what is posted already

    def __str__(self) -> str:
        return f"{self.organization} on {self.day}: {self.charge_change:+}"

    @property
    def charge_change(self) -> Decimal:
        """What the tenant owes more."""
        return self.charge_after - self.charge_before - self.charge_prior

    @property
    def cost_change(self) -> Decimal:
        """What the provider takes more."""
        return self.cost_after - self.cost_before - self.cost_prior


class Judgement(models.Model):
    """What somebody said to a claim of a provider's that was not believed, once. `claimed` is the claim as it was then.

    Accepted, it was posted by a run of its own, if it comes to anything else than what was charged. Written by
    `billing/sql/quarantine.sql` alone.
    """

    class Decision(models.TextChoices):
        """What."""

        ACCEPTED = "accepted", gettext_lazy("Accepted: the difference is posted")
        DISMISSED = "dismissed", gettext_lazy("Dismissed: it stays as it was charged")

    generation = models.UUIDField(primary_key=True)
    organization = models.UUIDField()
    decision = models.CharField(max_length=9, choices=Decision.choices)
    claimed = models.JSONField()
    charge_change = models.DecimalField(max_digits=24, decimal_places=12)
    cost_change = models.DecimalField(max_digits=24, decimal_places=12)
    decided_by = models.CharField(max_length=150)
    decided_at = models.DateTimeField()
    run = models.ForeignKey(Repricing, on_delete=models.PROTECT, null=True, related_name="+")

    def __str__(self) -> str:
        return f"{self.generation.hex}: {self.decision}"
