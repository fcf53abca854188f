"""Months that are closed, and what they came to.

`billing/models.py` shows them as its own; the console closes, `billing/sql/closing.sql` alone writes sums.
"""

from datetime import date, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy


class ClosedMonth(models.Model):
    """A month (UTC) to which nothing is posted any more; with it all before it. Nothing opens it again.

    What is settled later of its generations is dated by the first moment after the months that are closed, and notes
    the day that it is late for.
    """

    month = models.DateField(
        primary_key=True,
        help_text=gettext_lazy("Its first day. All months before it are closed as well, and nothing opens them again."),
    )
    closed_at = models.DateTimeField(db_default=Now(), editable=False)
    closed_by = models.TextField(editable=False)
    summed_at = models.DateTimeField(null=True, editable=False)  # by the worker, once nobody can still be posting to it

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(month__day=1), name="a_months_first_day")]

    def __str__(self) -> str:
        return f"{self.month:%Y-%m}"

    def clean(self) -> None:
        """Raises ValidationError when it is no month, not over yet, or closed already."""
        month: Any = self.month  # None where a form could not read it
        if month is None:
            return
        if month.day != 1:
            raise ValidationError({"month": _("Give the first day of the month.")})
        if month_after(month) > _today():
            raise ValidationError({"month": _("This month is not over yet.")})
        if ClosedMonth.objects.filter(month__gte=month).exists():
            raise ValidationError({"month": _("This month is closed already.")})


def _today() -> date:
    """The day (UTC) by the database's clock, which dates what is posted."""
    with connection.cursor() as cursor:
        cursor.execute("select (clock_timestamp() at time zone 'UTC')::date")
        found: date = cursor.fetchone()[0]
    return found


def month_after(month: date) -> date:
    """The first day of the next month."""
    return (month.replace(day=1) + timedelta(days=32)).replace(day=1)


class ClosedSum(models.Model):
    """What a closed month came to on an account of an organization's, when it was closed."""

    id = models.BigAutoField(primary_key=True)
    month = models.DateField()
    organization = models.UUIDField()
    account = models.TextField()
    debit = models.DecimalField(max_digits=36, decimal_places=12)
    credit = models.DecimalField(max_digits=36, decimal_places=12)
    debits = models.BigIntegerField()
    credits = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["month", "organization", "account"], name="one_closed_sum"),
        ]

    def __str__(self) -> str:
        return f"{self.account} in {self.month:%Y-%m}"
