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


NOTHING = Bill(Tokens(), Basis.NOTHING, Decimal(0), Decimal(0), Decimal(0), [])
# The provider answered, and nobody can read what: it may well bill it.
UNREADABLE = Bill(Tokens(), Basis.UNKNOWN, Decimal(0), None, Decimal(0), [])


def bill(attempts: Sequence[Attempt], text_bytes: int, held: Held) -> Bill:
    """What the attempts come to that relayed something or answered; `text_bytes` is the prompt's length in bytes.

    On a hard budget never more than was held for it. Notes each attempt's tokens in its row.
    """
    billed = [(attempt, *attempt.tokens(text_bytes)) for attempt in attempts]
    billed = [(attempt, tokens, basis) for attempt, tokens, basis in billed if basis is not Basis.NOTHING]
    if not billed:
        return NOTHING
    tokens, charge, cost = Tokens(), Decimal(0), Decimal(0)
    lines: list[dict[str, Any]] = []
    known_charge = known_cost = True
    for attempt, used, _ in billed:
        priced = attempt.candidate.prices.price(used)
        tokens = tokens + used
        charge, known_charge = charge + (priced.charge or 0), known_charge and priced.charge is not None
        cost, known_cost = cost + (priced.cost or 0), known_cost and priced.cost is not None
        lines += [_line(line, attempt if len(billed) > 1 else None) for line in priced.lines]
        attempt.row.prompt_tokens, attempt.row.completion_tokens = used.prompt, used.completion
    estimated = any(basis is Basis.ESTIMATED for *_, basis in billed)
    basis, overrun = (Basis.ESTIMATED if estimated else Basis.REPORTED), Decimal(0)
    if held.hard and known_charge and held.money is not None and charge > held.money:
        charge, overrun, basis = held.money, charge - held.money, Basis.CAPPED
    return Bill(tokens, basis, charge if known_charge else None, cost if known_cost else None, overrun, lines)


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
