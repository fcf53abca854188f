"""For the console's pages: a kept plan as a table, and in sentences what came of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import template

from billing.models import Attempt, Usage
from gateway.console import story
from gateway.generation.explaining import lines

register = template.Library()

SOURCES = {
    "request": "what the request asked for",
    "key": "the key's policy",
    "project": "the project's policy",
    "model": "the model's policy",
    "global": "the policy for everything",
    "default": "no policy: by priority",
}
UNITS = {
    "price": "${} for a million tokens in and a million out",
    "latency": "{} s",
    "fastest": "{} s",
    "seat": "{} s",
    "throughput": "{} tokens/s",
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
            "may be dialled" if line["taken"] else "behind the last attempt" if line["order"] else "left out",
            line["why"].removeprefix("left out: "),
            score(line["reason"], line["score"]),
        )
        for line in (lines(record) if record else ())
    ]
    return {"headers": ["Order", "Model", "Provider", "Its model", "", "Why", "Sorted by"], "rows": rows}


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
        return "No plan was kept with it."
    said = ", ".join(f"{name.replace('_', ' ')} {shown(value)}" for name, value in record.get("policy", {}).items())
    text = f"Decided by {SOURCES.get(record['by'], record['by'])}{f' ({said})' if said else ''}."
    choice = record.get("choice")
    if choice:
        models = ", ".join(f"{slug} {mark}" for slug, mark in choice["models"])
        text += f" The model was chosen by {choice['preference']} preference: {models}."
    return text


def shown(value: Any) -> str:
    """A policy's value in words."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def score(reason: str, number: float | None) -> str:
    """What an offer was sorted by."""
    if number is None:
        return "-"
    return UNITS.get(reason, "{}").format(f"{number:g}")
