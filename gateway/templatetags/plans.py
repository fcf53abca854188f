"""For the console's pages: a kept plan as a table, and in sentences what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.models import Attempt, Usage
from gateway.console import story
from gateway.generation.explaining import lines

register = template.Library()

SOURCES = {
    "request": gettext_lazy("what the request asked for"),
    "key": gettext_lazy("the key's policy"),
    "project": gettext_lazy("the project's policy"),
    "model": gettext_lazy("the model's policy"),
    "global": gettext_lazy("the policy for everything"),
    "default": gettext_lazy("no policy: by priority"),
}
UNITS = {
    "price": gettext_lazy("${} for a million tokens in and a million out"),
    "latency": "{} s",
    "fastest": "{} s",
    "seat": "{} s",
    "throughput": gettext_lazy("{} tokens/s"),
}


@register.simple_tag
def plan_table(record: Mapping[str, Any] | None) -> dict[str, Any]:
    """The candidates of a plan (`routing.planning.plan.Plan.record`): their order, why, and by which number."""
    rows = [
        (
            line["order"] or "-",
            line["model"],
            line["provider"],
            line["endpoint"],
            _("may be dialled") if line["taken"] else _("behind the last attempt") if line["order"] else _("left out"),
            _(line["why"]).removeprefix("left out: "),
            score(line["reason"], line["score"]),
        )
        for line in (lines(record) if record else ())
    ]
    headers = [_("Order"), _("Model"), _("Provider"), _("Its model"), "", _("Why"), _("Sorted by")]
    return {"headers": headers, "rows": rows}


@register.simple_tag
def told(usage: Usage, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What happened to a generation, in sentences; `rows` are those of `billing.console.timing`."""
    return story.story(usage, [row["attempt"] for row in rows])


@register.filter
def outcome(attempt: Attempt) -> str:
    """How a dial ended, in words."""
    return story.outcome(attempt)


@register.simple_tag
def plan_words(record: Mapping[str, Any] | None) -> str:
    """What decided, in a sentence."""
    if not record:
        return _("No plan was kept with it.")
    said = ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in record.get("policy", {}).items())
    by = SOURCES.get(record["by"], record["by"])
    text = _("Decided by %(by)s.") % {"by": f"{by} ({said})" if said else by}
    choice = record.get("choice")
    if choice:
        models = ", ".join(f"{slug} {mark}" for slug, mark in choice["models"])
        told = {"preference": choice["preference"], "models": models}
        text += " " + _("The model was chosen by %(preference)s preference: %(models)s.") % told
    return text


def shown(value: Any) -> str:
    """A policy's value in words."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    return (_("yes") if value else _("no")) if isinstance(value, bool) else str(value)


def score(reason: str, number: float | None) -> str:
    """What an offer was sorted by."""
    if number is None:
        return "-"
    return str(UNITS.get(reason, "{}")).format(f"{number:g}")
