"""Rows that Celery workers make of the hot tables, and how far they have come. Made again from them, they are the same.

`billing/models.py` shows them as its own; `billing/rollups.py` writes them.
"""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Organization

MOST_TAGS = 5  # of an organization


class Span(models.TextChoices):
    """How long a rollup's time is, UTC."""

    MINUTE = "minute", gettext_lazy("A minute")
    HOUR = "hour", gettext_lazy("An hour")
    DAY = "day", gettext_lazy("A day")


class UsageRollup(models.Model):
    """What an organization used of a model at a provider in an hour or a day, UTC, by when its requests began.

    The exact sum over its usage rows: token buckets are as inclusive as theirs, `charge` is of what has a known price,
    `unpriced` counts generations with something that has none. `ttft_*` are of streamed answers: how many, and
    milliseconds together; `output_*` of completed ones: tokens, and the milliseconds in which they came (of an answer
    that was not streamed, all of them). Hours are kept for 35 days, days for ever.

    Of the span `kept` are days, too: what rows came to that were dropped (`billing/dropping.py`), of which their days
    are made again. `SpendRollup` has the same.
    """

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(max_length=8, choices=Span.choices)
    starts_at = models.DateTimeField()
    organization = models.UUIDField()
    model = models.TextField()
    provider = models.TextField()
    requests = models.BigIntegerField()
    completed = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    cache_write_5m_tokens = models.BigIntegerField()
    cache_write_1h_tokens = models.BigIntegerField()
    audio_input_tokens = models.BigIntegerField()
    image_input_tokens = models.BigIntegerField()
    reasoning_tokens = models.BigIntegerField()
    audio_output_tokens = models.BigIntegerField()
    web_searches = models.BigIntegerField()
    video_input_tokens = models.BigIntegerField(default=0, db_default=0)
    image_output_tokens = models.BigIntegerField(default=0, db_default=0)
    images = models.BigIntegerField(default=0, db_default=0)
    seconds = models.BigIntegerField(default=0, db_default=0)
    charge = models.DecimalField(max_digits=30, decimal_places=12)
    unpriced = models.BigIntegerField()
    ttft_count = models.BigIntegerField()
    ttft_ms = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    output_ms = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["span", "starts_at", "organization", "model", "provider"], name="one_usage_rollup_a_time"
            )
        ]
        indexes = [  # statistics of one organization
            models.Index(fields=["organization", "span", "starts_at"], name="usage_rollup_by_organization")
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.provider}, {self.span} of {self.starts_at:%Y-%m-%d %H:%M}"


class Spent(models.Model):
    """What a key used of a model at a provider in an hour or a day, UTC, and what that was charged and cost.

    `unpriced` counts generations of which something has no known price, `uncosted` those whose provider's cost is not
    known; the other counts are those of `UsageRollup`.
    """

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(max_length=8, choices=Span.choices)
    starts_at = models.DateTimeField()
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    model = models.TextField()
    provider = models.TextField()
    requests = models.BigIntegerField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField(default=0, db_default=0)
    cache_write_5m_tokens = models.BigIntegerField(default=0, db_default=0)
    cache_write_1h_tokens = models.BigIntegerField(default=0, db_default=0)
    audio_input_tokens = models.BigIntegerField(default=0, db_default=0)
    image_input_tokens = models.BigIntegerField(default=0, db_default=0)
    reasoning_tokens = models.BigIntegerField(default=0, db_default=0)
    audio_output_tokens = models.BigIntegerField(default=0, db_default=0)
    web_searches = models.BigIntegerField(default=0, db_default=0)
    video_input_tokens = models.BigIntegerField(default=0, db_default=0)
    image_output_tokens = models.BigIntegerField(default=0, db_default=0)
    images = models.BigIntegerField(default=0, db_default=0)
    seconds = models.BigIntegerField(default=0, db_default=0)
    charge = models.DecimalField(max_digits=30, decimal_places=12)
    provider_cost = models.DecimalField(max_digits=30, decimal_places=12)
    unpriced = models.BigIntegerField()
    uncosted = models.BigIntegerField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.key}: {self.model} at {self.provider}, {self.span} of {self.starts_at:%Y-%m-%d %H:%M}"


class SpendRollup(Spent):
    """The exact sum over a key's usage rows, like `UsageRollup`, which knows no keys, since statistics need none.

    Hours are kept for two days, for making the running day again; days for ever.
    """

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["span", "starts_at", "organization", "project", "key", "model", "provider"],
                name="one_spend_rollup_a_time",
            )
        ]
        indexes = [models.Index(fields=["organization", "span", "starts_at"], name="spend_by_organization")]


class TagRollup(Spent):
    """The same of the requests that had a `value` of a `tag`: a key of `metadata`, or "" for the end user.

    So many values are told apart (`billing/rollups.py`); the value NULL are all others. Of a day that is there at all
    the value "" is the rest of what the key spent, so its rows come to the same as `SpendRollup`'s, for each tag.
    """

    tag = models.TextField()
    value = models.TextField(null=True)  # NULL: the others

    class Meta:
        indexes = [
            models.Index(fields=["organization", "tag", "span", "starts_at"], name="spend_by_tag"),
            models.Index(fields=["span", "starts_at"], name="spend_by_tag_made_again"),
            models.Index(fields=["organization", "tag", "value", "span", "starts_at"], name="spend_by_value"),
        ]


class ReportTags(models.Model):
    """By which keys of its requests' `metadata` an organization's spending is told apart, beside end users.

    Only those that are named: whoever has a key writes there what he likes. The worker begins with the month before.
    """

    organization = models.OneToOneField(Organization, on_delete=models.PROTECT, primary_key=True, related_name="+")
    names = ArrayField(
        models.CharField(max_length=64),
        size=MOST_TAGS,
        verbose_name=gettext_lazy("tags"),
        help_text=format_lazy(
            gettext_lazy(
                "Keys of metadata, {most} at most. The values of each are told apart on Spend and in reports, "
                "from the month before this one on."
            ),
            most=MOST_TAGS,
        ),
    )
    rolled_up = models.BooleanField(default=False, db_default=False, editable=False)  # or about to be: see `Mark`

    class Meta:
        verbose_name = verbose_name_plural = gettext_lazy("tags of reports")

    def __str__(self) -> str:
        return f"{self.organization}: {', '.join(self.names)}"

    def clean(self) -> None:
        """Raises ValidationError for a tag that is none, and for one that is named twice."""
        names = self.names or []
        if any(name != name.strip() or not name for name in names):
            raise ValidationError({"names": _("A tag is a key of metadata, without blanks around it.")})
        if len(set(names)) < len(names):
            raise ValidationError({"names": _("Name each tag once.")})

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves; what is rolled up already is rolled up by these tags, too."""
        self.rolled_up = False
        super().save(*args, **kwargs)


class LateHour(models.Model):
    """An hour of which a usage row was settled after its rollup had passed it: it is to be made again.

    Written by settlement with the row, one note each, so that taking notes away never takes one whose row is not to be
    seen yet.
    """

    id = models.BigAutoField(primary_key=True)
    hour = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.hour:%Y-%m-%d %H:%M}"


class Mark(models.Model):
    """How far a periodic piece of work has come: all before `until` is done. Its row is the work's lock."""

    name = models.CharField(max_length=32, primary_key=True)
    until = models.DateTimeField()
    ran_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} until {self.until:%Y-%m-%d %H:%M:%S}"
