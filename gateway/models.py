"""What the API keeps of its own: files that clients upload, and how often keys read the books."""

from django.db import models

from accounts.models import Project


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
    bytes = models.PositiveBigIntegerField(help_text="Of the content as it was uploaded.")
    content = models.BinaryField()  # `accounts.sealing.seal_bytes`, for `files.place`
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name = "file"
        indexes = [
            models.Index(fields=["project", "id"], name="files_of_a_project"),  # the API's list, and the room left
            models.Index(fields=["expires_at"], name="files_by_their_end"),  # the pruning task
        ]

    def __str__(self) -> str:
        return f"file-{self.id.hex} ({self.filename})"


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
