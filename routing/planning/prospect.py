"""What of a plan does not change between requests: worked out once for a model and a policy, and kept.

Models and policies are frozen, and replaced when their rows change, so a prospect is right for as long as they are
these very objects. The only thing that ages is a tariff: `prices_at` works the prices out anew when a version begins.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from billing.pricing import NO_PRICES, Ceilings, Rates
from routing.catalog import Model, Offer, TariffVersion
from routing.planning.policy import Policy

MOST_KEPT = 4096
LONGEST_LIST = 8  # of providers; a longer one is worked out each time, for clients could fill the memory with them
BEGINNING, END = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(slots=True, frozen=True)
class Prices:
    """What the offers of a prospect cost from `since` (inclusive) to `until` (exclusive), each list by offer.

    For prompts of one size: rates may depend on it. Only `ceilings` (`billing.pricing`) are those of all sizes.

    - `sums`: dollars for a million tokens of prompt and a million of answer
    - `inputs`, `cached`, `outputs`: dollars for a million; cached input that has no price of its own is input
    - `caches`: some offer reads cached input for less
    """

    since: datetime
    until: datetime
    versions: tuple[TariffVersion | None, ...]
    ceilings: tuple[Ceilings, ...]
    sums: tuple[float | None, ...]
    inputs: tuple[float | None, ...]
    cached: tuple[float | None, ...]
    outputs: tuple[float | None, ...]
    caches: bool


@dataclass(slots=True, frozen=True)
class Kind:
    """What offers can take; those that are alike share one. Sizes are tokens, 0 and empty: not known."""

    context_length: int
    modalities: frozenset[str]
    parameters: tuple[str, ...]
    max_output: int
    protocol: str


class Prospect:
    """The offers of a model under a policy.

    - `offers`: those that the policy allows, by priority; `excluded`: the others, with the reason's name
    - `said`: what a plan's record keeps of the policy
    - `heads`: what a plan's record keeps of each offer, whatever becomes of it
    - `kinds`, and `kind_of` each offer; `mixed`: there are several
    - `least_context`: the smallest context length that is known, 0: none is
    - `tiers`: indices of the offers, those of equal priority together; `ties`: some are
    - `listed`: indices of the offers that the policy lists, in its order; None: it lists none
    - `named`: indices of the offers of the provider that it names as fallback
    - `seats`: it may matter who answered a conversation before: there are several offers, and no list of them
    """

    __slots__ = (
        "borders", "every", "excluded", "heads", "kind_of", "kinds", "least_context", "listed", "mixed", "model",
        "named", "offers", "policy", "prices", "said", "seats", "tiers", "ties",
    )  # fmt: skip

    def __init__(self, model: Model, policy: Policy) -> None:
        self.model = model
        self.policy = policy
        self.said = policy.said()
        allowed: list[Offer] = []
        excluded: list[tuple[Offer, str]] = []
        for offer in sorted(model.offers, key=lambda offer: (offer.priority, offer.id)):
            reason = why_excluded(offer, policy)
            if reason is None:
                allowed.append(offer)
            else:
                excluded.append((offer, reason))
        self.offers = tuple(allowed)
        self.excluded = tuple(excluded)
        self.every = tuple(range(len(allowed)))
        self.heads = tuple((offer.id, offer.provider.slug, offer.upstream_model) for offer in allowed)
        kinds: dict[Kind, int] = {}
        self.kind_of = tuple(kinds.setdefault(_kind(offer), len(kinds)) for offer in allowed)
        self.kinds = tuple(kinds)
        self.mixed = len(kinds) > 1
        self.least_context = min((kind.context_length for kind in kinds if kind.context_length), default=0)
        tiers: dict[int, list[int]] = {}
        for at, offer in enumerate(allowed):
            tiers.setdefault(offer.priority, []).append(at)
        self.tiers = tuple(tuple(tier) for _, tier in sorted(tiers.items()))
        self.ties = len(tiers) < len(allowed)
        self.listed = None if policy.providers is None else tuple(_listed(self.offers, policy.providers))
        fallback = policy.fallback
        self.named = tuple(_listed(self.offers, (fallback,))) if isinstance(fallback, str) else ()
        self.seats = len(model.offers) > 1 and policy.providers is None
        self.borders: tuple[int, ...] = ()
        self.prices: tuple[Prices, ...] = self._prices(BEGINNING)

    def prices_at(self, now: datetime, prompt: int) -> Prices:
        """The prices in force at `now` (aware) for a prompt of so many tokens."""
        if not self.prices[0].since <= now < self.prices[0].until:
            self.prices = self._prices(now)
        return self.prices[bisect_left(self.borders, prompt) if self.borders else 0]

    def keeps_seats(self, now: datetime) -> bool:
        """Whether it may pay to ask the offer again that answered a conversation before: its cache has the prompt."""
        if len(self.offers) < 2 or self.policy.strategy not in ("priority", "least_latency"):
            return False
        return self.policy.strategy == "least_latency" or self.prices_at(now, 0).caches

    def _prices(self, now: datetime) -> tuple[Prices, ...]:
        """The prices of each size of prompt, up to each of `borders` (inclusive), and beyond the last."""
        begins = sorted({version.effective_from for offer in self.offers for version in offer.versions})
        versions = tuple(offer.tariff_at(now) for offer in self.offers)
        offered = [version.prices if version else NO_PRICES for version in versions]
        self.borders = tuple(sorted({step.above for prices in offered for step in prices.steps}))
        since = max((begin for begin in begins if begin <= now), default=BEGINNING)
        until = min((begin for begin in begins if begin > now), default=END)
        ceilings = tuple(prices.ceilings() for prices in offered)
        last = self.borders[-1] + 1 if self.borders else 0
        return tuple(
            _priced(since, until, versions, ceilings, [prices.at(prompt) for prices in offered])
            for prompt in (*self.borders, last)
        )


def _priced(
    since: datetime,
    until: datetime,
    versions: tuple[TariffVersion | None, ...],
    ceilings: tuple[Ceilings, ...],
    rates: list[Rates],
) -> Prices:
    inputs, outputs = ([_charge(one, item) for one in rates] for item in ("input", "output"))
    cached = [_charge(one, "cached_input" if "cached_input" in one else "input") for one in rates]
    return Prices(
        since,
        until,
        versions,
        ceilings,
        tuple(None if a is None or b is None else a + b for a, b in zip(inputs, outputs, strict=True)),
        tuple(inputs),
        tuple(cached),
        tuple(outputs),
        any(a is not None and b is not None and a < b for a, b in zip(cached, inputs, strict=True)),
    )


_kept: dict[tuple[int, int], Prospect] = {}


def prospect(model: Model, policy: Policy) -> Prospect:
    """The prospect of a model under a policy, kept by their identity."""
    place = (id(model), id(policy))
    found = _kept.get(place)
    # It holds on to both, so neither id can be another's while it is kept.
    if found is None:
        found = Prospect(model, policy)
        if policy.providers is None or len(policy.providers) <= LONGEST_LIST:
            if len(_kept) >= MOST_KEPT:
                _kept.clear()
            _kept[place] = found
    return found


def why_excluded(offer: Offer, policy: Policy) -> str | None:
    """Why a policy allows an offer in no case, as a plan says it; None: it may be used."""
    provider = offer.provider
    if policy.only_providers is not None and not _matches_any(offer, policy.only_providers):
        return "not_allowed"
    if policy.refuses_training and provider.trains_on_data:
        return "trains"
    if policy.refuses_retention and provider.retains_data:
        return "retains"
    return None


def _matches_any(offer: Offer, slugs: Iterable[str]) -> bool:
    return any(slug in (offer.provider.slug, f"{offer.provider.slug}/{offer.upstream_model}") for slug in slugs)


def _listed(offers: tuple[Offer, ...], slugs: Iterable[str]) -> list[int]:
    """The offers that a list names, each once, in its order.

    A slug is a provider's, or with a slash one of its endpoints: what the provider calls the model. An endpoint that is
    none of these names stands for the provider; lists of other systems have endpoints that are not ours to know.
    """
    found: dict[int, None] = {}
    for slug in slugs:
        provider, _, endpoint = slug.partition("/")
        of_provider = [at for at, offer in enumerate(offers) if offer.provider.slug == provider]
        exact = [at for at in of_provider if endpoint and offers[at].upstream_model == endpoint]
        found |= dict.fromkeys(exact or of_provider)
    return list(found)


def _kind(offer: Offer) -> Kind:
    return Kind(
        offer.context_length,
        frozenset(offer.input_modalities),
        offer.supported_parameters,
        offer.max_output,
        offer.provider.protocol,
    )


def _charge(rates: Rates, item: str) -> float | None:
    charge = rates[item].charge if item in rates else None
    return None if charge is None else float(charge)
