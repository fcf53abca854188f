"""A conversation stays with the offer that answered it while that costs no more. Pure."""

from routing.health.health import USABLE
from routing.planning.candidates import Part, Wanted
from routing.planning.ordering import Reason
from routing.planning.policy import Policy

BYTES_A_TOKEN = 4  # as `billing.tokens.estimate` has it
LIKELY_ANSWER = 512  # tokens, where prices of offers are compared
SLOWER = 1.2  # how much slower than the fastest an offer may be that has a conversation's prompt in its cache


def seat(part: Part, tail: list[int], wanted: Wanted, policy: Policy) -> None:
    """Puts the offer that answered this conversation lately first, while that costs no more.

    Its provider may have the prompt in its cache. Where the conversation carries thoughts that somebody signed it was
    this offer, and another one may refuse them; then it is first whatever it costs, and so it is where the cache was
    paid for.
    """
    offers = part.prospect.offers
    at = next((at for at in tail if offers[at].id == wanted.seat), None)
    if at is None or at == tail[0]:
        return
    standing = part.standings[at]
    if standing is None or standing.state is not USABLE:
        return
    if wanted.formats or wanted.stays or _stays(part, at, tail[0], wanted, policy):
        tail.remove(at)
        tail.insert(0, at)
        part.why[at] = Reason.SEAT


def _stays(part: Part, at: int, first: int, wanted: Wanted, policy: Policy) -> bool:
    """Whether the offer `at`, with the prompt in its cache, is as good as the `first` one without."""
    offers, prices = part.prospect.offers, part.prices
    if policy.strategy not in ("priority", "least_latency"):
        return False
    if part.lacks is not None and part.lacks[at] > part.lacks[first]:
        return False
    if policy.strategy == "priority" and policy.factor is None and offers[at].priority != offers[first].priority:
        return False
    if policy.factor == "quality" and policy.strategy == "priority":
        return False
    own, other = part.standings[at], part.standings[first]
    if policy.strategy == "least_latency" or policy.factor in ("latency", "throughput"):
        if own is None or own.seconds is None or other is None or not other.known:
            return False  # the first one is there to be learnt
        if other.seconds is not None and own.seconds > other.seconds * SLOWER:
            return False
    cached, full, fresh = prices.cached[at], prices.inputs[at], prices.inputs[first]
    answer_here, answer_there = prices.outputs[at], prices.outputs[first]
    if cached is None or full is None or fresh is None or answer_here is None or answer_there is None:
        return False
    if cached >= full and policy.strategy != "least_latency":
        return False
    prompt = wanted.text_bytes // BYTES_A_TOKEN
    answer = LIKELY_ANSWER if wanted.output_cap is None else min(wanted.output_cap, LIKELY_ANSWER)
    return prompt * cached + answer * answer_here <= prompt * fresh + answer * answer_there
