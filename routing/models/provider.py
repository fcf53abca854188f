"""Who sells: providers, and the secrets they know us by.

A wire protocol is a module, a vendor is a row of `Provider`, a quirk is a column. Nothing compares vendor names.
"""

import re
import uuid
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import slug_validator
from accounts.sealing import open_sealed, seal
from routing import provider_secret
from routing.base_url import BadUrl, parse_base_url
from routing.provider_secret import UnusableSecret

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
            _("Write it like https://api.example.com/v1, without user, query, fragment or escapes.")
        ) from None
    for path in ENDPOINTS:
        if text.rstrip("/").endswith(path):
            raise ValidationError(
                _("This is an endpoint, not a base URL: leave %(path)s off, it is added to each call.") % {"path": path}
            )


class Protocol(models.TextChoices):
    """A wire protocol: the module of `gateway/protocols` that speaks it."""

    OPENAI_CHAT = "openai_chat", gettext_lazy("OpenAI chat completions")
    OPENAI_RESPONSES = "openai_responses", gettext_lazy("OpenAI Responses")
    ANTHROPIC_MESSAGES = "anthropic_messages", gettext_lazy("Anthropic Messages")
    GOOGLE_GEMINI = "google_gemini", gettext_lazy("Google generateContent")


# What the thoughts that a protocol's own providers sign say in `format`, where a provider's row says nothing else.
FORMATS = {
    Protocol.OPENAI_RESPONSES.value: "openai-responses-v1",
    Protocol.ANTHROPIC_MESSAGES.value: "anthropic-claude-v1",
    Protocol.GOOGLE_GEMINI.value: "google-gemini-v1",
}


class Variant(models.TextChoices):
    """How a service that sells a protocol is called, where that differs from its maker's."""

    PLAIN = "", gettext_lazy("As its maker has it")
    INVOKE = "invoke", gettext_lazy("AWS Bedrock: InvokeModel")
    RAW_PREDICT = "raw_predict", gettext_lazy("Google Vertex: rawPredict")
    DEPLOYMENTS = "deployments", gettext_lazy("Azure OpenAI: deployments")


class Called(NamedTuple):
    """How a variant is called: `protocol` it is one of, what its base URL must look like, and an example of that."""

    protocol: Protocol
    base_url: re.Pattern[str]
    example: str


CALLED = {
    Variant.INVOKE: Called(
        Protocol.ANTHROPIC_MESSAGES,
        re.compile(r"(?!.*/(?:v1|model|models|openai|anthropic)(?:/|\Z)).*"),
        "https://bedrock-runtime.us-east-1.amazonaws.com",
    ),
    Variant.RAW_PREDICT: Called(
        Protocol.ANTHROPIC_MESSAGES,
        re.compile(r".*/projects/[^/]+/locations/[^/]+"),
        "https://us-east5-aiplatform.googleapis.com/v1/projects/PROJECT/locations/us-east5",
    ),
    Variant.DEPLOYMENTS: Called(
        Protocol.OPENAI_CHAT,
        re.compile(r".*/openai"),
        "https://RESOURCE.openai.azure.com/openai",
    ),
}


class AuthStyle(models.TextChoices):
    """How a credential is presented."""

    BEARER = "bearer", gettext_lazy("Authorization: Bearer")
    API_KEY = "api-key", gettext_lazy("api-key")
    X_API_KEY = "x-api-key", gettext_lazy("x-api-key")
    X_GOOG_API_KEY = "x-goog-api-key", gettext_lazy("x-goog-api-key")
    SIGV4 = "sigv4", gettext_lazy("AWS signature, with an access key")
    SERVICE_ACCOUNT = "service-account", gettext_lazy("Google service account")
    NONE = "none", gettext_lazy("None")


class CapField(models.TextChoices):
    """The field in which a provider takes an output cap the client did not name itself."""

    MAX_TOKENS = "max_tokens", gettext_lazy("max_tokens")
    MAX_COMPLETION_TOKENS = "max_completion_tokens", gettext_lazy("max_completion_tokens")


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
        help_text=gettext_lazy("What it is asked in. Clients may speak any of them, whatever this one is."),
    )
    variant = models.CharField(
        max_length=32,
        choices=Variant.choices,
        default=Variant.PLAIN,
        db_default=Variant.PLAIN,
        blank=True,
        help_text=gettext_lazy("How the service that sells it is called, where that differs from its maker's."),
    )
    base_url = models.CharField(
        max_length=300,
        validators=[validate_base_url],
        help_text=gettext_lazy(
            "Up to, not including, /chat/completions, /responses, /messages, /models, /model or /publishers."
        ),
    )
    api_version = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        validators=[
            RegexValidator(
                r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", gettext_lazy("Letters, digits, dots, dashes and underscores.")
            )
        ],
        help_text=gettext_lazy("Of Azure: sent with each call as api-version."),
    )
    auth_style = models.CharField(
        max_length=16,
        choices=AuthStyle.choices,
        default=AuthStyle.BEARER,
        help_text=gettext_lazy(
            "What a credential then is: the key itself; ID:SECRET, or ID:SECRET:SESSION_TOKEN, of an AWS access "
            "key; the whole JSON document of a Google service account's key."
        ),
    )
    region = models.CharField(
        max_length=32,
        blank=True,
        default="",
        db_default="",
        validators=[RegexValidator(r"\A[a-z]+(-[a-z0-9]+)+\Z", gettext_lazy("Write it like us-east-1."))],
        help_text=gettext_lazy("Of AWS: that its signatures are for."),
    )
    active = models.BooleanField(default=True)
    stream_usage = models.BooleanField(default=True, help_text=gettext_lazy("Takes stream_options.include_usage."))
    cap_field = models.CharField(max_length=24, choices=CapField.choices, default=CapField.MAX_TOKENS)
    connect_timeout = models.FloatField(default=5)
    first_byte_timeout = models.FloatField(
        default=300, help_text=gettext_lazy("A whole answer is silent until it is finished.")
    )
    idle_timeout = models.FloatField(default=30, help_text=gettext_lazy("Between two chunks of an answer."))
    total_timeout = models.FloatField(default=900)
    failure_threshold = models.PositiveSmallIntegerField(
        default=5,
        validators=[MinValueValidator(1)],
        help_text=gettext_lazy("Failures in a row after which an offer rests."),
    )
    cooldown = models.FloatField(
        default=15,
        help_text=gettext_lazy(
            "Seconds an offer rests the first time, and after a 429 that does not say for how long."
        ),
    )
    max_event_bytes = models.PositiveIntegerField(
        default=32 << 20,
        db_default=32 << 20,
        validators=[MinValueValidator(LEAST_EVENT_BYTES), MaxValueValidator(MOST_EVENT_BYTES)],
        help_text=gettext_lazy(
            "Of one event, or of one whole body: 65,536 to 67,108,864. A picture or a sound may be in it."
        ),
    )
    trains_on_data = models.BooleanField(default=False, help_text=gettext_lazy("Trains models on what it is sent."))
    retains_data = models.BooleanField(
        default=True, help_text=gettext_lazy("Keeps what it is sent beyond the request.")
    )
    reasoning_format = models.CharField(
        max_length=64,
        blank=True,
        default="",
        help_text=gettext_lazy(
            "What its entries of reasoning_details say in `format`; it is not sent those that say another. "
            "Empty: not known, and it is sent all."
        ),
    )

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        """Raises ValidationError for columns that do not go together."""
        wrong: dict[str, str] = {}
        called = CALLED.get(Variant(self.variant)) if self.variant in Variant.values else None
        if called is not None and self.protocol != called.protocol:
            wrong["variant"] = _("This is a variant of %(protocol)s, which is not the protocol.") % {
                "protocol": called.protocol.label
            }
        elif called is not None and not called.base_url.fullmatch(self.base_url.rstrip("/")):
            wrong["base_url"] = _("For this variant write it like %(example)s; the rest is added to each call.") % {
                "example": called.example
            }
        if self.variant == Variant.DEPLOYMENTS and not self.api_version:
            wrong["api_version"] = _("This variant needs one, such as 2024-10-21.")
        if self.auth_style == AuthStyle.SIGV4 and not self.region:
            wrong["region"] = _("AWS's signatures are for a region: write it like us-east-1.")
        if wrong:
            raise ValidationError(wrong)

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
    billed_as = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        validators=[RegexValidator(r"\A\w[^\x00-\x1f\x7f]*\Z", gettext_lazy("It begins with a letter or a digit."))],
        help_text=gettext_lazy(
            "What the provider's bill calls this key: its id there, such as key_abc123. Empty: its name."
        ),
    )

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "name"], name="credential_name")]

    def __str__(self) -> str:
        return f"{self.provider.slug}/{self.name}"

    def put(self, secret: str) -> None:
        """Seals `secret` for this row and its provider's present address; the caller saves.

        Raises ValidationError for what is no secret of the provider's auth style.
        """
        style = self.provider.auth_style
        try:
            provider_secret.check(style, secret)
        except UnusableSecret as error:
            raise ValidationError(_sentence(str(error))) from None
        self.sealed = seal(secret, self.place())
        self.hint = provider_secret.hint(style, secret)

    def secret(self) -> str:
        """The secret. Raises `accounts.sealing.CannotOpen`."""
        return open_sealed(self.sealed, self.place())

    def place(self) -> str:
        """Where its secret lies: this row, and the address it may be sent to."""
        return credential_place(self.id, self.provider.base_url)

    def misfit(self) -> str | None:
        """Why the stored secret is none of the provider's auth style, as it may be since that was changed; None: it is.

        Raises `accounts.sealing.CannotOpen`.
        """
        try:
            provider_secret.check(self.provider.auth_style, self.secret())
        except UnusableSecret as error:
            return _sentence(str(error))
        return None

    def token_address(self) -> str | None:
        """Where the stored secret is changed into a token, if it is one that is.

        Raises `accounts.sealing.CannotOpen`, `UnusableSecret`.
        """
        return provider_secret.token_address(self.provider.auth_style, self.secret())


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def credential_place(credential: uuid.UUID, base_url: str) -> str:
    """Where a credential's secret lies: its row and the address it may be sent to."""
    return f"routing.credential:{credential}:{base_url}"
