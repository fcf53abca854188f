"""Price lists that are wanted, by somebody or since it is time, and those that are not: without what reads them."""

from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from billing.models import PriceList
from routing.models import Provider
from routing.starter.turn import take_turn
from routing.starter.vendors import VENDORS

KEPT = 20  # lists


def known_vendors() -> list[str]:
    """The vendors of the table that are providers of the catalog, by slug."""
    names = [vendor.slug for vendor in VENDORS]
    return sorted(Provider.objects.filter(slug__in=names).values_list("slug", flat=True))


def ask(by: str, vendors: Sequence[str]) -> PriceList:
    """Writes down that the list is wanted, for a worker to fetch. Only the newest lists are kept, and those that
    somebody has asked for and is still to look at.
    """
    made = PriceList.objects.create(url=settings.PRICES_URL, asked_by=by, vendors=",".join(vendors))
    newest = PriceList.objects.order_by("-pk").values_list("pk", flat=True)[:KEPT]
    theirs = ~Q(asked_by="") & Q(state=PriceList.State.FETCHED)
    PriceList.objects.exclude(pk__in=list(newest)).exclude(theirs).delete()
    return made


def ask_if_due() -> PriceList | None:
    """Asks for the list once in `PRICES_HOURS`, for the vendors that the catalog has; None: it is not due, or never."""
    vendors = known_vendors()
    if settings.PRICES_HOURS <= 0 or not vendors:
        return None
    with transaction.atomic():
        take_turn()  # two workers would both find that it is due
        since = timezone.now() - timedelta(hours=settings.PRICES_HOURS)
        if PriceList.objects.filter(asked_by="", asked_at__gt=since).exists():
            return None
        return ask("", vendors)


def decline(row: PriceList, by: str) -> bool:
    """Leaves the catalog as it is; False: somebody has decided before."""
    with transaction.atomic():
        found = PriceList.objects.select_for_update().get(pk=row.pk)
        if found.state != PriceList.State.FETCHED:
            return False
        decided(found, PriceList.State.DECLINED, by)
        found.save()
    return True


def decided(row: PriceList, state: PriceList.State, by: str) -> None:
    """Notes a decision; the caller saves."""
    row.state, row.content, row.decided_by, row.decided_at = state, None, by, timezone.now()
