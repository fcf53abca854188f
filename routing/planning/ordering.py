"""In which order the usable offers of a model are tried, by the strategy and factor of a policy. Pure."""

import random
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from math import gcd, inf

from routing.catalog import Offer
from routing.health.health import Standing
from routing.health.latency import fastest_first
from routing.planning.prospect import Prices, Prospect

# With a factor that is measured, an offer nobody has measured yet is tried first by one request in so many.
EXPLORED_ONCE_IN = 20
LONGEST_ROUND = 1000  # of a rotation; weights are scaled down to it


class Reason(StrEnum):
    """Why a candidate stands where it stands, or why it was left out. `WORDS` says it."""

    PRIORITY = "priority"
    LISTED = "listed"
    FASTEST = "fastest"
    TURN = "turn"
    PRICE = "price"
    LATENCY = "latency"
    THROUGHPUT = "throughput"
    QUALITY = "quality"
    EXPLORED = "explored"
    SEAT = "seat"
    NAMED = "named"
    LAST = "last"

    NOT_ALLOWED = "not_allowed"
    TRAINS = "trains"
    RETAINS = "retains"
    MODALITY = "modality"
    CONTEXT = "context"
    PARAMETERS = "parameters"
    PROTOCOL = "protocol"
    BUILT_IN = "built_in"
    ELSEWHERE = "elsewhere"
    UNPRICED = "unpriced"
    TOO_DEAR = "too_dear"
    CREDIT = "credit"
    NO_CREDENTIAL = "no_credential"
    FORCED_OPEN = "forced_open"
    RESTING = "resting"
    COOLING = "cooling"
    REFUSED = "refused"
    EXHAUSTED = "exhausted"
    NO_FALLBACK = "no_fallback"


PRIORITY = Reason.PRIORITY  # an enum's members are slow to look up
WORDS: dict[Reason, str] = {
    PRIORITY: "in the order of its priority",
    Reason.LISTED: "where the list has it",
    Reason.FASTEST: "by the time its answers take now",
    Reason.TURN: "by its turn in the rotation",
    Reason.PRICE: "by its price",
    Reason.LATENCY: "by its time to first token",
    Reason.THROUGHPUT: "by its tokens a second",
    Reason.QUALITY: "by the operator's score, then by its uptime",
    Reason.EXPLORED: "first, to learn how fast it is",
    Reason.SEAT: "first, since it answered this conversation lately",
    Reason.NAMED: "as the fallback that was named",
    Reason.LAST: "last: it rests, but so do too many of its kind",
    Reason.NOT_ALLOWED: "left out: a policy allows other providers alone",
    Reason.TRAINS: "left out: its provider trains on what it is sent",
    Reason.RETAINS: "left out: its provider keeps what it is sent",
    Reason.MODALITY: "left out: it does not read what the request holds",
    Reason.CONTEXT: "left out: its context is too small for the prompt",
    Reason.PARAMETERS: "left out: it ignores parameters, and the caller is strict",
    Reason.PROTOCOL: "left out: it speaks another protocol, and the request says what that has no words for",
    Reason.BUILT_IN: "left out: its list of parameters lacks what is asked, such as a tool that its provider would run",
    Reason.ELSEWHERE: "left out: what the request goes on from is kept elsewhere",
    Reason.UNPRICED: "left out: its price is unknown, and a hard budget or a highest price a request applies",
    Reason.TOO_DEAR: "left out: its worst case is above the key's highest price a request",
    Reason.CREDIT: "left out: what a hard budget has left does not cover it",
    Reason.NO_CREDENTIAL: "left out: its provider has no usable credential",
    Reason.FORCED_OPEN: "left out: an operator has switched it off",
    Reason.RESTING: "left out: it failed lately and rests",
    Reason.COOLING: "left out: it limits our rate, for now",
    Reason.REFUSED: "left out: it refused the gateway's credential lately",
    Reason.EXHAUSTED: "left out: the gateway's account there is exhausted, for now",
    Reason.NO_FALLBACK: "left out: no fallback is wished",
}

_FACTORS = {
    "price": Reason.PRICE,
    "latency": Reason.LATENCY,
    "throughput": Reason.THROUGHPUT,
    "quality": Reason.QUALITY,
}


class Dice:
    """A generator of random numbers that is made when it is needed: making one costs more than a small plan."""

    __slots__ = ("_rng", "_seed")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng: random.Random | None = None

    def __call__(self) -> random.Random:
        if self._rng is None:
            self._rng = random.Random(self._seed)  # noqa: S311, no secret is drawn
        return self._rng


def arranged(
    prospect: Prospect,
    prices: Prices,
    usable: Sequence[int],
    standings: Sequence[Standing],
    turn: int,
    dice: Dice,
) -> tuple[list[int], Reason]:
    """`usable`, indices into the prospect's offers by priority, in the order to try, and by what they were ordered."""
    policy = prospect.policy
    match policy.strategy:
        case "least_latency":
            return _fastest(usable, standings, dice), Reason.FASTEST
        case "round_robin":
            return _in_turn(usable, prospect.offers, turn), Reason.TURN
        case "priority" if policy.factor in _FACTORS:
            reason = _FACTORS[policy.factor]
            return _by_factor(reason, prospect, prices, usable, standings, dice), reason
    if not prospect.ties or len(usable) < 2:
        return list(usable), PRIORITY
    there = set(usable)
    order: list[int] = []
    for tier in prospect.tiers:
        alike = [at for at in tier if at in there]
        order += alike if len(alike) < 2 else _fastest(alike, standings, dice)
    return order, PRIORITY


def score(reason: Reason, offer: Offer, price: float | None, standing: Standing | None) -> float | None:
    """The number that an offer was sorted by: a priority, seconds, dollars, tokens a second or points."""
    if reason is PRIORITY:
        return float(offer.priority)
    if reason is Reason.PRICE:
        return price
    if reason is Reason.QUALITY:
        return float(offer.quality)
    if standing is None:
        return None
    if reason is Reason.LATENCY:
        return standing.ttft
    if reason is Reason.THROUGHPUT:
        return standing.throughput
    return standing.seconds if reason in (Reason.FASTEST, Reason.SEAT) else None


@lru_cache(maxsize=1024)
def rotation(weights: tuple[int, ...]) -> tuple[int, ...]:
    """One round in which index i comes up in proportion to `weights[i]`, as evenly spread as it goes.

    Each step adds every weight to its owner's credit, and the richest one pays the whole round for its turn. A weight
    of 0 has no turn, unless all are 0.
    """
    if not any(weights):
        weights = (1,) * len(weights)
    largest = sum(weights)
    if largest > LONGEST_ROUND:
        weights = tuple(weight and max(1, weight * LONGEST_ROUND // largest) for weight in weights)
    shared = gcd(*weights)
    weights = tuple(weight // shared for weight in weights)
    credit, whole = [0] * len(weights), sum(weights)
    round_ = []
    for _ in range(whole):
        for at, weight in enumerate(weights):
            credit[at] += weight
        richest = max(range(len(weights)), key=credit.__getitem__)
        credit[richest] -= whole
        round_.append(richest)
    return tuple(round_)


def _fastest(usable: Sequence[int], standings: Sequence[Standing], dice: Dice) -> list[int]:
    if len(usable) < 2:
        return list(usable)
    return [usable[at] for at in fastest_first([standings[at] for at in usable], dice())]


def _in_turn(usable: Sequence[int], offers: Sequence[Offer], turn: int) -> list[int]:
    """The one whose turn it is, then the others as their turns come; those without a turn last."""
    if len(usable) < 2:
        return list(usable)
    round_ = rotation(tuple(offers[at].weight for at in usable))
    at = turn % len(round_)
    return _once(usable[place] for place in (*round_[at:], *round_[:at], *range(len(usable))))


def _once(indices: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(indices))


def _by_factor(
    reason: Reason,
    prospect: Prospect,
    prices: Prices,
    usable: Sequence[int],
    standings: Sequence[Standing],
    dice: Dice,
) -> list[int]:
    """Sorted by the factor; priority decides between equals. What is not known comes last."""
    if reason is Reason.PRICE:
        sums = prices.sums
        return sorted(usable, key=lambda at: inf if (price := sums[at]) is None else price)
    if reason is Reason.QUALITY:
        return sorted(usable, key=lambda at: (-prospect.offers[at].quality, -(standings[at].uptime or 0.0)))
    if reason is Reason.LATENCY:
        measured = {at: standings[at].ttft for at in usable}
    else:
        measured = {at: None if (rate := standings[at].throughput) is None else -rate for at in usable}
    order = sorted(usable, key=lambda at: inf if (value := measured[at]) is None else value)
    unknown = [at for at in usable if measured[at] is None]
    if unknown and len(unknown) < len(usable) and dice().randrange(EXPLORED_ONCE_IN) == 0:
        chosen = dice().choice(unknown)
        order.remove(chosen)
        order.insert(0, chosen)
    return order
