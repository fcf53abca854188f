"""What is said of a model besides prices and speed: what it takes, by which API it is asked, and who made it."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from gateway.protocols import speakers
from gateway.protocols.openai_completions.sides import NAME as COMPLETIONS
from gateway.protocols.openai_embeddings.sides import NAME as EMBEDDINGS
from gateway.request.parameters import BY_DEFAULT, supported_by
from routing.catalog import Model
from routing.models import Modality
from routing.models import Model as Row
from routing.models.provider import Protocol

# Parameters that every model's page has a line for; what else a model lists comes behind them.
PARAMETERS = (
    "max_completion_tokens",
    "temperature",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "seed",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "response_format",
    "stop",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
)
ALWAYS = frozenset({"max_completion_tokens", "stop"})  # the gateway sees to them itself, whoever answers
NO_FIELDS = frozenset({"prompt", "suffix", "max_tokens", BY_DEFAULT})  # words of a list that are no parameters here
# How a client asks, each with the protocol of the providers that it reaches without a translation.
SURFACES = (
    ("chat", gettext_lazy("Chat completions"), Protocol.OPENAI_CHAT.value),
    ("responses", gettext_lazy("Responses"), Protocol.OPENAI_RESPONSES.value),
    ("messages", gettext_lazy("Messages"), Protocol.ANTHROPIC_MESSAGES.value),
    ("generateContent", gettext_lazy("generateContent"), Protocol.GOOGLE_GEMINI.value),
)


@dataclass(frozen=True, slots=True)
class Surface:
    """One API. `by`: whether it reaches the model as it is (`passed`), translated, or not at all (nothing)."""

    name: str
    title: str
    by: str

    @property
    def words(self) -> str:
        """For people."""
        return {"passed": _("passed on"), "translated": _("translated")}.get(self.by, "-")


@dataclass(frozen=True, slots=True)
class About:
    """What people say of a model."""

    author: str
    description: str


def about(slugs: Iterable[str] | None = None) -> dict[str, About]:
    """By slug; None: of every model."""
    rows = Row.objects.filter(active=True)
    if slugs is not None:
        rows = rows.filter(slug__in=list(slugs))
    return {
        slug: About(author or slug.partition("/")[0], description)
        for slug, author, description in rows.values_list("slug", "author", "description")
    }


def chats(model: Model) -> bool:
    """Whether it can be asked for a chat: not what makes vectors alone."""
    return set(model.output_modalities) != {Modality.EMBEDDINGS}


def surfaces(model: Model) -> list[Surface]:
    """Each API, and how it reaches the model."""
    spoken = {offer.provider.protocol for offer in model.offers}
    does_chat = chats(model)
    found = [
        Surface(name, str(title), "" if not does_chat else "passed" if protocol in spoken else "translated")
        for name, title, protocol in SURFACES
    ]
    embeds = Modality.EMBEDDINGS in model.output_modalities and bool(spoken & speakers(EMBEDDINGS))
    completes = any(
        "prompt" in offer.supported_parameters and offer.provider.protocol in speakers(COMPLETIONS)
        for offer in model.offers
    )
    return [
        *found,
        Surface("embeddings", _("Embeddings"), "passed" if embeds else ""),
        Surface("completions", _("Completions"), "passed" if completes and does_chat else ""),
    ]


def parameters(model: Model) -> list[tuple[str, str]]:
    """Each parameter with yes, a dash, or that it is not known: for an offer that lists none, to which it is sent."""
    lists = [supported_by(offer.supported_parameters, model.capabilities) for offer in model.offers]
    listed = {name for names in lists for name in names if "=" not in name}
    missing = "-" if all(lists) else _("not known")
    found = [(name, _("yes") if name in listed or name in ALWAYS else missing) for name in PARAMETERS]
    more = listed - set(PARAMETERS) - NO_FIELDS
    return [*found, *((name, _("yes")) for name in sorted(more))]


def takes(model: Model, parameter: str) -> bool:
    """Whether a request may send it: some offer lists it, or lists nothing at all."""
    return dict(parameters(model)).get(parameter, "-") != "-"
