"""How much a model is to think, between this protocol's fields and the wish of the chat form.

    thinking: {"type": "enabled", "budget_tokens": 2000}, {"type": "adaptive"}, {"type": "disabled"}
    output_config: {"effort": "high"}

Older models take a budget, of at least `LEAST_BUDGET` and below the cap; newer ones refuse it and think as they see fit
within an effort. Which of the two an offer's model takes is its row's to say (`Takes`).
"""

from collections.abc import Mapping
from typing import Any

from gateway.protocols.anthropic_messages.forms.takes import Takes
from gateway.protocols.openai_chat.request.reasoning import LEAST_BUDGET, ReasoningWish, budget_of, effort_of

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_BY_DEFAULT = "medium"  # where a budget must be named and the client named neither budget nor effort


def wish(thinking: Mapping[str, Any] | None, effort: str | None) -> dict[str, Any] | None:
    """The chat form's `reasoning` of a client's checked fields; None: nothing was said."""
    if thinking is None:
        return None if effort is None else {"effort": effort}
    if thinking["type"] == "disabled":
        return {"enabled": False}
    made: dict[str, Any] = {"enabled": True}
    amounts = {"max_tokens": thinking.get("budget_tokens"), "effort": effort}
    return made | {name: amount for name, amount in amounts.items() if amount is not None}


def asked(wish: ReasoningWish | None, cap: int, takes: Takes) -> tuple[dict[str, Any] | None, str | None]:
    """`thinking` and `output_config.effort` for a provider, whose answer may take `cap` tokens.

    None for what does not go. A cap with no room for the least budget leaves nothing to think in: then there is no
    `thinking` though it was wished for, and whoever calls tells the client.
    """
    if wish is None:
        return None, None
    if not wish.enabled or wish.effort in ("none", "minimal"):
        return {"type": "disabled"}, None
    if takes.adaptive:
        effort = wish.effort or (None if wish.max_tokens is None else effort_of(wish, cap))
        return {"type": "adaptive"}, effort if effort in EFFORTS else None
    if cap <= LEAST_BUDGET:
        return None, None
    if wish.max_tokens is None and wish.effort is None:
        wish = ReasoningWish(True, _BY_DEFAULT, None)
    budget = budget_of(wish, cap)
    assert budget is not None
    return {"type": "enabled", "budget_tokens": min(budget, cap - 1)}, None
