"""How long usage and attempts are kept, and which of their months were dropped.

`billing/models.py` shows them as its own; `billing/dropping.py` and `billing/sql/retention.sql` drop.
"""

from datetime import UTC, date, datetime, time, timedelta

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models.functions import Now
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy

LEAST = 3  # months: beyond what rollups are made of, and what a window of a budget begins with


class KeptTable(models.TextChoices):
    """What is dropped by the month."""

    USAGE = "usage", gettext_lazy("Generations")
    ATTEMPT = "attempt", gettext_lazy("Attempts")


class Retention(models.Model):
    """How many whole months (UTC) of a table are kept, beside the running one; NULL: all."""

    table = models.CharField(primary_key=True, max_length=8, choices=KeptTable.choices, editable=False)
    months = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(LEAST)],
        help_text=format_lazy(
            gettext_lazy(
                "{least} at least, beside the running one; older ones that are closed are dropped. Empty: all stay."
            ),
            least=LEAST,
        ),
    )

    class Meta:
        verbose_name_plural = gettext_lazy("retention")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(months__isnull=True) | models.Q(months__gte=LEAST), name="kept_long_enough"
            )
        ]

    def __str__(self) -> str:
        return str(self.get_table_display())


class DroppedMonth(models.Model):
    """A month whose rows are gone: how many they were, and of usage what they came to. Its rollups stay."""

    id = models.BigAutoField(primary_key=True)
    table = models.CharField(max_length=8, choices=KeptTable.choices)
    month = models.DateField()
    rows = models.BigIntegerField()
    charge = models.DecimalField(max_digits=36, decimal_places=12, null=True)
    provider_cost = models.DecimalField(max_digits=36, decimal_places=12, null=True)
    dropped_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(fields=["table", "month"], name="one_dropped_month")]

    def __str__(self) -> str:
        return f"{self.get_table_display()} of {self.month:%Y-%m}"


def kept_since(table: str = KeptTable.USAGE) -> datetime | None:
    """The first moment whose rows are all there; None: nothing was dropped."""
    last: date | None = DroppedMonth.objects.filter(table=table).aggregate(last=models.Max("month"))["last"]
    return None if last is None else first_kept(last)


def first_kept(last: date) -> datetime:
    """The first moment that is kept where `last` is the last month that was dropped."""
    return datetime.combine((last + timedelta(days=32)).replace(day=1), time(), UTC)


def is_kept(first: date, table: str = KeptTable.USAGE) -> bool:
    """Whether all rows of the day (UTC) and those after it are there."""
    since = kept_since(table)
    return since is None or first >= since.date()
