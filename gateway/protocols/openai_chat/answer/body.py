"""The whole body that a stream's chunks make, for a client that does not stream."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.protocols.openai_chat.answer.choice import Choice
from gateway.protocols.openai_chat.answer.held import Held

ENVELOPE = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})


class Body:
    """Collects chunks as they are shown; `held` counts what it keeps. `ours` stands in every answer."""

    __slots__ = ("_held", "_ours", "_top")

    def __init__(self, ours: dict[str, Any], held: Held) -> None:
        self._ours, self._held = ours, held
        self._top: dict[str, Any] = {}  # the chunks' fields beside their choices

    def draw(self, shown: dict[str, Any], choices: Mapping[int, Choice]) -> None:
        """Adds a chunk."""
        if not shown.keys() <= ENVELOPE:
            self._held.add({k: v for k, v in shown.items() if k not in ENVELOPE})
        self._top.update((k, v) for k, v in shown.items() if k != "choices" and v is not None)
        for choice in shown["choices"]:
            choices[choice["index"]].draw(choice)

    def whole(self, choices: Iterable[Choice]) -> dict[str, Any]:
        """The body, once all of it is there."""
        made = []
        for choice in choices:
            self._top.update((k, v) for k, v in choice.envelope.items() if v is not None)
            made.append(choice.whole())
        return self._ours | {"choices": made} | {k: v for k, v in self._top.items() if k not in self._ours}
