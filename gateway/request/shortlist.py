"""Which of all models are worth weighing, where a request leaves the choice to the gateway.

A plan for each of a thousand models would keep the event loop busy for as long as a thousand requests do. So of many
models `MOST_WEIGHED` are planned and weighed: those that stand best by what does not change from one request to the
next, their quality and price under the weights of the request's words. That order is kept with the snapshot.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from accounts.callers import Caller
from gateway.process.snapshot import Snapshot
from gateway.protocols.openai_chat import ChatRequest
from gateway.protocols.openai_chat.request.routing_fields import ModelRoutingWish
from gateway.request.naming import pool, reachable
from routing.catalog import Model, Offer
from routing.planning.policy import Policy
from routing.planning.prospect import why_excluded

MOST_WEIGHED = 16
MOST_KEPT = 1_000  # orders, with a snapshot
UNSAID = ModelRoutingWish()


def shortlist(snapshot: Snapshot, caller: Caller, asked: ChatRequest, wished: Policy | None) -> list[Model]:
    """The models that a key may use, at most `MOST_WEIGHED` of them, by slug.

    Of more, those that read what the request holds; among them first the one that is preferred, then those of providers
    that are wished for, then, for half of the places, those that have the capability of the request's task.
    """
    said = asked.model_routing or UNSAID
    order = _order(snapshot, caller, (said.strategy, said.complexity) if said.complexity else (said.strategy,))
    if len(order) <= MOST_WEIGHED:
        return sorted(order, key=lambda model: model.slug)
    preferred = reachable(snapshot, caller, said.preferred) if said.preferred else None
    found = {} if preferred is None else {preferred.id: preferred}
    able = [model for model in order if _reads(model, asked.modalities)] if asked.modalities else order
    if wished is not None and wished.providers:
        providers = {slug.partition("/")[0] for slug in wished.providers}
        theirs = (model for model in able if any(offer.provider.slug in providers for offer in model.offers))
        _fill(found, theirs, MOST_WEIGHED)
    if said.task_type:
        _fill(found, (model for model in able if said.task_type in model.capabilities), MOST_WEIGHED // 2)
    _fill(found, iter(able or order), MOST_WEIGHED)
    return sorted(found.values(), key=lambda model: model.slug)


def _fill(found: dict[int, Model], models: Iterator[Model], most: int) -> None:
    new = (model for model in models if model.id not in found)
    found.update((model.id, model) for model in islice(new, max(0, most - len(found))))


def _reads(model: Model, modalities: object) -> bool:
    needed = frozenset(modalities)  # type: ignore[call-overload]
    return any(not offer.input_modalities or needed.issubset(offer.input_modalities) for offer in model.offers)


def _order(snapshot: Snapshot, caller: Caller, words: tuple[str, ...]) -> list[Model]:
    """All models that the key may use, the best first, and last those that its policies leave no offer."""
    place = caller.digest, words
    order = snapshot.orders.get(place)
    if order is None:
        order = _ordered(snapshot, caller, words)
        if snapshot.keys.get(caller.digest) is caller and len(snapshot.orders) < MOST_KEPT:
            snapshot.orders[place] = order
    return order


def _ordered(snapshot: Snapshot, caller: Caller, words: tuple[str, ...]) -> list[Model]:
    policies, now = snapshot.policies, datetime.now(UTC)
    quality, low_price = (
        sum(policies.weights.get((word, term), 0.0) for word in words) for term in ("quality", "price")
    )
    marked: list[tuple[Model, bool, float | None]] = []
    for model in pool(snapshot, caller, None):
        policy = policies.of(caller.key, caller.project, model.id)
        offers = [offer for offer in model.offers if why_excluded(offer, policy) is None]
        prices = [price for offer in offers if (price := _price(offer, now)) is not None]
        marked.append((model, not offers, min(prices, default=None)))
    cheapest = min((price for _, _, price in marked if price is not None), default=0.0)

    def rank(marks: tuple[Model, bool, float | None]) -> tuple[bool, float, str]:
        model, hopeless, price = marks
        cheap = 0.0 if price is None else cheapest / price if price else 1.0
        return hopeless, -quality * model.quality / 100 - low_price * cheap, model.slug

    return [model for model, _, _ in sorted(marked, key=rank)]


def _price(offer: Offer, now: datetime) -> float | None:
    """Dollars for a million tokens of a small prompt and a million of answer; None: not known."""
    version = offer.tariff_at(now)
    rates = version.prices.at(0) if version else {}
    charges = [rates[item].charge if item in rates else None for item in ("input", "output")]
    return None if charges[0] is None or charges[1] is None else float(charges[0]) + float(charges[1])
