"""The audit log: every change of configuration, and every secret that was shown or tried, by whom and from where.

Triggers of the database write it (`accounts/sql/log.sql`), whoever changes a row and by whatever way; no role that
serves can. Blocks of a hash chain seal it, so a changed, added or missing event is told by the first block that does
not hold.
`accounts/models.py` shows both as its own.
"""

from typing import Any
from uuid import UUID

from django.db import connection, models
from django.utils.translation import gettext_lazy

MOST_EVENTS = 1000  # a block
PATIENCE = 200  # hundredths of a second


class Action(models.TextChoices):
    """What was done."""

    ADD = "add", gettext_lazy("Added")
    CHANGE = "change", gettext_lazy("Changed")
    DELETE = "delete", gettext_lazy("Deleted")
    REVEAL = "reveal", gettext_lazy("Secret shown")
    EXPORT = "export", gettext_lazy("File left")
    TEST = "test", gettext_lazy("Tried out")


class AuditEvent(models.Model):
    """One thing that was done. `before` and `after` are of a change the columns that changed, by name, else the row;
    secrets in them are masked. `actor`: who had logged in; NULL for the product's own commands and processes.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField()
    actor = models.BigIntegerField(null=True)
    actor_name = models.TextField()  # as they were called then; of a command the database's role
    address = models.TextField(blank=True)
    action = models.CharField(max_length=8, choices=Action.choices)
    table = models.TextField()
    row = models.TextField()  # its primary key
    organization = models.UUIDField(null=True)
    before = models.JSONField(null=True)
    after = models.JSONField(null=True)
    note = models.TextField(blank=True)

    class Meta:
        verbose_name = gettext_lazy("event")
        verbose_name_plural = gettext_lazy("audit log")
        indexes = [
            models.Index(fields=["organization", "-id"], name="events_of_an_organization"),
            models.Index(fields=["table", "row", "-id"], name="events_of_a_row"),
            models.Index(fields=["row", "-id"], name="events_by_row"),  # the page's search, of any table
            models.Index(fields=["actor_name", "-id"], name="events_by_actor"),
        ]

    def __str__(self) -> str:
        return f"{self.id}: {self.action} {self.table} {self.row}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Only the database's functions write the log."""
        raise TypeError("events are written by the database's triggers")


class AuditBlock(models.Model):
    """A link of the log's hash chain: the events after the block before it, up to `last_id`. Never changed."""

    number = models.BigIntegerField(primary_key=True)  # from 1, without a gap
    last_id = models.BigIntegerField()
    events = models.IntegerField()
    previous = models.TextField(blank=True)  # the digest before; empty in the first
    digest = models.TextField()  # 64 hexadecimal digits
    sealed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


def log(action: Action, row: models.Model | type[models.Model], organization: UUID | None, note: str = "") -> None:
    """Logs what changes no row: REVEAL, EXPORT, TEST; of a row or of a whole table; in the transaction that is open."""
    key = str(row.pk) if isinstance(row, models.Model) else ""
    with connection.cursor() as cursor:
        cursor.execute("select accounts_log(%s, %s, %s, %s, %s)", [action, row._meta.db_table, key, organization, note])


def seal_log() -> int:
    """Seals all events that nobody can add to any more; how many blocks that made. 0 while another seals."""
    with connection.cursor() as cursor:
        cursor.execute("select accounts_seal_log(%s, %s)", [MOST_EVENTS, PATIENCE])
        return int(cursor.fetchone()[0])


def wrong_blocks(first: int, last: int) -> list[int]:
    """The numbers of the log's blocks from `first` to `last` that do not hold, in order."""
    with connection.cursor() as cursor:
        cursor.execute("select * from accounts_wrong_log_blocks(%s, %s)", [first, last])
        return [number for (number,) in cursor.fetchall()]
