"""Who is calling: people, the organizations that pay, their projects, and the keys their programs carry."""

import uuid
from ipaddress import ip_network
from typing import Any
from zoneinfo import available_timezones

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts import sealing
from accounts.log import AuditBlock, AuditEvent
from accounts.roles import Role

__all__ = ["AuditBlock", "AuditEvent"]  # of another file, for Django to find here

slug_validator = RegexValidator(
    r"\A[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?\Z", gettext_lazy("Lower-case letters, digits and inner dashes, 64 at most.")
)


def check_time_zone(name: str) -> None:
    """Raises ValidationError unless this is a name of the IANA time zone database."""
    if name not in available_timezones():
        raise ValidationError(_("There is no such time zone. Write it as in Europe/Berlin, or UTC."))


def dialect_choices() -> list[tuple[str, str]]:
    """The names of the API's dialects, as choices. A callable, so that a further one needs no migration."""
    return [(name, name) for name in settings.DIALECTS]


def most_payload_days() -> int:
    """For how many days prompts and answers may be kept at most, in this installation."""
    most: int = settings.PAYLOAD_DAYS_MOST
    return most


class User(AbstractUser):
    """A person who logs in to the console. Programs carry keys instead."""


class Organization(models.Model):
    """A tenant: who pays, and the wall nothing crosses."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.CharField(max_length=64, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=200)
    active = models.BooleanField(
        default=True, help_text=gettext_lazy("Off: every key is refused and open streams are cut.")
    )
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        db_default="UTC",
        validators=[check_time_zone],
        help_text=gettext_lazy(
            "Days, weeks and months of its budgets begin by it, as in Europe/Berlin. The books are in UTC."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.slug


class Project(models.Model):
    """A part of an organization with keys, budgets and defaults of its own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.PROTECT, related_name="projects")
    slug = models.CharField(max_length=64, validators=[slug_validator])
    name = models.CharField(max_length=200)
    active = models.BooleanField(
        default=True, help_text=gettext_lazy("Off: every key is refused and open streams are cut.")
    )
    default_output_cap = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=gettext_lazy("Output tokens a request may have when it names no cap. Empty: the model's."),
    )
    # Defaults of the database too, here and below: a process from before the column still adds rows.
    dialect = models.CharField(
        max_length=32,
        choices=dialect_choices,
        default="standard",
        db_default="standard",
        help_text=gettext_lazy(
            "Whose errors, headers and limits clients meet: a vendor's they were written for, or OpenAI's."
        ),
    )
    strict_params = models.BooleanField(
        default=False,
        db_default=False,
        help_text=gettext_lazy(
            "On: a parameter that the model does not support, or nobody knows, is refused. "
            "Off: the first is left out and named in the answer's X-Gateway-Ignored-Params, the second is sent on."
        ),
    )
    sends_unknown_params = models.BooleanField(
        default=False,
        db_default=False,
        help_text=gettext_lazy(
            "On: a parameter that nobody knows is sent on under a hard budget as well. "
            "Off: there it is left out and named, since it might cost what nobody held."
        ),
    )
    payload_days = models.PositiveSmallIntegerField(
        gettext_lazy("keep payloads"),
        default=0,
        db_default=0,
        validators=[MaxValueValidator(most_payload_days)],
        help_text=gettext_lazy(
            "Days that prompts and answers of its requests are kept, encrypted. An owner or the operator "
            "reads one by giving a reason, which the audit log has. 0: nothing is kept, and what was kept is deleted."
        ),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "slug"], name="project_slug")]

    def __str__(self) -> str:
        return f"{self.organization.slug}/{self.slug}"


class Membership(models.Model):
    """A person's role in an organization."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "organization"], name="one_role_each")]

    def __str__(self) -> str:
        return _("%(person)s: %(role)s of %(slug)s") % {
            "person": self.user.get_username(),
            "role": self.role,
            "slug": self.organization.slug,
        }


class Scope(models.TextChoices):
    """What a key may be used for."""

    INFERENCE = "inference", gettext_lazy("Inference")
    FILES = "files", gettext_lazy("Files")
    MANAGEMENT = "management", gettext_lazy("Management")
    EXPORT = "export", gettext_lazy("Export")


def inference_only() -> list[str]:
    """The scopes of a key when nobody says otherwise."""
    return [Scope.INFERENCE]


def validate_network(text: str) -> None:
    """Raises ValidationError unless `text` is an IPv4 or IPv6 address or network (CIDR)."""
    try:
        ip_network(text)
    except ValueError as error:
        raise ValidationError(_("%(text)s is not an IP address or network.") % {"text": repr(text)}) from error


class OnLeave(models.TextChoices):
    """What becomes of an answer whose client has left before its end."""

    STOP = "stop", gettext_lazy("Stop: leave the provider at once, and estimate")
    DRAIN = "drain", gettext_lazy("Drain: read the provider on for its usage, for a while")
    FINISH = (
        "finish",
        gettext_lazy("Finish: read the provider to its end, and keep the answer under its Idempotency-Key"),
    )


class ApiKey(models.Model):
    """What a program carries. The secret is shown once; the row holds its digest. Times are UTC.

    A key is alive while it is not revoked, `valid_from` has come, `expires_at` (exclusive) has not, and its owner (when
    it has one), project and organization are active. Empty lists allow everything; they only ever narrow.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="keys")
    owner = models.ForeignKey(
        User,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        help_text=gettext_lazy("The person it belongs to. A disabled person's keys are refused."),
    )
    name = models.CharField(max_length=200)
    digest = models.BinaryField(max_length=32, unique=True, editable=False)
    prefix = models.CharField(max_length=24, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices), default=inference_only)
    allowed_endpoints = ArrayField(
        models.CharField(max_length=64),
        default=list,
        blank=True,
        help_text=gettext_lazy("Such as chat/completions. Empty: all."),
    )
    allowed_models = ArrayField(
        models.CharField(max_length=200), default=list, blank=True, help_text=gettext_lazy("Model slugs. Empty: all.")
    )
    allowed_ips = ArrayField(
        models.CharField(max_length=64, validators=[validate_network]),
        default=list,
        blank=True,
        help_text=gettext_lazy("Addresses or networks a call may come from. Empty: all."),
    )
    max_request_price = models.DecimalField(
        max_digits=24,
        decimal_places=12,
        null=True,
        blank=True,
        help_text=gettext_lazy("Dollars one request may cost at worst."),
    )
    min_output_cap = models.PositiveIntegerField(
        default=1, help_text=gettext_lazy("When money runs short the output cap is lowered, but never below this.")
    )
    on_leave = models.CharField(
        max_length=8,
        choices=OnLeave.choices,
        default=OnLeave.DRAIN,
        db_default=OnLeave.DRAIN,
        help_text=gettext_lazy(
            "What becomes of an answer whose client leaves before its end. Either way the tenant pays for it. "
            "Drained or finished, one to a request with an Idempotency-Key is picked up by sending that again."
        ),
    )
    dialect = models.CharField(
        max_length=32,
        choices=dialect_choices,
        default="",
        db_default="",
        blank=True,
        help_text=gettext_lazy("Empty: the project's."),
    )
    valid_from = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = gettext_lazy("key")

    def __str__(self) -> str:
        return f"{self.project}/{self.name} ({self.prefix})"

    def clean(self) -> None:
        """Raises ValidationError for a window that never opens."""
        if self.valid_from and self.expires_at and self.valid_from >= self.expires_at:
            raise ValidationError({"expires_at": _("Must be later than the start.")})


class Change(models.Model):
    """One changed row of configuration, written by triggers; processes refresh their snapshot from these.

    Read by transaction id, not by `id`: a sequence is handed out before its transaction commits, so a reader that
    remembers the highest `id` would miss a slower writer.
    """

    id = models.BigAutoField(primary_key=True)
    xid = models.BigIntegerField()
    table = models.CharField(max_length=64)
    row = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["xid"], name="change_by_xid"),  # read by every process's poll
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Only triggers write changes."""
        raise TypeError("changes are written by the database's triggers")


class LoginAttempts(models.Model):
    """Failed attempts to log in since `begun`, of an account, a network or both. See `accounts.login_attempts`."""

    place = models.CharField(primary_key=True, max_length=96)
    begun = models.DateTimeField()
    failures = models.IntegerField()
    succeeded_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.place}: {self.failures}"


class Totp(models.Model):
    """A person's authenticator app (RFC 6238). `last_step` is the window of 30 s whose code was used last."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.OneToOneField(User, on_delete=models.CASCADE, related_name="totp")
    sealed = models.TextField(editable=False)
    last_step = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.user.get_username()}: authenticator app"

    def place(self) -> str:
        """What the seed is sealed for: this person's row."""
        return f"accounts_totp {self.user_id}"

    def secret(self) -> str:
        """The seed, in base32. Raises `accounts.sealing.CannotOpen`."""
        return sealing.open_sealed(self.sealed, self.place())


class RecoveryCode(models.Model):
    """A code that stands in for a lost second factor, once: its use deletes it."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    digest = models.BinaryField(max_length=32)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "digest"], name="recovery_code_once")]

    def __str__(self) -> str:
        return f"{self.user.get_username()}: recovery code"


class Passkey(models.Model):
    """A public key that a person's device signs with (WebAuthn). `credential` is as the device attested it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="passkeys")
    credential_id = models.BinaryField(max_length=1023, unique=True)
    credential = models.BinaryField(max_length=4096)
    sign_count = models.BigIntegerField(default=0)
    name = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.user.get_username()}: {self.name}"


class Identity(models.Model):
    """Who a person is at an identity provider, and what its groups have `granted` here (`accounts.sign_in.groups`)."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=255)
    subject = models.CharField(max_length=255)
    granted = models.JSONField(default=dict)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="identity_once")]

    def __str__(self) -> str:
        return f"{self.user.get_username()}: {self.subject} at {self.issuer}"


class Invitation(models.Model):
    """A membership offered to whoever reads the mail of an address. Its token is in that mail; here is its digest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField()
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=16, choices=Role.choices)
    digest = models.BinaryField(max_length=32, unique=True)
    invited_by = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    accepted_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    mailed = models.BooleanField(default=False)  # else its link was handed over, and nothing shows whose address it is
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [models.Index(fields=["organization", "-created_at"], name="invitation_by_organization")]

    def __str__(self) -> str:
        return f"{self.email}: {self.role} of {self.organization.slug}"


class SignedIn(models.Model):
    """A session in which a person has signed in: goes with its row of `django_session`, by the database's own doing."""

    session_key = models.CharField(primary_key=True, max_length=40)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="signed_in")
    address = models.CharField(max_length=45)
    device = models.CharField(max_length=200)
    begun_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.user.get_username()}: {self.device}"
