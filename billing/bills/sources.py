"""Where a provider's bill is fetched from, with which secret, and how far a fetch of some days is.

`billing/models.py` shows them as its own; `routing/bills` fetches.
"""

import uuid
from datetime import date
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.sealing import open_sealed, seal
from billing.bills.files import MOST_DAYS, Form
from billing.bills.reconciliations import Reconciliation
from billing.retention import KeptTable, is_kept


class BillForm(models.TextChoices):
    """Whose API it is."""

    OPENAI = Form.OPENAI.value, gettext_lazy("OpenAI: usage and costs")
    ANTHROPIC = Form.ANTHROPIC.value, gettext_lazy("Anthropic: usage and cost report")


class BillSource(models.Model):
    """A vendor's account whose bill is compared with what the books have of `provider` (a slug).

    The secret is that of an administrator of the account and no credential of a provider: nothing is asked for answers
    with it. It is sealed for this row and the address that it is sent to, neither of which is ever changed.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    provider = models.CharField(max_length=64, unique=True)
    form = models.CharField(max_length=16, choices=BillForm.choices, default=BillForm.OPENAI)
    endpoint = models.CharField(max_length=300, help_text=gettext_lazy("Such as https://api.openai.com/v1."))
    sealed = models.TextField(blank=True, editable=False)
    hint = models.CharField(max_length=8, blank=True, editable=False)  # the last four characters

    def __str__(self) -> str:
        return self.provider

    def place(self) -> str:
        """Where its secret lies: this row, and the address it may be sent to."""
        return f"billing.billsource:{self.id}:{self.endpoint}"

    def put(self, secret: str) -> None:
        """Seals `secret`; the caller saves."""
        self.sealed = seal(secret, self.place())

    def secret(self) -> str:
        """The secret. Raises `accounts.sealing.CannotOpen`."""
        return open_sealed(self.sealed, self.place())


class BillFetch(models.Model):
    """The bill of some days (UTC, both inclusive): fetched page by page, then compared as an uploaded one is.

    It may be stopped after any page, and goes on after the last one that was kept. `run` tells which worker has it: one
    that was believed lost keeps nothing any more. `by_key`: the vendor is asked for the sums of each of its keys, too.
    """

    class State(models.TextChoices):
        """How far it is."""

        WAITING = "waiting", gettext_lazy("Waiting for a worker")
        RUNNING = "running", gettext_lazy("Running")
        STOPPED = "stopped", gettext_lazy("Stopped")
        FAILED = "failed", gettext_lazy("Failed")
        DONE = "done", gettext_lazy("Compared")

    source = models.ForeignKey(BillSource, on_delete=models.CASCADE, related_name="fetches")
    first = models.DateField("from")
    last = models.DateField("to")
    asked_by = models.CharField(max_length=150, editable=False)
    asked_at = models.DateTimeField(db_default=Now(), editable=False)
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING, editable=False)
    stop = models.BooleanField(default=False, editable=False)
    run = models.IntegerField(default=0, editable=False)
    by_key = models.BooleanField(default=False, db_default=False, editable=False)
    moved_at = models.DateTimeField(null=True, editable=False)  # when it was begun, or last kept a page
    error = models.CharField(max_length=300, blank=True, editable=False)
    made = models.ForeignKey(Reconciliation, on_delete=models.SET_NULL, null=True, related_name="+", editable=False)

    class Meta:
        verbose_name_plural = gettext_lazy("bill fetches")

    def __str__(self) -> str:
        return _("%(source)s, %(first)s to %(last)s") % {"source": self.source, "first": self.first, "last": self.last}

    def clean(self) -> None:
        """Raises ValidationError for no days, too many, days that are not over, and days that are not kept."""
        if not (self.first and self.last):
            return
        today: date = timezone.now().date()
        if self.last < self.first:
            raise ValidationError({"last": _("It ends before it begins.")})
        if (self.last - self.first).days >= MOST_DAYS:
            raise ValidationError({"last": _("At most %(most)s days.") % {"most": MOST_DAYS}})
        if self.last >= today:
            raise ValidationError({"last": _("This day is not over yet.")})
        if not (is_kept(self.first) and is_kept(self.first, KeptTable.ATTEMPT)):
            raise ValidationError({"first": _("Not all usage and attempts of these days are kept any more.")})


class BillPage(models.Model):
    """A page of an answer, as it was sent: the `number`th (from 0) of a part. `next` asks for the one after it."""

    class Part(models.TextChoices):
        """One of the two files of a vendor's bill."""

        USAGE = "usage", gettext_lazy("Usage")
        COST = "cost", gettext_lazy("Cost")

    fetch = models.ForeignKey(BillFetch, on_delete=models.CASCADE, related_name="pages")
    part = models.CharField(max_length=8, choices=Part.choices)
    number = models.IntegerField()
    content = models.BinaryField()
    next = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["fetch", "part", "number"], name="one_page_a_number")]

    def __str__(self) -> str:
        return f"{self.part} {self.number}"


def file_of(fetch: Any, part: BillPage.Part) -> tuple[str, bytes]:
    """A part of a bill as a file of all its pages, which reads as an uploaded one: its name and bytes."""
    pages = fetch.pages.filter(part=part).order_by("number").values_list("content", flat=True)
    name = f"{fetch.source.provider}-{part}-{fetch.first}-{fetch.last}.json"
    return name, b"[" + b",\n".join(bytes(page) for page in pages) + b"]"
