"""Where a call can go: providers and their credentials, models, and which provider offers which model at what tariff.

A wire protocol is a module, a vendor is a row of `Provider`, a quirk is a column. Nothing compares vendor names.
"""

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models, transaction

from accounts.models import slug_validator
from accounts.sealing import open_sealed, seal
from billing.models import Tariff
from routing.base_url import BadUrl, parse_base_url

model_slug_validator = RegexValidator(
    r"\A[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._:-]{1,128}\Z",
    "author/name: letters, digits, dots, dashes, underscores.",
)


def validate_base_url(text: str) -> None:
    """Raises ValidationError for what is no base URL of the one grammar."""
    try:
        parse_base_url(text)
    except BadUrl:
        raise ValidationError(
            "Write it like https://api.example.com/v1, without user, query, fragment or escapes."
        ) from None


class Protocol(models.TextChoices):
    """A wire protocol: the module of `gateway/protocols` that speaks it."""

    OPENAI_CHAT = "openai_chat", "OpenAI chat completions"


class AuthStyle(models.TextChoices):
    """How a credential is presented."""

    BEARER = "bearer", "Authorization: Bearer"
    API_KEY = "api-key", "api-key"
    X_API_KEY = "x-api-key", "x-api-key"
    X_GOOG_API_KEY = "x-goog-api-key", "x-goog-api-key"
    NONE = "none", "None"


class CapField(models.TextChoices):
    """The field in which a provider takes an output cap the client did not name itself."""

    MAX_TOKENS = "max_tokens", "max_tokens"
    MAX_COMPLETION_TOKENS = "max_completion_tokens", "max_completion_tokens"


class Provider(models.Model):
    """Who sells: an address, the protocol it speaks, and its quirks as data. Timeouts are seconds.

    A changed `base_url` empties the provider's credentials: a stored secret is never sent to an address its keeper did
    not type it for.
    """

    slug = models.CharField(max_length=64, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=200)
    protocol = models.CharField(max_length=32, choices=Protocol.choices, default=Protocol.OPENAI_CHAT)
    base_url = models.CharField(
        max_length=300, validators=[validate_base_url], help_text="Up to, not including, /chat/completions."
    )
    auth_style = models.CharField(max_length=16, choices=AuthStyle.choices, default=AuthStyle.BEARER)
    active = models.BooleanField(default=True)
    stream_usage = models.BooleanField(default=True, help_text="Takes stream_options.include_usage.")
    cap_field = models.CharField(max_length=24, choices=CapField.choices, default=CapField.MAX_TOKENS)
    connect_timeout = models.FloatField(default=5)
    first_byte_timeout = models.FloatField(default=300, help_text="A whole answer is silent until it is finished.")
    idle_timeout = models.FloatField(default=30, help_text="Between two chunks of an answer.")
    total_timeout = models.FloatField(default=900)

    def __str__(self) -> str:
        return self.slug

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Saves, and empties the credentials when the address changed."""
        with transaction.atomic():
            before = Provider.objects.select_for_update().filter(pk=self.pk).values_list("base_url", flat=True).first()
            super().save(*args, **kwargs)
            if before is not None and before != self.base_url:
                self.credentials.update(sealed="", hint="")


class Credential(models.Model):
    """A provider's secret, sealed and bound to its row and to the address it was typed for."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="credentials")
    name = models.CharField(max_length=64, default="default")
    sealed = models.TextField(blank=True, editable=False)
    hint = models.CharField(max_length=8, blank=True, editable=False)  # the last four characters
    active = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "name"], name="credential_name")]

    def __str__(self) -> str:
        return f"{self.provider.slug}/{self.name}"

    def put(self, secret: str) -> None:
        """Seals `secret` for this row and its provider's present address; the caller saves."""
        if not secret.isascii() or not secret.isprintable() or not secret.strip() or " " in secret:
            raise ValidationError("A secret is printable ASCII without spaces.")
        self.sealed = seal(secret, credential_place(self.id, self.provider.base_url))
        self.hint = secret[-4:] if len(secret) >= 16 else "…"

    def secret(self) -> str:
        """The secret. Raises `accounts.sealing.CannotOpen`."""
        return open_sealed(self.sealed, credential_place(self.id, self.provider.base_url))


def credential_place(credential: uuid.UUID, base_url: str) -> str:
    """Where a credential's secret lies: its row and the address it may be sent to."""
    return f"routing.credential:{credential}:{base_url}"


class Modality(models.TextChoices):
    """What a model reads or writes."""

    TEXT = "text", "Text"
    IMAGE = "image", "Image"
    AUDIO = "audio", "Audio"
    VIDEO = "video", "Video"
    FILE = "file", "File"


def text_only() -> list[str]:
    """The modalities of a model when nobody says otherwise."""
    return [Modality.TEXT]


class Model(models.Model):
    """A model under its public name, whoever sells it. Sizes are tokens; 0 means unknown."""

    slug = models.CharField(max_length=200, unique=True, validators=[model_slug_validator])
    name = models.CharField(max_length=200)
    aliases = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    input_modalities = ArrayField(
        models.CharField(max_length=8, choices=Modality.choices),
        default=text_only,
        blank=True,
        help_text="What it reads; other parts are refused. Empty: not known, and the provider decides.",
    )
    output_modalities = ArrayField(models.CharField(max_length=8, choices=Modality.choices), default=text_only)
    context_length = models.PositiveIntegerField(default=0)
    max_output = models.PositiveIntegerField(default=4096, help_text="Output tokens at most; the cap of a hold.")
    supported_parameters = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    capabilities = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    published_on = models.DateField(null=True, blank=True)
    image_token_bound = models.PositiveIntegerField(default=8192, help_text="Tokens an image counts for in a hold.")
    audio_token_bound = models.PositiveIntegerField(default=32768, help_text="Tokens an audio part counts for.")
    file_token_bound = models.PositiveIntegerField(default=131072, help_text="Tokens a file or video counts for.")
    active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        """Raises ValidationError for an alias that another model already answers to."""
        names = [self.slug, *self.aliases]
        others = Model.objects.exclude(pk=self.pk).filter(models.Q(slug__in=names) | models.Q(aliases__overlap=names))
        taken = others.first()
        if taken:
            raise ValidationError({"aliases": f"{taken.slug} already answers to one of these names."})


class Offer(models.Model):
    """This model, at that provider, under that tariff. A lower priority is tried first; weight shares within one."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="offers")
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="offers")
    upstream_model = models.CharField(max_length=200, help_text="What the provider calls it.")
    priority = models.PositiveSmallIntegerField(default=0)
    weight = models.PositiveSmallIntegerField(default=1)
    tariff = models.ForeignKey(Tariff, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    context_length = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: the model's.")
    max_output = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: the model's.")
    active = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "provider", "upstream_model"], name="one_offer_each")]

    def __str__(self) -> str:
        return f"{self.model.slug} at {self.provider.slug}"
