"""Which models answer where a request leaves the choice to the gateway: from its words to `routing.planning.choice`."""

from collections.abc import Sequence
from typing import Any

from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.routing_fields import ModelRoutingWish
from gateway.wire import strict_json
from routing.catalog import Model
from routing.health.health import Health
from routing.planning.choice import Chosen, Weights, ranked
from routing.planning.plan import BYTES_A_TOKEN, Wanted, plan
from routing.planning.prospect import Prospect

MOST_CHOSEN = 8  # of a pool: a request is never sent to more models
MOST_KEPT_BYTES = 4096  # of a client's own properties, with the generation
LONG_PROMPT = 8_000  # tokens
UNSAID = ModelRoutingWish()


def choose(
    pool: Sequence[Prospect],
    asked: ChatRequest,
    wanted: Wanted,
    health: Health,
    seed: int,
    weights: Weights,
    preferred: Model | None,
) -> list[Chosen]:
    """The models of `pool` that can take the request now, best first, at most `MOST_CHOSEN`."""
    plans = (plan([one], wanted, health, seed) for one in pool)
    firsts = [found.taken[0] for found in plans if found.taken]
    said = asked.model_routing or UNSAID
    return ranked(
        firsts,
        (said.strategy, said.complexity) if said.complexity else (said.strategy,),
        weights,
        prompt_tokens=wanted.text_bytes // BYTES_A_TOKEN,
        demand=demand(asked),
        task=said.task_type,
        preferred=preferred.slug if preferred else None,
    )[:MOST_CHOSEN]


def demand(asked: ChatRequest) -> float:
    """How much a request asks of a model, 0 to 1: a long prompt, tools, a schema, thinking, media, code."""
    body = asked.body
    form = body.get("response_format")
    signs = (
        0.3 * min(1.0, asked.text_bytes / BYTES_A_TOKEN / LONG_PROMPT),
        0.2 if body.get("tools") or body.get("functions") else 0.0,
        0.1 if form is not None and form.get("type") == "json_schema" else 0.0,
        0.2 if asked.reasoning is not None and asked.reasoning.enabled else 0.0,
        0.1 if asked.modalities else 0.0,
        0.1 if "```" in _last_words(body["messages"]) else 0.0,
    )
    return round(sum(signs), 4)


def record(chosen: Sequence[Chosen], asked: ChatRequest) -> dict[str, Any]:
    """What is kept of a choice: what was said, and the models with their scores."""
    said = asked.model_routing or UNSAID
    kept: dict[str, Any] = {
        "preference": said.strategy,
        "demand": demand(asked),
        "models": [[one.candidate.model.slug, round(one.score, 4)] for one in chosen],
    }
    for name, value in (
        ("preferred", said.preferred),
        ("task_type", said.task_type),
        ("complexity", said.complexity),
        ("additional", dict(said.additional)),
        ("task_additional", dict(said.task_additional)),
    ):
        if value:
            small = type(value) is str or len(strict_json.dumps(value)) <= MOST_KEPT_BYTES
            kept[name] = value if small else None
    return kept


def _last_words(messages: Sequence[dict[str, Any]]) -> str:
    content = messages[-1].get("content")
    if type(content) is list:
        return "".join(text for part in content if type(text := part.get("text")) is str)
    return content if type(content) is str else ""
