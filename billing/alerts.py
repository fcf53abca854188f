"""Who is told when a budget or a balance is nearly or wholly spent, what was crossed, and what became of each message.

`billing/models.py` shows them as its own; `billing/crossings.py` notes what is crossed, `gateway/alerts` tells it.
"""

import uuid

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, validate_email
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import Organization
from accounts.sealing import open_sealed, seal
from billing.credit.credits import BALANCE

NEAR = 80  # percent of a budget
MOST_PERCENTS = 10
MOST_RECIPIENTS = 20  # of an organization
PERCENT = models.PositiveSmallIntegerField(validators=[MinValueValidator(1), MaxValueValidator(1000)])


def near_and_all() -> list[int]:
    """The percents of a budget at which an alert goes out, when nobody says otherwise."""
    return [NEAR, 100]


def part_of(model: str, end_user: str | None) -> str:
    """Which calls alone a budget counts, as words behind whose it is; None: of whichever end user."""
    if end_user is None:
        who = ""
    elif end_user == "*":
        who = _(" for each end user")
    else:
        who = _(" for end user %(name)s") % {"name": end_user} if end_user else _(" without a user")
    return (_(" of %(model)s") % {"model": model} if model else "") + who


class Channel(models.TextChoices):
    """How somebody is told."""

    MAIL = "mail", gettext_lazy("Mail")
    WEBHOOK = "webhook", gettext_lazy("Webhook")


class Recipient(models.Model):
    """Whom an organization's alerts go to: a mail address, or a webhook with the secret that signs what it is sent.

    The secret is sealed for this row and its address, which is why neither is ever changed.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="recipients")
    channel = models.CharField(max_length=8, choices=Channel.choices)
    address = models.CharField(max_length=300, help_text=gettext_lazy("Of mail, or of a webhook: https://host/path."))
    sealed = models.TextField(blank=True, editable=False)
    active = models.BooleanField(default=True, db_default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organization", "channel", "address"], name="recipient_address"),
        ]

    def __str__(self) -> str:
        return self.address

    def clean(self) -> None:
        """Raises ValidationError for what is no mail address, and for one recipient too many."""
        if self.channel == Channel.MAIL:
            try:
                validate_email(self.address)
            except ValidationError as error:
                raise ValidationError({"address": error.messages}) from None
        others = Recipient.objects.filter(organization=self.organization_id).exclude(pk=self.pk)
        if others.count() >= MOST_RECIPIENTS:
            raise ValidationError(
                _("An organization has %(MOST_RECIPIENTS)s recipients at most.") % {"MOST_RECIPIENTS": MOST_RECIPIENTS}
            )

    def place(self) -> str:
        """Where its secret lies: this row, and the address it is for."""
        return f"billing.recipient:{self.id}:{self.address}"

    def put(self, secret: str) -> None:
        """Seals `secret`; the caller saves."""
        self.sealed = seal(secret, self.place())

    def secret(self) -> str:
        """The secret. Raises `accounts.sealing.CannotOpen`."""
        return open_sealed(self.sealed, self.place())


class Crossing(models.Model):
    """A budget's spending reached a percent of its amount: noted once for each period, percent and amount.

    The row is what makes it once, whoever looks and how many at a time. A changed amount is another one to reach.

    Or a prepaid balance fell below `amount` dollars, and `used` were left: of the period `balance`, which starts with
    the last credit.
    """

    id = models.BigAutoField(primary_key=True)
    organization = models.UUIDField()
    organization_slug = models.TextField()
    project = models.UUIDField(null=True)
    project_slug = models.TextField(blank=True)
    key = models.UUIDField(null=True)
    key_name = models.TextField(blank=True)
    subject = models.UUIDField()  # the counter's
    model = models.CharField(max_length=200, default="", db_default="")
    end_user = models.CharField(max_length=512, null=True)
    period = models.CharField(max_length=8)
    period_start = models.DateTimeField()
    percent = models.PositiveSmallIntegerField()
    amount = models.DecimalField(max_digits=24, decimal_places=12)
    hard = models.BooleanField()
    used = models.DecimalField(max_digits=24, decimal_places=12)  # as it was seen to be reached
    crossed_at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["crossed_at"], name="crossing_by_age")]  # pruning
        constraints = [
            models.UniqueConstraint(
                fields=["subject", "period", "period_start", "percent", "amount"], name="one_crossing_a_period"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.whom()}: {self.reached()}"

    def reached(self) -> str:
        """What it came to, in a few words."""
        amount = f"{self.amount.normalize():f} USD"
        if self.period == BALANCE:
            return _("less than %(amount)s left") % {"amount": amount}
        return _("%(percent)s %% of %(amount)s") % {"percent": self.percent, "amount": amount}

    def whom(self) -> str:
        """Whose budget it is, as people read it."""
        return "/".join(filter(None, (self.organization_slug, self.project_slug, self.key_name))) + self.part()

    def part(self) -> str:
        """Which calls alone the budget counts, as words behind the subject's name; nothing: all."""
        return part_of(self.model, self.end_user)


class DeliveryStatus(models.TextChoices):
    """How far a message is."""

    WAITING = "waiting", gettext_lazy("Waiting")
    SENT = "sent", gettext_lazy("Sent")
    GIVEN_UP = "given_up", gettext_lazy("Given up")


class Delivery(models.Model):
    """A message to one recipient about one crossing. `message` is its id for whoever gets it, however often it comes.

    `tries` counts those begun; `next_try_at` is when one that was begun, and of whose end nobody heard, is made again.
    The recipient is named by id and outlived.
    """

    id = models.BigAutoField(primary_key=True)
    message = models.UUIDField(unique=True)
    crossing = models.ForeignKey(Crossing, on_delete=models.PROTECT, related_name="deliveries")
    organization = models.UUIDField()
    recipient = models.UUIDField()
    channel = models.CharField(max_length=8, choices=Channel.choices)
    address = models.TextField()
    status = models.CharField(max_length=8, choices=DeliveryStatus.choices)
    tries = models.PositiveSmallIntegerField()
    next_try_at = models.DateTimeField()
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField()
    sent_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = gettext_lazy("deliveries")
        indexes = [
            # What is due; and pruning.
            models.Index(fields=["next_try_at"], name="delivery_due", condition=models.Q(status="waiting")),
            models.Index(fields=["created_at"], name="delivery_by_age"),
        ]

    def __str__(self) -> str:
        return _("%(crossing)s to %(address)s") % {"crossing": self.crossing, "address": self.address}
