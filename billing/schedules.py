"""Exports on a schedule: what is written of which organization, how often and where to, and what became of each period.

`billing/models.py` shows them as its own; `gateway/storage` writes them.
"""

import uuid
from datetime import date, timedelta

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Organization, slug_validator
from accounts.sealing import open_sealed, seal
from billing.closings import month_after
from billing.retention import is_kept

# Segments that no file system, URL or signature writes in another way; none is of dots alone.
PREFIX = r"(?!\.+(?:/|\Z))[A-Za-z0-9._-]+(?:/(?!\.+(?:/|\Z))[A-Za-z0-9._-]+)*"


class Every(models.TextChoices):
    """How long a period is, UTC."""

    DAY = "day", gettext_lazy("Daily")
    MONTH = "month", gettext_lazy("Monthly")


class StorageKind(models.TextChoices):
    """What kind of place it goes to."""

    FOLDER = "folder", gettext_lazy("A folder below EXPORT_DIR")
    BUCKET = "bucket", gettext_lazy("A bucket (S3)")


class ExportLayout(models.TextChoices):
    """`billing.exports.pages.LAYOUTS`."""

    GENERATIONS = "generations", gettext_lazy("Generations")
    FOCUS_1_2 = "focus-1.2", gettext_lazy("FOCUS 1.2")
    FOCUS_1_4 = "focus-1.4", gettext_lazy("FOCUS 1.4")


class ExportFormat(models.TextChoices):
    """`billing.exports.pages.FORMATS`."""

    CSV = "csv", gettext_lazy("CSV")
    XLSX = "xlsx", gettext_lazy("XLSX")
    PARQUET = "parquet", gettext_lazy("Parquet")


def this_month() -> date:
    """The first day of the running month, UTC."""
    return timezone.now().date().replace(day=1)


class ExportSchedule(models.Model):
    """An export that is written for each period, from the one of `first` on, to one place.

    Only whether it is active and its secret are ever changed: of another one the files would not go on where these end.
    The secret is sealed for this row and the address that it is sent to.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[slug_validator],
        help_text=gettext_lazy("Of the schedule, and of the folder that its files are in."),
    )
    organization = models.ForeignKey(
        Organization,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text=gettext_lazy("Of this one alone, without what providers take. Empty: of all, with everything."),
    )
    layout = models.CharField(max_length=16, choices=ExportLayout.choices, default=ExportLayout.GENERATIONS)
    format = models.CharField(max_length=8, choices=ExportFormat.choices, default=ExportFormat.CSV)
    every = models.CharField(max_length=8, choices=Every.choices, default=Every.DAY)
    first = models.DateField("from", default=this_month, help_text=gettext_lazy("The first day (UTC) that is written."))
    kind = models.CharField("to", max_length=8, choices=StorageKind.choices, default=StorageKind.BUCKET)
    endpoint = models.CharField(
        max_length=300,
        blank=True,
        help_text=gettext_lazy("Of a bucket: https://s3.us-east-1.amazonaws.com, or what serves it."),
    )
    region = models.CharField(
        max_length=32,
        default="us-east-1",
        validators=[RegexValidator(r"\A[a-z0-9]+(-[a-z0-9]+)*\Z", gettext_lazy("Write it like us-east-1."))],
        help_text=gettext_lazy("Of a bucket: that its signatures are for."),
    )
    bucket = models.CharField(
        max_length=63,
        blank=True,
        validators=[
            RegexValidator(
                r"\A[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z",
                gettext_lazy("Lower-case letters, digits, dots and dashes, 3 to 63."),
            )
        ],
    )
    path_style = models.BooleanField(
        default=False, help_text=gettext_lazy("The bucket stands in the path, not in front of the host's name.")
    )
    prefix = models.CharField(
        max_length=200,
        blank=True,
        validators=[
            RegexValidator(
                rf"\A{PREFIX}\Z", gettext_lazy("Letters, digits, dots, dashes and underscores, slashes between.")
            )
        ],
        help_text=gettext_lazy("Folders before that of the name, slashes between them."),
    )
    sealed = models.TextField(blank=True, editable=False)
    hint = models.CharField(max_length=8, blank=True, editable=False)  # the end of the access key's id
    active = models.BooleanField(default=True, db_default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Raises ValidationError for what does not go together."""
        wrong: dict[str, str] = {}
        if self.every == Every.MONTH and self.first and self.first.day != 1:
            wrong["first"] = _("A month begins with its first day.")
        if self.first and self._state.adding and not is_kept(self.first):
            wrong["first"] = _("Not all usage from that day on is kept any more.")
        if self.kind == StorageKind.BUCKET:
            wrong |= {name: _("A bucket needs one.") for name in ("endpoint", "bucket") if not getattr(self, name)}
            if "." in self.bucket and not self.path_style:
                wrong["path_style"] = _("A bucket with a dot in its name stands in the path: no certificate is for it.")
        if wrong:
            raise ValidationError(wrong)

    def after(self, start: date) -> date:
        """The first day after the period that begins with `start`."""
        return month_after(start) if self.every == Every.MONTH else start + timedelta(days=1)

    def where(self) -> str:
        """Where it goes, as people read it."""
        folder = "/".join(filter(None, (self.prefix, self.name)))
        return f"{self.endpoint} {self.bucket}/{folder}" if self.kind == StorageKind.BUCKET else folder

    def place(self) -> str:
        """Where its secret lies: this row, and what it is sent to."""
        return f"billing.exportschedule:{self.id}:{self.endpoint}:{self.bucket}"

    def put(self, secret: str) -> None:
        """Seals `secret`; the caller saves."""
        self.sealed = seal(secret, self.place())

    def secret(self) -> str:
        """The secret. Raises `accounts.sealing.CannotOpen`."""
        return open_sealed(self.sealed, self.place())


class StoredExport(models.Model):
    """A period of a schedule: on its way, or stored under `name`, with `name`.json beside it.

    `ledger` is up to which entry of the ledger the files go: what was settled later is in the next one. `tries` counts
    those begun; `upload` is what the bucket calls one in parts that has not ended.
    """

    class State(models.TextChoices):
        """How far it is."""

        WAITING = "waiting", gettext_lazy("Waiting")
        STORED = "stored", gettext_lazy("Stored")

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(ExportSchedule, on_delete=models.PROTECT, related_name="periods")
    start = models.DateField()
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    tries = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    last_error = models.TextField(blank=True)
    upload = models.TextField(blank=True)
    name = models.TextField(blank=True)
    ledger = models.BigIntegerField(null=True)
    rows = models.BigIntegerField(null=True)
    late = models.BigIntegerField(null=True)  # generations of earlier periods among them
    bytes = models.BigIntegerField(null=True)
    sha256 = models.CharField(max_length=64, blank=True)
    stored_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = gettext_lazy("scheduled export")
        constraints = [models.UniqueConstraint(fields=["schedule", "start"], name="one_export_a_period")]

    def __str__(self) -> str:
        return f"{self.schedule.name} {self.start}"
