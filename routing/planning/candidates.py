"""The candidates of a plan: what a request needs, and what each offer of a model has of it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from math import ceil
from typing import Any
from uuid import UUID

from msgspec import Struct

from billing import pricing
from billing.pricing import NO_EXTRAS, NO_PRICES, Ceiling, Extras, WorstCase
from routing.catalog import SERVICE, Credential, Model, Offer
from routing.health.health import PROBE, Standing
from routing.planning.ordering import PRIORITY, Reason, score
from routing.planning.prospect import Prices, Prospect

SEARCHES = "web_search_options"  # the parameter that lets a provider search the web
TOKENS_A_SECOND = 10  # of sound or video, at least: models count from 10 to some 300


class Candidate(Struct):
    """An offer and what became of it.

    - `position`: its place in the order to try, from 0; None: it was left out; `taken`: it may be dialled
    - `reason`: why it stands there, or why it was left out
    - `probe`: its breaker is half open, and this request may be the one that tries
    - `credential`: the one to use; None: its provider wants none, or it was left out
    - `lacks`: how many parameters of the request it ignores; `output_cap`: tokens, the least of asked and possible
    - `prices`, `tariff_version`: those in force; `worst`: what it costs at worst
    - `standing`: what health says of it; None: it was not asked
    """

    model: Model
    offer: Offer
    credential: Credential | None
    taken: bool
    position: int | None
    reason: Reason
    probe: bool
    lacks: int
    output_cap: int
    prices: pricing.Prices
    tariff_version: int | None
    worst: WorstCase
    standing: Standing | None


class Wanted(Struct):
    """What a request needs to be planned.

    - `text_bytes`, `images`, `audios`, `files`, `file_bytes`: what is read, see `ChatRequest`
    - `searches`: of the web, that one answer may take at most, where an offer takes the parameter for it
    - `output_cap`: what the client asked for, or its project's default; `copies`: answers
    - `max_price`: the key's, in dollars
    - `now`: for tariffs, aware; `clock`: monotonic seconds, for health
    - `modalities`: what the request holds besides text
    - `lacking`: how many of its parameters an offer ignores, by the model's id and `Offer.supported_parameters`; None,
      or not there: none
    - `strict`: such offers are left out
    - `formats`: of the signed or encrypted thoughts in it, "" for those that name none
    - `seat`: the id of the offer that answered this conversation lately
    - `stays`: that offer has been paid for keeping the prompt in its cache for long
    - `turn`: counts the requests of a rotation
    - `service`: the class of service that is asked for; empty: none
    - `tenant`: the organization that asks; None: none in particular
    - `protocols`: only offers that speak one of them can be asked this; empty: any. `built_in`: words they must list
    - `account`: the only one that can be used (`Offer.opens`), since what the request goes on from is kept there, and
      is `kept_tokens` at most
    """

    text_bytes: int
    output_cap: int | None
    copies: int
    max_price: Decimal | None
    now: datetime
    clock: float = 0.0
    images: int = 0
    audios: int = 0
    files: int = 0
    modalities: frozenset[str] = frozenset()
    lacking: Mapping[tuple[int, tuple[str, ...]], int] | None = None
    strict: bool = False
    formats: frozenset[str] = frozenset()
    seat: int | None = None
    stays: bool = False
    turn: int = 0
    file_bytes: int = 0
    searches: int = 0
    tenant: UUID | None = None
    protocols: frozenset[str] = frozenset()
    built_in: tuple[str, ...] = ()
    account: str = ""
    kept_tokens: int = 0
    service: str = ""

    def extras(self, model: Model, offer: Offer) -> Extras:
        """What an offer may bill beside tokens, at most: searches of the web, seconds of what is heard or seen."""
        if not (self.searches or self.audios or self.files):
            return NO_EXTRAS
        searches = self.searches * self.copies if SEARCHES in offer.supported_parameters else 0
        media = self.audios * model.audio_token_bound + self.files * model.file_token_bound
        return Extras(searches, 0, ceil(media / TOKENS_A_SECOND))

    def said(self) -> dict[str, Any]:
        """What a plan's record keeps of it: sizes, and what is not as usual."""
        kept: dict[str, Any] = {"bytes": self.text_bytes}
        if self.output_cap is not None:
            kept["cap"] = self.output_cap
        if self.copies != 1:
            kept["copies"] = self.copies
        if self.max_price is not None:
            kept["max_price"] = f"{self.max_price:f}"
        if self.modalities:
            kept["modalities"] = sorted(self.modalities)
        if self.protocols:
            kept["protocols"] = sorted(self.protocols)
        if self.formats:
            kept["formats"] = sorted(self.formats)
        if self.kept_tokens:
            kept["kept_tokens"] = self.kept_tokens
        if self.images:
            kept["images"] = self.images
        if self.audios:
            kept["audios"] = self.audios
        if self.files:
            kept["files"] = self.files
        if self.file_bytes:
            kept["file_bytes"] = self.file_bytes
        if self.searches:
            kept["searches"] = self.searches
        if self.strict:
            kept["strict"] = True
        if self.seat:
            kept["seat"] = self.seat
        if self.stays:
            kept["stays"] = True
        if self.turn:
            kept["turn"] = self.turn
        if self.service:
            kept["service"] = self.service
        return kept


class Part:
    """One model's share of a plan. Offers are indices into the prospect's."""

    __slots__ = ("by", "input_tokens", "lacks", "last", "order", "out", "prices", "prospect", "standings", "why")

    def __init__(self, prospect: Prospect, prices: Prices, input_tokens: int) -> None:
        self.prospect = prospect
        self.prices = prices
        self.input_tokens = input_tokens
        self.standings: list[Standing | None] = []
        self.order: list[int] = []
        self.by = PRIORITY
        self.why: dict[int, Reason] = {}  # where it is not `by`
        self.out: dict[int, Reason] = {}
        self.last: list[int] = []  # in order, but after all others
        self.lacks: list[int] | None = None  # None: none lacks anything

    def candidate(self, at: int, wanted: Wanted, position: int | None, taken: bool) -> Candidate:
        """The candidate of one offer."""
        prices, offer, standing = self.prices, self.prospect.offers[at], self.standings[at]
        version = prices.versions[at]
        cap = wanted.output_cap
        return Candidate(
            self.prospect.model,
            offer,
            standing.credential if standing is not None else None,
            taken,
            position,
            self.why.get(at, self.by) if position is not None else self.out[at],
            standing is not None and standing.state is PROBE,
            self.lacks[at] if self.lacks else 0,
            offer.max_output if cap is None or cap > offer.max_output else cap,
            version.prices if version else NO_PRICES,
            version.id if version else None,
            self.ceiling(at, wanted).worst(self.input_tokens, wanted.copies, wanted.extras(self.prospect.model, offer)),
            standing,
        )

    def ceiling(self, at: int, wanted: Wanted) -> Ceiling:
        """The dearest rates that one offer may bill a request at: where a class of service is asked for and passed on,
        of that and the ordinary one, which a provider may fall back to.
        """
        ceilings = self.prices.ceilings[at]
        if wanted.service and ceilings.asked and SERVICE in self.prospect.offers[at].supported_parameters:
            ceilings = ceilings.asked.get(wanted.service, ceilings)
        return ceilings.at(self.input_tokens)

    def left_out(self, wanted: Wanted) -> Iterator[Candidate]:
        """Those that are not in order, by priority; those that the policy excludes last."""
        for at in sorted(self.out):
            yield self.candidate(at, wanted, None, False)
        for offer, reason in self.prospect.excluded:
            version = offer.tariff_at(wanted.now)
            cap = offer.max_output if wanted.output_cap is None else min(wanted.output_cap, offer.max_output)
            prices = version.prices if version else NO_PRICES
            worst = WorstCase(None, None)
            yield Candidate(
                self.prospect.model, offer, None, False, None, Reason(reason), False, 0, cap, prices,
                version.id if version else None, worst, None,
            )  # fmt: skip

    def line(self, at: int, reason: Reason, first: str) -> list[Any]:
        """What a plan's record keeps of one offer; see there. `first` is the slug of the plan's first model."""
        prospect = self.prospect
        found = score(reason, prospect.offers[at], self.prices.sums[at], self.standings[at])
        line = [*prospect.heads[at], str(reason), None if found is None else round(found, 4)]
        if prospect.model.slug != first:
            line.append(prospect.model.slug)
        return line

    def lines_left_out(self, first: str) -> list[list[Any]]:
        """The same of those that are not in order."""
        slug = self.prospect.model.slug
        behind = [] if slug == first else [slug]
        return [self.line(at, self.out[at], first) for at in sorted(self.out)] + [
            [offer.id, offer.provider.slug, offer.upstream_model, reason, None, *behind]
            for offer, reason in self.prospect.excluded
        ]
