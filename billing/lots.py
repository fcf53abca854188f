"""What each credit of a prepaid balance has left: told from the movements of the balance alone. Pure.

What was given is spent before what was paid, then what expires first, then the oldest. Taken back is what would be
spent last. The database keeps the same as it goes (`billing/sql/credit.sql`); this is what it is held to.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

ZERO = Decimal(0)
NEVER = datetime.max.replace(tzinfo=UTC)


class Impossible(ValueError):
    """Movements that no balance can have: more spent than granted, or taken than there was."""


class Move(NamedTuple):
    """A movement, in dollars. `of` is the credit that it expires; above 0 then, what had been held is given back to it.

    `used_before` is what the organization's counter said before it: what was spent, taken back and expired until then.
    """

    id: int
    bonus: bool
    amount: Decimal
    expires_at: datetime | None
    of: int | None
    used_before: Decimal


@dataclass(slots=True)
class _Lot:
    order: tuple[bool, datetime, int]
    left: Decimal


def remaining(moves: Iterable[Move], used: Decimal) -> dict[int, Decimal]:
    """What is left of each credit that has something left, once the counter says `used`; moves in the order of ids.

    What was spent beyond the balance, since it had been held before a credit expired, counts as spent of that one.
    Raises `Impossible`.
    """
    lots: dict[int, _Lot] = {}
    at = over = ZERO
    for move in moves:
        over += _take(lots, move.used_before - at)
        at = move.used_before
        if move.of is None and move.amount > 0:
            lots[move.id] = _Lot((not move.bonus, move.expires_at or NEVER, move.id), move.amount)
            continue
        at -= move.amount
        if move.of is None:
            if _take(lots, -move.amount, last=True):
                raise Impossible(f"credit {move.id} takes more than there is")
        elif move.amount > 0:
            over -= move.amount
            if over < 0:
                raise Impossible(f"credit {move.id} gives back more than was spent late")
        else:
            lot = lots.pop(move.of, None)
            if lot is None or lot.left != -move.amount:
                raise Impossible(f"credit {move.id} is not what was left of {move.of}")
    _take(lots, used - at)
    return {id: lot.left for id, lot in lots.items() if lot.left}


def _take(lots: dict[int, _Lot], amount: Decimal, last: bool = False) -> Decimal:
    """Spends of the lots, in their order, or from its end; gives what they do not have."""
    if amount < 0:
        raise Impossible("what is used becomes no less by itself")
    if amount:
        for id, lot in sorted(lots.items(), key=lambda item: item[1].order, reverse=last):
            taken = min(lot.left, amount)
            lot.left -= taken
            amount -= taken
            if not lot.left:
                del lots[id]
            if not amount:
                break
    return amount
