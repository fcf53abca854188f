"""What each credit of a prepaid balance has left: told from the movements of the balance alone. Pure.

What was given is spent before what was paid, then what expires first, then the oldest. Taken back is what would be
spent last. The database keeps the same as it goes (`billing/sql/credit.sql`); this is what it is held to.
"""

from bisect import insort
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


@dataclass(slots=True, order=True)
class _Lot:
    paid: bool
    expires_at: datetime
    id: int
    left: Decimal


def remaining(moves: Iterable[Move], used: Decimal) -> dict[int, Decimal]:
    """What is left of each credit that has something left, once the counter says `used`; moves in the order of ids.

    What was spent beyond the balance, since it had been held before a credit expired, counts as spent of that one.
    Raises `Impossible`.
    """
    lots: list[_Lot] = []  # in the order in which they are spent
    at = over = ZERO
    for move in moves:
        over += _take(lots, move.used_before - at)
        at = move.used_before
        if move.of is None and move.amount > 0:
            insort(lots, _Lot(not move.bonus, move.expires_at or NEVER, move.id, move.amount))
            continue
        at -= move.amount
        if move.of is None:
            if _take(lots, -move.amount, place=-1):
                raise Impossible(f"credit {move.id} takes more than there is")
        elif move.amount > 0:
            over -= move.amount
            if over < 0:
                raise Impossible(f"credit {move.id} gives back more than was spent late")
        else:
            expired = next((lot for lot in lots if lot.id == move.of), None)
            if expired is None or expired.left != -move.amount:
                raise Impossible(f"credit {move.id} is not what was left of {move.of}")
            lots.remove(expired)
    _take(lots, used - at)
    return {lot.id: lot.left for lot in lots}


def _take(lots: list[_Lot], amount: Decimal, place: int = 0) -> Decimal:
    """Spends of the lots, from their first one on or from their last; gives what they do not have."""
    if amount < 0:
        raise Impossible("what is used becomes no less by itself")
    while lots and lots[place].left <= amount:
        amount -= lots.pop(place).left
    if lots and amount:
        lots[place].left -= amount
        return ZERO
    return amount
