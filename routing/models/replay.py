"""A replay that was asked for in the console: done by a worker, watched and stopped from a page."""

from django.db import models
from django.utils.translation import gettext_lazy


class Replay(models.Model):
    """Which traffic is replayed against which policy, how far that is, and what came of it.

    `policy` is `Policy.row` as JSON. Times are UTC; `end` is exclusive. Everything is counted in generations.
    """

    class State(models.TextChoices):
        """How far it is."""

        WAITING = "waiting", gettext_lazy("Waiting for a worker")
        RUNNING = "running", gettext_lazy("Running")
        DONE = "done", gettext_lazy("Done")
        STOPPED = "stopped", gettext_lazy("Stopped")
        FAILED = "failed", gettext_lazy("Failed")

    created_at = models.DateTimeField(auto_now_add=True)
    asked_by = models.CharField(max_length=150)
    subject = models.CharField(max_length=300)  # whose policy, in words
    policy = models.JSONField()
    start = models.DateTimeField()
    end = models.DateTimeField()
    organization = models.UUIDField(null=True)
    project = models.UUIDField(null=True)
    model = models.CharField(max_length=200, blank=True)
    state = models.CharField(max_length=8, choices=State.choices, default=State.WAITING)
    stop = models.BooleanField(default=False)
    total = models.BigIntegerField(default=0)
    done = models.BigIntegerField(default=0)
    result = models.JSONField(null=True)  # `Comparison.as_json`

    def __str__(self) -> str:
        return f"{self.subject}, {self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}"
