"""Issues statements of closed months, and credit notes.

The lines of a month are its rollups: a statement of a million generations is made in milliseconds. Where they are not
what was posted to the month, a line says why: calls that were settled after the close are on a later statement, and
this one has those of earlier months. Which were late is told by the ledger's balances, of day and of the day they
belong to.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import F, Q, Sum
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from accounts.models import Organization
from billing.models import (
    AccountDay,
    ClosedMonth,
    ClosedSum,
    DocumentKind,
    LateHour,
    Mark,
    Span,
    Statement,
    UsageRollup,
    month_after,
)

ZERO = Decimal(0)
MOST_REASON = 500  # characters
LATER = gettext_noop("Settled after the month was closed; on a later statement")
EARLIER = gettext_noop("Of earlier months, settled after they were closed")
ADJUSTED = gettext_noop("Priced anew")
BESIDE = ("images", "seconds", "web_searches")  # what is counted beside tokens


@dataclass(frozen=True, slots=True)
class _Month:
    """A month, UTC, and an organization's account in it."""

    first: date
    organization: UUID

    @property
    def last(self) -> date:
        """The first day after it."""
        return month_after(self.first)

    @property
    def moments(self) -> tuple[datetime, datetime]:
        """When it began and ended."""
        first, last = (datetime.combine(day, time(), UTC) for day in (self.first, self.last))
        return first, last

    def posted(self, **days: date) -> Decimal:
        """What was posted to the tenant's account, of some days."""
        found = AccountDay.objects.filter(
            organization=self.organization, account=f"tenant:{self.organization}", **days
        ).aggregate(owed=Sum(F("debit") - F("credit")))["owed"]
        return found or ZERO


def statement(first: date, organization: Organization, by: str) -> Statement:
    """The statement of a month, not issued yet. Raises ValidationError when it cannot be: the month is not closed, its
    sums are not kept yet, its usage is not rolled up, or the statement is there.
    """
    month = _Month(first, organization.pk)
    begin, end = month.moments
    if not ClosedMonth.objects.filter(month=first, summed_at__isnull=False).exists():
        raise ValidationError(
            _("The month is not closed, or its sums are not kept yet: close it, and wait some minutes.")
        )
    if Statement.objects.filter(kind=DocumentKind.STATEMENT, month=first, organization=organization.pk).exists():
        raise ValidationError(_("There is a statement of this month already."))
    if (
        not Mark.objects.filter(name="usage", until__gte=end).exists()
        or LateHour.objects.filter(hour__gte=begin, hour__lt=end).exists()
    ):
        raise ValidationError(_("The month's usage is not rolled up yet. Try again in some minutes."))
    owed, repriced = _closed(month, "tenant"), _closed(month, "repriced")
    lines = _lines(month)
    notes = {
        LATER: -month.posted(day__gte=month.last, of_day__gte=month.first, of_day__lt=month.last),
        EARLIER: month.posted(day__gte=month.first, day__lt=month.last, of_day__lt=month.first),
    }
    apart = owed - sum((Decimal(line["charge"]) for line in lines), ZERO) - sum(notes.values())
    if apart:
        raise ValidationError(
            _("The month's usage and its ledger are %(apart)s apart. The audit says where, or will in some minutes.")
            % {"apart": f"{apart:f}"}
        )
    notes[ADJUSTED] = repriced
    lines += [{"note": note, "charge": f"{charge:f}"} for note, charge in notes.items() if charge]
    return Statement(
        issuer=settings.ISSUER_NAME,
        kind=DocumentKind.STATEMENT,
        organization=organization.pk,
        slug=organization.slug,
        name=organization.name or organization.slug,
        month=first,
        total=owed + repriced,
        lines=lines,
        issued_by=by,
    )


def credit_note(number: str, amount: str, reason: str, by: str) -> Statement:
    """A credit note that takes `amount` dollars of the statement of a number such as 2026-00001, not issued yet. Raises
    ValidationError when there is no such statement, when that has less left, or no reason is given.
    """
    year, _dash, place = number.strip().partition("-")
    found = None
    if all(text.isascii() and text.isdigit() and len(text) <= 9 for text in (year, place)):
        found = Statement.objects.filter(
            kind=DocumentKind.STATEMENT, issuer=settings.ISSUER_NAME, year=int(year), number=int(place)
        ).first()
    if found is None:
        raise ValidationError(_("There is no statement %(number)s.") % {"number": number})
    try:
        taken = Decimal(amount.strip())
    except InvalidOperation:
        taken = ZERO
    if not taken.is_finite() or taken <= 0 or taken != round(taken, 12):
        raise ValidationError(_("Give an amount above 0, of at most twelve decimals."))
    left = found.total + (found.credits.aggregate(all=Sum("total"))["all"] or ZERO)
    if taken > left:
        raise ValidationError(_("The statement has %(left)s left.") % {"left": f"{left:f}"})
    if not reason.strip() or len(reason) > MOST_REASON:
        raise ValidationError(_("Give a reason, of at most %(MOST_REASON)s characters.") % {"MOST_REASON": MOST_REASON})
    return Statement(
        issuer=found.issuer,
        kind=DocumentKind.CREDIT,
        refers_to=found,
        organization=found.organization,
        slug=found.slug,
        name=found.name,
        month=found.month,
        currency=found.currency,
        total=-taken,
        lines=[{"note": reason.strip(), "charge": f"{-taken:f}"}],
        reason=reason.strip(),
        issued_by=by,
    )


def issue(document: Statement) -> Statement:
    """Issues it: gives it its number, for good."""
    document.save(force_insert=True)
    document.refresh_from_db()
    return document


def waiting(first: date) -> list[Organization]:
    """Organizations that something was posted for in a month whose sums are kept, and that have no statement of it."""
    owing = Q(account__startswith="tenant:") | Q(account__startswith="repriced:")
    posted = ClosedSum.objects.filter(owing, month=first).values("organization")
    there = Statement.objects.filter(kind=DocumentKind.STATEMENT, month=first).values("organization")
    return list(Organization.objects.filter(pk__in=posted).exclude(pk__in=there).order_by("slug"))


def _lines(month: _Month) -> list[dict[str, Any]]:
    begin, end = month.moments
    found = (
        UsageRollup.objects.filter(
            span=Span.DAY, organization=month.organization, starts_at__gte=begin, starts_at__lt=end
        )
        .values("model", "provider")
        .annotate(
            calls=Sum("requests"),
            prompt=Sum("prompt_tokens"),
            completion=Sum("completion_tokens"),
            owed=Sum("charge"),
            pictures=Sum("images"),
            lasting=Sum("seconds"),
            searches=Sum("web_searches"),
        )
        .order_by("model", "provider")
    )
    return [
        {
            "model": row["model"],
            "provider": row["provider"],
            "requests": row["calls"],
            "prompt_tokens": int(row["prompt"]),
            "completion_tokens": int(row["completion"]),
            **_there(row["pictures"], row["lasting"], row["searches"]),
            "charge": f"{row['owed']:f}",
        }
        for row in found
    ]


def _there(*counts: Decimal | int) -> dict[str, int]:
    return {name: int(count) for name, count in zip(BESIDE, counts, strict=True) if count}


def _closed(month: _Month, account: str) -> Decimal:
    """What a kind of account of the organization's was closed at."""
    found = ClosedSum.objects.filter(
        month=month.first, organization=month.organization, account=f"{account}:{month.organization}"
    ).aggregate(owed=Sum(F("debit") - F("credit")))["owed"]
    return found or ZERO
