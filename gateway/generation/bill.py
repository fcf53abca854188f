"""What a generation comes to: the tokens of its attempts at the rates of each.

Mostly one attempt has something to bill, the one that answered. A stream that broke and was continued has two: the
first is estimated from what was relayed, each is priced under its own tariff, and the lines say which is whose.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from billing.backbone.admission import Held
from billing.models import Basis
from billing.pricing import ZERO, Line, plus, text
from billing.tokens import Tokens
from gateway.generation.attempt import Attempt


class Bill(msgspec.Struct, frozen=True):
    """Tokens, what they rest on, and dollars: what the tenant pays, what the provider takes, what nobody pays.

    None: unknown. `arithmetic` are the lines that add up to it, ready for storage.
    """

    tokens: Tokens
    basis: Basis
    charge: Decimal | None
    cost: Decimal | None
    overrun: Decimal
    arithmetic: list[dict[str, Any]]


NOTHING = Bill(Tokens(), Basis.NOTHING, ZERO, ZERO, ZERO, [])
# The provider answered, and nobody can read what: it may well bill it.
UNREADABLE = Bill(Tokens(), Basis.UNKNOWN, ZERO, None, ZERO, [])


def bill(attempts: Sequence[Attempt], text_bytes: int, held: Held) -> Bill:
    """What the attempts come to that relayed something or answered; `text_bytes` is the prompt's length in bytes.

    On a hard budget never more than was held for it. Notes each attempt's tokens in its row.
    """
    billed: list[tuple[Attempt, tuple[Line, ...]]] = []
    tokens, basis, charge, cost = NOTHING.tokens, NOTHING.basis, NOTHING.charge, NOTHING.cost
    for attempt in attempts:
        used, known_by = attempt.tokens(text_bytes)
        if known_by is Basis.NOTHING:
            continue
        attempt.row.prompt_tokens, attempt.row.completion_tokens = used.prompt, used.completion
        priced = attempt.candidate.prices.price(used)
        if not billed:
            tokens, basis, charge, cost = used, known_by, priced.charge, priced.cost
        else:
            tokens, charge, cost = tokens + used, plus(charge, priced.charge), plus(cost, priced.cost)
            if known_by is Basis.ESTIMATED:  # one that is estimated makes the sum an estimate
                basis = known_by
        billed.append((attempt, priced.lines))
    if not billed:
        return NOTHING
    overrun = ZERO
    if held.hard and charge is not None and held.money is not None and charge > held.money:
        charge, overrun, basis = held.money, charge - held.money, Basis.CAPPED
    arithmetic = [
        _line(line) if len(billed) == 1 else _line_of(attempt, line) for attempt, lines in billed for line in lines
    ]
    return Bill(tokens, basis, charge, cost, overrun, arithmetic)


def _line(line: Line) -> dict[str, Any]:
    return {"item": line.item, "quantity": line.quantity, **line.rate.said}


def _line_of(attempt: Attempt, line: Line) -> dict[str, Any]:
    """A line of one attempt among several: it says which, and what of the cost is that provider's."""
    return {
        **_line(line),
        "attempt": attempt.row.number,
        "provider": attempt.row.provider,
        "provider_cost": text(line.amount(line.rate.cost)),
    }
