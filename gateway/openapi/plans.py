"""A plan as types: what the OpenAPI document says of it. Nothing is encoded with them.

`gateway.generation.explaining` tells it. Kept apart from the other answers, since a chat's answer has one as well.
"""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

NAMED = "Not there where providers are not named."


class PlannedOffer(Struct, kw_only=True):
    """An offer that could have taken the request, and what became of it."""

    order: Annotated[int | None, Meta(description="Its place in the order to try, from 1; null: left out.")]
    taken: Annotated[bool, Meta(description="Whether it may be dialled; those behind the most attempts may not.")]
    model: str
    provider: Annotated[str | UnsetType, Meta(description=NAMED)] = UNSET
    endpoint: Annotated[str | UnsetType, Meta(description=NAMED)] = UNSET
    reason: Annotated[str, Meta(description="Why it stands there or was left out, for programs.")]
    why: Annotated[str, Meta(description="The same in words.")]
    score: Annotated[
        float | None,
        Meta(description="What it was sorted by: a priority, seconds, dollars, tokens a second or points."),
    ]
    expected_price: Annotated[
        float | UnsetType | None,
        Meta(description="Dollars for a usual answer, only before it is there; null: not known."),
    ] = UNSET
    price_at_most: Annotated[
        float | UnsetType | None,
        Meta(description="Dollars at worst, only before the answer is there; null: not known or not worked out."),
    ] = UNSET


class PlanAttempt(Struct):
    """One dial; times are milliseconds."""

    number: int
    provider: str
    model: str
    status: str
    fault: str | None
    duration_ms: int | None
    ttft_ms: int | None


class Plan(Struct):
    """Where a request could go, in which order, and why."""

    model: Annotated[str, Meta(description="The one asked for, or chosen.")]
    policy: Annotated[
        dict[str, Any],
        Meta(description="What decided: `source` is the level whose word the order is; the rest is what was said."),
    ]
    seed: Annotated[int, Meta(description="Decides what chance decides.")]
    candidates: list[PlannedOffer]
    choice: Annotated[
        dict[str, Any] | UnsetType, Meta(description="How the model was chosen, when the gateway chose it.")
    ] = UNSET
    attempts: Annotated[list[PlanAttempt] | UnsetType, Meta(description="In an answer only.")] = UNSET
