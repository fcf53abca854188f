"""Which offers a request may be sent to, in which order, and why. Pure: everything it reads is an argument."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from billing.pricing import NO_PRICES, Prices, WorstCase
from routing.catalog import Model, Offer


class Reason(StrEnum):
    """Why a candidate was taken or left out."""

    PRIORITY = "taken in the order of its priority"
    NO_CREDENTIAL = "left out: its provider has no usable credential"
    TOO_DEAR = "left out: its worst case is above the key's highest price a request"
    UNPRICED = "left out: its price is unknown and the key has a highest price a request"


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer, whether it was taken, why, and what it would cost at worst under the tariff version in force."""

    offer: Offer
    taken: bool
    reason: Reason
    output_cap: int
    prices: Prices
    tariff_version: int | None
    worst: WorstCase


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request needs to be planned. `input_tokens` is an upper bound, `output_cap` what the client asked for."""

    input_tokens: int
    output_cap: int | None
    copies: int
    max_price: Decimal | None
    now: datetime


def plan(model: Model, wanted: Wanted) -> list[Candidate]:
    """Every offer of `model`, those to be tried first, in order, then those left out."""
    candidates = [_candidate(offer, wanted) for offer in model.offers]
    return sorted(candidates, key=lambda candidate: not candidate.taken)  # stable: priority order stays


def _candidate(offer: Offer, wanted: Wanted) -> Candidate:
    version = offer.tariff_at(wanted.now)
    prices = version.prices if version else NO_PRICES
    cap = offer.max_output if wanted.output_cap is None else min(wanted.output_cap, offer.max_output)
    worst = prices.worst_case(wanted.input_tokens, wanted.copies)
    reason = Reason.PRIORITY
    if not offer.credentials and offer.provider.auth_style != "none":
        reason = Reason.NO_CREDENTIAL
    elif wanted.max_price is not None:
        price = worst.at(cap)
        if price is None:
            reason = Reason.UNPRICED
        elif price > wanted.max_price:
            reason = Reason.TOO_DEAR
    return Candidate(offer, reason is Reason.PRIORITY, reason, cap, prices, version.id if version else None, worst)
