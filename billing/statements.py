"""Statements: what an organization owes for a closed month, and credit notes that take of it; numbered, and for good.

`billing/sql/statements.sql` gives the numbers, holds the sums to the ledger's, and lets nothing be changed.
"""

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy


class DocumentKind(models.TextChoices):
    """What a document is."""

    STATEMENT = "statement", gettext_lazy("Statement")
    CREDIT = "credit", gettext_lazy("Credit note")


class Statement(models.Model):
    """A numbered document. A statement's total is what its month was closed at for its organization, to the last digit;
    a credit note's is below 0, refers to a statement, and takes no more than that has left.

    `lines` are of a statement `{model, provider, requests, prompt_tokens, completion_tokens, charge}`, and `images`,
    `seconds` and `web_searches` where there were any, or `{note, charge}` for what is not of the month's usage, and add
    up to the total. Year, number and moment are the database's.
    """

    id = models.BigAutoField(primary_key=True)
    issuer = models.TextField()
    year = models.IntegerField(default=0)
    number = models.IntegerField(default=0)
    kind = models.CharField(max_length=9, choices=DocumentKind.choices)
    refers_to = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="credits")
    organization = models.UUIDField()
    slug = models.TextField()  # the organization's, and its name, as they were then
    name = models.TextField()
    month = models.DateField()
    currency = models.CharField(max_length=3, default="USD")
    total = models.DecimalField(max_digits=36, decimal_places=12)
    lines = models.JSONField(default=list)
    reason = models.TextField(blank=True)
    issued_at = models.DateTimeField(db_default=Now())
    issued_by = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["issuer", "year", "number"], name="one_document_a_number"),
            models.UniqueConstraint(
                fields=["organization", "month"], condition=models.Q(kind="statement"), name="one_statement_a_month"
            ),
            models.CheckConstraint(
                condition=models.Q(kind="statement", refers_to=None) | models.Q(kind="credit", refers_to__isnull=False),
                name="credit_refers_to_a_statement",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.year}-{self.number:05}"
