"""How much a model is asked to think. There are three spellings of one wish, and this is their meaning.

    reasoning_effort: "high"
    reasoning: {"enabled": true, "effort": "high", "max_tokens": 2000, "exclude": false}
    thinking: {"type": "enabled", "budget_tokens": 2000}

Where they disagree `reasoning` wins, then `reasoning_effort`. An upstream that takes another spelling than the client
used is sent its own (`spell`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.protocols.openai_chat.request.checks import boolean, fields, integer, one_of

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SPELLINGS = ("reasoning", "reasoning_effort", "thinking")
MAX_BUDGET = 2**31
LEAST_BUDGET = 1024  # Below this Anthropic's models refuse a budget.

# Of a known output cap, the part to think in; without one, tokens. As one vendor's guide and its converter have it.
_PERCENT = {"low": 20, "medium": 50, "high": 80, "xhigh": 80, "max": 80}
_TOKENS = {"low": 2048, "medium": 5120, "high": 10240, "xhigh": 20480, "max": 20480}


@dataclass(frozen=True, slots=True)
class ReasoningWish:
    """Whether to think, and how much: an effort of `EFFORTS`, a cap in tokens, or neither (the model's default)."""

    enabled: bool
    effort: str | None
    max_tokens: int | None


check_effort = one_of("reasoning_effort", EFFORTS)
check_reasoning = fields(
    "reasoning",
    {
        "enabled": boolean("reasoning.enabled"),
        "effort": one_of("reasoning.effort", EFFORTS),
        "max_tokens": integer("reasoning.max_tokens", 1, MAX_BUDGET),
        "exclude": boolean("reasoning.exclude"),
        "usage": fields("reasoning.usage", {"include": boolean("reasoning.usage.include")}, required=("include",)),
    },
)
check_thinking = fields(
    "thinking",
    {
        "type": one_of("thinking.type", ("enabled", "disabled")),
        "budget_tokens": integer("thinking.budget_tokens", 1, MAX_BUDGET),
    },
)


def read_wish(body: Mapping[str, Any], efforts: Mapping[str, str]) -> tuple[ReasoningWish | None, dict[str, Any]]:
    """The wish of a checked body, and the fields to be sent on otherwise than they came.

    `efforts` are those a dialect takes for another. None: nothing was said.
    """
    if "reasoning" not in body and "reasoning_effort" not in body and "thinking" not in body:
        return None, {}
    reasoning: dict[str, Any] | None = body.get("reasoning")
    effort: str | None = body.get("reasoning_effort")
    thinking: dict[str, Any] | None = body.get("thinking")
    inner = None if reasoning is None else reasoning.get("effort")
    meant = effort if inner is None else inner
    if meant is not None:
        meant = efforts.get(meant, meant)
    changes: dict[str, Any] = {}
    if reasoning is not None and inner != meant and inner is not None:
        changes["reasoning"] = {**reasoning, "effort": meant}
    if effort is not None and effort != meant:
        changes["reasoning_effort"] = meant
    enabled = budget = None
    if reasoning is not None:
        enabled, budget = reasoning.get("enabled"), reasoning.get("max_tokens")
    elif thinking is not None and effort is None:
        enabled, budget = thinking.get("type") != "disabled", thinking.get("budget_tokens")
    return ReasoningWish(meant != "none" if enabled is None else enabled, meant, budget), changes


def spell(wish: ReasoningWish, spelling: str, output_cap: int | None) -> Any:
    """The wish as the field `spelling` of `SPELLINGS` says it. `output_cap` is what the whole answer may take."""
    if spelling == "reasoning_effort":
        return effort_of(wish, output_cap)
    if spelling == "thinking":
        budget = budget_of(wish, output_cap)
        if budget == 0:
            return {"type": "disabled"}
        return {"type": "enabled"} if budget is None else {"type": "enabled", "budget_tokens": budget}
    amounts = {"effort": wish.effort, "max_tokens": wish.max_tokens}
    return {"enabled": wish.enabled} | {name: amount for name, amount in amounts.items() if amount is not None}


def effort_of(wish: ReasoningWish, output_cap: int | None) -> str:
    """The effort nearest to a wish. A budget half way between two tiers is the lower one's."""
    if not wish.enabled:
        return "none"
    if wish.effort is not None:
        return wish.effort
    if wish.max_tokens is None:
        return "medium"
    if output_cap is None:
        return next((effort for effort in ("low", "medium") if wish.max_tokens <= _TOKENS[effort]), "high")
    hundredfold = 100 * wish.max_tokens
    return min(("low", "medium", "high"), key=lambda effort: abs(_PERCENT[effort] * output_cap - hundredfold))


def budget_of(wish: ReasoningWish, output_cap: int | None) -> int | None:
    """Tokens to think in: at least `LEAST_BUDGET` and less than the cap, if it has room for that; 0: none at all.

    None: as many as the model likes.
    """
    if not wish.enabled or wish.effort in ("none", "minimal"):
        return 0
    budget = wish.max_tokens
    if budget is None:
        if wish.effort is None:
            return None
        budget = _TOKENS[wish.effort] if output_cap is None else output_cap * _PERCENT[wish.effort] // 100
    if output_cap is not None:
        budget = min(budget, output_cap - 1)
    return max(budget, LEAST_BUDGET)
