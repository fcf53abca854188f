"""Which offers a request may be sent to, in which order, and why. Pure: everything it reads is an argument.

    left out for good   by the policy: providers it allows, and what it refuses to have done with data
    left out for this   what the request needs and an offer has not: modality, context, a parameter, a price below a cap
    left out for now    what `routing.health.health` knows: a breaker that rests, a rate limit, no credential
    in order            listed ones, then the others by the strategy; those that take every parameter before the others

What does not change between requests is worked out once for each model and policy (`routing.planning.prospect`).
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from routing.catalog import Offer
from routing.health.faults import Fault
from routing.health.health import LAST, PROBE, USABLE, Health, Standing, State
from routing.health.latency import size_class
from routing.planning.affinity import BYTES_A_TOKEN, LIKELY_ANSWER, seat
from routing.planning.candidates import Candidate, Part, Wanted
from routing.planning.ordering import Dice, Reason, arranged
from routing.planning.policy import Policy
from routing.planning.prospect import Kind, Prospect

__all__ = ["BYTES_A_TOKEN", "LIKELY_ANSWER", "Candidate", "Plan", "Wanted", "plan"]

MOST_BYTES_A_TOKEN = 8  # a prompt has surely a token for so many


class Plan:
    """What came of one request: `taken` candidates in the order to try, and on demand all of them.

    `input_tokens` is an upper bound of the prompt's, whichever of the taken ones reads it; by `size_class` (of
    `routing.health.latency`) the health was asked.
    """

    __slots__ = ("_order", "_parts", "choice", "input_tokens", "policy", "seed", "size_class", "taken", "wanted")

    def __init__(
        self, parts: list[Part], order: list[tuple[Part, int]], wanted: Wanted, size_class: int, seed: int
    ) -> None:
        self._parts = parts
        self._order = order
        self.wanted = wanted
        self.size_class = size_class
        self.policy = parts[0].prospect.policy
        self.seed = seed
        self.choice: dict[str, Any] | None = None  # how the model was chosen, when the gateway chose it
        self.taken: list[Candidate] = []
        self.input_tokens = 0
        self._take()

    def _take(self) -> None:
        """Takes as many as may be dialled; those that are taken stay the same objects."""
        for place in range(len(self.taken), min(self.policy.max_attempts or 1, len(self._order))):
            part, at = self._order[place]
            self.taken.append(part.candidate(at, self.wanted, place, True))
            if part.input_tokens > self.input_tokens:
                self.input_tokens = part.input_tokens

    def leave_out(self, reasons: Mapping[int, Reason]) -> None:
        """Takes offers out of the order by their places in it, for a reason that was found since; others move up."""
        order = []
        for place, (part, at) in enumerate(self._order):
            if (reason := reasons.get(place)) is None:
                order.append((part, at))
            else:
                part.out[at] = reason
        self._order = order
        self.taken = [candidate for candidate in self.taken if candidate.position not in reasons]
        for place, candidate in enumerate(self.taken):
            candidate.position = place
        self._take()

    @property
    def several(self) -> bool:
        """Whether it may go to more models than one."""
        return len(self._parts) > 1

    @property
    def models(self) -> list[str]:
        """The slugs of the models that it may go to."""
        return [part.prospect.model.slug for part in self._parts]

    def ordered(self) -> list[Candidate]:
        """Those that may be dialled, in order: `taken`, then those past the most attempts."""
        past = enumerate(self._order[len(self.taken) :], len(self.taken))
        return self.taken + [part.candidate(at, self.wanted, place, False) for place, (part, at) in past]

    def candidates(self) -> list[Candidate]:
        """Every offer of every model, each once: those in order, then those left out."""
        return self.ordered() + [candidate for part in self._parts for candidate in part.left_out(self.wanted)]

    def record(self) -> dict[str, Any]:
        """What is kept with the generation, as plain JSON, without what is as usual.

        - `model`: the first one's slug; `seed`; `taken`: how many might be dialled
        - `by`: the level whose word the order is; `policy`: all that the levels say; `wanted`: see `Wanted.said`
        - `offers`: those in order, each [id, provider, upstream model, reason, score], of a further model with its slug
          as a sixth; `out`: the same of those left out
        - `choice`: how the gateway chose the model, if it did

        A settlement adds `claimed`, what the provider said that it used, where that is not believed.
        """
        asked = self._parts[0].prospect
        first = asked.model.slug
        kept: dict[str, Any] = {
            "model": first,
            "seed": self.seed,
            "by": self.policy.source,
            "taken": len(self.taken),
            "wanted": self.wanted.said(),
            "offers": [part.line(at, part.why.get(at, part.by), first) for part, at in self._order],
        }
        out: list[list[Any]] = []
        for part in self._parts:
            if part.out or part.prospect.excluded:
                out += part.lines_left_out(first)
        if out:
            kept["out"] = out
        if asked.said:
            kept["policy"] = asked.said
        if self.choice is not None:
            kept["choice"] = self.choice
        return kept


def plan(prospects: Sequence[Prospect], wanted: Wanted, health: Health, seed: int) -> Plan:
    """The plan of a request for the model of the first of `prospects`; the others' are what it may fall back to.

    Each is a model under the policy that holds for it; there is at least one. Of equal arguments equal plans: `seed`
    decides whatever chance decides.
    """
    size, dice = size_class(wanted.text_bytes // BYTES_A_TOKEN), Dice(seed)
    parts = [_part(prospect, wanted, health, size, dice) for prospect in prospects]
    order = [(parts[0], at) for at in parts[0].order] if len(parts) == 1 else _joined(parts, prospects[0].policy)
    return Plan(parts, order, wanted, size, seed)


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


def _part(prospect: Prospect, wanted: Wanted, health: Health, size: int, dice: Dice) -> Part:
    model = prospect.model
    tokens = (
        wanted.text_bytes
        + wanted.images * model.image_token_bound
        + wanted.audios * model.audio_token_bound
        + max(wanted.files * model.file_token_bound, wanted.file_bytes)
        + wanted.kept_tokens
    )
    part = Part(prospect, prospect.prices_at(wanted.now, wanted.text_bytes // BYTES_A_TOKEN), tokens)
    able: Sequence[int] = prospect.every
    if wanted.modalities or wanted.strict or wanted.protocols:
        able = _able(part, wanted)
    least = wanted.text_bytes // MOST_BYTES_A_TOKEN
    if 0 < prospect.least_context < least:
        able = _roomy(part, able, least)
    if wanted.max_price is not None:
        able = _affordable(part, able, wanted, wanted.max_price)
    usable = _usable(part, able, wanted, health, size)
    if usable:
        _arrange(part, usable, wanted, dice)
    return part


def _able(part: Part, wanted: Wanted) -> list[int]:
    """The offers that can take what the request holds; `part.out` says of the others why not."""
    prospect = part.prospect
    reasons = [_unable(prospect.model.id, kind, wanted) for kind in prospect.kinds]
    able = []
    for at in prospect.every:
        reason = reasons[prospect.kind_of[at]]
        if not reason and wanted.account and not prospect.offers[at].opens(wanted.account):
            reason = Reason.ELSEWHERE
        if reason:
            part.out[at] = reason
        else:
            able.append(at)
    return able


def _roomy(part: Part, able: Sequence[int], least: int) -> Sequence[int]:
    """Those without the ones whose context is smaller than `least`; all of them where it is too small everywhere.

    Then a provider may say so, in words that the client can use.
    """
    offers = part.prospect.offers
    small = [at for at in able if 0 < offers[at].context_length < least]
    if len(small) == len(able):
        return able
    part.out.update(dict.fromkeys(small, Reason.CONTEXT))
    return [at for at in able if at not in part.out]


def _affordable(part: Part, able: Sequence[int], wanted: Wanted, most: Decimal) -> list[int]:
    kept = []
    for at in able:
        cap = part.prospect.offers[at].max_output
        if wanted.output_cap is not None and wanted.output_cap < cap:
            cap = wanted.output_cap
        extras = wanted.extras(part.prospect.model, part.prospect.offers[at])
        price = part.ceiling(at, wanted).price(part.input_tokens, cap * wanted.copies, extras)
        if price is not None and price <= most:
            kept.append(at)
        else:
            part.out[at] = Reason.UNPRICED if price is None else Reason.TOO_DEAR
    return kept


def _unable(model: int, kind: Kind, wanted: Wanted) -> Reason | None:
    if kind.modalities and not wanted.modalities <= kind.modalities:
        return Reason.MODALITY
    if wanted.protocols and kind.protocol not in wanted.protocols:
        return Reason.PROTOCOL
    if not set(wanted.built_in) <= set(kind.parameters):
        return Reason.BUILT_IN
    lacks = wanted.strict and wanted.lacking and wanted.lacking.get((model, kind.parameters))
    return Reason.PARAMETERS if lacks else None


_COOLING = {Fault.AUTH: Reason.REFUSED, Fault.EXHAUSTED: Reason.EXHAUSTED}


def _usable(part: Part, able: Sequence[int], wanted: Wanted, health: Health, size: int) -> Sequence[int]:
    """Of the able ones those that health lets through."""
    prospect = part.prospect
    everyone = able is prospect.every
    offers = prospect.offers if everyone else [prospect.offers[at] for at in able]
    found = health.standings(offers, size, wanted.clock, wanted.tenant, wanted.account)
    if everyone:
        part.standings = found  # type: ignore[assignment]
    else:
        part.standings = [None] * len(prospect.offers)
        for at, standing in zip(able, found, strict=True):
            part.standings[at] = standing
    for standing in found:
        if standing.state is not USABLE:
            return _without_resting(part, able, found)
    return able


def _without_resting(part: Part, able: Sequence[int], found: Sequence[Standing]) -> list[int]:
    """Those of the able ones that may be used now; `part.out` says of the others why not."""
    usable = []
    for at, standing in zip(able, found, strict=True):
        if standing.state is USABLE or standing.state is PROBE:
            usable.append(at)
        elif standing.state is LAST:
            usable.append(at)
            part.last.append(at)
        else:
            part.out[at] = _why_out(standing, part.prospect.offers[at])
    return usable


def _why_out(standing: Standing, offer: Offer) -> Reason:
    """Why an offer may not be used now."""
    if standing.state is State.RESTING:
        return Reason.RESTING
    if standing.state is State.COOLING:
        return _COOLING.get(standing.cause, Reason.COOLING) if standing.cause else Reason.COOLING
    return Reason.FORCED_OPEN if offer.forced == "open" else Reason.NO_CREDENTIAL


def _arrange(part: Part, usable: Sequence[int], wanted: Wanted, dice: Dice) -> None:
    """Puts the usable ones in order, and those that no fallback may reach out of it."""
    prospect, policy = part.prospect, part.prospect.policy
    standings: Any = part.standings  # of usable ones none is None
    head: list[int] = []
    tail: list[int] = []
    rest = usable
    if prospect.listed is not None:
        head, rest = _listed_first(part, prospect.listed, usable, wanted, dice)
    if rest:
        tail, part.by = arranged(prospect, part.prices, rest, standings, wanted.turn, dice)
    if wanted.lacking:
        model, kinds = prospect.model.id, prospect.kinds
        lacks = [wanted.lacking.get((model, kinds[kind].parameters), 0) for kind in prospect.kind_of]
        if any(lacks):
            part.lacks = lacks
            _put_behind(lacks, head, tail, policy)
    if wanted.formats:
        _put_behind([_strangeness(offer, wanted.formats) for offer in prospect.offers], head, tail, policy)
    if wanted.seat is not None and prospect.listed is None:
        seat(part, tail, wanted, policy)
    order = head + tail
    if part.last:
        part.why.update(dict.fromkeys(part.last, Reason.LAST))
        order.sort(key=part.last.__contains__)
    part.order = order if policy.fallback is True else _kept(order, head, prospect, policy, part)


def _listed_first(
    part: Part, listed: Sequence[int], usable: Sequence[int], wanted: Wanted, dice: Dice
) -> tuple[list[int], list[int]]:
    """The usable ones that the policy lists, in order, and the others."""
    prospect, policy = part.prospect, part.prospect.policy
    standings: Any = part.standings
    there, named = set(usable), set(listed)
    head = [at for at in listed if at in there]
    if policy.strategy != "order" and not (policy.strategy == "priority" and policy.factor is None):
        in_priority = [at for at in usable if at in named]
        head, part.by = arranged(prospect, part.prices, in_priority, standings, wanted.turn, dice)
        part.why.update(dict.fromkeys(head, part.by))
    else:
        part.why.update(dict.fromkeys(head, Reason.LISTED))
    return head, [at for at in usable if at not in named]


def _put_behind(amounts: list[int], head: list[int], tail: list[int], policy: Policy) -> None:
    """Lets the offers with less of something go first; an explicit order stays as it is."""
    tail.sort(key=amounts.__getitem__)
    if policy.strategy != "order":
        head.sort(key=amounts.__getitem__)


def _strangeness(offer: Offer, formats: frozenset[str]) -> int:
    """0 where the provider made thoughts of this format, 1 where that is not known, 2 where they mean nothing to it."""
    own = offer.provider.reasoning_format
    return 1 if not own else 0 if own in formats else 2


def _kept(order: list[int], head: list[int], prospect: Prospect, policy: Policy, part: Part) -> list[int]:
    """What the wish for a fallback, or for none, leaves of an order. A list is all of its owner's first choice."""
    kept = [at for at in order if at in head] if prospect.listed is not None else order[:1]
    if isinstance(policy.fallback, str):
        named = [at for at in prospect.named if at in order and at not in kept]
        part.why.update(dict.fromkeys(named, Reason.NAMED))
        kept += named
    stays = set(kept)
    part.out.update((at, Reason.NO_FALLBACK) for at in order if at not in stays)
    return kept
