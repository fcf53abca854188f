"""Granting credit, expiring it, what a prepaid balance has left, and its end."""

import logging
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from django.core.exceptions import ValidationError
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils.translation import gettext as _
from psycopg.errors import CheckViolation, UniqueViolation

from accounts.models import Organization
from billing.credit.credits import CreditKind

logger = logging.getLogger(__name__)

MOST = Decimal(10) ** 9  # dollars a credit

# Dollars: left and not expired, of that given and paid, and held by open requests.
BALANCE = """
    select greatest(p.granted - c.used, 0), coalesce(sum(n.remaining) filter (where n.bonus), 0),
           coalesce(sum(n.remaining) filter (where not n.bonus), 0), c.held
      from billing_prepaid p
     cross join lateral (
           select c.used, c.held from billing_counter c
            where c.subject = p.organization_id and c.measure = 'money' and c.period = 'balance'
              and c.period_start = billing_window('balance', now())
            order by c.version desc limit 1) c
      left join lateral billing_lots(p.organization_id) n on true
     where p.organization_id = %s
     group by p.granted, c.used, c.held
"""


class Balance(NamedTuple):
    """What a prepaid organization has left, `given` and `paid` together, and how much of it open requests hold."""

    left: Decimal
    given: Decimal
    paid: Decimal
    held: Decimal


def balance(organization: UUID) -> Balance | None:
    """What is left at this moment; None for who is postpaid."""
    with connection.cursor() as cursor:
        cursor.execute(BALANCE, [organization])
        row = cursor.fetchone()
    return Balance(*row) if row else None


def lots(organization: UUID) -> dict[int, Decimal]:
    """What is left of each credit at this moment, in the order in which they are spent."""
    with connection.cursor() as cursor:
        cursor.execute("select credit, remaining from billing_lots(%s) where remaining > 0", [organization])
        return dict(cursor.fetchall())


def grant(
    organization: Organization,
    kind: CreditKind,
    amount: Decimal,
    reference: str,
    by: str,
    *,
    expires_at: datetime | None = None,
    note: str = "",
    begin: bool = False,
) -> int:
    """Moves a balance by `amount` dollars, once for a `reference`; gives the credit's id. Only an adjustment may take.

    `begin` makes a postpaid organization prepaid. Raises ValidationError, and then nothing has moved: the reference was
    used, the amount is none, more is taken than is neither spent nor held, or the organization is postpaid.
    """
    if not amount.is_finite() or not amount or abs(amount) > MOST or amount != round(amount, 12):
        words = _("Give an amount of at most %(most)s dollars and twelve decimals, and not 0.") % {"most": f"{MOST:,}"}
        raise ValidationError({"amount": words})
    if amount < 0 and kind != CreditKind.ADJUSTMENT:
        raise ValidationError({"amount": _("Only an adjustment takes.")})
    if amount < 0 and expires_at:
        raise ValidationError({"expires_at": _("What is taken does not expire.")})
    values: list[Any] = [organization.pk, kind.value, amount, expires_at, reference, note, by, begin]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select billing_grant_credit(%s, %s, %s, %s, %s, %s, %s, %s)", values)
            (id,) = cursor.fetchone()
    except IntegrityError as error:
        match error.__cause__:
            case UniqueViolation():
                words = _("The organization has a credit with the reference %(reference)s already.")
                raise ValidationError({"reference": words % {"reference": reference}}) from None
            case CheckViolation() as refused:
                raise ValidationError(_said(refused)) from None
        raise
    return int(id)


def end(organization: UUID) -> None:
    """Makes a prepaid organization postpaid, once nothing of its balance is left or held.

    Raises ValidationError, and then it is as it was: something is left, requests are open, or it is postpaid already.
    """
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("select billing_end_balance(%s)", [organization])
    except IntegrityError as error:
        if isinstance(error.__cause__, CheckViolation):
            raise ValidationError(_said(error.__cause__)) from None
        raise


def _said(refused: CheckViolation) -> str:
    words = refused.diag.message_primary or ""
    return f"{words[:1].upper()}{words[1:]}."


def expire() -> int:
    """Takes what is left of credits whose time is over, organization by organization; how many expired. One that fails
    keeps no other waiting.
    """
    with connection.cursor() as cursor:
        cursor.execute("select billing_due_balances()")
        due = sorted(organization for (organization,) in cursor.fetchall())
        count = 0
        for organization in due:
            try:
                with transaction.atomic():  # its counter stays locked until the commit
                    cursor.execute("select billing_expire_credit(%s)", [organization])
                    count += cursor.fetchone()[0]
            except DatabaseError:
                logger.exception("the credit of %s did not expire", organization)
    return count
