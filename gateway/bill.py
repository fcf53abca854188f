"""What a generation comes to: the tokens of its attempts at the rates of each.

Mostly one attempt has something to bill, the one that answered. A stream that broke and was continued has two: the
first is estimated from what was relayed, each is priced under its own tariff, and the lines say which is whose.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from billing import pricing
from billing.admission import Held
from billing.models import Basis
from billing.tokens import Tokens
from gateway.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Bill:
    """Tokens, what they rest on, and dollars: what the tenant pays, what the provider takes, what nobody pays.

    None: unknown. `arithmetic` are the lines that add up to it, ready for storage.
    """

    tokens: Tokens
    basis: Basis
    charge: Decimal | None
    cost: Decimal | None
    overrun: Decimal
    arithmetic: list[dict[str, Any]]


ZERO = Decimal(0)
NOTHING = Bill(Tokens(), Basis.NOTHING, Decimal(0), Decimal(0), Decimal(0), [])
# The provider answered, and nobody can read what: it may well bill it.
UNREADABLE = Bill(Tokens(), Basis.UNKNOWN, Decimal(0), None, Decimal(0), [])


def bill(attempts: Sequence[Attempt], text_bytes: int, held: Held) -> Bill:
    """What the attempts come to that relayed something or answered; `text_bytes` is the prompt's length in bytes.

    On a hard budget never more than was held for it. Notes each attempt's tokens in its row.
    """
    tokens, basis, billed = Tokens(), Basis.NOTHING, 0
    charge: Decimal | None = ZERO
    cost: Decimal | None = ZERO
    lines: list[tuple[pricing.Line, Attempt]] = []
    for attempt in attempts:
        used, known_by = attempt.tokens(text_bytes)
        if known_by is Basis.NOTHING:
            continue
        priced = attempt.candidate.prices.price(used)
        attempt.row.prompt_tokens, attempt.row.completion_tokens = used.prompt, used.completion
        # One that is estimated makes the sum an estimate.
        basis = known_by if basis is Basis.NOTHING or known_by is Basis.ESTIMATED else basis
        tokens = tokens + used if billed else used
        billed += 1
        charge, cost = _plus(charge, priced.charge), _plus(cost, priced.cost)
        lines += [(line, attempt) for line in priced.lines]
    if basis is Basis.NOTHING:
        return NOTHING
    overrun = ZERO
    if held.hard and charge is not None and held.money is not None and charge > held.money:
        charge, overrun, basis = held.money, charge - held.money, Basis.CAPPED
    arithmetic = [_line(line, attempt if billed > 1 else None) for line, attempt in lines]
    return Bill(tokens, basis, charge, cost, overrun, arithmetic)


def _plus(sum: Decimal | None, amount: Decimal | None) -> Decimal | None:
    return None if sum is None or amount is None else sum + amount


def _line(line: pricing.Line, attempt: Attempt | None) -> dict[str, Any]:
    """One line; of one attempt among several it says which, and what of the cost is that provider's."""
    shown: dict[str, Any] = {
        "item": line.item,
        "quantity": line.quantity,
        "cost": _text(line.rate.cost),
        "charge": _text(line.rate.charge),
    }
    if attempt is not None:
        shown["attempt"] = attempt.row.number
        shown["provider"] = attempt.row.provider
        shown["provider_cost"] = _text(line.amount(line.rate.cost))
    return shown


def _text(price: Decimal | None) -> str | None:
    return None if price is None else f"{price:f}"
