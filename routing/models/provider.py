"""Who sells: providers, and the secrets they know us by.

A wire protocol is a module, a vendor is a row of `Provider`, a quirk is a column. Nothing compares vendor names.
"""

import uuid
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction

from accounts.models import slug_validator
from accounts.sealing import open_sealed, seal
from routing.base_url import BadUrl, parse_base_url

# What is pasted most often in place of a base URL; calls would go to the path twice.
ENDPOINTS = ("/chat/completions", "/completions", "/responses", "/messages", "/embeddings")
# What one event or body may take; the most is what an answer may keep until its end.
LEAST_EVENT_BYTES, MOST_EVENT_BYTES = 64 << 10, 64 << 20


def validate_base_url(text: str) -> None:
    """Raises ValidationError for what is no base URL of the one grammar, or is a whole endpoint."""
    try:
        parse_base_url(text)
    except BadUrl:
        raise ValidationError(
            "Write it like https://api.example.com/v1, without user, query, fragment or escapes."
        ) from None
    for path in ENDPOINTS:
        if text.rstrip("/").endswith(path):
            raise ValidationError(f"This is an endpoint, not a base URL: leave {path} off, it is added to each call.")


class Protocol(models.TextChoices):
    """A wire protocol: the module of `gateway/protocols` that speaks it."""

    OPENAI_CHAT = "openai_chat", "OpenAI chat completions"
    OPENAI_RESPONSES = "openai_responses", "OpenAI Responses"
    ANTHROPIC_MESSAGES = "anthropic_messages", "Anthropic Messages"
    GOOGLE_GEMINI = "google_gemini", "Google generateContent"


class Variant(models.TextChoices):
    """How a service that sells a protocol is called, where that differs from its maker's."""

    PLAIN = "", "As its maker has it"
    INVOKE = "invoke", "AWS Bedrock: InvokeModel"
    RAW_PREDICT = "raw_predict", "Google Vertex: rawPredict"


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
    protocol = models.CharField(
        max_length=32,
        choices=Protocol.choices,
        default=Protocol.OPENAI_CHAT,
        help_text="What it is asked in. Clients may speak any of them, whatever this one is.",
    )
    variant = models.CharField(
        max_length=32,
        choices=Variant.choices,
        default=Variant.PLAIN,
        db_default=Variant.PLAIN,
        blank=True,
        help_text="Of Anthropic Messages: how the service that sells it is called.",
    )
    base_url = models.CharField(
        max_length=300,
        validators=[validate_base_url],
        help_text="Up to, not including, /chat/completions, /responses, /messages, /models, /model or /publishers.",
    )
    auth_style = models.CharField(max_length=16, choices=AuthStyle.choices, default=AuthStyle.BEARER)
    active = models.BooleanField(default=True)
    stream_usage = models.BooleanField(default=True, help_text="Takes stream_options.include_usage.")
    cap_field = models.CharField(max_length=24, choices=CapField.choices, default=CapField.MAX_TOKENS)
    connect_timeout = models.FloatField(default=5)
    first_byte_timeout = models.FloatField(default=300, help_text="A whole answer is silent until it is finished.")
    idle_timeout = models.FloatField(default=30, help_text="Between two chunks of an answer.")
    total_timeout = models.FloatField(default=900)
    failure_threshold = models.PositiveSmallIntegerField(
        default=5, validators=[MinValueValidator(1)], help_text="Failures in a row after which an offer rests."
    )
    cooldown = models.FloatField(
        default=15, help_text="Seconds an offer rests the first time, and after a 429 that does not say for how long."
    )
    max_event_bytes = models.PositiveIntegerField(
        default=32 << 20,
        db_default=32 << 20,
        validators=[MinValueValidator(LEAST_EVENT_BYTES), MaxValueValidator(MOST_EVENT_BYTES)],
        help_text="Of one event, or of one whole body: 65,536 to 67,108,864. A picture or a sound may be in it.",
    )
    trains_on_data = models.BooleanField(default=False, help_text="Trains models on what it is sent.")
    retains_data = models.BooleanField(default=True, help_text="Keeps what it is sent beyond the request.")
    reasoning_format = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text="What its entries of reasoning_details say in `format`; it is not sent those that say another. "
        "Empty: not known, and it is sent all.",
    )

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
