"""How offers did: attempts rolled up by time, and the windows that are published. Written by Celery workers alone.

Offers are named as text, since attempts outlive the catalog. Times are UTC; sketches are described in
`routing/statistics/sketches.py`.
"""

from django.db import models
from django.utils.translation import gettext_lazy

from billing.aggregates import Span

ALL_SIZES = -1  # in place of a size class: prompts of every size


class Window(models.TextChoices):
    """Over how long statistics are published; each ends now."""

    MINUTES = "5m", gettext_lazy("5 minutes")
    HOUR = "1h", gettext_lazy("an hour")
    DAY = "1d", gettext_lazy("a day")
    MONTH = "30d", gettext_lazy("30 days")


class Tally(models.Model):
    """What is counted of the attempts at an offer with prompts of a size class (`routing.health.latency.size_class`).

    `attempts` are all that ended with a verdict: `completed`, `cancelled` (the client left), and those that failed, by
    `faults`, {kind: count}. `offer_faults` are those that speak against the offer, `failing` says whose they were,
    {organization: count}; `client_faults` are the request's own.
    `ttft` is a sketch of milliseconds to the first token, `token_time` of microseconds for each further one.
    `output_*` are the further tokens of completed attempts and the milliseconds in which they came. An answer that came
    whole is split in the usual shape (`routing.health.latency.SHAPE`).
    """

    model = models.TextField()
    provider = models.TextField()
    upstream_model = models.TextField()
    size_class = models.SmallIntegerField()
    attempts = models.BigIntegerField()
    completed = models.BigIntegerField()
    cancelled = models.BigIntegerField()
    offer_faults = models.BigIntegerField()
    client_faults = models.BigIntegerField()
    faults = models.JSONField()
    failing = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    ttft = models.JSONField()
    token_time = models.JSONField()
    prompt_tokens = models.BigIntegerField()
    completion_tokens = models.BigIntegerField()
    cached_tokens = models.BigIntegerField()
    output_tokens = models.BigIntegerField()
    output_ms = models.BigIntegerField()

    class Meta:
        abstract = True


class OfferRollup(Tally):
    """The attempts that began in a minute or an hour. Minutes are kept for two days, hours for 35."""

    id = models.BigAutoField(primary_key=True)
    span = models.CharField(max_length=8, choices=Span.choices)
    starts_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["span", "starts_at", "model", "provider", "upstream_model", "size_class"],
                name="one_offer_rollup_a_time",
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.provider}, {self.span} of {self.starts_at:%Y-%m-%d %H:%M}"


class OfferStatistics(Tally):
    """The attempts of a window that ended at `published_at`, by size class and for all sizes; what gateways read.

    `ttft_p50` is milliseconds and `token_p50` microseconds; NULL: unknown. A window without attempts has no row.
    """

    id = models.BigAutoField(primary_key=True)
    window = models.CharField(max_length=4, choices=Window.choices)
    published_at = models.DateTimeField()
    ttft_p50 = models.FloatField(null=True)
    token_p50 = models.FloatField(null=True)

    class Meta:
        verbose_name_plural = gettext_lazy("offer statistics")
        constraints = [
            models.UniqueConstraint(
                fields=["window", "model", "provider", "upstream_model", "size_class"], name="one_statistic_a_window"
            )
        ]

    def __str__(self) -> str:
        return f"{self.model} at {self.provider}, {self.get_window_display()}"
