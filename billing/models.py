"""What a call may use and what it cost: prices, budgets, limits, holds, usage and the ledger.

Usage rows and holds name organization, project, key, model and provider by id or as text and outlive them. Money is
`numeric(24,12)` dollars, exact for rates of six decimals per million tokens; an unknown price is NULL, never 0. The hot
tables (Counter, Lease, Hold, KeptAnswer, Attempt, Usage, LedgerEntry) are written by the functions in `billing/sql/`
alone, carry no enforced foreign keys, and Usage and Attempt are partitioned by month on their time-ordered ids.
"""

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import connection, models
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import ApiKey, Organization, Project
from billing.adjustments import Judgement as Judgement
from billing.adjustments import Repricing as Repricing
from billing.adjustments import RepricingSum as RepricingSum
from billing.aggregates import MOST_TAGS as MOST_TAGS
from billing.aggregates import LateHour as LateHour
from billing.aggregates import Mark as Mark
from billing.aggregates import ReportTags as ReportTags
from billing.aggregates import Span as Span
from billing.aggregates import SpendRollup as SpendRollup
from billing.aggregates import TagRollup as TagRollup
from billing.aggregates import UsageRollup as UsageRollup
from billing.alerts import MOST_PERCENTS, PERCENT, near_and_all, part_of
from billing.alerts import Channel as Channel
from billing.alerts import Crossing as Crossing
from billing.alerts import Delivery as Delivery
from billing.alerts import DeliveryStatus as DeliveryStatus
from billing.alerts import Recipient as Recipient
from billing.bills.reconciliations import Reconciliation as Reconciliation
from billing.bills.reconciliations import ReconciliationLine as ReconciliationLine
from billing.bills.sources import BillFetch as BillFetch
from billing.bills.sources import BillPage as BillPage
from billing.bills.sources import BillSource as BillSource
from billing.blocks import AccountDay as AccountDay
from billing.blocks import LedgerBlock as LedgerBlock
from billing.closings import ClosedMonth as ClosedMonth
from billing.closings import ClosedSum as ClosedSum
from billing.closings import month_after as month_after
from billing.credit.credits import Credit as Credit
from billing.credit.credits import CreditKind as CreditKind
from billing.credit.credits import Lot as Lot
from billing.credit.credits import Prepaid as Prepaid
from billing.findings import AuditFinding as AuditFinding
from billing.findings import AuditState as AuditState
from billing.findings import FindingKind as FindingKind
from billing.imports.price_lists import PriceList as PriceList
from billing.imports.proposals import PriceProposal as PriceProposal
from billing.imports.proposals import rate_name as rate_name
from billing.retention import DroppedMonth as DroppedMonth
from billing.retention import KeptTable as KeptTable
from billing.retention import Retention as Retention
from billing.schedules import ExportSchedule as ExportSchedule
from billing.schedules import StorageKind as StorageKind
from billing.schedules import StoredExport as StoredExport
from billing.statements import DocumentKind as DocumentKind
from billing.statements import Statement as Statement


class Tariff(models.Model):
    """A named list of rates with dated versions; offers point at it."""

    slug = models.CharField(max_length=200, unique=True)
    name = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return self.slug


class TariffVersion(models.Model):
    """The rates from `effective_from` (UTC, inclusive) until the next version's. In force, it is never changed."""

    tariff = models.ForeignKey(Tariff, on_delete=models.PROTECT, related_name="versions")
    effective_from = models.DateTimeField()
    marginal = models.BooleanField(
        default=False,
        db_default=False,
        help_text=gettext_lazy(
            "Of rates by size of prompt: only for its tokens beyond the size. Off: for the whole request."
        ),
    )
    currency = models.CharField(
        max_length=3,
        default="USD",
        db_default="USD",
        validators=[RegexValidator(r"\A[A-Z]{3}\Z", gettext_lazy("Three capital letters, such as EUR."))],
        help_text=gettext_lazy("That the rates are in. The books are in dollars."),
    )
    exchange_rate = models.DecimalField(
        max_digits=10,
        decimal_places=9,
        default=1,
        db_default=1,
        help_text=gettext_lazy("Dollars that one of the currency is worth, while this version is in force. 1 for USD."),
    )
    note = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tariff", "effective_from"], name="tariff_version_date"),
            models.CheckConstraint(
                condition=models.Q(exchange_rate__gt=0) & (~models.Q(currency="USD") | models.Q(exchange_rate=1)),
                name="dollars_are_worth_a_dollar",
            ),
        ]

    def __str__(self) -> str:
        return _("%(slug)s from %(effective_from)s") % {
            "slug": self.tariff.slug,
            "effective_from": f"{self.effective_from:%Y-%m-%d %H:%M}",
        }

    def clean(self) -> None:
        """Raises ValidationError for an exchange rate that cannot be."""
        if self.exchange_rate <= 0 or (self.currency == "USD" and self.exchange_rate != 1):
            raise ValidationError({"exchange_rate": _("Above 0, and 1 for USD.")})
        if self.currency != "USD" and self.exchange_rate == 1:
            words = _("Say how many dollars one %(currency)s is worth.") % {"currency": self.currency}
            raise ValidationError({"exchange_rate": words})


class Item(models.TextChoices):
    """What a rate is for. Token rates are dollars per million tokens, the last four dollars each."""

    INPUT = "input", gettext_lazy("Input tokens")
    CACHED_INPUT = "cached_input", gettext_lazy("Cached input tokens")
    CACHE_WRITE_5M = "cache_write_5m", gettext_lazy("Cache writes, 5 minutes")
    CACHE_WRITE_1H = "cache_write_1h", gettext_lazy("Cache writes, 1 hour")
    AUDIO_INPUT = "audio_input", gettext_lazy("Audio input tokens")
    IMAGE_INPUT = "image_input", gettext_lazy("Image input tokens")
    VIDEO_INPUT = "video_input", gettext_lazy("Video input tokens")
    OUTPUT = "output", gettext_lazy("Output tokens")
    REASONING = "reasoning", gettext_lazy("Reasoning tokens")
    AUDIO_OUTPUT = "audio_output", gettext_lazy("Audio output tokens")
    IMAGE_OUTPUT = "image_output", gettext_lazy("Image output tokens")
    REQUEST = "request", gettext_lazy("A request")
    WEB_SEARCH = "web_search", gettext_lazy("A web search")
    IMAGE = "image", gettext_lazy("An image made")
    SECOND = "second", gettext_lazy("A second of sound or video")


# A class of service; rates for the ordinary one name none.
service_class = RegexValidator(
    r"\A(?!(?:auto|default|standard)\Z)[a-z0-9_.-]*\Z",
    gettext_lazy("Lower-case letters, digits, '_', '.' and '-'; of the ordinary class, empty."),
)


class Rate(models.Model):
    """One line of a tariff version: what the provider takes (`cost`) and what the tenant pays (`charge`), in its
    currency.

    It holds for requests whose whole prompt is of more than `above` tokens, up to the item's next rate by size, and
    that were served as `service_tier`, where the item has none of the ordinary rates then.

    Below a million, and a unit below ten dollars, so that no product with a count needs more digits than `Decimal` and
    `numeric(24,12)` have.
    """

    version = models.ForeignKey(TariffVersion, on_delete=models.CASCADE, related_name="rates")
    item = models.CharField(max_length=16, choices=Item.choices)
    above = models.PositiveIntegerField(
        gettext_lazy("prompts above"),
        default=0,
        db_default=0,
        help_text=gettext_lazy("Tokens of the whole prompt, exclusive. 0: of any size."),
    )
    service_tier = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        validators=[service_class],
        help_text=gettext_lazy("A class of service, such as flex or priority. Empty: the ordinary one."),
    )
    cost = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text=gettext_lazy("Empty: unknown.")
    )
    charge = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text=gettext_lazy("Empty: unknown.")
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["version", "item", "above", "service_tier"], name="one_rate_an_item_size_and_class"
            ),
            models.CheckConstraint(
                condition=models.Q(cost__isnull=True) | models.Q(cost__gte=0), name="cost_not_negative"
            ),
            models.CheckConstraint(
                condition=models.Q(charge__isnull=True) | models.Q(charge__gte=0), name="charge_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return f"{rate_name(self.item, self.above, self.service_tier)}: {self.charge}"


class Terms(models.Model):
    """What an organization pays from `effective_from` (UTC, inclusive) on, where it is not what the tariffs charge.

    For offers under `tariff`, or under every one: a mark-up on the provider's cost, or the charges of another tariff,
    or with neither the tariff's own again. Of those in force the newest counts; one for this tariff goes before those
    for every one. Once in force it is never changed, so what was charged stays explained: the next one replaces it.
    """

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    tariff = models.ForeignKey(
        Tariff,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text=gettext_lazy("Of the offers that this is for. Empty: of all."),
    )
    effective_from = models.DateTimeField()
    markup = models.DecimalField(
        "mark-up",
        max_digits=6,
        decimal_places=2,
        null=True,
        blank=True,
        help_text=gettext_lazy("Per cent on the provider's cost; each rate is rounded to six decimals."),
    )
    price_list = models.ForeignKey(
        Tariff,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text=gettext_lazy(
            "The tariff whose charges it pays; the cost stays the offer's. Neither: as the tariff says."
        ),
    )
    note = models.CharField(max_length=200, blank=True)

    class Meta:
        verbose_name_plural = gettext_lazy("terms")
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "tariff", "effective_from"], nulls_distinct=False, name="terms_date"
            ),
            models.CheckConstraint(
                condition=models.Q(markup__isnull=True) | models.Q(price_list__isnull=True),
                name="markup_or_price_list",
                violation_error_message=gettext_lazy("Either a mark-up or a price list."),
            ),
            models.CheckConstraint(
                condition=models.Q(markup__isnull=True) | models.Q(markup__gte=-100), name="markup_not_below_nothing"
            ),
        ]

    def __str__(self) -> str:
        return _("%(slug)s: %(what)s from %(effective_from)s") % {
            "slug": self.organization.slug,
            "what": self.what(),
            "effective_from": f"{self.effective_from:%Y-%m-%d %H:%M}",
        }

    def what(self) -> str:
        """The price in a few words."""
        if self.markup is not None:
            return _("cost %(markup)s %%") % {"markup": f"{self.markup.normalize():+f}"}
        return _("as the tariff says") if self.price_list is None else self.price_list.slug


class Subject(models.Model):
    """Whom a budget or limit binds: the key if given, else the project if given, else the organization."""

    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    key = models.ForeignKey(ApiKey, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    subject = models.GeneratedField(
        expression=Coalesce("key_id", "project_id", "organization_id"),
        output_field=models.UUIDField(),
        db_persist=True,
    )

    class Meta:
        abstract = True

    def clean(self) -> None:
        """Raises ValidationError when key, project and organization do not belong together."""
        if self.project and self.project.organization_id != self.organization_id:
            raise ValidationError({"project": _("This project belongs to another organization.")})
        if self.key and self.key.project.organization_id != self.organization_id:
            raise ValidationError({"key": _("This key belongs to another organization.")})
        if self.key and self.project and self.key.project_id != self.project_id:
            raise ValidationError({"key": _("This key belongs to another project.")})

    def subject_name(self) -> str:
        """How lists show the subject."""
        return str(self.key or self.project or self.organization)


class Period(models.TextChoices):
    """A budget's window, on the database's clock: a day, a week from Monday or a month of the organization's time zone,
    or for ever.
    """

    DAY = "day", gettext_lazy("A day")
    WEEK = "week", gettext_lazy("A week")
    MONTH = "month", gettext_lazy("A month")
    TOTAL = "total", gettext_lazy("In total")


EACH = "*"  # for an end user: the budget is each one's


class Budget(Subject):
    """How many dollars a subject may spend in a period. Hard: no request may pass it. Soft: only shown.

    Of a `model`, of an `end_user`, or of both it counts only those calls; `EACH` gives every end user the amount to
    itself, but for those who have one by name.
    """

    period = models.CharField(max_length=8, choices=Period.choices)
    model = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy("A slug: counts its calls alone. Empty: all."),
    )
    end_user = models.CharField(
        max_length=512,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy(
            "As requests name it in user or safety_identifier: counts its calls alone. "
            "*: each end user has the amount to itself, and those without a name have it together. Empty: all."
        ),
    )
    amount = models.DecimalField(max_digits=24, decimal_places=12)
    hard = models.BooleanField(default=True)
    contract = models.BooleanField(
        default=True,
        db_default=True,
        help_text=gettext_lazy("On: agreed with the organization, whose owners may neither change nor exceed it."),
    )
    # The organization's, kept here by the database alone (`billing/sql/zones.sql`): a hold has nothing more to look up.
    time_zone = models.CharField(max_length=64, default="UTC", db_default="UTC", editable=False)
    alerts = ArrayField(
        PERCENT,
        size=MOST_PERCENTS,
        default=near_and_all,
        db_default=near_and_all(),
        blank=True,
        help_text=gettext_lazy(
            "Percents of the amount, 1 to 1000: when so much is spent the organization's recipients are told."
        ),
    )

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subject", "period", "model", "end_user"], name="one_budget_a_part"),
            models.CheckConstraint(condition=models.Q(amount__gte=0), name="budget_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.subject_name()}{self.part()}: ${self.amount.normalize():f} {self.get_period_display().lower()}"

    def part(self) -> str:
        """Which calls alone it counts, as words behind the subject's name; nothing: all."""
        return part_of(self.model, self.end_user or None)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves; a new budget counts what its subject has already spent in the running period."""
        new = self._state.adding
        super().save(*args, **kwargs)
        if new:
            with connection.cursor() as cursor:
                cursor.execute("select billing_seed_counter(%s)", [self.pk])


class Measure(models.TextChoices):
    """What a limit counts: per UTC minute on the database's clock, or open at the moment."""

    REQUESTS = "requests", gettext_lazy("Requests a minute")
    TOKENS = "tokens", gettext_lazy("Tokens a minute")
    OPEN = "open", gettext_lazy("Open requests")


class Limit(Subject):
    """How fast a subject may go."""

    measure = models.CharField(max_length=8, choices=Measure.choices)
    value = models.PositiveBigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["subject", "measure"], name="one_limit_a_measure")]

    def __str__(self) -> str:
        return f"{self.subject_name()}: {self.value} {self.get_measure_display().lower()}"


class Counter(models.Model):
    """How much of a budget or limit is used and held, per subject, measure and window.

    Of a budget that counts calls of a model or an end user, `owner` is whose it is and `subject` a hash of all three
    (`billing/sql/scopes.sql`). The measure `users` counts an organization's counters of end users, which are bounded.

    A new window is a new row, so nothing is ever reset. Of a prepaid balance (`billing/credit/credits.py`) what was
    taken back or has expired is used as well. Written only by the functions of billing, under row locks taken in the
    order of `id`; each counts in `writes`, and `billing/sql/counters.sql` says what `version` is for.
    """

    id = models.BigAutoField(primary_key=True)
    organization = models.UUIDField()
    subject = models.UUIDField()
    measure = models.CharField(max_length=8)
    period = models.CharField(max_length=8)
    period_start = models.DateTimeField()
    used = models.DecimalField(max_digits=24, decimal_places=12, default=0)
    held = models.DecimalField(max_digits=24, decimal_places=12, default=0)
    writes = models.BigIntegerField(default=0, db_default=0)
    version = models.GeneratedField(
        expression=models.F("writes") / models.Value(32), output_field=models.BigIntegerField(), db_persist=True
    )
    owner = models.UUIDField(null=True)
    model = models.CharField(max_length=200, default="", db_default="")
    end_user = models.CharField(max_length=512, null=True)  # NULL: whoever; empty: requests that name none

    class Meta:
        indexes = [
            # Alerts, the console, seeding; pruning.
            models.Index(
                fields=["owner", "period", "period_start"],
                name="counter_of_end_users",
                condition=models.Q(end_user__isnull=False),
            ),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["subject", "measure", "period", "period_start", "version"], name="one_new_counter_a_window"
            ),
            models.CheckConstraint(condition=models.Q(held__gte=0), name="held_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.measure} {self.period} {self.period_start:%Y-%m-%d %H:%M}"


class Lease(models.Model):
    """A gateway process that says it is alive. Silent for 20 s it is dead, and its holds are resolved by others."""

    id = models.UUIDField(primary_key=True)
    host = models.CharField(max_length=255)
    pid = models.IntegerField()
    started_at = models.DateTimeField()  # of this life: a longer silence begins a new one
    heartbeat_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}"


class Hold(models.Model):
    """Money, tokens and a place kept for a request from before its dial until it is settled."""

    id = models.UUIDField(primary_key=True)  # the generation's
    lease = models.UUIDField()
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    model = models.TextField()
    money = models.DecimalField(max_digits=24, decimal_places=12, null=True)  # the worst case; NULL: price unknown
    tokens = models.BigIntegerField()
    output_cap = models.BigIntegerField()
    hard = models.BooleanField()
    counters = models.JSONField()  # ids of the counters it is held on
    facts = models.JSONField()  # what a usage row needs when only the hold is left
    created_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["lease"], name="hold_by_lease")]  # read by the resolution of dead leases

    def __str__(self) -> str:
        return str(self.id)


class KeptAnswer(models.Model):
    """What a client was told under an idempotency key, for 24 hours; or that a request under it is on its way.

    `id` stands for organization, API key, endpoint and the client's own word, `fingerprint` for what was asked: both
    are hashes under a pepper, and `content` is sealed. Written only by `billing/sql/answers.sql`.
    """

    class State(models.TextChoices):
        """How far it is."""

        RUNNING = "running", gettext_lazy("Running")
        DONE = "done", gettext_lazy("Kept")
        LOST = "lost", gettext_lazy("Not kept: too long")

    id = models.UUIDField(primary_key=True)
    fingerprint = models.UUIDField()
    organization = models.UUIDField()
    key = models.UUIDField()
    generation = models.UUIDField()  # that answers, or has answered
    lease = models.UUIDField()
    state = models.CharField(max_length=8, choices=State.choices)
    content = models.BinaryField(null=True)
    created_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["created_at"], name="answer_by_age"),  # the pruning task
            models.Index(fields=["lease"], name="answer_by_lease", condition=models.Q(state="running")),  # strays
        ]

    def __str__(self) -> str:
        return f"{self.generation}: {self.state}"


class KeptShare(models.Model):
    """How many bytes of answers were kept for an organization in an `hour` (UTC, where it begins)."""

    pk = models.CompositePrimaryKey("organization", "hour")
    organization = models.UUIDField()
    hour = models.DateTimeField()
    bytes = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.organization} {self.hour:%Y-%m-%d %H}: {self.bytes}"


class Status(models.TextChoices):
    """How a generation ended."""

    COMPLETED = "completed", gettext_lazy("Completed")
    FAILED = "failed", gettext_lazy("Failed")  # the provider, before or after output began
    CANCELLED = "cancelled", gettext_lazy("Cancelled")  # the client left, its key was revoked, or somebody cut it off
    ABANDONED = "abandoned", gettext_lazy("Abandoned")  # our process died; what the provider billed is unknown


class Basis(models.TextChoices):
    """What the charge rests on."""

    REPORTED = "reported", gettext_lazy("Usage reported by the provider")
    ESTIMATED = "estimated", gettext_lazy("Estimated from what was read and written")
    NOTHING = "nothing", gettext_lazy("Nothing was done")
    CAPPED = "capped", gettext_lazy("Capped at the hold and what the budget had left")
    UNKNOWN = "unknown", gettext_lazy("Unknown: nobody could count it")


class Usage(models.Model):
    """One generation, whatever its end: who called, what was used, what it cost, and the arithmetic.

    Token counts are inclusive buckets (see `billing/tokens.py`). `charge` is what the tenant pays, `provider_cost` what
    the provider takes, `overrun` what exceeded the hold and what a hard budget had left, and nobody pays. Times are
    UTC, durations milliseconds; `ttft_ms` is the time to a stream's first meaningful event, or to the first bytes of a
    whole answer.
    """

    id = models.UUIDField(primary_key=True)  # UUIDv7; the response's id
    organization = models.UUIDField()
    project = models.UUIDField()
    key = models.UUIDField()
    organization_slug = models.TextField()
    project_slug = models.TextField()
    key_name = models.TextField()
    model = models.TextField()
    provider = models.TextField()
    upstream_model = models.TextField()
    upstream_id = models.TextField(blank=True)
    service_tier = models.TextField(null=True, blank=True)  # the class of service, served or else asked; NULL: not said
    stream = models.BooleanField()
    end_user = models.TextField(blank=True)
    metadata = models.JSONField(default=dict)
    app = models.TextField(null=True, blank=True)  # NULL: the client did not say
    status = models.TextField(choices=Status.choices)
    error = models.TextField(blank=True)
    finish_reason = models.TextField(blank=True)
    native_finish_reason = models.TextField(blank=True)
    attempts = models.SmallIntegerField()
    ttft_ms = models.IntegerField(null=True)
    duration_ms = models.IntegerField(null=True)
    prompt_tokens = models.IntegerField()
    completion_tokens = models.IntegerField()
    cached_tokens = models.IntegerField()
    cache_write_5m_tokens = models.IntegerField()
    cache_write_1h_tokens = models.IntegerField()
    audio_input_tokens = models.IntegerField()
    image_input_tokens = models.IntegerField()
    reasoning_tokens = models.IntegerField()
    audio_output_tokens = models.IntegerField()
    web_searches = models.IntegerField()
    video_input_tokens = models.IntegerField(default=0, db_default=0)
    image_output_tokens = models.IntegerField(default=0, db_default=0)
    images = models.IntegerField(default=0, db_default=0)
    seconds = models.IntegerField(default=0, db_default=0)
    basis = models.TextField(choices=Basis.choices)
    suspect = models.BooleanField()  # the provider's counts were refused, or do not add up; see `Quarantined`
    tariff_version = models.BigIntegerField(null=True)
    charge = models.DecimalField(max_digits=24, decimal_places=12, null=True)
    provider_cost = models.DecimalField(max_digits=24, decimal_places=12, null=True)
    overrun = models.DecimalField(max_digits=24, decimal_places=12)
    arithmetic = models.JSONField(default=list)  # [{item, quantity, cost, charge}], rates in dollars
    created_at = models.DateTimeField()
    settled_at = models.DateTimeField()
    request_id = models.UUIDField(null=True)  # the answer's x-request-id: UUIDv7 of its arrival
    queue_ms = models.IntegerField(null=True)  # from its arrival to where `duration_ms` begins
    plan = models.JSONField(null=True)  # where it could go and why; see `routing.planning.plan`

    class Meta:
        verbose_name = gettext_lazy("generation")
        indexes = [
            models.Index(fields=["organization", "-id"], name="usage_by_organization"),  # console lists, seeding
            models.Index(fields=["key", "-id"], name="usage_by_key"),  # console lists, seeding
            models.Index(fields=["-id"], name="usage_suspect", condition=models.Q(suspect=True)),  # the quarantine
            # Console lists by what nothing, or next to nothing, has; costs a settlement nothing.
            BrinIndex(
                fields=["model", "provider", "app", "status", "basis"],
                opclasses=[f"text_bloom_ops(n_distinct_per_range={most})" for most in (64, 64, 64, 16, 16)],
                name="usage_by_name",
                pages_per_range=64,
                autosummarize=True,
            ),
        ]

    def __str__(self) -> str:
        return self.id.hex


class Quarantined(Usage):
    """A generation of which a provider's counts were refused, charged by an estimate or by those that were not."""

    class Meta:
        proxy = True
        verbose_name = gettext_lazy("quarantined generation")

    @property
    def claimed(self) -> dict[str, Any]:
        """What the provider said: see `gateway.protocols.openai_chat.usage.claim`. Empty: it was not kept."""
        return (self.plan or {}).get("claimed") or {}


class Attempt(models.Model):
    """One dial, written before it is made. `ttft_ms` as in `Usage`, counted from the dial."""

    id = models.UUIDField(primary_key=True)
    generation = models.UUIDField()
    number = models.SmallIntegerField()  # from 1
    provider = models.TextField()
    upstream_model = models.TextField()
    started_at = models.DateTimeField()
    duration_ms = models.IntegerField(null=True)
    ttft_ms = models.IntegerField(null=True)
    status = models.TextField()  # dialling, completed, failed, cancelled, unknown
    fault = models.TextField(blank=True)
    upstream_status = models.SmallIntegerField(null=True)
    model = models.TextField(blank=True)  # the public one; a fallback may be of another than was asked for
    credential = models.UUIDField(null=True)  # by which the provider knew us
    prompt_tokens = models.IntegerField(null=True)  # as the provider counted; estimated where it did not
    completion_tokens = models.IntegerField(null=True)
    offset_ms = models.IntegerField(null=True)  # from the beginning of `Usage.duration_ms` to the dial
    connect_ms = models.IntegerField(null=True)  # of the dial, for a new connection; 0: there was one

    class Meta:
        indexes = [models.Index(fields=["generation"], name="attempt_by_generation")]  # a generation's page

    def __str__(self) -> str:
        return f"{self.generation.hex} #{self.number}"


class LedgerEntry(models.Model):
    """One posting: `amount` (>= 0) moves from the account `debit` to the account `credit`. Append-only.

    A row debits and credits the same amount, so every transaction sums to zero by construction. A generation has
    exactly one closing transaction that is not reversed: `settle`, or `void` when nothing is charged. A correction is a
    new row.
    """

    id = models.BigAutoField(primary_key=True)
    transaction = models.UUIDField()
    kind = models.TextField()  # settle, void, reverse; reprice and a credit's, which are of no generation
    generation = models.UUIDField(null=True)
    organization = models.UUIDField()
    debit = models.TextField()
    credit = models.TextField()
    amount = models.DecimalField(max_digits=24, decimal_places=12)
    currency = models.CharField(max_length=3, default="USD")
    created_at = models.DateTimeField()
    late_of = models.DateField(null=True)  # the day it belongs to, when that was in a closed month

    class Meta:
        verbose_name_plural = gettext_lazy("ledger entries")
        indexes = [
            models.Index(fields=["generation"], name="ledger_by_generation"),  # reversal, a generation's page
            models.Index(fields=["created_at", "id"], name="ledger_by_date"),  # console lists
            models.Index(fields=["organization", "created_at", "id"], name="ledger_by_organization"),  # console lists
        ]
        constraints = [
            models.CheckConstraint(condition=models.Q(amount__gte=0), name="amount_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.kind}: {self.debit} -> {self.credit}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Only the functions in `billing/sql/` write the ledger."""
        raise TypeError("the ledger is written by settlements, re-pricing and credits alone")
