"""What operators say about the route of a request; see `routing.policy` for how the levels add up."""

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator
from django.db import models

from accounts.models import ApiKey, Project
from routing.models.model import Model


class Strategy(models.TextChoices):
    """How the offers of a model are ordered."""

    PRIORITY = "priority", "By priority, or by the factor"
    ORDER = "order", "Exactly as listed"
    ROUND_ROBIN = "round_robin", "In turn"
    LEAST_LATENCY = "least_latency", "The fastest first"


class Factor(models.TextChoices):
    """What counts first, where the strategy is priority."""

    PRICE = "price", "Price"
    LATENCY = "latency", "Time to first token"
    THROUGHPUT = "throughput", "Tokens a second"
    QUALITY = "quality", "Quality"


class Level(models.TextChoices):
    """Whose requests a policy is for. The first of them that speaks of a thing decides it."""

    KEY = "key", "Key"
    PROJECT = "project", "Project"
    MODEL = "model", "Model"
    GLOBAL = "global", "Everything"


class Policy(models.Model):
    """What one key, project or model, or the whole installation, says. What is empty is left to the next level."""

    level = models.CharField(max_length=8, choices=Level.choices)
    key = models.OneToOneField(ApiKey, on_delete=models.CASCADE, null=True, blank=True, related_name="policy")
    project = models.OneToOneField(Project, on_delete=models.CASCADE, null=True, blank=True, related_name="policy")
    model = models.OneToOneField(Model, on_delete=models.CASCADE, null=True, blank=True, related_name="policy")
    strategy = models.CharField(max_length=16, choices=Strategy.choices, blank=True, default="")
    factor = models.CharField(max_length=16, choices=Factor.choices, blank=True, default="")
    providers = ArrayField(
        models.CharField(max_length=64),
        null=True,
        blank=True,
        help_text="Slugs, the first ones first. With the strategy: a request that lists its own is not bound to them.",
    )
    only_providers = ArrayField(
        models.CharField(max_length=64),
        null=True,
        blank=True,
        help_text="No request leaves these, whatever it asks for. Several levels: those that all of them name.",
    )
    fallback = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text="true: other offers may follow; false: none; or a provider's or a model's slug to fall back to.",
    )
    max_attempts = models.PositiveSmallIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    first_byte_timeout = models.FloatField(null=True, blank=True, help_text="Seconds; the provider's, if that is less.")
    total_timeout = models.FloatField(null=True, blank=True, help_text="Seconds; the provider's, if that is less.")
    refuses_training = models.BooleanField(
        default=False, help_text="Leaves out providers that train on what they are sent. Any level's word holds."
    )
    refuses_retention = models.BooleanField(
        default=False, help_text="Leaves out providers that keep what they are sent. Any level's word holds."
    )
    continues_streams = models.BooleanField(
        null=True,
        blank=True,
        help_text="A text stream that breaks is continued by another offer, billed as two attempts of one generation.",
    )

    class Meta:
        verbose_name_plural = "policies"
        constraints = [
            models.CheckConstraint(
                name="policy_subject",
                condition=models.Q(level="key", key__isnull=False, project=None, model=None)
                | models.Q(level="project", key=None, project__isnull=False, model=None)
                | models.Q(level="model", key=None, project=None, model__isnull=False)
                | models.Q(level="global", key=None, project=None, model=None),
            ),
            models.UniqueConstraint(fields=["level"], condition=models.Q(level="global"), name="one_global_policy"),
        ]

    def __str__(self) -> str:
        subject = self.key or self.project or self.model
        return f"{self.get_level_display()} {subject}" if subject else self.get_level_display()


class Word(models.TextChoices):
    """What a request may say of the model it wants chosen: a preference, then how hard its task is."""

    BALANCED = "balanced", "Balanced"
    PERFORMANCE = "performance", "Performance"
    PRICE = "price", "Price"
    LOW = "low", "Low complexity"
    MEDIUM = "medium", "Medium complexity"
    HIGH = "high", "High complexity"


class Term(models.TextChoices):
    """What a model is scored by; see `routing.choice`."""

    QUALITY = "quality", "Quality"
    PRICE = "price", "Price"
    LATENCY = "latency", "Latency"
    AVAILABILITY = "availability", "Availability"
    PARAMETERS = "parameters", "Parameters"
    DEMAND = "demand", "Demand"
    TASK = "task", "Task"


class ChoiceWeight(models.Model):
    """How much a term counts when a request says a word. Where it says two, both count; no row is 0."""

    word = models.CharField(max_length=16, choices=Word.choices)
    term = models.CharField(max_length=16, choices=Term.choices)
    weight = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["word", "term"], name="one_weight_each")]

    def __str__(self) -> str:
        return f"{self.get_word_display()}: {self.get_term_display()}"
