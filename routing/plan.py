"""Which offers a request may be sent to, in which order, and why. Pure: everything it reads is an argument.

    left out for good   by the policy: providers it allows, and what it refuses to have done with data
    left out for this   what the request needs and an offer has not: modality, context, a parameter, a price below a cap
    left out for now    what `routing.health` knows: a breaker that rests, a rate limit, no credential
    in order            listed ones, then the others by the strategy; those that take every parameter before the others

What does not change between requests is worked out once for each model and policy (`routing.prospect`).
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from routing.affinity import BYTES_A_TOKEN, LIKELY_ANSWER, seat
from routing.candidates import Candidate, Part, Wanted
from routing.catalog import Model, Offer
from routing.health import LAST, PROBE, USABLE, Health, State
from routing.latency import size_class
from routing.ordering import Dice, Reason, arranged
from routing.policy import Policy
from routing.prospect import Kind, Prospect, prospect

__all__ = ["BYTES_A_TOKEN", "LIKELY_ANSWER", "Candidate", "Plan", "Wanted", "plan"]

MOST_BYTES_A_TOKEN = 8  # a prompt has surely a token for so many


class Plan:
    """What came of one request: `taken` candidates in the order to try, and on demand all of them.

    `input_tokens` is an upper bound that holds for each taken one.
    """

    __slots__ = ("_order", "_parts", "choice", "policy", "seed", "taken", "wanted")

    def __init__(
        self, parts: list["Part"], order: list[tuple["Part", int]], wanted: Wanted, policy: Policy, seed: int
    ) -> None:
        self._parts = parts
        self._order = order
        self.wanted = wanted
        self.policy = policy
        self.seed = seed
        self.choice: dict[str, Any] | None = None  # how the model was chosen, when the gateway chose it
        most = policy.max_attempts or 1
        self.taken = [part.candidate(at, wanted, place, True) for place, (part, at) in enumerate(order[:most])]

    @property
    def input_tokens(self) -> int:
        """A bound on the tokens of the prompt, whichever of the taken ones reads it."""
        return max((part.input_tokens for part, _ in self._order[: len(self.taken)]), default=0)

    def ordered(self) -> list[Candidate]:
        """Those that may be dialled, in order: `taken`, then those past the most attempts."""
        past = enumerate(self._order[len(self.taken) :], len(self.taken))
        return self.taken + [part.candidate(at, self.wanted, place, False) for place, (part, at) in past]

    def candidates(self) -> list[Candidate]:
        """Every offer of every model, each once: those in order, then those left out."""
        return self.ordered() + [candidate for part in self._parts for candidate in part.left_out(self.wanted)]

    def retry_after(self, now: float) -> float | None:
        """Seconds from `now` (monotonic) until the first cooling offer may be used again; None: none is cooling."""
        times = [until for part in self._parts if (until := part.cool_again()) is not None]
        return max(0.0, min(times) - now) if times else None

    def record(self) -> dict[str, Any]:
        """What is kept with the generation, as plain JSON, without what is as usual.

        - `model`: the first one's slug; `seed`; `taken`: how many might be dialled
        - `by`: the level whose word the order is; `policy`: all that the levels say; `wanted`: see `Wanted.said`
        - `offers`: those in order, each [id, provider, upstream model, reason, score], of a further model with its slug
          as a sixth; `out`: the same of those left out
        - `choice`: how the gateway chose the model, if it did
        """
        first = self._parts[0].prospect.model.slug if self._parts else ""
        kept: dict[str, Any] = {
            "model": first,
            "seed": self.seed,
            "by": self.policy.source,
            "taken": len(self.taken),
            "wanted": self.wanted.said(),
            "offers": [part.line(at, first) for part, at in self._order],
        }
        if out := [line for part in self._parts for line in part.lines_left_out(first)]:
            kept["out"] = out
        said = self._parts[0].prospect.said if self._parts else self.policy.said()
        if said:
            kept["policy"] = said
        if self.choice is not None:
            kept["choice"] = self.choice
        return kept


def plan(
    models: Sequence[Model],
    wanted: Wanted,
    policy: Policy,
    health: Health,
    seed: int,
    others: Sequence[Policy] = (),
) -> Plan:
    """The plan of a request for `models[0]`; further models are what it may fall back to, in order.

    `others` are the policies of those, by default the first one's. Of equal arguments equal plans: `seed` decides
    whatever chance decides.
    """
    dice = Dice(seed)
    if len(models) == 1:
        part = _part(models[0], wanted, policy, health, dice)
        return Plan([part], [(part, at) for at in part.order], wanted, policy, seed)
    policies = (policy, *others) if others else (policy,) * len(models)
    parts = [_part(model, wanted, own, health, dice) for model, own in zip(models, policies, strict=True)]
    return Plan(parts, _joined(parts, policy), wanted, policy, seed)


def _joined(parts: list[Part], policy: Policy) -> list[tuple[Part, int]]:
    """The models' orders behind each other, the last attempt kept for the second model."""
    orders = [[(part, at) for at in part.order] for part in parts if part.order]
    if not orders:
        return []
    first, rest = orders[0], [entry for order in orders[1:] for entry in order]
    if policy.fallback is not True:
        for part, _ in rest:
            part.out.update(dict.fromkeys(part.order, Reason.NO_FALLBACK))
            part.order = []
        return first
    own = max(1, (policy.max_attempts or 1) - 1)
    return first[:own] + rest[:1] + first[own:] + rest[1:]


def _part(model: Model, wanted: Wanted, policy: Policy, health: Health, dice: Dice) -> Part:
    prospects = prospect(model, policy)
    tokens = (
        wanted.text_bytes
        + wanted.images * model.image_token_bound
        + wanted.audios * model.audio_token_bound
        + wanted.files * model.file_token_bound
    )
    part = Part(prospects, prospects.prices_at(wanted.now, wanted.text_bytes // BYTES_A_TOKEN), tokens)
    able = _able(part, wanted)
    usable = _usable(part, able, health, wanted)
    if not usable:
        return part
    _arrange(part, usable, wanted, policy, dice)
    return part


def _able(part: Part, wanted: Wanted) -> Sequence[int]:
    """The offers that can take the request; `part.out` says of the others why not."""
    prospects, out = part.prospect, part.out
    able: Sequence[int] = prospects.every
    reasons = [_unable(prospects.model.id, kind, wanted) for kind in prospects.kinds]
    if any(reasons):
        for at in able:
            if reason := reasons[prospects.kind_of[at]]:
                out[at] = reason
        able = [at for at in able if at not in out]
    least = wanted.text_bytes // MOST_BYTES_A_TOKEN
    small = [0 < kind.context_length < least for kind in prospects.kinds]
    if any(small):
        roomy = [at for at in able if not small[prospects.kind_of[at]]]
        if roomy:  # else the provider may say it, in words that the client can use
            out.update((at, Reason.CONTEXT) for at in able if small[prospects.kind_of[at]])
            able = roomy
    if wanted.max_price is not None:
        able = _affordable(part, able, wanted, wanted.max_price)
    return able


def _affordable(part: Part, able: Sequence[int], wanted: Wanted, most: Decimal) -> list[int]:
    kept = []
    for at in able:
        cap = part.prospect.offers[at].max_output
        if wanted.output_cap is not None and wanted.output_cap < cap:
            cap = wanted.output_cap
        price = part.prices.ceilings[at].at(part.input_tokens).price(part.input_tokens, cap * wanted.copies)
        if price is not None and price <= most:
            kept.append(at)
        else:
            part.out[at] = Reason.UNPRICED if price is None else Reason.TOO_DEAR
    return kept


def _unable(model: int, kind: Kind, wanted: Wanted) -> Reason | None:
    if kind.modalities and not wanted.modalities <= kind.modalities:
        return Reason.MODALITY
    return Reason.PARAMETERS if wanted.strict and wanted.lacking.get((model, kind.parameters)) else None


_OUT = {State.RESTING: Reason.RESTING, State.COOLING: Reason.COOLING}


def _usable(part: Part, able: Sequence[int], health: Health, wanted: Wanted) -> Sequence[int]:
    """Of the able ones those that health lets through."""
    prospects = part.prospect
    everyone = len(able) == len(prospects.offers)
    offers = prospects.offers if everyone else [prospects.offers[at] for at in able]
    found = health.standings(offers, size_class(wanted.text_bytes // BYTES_A_TOKEN), wanted.clock)
    if everyone:
        part.standings = found  # type: ignore[assignment]
    else:
        part.standings = [None] * len(prospects.offers)
        for at, standing in zip(able, found, strict=True):
            part.standings[at] = standing
    usable = []
    for at, standing in zip(able, found, strict=True):
        if standing.state is USABLE or standing.state is PROBE:
            usable.append(at)
        elif standing.state is LAST:
            usable.append(at)
            part.last.append(at)
        else:
            forced = prospects.offers[at].forced == "open"
            refused = Reason.FORCED_OPEN if forced else Reason.NO_CREDENTIAL
            part.out[at] = _OUT.get(standing.state, refused)
    return usable


def _arrange(part: Part, usable: Sequence[int], wanted: Wanted, policy: Policy, dice: Dice) -> None:
    """Puts the usable ones in order, and those that no fallback may reach out of it."""
    prospects, prices = part.prospect, part.prices
    standings: Any = part.standings  # of usable ones none is None
    head: list[int] = []
    rest = usable
    if prospects.listed is not None:
        there = set(usable)
        head = [at for at in prospects.listed if at in there]
        listed = set(head)
        rest = [at for at in usable if at not in listed]
        if policy.strategy != "order" and not (policy.strategy == "priority" and policy.factor is None):
            in_priority = [at for at in usable if at in listed]
            head, part.by = arranged(prospects, prices, in_priority, standings, policy, wanted.turn, dice)
            part.why.update(dict.fromkeys(head, part.by))
        else:
            part.why.update(dict.fromkeys(head, Reason.LISTED))
    tail, part.by = arranged(prospects, prices, rest, standings, policy, wanted.turn, dice) if rest else ([], part.by)
    if wanted.lacking:
        model, kinds = prospects.model.id, prospects.kinds
        lacks = [wanted.lacking.get((model, kinds[kind].parameters), 0) for kind in prospects.kind_of]
        if any(lacks):
            part.lacks = lacks
            _put_behind(lacks, head, tail, policy)
    if wanted.formats:
        _put_behind([_strangeness(offer, wanted.formats) for offer in prospects.offers], head, tail, policy)
    if wanted.seat is not None and prospects.listed is None:
        seat(part, tail, wanted, policy)
    order = head + tail
    if part.last:
        part.why.update(dict.fromkeys(part.last, Reason.LAST))
        order.sort(key=part.last.__contains__)
    kept = _kept(order, head, prospects, policy, part)
    if len(kept) < len(order):
        stays = set(kept)
        part.out.update((at, Reason.NO_FALLBACK) for at in order if at not in stays)
    part.order = kept


def _put_behind(amounts: list[int], head: list[int], tail: list[int], policy: Policy) -> None:
    """Lets the offers with less of something go first; an explicit order stays as it is."""
    tail.sort(key=amounts.__getitem__)
    if policy.strategy != "order":
        head.sort(key=amounts.__getitem__)


def _strangeness(offer: Offer, formats: frozenset[str]) -> int:
    """0 where the provider made thoughts of this format, 1 where that is not known, 2 where they mean nothing to it."""
    own = offer.provider.reasoning_format
    return 1 if not own else 0 if own in formats else 2


def _kept(order: list[int], head: list[int], prospects: Prospect, policy: Policy, part: Part) -> list[int]:
    """What of an order the wish for a fallback leaves. A list is the whole of its owner's first choice."""
    if policy.fallback is True:
        return order
    first = [at for at in order if at in head] if prospects.listed is not None else order[:1]
    if isinstance(policy.fallback, str):
        named = [at for at in prospects.named if at in order and at not in first]
        part.why.update(dict.fromkeys(named, Reason.NAMED))
        return first + named
    return first
