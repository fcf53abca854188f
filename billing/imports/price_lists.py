"""Price lists that were fetched from an address: what each would change, and what somebody said to that.

`billing/models.py` shows them as its own; `routing/starter` fetches, compares and imports them.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy


class PriceList(models.Model):
    """A list from `url`, and the difference to the catalog as it was then. Nothing changes until it is imported.

    `vendors` are slugs, a comma between them. `lines` are the difference as `manage.py import_catalog` shows it;
    imported is what they say, or nothing. `content` is the list as it was sent, until somebody has decided.
    """

    class State(models.TextChoices):
        """How far it is."""

        WAITING = "waiting", gettext_lazy("Waiting for a worker")
        FETCHING = "fetching", gettext_lazy("Being fetched")
        FETCHED = "fetched", gettext_lazy("To be looked at")
        SAME = "same", gettext_lazy("No difference")
        FAILED = "failed", gettext_lazy("Failed: nothing was changed")
        IMPORTED = "imported", gettext_lazy("Imported")
        DECLINED = "declined", gettext_lazy("Declined: nothing was changed")

    url = models.CharField(max_length=300)
    vendors = models.TextField(blank=True)
    asked_by = models.CharField(max_length=150, blank=True)  # nobody: it was due
    asked_at = models.DateTimeField(db_default=Now())
    began_at = models.DateTimeField(null=True)  # when a worker did
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    error = models.CharField(max_length=300, blank=True)
    fetched_at = models.DateTimeField(null=True)
    sha256 = models.CharField(max_length=64, blank=True)
    bytes = models.BigIntegerField(null=True)
    content = models.BinaryField(null=True)
    lines = models.JSONField(default=list)
    held = models.IntegerField(default=0)  # of the lines: what a second person has to approve after that
    decided_by = models.CharField(max_length=150, blank=True)
    decided_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return _("Price list %(pk)s") % {"pk": self.pk}
