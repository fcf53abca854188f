"""Which model answers where a request leaves that to the gateway. Pure: of equal arguments equal choices.

Every model of the pool gets a mark from 0 to 1 for each term. Its score is the sum of the marks, weighed by what the
request says: its preference, and its complexity if it names one. The weights are rows, so that operators decide them.

    quality        the operator's score of the model
    price          the cheapest model's price for this request over its own; 0 if it is not known
    latency        the fastest model's time for an answer over its own; a half while it is not known
    availability   the share of calls that its first offer did not fail; 1 while it is not known
    parameters     1 if its first offer takes every parameter of the request
    demand         how much the request's content asks of a model, times the quality
    task           1 if the task's type is one of its capabilities
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from routing.planning.plan import LIKELY_ANSWER, Candidate

Weights = Mapping[tuple[str, str], float]  # by word and term


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model of the pool by its first offer, with its score and the marks that make it."""

    candidate: Candidate
    score: float
    marks: Mapping[str, float]


def ranked(
    pool: Sequence[Candidate],
    words: Sequence[str],
    weights: Weights,
    *,
    prompt_tokens: int,
    demand: float = 0.0,
    task: str | None = None,
    preferred: str | None = None,
) -> list[Chosen]:
    """The models of `pool`, best first, each given by the offer it would be asked at; slugs decide between equals.

    `words` are the request's preference and complexity; `demand` is 0 to 1; `preferred` is the slug of a model that
    goes before all others.
    """
    prices = [_price(candidate, prompt_tokens) for candidate in pool]
    cheapest = min((price for price in prices if price is not None), default=0.0)
    times = [candidate.standing.seconds if candidate.standing else None for candidate in pool]
    fastest = min((seconds for seconds in times if seconds is not None), default=0.0)
    chosen = []
    for candidate, price, seconds in zip(pool, prices, times, strict=True):
        model, standing = candidate.model, candidate.standing
        quality = model.quality / 100
        marks = {
            "quality": quality,
            "price": 0.0 if price is None else cheapest / price if price else 1.0,
            "latency": 0.5 if seconds is None else fastest / seconds if seconds else 1.0,
            "availability": 1.0 if standing is None or standing.uptime is None else standing.uptime,
            "parameters": 0.0 if candidate.lacks else 1.0,
            "demand": demand * quality,
            "task": 1.0 if task in model.capabilities else 0.0,
        }
        score = sum(weights.get((word, term), 0.0) * mark for word in words for term, mark in marks.items())
        chosen.append(Chosen(candidate, score, marks))
    chosen.sort(key=lambda one: (one.candidate.model.slug != preferred, -one.score, one.candidate.model.slug))
    return chosen


def _price(candidate: Candidate, prompt_tokens: int) -> float | None:
    """Dollars for a million requests like this one, with an answer of a likely length; None: not known."""
    rates = candidate.prices.rates
    charges = [rates[item].charge if item in rates else None for item in ("input", "output")]
    if charges[0] is None or charges[1] is None:
        return None
    return float(charges[0]) * prompt_tokens + float(charges[1]) * min(LIKELY_ANSWER, candidate.output_cap)
