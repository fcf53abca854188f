"""What a generation comes to: the tokens of its attempts at the rates of each. The rule is in docs/design.md, "How an
answer can end".

Mostly one attempt has something to bill, the one that answered. A stream that broke and was continued has two: the
first is estimated from what was relayed, each is priced under its own tariff, and the lines say which is whose.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from billing.models import Basis
from billing.pricing import ZERO, Line, known, plus, text
from billing.tokens import Tokens
from gateway.generation.attempt import Attempt
from gateway.generation.estimate import Estimate


class Bill(msgspec.Struct, frozen=True):
    """Tokens, what they rest on, and dollars: what the tenant owes, and what the provider takes.

    None: unknown. `arithmetic` are the lines that add up to it, ready for storage. `unpriced` are items among them that
    have no rate, and so are not in the sums.
    """

    tokens: Tokens
    basis: Basis
    charge: Decimal | None
    cost: Decimal | None
    arithmetic: list[dict[str, Any]]
    unpriced: tuple[str, ...] = ()


_NOTHING, _UNKNOWN = Basis.NOTHING, Basis.UNKNOWN  # an enum's members are slow to look up
NOTHING = Bill(Tokens(), Basis.NOTHING, ZERO, ZERO, [])
# The provider was asked, and nobody knows what it did: it may well bill it.
UNKNOWN = Bill(Tokens(), Basis.UNKNOWN, ZERO, None, [])


def bill(attempts: Sequence[Attempt], estimate: Estimate, *, ours: bool = False) -> Bill:
    """What the attempts come to; `ours`: the gateway itself failed. Notes each attempt's tokens in its row.

    An attempt that nobody could count adds nothing to what the others come to.
    """
    billed: list[tuple[Attempt, tuple[Line, ...]]] = []
    tokens, basis, charge, cost = NOTHING.tokens, NOTHING.basis, NOTHING.charge, NOTHING.cost
    found = NOTHING
    unpriced: list[str] = []
    for attempt in attempts:
        used, known_by = attempt.used(estimate, ours=ours)
        if known_by is _NOTHING:
            continue
        if known_by is _UNKNOWN:
            found = UNKNOWN
            continue
        attempt.row.prompt_tokens, attempt.row.completion_tokens = used.prompt, used.completion
        prices, served = attempt.candidate.prices, attempt.served
        priced = prices.of(served).price(used)
        its_charge, its_cost = priced.charge, priced.cost
        if its_charge is None or its_cost is None:
            its_charge, its_cost = known(priced.lines)
            unpriced += [line.item for line in priced.lines if line.rate.charge is None]
        if served and not prices.knows(served):
            # Nobody asked for it, so the tenant's price is the usual one; the provider's is not known.
            unpriced.append("the class of service that was served")
            its_cost = None
        if not billed:
            tokens, basis, charge, cost = used, known_by, its_charge, its_cost
        else:
            tokens, charge, cost = tokens + used, plus(charge, its_charge), plus(cost, its_cost)
            if known_by is Basis.ESTIMATED:  # one that is estimated makes the sum an estimate
                basis = known_by
        billed.append((attempt, priced.lines))
    if not billed:
        return found
    arithmetic = [
        _line(line) if len(billed) == 1 else _line_of(attempt, line) for attempt, lines in billed for line in lines
    ]
    return Bill(tokens, basis, charge, cost, arithmetic, tuple(unpriced))


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
