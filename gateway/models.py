"""What the API keeps of its own: files that clients upload, payloads, how often keys read the books, and what was
refused.
"""

from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.models import Project
from gateway.changes.models import Change as Change
from gateway.changes.models import ChangeSet as ChangeSet


class StoredFile(models.Model):
    """An uploaded file. Times are UTC; past `expires_at` (exclusive) it is gone, whether or not its row is yet.

    The API reads and writes these rows in SQL (`gateway/files/store.py`), never through here. The console may not read
    `content`: every query of its pages defers it.
    """

    id = models.UUIDField(primary_key=True, editable=False)  # UUIDv7, so a list by id is a list by time
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="files", db_index=False)
    key = models.UUIDField()  # that uploaded it; the row outlives the key
    filename = models.CharField(max_length=255)
    purpose = models.CharField(max_length=32)
    media_type = models.CharField(max_length=127)
    bytes = models.PositiveBigIntegerField(help_text=_("Of the content as it was uploaded."))
    content = models.BinaryField()  # `accounts.sealing.seal_bytes`, for `files.place`
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = _("file")
        indexes = [
            models.Index(fields=["project", "id"], name="files_of_a_project"),  # the API's list, and the room left
            models.Index(fields=["expires_at"], name="files_by_their_end"),  # the pruning task
        ]

    def __str__(self) -> str:
        return f"file-{self.id.hex} ({self.filename})"


class Payload(models.Model):
    """What was asked and answered in one generation, of a project that has it kept. Times are UTC.

    Written by `gateway/process/payloads.py`, deleted by `gateway.purge_payloads`. No role that serves may read what is
    in it but through `gateway_reveal_payload` (`gateway/sql/payloads.sql`): every query of the console defers it.
    """

    id = models.UUIDField(primary_key=True)  # the generation's
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    created_at = models.DateTimeField()
    prompt_bytes = models.BigIntegerField("prompt", help_text=_("As it was sent, in bytes."))
    answer_bytes = models.BigIntegerField("answer", help_text=_("As it went out, in bytes."))
    prompt = models.BinaryField()  # `accounts.sealing.seal_bytes` of what zlib has packed, for `payloads.place`
    answer = models.BinaryField()

    class Meta:
        verbose_name = _("kept payload")
        indexes = [
            models.Index(fields=["project", "created_at"], name="payloads_of_a_project"),  # the purging task
            models.Index(fields=["organization", "-id"], name="payloads_by_organization"),  # the console's list
        ]

    def __str__(self) -> str:
        return self.id.hex


class PayloadDay(models.Model):
    """How many bytes of payloads were kept for an organization on a `day` (UTC)."""

    pk = models.CompositePrimaryKey("organization", "day")
    organization = models.UUIDField()
    day = models.DateField()
    bytes = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.organization} {self.day}: {self.bytes}"


class ReadCount(models.Model):
    """How often a key read an endpoint in its latest `minute` (UTC, where it begins).

    See `gateway/endpoints/read_limit.py`.
    """

    pk = models.CompositePrimaryKey("key", "endpoint")
    key = models.UUIDField()
    endpoint = models.CharField(max_length=32)
    minute = models.DateTimeField()
    reads = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.key} {self.endpoint}: {self.reads}"


class FilesWritten(models.Model):
    """How many bytes of files a project has written in its latest `hour` (UTC, where it begins)."""

    project = models.UUIDField(primary_key=True)
    hour = models.DateTimeField()
    bytes = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.project}: {self.bytes}"


class Refused(models.Model):
    """A request that was refused before anything was held for it: one of the last of its organization, or of those
    without a key.

    Written by `gateway/process/refused.py`, pruned by `gateway.prune_refused`. Names are as they were then; without a
    known key they are empty. `code` and `message` are what the client was told.
    """

    id = models.UUIDField(primary_key=True)  # UUIDv7; the answer's `x-request-id`
    created_at = models.DateTimeField("time")
    organization = models.UUIDField(null=True)
    project = models.UUIDField(null=True)
    key = models.UUIDField(null=True)
    organization_slug = models.TextField(blank=True)
    project_slug = models.TextField(blank=True)
    key_name = models.TextField(blank=True)
    status = models.SmallIntegerField()
    code = models.TextField("reason", blank=True)
    message = models.TextField(blank=True)
    method = models.TextField(blank=True)
    path = models.TextField(blank=True)
    model = models.TextField(blank=True)
    address = models.TextField(blank=True)

    class Meta:
        verbose_name = _("refused request")
        indexes = [
            models.Index(fields=["organization", "id"], name="refused_of_an_organization"),
            models.Index(fields=["key", "id"], name="refused_of_a_key"),
        ]

    def __str__(self) -> str:
        return f"{self.id.hex} ({self.status})"


class RefusedCount(models.Model):
    """How many requests of a key were refused in a `minute` (UTC, where it begins) for one reason, all of them.

    Without a key: those that no key was known of, and of a minute's further keys when there are more than are told
    apart.
    """

    minute = models.DateTimeField()
    organization = models.UUIDField(null=True)
    project = models.UUIDField(null=True)
    key = models.UUIDField(null=True)
    organization_slug = models.TextField(blank=True)
    project_slug = models.TextField(blank=True)
    key_name = models.TextField(blank=True)
    status = models.SmallIntegerField()
    code = models.TextField("reason", blank=True)
    requests = models.BigIntegerField()

    class Meta:
        verbose_name = _("refused requests of a minute")
        verbose_name_plural = _("refused requests by minute")
        constraints = [
            models.UniqueConstraint(
                fields=["minute", "key", "status", "code"], nulls_distinct=False, name="refused_once_a_minute"
            )
        ]
        indexes = [
            models.Index(fields=["organization", "minute"], name="refused_minutes"),
            models.Index(fields=["key", "minute"], name="refused_minutes_of_a_key"),
        ]

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.status} {self.code}"
