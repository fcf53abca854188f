"""Sets of changes: who drafted, approved and applied them. What is written to which row stands in each change."""

from django.conf import settings
from django.db import models
from django.utils.translation import gettext_lazy as _

MOST_CHANGES = 100  # of a set
MOST_BYTES = 64 * 1024  # of what a change keeps of a form


class Kind(models.TextChoices):
    """What is changed. The words may stand in SECOND_PERSON."""

    PRICE = "price", _("Price")
    BUDGET = "budget", _("Budget")
    LIMIT = "limit", _("Limit")
    POLICY = "policy", _("Policy")


class Verb(models.TextChoices):
    """What is done to it."""

    ADD = "add", _("Add")
    CHANGE = "change", _("Change")
    DELETE = "delete", _("Delete")


class ChangeSet(models.Model):
    """Changes that are applied together, in one transaction, or not at all. People are named as `PriceProposal` does.

    A set that takes back another one is a set like it: once it is applied, that one is `rolled_back`.
    """

    class State(models.TextChoices):
        """How far it is."""

        DRAFT = "draft", _("Draft")
        APPROVED = "approved", _("Approved")
        APPLIED = "applied", _("Applied")
        ROLLED_BACK = "rolled", _("Rolled back")
        GIVEN_UP = "given_up", _("Given up")

    title = models.CharField(max_length=200)
    second_person = models.BooleanField(
        _("needs a second person"),
        default=False,
        help_text=_(
            "Somebody else than who drafted it has to approve it. The setting SECOND_PERSON has it so for kinds."
        ),
    )
    state = models.CharField(max_length=8, choices=State.choices, default=State.DRAFT)
    drafted_by = models.CharField(max_length=150)
    drafted_at = models.DateTimeField(auto_now_add=True)
    approved_by = models.CharField(max_length=150, blank=True)
    approved_at = models.DateTimeField(null=True)
    applied_by = models.CharField(max_length=150, blank=True)
    applied_at = models.DateTimeField(null=True)
    takes_back = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="taken_back_by")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["takes_back"], condition=~models.Q(state="given_up"), name="taken_back_once"
            )
        ]
        indexes = [models.Index(fields=["drafted_by", "state"], name="drafts_of_somebody")]

    def __str__(self) -> str:
        return self.title

    @property
    def needs_second_person(self) -> bool:
        """Whether somebody else has to approve it: its own word, or the setting's for one of its kinds."""
        kinds = set(self.changes.values_list("kind", flat=True))
        return self.second_person or not kinds.isdisjoint(settings.SECOND_PERSON)

    @property
    def may_be_applied(self) -> bool:
        """Whether nothing but somebody's wish is missing."""
        if self.needs_second_person:
            return self.state == self.State.APPROVED and self.approved_by not in ("", self.drafted_by)
        return self.state in (self.State.DRAFT, self.State.APPROVED)


class Change(models.Model):
    """One row, as the console's own form has it: `before` what that was filled with, `after` what it is sent as, each a
    list of texts by the name of its field. `row` is the row's key; of one to be added, empty until it is applied.
    """

    set = models.ForeignKey(ChangeSet, on_delete=models.CASCADE, related_name="changes")
    kind = models.CharField(max_length=8, choices=Kind.choices)
    verb = models.CharField(max_length=8, choices=Verb.choices)
    row = models.CharField(max_length=64, blank=True)
    subject = models.CharField(max_length=300)  # which row, in words
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"{self.get_verb_display()} {self.get_kind_display().lower()}: {self.subject}"
