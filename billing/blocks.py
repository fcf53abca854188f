"""What is kept of the ledger beside its entries: the blocks that seal them, and what they come to.

`billing/models.py` shows them as its own; `billing/sql/sealing.sql` alone writes them.
"""

from django.db import models


class LedgerBlock(models.Model):
    """A link of the ledger's hash chain: the entries after the block before it, up to `last_id`. Never changed.

    `digest` is SHA-256 over these fields, the digest before and the entries, as `billing/sql/sealing.sql` writes them
    down; so a changed, added or missing entry, or block, is told by the first block that does not hold.
    """

    number = models.BigIntegerField(primary_key=True)  # from 1, without a gap
    last_id = models.BigIntegerField()
    entries = models.IntegerField()
    amount = models.DecimalField(max_digits=30, decimal_places=12)  # of the entries together
    previous = models.TextField(blank=True)  # the digest before; empty in the first
    digest = models.TextField()  # 64 hexadecimal digits
    sealed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class AccountDay(models.Model):
    """What the sealed entries of a day (UTC) come to on an account of an organization's: sums, and how many they are.

    A balance is a sum over days. `of_day` is the day that the entries belong to: another one when they came late, for a
    month that was closed. Made with each block in its transaction; made again from the entries, it is the same.
    """

    id = models.BigAutoField(primary_key=True)
    day = models.DateField()
    of_day = models.DateField()
    organization = models.UUIDField()
    account = models.TextField()
    debit = models.DecimalField(max_digits=36, decimal_places=12)
    credit = models.DecimalField(max_digits=36, decimal_places=12)
    debits = models.BigIntegerField()
    credits = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "account", "day", "of_day"], name="one_account_day"),
        ]
        indexes = [models.Index(fields=["day"], name="account_days_by_day")]  # sums of all organizations

    def __str__(self) -> str:
        return f"{self.account} on {self.day}"
