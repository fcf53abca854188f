"""What is sold: models under their public names, and which provider offers which, at what tariff."""

from collections.abc import Collection

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.models import Tariff
from routing.models.provider import Provider

model_slug_validator = RegexValidator(
    r"\A[A-Za-z0-9._-]{1,64}/[A-Za-z0-9._:-]{1,128}\Z",
    gettext_lazy("author/name: letters, digits, dots, dashes, underscores."),
)


class Modality(models.TextChoices):
    """What a model reads or writes."""

    TEXT = "text", gettext_lazy("Text")
    IMAGE = "image", gettext_lazy("Image")
    AUDIO = "audio", gettext_lazy("Audio")
    VIDEO = "video", gettext_lazy("Video")
    FILE = "file", gettext_lazy("File")
    EMBEDDINGS = "embeddings", gettext_lazy("Embeddings")


READABLE = [choice for choice in Modality.choices if choice[0] != Modality.EMBEDDINGS]


def text_only() -> list[str]:
    """The modalities of a model when nobody says otherwise."""
    return [Modality.TEXT]


def never_written(output_modalities: Collection[str]) -> tuple[str, ...]:
    """Items of a tariff that a model which makes this has no use for: whatever makes vectors alone writes nothing."""
    return ("output",) if set(output_modalities) == {Modality.EMBEDDINGS} else ()


class Model(models.Model):
    """A model under its public name, whoever sells it. Sizes are tokens; 0 means unknown."""

    slug = models.CharField(max_length=200, unique=True, validators=[model_slug_validator])
    name = models.CharField(max_length=200)
    author = models.CharField(
        max_length=100,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy("Who made it, as people call them. Empty: the first half of the slug."),
    )
    description = models.TextField(
        max_length=4000,
        blank=True,
        default="",
        db_default="",
        help_text=gettext_lazy("What it is good for, to who chooses a model."),
    )
    aliases = ArrayField(models.CharField(max_length=200), default=list, blank=True)
    input_modalities = ArrayField(
        models.CharField(max_length=8, choices=READABLE),
        default=text_only,
        blank=True,
        help_text=gettext_lazy("What it reads; other parts are refused. Empty: not known, and the provider decides."),
    )
    output_modalities = ArrayField(
        models.CharField(max_length=16, choices=Modality.choices),
        default=text_only,
        help_text=gettext_lazy(
            "What it makes. Embeddings: it is asked at /v1/embeddings, and a tariff of it needs no output rate."
        ),
    )
    context_length = models.PositiveIntegerField(default=0)
    max_output = models.PositiveIntegerField(
        default=4096, help_text=gettext_lazy("Output tokens at most; the cap of a hold.")
    )
    supported_parameters = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    capabilities = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    published_on = models.DateField(null=True, blank=True)
    image_token_bound = models.PositiveIntegerField(
        default=8192, help_text=gettext_lazy("Tokens an image counts for in a hold.")
    )
    audio_token_bound = models.PositiveIntegerField(
        default=32768, help_text=gettext_lazy("Tokens an audio part counts for.")
    )
    file_token_bound = models.PositiveIntegerField(
        default=131072, help_text=gettext_lazy("Tokens a file or video counts for.")
    )
    quality = models.PositiveSmallIntegerField(
        default=50,
        validators=[MaxValueValidator(100)],
        help_text=gettext_lazy("Your own score, 0 to 100; used to choose a model."),
    )
    active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.slug

    def clean(self) -> None:
        """Raises ValidationError for an alias that another model already answers to."""
        names = [self.slug, *self.aliases]
        others = Model.objects.exclude(pk=self.pk).filter(models.Q(slug__in=names) | models.Q(aliases__overlap=names))
        taken = others.first()
        if taken:
            raise ValidationError(
                {"aliases": _("%(slug)s already answers to one of these names.") % {"slug": taken.slug}}
            )


class Forced(models.TextChoices):
    """What an operator says of an offer's breaker; an open breaker lets nothing through."""

    OPEN = "open", gettext_lazy("Forced open")
    CLOSED = "closed", gettext_lazy("Forced closed")


class Offer(models.Model):
    """This model, at that provider, under that tariff. A lower priority is tried first; weight shares within one."""

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="offers")
    provider = models.ForeignKey(Provider, on_delete=models.CASCADE, related_name="offers")
    upstream_model = models.CharField(max_length=200, help_text=gettext_lazy("What the provider calls it."))
    priority = models.PositiveSmallIntegerField(default=0)
    weight = models.PositiveSmallIntegerField(default=1)
    tariff = models.ForeignKey(Tariff, on_delete=models.PROTECT, null=True, blank=True, related_name="+")
    context_length = models.PositiveIntegerField(null=True, blank=True, help_text=gettext_lazy("Empty: the model's."))
    max_output = models.PositiveIntegerField(null=True, blank=True, help_text=gettext_lazy("Empty: the model's."))
    input_modalities = ArrayField(
        models.CharField(max_length=8, choices=READABLE),
        null=True,
        blank=True,
        help_text=gettext_lazy("Empty: the model's."),
    )
    supported_parameters = ArrayField(
        models.CharField(max_length=64),
        null=True,
        blank=True,
        help_text=gettext_lazy("Empty: the model's. `prompt`: it has /completions, too; `suffix`: which fill gaps."),
    )
    quality = models.PositiveSmallIntegerField(
        default=50,
        validators=[MaxValueValidator(100)],
        help_text=gettext_lazy("Your own score of this offer, 0 to 100."),
    )
    forced = models.CharField(
        max_length=8,
        choices=Forced.choices,
        blank=True,
        default="",
        help_text=gettext_lazy("Open: not used until you say otherwise. Closed: used whatever its failures."),
    )
    active = models.BooleanField(default=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "provider", "upstream_model"], name="one_offer_each")]

    def __str__(self) -> str:
        return _("%(model)s at %(provider)s") % {"model": self.model.slug, "provider": self.provider.slug}
