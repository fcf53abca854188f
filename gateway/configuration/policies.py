"""Applying a configuration file's policies, once everything they may name is there, and the weights of the choice."""

from collections.abc import Sequence
from typing import Any

from gateway.configuration.rows import Difference, Wanted, shown, write
from gateway.configuration.schema import POLICY, Entry
from gateway.configuration.tenancy import Bound
from routing.models import ChoiceWeight, Level, Model, Policy


def apply_policies(
    everything: Sequence[Entry], models: Sequence[Wanted[Model]], bounds: Sequence[Bound], difference: Difference
) -> None:
    """Brings policies to what the file says: `everything` is the installation's, the others are by their subjects."""
    asked: list[tuple[Entry, str, dict[str, Any]]] = [
        (entry, "policy", {"level": Level.GLOBAL}) for entry in everything
    ]
    for model in models:
        subject: dict[str, Any] = {"level": Level.MODEL, "model": model.row}
        asked += [(entry, f"policy {model.label}", subject) for entry in model.entry.inner["policy"]]
    for bound in bounds:
        level, row = (Level.KEY, bound.key) if bound.key else (Level.PROJECT, bound.project)
        subject = {"level": level, level.value: row}
        asked += [(entry, f"policy {level} {bound.label}", subject) for entry in bound.entry.inner.get("policy", ())]
    wanted: list[Wanted[Policy]] = []
    for entry, label, whose in asked:
        policy = Policy.objects.filter(**whose).first()
        if entry.removed:
            if policy is not None:
                policy.delete()
                difference.removed(label)
            continue
        columns = entry.column_values(POLICY)
        detail = ", ".join(f"{name} {shown(value)}" for name, value in columns.items())
        wanted.append(Wanted(entry, label, policy or Policy(**whose), policy is None, columns, detail))
    write(wanted, difference)


def apply_weights(entries: Sequence[Entry], difference: Difference) -> None:
    """Brings the weights of the choice among models to what the file says."""
    held = {(row.word, row.term): row for row in ChoiceWeight.objects.all()}
    wanted: list[Wanted[ChoiceWeight]] = []
    for entry in entries:
        given = [(word, term, value) for word, terms in entry.values.items() for term, value in terms.items()]
        for word, term, value in given:
            row, label = held.get((word, term)), f"choice weight {word} {term}"
            if value is not None:
                new = row or ChoiceWeight(word=word, term=term)
                wanted.append(Wanted(entry, label, new, row is None, {"weight": float(value)}, shown(value)))
            elif row is not None:
                row.delete()
                difference.removed(label)
    write(wanted, difference)
