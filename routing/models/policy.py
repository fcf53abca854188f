"""What operators say about the route of a request; see `routing.planning.policy` for how the levels add up."""

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.core.validators import MinValueValidator
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from accounts.models import ApiKey, Project
from routing.models.model import Model
from routing.models.provider import Provider


class Strategy(models.TextChoices):
    """How the offers of a model are ordered."""

    PRIORITY = "priority", gettext_lazy("By priority, or by the factor")
    ORDER = "order", gettext_lazy("Exactly as listed")
    ROUND_ROBIN = "round_robin", gettext_lazy("In turn")
    LEAST_LATENCY = "least_latency", gettext_lazy("The fastest first")


class Factor(models.TextChoices):
    """What counts first, where the strategy is priority."""

    PRICE = "price", gettext_lazy("Price")
    LATENCY = "latency", gettext_lazy("Time to first token")
    THROUGHPUT = "throughput", gettext_lazy("Tokens a second")
    QUALITY = "quality", gettext_lazy("Quality")


class Level(models.TextChoices):
    """Whose requests a policy is for. The first of them that speaks of a thing decides it."""

    KEY = "key", gettext_lazy("Key")
    PROJECT = "project", gettext_lazy("Project")
    MODEL = "model", gettext_lazy("Model")
    GLOBAL = "global", gettext_lazy("Everything")


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
        help_text=gettext_lazy(
            "Slugs, the first ones first. With the strategy: a request that lists its own is not bound to them."
        ),
    )
    only_providers = ArrayField(
        models.CharField(max_length=64),
        null=True,
        blank=True,
        help_text=gettext_lazy(
            "No request leaves these, whatever it asks for. Several levels: those that all of them name."
        ),
    )
    fallback = models.CharField(
        max_length=200,
        blank=True,
        default="",
        help_text=gettext_lazy(
            "true: other offers may follow; false: none; or a provider's or a model's slug to fall back to."
        ),
    )
    max_attempts = models.PositiveSmallIntegerField(null=True, blank=True, validators=[MinValueValidator(1)])
    first_byte_timeout = models.FloatField(
        null=True, blank=True, help_text=gettext_lazy("Seconds; the provider's, if that is less.")
    )
    total_timeout = models.FloatField(
        null=True, blank=True, help_text=gettext_lazy("Seconds; the provider's, if that is less.")
    )
    refuses_training = models.BooleanField(
        default=False,
        help_text=gettext_lazy("Leaves out providers that train on what they are sent. Any level's word holds."),
    )
    refuses_retention = models.BooleanField(
        default=False,
        help_text=gettext_lazy("Leaves out providers that keep what they are sent. Any level's word holds."),
    )
    continues_streams = models.BooleanField(
        null=True,
        blank=True,
        help_text=gettext_lazy(
            "A text stream that breaks is continued by another offer, billed as two attempts of one generation."
        ),
    )

    class Meta:
        verbose_name_plural = gettext_lazy("policies")
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

    ROW = (
        "level", "key_id", "project_id", "model_id", "strategy", "factor", "providers", "only_providers", "fallback",
        "max_attempts", "first_byte_timeout", "total_timeout", "refuses_training", "refuses_retention",
        "continues_streams",
    )  # fmt: skip

    def row(self) -> tuple[Any, ...]:
        """As `routing.planning.policy.QUERY` reads it once it is saved."""
        return tuple(None if (value := getattr(self, name)) == "" else value for name in self.ROW)

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> "Policy":
        """The policy of the subject that `row` names, made or new, with what `row` says; the caller saves it."""
        said = dict(zip(cls.ROW, row, strict=True))
        whose = {name: said[name] for name in ("level", "key_id", "project_id", "model_id")}
        policy = cls.objects.filter(**whose).first() or cls(**whose)
        for name, value in said.items():
            setattr(policy, name, "" if value is None and name in ("strategy", "factor", "fallback") else value)
        return policy

    def clean(self) -> None:
        """Raises ValidationError, by field, for what no request could follow. Each message says what to do."""
        errors: dict[str, str] = {}
        # The first word on a field is the one to act on.
        for name, message in (*self._subject_errors(), *self._order_errors(), *self._name_errors()):
            errors.setdefault(name, message)
        if not errors and (circle := self._circle()):
            errors["fallback"] = _("Models fall back in a circle: %(circle)s. Change one of them.") % {
                "circle": " -> ".join(circle)
            }
        if errors:
            raise ValidationError(errors)

    def _subject_errors(self) -> Iterator[tuple[str, str]]:
        subjects = {"key": self.key_id, "project": self.project_id, "model": self.model_id}
        for name, given in subjects.items():
            if name == self.level and given is None:
                yield name, str(CHOOSE[name])
            elif name != self.level and given is not None:
                yield (
                    name,
                    _("Leave this empty, or set the level to %(level)s.") % {"level": str(Level(name).label).lower()},
                )
        if self.level == Level.GLOBAL and Policy.objects.filter(level=Level.GLOBAL).exclude(pk=self.pk).exists():
            yield "level", _("There is a policy for everything already: change that one.")

    def _order_errors(self) -> Iterator[tuple[str, str]]:
        if self.strategy == Strategy.ORDER and not self.providers:
            yield "providers", _("List the providers in their order, or choose another strategy.")
        if self.factor and self.strategy not in ("", Strategy.PRIORITY):
            yield "factor", _("A factor sorts under the strategy by priority alone: choose that one, or no factor.")
        for name in ("providers", "only_providers"):
            slugs = getattr(self, name)
            if slugs is not None and not slugs:
                yield name, _("Name at least one provider, or nothing at all for all of them.")
            if twice := sorted({slug for slug in slugs or () if slugs.count(slug) > 1}):
                yield name, _("Listed twice: %(names)s.") % {"names": ", ".join(twice)}
        for name in ("first_byte_timeout", "total_timeout"):
            timeout = getattr(self, name)
            if timeout is not None and timeout <= 0:
                yield name, _("Give more than 0 seconds, or nothing.")

    def _name_errors(self) -> Iterator[tuple[str, str]]:
        known = set(Provider.objects.values_list("slug", flat=True))
        for name in ("providers", "only_providers"):
            if unknown := [slug for slug in getattr(self, name) or () if _provider(slug) not in known]:
                words = _("There is no provider %(names)s.") % {"names": ", ".join(unknown)}
                yield name, f"{words} {_slugs_of(known)}"
        if self.only_providers is not None:
            only = set(map(_provider, self.only_providers))
            if self.providers and only.isdisjoint(map(_provider, self.providers)):
                yield "providers", _("None of these is among the only providers, so no request could go anywhere.")
            if self.fallback in known - only:
                yield "fallback", _("This provider is not among the only providers: add it there, or name another.")
        if self.fallback not in ("", *FLAGS, *known) and named(self.fallback) is None:
            yield (
                "fallback",
                _("There is no provider and no model %(name)s. Write true, false, or the slug of one.")
                % {"name": self.fallback},
            )

    def _circle(self) -> list[str]:
        """The models that fall back to each other for ever by way of this policy, the first one at both ends."""
        if self.level != Level.MODEL or self.model is None:
            return []
        providers = set(Provider.objects.values_list("slug", flat=True))
        others = Policy.objects.filter(level=Level.MODEL).exclude(pk=self.pk).select_related("model")
        falls_to = {policy.model_id: policy.fallback for policy in others}
        falls_to[self.model_id] = self.fallback
        path, model = [self.model], named(self.fallback) if self.fallback not in providers else None
        while model is not None and model not in path:
            path.append(model)
            name = falls_to.get(model.pk, "")
            model = None if name in providers else named(name)
        # One that others run into without being part of it is reported where it is.
        return [*(step.slug for step in path), self.model.slug] if model == self.model else []


FLAGS = ("true", "false")
CHOOSE = {
    "key": gettext_lazy("Choose the key whose requests this is for."),
    "project": gettext_lazy("Choose the project whose requests this is for."),
    "model": gettext_lazy("Choose the model whose requests this is for."),
}


def named(name: str) -> Model | None:
    """The model that answers to `name`, its slug or an alias."""
    if name in ("", *FLAGS):
        return None
    found = Model.objects.filter(models.Q(slug=name) | models.Q(aliases__contains=[name]))
    return found.order_by(models.Case(models.When(slug=name, then=0), default=1)).first()


def _provider(slug: str) -> str:
    """The provider of `provider` or `provider/endpoint`."""
    return slug.partition("/")[0]


def _slugs_of(known: set[str]) -> str:
    shown = sorted(known)[:10]
    if not shown:
        return _("Make one first.")
    told = {"names": ", ".join(shown), "more": len(known) - len(shown)}
    return (_("There are: %(names)s and %(more)s more.") if told["more"] else _("There are: %(names)s.")) % told


class Word(models.TextChoices):
    """What a request may say of the model it wants chosen: a preference, then how hard its task is."""

    BALANCED = "balanced", gettext_lazy("Balanced")
    PERFORMANCE = "performance", gettext_lazy("Performance")
    PRICE = "price", gettext_lazy("Price")
    LOW = "low", gettext_lazy("Low complexity")
    MEDIUM = "medium", gettext_lazy("Medium complexity")
    HIGH = "high", gettext_lazy("High complexity")


class Term(models.TextChoices):
    """What a model is scored by; see `routing.planning.choice`."""

    QUALITY = "quality", gettext_lazy("Quality")
    PRICE = "price", gettext_lazy("Price")
    LATENCY = "latency", gettext_lazy("Latency")
    AVAILABILITY = "availability", gettext_lazy("Availability")
    PARAMETERS = "parameters", gettext_lazy("Parameters")
    DEMAND = "demand", gettext_lazy("Demand")
    TASK = "task", gettext_lazy("Task")


class ChoiceWeight(models.Model):
    """How much a term counts when a request says a word. Where it says two, both count; no row is 0."""

    word = models.CharField(max_length=16, choices=Word.choices)
    term = models.CharField(max_length=16, choices=Term.choices)
    weight = models.FloatField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["word", "term"], name="one_weight_each")]

    def __str__(self) -> str:
        return f"{self.get_word_display()}: {self.get_term_display()}"
